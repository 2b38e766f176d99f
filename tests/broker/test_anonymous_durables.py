"""Who may touch the durable subscription of an anonymous client? Whoever holds its secret."""

from __future__ import annotations

import pytest

from braid.broker.access import AccessPolicy, Grant, Principal, hashed_token
from braid.protocol.log import CreateLog
from braid.protocol.messages import Done, DropDurable, Failed, Replay, SubscribeDurable
from tests.broker.wire import Network, WireClient


@pytest.fixture
def network() -> Network:
    """An open broker with a log of three rows that an anonymous client made with a secret."""
    network = Network()
    network.start("A", store=True)
    maker = network.client("maker", "A")
    maker.ask(SubscribeDurable(1, "log", "n >= 0", secret="hers alone"))
    network.run()
    maker.publish({"n": 0}, {"n": 1}, {"n": 2})
    network.run(us=100_000)
    network.leave(maker)
    network.run(us=100_000)
    return network


def refusals(client: WireClient) -> list[str]:
    return [answer.code for answer in client.answers(Failed)]


@pytest.mark.parametrize("secret", ["", "a guess"])
def test_others_neither_read_nor_replay_nor_drop_it(network: Network, secret: str):
    other = network.client("other", "A")
    other.ask(SubscribeDurable(1, "log", "", secret=secret))
    other.ask(SubscribeDurable(2, "log", "n >= 0", secret=secret))
    other.ask(Replay(3, "log", 0, -1, secret=secret))
    other.ask(DropDurable(4, "log", secret=secret))
    network.run(us=100_000)
    assert refusals(other) == ["denied"] * 4
    assert other.stored == []
    assert len(network.stores["A"].state().logs) == 1


def test_a_reader_is_not_displaced_without_the_secret(network: Network):
    maker = network.client("maker", "A")
    maker.ask(SubscribeDurable(1, "log", "", secret="hers alone"))
    other = network.client("other", "A")
    other.ask(SubscribeDurable(1, "log", "", secret="a guess"))
    network.run(us=100_000)
    network.client("writer", "A").publish({"n": 3})
    network.run(us=100_000)
    assert [row.attributes["n"] for _, _, row in maker.stored][-1] == 3
    assert refusals(maker) == []


def test_the_secret_holds_across_a_restart_and_is_stored_as_a_digest(network: Network):
    network.kill("A")
    assert "hers alone" not in repr(network.stores["A"].state())
    network.start("A")
    network.run(us=2_000_000)
    other = network.client("other", "A")
    other.ask(Replay(1, "log", 0, -1, secret="a guess"))
    maker = network.client("maker again", "A")
    maker.ask(Replay(1, "log", 0, -1, secret="hers alone"))
    maker.ask(SubscribeDurable(2, "log", "", secret="hers alone"))
    network.run(us=100_000)
    assert refusals(other) == ["denied"]
    assert len(maker.stored) == 6
    maker.ask(DropDurable(3, "log", secret="hers alone"))
    network.run(us=100_000)
    assert sorted(answer.request for answer in maker.answers(Done)) == [1, 2, 3]
    assert network.stores["A"].state().logs == ()


def test_a_log_from_before_there_were_secrets_belongs_to_who_first_shows_one():
    network = Network()
    network.start("A", store=True)
    network.run(us=100_000)
    network.kill("A")
    network.stores["A"].apply([CreateLog("anonymous/log", "anonymous", "n >= 0", "drop_oldest", 0)])
    network.start("A")
    network.run(us=2_000_000)
    first = network.client("first", "A")
    first.ask(SubscribeDurable(1, "log", "", secret="first come"))
    network.run(us=100_000)
    assert len(first.answers(Done)) == 1
    network.kill("A")
    network.start("A")
    network.run(us=2_000_000)
    second = network.client("second", "A")
    second.ask(DropDurable(1, "log", secret="second come"))
    network.run(us=100_000)
    assert refusals(second) == ["denied"]


def test_principals_need_no_secret():
    principals = {"alice": Principal("alice", Grant.everything())}
    network = Network()
    access = AccessPolicy(principals=principals, tokens={hashed_token("alice"): "alice"})
    network.start("A", store=True, access=access)
    alice = network.client("alice", "A", token="alice")
    alice.ask(SubscribeDurable(1, "log", "TRUE", secret="from this machine"))
    network.run(us=100_000)
    elsewhere = network.client("alice elsewhere", "A", token="alice")
    elsewhere.ask(SubscribeDurable(1, "log", "", secret="from that machine", takeover=True))
    network.run(us=100_000)
    assert len(elsewhere.answers(Done)) == 1

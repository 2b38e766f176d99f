"""Does a durable subscription deliver only what its owner may hear *now*?

A log outlives the grant it was made under. What counts is the grant at the moment rows are stored, sent or
replayed, not the one at the moment the log was made.
"""

from __future__ import annotations

from typing import Any

from braid.broker.access import AccessPolicy, Grant, Principal, hashed_token
from braid.language import Filter
from braid.protocol.inputs import Reconfigured
from braid.protocol.messages import Acknowledge, Done, Failed, Replay, SubscribeDurable
from tests.broker.wire import Network, WireClient


def policy(subscribe: str | None, *, narrow: bool) -> AccessPolicy:
    """Alice may subscribe within a filter; the publisher may do everything."""
    granted = Filter(subscribe) if subscribe is not None else None
    principals = {
        "alice": Principal("alice", Grant(None, granted, narrow=narrow)),
        "till": Principal("till", Grant.everything()),
    }
    return AccessPolicy(principals=principals, tokens={hashed_token(name): name for name in principals})


def stored(client: WireClient) -> list[tuple[int, Any]]:
    """Offset and number of every row that came from the log."""
    return [(offset, row.attributes["n"]) for _, offset, row in client.stored]


def restarted(network: Network, access: AccessPolicy) -> None:
    """The access file was changed and the broker started again."""
    network.kill("A")
    network._access["A"] = access
    network.start("A")
    network.run(us=2_000_000)


def world_with_a_log(rows: int = 6) -> Network:
    """A log of alice's made under a grant of everything, with rows of zones 0 and 1 in turn."""
    network = Network()
    network.start("A", store=True, access=policy("TRUE", narrow=True))
    alice = network.client("alice", "A", token="alice")
    alice.ask(SubscribeDurable(1, "log", "TRUE"))
    network.run()
    network.leave(alice)
    till = network.client("till", "A", token="till")
    till.publish(*({"n": n, "zone": n % 2} for n in range(rows)))
    network.run(us=100_000)
    network.leave(till)
    network.run(us=100_000)
    return network


def publish_again(network: Network, first: int, count: int) -> None:
    till = network.client("till", "A", token="till")
    till.sequence = first
    till.publish(*({"n": n, "zone": n % 2} for n in range(first, first + count)))
    network.run(us=100_000)
    network.leave(till)
    network.run(us=100_000)


def test_old_and_new_rows_outside_a_narrowed_grant_are_not_sent():
    network = world_with_a_log()
    restarted(network, policy("zone = 1", narrow=True))
    alice = network.client("alice", "A", token="alice")
    alice.ask(SubscribeDurable(1, "log", ""))
    network.run(us=100_000)
    publish_again(network, 6, 4)
    assert stored(alice) == [(1, 1), (3, 3), (5, 5), (6, 7), (7, 9)]
    (answer,) = alice.answers(Done)
    assert Filter(answer.text) == Filter("zone = 1")


def test_rows_outside_a_narrowed_grant_are_not_replayed():
    network = world_with_a_log()
    restarted(network, policy("zone = 1", narrow=True))
    alice = network.client("alice", "A", token="alice")
    alice.ask(Replay(1, "log", 0, -1))
    network.run(us=100_000)
    assert stored(alice) == [(1, 1), (3, 3), (5, 5)]
    assert len(alice.answers(Done)) == 1


def test_a_replay_that_is_to_be_complete_says_that_rows_are_withheld() -> None:
    network = world_with_a_log()
    restarted(network, policy("zone = 1", narrow=True))
    alice = network.client("alice", "A", token="alice")
    wishes = [
        Replay(1, "log", 0, 5, complete=True),
        Replay(2, "log", 0, 5, complete=True, packed=True),
        Replay(3, "log", 0, 5, complete=True, filter="zone = 1"),
        Replay(4, "log", 1, 1, complete=True),
    ]
    for wish in wishes:
        alice.ask(wish)
        network.run(us=100_000)
    assert [(answer.request, answer.code) for answer in alice.answers(Failed)] == [
        (1, "withheld"),
        (2, "withheld"),
        (3, "withheld"),
    ]
    assert "from offset 0 on are not for its owner any more" in alice.answers(Failed)[0].reason
    assert stored(alice) == [(1, 1)]


def test_a_reader_is_not_held_up_by_rows_that_it_may_not_have():
    network = Network()
    network.start("A", store=True, access=policy("TRUE", narrow=True), durable_window_bytes=100)
    alice = network.client("alice", "A", token="alice")
    alice.ask(SubscribeDurable(1, "log", "TRUE"))
    network.run()
    network.leave(alice)
    publish_again(network, 0, 50)
    restarted(network, policy("n = 49 OR n = 7", narrow=True))
    alice = network.client("alice", "A", token="alice")
    alice.ask(SubscribeDurable(2, "log", ""))
    network.run(us=100_000)
    assert stored(alice) == [(7, 7), (49, 49)]
    alice.ask(Acknowledge("log", 49))
    alice.ask(Replay(3, "log", 0, -1))
    network.run(us=100_000)
    assert stored(alice)[2:] == [(7, 7), (49, 49)]
    assert network.stores["A"].state().logs[0].acknowledged_offset == 49


def test_a_grant_that_widens_again_shows_what_was_stored():
    network = world_with_a_log()
    restarted(network, policy("zone = 1", narrow=True))
    publish_again(network, 6, 4)
    restarted(network, policy("TRUE", narrow=True))
    alice = network.client("alice", "A", token="alice")
    alice.ask(Replay(1, "log", 0, -1))
    network.run(us=100_000)
    # 6 and 8 were published while the grant was narrower, and were not stored.
    assert [n for _, n in stored(alice)] == [0, 1, 2, 3, 4, 5, 7, 9]


def test_nothing_is_stored_for_a_principal_that_may_subscribe_to_nothing():
    network = world_with_a_log()
    restarted(network, policy(None, narrow=False))
    publish_again(network, 6, 4)
    assert network.stores["A"].state().logs[0].next_offset == 6
    alice = network.client("alice", "A", token="alice")
    alice.ask(SubscribeDurable(1, "log", ""))
    alice.ask(Replay(2, "log", 0, -1))
    network.run(us=100_000)
    assert [answer.code for answer in alice.answers(Failed)] == ["denied", "denied"]
    assert stored(alice) == []


def test_without_narrowing_a_smaller_grant_refuses_the_reader_and_bounds_what_is_stored():
    network = world_with_a_log()
    restarted(network, policy("zone = 1", narrow=False))
    publish_again(network, 6, 4)
    assert network.stores["A"].state().logs[0].next_offset == 8
    alice = network.client("alice", "A", token="alice")
    alice.ask(SubscribeDurable(1, "log", ""))
    network.run(us=100_000)
    assert [answer.code for answer in alice.answers(Failed)] == ["denied"]


def test_the_filter_that_was_asked_for_is_no_conflict_after_the_grant_has_narrowed():
    network = world_with_a_log()
    restarted(network, policy("zone = 1", narrow=True))
    alice = network.client("alice", "A", token="alice")
    alice.ask(SubscribeDurable(1, "log", "TRUE"))
    network.run(us=100_000)
    assert alice.answers(Failed) == []
    assert stored(alice) == [(1, 1), (3, 3), (5, 5)]


def test_a_grant_that_narrows_while_somebody_reads_counts_at_once():
    network = world_with_a_log()
    alice = network.client("alice", "A", token="alice")
    alice.ask(SubscribeDurable(1, "log", ""))
    network.run(us=100_000)
    before = len(stored(alice))
    network.tell("A", Reconfigured(access=policy("zone = 1", narrow=True)))
    network.run(us=100_000)
    publish_again(network, 6, 4)
    assert [n for _, n in stored(alice)[before:]] == [7, 9]
    assert network.stores["A"].state().logs[0].next_offset == 8
    alice.ask(Replay(2, "log", 0, -1))
    network.run(us=100_000)
    assert [n for _, n in stored(alice)[before + 2 :]] == [1, 3, 5, 7, 9]


def test_a_reader_that_may_not_read_any_more_hears_so():
    network = world_with_a_log()
    alice = network.client("alice", "A", token="alice")
    alice.ask(SubscribeDurable(1, "log", ""))
    network.run(us=100_000)
    before = len(stored(alice))
    network.tell("A", Reconfigured(access=policy("zone = 1", narrow=False)))
    network.run(us=100_000)
    publish_again(network, 6, 4)
    assert len(stored(alice)) == before
    assert [answer.code for answer in alice.answers(Failed)] == ["denied"]

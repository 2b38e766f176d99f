"""What may the owner of a log do from any connection, and what is a complete replay worth?"""

from __future__ import annotations

import json
from typing import Any

import pytest

from braid.broker.access import AccessPolicy, Grant, Limits, Principal, hashed_token
from braid.language import Filter
from braid.protocol.batch import encode_record
from braid.protocol.log import DropRows, Retention
from braid.protocol.memory_store import MemoryStore
from braid.protocol.messages import (
    Acknowledge,
    AcknowledgeDurable,
    CreateDurable,
    Done,
    DropDurable,
    Failed,
    LogStatus,
    Message,
    PinLog,
    Replay,
    SubscribeDurable,
)
from tests.broker.wire import Network, WireClient

DAY_US = 86_400_000_000
EVERYTHING = Filter("TRUE")


def answered(network: Network, client: WireClient, message: Message) -> Any:
    """What a client hears: the status or range of the answer, or the code of a refusal."""
    client.ask(message)
    network.run(us=100_000)
    for answer in client.answers(Done):
        if answer.request == message.request:
            return json.loads(answer.text) if answer.text else {}
    return next(answer.code for answer in client.answers(Failed) if answer.request == message.request)


@pytest.fixture
def network() -> Network:
    network = Network()
    network.start("A", store=True)
    return network


def filled(network: Network, count: int = 5) -> WireClient:
    """Somebody with a log of so many rows, n = 0, 1, 2."""
    owner = network.client("owner", "A")
    answered(network, owner, CreateDurable(1, "log", "n >= 0", secret="s"))
    writer = network.client("writer", "A")
    writer.publish(*({"n": number, "text": f"row {number}"} for number in range(count)))
    network.run(us=100_000)
    return owner


def rows(client: WireClient) -> list[tuple[int, dict[str, Any]]]:
    return [(offset, dict(row.attributes)) for _, offset, row in client.stored]


def test_a_log_is_made_without_being_read_and_says_where_it_stands(network: Network) -> None:
    owner = filled(network)
    status = answered(network, owner, LogStatus(2, "log", "s"))
    assert (status["first"], status["safe"], status["next"], status["acknowledged"]) == (0, 5, 5, -1)
    assert (status["filter"], status["when_full"], status["read"]) == ("n >= 0", "block", False)
    assert status["id"]
    assert status["key"] == "anonymous/log"
    assert status["bytes"] == network.stores["A"].state().logs[0].bytes
    assert [first for _, first in status["epochs"]] == [0]
    # Making it again with the same filter finds it; with another one it is refused.
    assert answered(network, owner, CreateDurable(3, "log", "n >= 0", secret="s"))["id"] == status["id"]
    assert answered(network, owner, CreateDurable(4, "log", "n >= 1", secret="s")) == "conflict"
    assert answered(network, owner, CreateDurable(5, "", "n >= 1")) == "refused"
    assert answered(network, owner, LogStatus(6, "nothing")) == "unknown"
    assert owner.stored == []


def test_making_a_log_does_not_disturb_its_reader(network: Network) -> None:
    owner = filled(network)
    reader = network.client("reader", "A")
    reader.ask(SubscribeDurable(1, "log", "", secret="s"))
    network.run(us=100_000)
    assert len(reader.stored) == 5
    assert answered(network, owner, CreateDurable(2, "log", "n >= 0", secret="s"))["read"] is True
    network.client("another writer", "A").publish({"n": 9})
    network.run(us=100_000)
    assert [row["n"] for _, row in rows(reader)][-1] == 9
    assert reader.answers(Failed) == []


@pytest.mark.parametrize("secret", ["", "a guess"])
def test_without_the_secret_nobody_else_has_a_say(network: Network, secret: str) -> None:
    filled(network)
    other = network.client("other", "A")
    messages: list[Message] = [
        LogStatus(1, "log", secret),
        CreateDurable(2, "log", "n >= 0", secret=secret),
        AcknowledgeDurable(3, "log", 4, secret=secret),
        PinLog(4, "log", "job", 0, DAY_US, secret=secret),
        Replay(5, "log", 0, -1, secret=secret, complete=True),
    ]
    assert [answered(network, other, message) for message in messages] == ["denied"] * 5
    assert network.stores["A"].state().logs[0].acknowledged_offset == -1


def test_a_log_made_anew_has_another_id_and_is_not_taken_for_the_former(network: Network) -> None:
    owner = filled(network)
    former = answered(network, owner, LogStatus(2, "log", "s"))["id"]
    answered(network, owner, DropDurable(3, "log", "s"))
    made = answered(network, owner, CreateDurable(4, "log", "n >= 0", secret="s"))
    assert made["id"] != former
    assert (made["first"], made["next"]) == (0, 0)
    network.client("writer 2", "A").publish(*({"n": number} for number in range(5)))
    network.run(us=100_000)
    wishes: list[Message] = [
        Replay(5, "log", 0, 4, secret="s", id=former),
        AcknowledgeDurable(6, "log", 0, former, "s"),
        PinLog(7, "log", "job", 0, DAY_US, former, "s"),
    ]
    assert [answered(network, owner, wish) for wish in wishes] == ["reset"] * 3
    assert answered(network, owner, Replay(8, "log", 0, 4, secret="s", id=made["id"]))["rows"] == 5


def test_id_and_pins_survive_a_restart(network: Network) -> None:
    owner = filled(network)
    before = answered(network, owner, LogStatus(2, "log", "s"))
    assert answered(network, owner, PinLog(3, "log", "job", 2, DAY_US, before["id"], "s")) == {}
    network.kill("A")
    network.start("A")
    network.run(us=1_000_000)
    again = network.client("owner again", "A")
    status = answered(network, again, LogStatus(1, "log", "s"))
    assert status["id"] == before["id"]
    assert [(pin["consumer"], pin["offset"]) for pin in status["pins"]] == [("job", 2)]


def test_a_complete_replay_is_all_of_it_or_an_error(network: Network) -> None:
    owner = filled(network)
    found = answered(network, owner, Replay(2, "log", 1, 3, secret="s", complete=True))
    assert (found["first"], found["last"], found["next"], found["rows"]) == (1, 3, 4, 3)
    assert [row["n"] for _, row in rows(owner)] == [1, 2, 3]
    # Rows that are not there yet.
    assert answered(network, owner, Replay(3, "log", 1, 5, secret="s", complete=True)) == "unsafe"
    # And rows that have gone: by what the broker knows, and behind its back.
    network.stores["A"].apply([DropRows("anonymous/log", 2)])
    assert answered(network, owner, Replay(4, "log", 0, 4, secret="s", complete=True)) == "trimmed"
    assert answered(network, owner, Replay(5, "log", 2, 4, secret="s", complete=True))["rows"] == 3
    # Whoever does not ask for that gets what there is.
    assert answered(network, owner, Replay(6, "log", 0, 9, secret="s"))["rows"] == 3
    # An empty range is complete.
    assert answered(network, owner, Replay(7, "log", 5, -1, secret="s", complete=True))["rows"] == 0


def test_rows_that_go_in_the_middle_of_a_complete_replay_are_noticed() -> None:
    network = Network()
    network.start("A", store=True, durable_window_bytes=128)
    owner = filled(network, 40)
    original = network.stores["A"].read
    reads: list[int] = []

    def read(name: str, first: int, last: int | None, bytes_max: int) -> Any:
        reads.append(first)
        if len(reads) == 3:  # between two pieces
            network.stores["A"].apply([DropRows("anonymous/log", first + 5)])
        return original(name, first, last, bytes_max)

    network.stores["A"].read = read  # type: ignore[method-assign]
    assert answered(network, owner, Replay(2, "log", 0, 39, secret="s", complete=True)) == "trimmed"
    assert len(owner.stored) == reads[2]


def test_filter_and_columns_are_applied_at_the_broker(network: Network) -> None:
    owner = filled(network, 100)
    wish = Replay(2, "log", 10, 99, secret="s", complete=True, filter="n % 10 = 3 AND text LIKE 'row%'")
    found = answered(network, owner, wish)
    assert (found["rows"], found["next"]) == (9, 100)
    assert rows(owner) == [(n, {"n": n, "text": f"row {n}"}) for n in range(13, 100, 10)]
    owner.stored.clear()
    wish = Replay(3, "log", 0, 1, secret="s", columns=["n", "missing"])
    assert answered(network, owner, wish)["rows"] == 2
    assert rows(owner) == [(0, {"n": 0}), (1, {"n": 1})]
    assert answered(network, owner, Replay(4, "log", 0, 1, secret="s", filter="n >")) == "filter"
    assert answered(network, owner, Replay(5, "log", 0, 99, secret="s", filter="FALSE"))["rows"] == 0


def test_anybody_of_the_owner_acknowledges_and_nobody_beyond_the_end(network: Network) -> None:
    owner = filled(network)
    assert answered(network, owner, AcknowledgeDurable(2, "log", 3, secret="s")) == {}
    assert network.stores["A"].state().logs[0].acknowledged_offset == 3
    assert answered(network, owner, AcknowledgeDurable(3, "log", 1, secret="s")) == {}  # changes nothing
    assert answered(network, owner, LogStatus(4, "log", "s"))["acknowledged"] == 3
    assert answered(network, owner, AcknowledgeDurable(5, "log", 5, secret="s")) == "argument"
    assert answered(network, owner, AcknowledgeDurable(6, "log", -2, secret="s")) == "argument"


def test_what_a_subscriber_has_not_seen_only_it_acknowledges(network: Network) -> None:
    owner = filled(network)
    assert answered(network, owner, LogStatus(2, "log", "s"))["subscribed"] is False
    reader = network.client("reader", "A")
    reader.ask(SubscribeDurable(1, "log", "", secret="s"))
    network.run(us=100_000)
    reader.ask(Acknowledge("log", 1))
    network.run(us=100_000)
    network.leave(reader)
    network.run(us=100_000)
    for restarted in (False, True):
        if restarted:
            network.kill("A")
            network.start("A")
            network.run(us=1_000_000)
            owner = network.client("owner again", "A")
        status = answered(network, owner, LogStatus(4, "log", "s"))
        assert (status["subscribed"], status["read"], status["acknowledged"]) == (True, False, 1)
        assert answered(network, owner, AcknowledgeDurable(5, "log", 4, secret="s")) == "subscribed"
        assert network.stores["A"].state().logs[0].acknowledged_offset == 1
    # It goes on where it was, and what was never for it to decide is decided by it alone.
    again = network.client("reader again", "A")
    again.ask(SubscribeDurable(1, "log", "", secret="s"))
    network.run(us=100_000)
    assert [offset for offset, _ in rows(again)] == [2, 3, 4]
    # The log of the same name that is made after it has no subscriber.
    answered(network, again, DropDurable(2, "log", "s"))
    made = answered(network, owner, CreateDurable(6, "log", "n >= 0", secret="s"))
    assert made["subscribed"] is False


def test_bad_pins_are_refused_and_pins_are_bounded(network: Network) -> None:
    owner = filled(network)
    bad: list[Message] = [
        PinLog(2, "log", "", 0, DAY_US, secret="s"),
        PinLog(3, "log", "x" * 201, 0, DAY_US, secret="s"),
        PinLog(4, "log", "job", 0, 0, secret="s"),
        PinLog(5, "log", "job", 0, 1 << 60, secret="s"),
        PinLog(6, "log", "job", 6, DAY_US, secret="s"),
    ]
    assert [answered(network, owner, wish) for wish in bad] == ["argument"] * 5
    for number in range(64):
        assert (
            answered(network, owner, PinLog(10 + number, "log", f"job {number}", 1, DAY_US, secret="s")) == {}
        )
    assert answered(network, owner, PinLog(100, "log", "one more", 1, DAY_US, secret="s")) == "limit"
    assert answered(network, owner, PinLog(101, "log", "job 7", -1, DAY_US, secret="s")) == {}
    assert answered(network, owner, PinLog(102, "log", "one more", 1, 1_000, secret="s")) == {}
    # One that has expired makes room.
    network.run(us=1_000_000)
    assert answered(network, owner, PinLog(103, "log", "another", 1, DAY_US, secret="s")) == {}
    status = answered(network, owner, LogStatus(104, "log", "s"))
    assert len(status["pins"]) == 64
    assert "one more" not in {pin["consumer"] for pin in status["pins"]}


def withheld(network: Network, name: str) -> tuple[str, ...]:
    """Why a client gets no credit."""
    clients = network.cores["A"].snapshot().clients
    return next(client.withheld for client in clients if client.name == name)


def policy(limits: Limits | None = None) -> AccessPolicy:
    principals = {
        "etl": Principal("etl", Grant(EVERYTHING, EVERYTHING), limits or Limits()),
        "executor": Principal("executor", Grant(replay=frozenset({"etl/log"}))),
        "stranger": Principal("stranger", Grant(subscribe=EVERYTHING)),
    }
    return AccessPolicy(principals, {hashed_token(name): name for name in principals})


def test_a_grant_to_replay_one_log_is_that_and_no_more() -> None:
    network = Network()
    network.start("A", store=True, access=policy())
    owner = network.client("owner", "A", token="etl")
    made = answered(network, owner, CreateDurable(1, "log", "n >= 0"))
    answered(network, owner, CreateDurable(2, "other", "n >= 0"))
    owner.publish(*({"n": number} for number in range(3)))
    network.run(us=100_000)
    executor = network.client("executor", "A", token="executor")
    assert answered(network, executor, LogStatus(1, made["key"]))["safe"] == 3
    wish = Replay(2, made["key"], 0, 2, complete=True, id=made["id"], filter="n > 0")
    assert answered(network, executor, wish)["rows"] == 2
    assert [row["n"] for _, row in rows(executor)] == [1, 2]
    assert answered(network, executor, AcknowledgeDurable(3, made["key"], 2)) == "denied"
    assert answered(network, executor, PinLog(4, made["key"], "job", 0, DAY_US)) == "denied"
    assert answered(network, executor, SubscribeDurable(5, made["key"], "")) == "unknown"
    assert answered(network, executor, DropDurable(6, made["key"])) == "unknown"
    assert answered(network, executor, LogStatus(7, "etl/other")) == "unknown"
    stranger = network.client("stranger", "A", token="stranger")
    assert answered(network, stranger, LogStatus(1, made["key"])) == "unknown"
    assert answered(network, stranger, Replay(2, made["key"], 0, 2)) == "unknown"


def test_a_log_that_blocks_holds_publishers_up_at_its_owners_limit_and_loses_nothing() -> None:
    network = Network()
    network.start("A", store=True, access=policy(Limits(stored_rows_max=10)))
    owner = network.client("owner", "A", token="etl")
    answered(network, owner, CreateDurable(1, "log", "n >= 0"))
    writer = network.client("writer", "A", token="etl")
    for number in range(12):
        writer.publish({"n": number})
        network.run(us=100_000)
    status = answered(network, owner, LogStatus(2, "log"))
    assert (status["first"], status["next"]) == (0, 12)
    assert withheld(network, "writer")
    # What is acknowledged and pinned stays, what is only acknowledged goes, and the writer goes on.
    answered(network, owner, PinLog(3, "log", "job", 0, DAY_US))
    answered(network, owner, AcknowledgeDurable(4, "log", 8))
    assert answered(network, owner, LogStatus(5, "log"))["first"] == 0
    answered(network, owner, PinLog(6, "log", "job", 8, DAY_US))
    assert answered(network, owner, LogStatus(7, "log"))["first"] > 0
    assert not withheld(network, "writer")


def test_a_sweep_keeps_pinned_rows_and_those_of_a_log_that_blocks() -> None:
    for when_full, pinned, kept_from in (
        ("drop_oldest", None, 8),
        ("drop_oldest", 3, 3),
        ("block", None, 5),
        ("block", 2, 2),
    ):
        network = Network()
        network.start("A", store=True)
        network.stores["A"] = MemoryStore(retention=Retention(bytes_max=2 * len(encode_record({"n": 1}, 0))))
        network.kill("A")
        network.start("A")
        owner = network.client("owner", "A")
        answered(network, owner, CreateDurable(1, "log", "n >= 0", when_full, secret="s"))
        writer = network.client("writer", "A")
        writer.publish(*({"n": number} for number in range(10)))
        network.run(us=100_000)
        answered(network, owner, AcknowledgeDurable(2, "log", 4, secret="s"))
        if pinned is not None:
            answered(network, owner, PinLog(3, "log", "job", pinned, DAY_US, secret="s"))
        network.sweep("A")
        network.run(us=100_000)
        assert answered(network, owner, LogStatus(4, "log", "s"))["first"] == kept_from, (when_full, pinned)


def test_shards_of_a_log_divide_the_publishers_among_them(network: Network) -> None:
    network.start("B", store=True, neighbours=("A",))
    network.run(us=1_000_000)
    owners = [network.client(f"owner {broker}", broker) for broker in "AB"]
    for number, owner in enumerate(owners):
        made = answered(network, owner, CreateDurable(1, f"log.{number}", "n >= 0", shard=number, shards=2))
        assert (made["shard"], made["shards"]) == (number, 2)
    writers = [network.client(f"writer {number}", "AB"[number % 2]) for number in range(12)]
    for writer in writers:
        writer.publish(*({"n": number} for number in range(3)), acknowledged=True)
    network.run(us=1_000_000)
    found: list[dict[str, list[int]]] = []
    for number, owner in enumerate(owners):
        answered(network, owner, Replay(2, f"log.{number}", 0, -1, complete=True))
        rows: dict[str, list[int]] = {}
        for _, _, row in owner.stored:
            rows.setdefault(row.publisher, []).append(row.attributes["n"])
        found.append(rows)
    assert not set(found[0]) & set(found[1])
    assert all(found)
    assert len(found[0]) + len(found[1]) == len(writers)
    assert all(each == [0, 1, 2] for rows in found for each in rows.values())
    # It is a part of what the log is: another division is another log, also after a restart.
    network.kill("A")
    network.start("A")
    network.run(us=1_000_000)
    again = network.client("owner again", "A")
    assert answered(network, again, CreateDurable(1, "log.0", "n >= 0", shard=0, shards=3)) == "conflict"
    assert answered(network, again, CreateDurable(2, "log.0", "n >= 0", shard=0, shards=2))["shards"] == 2
    assert answered(network, again, CreateDurable(3, "log.9", "n >= 0", shard=2, shards=2)) == "refused"

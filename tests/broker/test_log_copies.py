"""Do the rows of a log with copies=1 outlive their broker, and is nothing promised before two have them?"""

from __future__ import annotations

import json
import random
from copy import deepcopy
from typing import Any

import pytest

from braid.broker.identities import granted_key
from braid.protocol.batch import encode_record
from braid.protocol.copies import CopyHead, CopyKept, CopyLeft, CopyNeedless, CopyRows, CopySafe
from braid.protocol.log import KeepStanding
from braid.protocol.memory_store import MemoryStore
from braid.protocol.messages import (
    Acknowledge,
    Ask,
    CreateDurable,
    Done,
    DropDurable,
    Failed,
    LogReset,
    LogStatus,
    Replay,
    SubscribeDurable,
)
from braid.protocol.packed_rows import PackedRows
from tests.broker.wire import Network, WireClient

KEY = "the secret of the replica"
LONG_US = 20_000_000


def pair(**settings: Any) -> Network:
    """A and B, linked."""
    network = Network()
    network.start("B", store=True, expected=("A",), **settings)
    network.start("A", store=True, neighbours=("B",), **settings)
    network.run(us=3_000_000)
    return network


def star() -> Network:
    """A in the middle of B, C and D."""
    network = Network()
    for name in "BCD":
        network.start(name, store=True, expected=("A",))
    network.start("A", store=True, neighbours=("B", "C", "D"))
    network.run(us=3_000_000)
    return network


def reading(network: Network, broker: str = "A", name: str = "reader", **more: Any) -> WireClient:
    reader = network.client(name, broker)
    reader.ask(SubscribeDurable(1, "log", "x > 0", **{"copies": 1, **more}))
    network.run(us=1_000_000)
    return reader


def publish(network: Network, broker: str, numbers: range, name: str = "p") -> WireClient:
    publisher = network.client(name, broker)
    publisher.sequence = numbers.start - 1
    for number in numbers:
        publisher.publish({"x": number}, acknowledged=True)
    return publisher


def rows_of(reader: WireClient) -> list[tuple[int, int]]:
    """Offsets and values that came."""
    return [(offset, row.attributes["x"]) for _, offset, row in reader.stored]


def keeper_of(network: Network, broker: str = "A") -> str:
    (log,) = network.cores[broker]._durables.logs.values()
    assert log.copying is not None
    return log.copying.keeper


def lose_data(network: Network, name: str = "A") -> None:
    network.kill(name)
    network.stores[name] = MemoryStore(secret=f"another of {name}")


def expected(numbers: range) -> list[tuple[int, int]]:
    return [(number - 1, number) for number in numbers]


@pytest.mark.parametrize("at", ["A", "B"])
def test_a_broker_that_lost_its_data_has_its_log_again(at: str) -> None:
    network = pair()
    reader = reading(network)
    assert reader.answers(Done)
    publisher = publish(network, at, range(1, 21))
    network.run(us=2_000_000)
    assert publisher.cares == [*range(1, 21)]
    assert rows_of(reader) == expected(range(1, 21))
    reader.ask(Acknowledge("log", 4))
    network.run(us=2_000_000)
    lose_data(network)
    network.start("A")
    again = network.client("reader", "A")
    again.ask(SubscribeDurable(2, "log", ""))  # at once
    network.run(us=LONG_US)
    assert not again.answers(Failed)
    assert rows_of(again) == expected(range(6, 21)), "what was not acknowledged, under its old offsets"
    more = publish(network, "B", range(21, 31))
    network.run(us=5_000_000)
    assert more.cares == [*range(21, 31)]
    assert rows_of(again) == expected(range(6, 31))


def test_a_reader_that_knows_rows_hears_of_no_reset() -> None:
    """It names what it has taken, and the log is the same to it."""
    network = pair()
    reading(network)
    publish(network, "B", range(1, 11))
    network.run(us=2_000_000)
    (log,) = network.cores["A"]._durables.logs.values()
    epochs = list(log.epochs.entries)
    lose_data(network)
    network.start("A")
    again = network.client("reader", "A")
    again.ask(SubscribeDurable(2, "log", "", resume_after=6, taken=9, epochs=epochs))
    network.run(us=LONG_US)
    assert not again.answers(LogReset)
    assert not again.answers(Failed)
    assert rows_of(again) == expected(range(8, 11))


def test_what_the_keeper_does_not_have_is_neither_settled_nor_read() -> None:
    network = pair()
    reader = reading(network)
    network.hold("A", "B")
    publisher = publish(network, "A", range(1, 6))
    network.run(us=1_000_000)
    assert publisher.cares == []
    assert rows_of(reader) == []
    network.release("A", "B")
    network.run(us=2_000_000)
    assert publisher.cares == [1, 2, 3, 4, 5]
    assert rows_of(reader) == expected(range(1, 6))


def test_what_is_on_its_way_to_the_keepers_disk_is_neither_settled_nor_read() -> None:
    network = pair()
    reader = reading(network)
    network.frozen_stores.add("B")
    publisher = publish(network, "A", range(1, 6))
    network.run(us=2_000_000)
    assert publisher.cares == []
    assert rows_of(reader) == []
    network.frozen_stores.discard("B")
    network.run(us=2_000_000)
    assert publisher.cares == [1, 2, 3, 4, 5]
    assert rows_of(reader) == expected(range(1, 6))


def test_a_repetition_is_settled_when_the_first_copy_is() -> None:
    network = pair()
    reading(network)
    network.frozen_stores.add("B")
    publish(network, "A", range(1, 4))
    network.run(us=500_000)
    again = publish(network, "A", range(1, 4))
    network.run(us=500_000)
    assert again.cares == []
    network.frozen_stores.discard("B")
    network.run(us=2_000_000)
    assert again.cares == [1, 2, 3]


def test_without_a_neighbour_that_can_there_is_no_such_log() -> None:
    network = Network()
    network.start("A", store=True)
    network.run(us=3_000_000)
    assert [each.code for each in reading(network).answers(Failed)] == ["copies"]
    network = Network()
    network.start("B")  # keeps nothing on disk
    network.start("A", store=True, neighbours=("B",))
    network.run(us=3_000_000)
    assert [each.code for each in reading(network).answers(Failed)] == ["copies"]


@pytest.mark.parametrize("copies", [-1, 2, 1 << 40])
def test_no_other_number_of_copies(copies: int) -> None:
    failed = reading(pair(), copies=copies).answers(Failed)
    assert len(failed) == 1
    assert "copies can be 0 or 1" in failed[0].reason


def test_a_log_without_copies_does_not_get_them_in_silence() -> None:
    network = pair()
    network.leave(reading(network, copies=0))
    again = network.client("reader", "A")
    again.ask(SubscribeDurable(2, "log", "x > 0", copies=1))
    network.run(us=1_000_000)
    assert [each.code for each in again.answers(Failed)] == ["conflict"]


@pytest.mark.parametrize("away", [False, True], ids=["keeper there", "keeper away"])
def test_a_log_that_was_dropped_does_not_come_back(away: bool) -> None:
    network = pair()
    reader = reading(network)
    publish(network, "A", range(1, 6))
    network.run(us=2_000_000)
    if away:
        network.kill("B")
    reader.ask(DropDurable(2, "log"))
    network.run(us=2_000_000)
    assert [each.request for each in reader.answers(Done)] == [1, 2]
    if away:
        network.kill("A")
        network.start("A")
        network.start("B")
        network.run(us=LONG_US)
    assert not network.stores["B"].state().logs
    assert not network.stores["A"].state().logs, "nor is anything remembered of it"
    status = network.client("reader", "A")
    status.ask(LogStatus(1, "log"))
    network.run(us=1_000_000)
    assert [each.code for each in status.answers(Failed)] == ["unknown"]


def test_what_is_done_with_goes_at_the_keeper_too() -> None:
    network = pair()
    reader = reading(network)
    publish(network, "A", range(1, 11))
    network.run(us=2_000_000)
    reader.ask(Acknowledge("log", 7))
    network.run(us=3_000_000)
    (copy,) = network.stores["B"].state().logs
    assert (copy.first_offset, copy.next_offset, copy.acknowledged_offset) == (0, 10, 7)
    assert copy.origin == "A"
    assert copy.subscribed


@pytest.mark.parametrize("late", [False, True])
def test_a_log_that_comes_back_knows_that_it_had_a_subscriber(late: bool) -> None:
    network = pair()
    owner = network.client("owner", "A")
    owner.ask(CreateDurable(1, "log", "x > 0", copies=1))
    network.run(us=1_000_000)
    publish(network, "A", range(1, 6))
    network.run(us=2_000_000)
    if late:  # it subscribes when the copy has long begun
        reader = reading(network)
        network.leave(reader)
        network.run(us=3_000_000)
    lose_data(network)
    network.start("A")
    network.run(us=LONG_US)
    (log,) = [log for log in network.stores["A"].state().logs if not log.origin]
    assert (log.next_offset, log.subscribed) == (5, late)


def test_another_neighbour_keeps_it_when_the_keeper_stays_away() -> None:
    network = star()
    reading(network)
    first = keeper_of(network)
    publish(network, "A", range(1, 6))
    network.run(us=2_000_000)
    network.kill(first)
    publisher = publish(network, "A", range(6, 11))
    network.run(us=LONG_US)
    second = keeper_of(network)
    assert second != first
    assert [log.next_offset for log in network.stores[second].state().logs] == [10]
    network.start(first)
    network.run(us=LONG_US)
    assert publisher.cares == [*range(6, 11)]
    assert not network.stores[first].state().logs, "one copy is enough"
    lose_data(network)
    network.start("A")
    again = network.client("reader", "A")
    again.ask(SubscribeDurable(2, "log", ""))
    network.run(us=LONG_US)
    assert rows_of(again) == expected(range(1, 11))


def test_the_keeper_may_lose_its_data_too_but_not_both_at_once() -> None:
    network = pair()
    reader = reading(network)
    publish(network, "A", range(1, 6))
    network.run(us=2_000_000)
    lose_data(network, "B")
    network.start("B")
    network.run(us=LONG_US)
    assert [log.next_offset for log in network.stores["B"].state().logs] == [5]
    publisher = publish(network, "A", range(6, 8))
    network.run(us=3_000_000)
    assert publisher.cares == [6, 7]
    assert rows_of(reader) == expected(range(1, 8))


def test_after_a_restore_from_a_backup_the_rows_since_then_come_back() -> None:
    network = pair()
    reading(network)
    publish(network, "A", range(1, 6))
    network.run(us=2_000_000)
    backup = deepcopy(network.stores["A"])
    publish(network, "A", range(6, 11))
    network.run(us=2_000_000)
    network.kill("A")
    network.stores["A"] = backup
    network.start("A")
    again = network.client("reader", "A")
    again.ask(SubscribeDurable(2, "log", ""))
    network.run(us=LONG_US)
    assert rows_of(again) == expected(range(1, 11))


def test_what_came_back_is_known_as_repetition() -> None:
    network = pair()
    reading(network)
    publish(network, "A", range(1, 6))
    network.run(us=2_000_000)
    lose_data(network)
    network.start("A")
    network.run(us=LONG_US)
    publisher = publish(network, "A", range(1, 9))  # the job is tried again
    network.run(us=2_000_000)
    again = network.client("reader", "A")
    again.ask(SubscribeDurable(2, "log", ""))
    network.run(us=2_000_000)
    assert rows_of(again) == expected(range(1, 9))
    assert publisher.cares == [*range(1, 9)]


def test_a_row_as_large_as_a_frame_can_carry_is_copied() -> None:
    network = pair(frame_bytes_max=40_000)
    reading(network)
    publisher = network.client("p", "A", frame_bytes_max=1 << 20)
    publisher.publish({"x": 1, "fill": "y" * 23_000}, acknowledged=True)
    publisher.publish({"x": 2}, acknowledged=True)
    network.run(us=2_000_000)
    assert publisher.cares == [1, 2]
    lose_data(network)
    network.start("A")
    again = network.client("reader", "A", frame_bytes_max=1 << 20)
    again.ask(SubscribeDurable(2, "log", ""))
    network.run(us=LONG_US)
    assert rows_of(again) == [(0, 1), (1, 2)]


def test_requests_about_a_log_wait_until_it_is_back() -> None:
    network = pair()
    reading(network)
    publish(network, "A", range(1, 6))
    network.run(us=2_000_000)
    lose_data(network)
    network.start("A")
    owner = network.client("reader", "A")
    owner.ask(LogStatus(1, "log"))
    owner.ask(Replay(2, "log", 0, -1))
    owner.ask(CreateDurable(3, "log", "x > 0", when_full="drop_oldest"))
    network.run(us=LONG_US)
    assert not owner.answers(Failed)
    assert sorted(each.request for each in owner.answers(Done)) == [1, 2, 3]
    assert json.loads(next(each.text for each in owner.answers(Done) if each.request == 1))["next"] == 5
    assert rows_of(owner) == expected(range(1, 6))


def test_the_process_that_takes_a_brokers_place_has_its_logs() -> None:
    """REPLICATE: F is gone for good, with its disk."""
    network = Network()
    network.start("F", store=True)
    network.start("A", neighbours=("F",), store=True)
    network.start("B", neighbours=("F",), store=True)
    network.run(us=3_000_000)
    reading(network, "F")
    publisher = publish(network, "A", range(1, 11))
    network.run(us=2_000_000)
    assert len(publisher.cares) == 10
    network.kill("F")
    late = publish(network, "A", range(11, 21))  # while nobody is there
    network.run(us=1_000_000)
    for neighbour in ("A", "B"):
        operator = network.client("o", neighbour)
        key = granted_key(f"{KEY} 1", neighbour)
        operator.ask(Ask(1, "grant", {"name": "F", "address": "R", "epoch": "1", "key": key}))
        network.run(us=50_000)
        assert operator.answers(Done), operator.answers(Failed)
    standing = KeepStanding("F", 1, f"{KEY} 1", (("A", "A"), ("B", "B")))
    around = ("A", "B")
    network.start("R", broker_id="F", neighbours=around, expected=around, standing=standing, store=True)
    again = network.client("reader", "R")
    again.ask(SubscribeDurable(2, "log", "", taken=9, resume_after=3))
    network.run(us=LONG_US)
    assert not again.answers(Failed)
    assert late.cares == [*range(11, 21)]
    assert rows_of(again) == expected(range(5, 21))


# A neighbour that lies.


def head_of_nothing(**more: Any) -> CopyHead:
    fields: dict[str, Any] = {
        "key": "anonymous/log",
        "id": "made up",
        "owner": "anonymous",
        "filter": "x > 0",
        "when_full": "block",
        "secret": "",
        "shard": 0,
        "shards": 1,
        "copies": 1,
        "first": 0,
        "next": 5,
        "acknowledged": -1,
        "epochs": [("e", 0)],
    }
    return CopyHead(**{**fields, **more})


@pytest.mark.parametrize(
    "message",
    [
        CopyKept(head_of_nothing(key="no such owner's")),
        CopyKept(head_of_nothing(filter="((((")),
        CopyKept(head_of_nothing(first=1 << 62, next=1 << 63 - 1)),
        CopyKept(head_of_nothing(next=-7)),
        CopyRows("anonymous/log", "made up", 0, "e", PackedRows(["a"], b"x", b"y", b"z", b"")),
        CopyRows(
            "anonymous/log", "made up", 0, "e", PackedRows.of([("a", 1, encode_record({"x": -1}, b""))])
        ),
        CopySafe("anonymous/log", "", 1 << 40),
        CopySafe("", "", -1, "because"),
        CopyLeft("A", "", [("anonymous/log", "", 0, "")]),
        CopyLeft("A", "B", [("anonymous/log", "", 1 << 60, "e")] * 101),
        CopyLeft("A", "nobody", [("anonymous/log", "made up", 0, "e")]),
        CopyLeft("nobody", "B", [("anonymous/log", "made up", 0, "e")], -5),
        CopyNeedless("A", "A", [("anonymous/log", "made up")]),
        CopyNeedless("B", "A", [("anonymous/log", "made up")] * 101),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_neighbour_that_lies_harms_its_own_link_alone(message: Any) -> None:
    network = star()
    reader = reading(network)
    log = next(iter(network.cores["A"]._durables.logs.values()))
    if isinstance(message, CopySafe) and message.key:
        message = CopySafe(log.key, log.id, message.next)
    liar = keeper_of(network)
    link = network.cores[liar]._links.links["A"]
    network.cores[liar]._turn.tell(link, message)
    network.run(us=2_000_000)
    publisher = publish(network, "A", range(1, 6))
    network.run(us=LONG_US)
    assert publisher.cares == [1, 2, 3, 4, 5]
    assert rows_of(reader) == expected(range(1, 6))
    network.cores["A"].validate()


# Everything at random.


@pytest.mark.parametrize("seed", range(4))
def test_crashes_lost_disks_and_restores_lose_and_double_nothing(seed: int) -> None:
    """One of the two at a time loses its disk, and the copy is whole again before the next does."""
    chance = random.Random(f"{seed}/copies")
    network = star()
    network.leave(reading(network))
    published = 0
    for _ in range(6):
        source = chance.choice("ABCD")
        count = chance.randint(1, 40)
        numbers = range(published + 1, published + count + 1)
        publisher = publish(network, source, numbers, f"p{published}")
        network.run(us=chance.choice([0, 10_000, 200_000]))
        victim = chance.choice([*"ABCD", keeper_of(network) or "B"])
        how = chance.choice(["cut", "kill", "lose", "away"])
        if how == "cut" and victim != "A":
            network.cut("A", victim)
        elif how != "cut":
            network.kill(victim)
            if how == "lose" and victim in ("A", keeper_of(network) if victim != "A" else ""):
                network.stores[victim] = MemoryStore(secret=f"another {victim}")
            network.run(us=8_000_000 if how == "away" else 100_000)
            network.start(victim)
        network.run(us=LONG_US)
        if publisher.cares != [*numbers]:  # its broker was killed: it publishes again
            again = publish(network, chance.choice("ABCD"), numbers, f"p{published}")
            network.run(us=LONG_US)
            assert again.cares == [*numbers]
        published += count
        network.cores["A"].validate()
    reader = network.client("reader", "A")
    reader.ask(SubscribeDurable(9, "log", ""))
    network.run(us=LONG_US)
    assert not reader.answers(Failed)
    rows = rows_of(reader)
    assert [offset for offset, _ in rows] == [*range(rows[0][0], rows[0][0] + len(rows))]
    assert sorted(value for _, value in rows) == [*range(1, published + 1)]

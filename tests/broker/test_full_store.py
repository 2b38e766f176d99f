"""What happens while a store takes nothing, and when it takes something again?"""

from __future__ import annotations

import pytest

from braid.protocol.inputs import Resources
from braid.protocol.log import AppendRows
from braid.protocol.messages import Done, Subscribe, SubscribeDurable
from tests.broker.wire import Network, WireClient


@pytest.fixture
def network() -> Network:
    """A line of two brokers; what is kind 1 goes to a log at B, and kind 2 to a subscriber there."""
    network = Network()
    network.start("A", store=True)
    network.start("B", neighbours=("A",), store=True)
    network.run(us=2_000_000)
    durable = network.client("durable", "B")
    durable.ask(SubscribeDurable(1, "log", "kind = 1"))
    plain = network.client("plain", "B")
    plain.ask(Subscribe(1, "1", "kind = 2"))
    network.run(us=1_000_000)
    assert len(durable.answers(Done)) == len(plain.answers(Done)) == 1
    network.leave(durable)
    network.run(us=100_000)
    return network


def rows_of(network: Network) -> list[int]:
    network.frozen_stores.clear()
    reader = network.client("durable", "B")
    reader.ask(SubscribeDurable(2, "log", ""))
    network.run(us=1_000_000)
    return [row.attributes["n"] for _, _, row in reader.stored]


def publish(writer: WireClient, kind: int, first: int, count: int) -> None:
    """Each in a frame of its own."""
    for n in range(first, first + count):
        writer.publish({"kind": kind, "n": n}, acknowledged=True)


def test_a_full_store_far_away_holds_up_no_receipt_of_anything_else(network: Network):
    writer = network.client("writer", "A")
    network.full_stores.add("B")
    publish(writer, 1, 0, 2)
    publish(writer, 2, 2, 3)
    publish(writer, 3, 5, 1)
    network.run(us=5_000_000)
    assert sorted(writer.cares) == [3, 4, 5, 6]
    assert not network.cores["B"].ready


@pytest.mark.parametrize("restart_of", ["nobody", "the writer's broker"])
def test_a_store_that_was_full_goes_on_by_itself(network: Network, restart_of: str):
    writer = network.client("writer", "A")
    network.full_stores.add("B")
    publish(writer, 1, 0, 3)
    network.run(us=7_000_000)
    publish(writer, 1, 3, 3)
    publish(writer, 2, 6, 1)
    network.run(us=7_000_000)
    assert sorted(writer.cares) == [7]
    if restart_of == "the writer's broker":
        network.kill("A")
        network.start("A")
        network.run(us=5_000_000)
    network.full_stores.clear()
    network.run(us=15_000_000)
    assert network.cores["B"].ready
    if restart_of == "nobody":
        assert sorted(writer.cares) == [1, 2, 3, 4, 5, 6, 7]
    assert rows_of(network) == list(range(6))
    assert network.cores["B"].statistics()["store_unsafe_bytes"] == 0


def test_a_row_is_not_safe_because_a_later_piece_of_work_is(network: Network):
    # The second copy of a row brings no work for the store; it is settled when the first copy is stored.
    writer = network.client("writer", "B")
    network.full_stores.add("B")
    publish(writer, 1, 0, 1)
    network.run(us=100_000)
    again = network.client("writer", "B")
    publish(again, 1, 0, 1)
    network.run(us=5_000_000)
    assert again.cares == []
    network.full_stores.clear()
    network.run(us=15_000_000)
    assert again.cares == [1]


def test_attempts_come_at_a_bounded_pace(network: Network):
    writer = network.client("writer", "A")
    network.full_stores.add("B")
    for _ in range(50):
        publish(writer, 1, 0, 1)
        network.run(us=200_000)
    assert network.refused_work["B"] <= 15


def test_publishers_of_rows_are_held_back_while_the_disk_is_nearly_full(network: Network):
    writer = network.client("writer", "B")
    other = network.client("other", "B")
    low, high = network.settings["B"].disk_low_bytes, network.settings["B"].disk_high_bytes
    network.tell("B", Resources(disk_free_bytes=low - 1))
    network.run(us=100_000)
    publish(writer, 1, 0, 1)
    publish(other, 2, 0, 1)
    network.run(us=1_000_000)
    core = network.cores["B"]
    assert held_back(network) == {"writer"}
    assert core.statistics()["disk_low"]
    assert not core.ready
    assert writer.cares == [1]  # what came is stored as long as there is room at all
    network.tell("B", Resources(disk_free_bytes=high - 1))
    network.run(us=1_000_000)
    assert held_back(network) == {"writer"}
    network.tell("B", Resources(disk_free_bytes=high))
    network.run(us=1_000_000)
    assert held_back(network) == set()
    assert core.ready


def test_publishers_are_held_back_while_memory_is_short():
    network = Network()
    network.start("A", memory_bytes_max=1_000_000)
    network.run(us=1_000_000)
    writer = network.client("writer", "A")
    network.tell("A", Resources(memory_bytes=1_000_001))
    network.run(us=100_000)
    writer.publish({"n": 1})
    network.run(us=100_000)
    assert held_back(network, "A") == {"writer"}
    network.tell("A", Resources(memory_bytes=950_000))
    network.run(us=100_000)
    assert held_back(network, "A") == {"writer"}
    network.tell("A", Resources(memory_bytes=800_000))
    network.run(us=100_000)
    assert held_back(network, "A") == set()


def held_back(network: Network, broker: str = "B") -> set[str]:
    return {client.name for client in network.cores[broker]._connections.clients if client.channel.withheld}


def test_what_is_remembered_of_publishers_counts_while_it_waits_for_a_full_disk():
    """A small row takes along which numbers of its publisher are in the log, and that may be much more."""
    network = Network(codec=False)
    network.start("A", store=True, persist_bytes_max=100_000)
    reader = network.client("reader", "A")
    reader.ask(SubscribeDurable(1, "log", "TRUE"))
    network.run(us=100_000)
    writer = network.client("writer", "A")
    writers = [f"writer.{number}" for number in range(4)]
    for publisher in writers:
        # So many gaps all over what is remembered that nothing takes less room than a bit for each number.
        for step in range(600):
            writer.sequence = 109 * step
            writer.publish({"n": step}, publisher=publisher, receipt=False)
        network.run(us=1_000)
    network.run(us=1_000_000)
    network.full_stores.add("A")
    for step in range(30):
        for publisher in writers:
            writer.sequence = 66_000 + step
            writer.publish({"n": step}, publisher=publisher, receipt=False)
        network.run(us=1_000)
    pieces = network.cores["A"]._durables.work._pieces.values()
    rows = [each for piece in pieces for each in piece.operations if isinstance(each, AppendRows)]
    waiting = sum(len(each.recent) + sum(len(row.record) for row in each.rows) for each in rows)
    assert max(len(each.recent) for each in rows) > 5_000
    assert network.cores["A"].statistics()["store_unsafe_bytes"] >= waiting > 100_000
    assert held_back(network, "A") == {"writer"}
    network.full_stores.clear()
    network.run(us=15_000_000)
    assert network.cores["A"].statistics()["store_unsafe_bytes"] == 0
    assert held_back(network, "A") == set()

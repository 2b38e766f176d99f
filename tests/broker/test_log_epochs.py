"""What does a broker say to a reader whose log is not the one it knew?"""

from __future__ import annotations

from copy import deepcopy

from braid.protocol.memory_store import MemoryStore
from braid.protocol.messages import (
    Acknowledge,
    Failed,
    LogReset,
    Replay,
    StoredPublications,
    SubscribeDurable,
)
from tests.broker.wire import Network, WireClient


def world(rows: int) -> Network:
    """A broker with a log of so many rows, none of them acknowledged."""
    network = Network()
    network.start("A", store=True)
    reader = network.client("reader", "A")
    reader.ask(SubscribeDurable(1, "log", "TRUE"))
    network.run()
    network.leave(reader)
    publish(network, 0, rows)
    return network


def publish(network: Network, first: int, count: int) -> None:
    writer = network.client("writer", "A")
    writer.sequence = first
    writer.publish(*({"n": n} for n in range(first, first + count)))
    network.run(us=100_000)
    network.leave(writer)
    network.run(us=100_000)


def exchanged(network: Network, store: MemoryStore) -> None:
    """The broker is killed, its store exchanged, and it starts again."""
    network.kill("A")
    network.stores["A"] = store
    network.start("A")
    network.run(us=2_000_000)


def resumed(network: Network, former: WireClient, *, acknowledged: int = -1) -> WireClient:
    """A reader connects again and says what it knows, as the library does."""
    known: list[tuple[str, int]] = []
    for message in former.answers(StoredPublications):
        if not known or known[-1][0] != message.epoch:
            known.append((message.epoch, message.first_offset))
    taken = max((offset for _, offset, _ in former.stored), default=-1)
    reader = network.client("reader", "A")
    reader.ask(SubscribeDurable(9, "log", "", resume_after=acknowledged, taken=taken, epochs=known))
    network.run(us=100_000)
    return reader


def reading(network: Network) -> WireClient:
    reader = network.client("reader", "A")
    reader.ask(SubscribeDurable(2, "log", ""))
    network.run(us=100_000)
    return reader


def numbers(client: WireClient) -> list[tuple[int, object]]:
    return [(offset, row.attributes["n"]) for _, offset, row in client.stored]


def test_rows_carry_the_epoch_they_were_stored_in():
    network = world(2)
    network.kill("A")
    network.start("A")
    network.run(us=2_000_000)
    publish(network, 2, 1)
    reader = reading(network)
    assert [
        (each.epoch, each.first_offset, len(each.rows)) for each in reader.answers(StoredPublications)
    ] == [
        ("A-1", 0, 2),
        ("A-2", 2, 1),
    ]
    reader.ask(Replay(3, "log", 1, -1))
    network.run(us=100_000)
    assert [each.epoch for each in reader.answers(StoredPublications) if each.replay] == ["A-1", "A-2"]


def test_a_reader_that_is_ahead_of_a_restored_log_hears_where_it_goes_on():
    network = world(3)
    backup = deepcopy(network.stores["A"])
    publish(network, 3, 3)
    reader = reading(network)
    exchanged(network, backup)
    publish(network, 6, 2)
    again = resumed(network, reader, acknowledged=5)
    assert again.answers(LogReset) == [LogReset("log", 9, 3, known=True)]
    # What it had acknowledged of the log that is gone is not acknowledged here.
    assert numbers(again) == [(3, 6), (4, 7)]
    assert network.stores["A"].state().logs[0].acknowledged_offset == 2


def test_a_reader_that_knows_none_of_the_log_begins_where_the_log_has_it():
    network = world(4)
    reader = reading(network)
    lost = MemoryStore()
    exchanged(network, lost)
    creator = network.client("reader", "A")
    creator.ask(SubscribeDurable(1, "log", "TRUE"))
    network.run(us=100_000)
    network.leave(creator)
    publish(network, 10, 2)
    again = resumed(network, reader, acknowledged=3)
    assert again.answers(LogReset) == [LogReset("log", 9, 0, known=False)]
    assert numbers(again) == [(0, 10), (1, 11)]
    assert network.stores["A"].state().logs[0].acknowledged_offset == -1


def test_a_reader_of_the_same_log_hears_nothing_of_epochs():
    network = world(3)
    reader = reading(network)
    network.kill("A")
    network.start("A")
    network.run(us=2_000_000)
    publish(network, 3, 2)
    again = resumed(network, reader, acknowledged=1)
    assert again.answers(LogReset) == []
    assert numbers(again) == [(2, 2), (3, 3), (4, 4)]


def test_an_acknowledgement_of_another_epoch_is_ignored():
    network = world(6)
    reader = reading(network)
    reader.ask(Acknowledge("log", 5, "B-7"))
    network.run(us=100_000)
    assert network.stores["A"].state().logs[0].acknowledged_offset == -1
    reader.ask(Acknowledge("log", 2, "A-1"))
    network.run(us=100_000)
    assert network.stores["A"].state().logs[0].acknowledged_offset == 2


def test_a_replay_does_not_go_on_in_another_log():
    network = world(6)
    reader = network.client("reader", "A")
    reader.ask(Replay(3, "log", 4, -1, "B-7"))
    network.run(us=100_000)
    assert [answer.code for answer in reader.answers(Failed)] == ["reset"]

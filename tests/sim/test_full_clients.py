"""Does the client that people use keep its promises in worlds with faults, and would we notice if not?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from braid.broker.log_reading import LogReading
from braid.client.inbox import Inbox
from braid.client.outbox import Outbox
from braid.client.requests import Requests
from braid.errors import InvariantViolated
from braid.sim import FullClient, World
from tests.sim.brokers import add_tree
from tests.sim.client_worlds import ClientWorld

if TYPE_CHECKING:
    from collections.abc import Callable

    from braid.broker.durable_log import DurableLog
    from braid.protocol.inputs import LogRead

# The last one: a subscription that got a class of its own had forgotten what it had had.
SEEDS = [0, 1, 2, 3, 4, 5, 149]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_faults_break_no_promise(seed: int) -> None:
    repeat = f"python -m tests.sim.client_worlds --runs 1 --seed {seed}"
    world = ClientWorld(seed, repeat=repeat)
    world.run()
    world.require()
    assert all(client.connections for client in world.clients)


# The last one: a reader came back while rows further up its log were being read for its former connection.
@pytest.mark.parametrize("seed", [0, 1, 6])
def test_random_faults_break_no_promise_where_stores_are_slow(seed: int) -> None:
    world = ClientWorld(seed, slow_stores=True)
    world.run()
    world.require()


def test_the_same_seed_is_the_same_run() -> None:
    runs = []
    for _ in range(2):
        world = ClientWorld(3)
        world.run()
        runs.append([(client.rows, client.safe, client.connections) for client in world.clients])
    assert runs[0] == runs[1]


def small_world() -> tuple[World, FullClient, FullClient]:
    """Two brokers, a publisher at one and a reader at the other."""
    world = World(1)
    add_tree(world, {"A": None, "B": "A"}, store=True)
    publisher = world.admit(FullClient("publisher", ("A",)))
    reader = world.admit(
        FullClient("reader", ("B",), subscriptions={"all": "n >= 0"}, durables={"log": "n >= 0"})
    )
    world.run_for(seconds=1)
    return world, publisher, reader


def numbers(client: FullClient, key: str) -> list[int]:
    return [row.sequence for row in client.rows[key]]


def test_a_cut_connection_costs_neither_a_publication_nor_a_receipt() -> None:
    world, publisher, reader = small_world()
    for number in range(20):
        publisher.publish({"n": number})
        if number % 5 == 2:
            world.lose("publisher", "A", 1)
        world.run_for(us=300_000)
    world.run_until_quiet()
    assert publisher.connections > 1
    assert {sequence for _, sequence in publisher.safe} == set(range(1, 21))
    assert numbers(reader, "all") == numbers(reader, "log") == list(range(1, 21))
    world.checkers.require()


def test_a_program_that_is_killed_goes_on_with_its_log_after_what_it_acknowledged() -> None:
    world, publisher, reader = small_world()
    publisher.publish({"n": 1})
    world.run_for(seconds=1)
    world.crash("reader")
    publisher.publish({"n": 2})
    world.run_for(seconds=1)
    world.restart("reader")
    publisher.publish({"n": 3})
    world.run_until_quiet()
    assert [(row.life, row.sequence) for row in reader.rows["log"]] == [(1, 1), (2, 2), (2, 3)]
    world.checkers.require()


def test_a_power_cut_of_a_program_does_not_keep_its_log_from_the_next_run() -> None:
    """The broker still takes the dead connection for a reader; the new run says that it takes over."""
    world, publisher, reader = small_world()
    world.crash("reader", silent=True)
    publisher.publish({"n": 1})
    world.restart("reader")
    world.run_until_quiet()
    assert numbers(reader, "log") == [1]
    assert reader.problems == []


def test_a_program_that_reads_nothing_for_a_while_holds_up_and_loses_nothing() -> None:
    world = World(1)
    add_tree(world, {"A": None}, store=True)
    publisher = world.admit(FullClient("publisher", ("A",), window_bytes=4096))
    reader = world.admit(FullClient("reader", ("A",), subscriptions={"all": "n >= 0"}, queue_size=2))
    world.run_for(seconds=1)
    reader.reads = False
    for number in range(50):
        publisher.publish({"n": number})
    world.run_for(seconds=3)
    assert numbers(reader, "all") == []
    reader.read()
    world.run_until_quiet()
    assert numbers(reader, "all") == list(range(1, 51))
    world.checkers.require()


# Planted defects: each would cost somebody something, and each has to be noticed.


def forgets_what_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a lost connection, what comes again is handed out again."""
    restarted: Callable[..., Any] = Inbox.restarted

    def forgetful(inbox: Inbox) -> None:
        restarted(inbox)
        for members in inbox._classes.values():
            members.seen = type(members.seen)(64, 64, old_is_new=True)
        for interest in inbox._durables.values():
            interest.handed_offset = interest.acknowledged_offset = -1
            interest.seen = type(interest.seen)(64, 64, old_is_new=True)

    monkeypatch.setattr(Inbox, "restarted", forgetful)


def sends_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What had not arrived when the connection broke is given up, with a receipt."""
    restarted: Callable[..., Any] = Outbox.restarted

    def careless(outbox: Outbox, publisher: str, frame_bytes_max: int) -> list[int]:
        outbox._channel.refilter(lambda batch: None)
        outbox._conclude()
        too_large: list[int] = restarted(outbox, publisher, frame_bytes_max)
        return too_large

    monkeypatch.setattr(Outbox, "restarted", careless)


def asks_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a new connection, logs are not asked for again."""
    introduce: Callable[..., Any] = Requests.introduce

    def terse(requests: Requests, *, durables: bool = True) -> None:
        with monkeypatch.context() as patch:
            interests = [each for each in requests._inbox.interests() if not each.confirmed]
            patch.setattr(requests._inbox, "interests", lambda: interests)
            introduce(requests, durables=durables)

    monkeypatch.setattr(Requests, "introduce", terse)


def takes_any_rows_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker hands out what was read of a log, wherever its reader has come to since it was asked for."""
    was_read: Callable[..., Any] = LogReading._was_read

    def hasty(reading: LogReading, log: DurableLog, first: int, last: int, answer: LogRead) -> None:
        was_read(reading, log, 0, last, answer)

    monkeypatch.setattr(LogReading, "_was_read", hasty)


def test_a_gap_in_a_log_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    takes_any_rows_for_the_next(monkeypatch)
    world = ClientWorld(6, slow_stores=True)
    world.run()
    with pytest.raises(InvariantViolated, match="never read it"):
        world.require()


@pytest.mark.parametrize(
    ("defect", "seed", "complaint"),
    [
        (forgets_what_came, 0, "twice"),
        (sends_nothing_again, 0, "has a receipt, and"),
        (asks_only_once, 0, "never got it"),
    ],
)
def test_a_planted_defect_is_noticed(
    defect: Callable[[pytest.MonkeyPatch], None], seed: int, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    defect(monkeypatch)
    world = ClientWorld(seed)
    world.run()
    with pytest.raises(InvariantViolated, match=complaint):
        world.require()

"""Would the checkers notice? For every promise a defect that breaks it is planted in the brokers, and found.

Each test breaks one thing that brokers do right and looks at what the checkers say of a run in which one
fault follows the other. Unbroken brokers pass the same run in silence.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from braid.broker.core import BrokerCore
from braid.broker.durable_logs import DurableLogs
from braid.broker.links import Links
from braid.broker.settling import Pending, SettleLine, WaitingFor
from braid.broker.subscriptions import Subscriptions
from braid.broker.turn import Turn
from braid.protocol import Channel, PublicationBatch, log
from braid.protocol.duplicates import DuplicateFilter
from braid.protocol.log import KeepNeighbour
from braid.protocol.memory_store import MemoryStore
from braid.sim import Station, World
from tests.broker.fault_run import run_with_faults
from tests.sim.brokers import broker
from tests.sim.fault_runs import fault_runs
from tests.sim.random_worlds import QUEUE_BYTES_MAX, SMALL_QUEUES, WINDOW_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from braid.broker.parties import Client, Link
    from braid.protocol.codec import Body
    from braid.protocol.log import LogRow, StoreOperation, StoreState
    from braid.protocol.messages import Subscribe, SyncBegin

# Random worlds that are tried; what needs them is found in one of the first few.
SEEDS_MAX = 30
LARGE = "t" * 12 * 1024


def complaint(strategy: str = "S0", *, acknowledged: bool = True) -> str:
    """What comes of one run after another fault on a line of five brokers; empty if all is well."""
    world = World(1)
    world.checkers.ordered = strategy == "S0"
    names = "ABCDE"
    for place, name in enumerate(names):
        neighbours = names[place - 1 : place]
        core = broker(name, neighbours, strategy=strategy, **SMALL_QUEUES)
        world.add(name, core, store=True, queue_bytes_max=QUEUE_BYTES_MAX + 4 * WINDOW_BYTES)
    world.run_for(seconds=1)
    readers = [world.attach(Station(f"reader{at}", at, subscriptions=[("1", "price < 50")])) for at in "ACE"]
    writer = Station("writer", "A", advertise=["price >= 0"], acknowledged=acknowledged, latency_us=100)
    world.attach(writer)
    numbers = itertools.count()

    def publish(count: int, *, text: str = "") -> None:
        for _ in range(count):
            writer.publish({"price": 37 * next(numbers) % 100, "text": text})
            world.run_for(us=500)

    world.run_for(seconds=1)
    publish(200)
    readers.append(world.attach(Station("prompt", "E", subscriptions=[("1", "price >= 50")])))
    publish(40)
    world.run_for(seconds=25)
    with world.hold("B", "C"):
        publish(20, text=LARGE)
        world.run_for(seconds=1)
    # An advertisement is taken back while much still waits for credit.
    writer.advertise("2", "price >= 0")
    world.run_for(seconds=1)
    with world.throttle(("B", "C"), bytes_per_s=100_000):
        publish(20, text=LARGE)
        writer.unadvertise("0")
        writer.unadvertise("2")
        world.run_for(seconds=20)
    writer.advertise("3", "price >= 0")
    world.run_for(seconds=1)
    # What is on its way when a connection breaks, and what comes twice.
    world.duplicate("B", "C", 10)
    publish(10)
    for _ in range(5):
        world.lose("B", "C", 4)
        publish(50)
        world.run_for(seconds=1)
    # A broker dies while it has what is for those behind it, comes back without a way to them, and somebody
    # subscribes there at once.
    with world.hold("C", "D"):
        publish(20, text=LARGE)
        world.run_for(us=100_000)
        world.crash("C")
        publish(20)
        world.run_for(seconds=3)
        world.restart("C")
        for _ in range(10):
            world.run_for(us=200_000)
            publish(10)
    readers.append(world.attach(Station("late", "C", subscriptions=[("1", "price >= 50")])))
    for _ in range(40):
        publish(20)
        world.run_for(us=300_000)
    world.run_for(seconds=30)
    world.run_until_quiet()
    waiting = [f"{each} still waits" for each in (*readers, writer) if each.asking or not each.channel.idle]
    return "\n".join([*world.checkers.report(), *waiting])


def first_complaint(strategy: str) -> str:
    """What the first random world that is not silent says; empty if all are."""
    for seed in range(SEEDS_MAX):
        failures = fault_runs(strategy, range(seed, seed + 1)).failures
        if failures:
            return failures[0]
    return ""


Patch = pytest.MonkeyPatch

pytestmark = pytest.mark.interpreted


@pytest.fixture(autouse=True)
def unwatched_brokers(monkeypatch: Patch) -> None:
    """The checkers have to find what is wrong by what clients see, and not the brokers by themselves."""
    monkeypatch.setattr(BrokerCore, "validate", lambda core: None)


def test_a_subscription_that_is_answered_before_it_is_installed(monkeypatch: Patch) -> None:
    usual = Subscriptions.subscribe_client

    def early(self: Subscriptions, client: Client, message: Subscribe) -> None:
        self._done(client, message.request)
        usual(self, client, message)

    monkeypatch.setattr(Subscriptions, "subscribe_client", early)
    assert "never got it" in complaint()


def test_a_link_that_resumes_before_the_last_subscription_is_there(monkeypatch: Patch) -> None:
    usual = Links.sync_begins

    def at_once(self: Links, link: Link, message: SyncBegin) -> None:
        usual(self, link, message)
        self.tables_complete(link)
        if link.holding:
            self._open(link)

    monkeypatch.setattr(Links, "sync_begins", at_once)
    assert "never got it" in complaint()


def test_a_marker_that_overtakes_the_publications_before_it(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Channel, "offer_in_line", Channel.offer)
    assert "never got it" in complaint()


def settle(care: object) -> None:
    """Settle a share, if it is one of a broker's."""
    if isinstance(care, Pending) and care.party is not None:
        turn: Any = care.party.line._changed.__self__  # type: ignore[attr-defined]
        turn.settlement.settle(care)


def test_a_queue_that_is_released_instead_of_moved(monkeypatch: Patch) -> None:
    usual = Channel.withdraw

    def released(self: Channel[Any]) -> list[Any]:
        for _, care in usual(self):
            settle(care)
        return []

    monkeypatch.setattr(Channel, "withdraw", released)
    assert "never got it" in first_complaint("SB")


def test_a_queue_that_is_released_when_its_link_opens(monkeypatch: Patch) -> None:
    usual = Channel.refilter

    def all_go(self: Channel[Any], keep: Callable[[PublicationBatch], PublicationBatch | None]) -> list[Any]:
        return usual(self, lambda batch: None)

    monkeypatch.setattr(Channel, "refilter", all_go)
    assert "never got it" in complaint()


def test_a_queue_that_drops_what_is_acknowledged(monkeypatch: Patch) -> None:
    usual = Channel.disconnect

    def forgetful(self: Channel[Any]) -> None:
        usual(self)
        for care in self.abandon():
            settle(care)

    monkeypatch.setattr(Channel, "disconnect", forgetful)
    assert "never got it" in complaint()


def test_a_session_that_begins_anew_without_what_waited(monkeypatch: Patch) -> None:
    usual = Channel.restart

    def anew(self: Channel[Any], credit: int) -> None:
        self.abandon()
        usual(self, credit)

    monkeypatch.setattr(Channel, "restart", anew)
    assert "never got it" in complaint()


def test_credit_that_never_comes_back(monkeypatch: Patch) -> None:
    usual = Channel.acknowledgement

    def stingy(self: Channel[Any]) -> Any:
        told = usual(self)
        return told and msgspec.structs.replace(told, credit=self.settings.window_bytes)

    monkeypatch.setattr(Channel, "acknowledgement", stingy)
    assert "still waits" in complaint()


def test_a_receipt_for_what_has_not_been_delivered(monkeypatch: Patch) -> None:
    usual = SettleLine.enter

    def not_waited_for(self: SettleLine, sequence: int) -> Pending:
        self.done(usual(self, sequence))
        return Pending(WaitingFor.HERE)

    monkeypatch.setattr(SettleLine, "enter", not_waited_for)
    assert "never got it" in complaint()


def test_repeats_that_nobody_recognises(monkeypatch: Patch) -> None:
    monkeypatch.setattr(DuplicateFilter, "new_run", lambda self, publisher, first, count: True)
    monkeypatch.setattr(DuplicateFilter, "is_new", lambda self, publisher, sequence: True)
    monkeypatch.setattr(DuplicateFilter, "new_rows", lambda self, publisher, sequences: None)
    assert "twice" in complaint()


def test_publications_that_overtake_each_other(monkeypatch: Patch) -> None:
    usual = Channel.offer

    def hasty(self: Channel[Any], body: Body, care: Any = None) -> None:
        usual(self, body, care)
        if isinstance(body, PublicationBatch):
            line = self._class(body.target).waiting
            if len(line) > 1:
                line[-1], line[-2] = line[-2], line[-1]

    monkeypatch.setattr(Channel, "offer", hasty)
    assert " after " in complaint()


def test_publications_that_nobody_asked_for(monkeypatch: Patch) -> None:
    usual = Subscriptions.subscribe_client

    def everything(self: Subscriptions, client: Client, message: Subscribe) -> None:
        usual(self, client, msgspec.structs.replace(message, filter="TRUE"))

    monkeypatch.setattr(Subscriptions, "subscribe_client", everything)
    assert "uninvited" in complaint()


def test_queues_that_hold_nobody_up(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Turn, "_hold_up", lambda self, *arguments: None)
    assert "at most" in complaint()


def test_neighbours_that_are_forgotten_by_a_restart(monkeypatch: Patch) -> None:
    usual = MemoryStore.apply

    def without_neighbours(self: MemoryStore, operations: list[StoreOperation]) -> None:
        usual(self, [each for each in operations if not isinstance(each, KeepNeighbour)])

    monkeypatch.setattr(MemoryStore, "apply", without_neighbours)
    assert "never got it" in complaint()


def test_fast_publications_that_are_lost_where_nothing_was_struck(monkeypatch: Patch) -> None:
    usual, at_once = Channel.offer, Channel.send

    def careless(self: Channel[Any], body: Body, care: Any = None) -> None:
        if not isinstance(body, PublicationBatch) or body.first % 97:
            usual(self, body, care)

    def sometimes(self: Channel[Any], batch: PublicationBatch, care: Any) -> Any:
        return at_once(self, batch, care) if batch.first % 97 else None

    monkeypatch.setattr(Channel, "offer", careless)
    monkeypatch.setattr(Channel, "send", sometimes)
    assert "never got it" in complaint(acknowledged=False)


@pytest.mark.parametrize("acknowledged", [True, False])
def test_unbroken_brokers_pass_in_silence(acknowledged: bool) -> None:
    assert complaint(acknowledged=acknowledged) == ""


# Durable logs.


def run_until_wrong() -> str:
    """What the first run with durable readers complains of."""
    for seed in range(SEEDS_MAX):
        try:
            run_with_faults(seed)
        except AssertionError as error:
            return str(error)
    return ""


def test_an_offset_that_is_used_twice(monkeypatch: Patch) -> None:
    usual = MemoryStore.state

    def one_less(self: MemoryStore) -> StoreState:
        state = usual(self)
        logs = [replace(log, next_offset=max(log.first_offset, log.next_offset - 1)) for log in state.logs]
        return replace(state, logs=tuple(logs))

    monkeypatch.setattr(MemoryStore, "state", one_less)
    monkeypatch.setattr(log, "check_operations", lambda operations, bounds: None)
    assert run_until_wrong()


def test_a_row_that_is_left_out_when_a_reader_comes_back(monkeypatch: Patch) -> None:
    usual = MemoryStore.read

    def with_a_gap(self: MemoryStore, *arguments: Any) -> list[tuple[int, LogRow]]:
        return usual(self, *arguments)[1:]

    monkeypatch.setattr(MemoryStore, "read", with_a_gap)
    assert run_until_wrong()


def test_a_row_that_is_confirmed_before_it_is_stored(monkeypatch: Patch) -> None:
    usual = DurableLogs.append

    def confirmed(self: DurableLogs, *arguments: Any) -> None:
        destination, batch, _, source = arguments
        usual(self, destination, batch, None, source)

    monkeypatch.setattr(DurableLogs, "append", confirmed)
    assert run_until_wrong()

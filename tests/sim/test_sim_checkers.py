"""Do the checkers notice when a promise is broken?

The broker here lies: it confirms everything and delivers what it is told to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from braid.errors import InvariantViolated
from braid.protocol import Frame, PublicationBatch, encode_record
from braid.protocol.effects import Send
from braid.protocol.inputs import Drain, Received
from braid.protocol.messages import PROTOCOL_VERSION, Done, Hello, Subscribe, Unsubscribe, Welcome
from braid.sim import Load, Station, World

if TYPE_CHECKING:
    from braid.protocol.effects import Effect
    from braid.protocol.inputs import Input


class Liar:
    """Confirms everything, forwards nothing, and says what it is told to say."""

    def __init__(self) -> None:
        self.orders: list[tuple[str, str, int, dict[str, int]]] = []
        self._connections: dict[str, int] = {}
        self._sequences: dict[int, int] = {}

    def handle(self, stimulus: Input, now_us: int) -> list[Effect]:
        effects: list[Effect] = []
        if isinstance(stimulus, Received):
            for frame in stimulus.frames:
                body = frame.body
                if isinstance(body, Hello):
                    self._connections[body.name] = stimulus.connection
                    welcome = Welcome(PROTOCOL_VERSION, "liar", "liar-1", credit=1 << 20)
                    effects.append(Send(stimulus.connection, [Frame(0, welcome)]))
                elif isinstance(body, Subscribe | Unsubscribe):
                    effects.append(self._say(stimulus.connection, Done(body.request)))
        for reader, publisher, number, attributes in self.orders:
            batch = PublicationBatch.of(publisher, (number,), (encode_record(attributes, 0),))
            effects.append(self._say(self._connections[reader], batch))
        self.orders.clear()
        return effects

    def _say(self, connection: int, body: Done | PublicationBatch) -> Send:
        number = self._sequences[connection] = self._sequences.get(connection, 0) + 1
        return Send(connection, [Frame(number, body)])

    def next_deadline_us(self) -> int | None:
        return None


class Lies:
    """A liar, a reader who wants high prices, and a writer."""

    def __init__(self) -> None:
        self.world = World(1)
        self.liar = Liar()
        self.world.add("liar", lambda birth: self.liar)
        self.reader = self.world.attach(Station("reader", "liar", subscriptions=[("1", "price > 10")]))
        self.writer = self.world.attach(Station("writer", "liar"))
        self.world.run_for(seconds=1)

    def publish(self, price: int, *, acknowledged: bool = False) -> None:
        self.writer.publish({"price": price}, acknowledged=acknowledged)

    def deliver(self, number: int, price: int) -> None:
        self.liar.orders.append(("reader", "writer", number, {"price": price}))
        self.world.host("liar").report(Drain())

    def report(self) -> list[str]:
        return self.world.checkers.report()


@pytest.fixture
def lies() -> Lies:
    return Lies()


def test_a_good_run_has_nothing_to_report(lies: Lies) -> None:
    for price in (5, 20, 30):
        lies.publish(price)
    lies.deliver(2, 20)
    lies.deliver(3, 30)
    assert lies.report() == []
    lies.world.checkers.require()


def test_what_is_lost_is_named(lies: Lies) -> None:
    lies.publish(20)
    lies.publish(5)
    assert lies.report() == ["at 1.000000 s: writer/1 was published, and reader at liar never got it"]
    assert lies.world.checkers.report(published_before_us=1_000_000) == []


@pytest.mark.parametrize("looked_up", [False, True])
def test_what_comes_twice_or_late_is_named(lies: Lies, looked_up: bool) -> None:
    lies.publish(20)
    lies.publish(30)
    if looked_up:
        lies.world.checkers.look_up()
    for number, price in ((2, 30), (1, 20), (2, 30)):
        lies.deliver(number, price)
    assert lies.report() == [
        "at 1.000000 s: reader at liar got writer/1 after writer/2",
        "at 1.000000 s: reader at liar got writer/2 twice",
    ]


@pytest.mark.parametrize("looked_up", [False, True])
def test_what_nobody_asked_for_is_named(lies: Lies, looked_up: bool) -> None:
    lies.publish(5)
    if looked_up:
        lies.world.checkers.look_up()
    lies.deliver(1, 5)
    (problem,) = lies.report()
    assert "got writer/1 uninvited: {'price': 5} matches none of its 1 subscriptions" in problem


def test_a_subscription_that_was_taken_back_is_owed_nothing(lies: Lies) -> None:
    lies.publish(20)
    lies.reader.unsubscribe("1")
    assert lies.report() == []
    lies.world.run_for(seconds=1)
    lies.deliver(1, 20)
    assert lies.report() == [], "what was under way may still come"
    lies.world.run_for(seconds=30)
    lies.publish(30)
    lies.deliver(2, 30)
    assert "uninvited" in lies.report()[0]


def test_what_another_subscription_wants_too_is_still_owed(lies: Lies) -> None:
    lies.reader.subscribe("2", "price > 25")
    lies.world.run_for(seconds=1)
    lies.publish(20)
    lies.publish(30)
    lies.reader.unsubscribe("1")
    assert [line.split(": ")[1][:8] for line in lies.report()] == ["writer/2"]


def test_only_what_is_acknowledged_is_owed_near_a_disturbance(lies: Lies) -> None:
    lies.world.hold("reader", "liar")
    lies.world.release("reader", "liar")
    lies.publish(20)
    lies.publish(30, acknowledged=True)
    assert [line.split(": ")[1][:8] for line in lies.report()] == ["writer/2"]


def test_a_subscription_stands_from_its_answer_also_amid_trouble(lies: Lies) -> None:
    lies.world.hold("writer", "liar")
    lies.reader.subscribe("2", "price < 10")
    lies.world.run_for(us=1)
    lies.publish(5, acknowledged=True)
    assert [line.split(": ")[1][:8] for line in lies.report()] == ["writer/1"]


def test_a_fault_elsewhere_excuses_nothing(lies: Lies) -> None:
    other = Liar()
    lies.world.add("other", lambda birth: other)
    lies.world.attach(Station("somebody", "other"))
    lies.world.hold("somebody", "other")
    lies.world.crash("other")
    lies.publish(20)
    assert [line.split(": ")[1][:8] for line in lies.report()] == ["writer/1"]


def test_a_failure_says_how_to_repeat_the_run(lies: Lies) -> None:
    lies.world.repeat_command = "braid simulate lies.toml --seed 1"
    for _ in range(30):
        lies.publish(20)
    with pytest.raises(InvariantViolated) as raised:
        lies.world.checkers.require()
    text = str(raised.value)
    assert text.startswith("the run broke 30 promises")
    assert "and 10 more" in text
    assert text.endswith("repeat with: braid simulate lies.toml --seed 1")


def test_queues_stay_within_their_bounds() -> None:
    world = World(1)
    waiting = {"other": 10, "": 0}
    load = Load((0, 0, 0, 0, 0, 0), waiting, 0, 0)
    world.add("liar", lambda birth: Liar(), load=lambda machine: load, queue_bytes_max=100)
    world.run_for(seconds=2)
    assert world.checkers.report() == []
    waiting["other"] = 101
    world.run_for(seconds=1)
    assert world.checkers.report() == ["at 3.000000 s: 101 bytes wait in liar for other; at most 100 may"]


def test_nobody_watches_if_nobody_is_to() -> None:
    world = World(1, checkers=False)
    liar = Liar()
    world.add("liar", lambda birth: liar)
    writer = world.attach(Station("writer", "liar"))
    world.attach(Station("reader", "liar", subscriptions=[("1", "TRUE")]))
    world.run_for(seconds=1)
    writer.publish({"price": 1})
    world.run_for(seconds=1)
    assert world.oracle is None
    assert world.checkers.report() == []

"""How much does one turn do, and who is served while somebody asks for too much?

Work is counted by what a turn answers and tells, so that nothing here depends on the speed of a machine.
"""

from __future__ import annotations

from typing import Any

import pytest

from braid.broker.access import AccessPolicy, Grant, Limits, Principal, hashed_token
from braid.broker.core import BrokerCore
from braid.broker.fair_queue import ROWS_PER_UNIT, WORK_PER_TURN
from braid.broker.identities import _proof
from braid.broker.settings import BrokerSettings
from braid.language import Filter
from braid.protocol import Frame, PublicationBatch
from braid.protocol.batch import encode_record
from braid.protocol.effects import Close, Effect, Note, Pause, Send
from braid.protocol.inputs import Closed, Input, Opened, Received, Tick, Writable
from braid.protocol.messages import (
    PROTOCOL_VERSION,
    Advertise,
    Ask,
    Done,
    Hello,
    Introduction,
    Message,
    Ping,
    Pong,
    PublishRefused,
    Settled,
    Subscribe,
    SyncBegin,
    TablesComplete,
    Unadvertise,
    Unsubscribe,
)

ANSWERS_PER_TURN_MAX = 64


class Driver:
    """One broker, its clients by connection, and what they heard."""

    def __init__(self, access: AccessPolicy | None = None, **settings: Any) -> None:
        self.now_us = 1_000_000
        self.core = BrokerCore(
            BrokerSettings(broker_id="A", address="A", **settings), incarnation="A-1", seed=1, access=access
        )
        self.heard: dict[int, list[Message]] = {}
        self.publications: dict[int, int] = {}
        self.paused: dict[int, int] = {}
        self.closed: set[int] = set()
        self.notes: list[Note] = []
        self.longest = 0
        self._sent: dict[int, int] = {}
        self.tell(Tick())

    def tell(self, stimulus: Input) -> list[Effect]:
        effects = self.core.handle(stimulus, self.now_us)
        said = 0
        for effect in effects:
            if isinstance(effect, Send):
                for frame in effect.frames:
                    if isinstance(frame.body, PublicationBatch):
                        self.publications[effect.connection] += len(frame.body)
                    else:
                        said += isinstance(frame.body, (Done, Subscribe, Unsubscribe))
                        self.heard.setdefault(effect.connection, []).append(frame.body)
            elif isinstance(effect, Pause):
                self.paused[effect.connection] = effect.duration_us
            elif isinstance(effect, Close):
                self.closed.add(effect.connection)
            elif isinstance(effect, Note):
                self.notes.append(effect)
        self.longest = max(self.longest, said)
        return effects

    def client(self, connection: int, token: str | None = None) -> int:
        self.greet(connection, token)
        return connection

    def greet(self, connection: int, token: str | None = None) -> list[Effect]:
        """Come as a client; returns what the broker does when it has heard the greeting."""
        self.publications[connection] = self._sent[connection] = 0
        self.tell(Opened(connection, f"client {connection}"))
        name = f"c{connection}"
        hello = Hello(PROTOCOL_VERSION, "client", name, f"{name}-1", token, credit=1 << 22)
        return self.tell(Received(connection, [Frame(0, hello)]))

    def neighbour(self, connection: int, incarnation: str = "B-1", name: str = "B", ticket: str = "") -> int:
        """One that says that anything may be published behind it, and perhaps returns a ticket."""
        self.publications[connection] = self._sent[connection] = 0
        self.tell(Opened(connection, name))
        proof = _proof(ticket, name, self.core.settings.broker_id, incarnation)
        returned = {self.core.settings.broker_id: proof} if ticket else {}
        hello = Hello(
            PROTOCOL_VERSION, "broker", name, incarnation, credit=1 << 22, delta=1, returned=returned
        )
        self.tell(Received(connection, [Frame(0, hello)]))
        self.ask(connection, SyncBegin(), Advertise(1, f"{name}/*", "TRUE"), TablesComplete())
        return connection

    def ask(self, connection: int, *messages: Message | PublicationBatch) -> None:
        """Everything in one read."""
        frames = []
        for message in messages:
            self._sent[connection] += 1
            frames.append(Frame(self._sent[connection], message))
        self.tell(Received(connection, frames))

    def turns(self, count: int) -> None:
        for _ in range(count):
            self.tell(Tick())

    def done(self, connection: int) -> int:
        return sum(isinstance(message, Done) for message in self.heard[connection])


def subscriptions(count: int, text: str = "price > {}") -> list[Message]:
    return [Subscribe(number, str(number), text.format(number)) for number in range(1, count + 1)]


def publication(sequence: int, publisher: str) -> PublicationBatch:
    return PublicationBatch.of(publisher, [sequence], [encode_record({"price": 50}, 0)])


def test_a_thousand_subscriptions_of_one_read_are_not_one_turn() -> None:
    broker = Driver()
    alice = broker.client(1)
    broker.ask(alice, *subscriptions(1000))
    assert broker.longest <= ANSWERS_PER_TURN_MAX
    assert broker.paused[alice] > 0  # nothing more is read from her
    broker.turns(1000)
    assert broker.done(alice) == 1000
    assert broker.longest <= ANSWERS_PER_TURN_MAX
    assert broker.paused[alice] == 0


def test_those_in_line_are_served_at_once_and_one_after_the_other() -> None:
    broker = Driver()
    clients = [broker.client(number) for number in (1, 2, 3)]
    innocent = broker.client(9)
    for client in clients:
        broker.ask(client, *subscriptions(1000))
    broker.ask(innocent, Subscribe(1, "mine", "price > 40"))
    assert broker.core.next_deadline_us() <= broker.now_us
    broker.turns(2)
    assert broker.done(innocent) == 1
    assert all(broker.done(client) < 200 for client in clients)


def test_publications_reach_others_while_somebody_stands_in_line() -> None:
    broker = Driver()
    attacker, reader, writer = (broker.client(number) for number in (1, 2, 3))
    broker.ask(reader, Subscribe(1, "mine", "price > 40"))
    broker.ask(writer, publication(1, "c3"))  # the first one waits for nobody here
    broker.ask(attacker, *subscriptions(5000, "cost > {}"))
    before = broker.publications[reader]
    broker.ask(writer, publication(2, "c3"))
    assert broker.publications[reader] == before + 1


def many_names(count: int, *, acknowledged: bool = False) -> list[PublicationBatch]:
    record = encode_record({"price": 50}, 0)
    names = (f"c1.{number}" for number in range(count))
    return [PublicationBatch.of(name, [1], [record], acknowledged=acknowledged) for name in names]


@pytest.mark.parametrize("acknowledged", [False, True])
def test_a_thousand_batches_of_one_read_are_not_one_turn(acknowledged: bool) -> None:
    broker = Driver()
    alice, reader, innocent = (broker.client(number) for number in (1, 2, 3))
    broker.ask(reader, Subscribe(1, "mine", "price > 40"))
    broker.ask(innocent, publication(1, "c3"))  # the first one waits for nobody here
    before = broker.publications[reader]
    broker.ask(alice, *many_names(1000, acknowledged=acknowledged))
    assert 0 < broker.publications[reader] - before <= WORK_PER_TURN
    assert broker.paused[alice] > 0
    broker.ask(innocent, publication(2, "c3"))
    broker.turns(1)
    assert broker.publications[reader] - before <= 3 * WORK_PER_TURN + 1
    broker.turns(20)
    assert broker.publications[reader] - before == 1001
    assert broker.paused[alice] == 0


def test_publications_are_taken_from_a_client_that_reads_nothing() -> None:
    broker = Driver()
    alice, reader = (broker.client(number) for number in (1, 2))
    broker.ask(reader, Subscribe(1, "mine", "price > 40"))
    broker.tell(Writable(alice, False))
    broker.ask(alice, *many_names(1000))
    broker.turns(20)
    assert broker.publications[reader] == 1000


def test_many_rows_of_one_read_are_not_one_turn() -> None:
    broker = Driver()
    alice, reader = (broker.client(number) for number in (1, 2))
    broker.ask(reader, Subscribe(1, "mine", "price > 40"))
    record = encode_record({"price": 50}, 0)
    rows = ROWS_PER_UNIT * WORK_PER_TURN // 2
    batches = [
        PublicationBatch.of("c1", range(1 + turn * rows, 1 + (turn + 1) * rows), [record] * rows)
        for turn in range(6)
    ]
    broker.ask(alice, *batches)
    assert broker.publications[reader] <= 2 * rows
    broker.turns(10)
    assert broker.publications[reader] == 6 * rows


def test_a_client_that_is_refused_a_thousand_times_writes_no_thousand_lines() -> None:
    principal = Principal("p", Grant(Filter("price > 90")), Limits())
    broker = Driver(AccessPolicy({"p": principal}, {hashed_token("t"): "p"}))
    client = broker.client(1, "t")
    record = encode_record({"price": 50}, 0)
    batches = [PublicationBatch.of("p/c1", [number], [record], acknowledged=True) for number in range(1, 101)]
    broker.ask(client, *batches)
    refused = [message for message in broker.heard[client] if isinstance(message, PublishRefused)]
    assert sum(len(message.sequences) for message in refused) == 100
    lines = [note for note in broker.notes if note.what == "publication refused"]
    assert [note.fields["count"] for note in lines] == [100]


def test_the_order_of_requests_and_publications_of_one_client_stays() -> None:
    broker = Driver()
    alice = broker.client(1)
    unsubscribe = [Unsubscribe(2000 + number, str(number)) for number in range(1, 201)]
    broker.ask(
        alice,
        *subscriptions(200, "price = {}"),
        *unsubscribe,
        Subscribe(9000, "last", "price > 40"),
        publication(1, "c1"),
        Unsubscribe(9001, "last"),
        publication(2, "c1"),
    )
    broker.turns(400)
    assert broker.done(alice) == 402
    assert broker.publications[alice] == 1


def test_what_a_client_published_behind_its_requests_goes_its_way_when_it_leaves() -> None:
    broker = Driver()
    reader, alice = broker.client(1), broker.client(2)
    broker.ask(reader, Subscribe(1, "mine", "price > 40"))
    broker.ask(alice, *subscriptions(500), publication(1, "c2"))
    broker.tell(Closed(alice, "it has gone"))
    broker.turns(100)
    assert broker.publications[reader] == 1


def test_heartbeats_are_answered_past_the_line_and_nobody_in_line_is_silent() -> None:
    broker = Driver()
    alice = broker.client(1)
    broker.ask(alice, *subscriptions(1000))
    broker.tell(Received(alice, [Frame(0, Ping(7))]))
    assert Pong(7) in broker.heard[alice]
    broker.tell(Writable(alice, False))  # her answers are not read, so she waits
    for _ in range(100):
        broker.now_us += 1_000_000
        broker.tell(Tick())
    assert alice not in broker.closed


def test_what_a_neighbour_says_with_a_number_waits_for_what_is_before_it_in_line() -> None:
    """A link that comes up again brings more than a turn takes, and behind it word of settled frames."""
    broker = Driver()
    alice = broker.client(1)
    broker.ask(alice, Advertise(1, "mine", "TRUE"))
    neighbour = broker.neighbour(2)
    many = [Subscribe(number, f"B/{number}", f"price > {number}") for number in range(1, 101)]
    broker.ask(neighbour, *many[:50])
    broker.ask(neighbour, Settled([1]), *many[50:])
    broker.turns(200)
    assert neighbour not in broker.closed
    assert len(broker.core.snapshot().links) == 1
    assert broker.core.snapshot().subscriptions == 100


def test_answers_that_are_not_read_stop_the_asking() -> None:
    broker = Driver()
    alice = broker.client(1)
    broker.tell(Writable(alice, False))
    broker.ask(alice, *[Ask(number, "statistics", {}) for number in range(1000)])
    broker.turns(1000)
    assert broker.done(alice) == 0
    assert broker.core.next_deadline_us() > broker.now_us  # and nothing turns in circles for her
    broker.tell(Writable(alice, True))
    broker.turns(1000)
    assert broker.done(alice) == 1000


def test_requests_beyond_the_rate_wait() -> None:
    limits = Limits(requests_per_second_max=100, requests_per_second_together_max=150)
    everything = Filter("TRUE")
    principal = Principal("p", Grant(everything, everything), limits)
    access = AccessPolicy({"p": principal}, {hashed_token("t"): "p"})
    broker = Driver(access)
    alice, bob = broker.client(1, "t"), broker.client(2, "t")
    broker.ask(alice, *subscriptions(1000))
    broker.turns(1000)
    assert 100 <= broker.done(alice) <= 100 + ANSWERS_PER_TURN_MAX
    broker.ask(bob, *subscriptions(1000))
    broker.turns(1000)
    together = broker.done(alice) + broker.done(bob)
    assert 150 <= together <= 150 + ANSWERS_PER_TURN_MAX
    for _ in range(100):  # ten seconds
        broker.now_us += 100_000
        broker.turns(20)
    gained = broker.done(alice) + broker.done(bob) - together
    assert 1200 <= gained <= 1500 + ANSWERS_PER_TURN_MAX
    assert abs(broker.done(alice) - broker.done(bob)) < 300  # they take turns


def told(broker: Driver, neighbour: int) -> set[str]:
    """The subscriptions that a neighbour knows, from what it heard."""
    known: set[str] = set()
    for message in broker.heard[neighbour]:
        if isinstance(message, Subscribe):
            known.add(message.key)
        elif isinstance(message, Unsubscribe):
            known.remove(message.key)
    return known


def test_a_client_with_many_subscriptions_leaves_step_by_step() -> None:
    broker = Driver()
    neighbour, alice = broker.neighbour(1), broker.client(2)
    broker.ask(alice, *subscriptions(1000, "place = {}"))
    broker.turns(1000)
    assert len(told(broker, neighbour)) == 1000
    broker.tell(Closed(alice, "it has gone"))
    broker.turns(400)
    assert not told(broker, neighbour)
    assert broker.longest <= ANSWERS_PER_TURN_MAX


def test_nobody_waits_for_a_client_that_has_left_and_whose_subscriptions_are_going() -> None:
    broker = Driver()
    alice, writer = broker.client(2), broker.client(3)
    broker.ask(alice, *subscriptions(1000, "price <> {}"))
    broker.turns(1000)
    broker.tell(Closed(alice, "it has gone"))
    broker.ask(writer, publication(1, "c3"))
    assert broker.publications[alice] == 0
    broker.turns(400)
    assert broker.core.statistics()["routing"]["subscriptions"] == 0


def test_what_a_subscription_hides_is_revealed_step_by_step_before_it_goes() -> None:
    broker = Driver()
    neighbour, alice, bob = broker.neighbour(1), broker.client(2), broker.client(3)
    broker.ask(alice, Subscribe(1, "wide", "cost > 0"))
    broker.ask(bob, *subscriptions(1000, "place = {} AND cost > 1"))
    broker.turns(1000)
    (wide,) = told(broker, neighbour)
    broker.ask(alice, Unsubscribe(2, "wide"))
    broker.ask(alice, Subscribe(3, "wide", "price > 7"))  # the name may be used again at once
    for _ in range(400):
        broker.tell(Tick())
        known = told(broker, neighbour)
        assert wide in known or len(known) == 1001  # what it hides is never without a subscription
    assert len(known) == 1001
    assert broker.longest <= ANSWERS_PER_TURN_MAX


def test_another_filter_under_the_name_of_one_that_hides_much_is_no_long_turn() -> None:
    broker = Driver()
    neighbour, alice, bob = broker.neighbour(1), broker.client(2), broker.client(3)
    broker.ask(alice, Subscribe(1, "wide", "cost > 0"))
    broker.ask(bob, *subscriptions(1000, "place = {} AND cost > 1"))
    broker.turns(1000)
    broker.ask(alice, Subscribe(2, "wide", "price > 7"))
    broker.turns(400)
    assert len(told(broker, neighbour)) == 1001
    assert broker.longest <= ANSWERS_PER_TURN_MAX


def test_a_neighbour_hears_step_by_step_what_its_advertisement_meets_and_is_answered_then() -> None:
    broker = Driver()
    alice = broker.client(2)
    broker.ask(alice, *subscriptions(1000, "place = {}"))
    broker.turns(1000)
    neighbour = broker.neighbour(1)
    answered = 0
    for _ in range(400):
        answered = broker.done(neighbour)
        if answered:
            break
        broker.tell(Tick())
    assert answered
    assert len(told(broker, neighbour)) == 1000
    assert broker.longest <= ANSWERS_PER_TURN_MAX


def test_a_neighbour_that_has_forgotten_everything_is_told_step_by_step() -> None:
    broker = Driver()
    neighbour, alice = broker.neighbour(1), broker.client(2)
    broker.ask(alice, *subscriptions(1000, "place = {}"))
    broker.turns(1000)
    broker.tell(Closed(neighbour, "it was started again"))
    broker.heard.clear()
    again = broker.neighbour(3, "B-2")
    broker.turns(400)
    assert len(told(broker, again)) == 1000
    assert broker.longest <= ANSWERS_PER_TURN_MAX
    complete = [type(message) for message in broker.heard[again]].index(TablesComplete)
    before = broker.heard[again][:complete]
    assert sum(isinstance(message, Subscribe) for message in before) == 1000  # that is what it means


def test_an_advertisement_that_goes_is_no_long_turn() -> None:
    broker = Driver()
    neighbour, alice = broker.neighbour(1), broker.client(2)
    broker.ask(alice, *subscriptions(1000, "place = {}"))
    broker.turns(1000)
    broker.ask(neighbour, Unadvertise(2, "B/*"))
    broker.turns(400)
    assert not told(broker, neighbour)
    assert broker.longest <= ANSWERS_PER_TURN_MAX


def test_what_a_neighbour_does_not_repeat_goes_step_by_step() -> None:
    broker = Driver()
    second = broker.neighbour(4, "C-1", name="C")
    neighbour = broker.neighbour(1)
    broker.ask(neighbour, *[Subscribe(n, f"B/{n}", f"place = {n}") for n in range(10, 1010)])
    broker.turns(1000)
    assert len(told(broker, second)) == 1000
    broker.tell(Closed(neighbour, "it was started again"))
    again = broker.neighbour(3, "B-2")
    asked = [message.request for message in broker.heard[again] if isinstance(message, Advertise)]
    broker.ask(again, *map(Done, asked), Subscribe(7, "B/77", "place = 77"))
    broker.turns(400)
    assert told(broker, second) == {"B/77"}
    assert broker.longest <= ANSWERS_PER_TURN_MAX


def test_what_stands_in_line_goes_with_its_connection_when_another_takes_over() -> None:
    broker = Driver()
    broker.neighbour(4, "C-1", name="C")
    neighbour = broker.neighbour(1)
    broker.ask(neighbour, *[Subscribe(n, f"B/{n}", f"place = {n}") for n in range(10, 1010)])
    # The neighbour comes again before the end of the first connection is noticed, and knows nothing more
    # than the ticket that it was given.
    given = next(each for each in broker.heard[neighbour] if isinstance(each, Introduction))
    again = broker.neighbour(3, ticket=given.ticket)
    asked = [message.request for message in broker.heard[again] if isinstance(message, Advertise)]
    broker.ask(again, *map(Done, asked), Subscribe(7, "B/new", "place = 7"))
    broker.turns(400)
    assert again not in broker.closed
    assert broker.core.statistics()["routing"]["subscriptions"] == 1
    assert broker.core.next_deadline_us() > broker.now_us  # nobody is served for ever

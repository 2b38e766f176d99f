"""A batch that is too much for one turn: others are served between its pieces, and all of it arrives."""

from __future__ import annotations

import pytest

from braid.broker.fair_queue import ROWS_PER_UNIT, WORK_PER_TURN
from braid.protocol import Frame, PublicationBatch
from braid.protocol.batch import encode_record
from braid.protocol.effects import Drained
from braid.protocol.inputs import Closed, Drain, Received, Tick
from braid.protocol.messages import Acknowledgement, Message, Subscribe
from tests.broker.test_turns import Driver, publication

ROWS_PER_TURN = ROWS_PER_UNIT * WORK_PER_TURN
MANY = 60_000
RECORD = encode_record({"price": 50}, 0)


def long_batch(
    publisher: str, count: int = MANY, *, first: int = 1, acknowledged: bool = False
) -> PublicationBatch:
    numbers = range(first, first + count)
    return PublicationBatch.of(publisher, numbers, [RECORD] * count, acknowledged=acknowledged)


def settled(heard: list[Message]) -> int:
    return max((each.settled for each in heard if isinstance(each, Acknowledgement)), default=0)


@pytest.fixture
def broker() -> Driver:
    """Its reader is 9, and 8 an innocent client that has published already."""
    broker = Driver()
    broker.client(9)
    broker.client(8)
    broker.ask(9, Subscribe(1, "mine", "price > 40"))
    broker.ask(8, publication(1, "c8"))
    assert broker.publications[9] == 1
    broker.publications[9] = 0
    return broker


@pytest.mark.parametrize("acknowledged", [False, True])
def test_a_frame_of_sixty_thousand_rows_is_not_one_turn(broker: Driver, acknowledged: bool) -> None:
    alice, reader, innocent = broker.client(1), 9, 8
    broker.ask(alice, long_batch("c1", acknowledged=acknowledged))
    assert 0 < broker.publications[reader] <= ROWS_PER_TURN
    assert broker.paused[alice] > 0
    before = broker.publications[reader]
    broker.ask(innocent, publication(2, "c8"))
    assert broker.publications[reader] <= before + ROWS_PER_TURN + 1
    turns = 0
    while broker.publications[reader] < MANY + 1:
        before = broker.publications[reader]
        broker.turns(1)
        turns += 1
        assert before < broker.publications[reader] <= before + ROWS_PER_TURN, f"turn {turns}"
    assert turns >= MANY // ROWS_PER_TURN
    broker.turns(2)
    assert broker.paused[alice] == 0
    broker.core.validate()


def test_what_a_client_says_behind_a_long_batch_comes_behind_it(broker: Driver) -> None:
    alice, reader = broker.client(1), 9
    broker.ask(alice, long_batch("c1"), Subscribe(1, "hers", "price > 40"), publication(MANY + 1, "c1"))
    broker.turns(40)
    assert broker.publications[reader] == MANY + 1
    assert broker.publications[alice] == 1  # not one of those before she subscribed


def test_a_long_batch_is_settled_when_all_of_it_is(broker: Driver) -> None:
    """Its reader confirms one piece after the other, the first ones while others are not routed yet."""
    reader, alice = 9, broker.client(1)
    channel = next(party for party in broker.core._connections.clients if party.name == "c9").channel

    def confirm(upto: int) -> None:
        broker.tell(Received(reader, [Frame(0, Acknowledgement(upto, upto, 1 << 30))]))
        broker.now_us += 30_000
        broker.turns(1)

    broker.ask(alice, long_batch("c1", acknowledged=True))
    frame = broker._sent[alice]
    for confirmed in range(60):
        assert settled(broker.heard[alice]) < frame
        if channel.sent == confirmed:
            broker.turns(1)
        if broker.publications[reader] == MANY and channel.sent == confirmed + 1:
            break
        confirm(confirmed + 1)
    assert broker.publications[reader] == MANY
    confirm(channel.sent)
    assert settled(broker.heard[alice]) == frame
    broker.core.validate()


def test_a_client_that_goes_in_the_middle_leaves_all_of_it(broker: Driver) -> None:
    alice, reader = broker.client(1), 9
    broker.ask(alice, long_batch("c1"), publication(MANY + 1, "c1"))
    broker.tell(Closed(alice, "it has gone"))
    assert broker.publications[reader] <= 3 * ROWS_PER_TURN  # its end is no long turn either
    broker.core.validate()
    broker.turns(30)
    assert broker.publications[reader] == MANY + 1


def test_who_comes_again_under_the_name_is_served_behind_it(broker: Driver) -> None:
    alice, reader = broker.client(1), 9
    broker.ask(alice, long_batch("c1"))
    broker.tell(Closed(alice, "it has gone"))
    again = broker.client(3)
    broker.core._connections.parties[3].name = "c1"  # the same program, a moment later
    before = broker.publications[reader]
    assert before < MANY
    broker.ask(again, publication(1, "c3"))
    assert broker.publications[reader] <= before + ROWS_PER_TURN
    order = []
    while broker.publications[reader] < MANY + 1:
        broker.turns(1)
        order.append(broker.publications[reader])
        assert len(order) < 40
    assert order[-1] - order[-2] < ROWS_PER_TURN  # the last one came in the last turn


def test_a_broker_that_drains_hands_over_all_of_a_long_batch(broker: Driver) -> None:
    alice, reader = broker.client(1), 9
    broker.ask(alice, long_batch("c1"))
    effects = broker.tell(Drain())
    for _ in range(2_000):
        if any(isinstance(effect, Drained) for effect in effects):
            break
        broker.now_us += 10_000
        effects = broker.tell(Tick())
    assert broker.publications[reader] == MANY


def test_a_neighbour_s_connection_that_ends_in_the_middle_costs_nothing(broker: Driver) -> None:
    reader = 9
    neighbour = broker.neighbour(2)
    broker.ask(neighbour, long_batch("b-pub", acknowledged=True))
    assert broker.publications[reader] < MANY
    broker.tell(Closed(neighbour, "cut"))
    broker.core.validate()
    broker.turns(30)
    assert broker.publications[reader] == MANY
    broker.core.validate()


def test_a_neighbour_that_leaves_for_good_in_the_middle_harms_nobody(broker: Driver) -> None:
    reader = 9
    neighbour = broker.neighbour(2)
    broker.ask(neighbour, long_batch("b-pub", acknowledged=True))
    broker.core._links.detach(broker.core._links.links["B"])
    broker.turns(30)
    assert broker.publications[reader] == MANY
    broker.core.validate()


def test_a_large_batch_of_few_rows_is_divided_too(broker: Driver) -> None:
    alice, reader = broker.client(1), 9
    record = encode_record({"price": 50, "text": "x" * 30_000}, 0)
    broker.ask(alice, PublicationBatch.of("c1", range(1, 101), [record] * 100))
    assert 0 < broker.publications[reader] < 100
    broker.turns(100)
    assert broker.publications[reader] == 100

"""Does a client's session publish everything once and in order, whatever happens in between?"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.client.effects import (
    Progressed,
    PublicationsRefused,
)
from braid.client.outbox import ACKNOWLEDGED, BATCH_BYTES, ORDERED
from braid.errors import (
    AccessDeniedError,
    PublicationError,
)
from braid.protocol.batch import PublicationBatch
from braid.protocol.messages import (
    PublishRefused,
)
from tests.client.scripted_broker import ScriptedBroker, World, connected, record

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "fast",
                "acknowledged",
                "ordered",
                "flush",
                "break",
                "recover",
                "broker",
                "client",
                "acknowledge",
            ]
        ),
        st.integers(1, 4),
    ),
    max_size=60,
)


@given(STEPS, st.sampled_from([0, 120, 400]), st.sampled_from([200, 4096]))
@settings(max_examples=300, deadline=None)
def test_every_publication_arrives_once_and_in_order(
    steps: list[tuple[str, int]], frame_bytes_max: int, window_bytes: int
) -> None:
    world = World(ScriptedBroker(frame_bytes_max, window_bytes))
    world.connect()
    published = 0
    manners = {"fast": 0, "acknowledged": ACKNOWLEDGED, "ordered": ORDERED}
    received = settled = 0
    for step, size in steps:
        if step in manners:
            for _ in range(size):
                published += 1
                assert world.session.publish(record(published, 7 * size), manners[step]) == published
        elif step == "flush":
            world.session.flush()
            world.act()
        elif step == "break":
            world.break_connection()
        elif step == "recover":
            world.recover()
        elif step == "broker":
            world.broker_reads(size)
        elif step == "client":
            world.client_reads(size)
        else:
            world.broker.acknowledge()
        outbox = world.session.outbox
        assert received <= outbox.received <= published
        assert settled <= outbox.settled <= published
        received, settled = outbox.received, outbox.settled
        # What counts as received has been received.
        assert set(range(1, received + 1)) <= set(world.broker.accepted)
    world.recover()
    world.quiesce()
    assert world.broker.accepted == list(range(1, published + 1))
    assert world.session.outbox.received == published
    assert world.session.outbox.settled == world.session.outbox.last_acknowledged_sequence


@given(st.lists(st.integers(0, 300), max_size=40), st.integers(400, 2000))
@settings(max_examples=100, deadline=None)
def test_no_frame_is_larger_than_the_broker_allows(paddings: list[int], frame_bytes_max: int) -> None:
    world = connected(ScriptedBroker(frame_bytes_max, 1 << 20))
    for number, padding in enumerate(paddings):
        world.session.publish(record(number, padding), 0)
    world.session.flush()
    world.act()
    sizes = [frame.body.size for frame in world.to_broker if isinstance(frame.body, PublicationBatch)]
    assert all(size <= frame_bytes_max for size in sizes)
    world.quiesce()
    assert world.broker.accepted == list(range(1, len(paddings) + 1))


def test_a_publication_that_no_frame_holds_is_refused_before_it_is_sent() -> None:
    world = connected(ScriptedBroker(1000))
    with pytest.raises(PublicationError, match="at most"):
        world.session.publish(record(1, 1000), 0)
    assert world.session.publish(record(1), 0) == 1


def test_a_new_broker_with_smaller_frames_gets_smaller_batches() -> None:
    world = connected(ScriptedBroker(0, 1 << 20))
    for number in range(1, 41):
        world.session.publish(record(number, 50), ACKNOWLEDGED if number % 2 else 0)
    world.session.publish(record(41, 3000), 0)
    world.session.flush()
    world.act()
    world.break_connection()
    world.session.publish(record(42, 3000), ACKNOWLEDGED)
    world.broker.frame_bytes_max = 500
    world.recover()
    world.quiesce()
    assert world.broker.accepted == list(range(1, 41))
    refused = [each for each in world.seen if isinstance(each, PublicationsRefused)]
    assert [sequence for each in refused for sequence in each.sequences] == [41, 42]
    assert world.session.outbox.received == 42
    assert world.session.outbox.settled == 42


def test_batches_stay_small_enough_to_let_messages_through() -> None:
    world = connected(ScriptedBroker(0, 1 << 22))
    for number in range(200):
        world.session.publish(record(number, 1000), 0)
    world.session.flush()
    world.act()
    sizes = [frame.body.size for frame in world.to_broker if isinstance(frame.body, PublicationBatch)]
    assert len(sizes) > 1
    assert max(sizes) <= BATCH_BYTES


def test_the_outgoing_buffer_is_bounded_and_empties_again() -> None:
    world = connected(ScriptedBroker(0, 500), outgoing_bytes_max=5000)
    published = 0
    while world.session.has_room:
        published += 1
        world.session.publish(record(published, 100), 0)
        world.session.flush()
        world.act()
    assert published < 100
    world.quiesce()
    assert world.session.has_room
    assert world.broker.accepted == list(range(1, published + 1))


def test_refused_publications_are_named_before_they_count_as_received() -> None:
    world = connected()
    world.session.publish(record(1), 0)
    world.session.flush()
    world.act()
    world.broker_reads()
    world.broker.offer(PublishRefused("c.1", [1], "denied", "not yours"))
    world.broker.acknowledge()
    world.client_reads()
    kinds = [type(each) for each in world.seen if isinstance(each, (PublicationsRefused, Progressed))]
    assert kinds == [PublicationsRefused, Progressed]
    refused = next(each for each in world.seen if isinstance(each, PublicationsRefused))
    assert isinstance(refused.error, AccessDeniedError)


def test_only_a_wanted_receipt_hurries_the_broker() -> None:
    world = connected()
    world.session.publish(record(1), 0)
    world.session.flush()
    world.session.publish(record(2), 0)
    world.session.outbox.receipt_wanted = True
    world.session.flush()
    world.session.publish(record(3), 0)
    world.session.flush()
    world.act()
    batches = [frame.body for frame in world.to_broker if isinstance(frame.body, PublicationBatch)]
    assert [batch.receipt for batch in batches] == [False, True, False]

"""Does a client's session hand over what subscriptions and logs bring, once and in order?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.client.effects import (
    Arrived,
    Ended,
)
from braid.client.inbox import CLASSES, Inbox, Interest
from braid.client.stored import ReplayWish, StoredPublication
from braid.errors import (
    SlowConsumerError,
)
from braid.language import Filter
from braid.protocol.batch import PublicationBatch, encode_record
from braid.protocol.codec import Frame
from braid.protocol.messages import (
    Acknowledgement,
    DropDurable,
    LogReset,
    Refused,
    StoredPublications,
)
from tests.client.scripted_broker import connected, record

DELIVERIES = st.lists(
    st.tuples(
        st.sampled_from(["deliver", "deliver", "take", "break", "broker", "client", "unsubscribe"]),
        st.sampled_from(sorted(CLASSES)),
        st.integers(1, 6),
    ),
    max_size=50,
)


@given(DELIVERIES)
@settings(max_examples=300, deadline=None)
def test_each_subscription_gets_what_it_wants_once_and_in_order(steps: list[tuple[str, str, int]]) -> None:
    """Against a plain twin: what each subscription was sent, filtered, is what it reads, block by block."""
    world = connected()
    interests: list[Interest] = []
    for when_full in sorted(CLASSES):
        for text in ("n % 2 = 0", "n >= 5"):
            capacity = 3 if when_full == "block" else 1000
            interests.append(world.session.requests.subscribe(Filter(text), when_full, capacity))
    world.act()
    world.quiesce()
    wanted: dict[int, list[int]] = {interest.number: [] for interest in interests}
    got: dict[int, list[int]] = {interest.number: [] for interest in interests}
    gone: set[int] = set()
    sent = 0

    def deliver(when_full: str, count: int) -> None:
        nonlocal sent
        numbers = [(sent + row) % 10 for row in range(count)]
        batch = PublicationBatch.of(
            "other",
            range(sent + 1, sent + count + 1),
            [encode_record({"n": number, "serial": sent + row}, 0) for row, number in enumerate(numbers)],
        )
        members = [
            interest
            for interest in interests
            if interest.when_full == when_full and interest.number not in gone
        ]
        rows = [
            row
            for row, number in enumerate(numbers)
            if any(interest.filter and interest.filter.matches({"n": number}) for interest in members)
        ]
        sent += count
        if not rows:
            return
        world.broker.offer(batch.select(np.array(rows)).readdressed(target=CLASSES[when_full]))
        world.client_reads()
        for interest in members:
            assert interest.filter is not None
            chosen = [row for row in rows if interest.filter.matches({"n": numbers[row]})]
            wanted[interest.number] += [sent - count + row for row in chosen]

    def take(interest: Interest, count_max: int) -> None:
        taken = 0
        while interest.queue and taken < count_max:
            got[interest.number].append(int(interest.queue.popleft()["serial"]))  # type: ignore[arg-type]
            taken += 1
            if interest.crowded or (interest.line and not interest.queue):
                world.session.made_room(interest)
                world.act()

    for step, when_full, size in steps:
        if step == "deliver":
            # Only what has credit is sent at once; the twin knows nothing about waiting batches.
            if not world.broker.channel.waiting_bytes and world.broker.channel.connected:
                deliver(when_full, size)
        elif step == "take":
            take(interests[size - 1], size)
        elif step == "break":
            world.break_connection()
            for interest in interests:  # rows that wait must not keep it from dialling
                take(interest, 1000)
            world.recover()
            world.quiesce()
        elif step == "broker":
            world.broker_reads(size)
        elif step == "client":
            world.client_reads(size)
        elif size == 1 and interests[0].number not in gone:
            gone.add(interests[0].number)
            world.session.unsubscribe(interests[0])
            world.act()
            world.quiesce()
            interests[0].queue.clear()
            got[interests[0].number] = wanted[interests[0].number] = []
        assert len(interests[0].queue) <= interests[0].capacity
    for interest in interests:
        take(interest, 1_000_000)
    assert got == wanted


def test_rows_without_room_wait_and_hold_settlement_and_credit_back() -> None:
    world = connected()
    interest = world.session.requests.subscribe(Filter("TRUE"), "block", 2)
    world.act()
    world.quiesce()
    world.broker.deliver(CLASSES["block"], 1, 1, 2, 3, acknowledged=True)
    frame = world.broker.channel.sent
    world.client_reads()
    world.pass_time(20_000)
    world.broker_reads()
    assert [len(interest.queue), interest.waiting] == [2, 1]
    told = [body for body in world.broker.bodies if isinstance(body, Acknowledgement)]
    assert told[-1].received == frame
    assert told[-1].settled == frame - 1
    assert world.take(interest) == [1, 2, 3]
    world.broker_reads()
    told = [body for body in world.broker.bodies if isinstance(body, Acknowledgement)]
    assert told[-1].settled == frame


def test_a_queue_that_drops_keeps_the_newest_and_counts() -> None:
    world = connected()
    interest = world.session.requests.subscribe(Filter("TRUE"), "drop_oldest", 3)
    world.act()
    world.quiesce()
    world.broker.deliver(CLASSES["drop_oldest"], 1, 1, 2)
    world.broker.deliver(CLASSES["drop_oldest"], 3, 3, 4)
    world.broker.deliver(CLASSES["drop_oldest"], 5, 5, 6, 7, 8, 9)
    world.client_reads()
    assert interest.dropped == 6
    assert world.take(interest) == [7, 8, 9]


def test_a_slow_consumer_that_chose_so_is_ended_after_what_is_queued() -> None:
    world = connected()
    interest = world.session.requests.subscribe(Filter("TRUE"), "disconnect", 2)
    world.act()
    world.quiesce()
    world.broker.deliver(CLASSES["disconnect"], 1, 1, 2, 3)
    world.client_reads()
    assert Ended(interest) in world.seen
    assert isinstance(interest.failure, SlowConsumerError)
    assert world.take(interest) == [1, 2]
    world.quiesce()
    assert world.broker.subscriptions == {}


def test_a_broker_that_ends_slow_consumers_leaves_the_others_alone() -> None:
    world = connected()
    slow = world.session.requests.subscribe(Filter("n > 1"), "disconnect", 2)
    other = world.session.requests.subscribe(Filter("n > 2"), "block", 2)
    world.act()
    world.quiesce()
    world.broker.outgoing.append(Frame(0, Refused("slow", "too far behind")))
    world.client_reads()
    assert isinstance(slow.failure, SlowConsumerError)
    world.recover()
    world.quiesce()
    assert [each.filter for each in world.broker.subscriptions.values()] == ["n > 2"]
    assert other.open


def test_what_arrives_for_a_subscription_that_left_reaches_nobody_else() -> None:
    world = connected()
    low = world.session.requests.subscribe(Filter("n < 5"), "block", 10)
    high = world.session.requests.subscribe(Filter("n >= 5"), "block", 10)
    world.act()
    world.quiesce()
    world.broker.deliver(CLASSES["block"], 1, 1, 2, 7)
    world.session.unsubscribe(low)
    world.act()
    world.client_reads()
    assert world.take(high) == [7]


def test_the_effective_filter_decides_among_several() -> None:
    world = connected()
    world.broker.effective["n > 0"] = "n > 10"
    narrowed = world.session.requests.subscribe(Filter("n > 0"), "block", 10)
    other = world.session.requests.subscribe(Filter("n < 100"), "block", 10)
    world.act()
    world.quiesce()
    answer = world.answered(narrowed.request)
    assert answer is not None
    assert answer.text == "n > 10"
    world.broker.deliver(CLASSES["block"], 1, 5, 20)
    world.client_reads()
    assert world.take(narrowed) == [20]
    assert world.take(other) == [5, 20]


def test_a_batch_wakes_its_readers_once() -> None:
    world = connected()
    interest = world.session.requests.subscribe(Filter("TRUE"), "block", 100)
    world.act()
    world.quiesce()
    world.broker.deliver(CLASSES["block"], 1, *range(50))
    world.client_reads()
    assert world.seen.count(Arrived(interest)) == 1


# Durable subscriptions.

DURABLE_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["store", "take", "acknowledge", "break", "recover", "broker", "client"]),
        st.integers(1, 5),
    ),
    max_size=60,
)


@given(DURABLE_STEPS)
@settings(max_examples=300, deadline=None)
def test_every_row_of_a_log_is_handed_over_once_and_in_order(steps: list[tuple[str, int]]) -> None:
    world = connected()
    interest = world.session.requests.subscribe_durable("log", Filter("TRUE"), "drop_oldest", 3)
    world.act()
    got: list[int] = []
    offsets: list[int] = []

    def take(count_max: int) -> None:
        for _ in range(count_max):
            if not interest.queue:
                return
            row = interest.queue.popleft()
            assert isinstance(row, StoredPublication)
            got.append(int(row["n"]))  # type: ignore[arg-type]
            offsets.append(row.offset)
            if interest.crowded or (interest.line and not interest.queue):
                world.session.made_room(interest)
                world.act()

    for step, size in steps:
        if step == "store":
            first = len(world.broker.log)
            world.broker.log += [("p", first + row + 1, record(first + row)) for row in range(size)]
            if world.open and world.broker.channel.connected:
                world.broker.feed()
        elif step == "take":
            take(size)
        elif step == "acknowledge":
            if offsets:
                world.session.requests.acknowledge(interest, offsets[-1])
                world.act()
        elif step == "break":
            world.break_connection()
        elif step == "recover":
            world.recover()
        elif step == "broker":
            world.broker_reads(size)
        else:
            world.client_reads(size)
        assert len(interest.queue) <= 3
    for _ in range(len(world.broker.log) + 1):
        world.recover()
        world.quiesce()
        take(1000)
    assert got == list(range(len(world.broker.log)))
    assert offsets == got
    if offsets:
        world.session.requests.acknowledge(interest, offsets[-1])
        world.act()
        world.quiesce()
        assert world.broker.acknowledged_offset == offsets[-1]


def test_a_replay_ends_after_its_last_row_and_survives_a_broken_connection() -> None:
    world = connected()
    world.broker.log = [("p", number + 1, record(number)) for number in range(10)]
    interest = world.session.requests.replay("log", ReplayWish(2, 7), 100)
    world.act()
    world.broker_reads()
    world.client_reads()
    world.break_connection()
    world.recover()
    world.quiesce()
    assert world.take(interest) == [2, 3, 4, 5, 6, 7]
    assert Ended(interest) in world.seen
    assert interest.failure is None


def test_a_log_that_is_dropped_ends_its_reader() -> None:
    world = connected()
    interest = world.session.requests.subscribe_durable("log", Filter("TRUE"), "drop_oldest", 3)
    world.act()
    world.quiesce()
    world.session.requests.drop_durable("log")
    world.act()
    assert Ended(interest) in world.seen
    assert any(isinstance(frame.body, DropDurable) for frame in world.to_broker)


@pytest.mark.parametrize("when_full", sorted(CLASSES))
def test_what_a_restarted_broker_sends_again_is_handed_over_once(when_full: str) -> None:
    """A broker that was killed has forgotten what it passed on, and its neighbours send it again."""
    world = connected()
    interests = [
        world.session.requests.subscribe(Filter(text), when_full, 100) for text in ("n >= 0", "n >= 3")
    ]
    world.act()
    world.quiesce()
    world.broker.deliver(CLASSES[when_full], 1, 0, 1, 2, 3, 4)
    world.client_reads()
    world.break_connection()
    world.recover()
    world.quiesce()
    # What came last, in another batch than before; what came first, alone; and all of it once more.
    for first, numbers in ((4, (3, 4, 5, 6)), (2, (1,)), (1, (0, 1, 2, 3, 4, 5, 6, 7))):
        world.broker.deliver(CLASSES[when_full], first, *numbers)
        world.client_reads()
    assert [each["n"] for each in interests[0].queue] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert [each["n"] for each in interests[1].queue] == [3, 4, 5, 6, 7]
    assert world.session.inbox.settled(99) == 99


def test_what_is_older_than_the_memory_of_repetitions_is_handed_over() -> None:
    """A double is a nuisance, a loss is not to be: only what is known to be a repetition is dropped."""
    world = connected()
    interest = world.session.requests.subscribe(Filter("n >= 0"), "block", 100)
    world.act()
    world.quiesce()
    for first in (10**9, 1, 2):
        world.broker.deliver(CLASSES["block"], first, first)
        world.client_reads()
    assert [each["n"] for each in interest.queue] == [10**9, 1, 2]


@given(
    capacity=st.integers(1, 4),
    again=st.lists(st.integers(1, 9), max_size=8),
    breaks=st.sets(st.integers(0, 12)),
)
def test_rows_of_a_log_that_come_again_at_other_offsets_are_handed_over_once(
    capacity: int, again: list[int], breaks: set[int]
) -> None:
    """Whatever waits behind the queue when the connection breaks, and so is sent again, is not lost by it."""
    world = connected()
    interest = world.session.requests.subscribe_durable("log", Filter("n >= 0"), "drop_oldest", capacity)
    world.act()
    world.quiesce()
    numbers = [1, 2, 3, 4, 5, 6, 7, 8, 9, *again, 10]
    world.broker.log += [("other", number, record(number)) for number in numbers]
    world.broker.feed()
    found: list[int] = []
    for turn in range(60):
        world.quiesce()
        if turn in breaks:
            world.break_connection()
            world.recover()
            world.quiesce()
        if interest.queue:
            found.append(int(interest.queue.popleft()["n"]))  # type: ignore[arg-type]
            if interest.crowded or (interest.line and not interest.queue):
                world.session.made_room(interest)
                world.act()
    assert found == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]


def test_rows_say_after_how_many_resets_of_their_log_they_came() -> None:
    """Rows of the log that is gone may still wait to be read when a reset is known."""
    inbox = Inbox()
    interest = Interest(1, Filter("TRUE"), "block", 100)
    interest.durable, interest.reader = "log", 7

    def rows(epoch: str, *numbers: int) -> StoredPublications:
        return StoredPublications(
            "log", 0, [("p", number, record(number)) for number in numbers], reader=7, epoch=epoch
        )

    inbox.add(interest)
    inbox.deliver_stored(rows("A-1", 1, 2), 1)
    inbox.reset(LogReset("log", 7, 0))
    inbox.deliver_stored(rows("A-3", 3, 4), 2)
    read = [row for row in interest.queue if isinstance(row, StoredPublication)]
    assert [(row.log_resets, row.offset, row["n"]) for row in read] == [
        (0, 0, 1),
        (0, 1, 2),
        (1, 0, 3),
        (1, 1, 4),
    ]

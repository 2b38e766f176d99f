"""Does the load generator keep its promises: the bound, the counts, and an end?"""

from __future__ import annotations

import socket
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.errors import ConnectionLostError
from braid_bench.brokers.clients.connection import MarkerCounter, RawPublisher, RawSubscriber
from braid_bench.brokers.load import WrongDeliveriesError, closed_loop, paced
from braid_bench.brokers.workload import MARKER

pytestmark = pytest.mark.net


def straight_line() -> tuple[RawPublisher, RawSubscriber]:
    """A publisher whose bytes arrive at a subscriber as they are."""
    left, right = socket.socketpair()
    for each in (left, right):
        each.setblocking(False)
    return RawPublisher(left, lambda message: message.body), RawSubscriber(right)


def marked(count: int) -> list[bytes]:
    """Bodies to send."""
    return [MARKER + b"x" * 190] * count


@given(
    bodies=st.lists(st.sampled_from([MARKER, b"noise", MARKER[:4], MARKER[4:], b""]), max_size=20),
    cuts=st.lists(st.integers(0, 200), max_size=20),
)
def test_markers_are_counted_however_the_stream_is_cut(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"|".join(bodies)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    counter = MarkerCounter()
    counted = sum(counter.count(stream[start:end]) for start, end in pairwise(edges))
    assert counted == stream.count(MARKER)


class Watched:
    """A subscriber that notes how much was under way whenever it read."""

    def __init__(self, publisher, subscriber) -> None:
        self.sent = self.arrived = self.most = 0
        self._subscriber = subscriber
        send = publisher.send

        def counted_send(encoded) -> None:
            self.sent += len(encoded)
            self.most = max(self.most, self.sent - self.arrived)
            send(encoded)

        publisher.send = counted_send

    def fileno(self) -> int:
        return self._subscriber.fileno()

    def receive(self) -> int:
        count = self._subscriber.receive()
        self.arrived += count
        return count


@pytest.mark.parametrize("outstanding", [1, 10, 250])
def test_a_closed_loop_sends_everything_and_never_owes_more_than_agreed(outstanding: int) -> None:
    publisher, subscriber = straight_line()
    watched = Watched(publisher, subscriber)
    expected = np.ones((1_000, 1), dtype=np.int64)
    run = closed_loop(publisher, [watched], marked(1_000), expected, outstanding, 60)
    assert watched.arrived == 1_000
    assert watched.most == outstanding
    assert run.wall_seconds > 0
    publisher.close()
    subscriber.close()


def test_messages_larger_than_the_socket_takes_at_once_arrive_whole() -> None:
    publisher, subscriber = straight_line()
    encoded = [MARKER + b"x" * 100_000] * 50
    closed_loop(publisher, [subscriber], encoded, np.ones((50, 1), dtype=np.int64), 50, 60)
    publisher.close()
    subscriber.close()


def test_messages_that_nobody_gets_do_not_hold_the_loop_up() -> None:
    publisher, subscriber = straight_line()
    encoded = [b"", *marked(1), b"", *marked(1), b""]
    expected = np.array([[0], [1], [0], [1], [0]], dtype=np.int64)
    closed_loop(publisher, [subscriber], encoded, expected, 1, 60)
    publisher.close()
    subscriber.close()


def test_a_missing_delivery_ends_the_run() -> None:
    publisher, subscriber = straight_line()
    with pytest.raises(WrongDeliveriesError, match="1 of 2 deliveries"):
        closed_loop(publisher, [subscriber], [*marked(1), b"lost"], np.ones((2, 1), dtype=np.int64), 10, 0.05)
    publisher.close()
    subscriber.close()


def test_a_surplus_delivery_ends_the_run() -> None:
    publisher, subscriber = straight_line()
    with pytest.raises(WrongDeliveriesError):
        closed_loop(publisher, [subscriber], [marked(1)[0] * 2], np.ones((1, 1), dtype=np.int64), 10, 60)
    publisher.close()
    subscriber.close()


def test_a_delivery_to_the_wrong_connection_ends_the_run() -> None:
    publisher, subscriber = straight_line()
    other_publisher, other = straight_line()
    with pytest.raises(WrongDeliveriesError, match="per connection"):
        closed_loop(
            publisher, [subscriber, other], marked(2), np.array([[0, 1], [1, 0]], dtype=np.int64), 10, 60
        )
    for each in (publisher, subscriber, other_publisher, other):
        each.close()


def test_a_closed_connection_is_said() -> None:
    publisher, subscriber = straight_line()
    publisher.close()
    with pytest.raises(ConnectionLostError):
        subscriber.receive()
    subscriber.close()


def test_pacing_gives_one_time_for_each_message() -> None:
    publisher, subscriber = straight_line()
    times = paced(publisher, [subscriber], marked(50), np.ones((50, 1), np.int64), 5_000, 60)
    assert times.shape == (50,)
    assert (times > 0).all()
    publisher.close()
    subscriber.close()


def test_pacing_knows_messages_for_nobody_and_messages_that_come_twice() -> None:
    publisher, subscriber = straight_line()
    unused, silent = straight_line()
    encoded = [b"nothing", *marked(1), b"nothing", *(each + each for each in marked(1))]
    expected = np.array([[0, 0], [1, 0], [0, 0], [2, 0]], np.int64)
    times = paced(publisher, [subscriber, silent], encoded, expected, 5_000, 60)
    assert times.shape == (3,)
    assert (times > 0).all()
    for each in (publisher, subscriber, unused, silent):
        each.close()


def test_pacing_ends_when_a_message_is_lost() -> None:
    publisher, subscriber = straight_line()
    with pytest.raises(WrongDeliveriesError, match="0 of 1"):
        paced(publisher, [subscriber], [b"lost"], np.ones((1, 1), np.int64), 1_000, 0.05)
    publisher.close()
    subscriber.close()

"""How is a broker kept busy by one thread, without ever owing it more than was agreed?

`closed_loop` keeps at most so many messages outstanding: published, and not yet delivered to everyone who
must get them. `paced` publishes at a fixed rate and notes when each message went and came. Both check what
arrived on every connection against what had to arrive, and a difference ends the run: a fast wrong figure is
worth nothing.
"""

from __future__ import annotations

import select
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from time import perf_counter, process_time
from typing import TYPE_CHECKING

import numpy as np

from braid.errors import BraidError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from braid_bench.brokers.contender import Publisher, Subscriber

__all__ = ["LoadRun", "WrongDeliveriesError", "closed_loop", "paced", "require_silence"]

# A surplus copy follows the right one closely; it has this long to show up after the last one.
_SILENCE_SECONDS = 0.02


class WrongDeliveriesError(BraidError):
    """A broker delivered more or less than it was asked to, or not in time."""


@dataclass(frozen=True, slots=True)
class LoadRun:
    """What a closed loop took."""

    wall_seconds: float
    client_cpu_seconds: float


def closed_loop(
    publisher: Publisher,
    subscribers: Sequence[Subscriber],
    encoded: Sequence[bytes],
    expected: NDArray[np.int64],
    outstanding: int,
    seconds_max: float,
) -> LoadRun:
    """Publish everything; `expected` says how often each message must arrive at each subscriber."""
    # After this many deliveries, that many messages are done. Subscribers may run ahead of one another, so
    # the bound is exact for one subscriber and holds on average for several.
    done_after = [0, *accumulate(expected.sum(axis=1).tolist())]
    total = done_after[-1]
    arrived = dict.fromkeys((each.fileno() for each in subscribers), 0)
    by_number = {each.fileno(): each for each in subscribers}
    sent = delivered = 0
    with select.epoll() as poll:
        poll.register(publisher.fileno(), select.EPOLLIN)
        for number in by_number:
            poll.register(number, select.EPOLLIN)
        cpu_started, started = process_time(), perf_counter()
        while delivered < total or sent < len(encoded):
            done = min(bisect_right(done_after, delivered) - 1, sent)
            room = outstanding - (sent - done)
            if room > 0 and sent < len(encoded) and not publisher.pending():
                publisher.send(encoded[sent : sent + room])
                sent = min(sent + room, len(encoded))
                # Messages that match nobody are done at once, and nothing will arrive to wake the loop.
                continue
            left = started + seconds_max - perf_counter()
            if left <= 0:
                raise WrongDeliveriesError(
                    f"{delivered} of {total} deliveries after {seconds_max:.0f} seconds, {sent} messages sent"
                )
            blocked = publisher.pending()
            if blocked:
                poll.modify(publisher.fileno(), select.EPOLLIN | select.EPOLLOUT)
            for number, happened in poll.poll(left):
                if number in by_number:
                    count = by_number[number].receive()
                    arrived[number] += count
                    delivered += count
                    continue
                if happened & ~select.EPOLLOUT:
                    publisher.receive()
                if publisher.pending():
                    publisher.flush()
            if blocked:
                poll.modify(publisher.fileno(), select.EPOLLIN)
        run = LoadRun(perf_counter() - started, process_time() - cpu_started)
    require_silence(subscribers)
    if list(arrived.values()) != expected.sum(axis=0).tolist():
        raise WrongDeliveriesError(
            f"per connection {list(arrived.values())} deliveries instead of {expected.sum(axis=0).tolist()}"
        )
    return run


def paced(
    publisher: Publisher,
    subscriber: Subscriber,
    encoded: Sequence[bytes],
    rate_per_second: float,
    seconds_max: float,
) -> NDArray[np.float64]:
    """Publish at a steady rate to one subscriber; the seconds each message took from being handed to the
    socket until it was read.

    A link keeps order, so the n-th to arrive is the n-th that was sent.
    """
    sent_at: list[float] = []
    arrived_at: list[float] = []
    started = perf_counter()
    while len(arrived_at) < len(encoded):
        now = perf_counter()
        if now > started + seconds_max:
            raise WrongDeliveriesError(
                f"{len(arrived_at)} of {len(encoded)} deliveries after {seconds_max:.0f} seconds"
            )
        wait = started + seconds_max - now
        if publisher.pending():
            publisher.flush()
            wait = 1 / rate_per_second
        elif len(sent_at) < len(encoded):
            wait = started + len(sent_at) / rate_per_second - now
            if wait <= 0:
                publisher.send([encoded[len(sent_at)]])
                sent_at.append(now)
                continue
        # select, since epoll waits in whole milliseconds.
        numbers = subscriber.fileno(), publisher.fileno()
        readable, _, _ = select.select(numbers, [], [], wait)
        if subscriber.fileno() in readable:
            count = subscriber.receive()
            arrived_at.extend([perf_counter()] * count)
        if publisher.fileno() in readable:
            publisher.receive()
    require_silence([subscriber])
    if len(arrived_at) != len(encoded):
        raise WrongDeliveriesError(f"{len(arrived_at)} deliveries instead of {len(encoded)}")
    return np.array(arrived_at, dtype=np.float64) - np.array(sent_at, dtype=np.float64)


def require_silence(subscribers: Sequence[Subscriber]) -> None:
    """Nobody may get anything that was not expected."""
    readable, _, _ = select.select(subscribers, [], [], _SILENCE_SECONDS)
    surplus = sum(each.receive() for each in readable)
    if surplus:
        raise WrongDeliveriesError(f"{surplus} deliveries more than expected")

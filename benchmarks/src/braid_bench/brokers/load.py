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
from braid_bench.brokers.contender import GivesReceipts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
    """Publish everything; `expected` says how often each message must arrive at each subscriber.

    Of a publisher that waits for receipts, a message is outstanding until its receipt has come, too.
    """
    unsettled = _unsettled_of(publisher)
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
        while delivered < total or sent < len(encoded) or unsettled():
            done = min(bisect_right(done_after, delivered) - 1, sent)
            room = outstanding - max(sent - done, unsettled())
            if room > 0 and sent < len(encoded) and not publisher.pending():
                publisher.send(encoded[sent : sent + room])
                sent = min(sent + room, len(encoded))
                # Messages that match nobody are done at once, and nothing will arrive to wake the loop.
                continue
            left = started + seconds_max - perf_counter()
            if left <= 0:
                raise WrongDeliveriesError(
                    f"{delivered} of {total} deliveries after {seconds_max:.0f} seconds, {sent} messages "
                    f"sent, {unsettled()} of them without a receipt that is waited for"
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
    subscribers: Sequence[Subscriber],
    encoded: Sequence[bytes],
    expected: NDArray[np.int64],
    rate_per_second: float,
    seconds_max: float,
) -> NDArray[np.float64]:
    """Publish at a steady rate; the seconds each delivery took from being handed to the socket until it was
    read.

    `expected` says how often each message must arrive at each subscriber. A link keeps order, so the n-th to
    arrive there is the n-th that was sent there.
    """
    unsettled = _unsettled_of(publisher)
    sent_at: list[float] = []
    arrived_at: dict[int, list[float]] = {each.fileno(): [] for each in subscribers}
    by_number = {each.fileno(): each for each in subscribers}
    total = left = int(expected.sum())
    started = perf_counter()
    while left > 0 or len(sent_at) < len(encoded) or unsettled():
        now = perf_counter()
        if now > started + seconds_max:
            raise WrongDeliveriesError(
                f"{total - left} of {total} deliveries after {seconds_max:.0f} seconds"
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
        readable, _, _ = select.select([*by_number, publisher.fileno()], [], [], wait)
        for number in readable:
            if number in by_number:
                count = by_number[number].receive()
                arrived_at[number].extend([perf_counter()] * count)
                left -= count
            else:
                publisher.receive()
    require_silence(subscribers)
    went = np.array(sent_at, dtype=np.float64)
    times = [np.empty(0, np.float64)]
    for arrived, owed in zip(arrived_at.values(), expected.T, strict=True):
        if len(arrived) != owed.sum():
            raise WrongDeliveriesError(f"{len(arrived)} deliveries instead of {owed.sum()}")
        times.append(np.array(arrived, dtype=np.float64) - np.repeat(went, owed))
    return np.concatenate(times)


def _unsettled_of(publisher: Publisher) -> Callable[[], int]:
    return publisher.unsettled if isinstance(publisher, GivesReceipts) else lambda: 0


def require_silence(subscribers: Sequence[Subscriber]) -> None:
    """Nobody may get anything that was not expected."""
    readable, _, _ = select.select(subscribers, [], [], _SILENCE_SECONDS)
    surplus = sum(each.receive() for each in readable)
    if surplus:
        raise WrongDeliveriesError(f"{surplus} deliveries more than expected")

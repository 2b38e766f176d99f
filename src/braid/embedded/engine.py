"""How do threads and tasks meet at one bus without waiting for each other needlessly?

The engine drives the pure core. Two locks: `_routing` keeps the order of publications (numbering,
matching and queueing are one step), `_queues` guards mailboxes and waits. A thread that holds both
took `_routing` first. Neither is ever held while waiting for a subscriber, so a reader never waits
for someone's matching, and a slow reader stops only the publishers whose publications concern it.
"""

from __future__ import annotations

import _thread
import logging
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from braid.embedded.core import (
    Disconnected,
    Draft,
    Effect,
    Mailroom,
    Readable,
    Router,
    Settled,
    WaitGraph,
    statistics_of,
)
from braid.embedded.statistics import BusReceipt, BusStatistics, SubscriptionStatistics
from braid.embedded.waiting import TaskWaiter, ThreadWaiter, Waiter, running_loop
from braid.errors import BusClosedError, PublishDeadlockError, PublishTimeoutError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from braid.embedded.delivery import Delivery
    from braid.embedded.mailbox import Mailbox, Offer, WhenFull
    from braid.language import Filter, Publication

__all__ = ["Engine", "in_background", "remaining"]

# A publisher that has waited this long for room says so once: longer than a hiccup, and someone
# who looks at a program that seems to hang should find the reason in its log.
LONG_WAIT_S = 5.0

logger = logging.getLogger("braid.embedded")

WaiterKind = TypeVar("WaiterKind", ThreadWaiter, TaskWaiter)


@dataclass(slots=True)
class _Call:
    """A publish call on its way: its first number, its offer, and who waits for it, if anyone must."""

    sequence: int
    offer: Offer
    waiter: Waiter | None = None
    source: int | None = None


class Engine:
    """The state behind a `Bus` and its subscriptions; it keeps neither of them alive."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._routing = threading.Lock()
        self._queues = threading.Lock()
        self._router = Router(name)
        self._mailroom = Mailroom()
        self._waits = WaitGraph()
        self._readers: dict[int, list[Waiter]] = {}
        self._reader_loops: dict[int, asyncio.AbstractEventLoop | None] = {}
        self._publishers: dict[Offer, Waiter] = {}
        self._deliveries: dict[int, Delivery] = {}

    @property
    def closed(self) -> bool:
        """True once nothing can be published any more."""
        return self._router.closed

    @property
    def in_use(self) -> bool:
        """True while there is a subscription."""
        return len(self._mailroom) > 0

    @property
    def delivering(self) -> bool:
        """True while a thread or task waits to call someone's callback."""
        return any(not delivery.finished for delivery in list(self._deliveries.values()))

    @property
    def owing(self) -> bool:
        """True while a callback may still be called, except those that closing no longer waits for."""
        deliveries = list(self._deliveries.values())
        return any(not (delivery.finished or delivery.given_up) for delivery in deliveries)

    def statistics(self) -> BusStatistics:
        """A snapshot of all counters."""
        with self._queues:
            return self._mailroom.statistics()

    def statistics_of(self, mailbox: Mailbox) -> SubscriptionStatistics:
        """A snapshot of one subscription's counters."""
        with self._queues:
            return statistics_of(mailbox)

    # ---- subscriptions

    def subscribe(self, name: str | None, condition: Filter, capacity: int, when_full: WhenFull) -> Mailbox:
        """Install a subscription; whatever is published after this returns reaches its mailbox."""
        with self._routing, self._queues:
            self._router.require_open()
            mailbox = self._mailroom.open(name, condition, capacity, when_full)
            self._router.add(mailbox.key, condition)
            for key in [key for key, delivery in self._deliveries.items() if delivery.finished]:
                del self._deliveries[key]
        return mailbox

    def register(self, delivery: Delivery) -> None:
        """Remember who calls a callback, to wait for it at the end."""
        with self._queues:
            self._deliveries[delivery.mailbox.key] = delivery

    def unsubscribe(self, mailbox: Mailbox) -> None:
        """End a subscription and throw away what waits for it; harmless when done before."""
        with self._routing, self._queues:
            waiters = self._remove(mailbox)
        wake(waiters)

    def abandon(self, mailbox: Mailbox) -> None:
        """Unsubscribe for the garbage collector, which must not wait for a lock.

        It may strike in a thread that holds one, so if they are not free another thread waits for them.
        """
        if self.closed or mailbox.ended:
            return
        if not self._routing.acquire(blocking=False):
            in_background(lambda: self.unsubscribe(mailbox))
            return
        try:
            if not self._queues.acquire(blocking=False):
                in_background(lambda: self.unsubscribe(mailbox))
                return
            try:
                waiters = self._remove(mailbox)
            finally:
                self._queues.release()
        finally:
            self._routing.release()
        wake(waiters)

    def count_error(self, mailbox: Mailbox) -> None:
        """A callback raised an exception."""
        with self._queues:
            self._mailroom.count_error(mailbox)

    # ---- publishing

    def publish(self, publisher: str, drafts: list[Draft], timeout_s: float | None) -> BusReceipt:
        """Hand a batch to its subscribers; wait as a thread for those that have no room."""
        call = self._offer(publisher, drafts, timeout_s, ThreadWaiter)
        if isinstance(call.waiter, ThreadWaiter):
            try:
                first_s, rest_s = split_wait(timeout_s)
                if not call.waiter.wait(first_s) and rest_s != 0:
                    self._warn_of_long_wait(call)
                    call.waiter.wait(rest_s)
            finally:
                undelivered, full = self._take_back(call)
            require_delivered(call.offer, timeout_s, undelivered, full)
        return BusReceipt(publisher, call.sequence, len(drafts), call.offer.delivered)

    async def publish_async(self, publisher: str, drafts: list[Draft], timeout_s: float | None) -> BusReceipt:
        """Hand a batch to its subscribers; wait as a task for those that have no room."""
        call = self._offer(publisher, drafts, timeout_s, TaskWaiter)
        if isinstance(call.waiter, TaskWaiter):
            try:
                first_s, rest_s = split_wait(timeout_s)
                if not await call.waiter.wait(first_s) and rest_s != 0:
                    self._warn_of_long_wait(call)
                    await call.waiter.wait(rest_s)
            finally:
                undelivered, full = self._take_back(call)
            require_delivered(call.offer, timeout_s, undelivered, full)
        return BusReceipt(publisher, call.sequence, len(drafts), call.offer.delivered)

    def _offer(
        self,
        publisher: str,
        drafts: list[Draft],
        timeout_s: float | None,
        waiter_kind: type[ThreadWaiter] | type[TaskWaiter],
    ) -> _Call:
        reason = None
        with self._routing:
            sequence, routed = self._router.route(publisher, drafts, time.time_ns() // 1000)
            with self._queues:
                offer, effects = self._mailroom.offer(len(drafts), routed)
                call = _Call(sequence, offer)
                if offer.waiting:
                    call.source = self._current_callback()
                    if timeout_s is None:
                        reason = self._endless_wait(call, waiter_kind)
                    if reason is not None:
                        undelivered, full = self._mailroom.withdraw(offer)
                    else:
                        call.waiter = self._publishers[offer] = waiter_kind()
                        if call.source is not None and timeout_s is None:
                            self._waits.begin(call.source, offer.waiting)
                waiters = self._perform(effects)
        wake(waiters)
        if reason is not None:
            raise PublishDeadlockError(reason, offer.delivered, undelivered, full)
        return call

    def _endless_wait(self, call: _Call, waiter_kind: type[ThreadWaiter] | type[TaskWaiter]) -> str | None:
        """Why waiting for room would certainly never end, if so."""
        if call.source is not None and self._waits.closes_ring(call.source, call.offer.waiting):
            return "it is emptied by the callback that publishes here, or by one that waits for it"
        loops = [loop for key in call.offer.waiting if (loop := self._loop_of(key)) is not None]
        if any(loop.is_closed() for loop in loops):
            return "its reader ran on an event loop that is closed"
        if waiter_kind is TaskWaiter:
            return None
        if running_loop() in loops:
            return (
                "its reader runs on the event loop that this call would block; await publish() of the bus "
                "that `async with braid.open()` gives, or of its `for_tasks`"
            )
        if threading.active_count() == 1:
            return (
                "there is no other thread that could read it; read between publishing, give the subscription "
                "a callback or a larger queue_size, or publish with timeout_s"
            )
        return None

    def _warn_of_long_wait(self, call: _Call) -> None:
        with self._queues:
            full = self._mailroom.full(call.offer)
        if full:
            names = ", ".join(map(repr, full))
            logger.warning("publishing has waited %g s for room in the full queue of %s", LONG_WAIT_S, names)

    def _take_back(self, call: _Call) -> tuple[int, tuple[str, ...]]:
        """End the wait of a publisher; how much had to be taken back, and whose queues were full."""
        with self._queues:
            self._publishers.pop(call.offer, None)
            if call.source is not None:
                self._waits.end(call.source)
            return self._mailroom.withdraw(call.offer)

    # ---- reading

    def get(self, mailbox: Mailbox, timeout_s: float | None) -> Publication | None:
        """The next publication, read as a thread; None at the end. Raises TimeoutError."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            publication, waiter = self._take(mailbox, ThreadWaiter)
            if publication is not None or waiter is None:
                return publication
            remaining_s = None if deadline_s is None else deadline_s - time.monotonic()
            try:
                woken = waiter.wait(remaining_s)
            finally:
                self._leave(mailbox, waiter)
            if not woken:
                raise TimeoutError(f"nothing arrived at subscription {mailbox.name!r} in {timeout_s:g} s")

    async def get_async(self, mailbox: Mailbox, timeout_s: float | None) -> Publication | None:
        """The next publication, read as a task; None at the end. Raises TimeoutError."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            publication, waiter = self._take(mailbox, TaskWaiter)
            if publication is not None or waiter is None:
                return publication
            remaining_s = None if deadline_s is None else deadline_s - time.monotonic()
            try:
                woken = await waiter.wait(remaining_s)
            finally:
                self._leave(mailbox, waiter)
            if not woken:
                raise TimeoutError(f"nothing arrived at subscription {mailbox.name!r} in {timeout_s:g} s")

    def take(self, mailbox: Mailbox) -> Publication | None:
        """The next publication if there is one at this moment."""
        with self._queues:
            publication, effects = self._mailroom.take(mailbox)
            waiters = self._perform(effects)
        wake(waiters)
        return publication

    def _take(
        self, mailbox: Mailbox, waiter_kind: type[WaiterKind]
    ) -> tuple[Publication | None, WaiterKind | None]:
        waiter = None
        with self._queues:
            publication, effects = self._mailroom.take(mailbox)
            if publication is None and not mailbox.ended:
                waiter = waiter_kind()
                self._readers.setdefault(mailbox.key, []).append(waiter)
                self._reader_loops[mailbox.key] = waiter.loop
            waiters = self._perform(effects)
        wake(waiters)
        return publication, waiter

    def _leave(self, mailbox: Mailbox, waiter: Waiter) -> None:
        """A reader that was not woken leaves, so that polling does not pile up waiters."""
        with self._queues:
            readers = self._readers.get(mailbox.key, [])
            if waiter in readers:
                readers.remove(waiter)

    # ---- the end

    def close(self, drain: bool, timeout_s: float | None) -> None:
        """Stop publishing, let callbacks finish what is queued, and wait for them as a thread."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        self.stop(drain)
        for delivery in list(self._deliveries.values()):
            self.wait_for(delivery, remaining(deadline_s))

    async def close_async(self, drain: bool, timeout_s: float | None) -> None:
        """Stop publishing, let callbacks finish what is queued, and wait for them as a task."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        self.stop(drain)
        for delivery in list(self._deliveries.values()):
            await self.wait_for_async(delivery, remaining(deadline_s))

    def wait_for(self, delivery: Delivery, timeout_s: float | None) -> None:
        """Wait as a thread until a subscription's last callback has returned, unless that cannot be."""
        if delivery.loop is not None and delivery.loop is running_loop():
            return  # it goes on when this thread returns to its event loop
        waits, source = self._begin_waiting_for(delivery)
        if waits:
            try:
                finished = delivery.wait(timeout_s)
            finally:
                self._end_waiting_for(source)
            if not finished:
                self._give_up(delivery)

    async def wait_for_async(self, delivery: Delivery, timeout_s: float | None) -> None:
        """Wait as a task until a subscription's last callback has returned, unless that cannot be."""
        waits, source = self._begin_waiting_for(delivery)
        if waits:
            try:
                finished = await delivery.wait_async(timeout_s)
            finally:
                self._end_waiting_for(source)
            if not finished:
                self._give_up(delivery)

    def stop(self, drain: bool) -> None:
        """Stop publishing and let every reader and callback come to its end; waits for nobody."""
        with self._routing:
            self._router.closed = True
            with self._queues:
                waiters = self._perform(self._mailroom.close(drain=drain))
        wake(waiters)

    def _begin_waiting_for(self, delivery: Delivery) -> tuple[bool, int | None]:
        """Whether waiting can succeed; a callback must not wait for itself, not even in a ring."""
        with self._queues:
            source = self._current_callback()
            if source is not None:
                targets = (delivery.mailbox.key,)
                if self._waits.closes_ring(source, targets):
                    return False, None
                self._waits.begin(source, targets)
            return True, source

    def _end_waiting_for(self, source: int | None) -> None:
        if source is not None:
            with self._queues:
                self._waits.end(source)

    def _give_up(self, delivery: Delivery) -> None:
        delivery.given_up = True
        with self._queues:
            waiting = len(delivery.mailbox.queue)
            waiters = self._perform(self._mailroom.stop(delivery.mailbox))
        wake(waiters)
        logger.warning(
            "closing no longer waits for a callback of subscription %r that is still running; "
            "%d queued publications were thrown away",
            delivery.mailbox.name,
            waiting,
        )

    # ---- helpers; the caller holds `_queues`

    def _remove(self, mailbox: Mailbox) -> list[Waiter]:
        """End a subscription; the caller holds both locks."""
        self._router.remove(mailbox.key)
        self._reader_loops.pop(mailbox.key, None)
        return self._perform(self._mailroom.stop(mailbox))

    def _perform(self, effects: Iterable[Effect]) -> list[Waiter]:
        """Carry out what the core decided; returns whom to wake once the locks are free."""
        waiters: list[Waiter] = []
        for effect in effects:
            if isinstance(effect, Readable):
                waiters += self._readers.pop(effect.key, ())
            elif isinstance(effect, Settled):
                publisher = self._publishers.pop(effect.offer, None)
                if publisher is not None:
                    waiters.append(publisher)
            elif isinstance(effect, Disconnected):
                self._router.remove(effect.key)
        return waiters

    def _current_callback(self) -> int | None:
        """The subscription whose callback is running in this thread or task."""
        for key, delivery in self._deliveries.items():
            if delivery.is_current():
                return key
        return None

    def _loop_of(self, key: int) -> asyncio.AbstractEventLoop | None:
        """The event loop that the reader or callback of a subscription runs on, as far as known."""
        delivery = self._deliveries.get(key)
        return self._reader_loops.get(key) if delivery is None else delivery.loop


def require_delivered(offer: Offer, timeout_s: float | None, undelivered: int, full: tuple[str, ...]) -> None:
    """Raise what a publisher should know after it has waited."""
    if offer.refused:
        raise BusClosedError(
            f"the bus was closed while publishing waited for room; {offer.delivered} deliveries were made"
        )
    if undelivered:
        raise PublishTimeoutError(timeout_s or 0.0, offer.delivered, undelivered, full)


def split_wait(timeout_s: float | None) -> tuple[float, float | None]:
    """How long to wait before saying so, and how long after."""
    if timeout_s is None:
        return LONG_WAIT_S, None
    first_s = min(timeout_s, LONG_WAIT_S)
    return first_s, timeout_s - first_s


def remaining(deadline_s: float | None) -> float | None:
    """Seconds left until a deadline, never negative; None when there is none."""
    return None if deadline_s is None else max(0.0, deadline_s - time.monotonic())


def wake(waiters: Iterable[Waiter]) -> None:
    """Let them go on."""
    for waiter in waiters:
        waiter.wake()


def in_background(function: Callable[[], object]) -> None:
    """Run a function that takes locks, on behalf of the garbage collector, in a thread of its own.

    The collector may strike anywhere, so this waits for nothing: `threading.Thread.start` would wait
    until the thread runs, which at the end of the interpreter is never.
    """
    if not sys.is_finalizing():
        with suppress(RuntimeError):  # no more threads to be had: everything is about to end
            _thread.start_new_thread(function, ())

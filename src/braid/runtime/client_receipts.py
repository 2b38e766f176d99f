"""Receipts: did what was published arrive?

A receipt is two words until somebody awaits it. Publications arrive in the order in which they were made, so
a number says for all of them at once which have; only the few that are refused have to be remembered.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right, insort
from collections import OrderedDict
from copy import copy
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from braid.embedded.arguments import checked_timeout
from braid.errors import PublicationError, RequestRefusedError
from braid.protocol.publisher_names import publisher_and_epoch

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from braid.errors import BraidError

__all__ = ["Receipt", "ReceiptBook", "ReceiptView"]

# Refused publications that are remembered for receipts nobody has looked at yet. Each refusal is also logged.
REFUSALS_MAX: Final = 10_000
# The same for runs of discarded ones.
DISCARDED_RUNS_MAX: Final = 10_000
# Of the publications of a batch, what one of them says about all.
_STATUS_ORDER: Final = ("waiting", "unknown", "refused", "discarded", "delivered")


class ReceiptView:
    """What all receipts say; how to wait for them differs."""

    __slots__ = ("_acknowledged", "_book", "published", "sequence")

    def __init__(self, book: ReceiptBook, sequence: int, acknowledged: bool, published: int = 1) -> None:
        self._book = book
        self.sequence = sequence
        """The publication's number, rising by one per publisher; of a batch, its first."""
        self.published = published
        """How many publications it is for; a batch's numbers run from `sequence` without a gap."""
        self._acknowledged = acknowledged

    @property
    def publisher(self) -> str:
        """Together with `epoch` and `sequence` the id of the publication."""
        return self._book.publisher

    @property
    def epoch(self) -> str:
        """Of the publisher: every run of a program has its own unless it chooses one."""
        return self._book.epoch

    @property
    def done(self) -> bool:
        """True once waiting for it returns or raises at once."""
        return all(self._book.is_done(sequence, self._acknowledged) for sequence in self._sequences)

    @property
    def discarded(self) -> bool:
        """Whether the broker took the publication for a repetition, so that it went nowhere."""
        return self.status == "discarded"

    @property
    def status(self) -> str:
        """`waiting`, `delivered`, `discarded`, `refused`, or `unknown` where it cannot be told any more.

        Of a batch, the first of `waiting`, `unknown`, `refused` and `discarded` that is true of one of them.
        """
        book = self._book
        found = {book.status(sequence, self._acknowledged) for sequence in self._sequences}
        return min(found, key=_STATUS_ORDER.index, default="delivered")

    @property
    def _sequences(self) -> range:
        return range(self.sequence, self.sequence + self.published)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.sequence} of {self.publisher!r}: {self.status}>"


class Receipt(ReceiptView):
    """The promise that a publication arrives: `await receipt` returns when it has.

    With fast delivery that means that the broker has it, with acknowledged delivery that everybody has it
    whose subscription it satisfies. Awaiting it raises `AccessDeniedError` or `RequestRefusedError` if the
    broker did not take it, and `ConnectionLostError` if that is not known. If the broker took it for a
    repetition, `discarded` is True then: a publication with its number, or later ones, came from another
    client in this publisher's name and epoch. The receipt of a batch speaks of all of its publications.
    """

    __slots__ = ()

    async def wait(self, timeout_s: float | None = None) -> None:
        """As `await receipt`, for at most `timeout_s` seconds (None: as long as it takes).

        Raises:
            TimeoutError: it is not known yet.
        """
        async with asyncio.timeout(checked_timeout(timeout_s)):
            await self

    def __await__(self) -> Generator[asyncio.Future[None], None, None]:
        return self._book.wait_for(self._sequences, self._acknowledged).__await__()


class ReceiptBook:
    """How far the publications of one client have come, and who waits for which."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        publisher: Callable[[], str],
        first_sequence: int,
        hurry: Callable[[], None],
    ) -> None:
        """`publisher` gives the whole name, as the broker knows it; `hurry` is called when somebody waits."""
        self._publisher = publisher
        self.refusals: tuple[int, BraidError | None] = (0, None)
        """How many publications were refused, and why the last of them was."""
        self.discards = 0
        """How many were taken for repetitions."""
        self.overtaken = (0, 0)
        """How many of those are only too old to be told from repetitions, and the number that is too high."""
        self._discarded: list[tuple[int, int]] = []
        """Runs of them, first and last, in ascending order."""
        self._forgotten = 0
        """Of those up to this one it is not known any more whether they were."""
        self._loop = loop
        self._hurry = hurry
        self._received = first_sequence - 1
        self._settled = 0
        self._apart: set[int] = set()
        """What is settled beyond that, although something before it is not."""
        self._refused: OrderedDict[int, BraidError] = OrderedDict()
        self._failure: BraidError | None = None
        # (sequence number, a number to tell equals apart, who waits), the earliest first.
        self._receiving: list[tuple[int, int, asyncio.Future[None]]] = []
        self._settling: list[tuple[int, int, asyncio.Future[None]]] = []
        self._serial = 0

    @property
    def publisher(self) -> str:
        """The name in the ids of the publications."""
        return publisher_and_epoch(self._publisher())[0]

    @property
    def epoch(self) -> str:
        """The epoch in them."""
        return publisher_and_epoch(self._publisher())[1]

    def status(self, sequence: int, acknowledged: bool) -> str:
        """What became of a publication, as far as it is known."""
        if sequence in self._refused:
            return "refused"
        if not self._is_known(sequence, acknowledged):
            return "waiting" if self._failure is None else "unknown"
        if self._is_discarded(sequence):
            return "discarded"
        return "unknown" if sequence <= self._forgotten else "delivered"

    def is_done(self, sequence: int, acknowledged: bool) -> bool:
        """Whether it is known what became of a publication."""
        return self._failure is not None or self._is_known(sequence, acknowledged)

    def _is_known(self, sequence: int, acknowledged: bool) -> bool:
        """Whether the broker has told what became of it."""
        through = self._settled if acknowledged else self._received
        apart = acknowledged and sequence in self._apart
        return sequence <= through or apart or sequence in self._refused

    async def wait_for(self, sequences: range, acknowledged: bool) -> None:
        """Return when all of these have arrived (or are settled), or raise what became of the first."""
        error: BraidError | None = None
        for sequence in reversed(sequences):  # most often the others are known when the last is
            try:
                await self.wait(sequence, acknowledged)
            except (PublicationError, RequestRefusedError) as refusal:
                error = refusal
        if error is not None:
            raise error

    async def wait(self, sequence: int, acknowledged: bool) -> None:
        """Return when a publication has arrived (or is settled), or raise what became of it."""
        if not self._is_known(sequence, acknowledged):
            if self._failure is not None:
                raise copy(self._failure)  # each raiser adds its own traceback
            future: asyncio.Future[None] = self._loop.create_future()
            self._serial += 1
            heappush(self._settling if acknowledged else self._receiving, (sequence, self._serial, future))
            self._hurry()
            await future
        error = self._refused.get(sequence)
        if error is not None:
            raise copy(error)

    async def wait_through(self, sequence: int, acknowledged_sequence: int) -> None:
        """Return when everything up to here has arrived, and is settled as far as that was asked for."""
        for wanted, acknowledged in ((sequence, False), (acknowledged_sequence, True)):
            # (That one alone may be settled before others are.)
            while wanted > (self._settled if acknowledged else self._received):
                # A refusal concerns whoever holds that receipt; here it only means that this one is done.
                future: asyncio.Future[None] = self._loop.create_future()
                if self._failure is not None:
                    raise copy(self._failure)
                self._serial += 1
                heappush(self._settling if acknowledged else self._receiving, (wanted, self._serial, future))
                self._hurry()
                await future

    def progressed(self, received: int, settled: int) -> None:
        """The session has heard how far the broker has come."""
        self._received, self._settled = received, settled
        if self._apart:
            self._apart = {sequence for sequence in self._apart if sequence > settled}
        for waiting, through in ((self._receiving, received), (self._settling, settled)):
            while waiting and waiting[0][0] <= through:
                future = heappop(waiting)[2]
                if not future.done():
                    future.set_result(None)

    def settled_apart(self, sequences: Iterable[int]) -> None:
        """These are settled, although something before them is not."""
        self._apart.update(sequences)
        for sequence, _, future in self._settling:
            if sequence in self._apart and not future.done():
                future.set_result(None)

    def refused(self, sequences: Iterable[int], error: BraidError) -> None:
        """The broker did not take these."""
        for sequence in sequences:
            self.refusals = (self.refusals[0] + 1, error)
            self._refused[sequence] = error
            if len(self._refused) > REFUSALS_MAX:
                self._refused.popitem(last=False)

    def discarded(self, sequences: Iterable[int], *, overtaken_by: int = 0) -> None:
        """The broker took these for repetitions, perhaps only because of a number so much higher."""
        runs = self._discarded
        for sequence in sequences:
            if self._is_discarded(sequence):
                continue  # both its broker and one further on may say so
            self.discards += 1
            if overtaken_by:
                self.overtaken = (self.overtaken[0] + 1, max(self.overtaken[1], overtaken_by))
            if runs and sequence == runs[-1][1] + 1:
                runs[-1] = (runs[-1][0], sequence)
            else:
                insort(runs, (sequence, sequence))
            if len(runs) > DISCARDED_RUNS_MAX:
                self._forgotten = runs.pop(0)[1]

    def _is_discarded(self, sequence: int) -> bool:
        place = bisect_right(self._discarded, sequence, key=lambda run: run[0])
        return place > 0 and sequence <= self._discarded[place - 1][1]

    def fail(self, error: BraidError) -> None:
        """Nothing more will be known."""
        self._failure = error
        for waiting in (self._receiving, self._settling):
            for _, _, future in waiting:
                if not future.done():
                    future.set_exception(copy(error))
                    future.exception()  # who waits raises it; nobody else needs to hear of it
            waiting.clear()

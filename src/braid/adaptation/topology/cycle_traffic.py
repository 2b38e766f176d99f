"""What does an exchange of two links really save?

Eq. 8 of the self-organising paper adds up pairs of brokers, so it counts a publication that several of them
want several times. *Exact cycle consensus* asks instead of each broker on the cycle which publications
concern it or anything that hangs on it beside the cycle. A publication that concerns the places S of the
cycle crosses the smallest stretch of the opened cycle that holds S, and Eq. 1 prices exactly that. What
happens off the cycle is the same for every opening, so the difference between two of them is the true change
of Eq. 2.

With samples instead of whole sets every broker keeps the publications with the smallest hashes (*bottom-k*),
so that all keep the same ones: those below the smallest of their thresholds are known completely, and stand
for all others in proportion.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from braid.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.adaptation.topology.interest import Hashes

__all__ = ["EVERYTHING", "PLACES_MAX", "CycleTraffic", "Opening", "Sample", "TrafficWindow"]

Short: TypeAlias = NDArray[np.uint32]

EVERYTHING = 1 << 32
"""The threshold of a sample that leaves nothing out."""

# Places of a cycle are bits of a mask; a path this long is beyond any neighbourhood that is worth asking.
PLACES_MAX = 16

_HALF = np.uint64(32)


@dataclass(frozen=True, slots=True)
class Sample:
    """The publications of a set whose hashes are below a threshold."""

    hashes: Short
    """The upper halves of their hashes: 32 bits confuse one pair in millions of samples of this size."""
    threshold: int = EVERYTHING

    def encoded(self) -> bytes:
        """Its bytes."""
        # One below the threshold, so that "everything" fits into 32 bits.
        return (self.threshold - 1).to_bytes(4, "little") + self.hashes.astype("<u4").tobytes()

    @classmethod
    def decoded(cls, data: bytes, entries_max: int) -> Sample:
        """The sample of these bytes.

        Raises:
            RemoteProtocolError: they are none, or it is too large.
        """
        if len(data) < 4 or len(data) % 4 or len(data) // 4 - 1 > entries_max:
            raise RemoteProtocolError(f"a sample of traffic in {len(data):,} bytes")
        threshold = int.from_bytes(data[:4], "little") + 1
        return cls(np.frombuffer(data, "<u4", offset=4).astype(np.uint32), threshold)


@dataclass(frozen=True, slots=True)
class _Arrays:
    """All publications of a window with what each concerns, ready to be chosen from."""

    hashes: Short
    numbers: NDArray[np.intp]
    """Which set of links each concerns."""
    sets: NDArray[np.bool_]
    """(sets, links)."""
    sizes: NDArray[np.int64]
    """Links of each set."""
    columns: dict[str, int]

    @classmethod
    def of(cls, chunks: Sequence[tuple[int, Short, frozenset[str]]]) -> _Arrays:
        known: dict[frozenset[str], int] = {}
        which = [known.setdefault(concerns, len(known)) for _, _, concerns in chunks]
        columns = {name: place for place, name in enumerate(sorted(frozenset().union(*known)))}
        sets = np.zeros((len(known), len(columns)), np.bool_)
        for concerns, row in known.items():
            sets[row, [columns[name] for name in concerns]] = True
        hashes = [short for _, short, _ in chunks]
        return cls(
            np.concatenate(hashes) if hashes else np.zeros(0, np.uint32),
            np.repeat(np.array(which, np.intp), [len(short) for short in hashes]),
            sets,
            sets.sum(axis=1),
            columns,
        )

    def beside(self, links: frozenset[str]) -> Short:
        """Those that concern anything but these links."""
        left = self.sizes
        for name in links:
            column = self.columns.get(name)
            if column is not None:
                left = left - self.sets[:, column]
        return self.hashes[(left > 0)[self.numbers]]


class TrafficWindow:
    """A sample of what passed one broker lately, and which of its links each publication concerns.

    Args:
        entries: publications that are kept, at most.
        window_us: how long they are kept.
    """

    __slots__ = ("_arrays", "_chunks", "_entries", "_held", "_thresholds", "_window_us", "threshold")

    def __init__(self, entries: int, window_us: int) -> None:
        self._entries = entries
        self._window_us = window_us
        self.threshold = EVERYTHING
        """Hashes below this are kept at the moment."""
        self._chunks: list[tuple[int, Short, frozenset[str]]] = []
        self._held = 0
        # Raising the threshold tells nothing of what was left out before, so the old one counts for a while.
        self._thresholds: list[tuple[int, int]] = []
        self._arrays: _Arrays | None = None

    def sampled(self, publications: Hashes) -> Hashes:
        """Those of some publications that would be kept at the moment."""
        if self.threshold == EVERYTHING:
            return publications
        return publications[(publications >> _HALF) < np.uint64(self.threshold)]

    def passed(self, publications: Hashes, concerns: frozenset[str], now_us: int) -> None:
        """These publications passed: links they came by or went to, and this broker itself if it cares.

        The broker itself goes by an empty name.
        """
        short = (publications >> _HALF).astype(np.uint32)
        if self.threshold < EVERYTHING:
            short = short[short < self.threshold]
        if not len(short):
            return
        self._chunks.append((now_us, short, concerns))
        self._held += len(short)
        self._arrays = None
        if self._held > 2 * self._entries:
            self._expire(now_us)
            if self._held > 2 * self._entries:
                self._shrink(now_us)

    def _expire(self, now_us: int) -> None:
        oldest_us = now_us - self._window_us
        if self._chunks and self._chunks[0][0] <= oldest_us:
            self._chunks = [chunk for chunk in self._chunks if chunk[0] > oldest_us]
            self._held = sum(len(chunk[1]) for chunk in self._chunks)
            self._arrays = None
        self._thresholds = [each for each in self._thresholds if each[0] > oldest_us]
        if self.threshold < EVERYTHING and self._held < self._entries // 2:
            self._thresholds.append((now_us, self.threshold))
            self.threshold = min(EVERYTHING, 2 * self.threshold)

    def _shrink(self, now_us: int) -> None:
        """Keep the smallest hashes only. One that passed in several turns is one publication."""
        hashes = np.unique(np.concatenate([chunk[1] for chunk in self._chunks]))
        place = min(self._entries, len(hashes) // 2)
        self.threshold = max(1, int(hashes[place]))
        kept = [(at_us, short[short < self.threshold], links) for at_us, short, links in self._chunks]
        self._chunks = [chunk for chunk in kept if len(chunk[1])]
        self._held = sum(len(chunk[1]) for chunk in self._chunks)
        self._arrays = None

    def beside(self, links: frozenset[str], now_us: int) -> Sample:
        """What concerns anything but what lies behind these links."""
        self._expire(now_us)
        if self._arrays is None:
            self._arrays = _Arrays.of(self._chunks)
        # What waited for a link passed in more turns than one.
        found = np.unique(self._arrays.beside(links))
        threshold = min([self.threshold, *(each for _, each in self._thresholds)])
        if threshold < EVERYTHING:
            found = found[found < threshold]
        if len(found) > self._entries:
            # Between two shrinkings there may be twice as many.
            threshold = int(np.partition(found, self._entries)[self._entries])
            found = found[found < threshold]
        return Sample(found, threshold)


@dataclass(frozen=True, slots=True)
class Opening:
    """One way to open a cycle: a link to take away, and what that saves within the window."""

    removed: int
    saving: float
    """Cost of the present tree minus cost of that one."""
    deviation: float
    """The standard deviation of that as an estimate of what such a window saves: publications come by chance,
    and a sample has only some of them."""

    def at_least(self, z: float) -> float:
        """The lower confidence bound, so many standard deviations below."""
        return self.saving - z * self.deviation


@dataclass(frozen=True, slots=True)
class CycleTraffic:
    """How many publications concern which places of a cycle."""

    places: int
    masks: NDArray[np.int64]
    """Sets of places, as bits."""
    counts: NDArray[np.int64]
    """Publications of each set, in the sample."""
    rate: float
    """The share of all publications that the sample has."""

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> CycleTraffic:
        """From what each broker on the cycle says, in the order of their places."""
        threshold = min(sample.threshold for sample in samples)
        parts = [
            sample.hashes if sample.threshold == threshold else sample.hashes[sample.hashes < threshold]
            for sample in samples
        ]
        everything = np.concatenate(parts)
        bits = np.repeat(1 << np.arange(len(parts), dtype=np.int64), [len(part) for part in parts])
        if not len(everything):
            empty = np.zeros(0, np.int64)
            return cls(len(samples), empty, empty, threshold / EVERYTHING)
        order = np.argsort(everything, kind="stable")
        everything, bits = everything[order], bits[order]
        starts = np.flatnonzero(np.concatenate(([True], everything[1:] != everything[:-1])))
        masks, counts = np.unique(np.bitwise_or.reduceat(bits, starts), return_counts=True)
        return cls(len(samples), masks, counts, threshold / EVERYTHING)

    def costs(self, processing: Sequence[float], links: Sequence[float]) -> NDArray[np.float64]:
        """What one publication of each set costs on the cycle, for each link that may go: (links, masks)."""
        first, last = _ends(self.places, self.masks.tobytes())
        order = (np.arange(self.places)[:, np.newaxis] + 1 + np.arange(self.places)) % self.places
        brokers = np.zeros((self.places, self.places + 1))
        np.cumsum(np.asarray(processing)[order], axis=1, out=brokers[:, 1:])
        ways = np.zeros((self.places, self.places))
        np.cumsum(np.asarray(links)[order[:, :-1]], axis=1, out=ways[:, 1:])
        rows = np.arange(self.places)[:, np.newaxis]
        return np.asarray(
            brokers[rows, last + 1] - brokers[rows, first] + ways[rows, last] - ways[rows, first]
        )

    def openings(self, processing: Sequence[float], links: Sequence[float]) -> list[Opening]:
        """What each link of the present tree would save if it went and the last link of the cycle came.

        Publications come by chance: what so many of them saved is known up to the root of the sum of their
        squares, and a sample of them up to that divided by its rate.
        """
        costs = self.costs(processing, links)
        savings = costs[-1] - costs[:-1]
        totals = savings @ self.counts / self.rate
        squares = np.square(savings) @ self.counts
        return [
            Opening(removed, float(total), math.sqrt(square) / self.rate)
            for removed, (total, square) in enumerate(zip(totals, squares, strict=True))
        ]


@lru_cache(maxsize=4_096)
def _ends(places: int, packed: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the first and the last place of each set lie once a link is gone: (links, masks) each."""
    masks = np.frombuffer(packed, np.int64)
    order = (np.arange(places)[:, np.newaxis] + 1 + np.arange(places)) % places
    held = (masks[np.newaxis, np.newaxis, :] >> order[:, :, np.newaxis]) & 1
    return held.argmax(axis=1), places - 1 - held[:, ::-1, :].argmax(axis=1)

"""Which publications do two brokers have in common?

The self-organising paper, section 4: each broker keeps the ids of the publications that it delivered to its
own clients or took from them, and tells others a Bloom filter of the latest. An id is a hash of 64 bits: the
publisher's name is hashed once, and its sequence numbers are mixed in for a whole batch at a time. The cache
is a ring of such hashes.

The filter travels as its bits or, where that is shorter, as the positions of the bits that are set. Its size
is the paper's or, if that is chosen, follows from what is in it.
"""

from __future__ import annotations

import hashlib
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from braid.errors import ConfigurationError, RemoteProtocolError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = [
    "BITS",
    "CACHE_ENTRIES",
    "HASHES",
    "Hashes",
    "InterestCache",
    "InterestFilter",
    "publication_hashes",
]

Hashes: TypeAlias = NDArray[np.uint64]

CACHE_ENTRIES = 8_192
BITS = 100_000
HASHES = 5
"""The paper's figures, section 5."""

SIZED_BITS, SIZED_HASHES = 256, 2
"""Of a filter that has the size it needs: bits for each publication, and how many it sets. So few are set
that it travels as four bytes for each publication instead of ten, and one stranger in 16,000 is taken for
being there."""

# A filter of this size holds a million publications; whoever sends more than that means harm.
BITS_MAX = 16_000_000
HASHES_MAX = 32

_HEADER = struct.Struct("<BBI")
_AS_BITS, _AS_GAPS, _AS_POSITIONS = range(3)
_GAP_MAX = 0xFFFF

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_MIX_SECOND = np.uint64(0x94D049BB133111EB)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_HALF_BITS = np.uint64(32)


@lru_cache(maxsize=4_096)
def _publisher_key(publisher: str) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.blake2b(publisher.encode(), digest_size=8).digest(), "little"))


def publication_hashes(publisher: str, sequences: ArrayLike) -> Hashes:
    """The hash of each publication of a publisher; the same at every broker.

    The mixing is the output step of SplitMix64 (Steele, Lea and Flood, 2014).
    """
    with np.errstate(over="ignore"):
        state = _publisher_key(publisher) + (np.asarray(sequences).astype(np.uint64) + np.uint64(1)) * _GAMMA
        state = (state ^ (state >> np.uint64(30))) * _MIX_FIRST
        state = (state ^ (state >> np.uint64(27))) * _MIX_SECOND
        return np.asarray(state ^ (state >> np.uint64(31)))


def _positions(hashes: Hashes, bits: int, count: int) -> NDArray[np.int64]:
    """The bits of each hash, shape (count, hashes): two halves make all (Kirsch and Mitzenmacher, 2006)."""
    low = hashes & _LOW_HALF
    # An odd step is never zero.
    step = (hashes >> _HALF_BITS) | np.uint64(1)
    rows = np.arange(count, dtype=np.uint64)[:, np.newaxis]
    return np.asarray((low + rows * step) % np.uint64(bits), dtype=np.int64)


class InterestFilter:
    """A set of publications that can be asked about single ones, and answers yes a little too often."""

    __slots__ = ("_marks", "hashes")

    def __init__(self, marks: NDArray[np.bool_], hashes: int) -> None:
        self._marks = marks
        self.hashes = hashes
        """Bits that are set for each publication."""

    @classmethod
    def of(cls, publications: Hashes, bits: int = BITS, hashes: int = HASHES) -> InterestFilter:
        """The filter of these publications; without a number of bits it has the size that they need."""
        if not bits:
            bits, hashes = min(BITS_MAX, SIZED_BITS * max(1, len(publications))), SIZED_HASHES
        marks = np.zeros(bits, np.bool_)
        marks[_positions(publications, bits, hashes).ravel()] = True
        return cls(marks, hashes)

    @property
    def bits(self) -> int:
        """Its size."""
        return len(self._marks)

    @property
    def false_positive_rate(self) -> float:
        """The chance that it answers yes about a publication that is not in it."""
        return float((np.count_nonzero(self._marks) / len(self._marks)) ** self.hashes)

    def count(self, positions: NDArray[np.int64]) -> int:
        """How many of the publications with these bits are in it, wrong answers included."""
        marks = self._marks
        # Most are ruled out by their first bit.
        left = np.flatnonzero(marks[positions[0]])
        for row in positions[1:]:
            if not len(left):
                return 0
            left = left[marks[row[left]]]
        return len(left)

    def encoded(self) -> bytes:
        """Its bytes, in the shortest of three forms."""
        places = np.flatnonzero(self._marks)
        gaps = np.diff(places, prepend=0)
        fits = not len(gaps) or int(gaps.max()) <= _GAP_MAX
        form, data = _AS_BITS, np.packbits(self._marks).tobytes()
        if fits and 2 * len(places) < len(data):
            form, data = _AS_GAPS, gaps.astype("<u2").tobytes()
        elif 4 * len(places) < len(data):
            form, data = _AS_POSITIONS, places.astype("<u4").tobytes()
        return _HEADER.pack(form, self.hashes, self.bits) + data

    @classmethod
    def decoded(cls, data: bytes) -> InterestFilter:
        """The filter of these bytes.

        Raises:
            RemoteProtocolError: they are no filter.
        """
        if len(data) < _HEADER.size:
            raise RemoteProtocolError(f"a filter of interest of {len(data)} bytes is shorter than its header")
        form, hashes, bits = _HEADER.unpack_from(data)
        if not (1 <= bits <= BITS_MAX and 1 <= hashes <= HASHES_MAX):
            raise RemoteProtocolError(f"a filter of interest of {bits:,} bits with {hashes} hashes")
        body = data[_HEADER.size :]
        if form == _AS_BITS:
            if len(body) != (bits + 7) // 8:
                raise RemoteProtocolError(f"a filter of interest of {bits:,} bits in {len(body):,} bytes")
            marks = np.unpackbits(np.frombuffer(body, np.uint8), count=bits).astype(np.bool_)
            return cls(marks, hashes)
        width = {_AS_GAPS: 2, _AS_POSITIONS: 4}.get(form)
        if width is None or len(body) % width or len(body) > bits // 8 + width:
            raise RemoteProtocolError(f"a filter of interest of the form {form} in {len(body):,} bytes")
        places = np.frombuffer(body, f"<u{width}").astype(np.int64)
        if form == _AS_GAPS:
            places = np.cumsum(places)
        if len(places) and int(places.max()) >= bits:
            raise RemoteProtocolError(f"a filter of interest of {bits:,} bits sets bit {int(places.max()):,}")
        marks = np.zeros(bits, np.bool_)
        marks[places] = True
        return cls(marks, hashes)


class InterestCache:
    """The latest publications that one broker delivered to its own clients or took from them.

    Args:
        entries: how many are kept; older ones make room.
        bits: of the filters that it makes; 0: as many as each of them needs.
        hashes: bits that each publication sets there.
    """

    __slots__ = ("_bits", "_fresh", "_hashes", "_held", "_next", "_places", "_ring")

    def __init__(self, entries: int = CACHE_ENTRIES, bits: int = BITS, hashes: int = HASHES) -> None:
        if entries < 1 or not 0 <= bits <= BITS_MAX or not 1 <= hashes <= HASHES_MAX:
            raise ConfigurationError(
                f"a cache of {entries} entries with filters of {bits} bits and {hashes} hashes: at least 1 "
                f"each (0 bits: as many as it takes), and at most {BITS_MAX:,} bits and {HASHES_MAX} hashes"
            )
        self._ring = np.zeros(entries, np.uint64)
        self._bits = bits
        self._hashes = hashes
        # The bits of each entry, because they are asked for with every filter that comes. Filters that have
        # the size they need differ, so there is nothing to keep.
        self._places = np.zeros((hashes if bits else 0, entries), np.int64)
        self._held = 0
        self._next = 0
        self._fresh = 0

    def __len__(self) -> int:
        return self._held

    @property
    def fresh(self) -> int:
        """Entries since the last filter was made."""
        return self._fresh

    @property
    def entries(self) -> Hashes:
        """What is in it, in no particular order."""
        return self._ring[: self._held].copy()

    def record(self, publications: Hashes) -> None:
        """These were delivered or taken in, each of them once."""
        size = len(self._ring)
        publications = publications[-size:]
        where = (self._next + np.arange(len(publications))) % size
        self._ring[where] = publications
        if self._bits:
            self._places[:, where] = _positions(publications, self._bits, self._hashes)
        self._next = (self._next + len(publications)) % size
        self._held = min(size, self._held + len(publications))
        self._fresh = min(size, self._fresh + len(publications))

    def next_filter(self) -> InterestFilter:
        """The filter of what has come since the last one was made."""
        where = (self._next - self._fresh + np.arange(self._fresh)) % len(self._ring)
        self._fresh = 0
        return InterestFilter.of(self._ring[where], self._bits, self._hashes)

    def in_common(self, other: InterestFilter) -> float:
        """How many of the publications in another broker's filter are in this cache, by estimate.

        Of n entries a share f of those that are not in the filter is taken for being there: of h hits
        (h - n f) / (1 - f) are real. Less than half a publication is none.
        """
        if other.bits == self._bits and other.hashes == self._hashes:
            places = self._places[:, : self._held]
        else:
            places = _positions(self._ring[: self._held], other.bits, other.hashes)
        rate = other.false_positive_rate
        if rate >= 1.0:
            return 0.0  # a filter that says yes to everything says nothing
        real = (other.count(places) - self._held * rate) / (1.0 - rate)
        return real if real >= 0.5 else 0.0

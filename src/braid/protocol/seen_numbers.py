"""Which numbers of one publisher were seen?

What is remembered takes room by what was seen. Mostly that is every number for a while, so it is a list of
*runs*, each a first and a last number. Only where numbers come with so many gaps that a bit for each takes
less room, they are bits.
"""

from __future__ import annotations

import struct
from array import array
from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np

from braid.errors import RemoteProtocolError

if TYPE_CHECKING:
    import numpy.typing as npt

    from braid.matching.columns import BoolArray, IntArray

__all__ = ["LATEST", "PACKED_MAX", "WINDOW_MAX", "SeenNumbers", "marked"]


# So many of the latest numbers have their bits in a small integer of their own: to mark some of them makes no
# longer object, which takes a microsecond.
LATEST: Final = 240

# Distances from the highest number are packed as two bytes.
WINDOW_MAX: Final = 65_536

# Two numbers of a run take as much room as so many bits.
RUN_BITS: Final = 128
# Of the shortest windows so many runs are kept.
RUNS_MIN: Final = 4
# Bits become runs again when there would be so much fewer than may be, so that nothing is turned to and fro.
RUNS_FEWER: Final = 4

# Beyond so many numbers arrays are quicker than loops.
FEW: Final = 24

# Nothing that is packed has more bytes.
PACKED_MAX: Final = 1 + WINDOW_MAX // 8

# The first byte of what is packed: a bit for each number down from the highest, or the distances of runs.
_AS_BITS: Final = b"\x01"
_AS_RUNS: Final = b"\x02"


class SeenNumbers:
    """What was seen of one publisher.

    Up to `base` it is in runs or bits; beyond it, in `latest`.
    """

    __slots__ = ("_bits", "_review_at", "_runs", "base", "counted", "latest")

    def __init__(self, base: int) -> None:
        self.base: int = base
        self.latest: int = 0
        """Bit i says whether `base + i` was seen, for i from 1."""
        self.counted: int = 0
        """The bytes that its owner has counted for it."""
        self._runs: array[int] | None = array("q")
        """The first and the last number of each run, ascending; None while there are bits."""
        self._bits: int = 0
        """Bit i says whether `base - i` was seen."""
        self._review_at: int = 0
        """When the base is there, bits may have become runs."""

    @property
    def highest(self) -> int:
        """The highest number that was seen."""
        return self.base + max(0, self.latest.bit_length() - 1)

    @property
    def size(self) -> int:
        """The bytes that the numbers up to the base take."""
        return 8 * len(self._runs) if self._runs is not None else self._bits.bit_length() // 8

    def fold(self, window: int) -> None:
        """The latest numbers join those up to the base, and what is older than a window goes."""
        latest = self.latest
        ahead = latest.bit_length() - 1
        if ahead <= 0:
            return
        first = self.base + 1
        self.base += ahead
        self.latest = 0
        runs = self._runs
        if runs is None:
            # The latest bits count upwards and the others downwards, so they are turned round.
            turned = int(f"{latest >> 1:0{ahead}b}"[::-1], 2)
            self._bits = (self._bits << ahead | turned) & _mask_of(window)
            if self.base >= self._review_at:
                self._review(window)
            return
        if latest == (2 << ahead) - 2:
            _append(runs, first, self.base)
        else:
            rest = latest >> 1
            while rest:
                skipped = (rest & -rest).bit_length() - 1
                rest >>= skipped
                first += skipped
                count = (~rest & rest + 1).bit_length() - 1
                rest >>= count
                _append(runs, first, first + count - 1)
                first += count
        self._trim(runs, window)

    def run(self, first: int, last: int, window: int) -> None:
        """Numbers beyond the highest were seen, all from the first to the last."""
        self.fold(window)
        runs = self._runs
        if runs is None:
            ahead, count = last - self.base, last - first + 1
            if ahead < window:
                self._bits = (self._bits << ahead | (1 << count) - 1) & _mask_of(window)
                self.base = last
                if last >= self._review_at:
                    self._review(window)
                return
            # A shift by the distance itself would, after a very large jump, be a very large number.
            runs = self._runs = array("q")
            self._bits = 0
        _append(runs, first, last)
        self.base = last
        self._trim(runs, window)

    def has(self, number: int) -> bool:
        """Whether a number was seen that is no older than a window."""
        if number > self.base:
            ahead = number - self.base
            return ahead < self.latest.bit_length() and bool(self.latest >> ahead & 1)
        runs = self._runs
        if runs is None:
            return bool(self._bits >> self.base - number & 1)
        place = _runs_before(runs, number)
        return place > 0 and runs[2 * place - 1] >= number

    def has_many(self, numbers: IntArray) -> BoolArray:
        """Which of these numbers, none beyond the base nor older than a window, were seen."""
        runs = self._runs
        if runs is None:
            return _bits_at(self._bits, self.base - numbers)
        if not runs:
            return np.zeros(len(numbers), np.bool_)
        ends: IntArray = np.array(runs, np.int64)
        places = np.searchsorted(ends[::2], numbers, "right")
        found: BoolArray = (places > 0) & (ends[1::2][np.maximum(places, 1) - 1] >= numbers)
        return found

    def late(self, number: int, window: int) -> None:
        """A number was seen that is not beyond the base, nor older than a window, and that was missing."""
        runs = self._runs
        if runs is None:
            self._bits |= 1 << self.base - number
            return
        place = 2 * _runs_before(runs, number)
        joins_before = place > 0 and runs[place - 1] == number - 1
        joins_behind = place < len(runs) and runs[place] == number + 1
        if joins_before and joins_behind:
            del runs[place - 1 : place + 1]
        elif joins_before:
            runs[place - 1] = number
        elif joins_behind:
            runs[place] = number
        else:
            runs[place:place] = array("q", (number, number))
            self._trim(runs, window)

    def many(self, numbers: IntArray, first: int, highest: int, window: int) -> None:
        """Numbers were seen that were missing; what is too old is left out.

        Args:
            numbers: in any order.
            first: the least of them.
            highest: the highest of all now.
            window: so many down from there are not too old.
        """
        if self.latest:
            self.fold(window)
        if highest - first >= window:
            numbers = numbers[highest - numbers < window]
        runs = self._runs
        if runs is None:
            ahead = highest - self.base
            if ahead < window:
                self._bits = self._bits << ahead & _mask_of(window) | marked(highest - numbers)
                self.base = highest
                if highest >= self._review_at:
                    self._review(window)
                return
            runs = self._runs = array("q")
            self._bits = 0
        if len(numbers) <= FEW:
            for number in sorted(numbers.tolist()):
                if number > self.base:
                    if runs and runs[-1] == number - 1:
                        runs[-1] = number
                    else:
                        runs.append(number)
                        runs.append(number)
                    self.base = number
                else:
                    self.late(number, window)
                    if self._runs is None:
                        # They have become bits on the way.
                        self.many(numbers, first, highest, window)
                        return
            self.base = highest
            self._trim(runs, window)
            return
        numbers = np.sort(numbers)
        splits = np.flatnonzero(np.diff(numbers) != 1)
        firsts = numbers[np.concatenate([np.zeros(1, np.int64), splits + 1])]
        lasts = numbers[np.concatenate([splits, np.array([len(numbers) - 1])])]
        if runs and int(firsts[0]) <= runs[-1] + 1:
            ends: IntArray = np.array(runs, np.int64)
            firsts, lasts = _joined(np.append(ends[::2], firsts), np.append(ends[1::2], lasts))
            del runs[:]
        ends = np.empty(2 * len(firsts), np.int64)
        ends[::2], ends[1::2] = firsts, lasts
        runs.frombytes(ends.tobytes())
        self.base = highest
        self._trim(runs, window)

    def discard(self, number: int, window: int) -> None:
        """A number that was seen, and is no older than a window, is missing again."""
        self.fold(window)
        runs = self._runs
        if runs is None:
            self._bits &= ~(1 << self.base - number)
            return
        place = 2 * _runs_before(runs, number) - 2
        first, last = runs[place], runs[place + 1]
        left = [(first, number - 1), (number + 1, last)]
        runs[place : place + 2] = array("q", [end for run in left if run[0] <= run[1] for end in run])
        self._trim(runs, window)

    # How it travels, and how it is stored.

    def packed(self, window: int, top: int) -> bytes:
        """What is known of the numbers up to one of those in the window, as bytes.

        The form with the least bytes is taken, so that a publisher without gaps has five.
        """
        self.fold(window)
        runs = self._runs
        if runs is None:
            bits = self._bits >> self.base - top
            return _AS_BITS + bits.to_bytes((bits.bit_length() + 7) // 8, "little")
        if len(runs) == 2 and runs[1] == top:
            distance = min(top - runs[0], window - 1)
            return _AS_RUNS + distance.to_bytes(2, "little") + b"\x00\x00"
        ends: IntArray = np.array(runs, np.int64)[: 2 * _runs_before(runs, top)]
        distances = top - np.minimum(ends, top)
        # Runs that are too old, counted from there, may still be among them, or begin before.
        old = int(np.count_nonzero(distances[1::2] >= window))
        packed: bytes = np.minimum(distances[2 * old :], window - 1).astype("<u2").tobytes()
        return _AS_RUNS + packed

    @classmethod
    def unpacked(cls, highest: int, packed: bytes | None, window: int) -> SeenNumbers:
        """What was packed, down from the highest; without anything packed, all up to it were seen.

        Raises:
            RemoteProtocolError: nothing is packed like that.
        """
        seen = cls(highest)
        runs: array[int] = array("q")
        if packed is None:
            _append(runs, highest - window + 1, highest)
        elif packed[:1] == _AS_BITS and len(packed) <= PACKED_MAX:
            seen._bits = int.from_bytes(packed[1:], "little") & _mask_of(window)
            seen._runs = None
            seen._review(window)
            return seen
        elif packed[:1] == _AS_RUNS and len(packed) % 4 == 1 and len(packed) <= PACKED_MAX:
            distances = struct.unpack(f"<{len(packed) // 2}H", packed[1:])
            # One after the other, with a gap between two, and none before the first.
            if any(first < last for first, last in zip(distances[::2], distances[1::2], strict=True)) or any(
                last - 1 <= first for last, first in zip(distances[1::2], distances[2::2], strict=False)
            ):
                raise RemoteProtocolError("runs of numbers that are not one after the other")
            for place in range(0, len(distances), 2):
                _append(runs, highest - distances[place], highest - distances[place + 1])
        else:
            raise RemoteProtocolError(f"numbers of {len(packed)} bytes that are packed in no known form")
        seen._runs = runs
        seen._trim(runs, window)
        return seen

    # Runs become bits, and bits become runs.

    def _trim(self, runs: array[int], window: int) -> None:
        """Leave out what is too old, and have bits where they take less room."""
        oldest = self.base - window
        if runs and runs[1] <= oldest:
            gone = 2
            while gone < len(runs) and runs[gone + 1] <= oldest:
                gone += 2
            del runs[:gone]
        if len(runs) <= 2 * _runs_max(window):
            return
        distances: IntArray = self.base - np.array(runs, np.int64)
        turns = np.zeros(window + 1, np.int8)
        turns[distances[1::2]] = 1
        turns[np.minimum(distances[::2], window - 1) + 1] -= 1
        marks = np.cumsum(turns[:window], dtype=np.int8).astype(np.bool_)
        self._bits = int.from_bytes(np.packbits(marks, bitorder="little").tobytes(), "little")
        self._runs = None
        self._review_at = self.base + window

    def _review(self, window: int) -> None:
        """After a window's length, bits may have become few runs."""
        bits = self._bits
        self._review_at = self.base + window
        if (bits & ~(bits << 1)).bit_count() > _runs_max(window) // RUNS_FEWER:
            return
        runs: array[int] = array("q")
        end = self.base
        backwards: list[tuple[int, int]] = []
        while bits:
            skipped = (bits & -bits).bit_length() - 1
            bits >>= skipped
            count = (~bits & bits + 1).bit_length() - 1
            bits >>= count
            end -= skipped
            backwards.append((end - count + 1, end))
            end -= count
        for first, last in reversed(backwards):
            _append(runs, first, last)
        self._runs, self._bits = runs, 0


def _runs_max(window: int) -> int:
    """More runs than these take more room than a bit for each number of a window."""
    return max(RUNS_MIN, window // RUN_BITS)


def _append(runs: array[int], first: int, last: int) -> None:
    """Another run behind all others, or the last one goes on."""
    if runs and runs[-1] == first - 1:
        runs[-1] = last
    else:
        runs.append(first)
        runs.append(last)


def _runs_before(runs: array[int], number: int) -> int:
    """How many runs begin at a number or before it."""
    low, high = 0, len(runs) // 2
    # Mostly it is one of the last.
    if high and runs[2 * high - 2] <= number:
        return high
    while low < high:
        middle = (low + high) // 2
        if runs[2 * middle] <= number:
            low = middle + 1
        else:
            high = middle
    return low


def _joined(firsts: IntArray, lasts: IntArray) -> tuple[IntArray, IntArray]:
    """Runs in any order, none of which overlap, as ascending ones with gaps between them."""
    order = np.argsort(firsts)
    firsts, lasts = firsts[order], lasts[order]
    apart = firsts[1:] != lasts[:-1] + 1
    begins = np.concatenate([np.ones(1, np.bool_), apart])
    ends = np.concatenate([apart, np.ones(1, np.bool_)])
    return firsts[begins], lasts[ends]


def marked(places: IntArray) -> int:
    """A number with the bits at these places."""
    bits = 0
    if len(places) <= FEW:
        for place in places.tolist():
            bits |= 1 << place
        return bits
    # Only as many bits as it takes are written.
    marks = np.zeros(int(places.max()) + 1, np.bool_)
    marks[places] = True
    return int.from_bytes(np.packbits(marks, bitorder="little").tobytes(), "little")


@cache
def _mask_of(window: int) -> int:
    """As many bits as a window has. Windows are long, and there are few lengths: all share one number."""
    return (1 << window) - 1


def _bits_at(bits: int, places: IntArray) -> BoolArray:
    """The bits at these places; only as many as it takes are unpacked."""
    count = int(places.max(initial=-1)) + 1
    raw: npt.NDArray[np.uint8] = np.frombuffer(
        (bits & (1 << count) - 1).to_bytes((count + 7) // 8, "little"), np.uint8
    )
    found: BoolArray = np.unpackbits(raw, count=count, bitorder="little").astype(np.bool_)[places]
    return found

"""Has this publication been here before?

Sequence numbers of a publisher rise by one. Of each publisher the highest is remembered, and a window of
bits that says which of the recent ones were seen, so numbers may arrive out of order within the window.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from braid.matching.columns import BoolArray, IntArray
    from braid.protocol.batch import PublicationBatch

__all__ = ["DuplicateFilter"]


# So many of the latest numbers have their bits in a small integer of their own: to mark some of them makes no
# new integer of a whole window's length, which takes a microsecond.
LATEST = 240

# Beyond so many numbers their bits are put together by arrays.
_FEW = 24

_NO_ROWS: IntArray = np.empty(0, np.int64)


class _Seen:
    """What was seen of one publisher.

    Up to `base` a window of bits says which numbers were seen; beyond it, `latest` does.
    """

    __slots__ = ("_bits", "base", "latest")

    def __init__(self, highest: int, bits: int) -> None:
        self.base = highest
        self._bits = bits
        """Bit i says whether `base - i` was seen."""
        self.latest = 0
        """Bit i says whether `base + i` was seen, for i from 1."""

    @property
    def highest(self) -> int:
        """The highest number that was seen."""
        return self.base + max(0, self.latest.bit_length() - 1)

    def window(self, mask: int) -> int:
        """Bit i says whether `highest - i` was seen. The latest numbers join the window."""
        ahead = self.highest - self.base
        if ahead:
            # The latest bits count upwards and the window's downwards, so they are turned round.
            latest = int(f"{self.latest >> 1:0{ahead}b}"[::-1], 2)
            self._bits = (self._bits << ahead | latest) & mask
            self.base, self.latest = self.highest, 0
        return self._bits

    def restart(self, highest: int, bits: int) -> None:
        """Go on from another window."""
        self.base = highest
        self._bits = bits
        self.latest = 0


class DuplicateFilter:
    """Tells new publications from repeated ones.

    Args:
        publishers_max: of more publishers some are forgotten: of the owner with the most names the one least
            recently heard. Each takes about half a kilobyte. Until half as many are known, nothing is noted
            of who was heard when.
        window: how far behind the highest a number may arrive; what is older counts as seen. Larger:
            more patience with detours, more memory and work.
        old_is_new: what is older counts as new instead: rather twice than never.
        when_forgotten: is told of each publisher that is forgotten.
    """

    def __init__(
        self,
        publishers_max: int = 100_000,
        window: int = 1024,
        *,
        old_is_new: bool = False,
        when_forgotten: Callable[[str], None] | None = None,
    ) -> None:
        if publishers_max < 1 or window < 1:
            raise ConfigurationError(
                f"publishers_max and window must be at least 1, not {publishers_max} and {window}"
            )
        self._publishers_max = publishers_max
        self._window = window
        self._old_is_new = old_is_new
        self._mask = _mask_of(window)
        self._when_forgotten = when_forgotten
        self._publishers: dict[str, _Seen] = {}
        self._owners: dict[str, OrderedDict[str, None]] = {}
        """The names of each owner, once it is crowded. All that have none count as one: making up names must
        not pay."""
        self._latest = min(LATEST, window)
        self.empty = True
        """Whether it never knew anybody."""
        self._crowded = publishers_max < 3
        """Whether it is worth the while to keep publishers in the order in which they were heard."""

    def __len__(self) -> int:
        return len(self._publishers)

    def highest(self, publisher: str) -> int | None:
        """The highest sequence number seen of a publisher, None for an unknown one."""
        seen = self._publishers.get(publisher)
        return None if seen is None else seen.highest

    def new_in(self, batch: PublicationBatch) -> IntArray | None:
        """Which rows of a batch are new; None when all are."""
        count = batch.count
        if count == 1:
            return None if self.is_new(batch.publisher, batch.first) else _NO_ROWS
        if not count:
            return _NO_ROWS
        first, last = batch.first, batch.last
        if last - first + 1 == count and self.new_run(batch.publisher, first, count):
            return None
        seen = self._heard_of(batch.publisher, first)
        if first > seen.highest:  # the rows of a batch ascend
            self._note(seen, last, batch.sequences)
            return None
        return self.new_rows(batch.publisher, batch.sequences)

    def new_run(self, publisher: str, first: int, count: int) -> bool:
        """Whether so many consecutive numbers are all new and next in line, which they mostly are.

        If not, nothing is remembered of them, and `new_rows` has to look at each.
        """
        seen = self._publishers.get(publisher)
        if seen is None or first != seen.highest + 1:
            return False
        if self._crowded:
            self._heard(publisher)
        ahead = first - seen.base
        if ahead + count > self._latest + 1:
            known = seen.window(self._mask)
            ahead = 1
            if count > self._latest:
                # A shift by a very long run would make a very large number.
                known = known << count if count < self._window else 0
                seen.restart(first + count - 1, (known | (1 << min(count, self._window)) - 1) & self._mask)
                return True
        seen.latest |= (1 << count) - 1 << ahead
        return True

    def is_new(self, publisher: str, sequence: int) -> bool:
        """Whether a single publication is new: what `new_rows` says of it, found without arrays."""
        seen = self._publishers.get(publisher)
        if seen is None:
            seen = self._entered(publisher, sequence)
        elif self._crowded:
            self._heard(publisher)
        offset = sequence - seen.base
        if 0 < offset <= self._latest:
            latest = seen.latest
            bit = 1 << offset
            if latest & bit:
                return False
            seen.latest = latest | bit
            return True
        bits = seen.window(self._mask)
        ahead = sequence - seen.highest
        if ahead > 0:
            # A shift by the distance itself would, after a very large jump, be a very large number.
            seen.restart(sequence, (bits << ahead | 1) & self._mask if ahead < self._window else 1)
            return True
        if -ahead >= self._window:
            return self._old_is_new
        if bits >> -ahead & 1:
            return False
        seen.restart(seen.highest, bits | 1 << -ahead)
        return True

    def window_of(self, publisher: str) -> tuple[int, int]:
        """The highest number seen, and a bit for each number down from it, the lowest bit first."""
        seen = self._publishers[publisher]
        return seen.highest, seen.window(self._mask)

    def recall(self, publisher: str, highest: int, bits: int | None) -> None:
        """Go on from what was remembered elsewhere; without bits, all up to the highest were seen."""
        self._enter(publisher, _Seen(highest, self._mask if bits is None else bits & self._mask))

    def recall_all(self, other: DuplicateFilter) -> None:
        """Go on from everything that another one remembers."""
        for publisher in other._publishers:
            self.recall(publisher, *other.window_of(publisher))

    def forget(self, publisher: str, sequence: int) -> None:
        """A publication that was here is expected again."""
        seen = self._publishers.get(publisher)
        if seen is not None and self.has(publisher, sequence):
            bits = seen.window(self._mask)
            seen.restart(seen.highest, bits & ~(1 << seen.highest - sequence))

    def discards(self, publisher: str, sequence: int) -> bool:
        """Whether a publication would not count as new; nothing is remembered of the question."""
        seen = self._publishers.get(publisher)
        if seen is None:
            return False
        too_old = seen.highest - sequence >= self._window and not self._old_is_new
        return too_old or self.has(publisher, sequence)

    def has(self, publisher: str, sequence: int) -> bool:
        """Whether a publication is known to have been here; nothing is remembered of the question."""
        seen = self._publishers.get(publisher)
        if seen is None:
            return False
        if sequence > seen.base:
            return sequence <= seen.highest and bool(seen.latest >> sequence - seen.base & 1)
        behind = seen.highest - sequence
        return behind < self._window and bool(seen.window(self._mask) >> behind & 1)

    def has_rows(self, publisher: str, sequences: IntArray) -> BoolArray:
        """Which of these publications are known to have been here: what `has` says of each."""
        found = np.zeros(len(sequences), np.bool_)
        seen = self._publishers.get(publisher)
        if seen is not None:
            behind = seen.highest - np.asarray(sequences, np.int64)
            recent = np.flatnonzero((behind >= 0) & (behind < self._window))
            found[recent] = _bits_at(seen.window(self._mask), behind[recent])
        return found

    def new_rows(self, publisher: str, sequences: IntArray) -> IntArray | None:
        """Which rows of a batch are new, as if they came one by one; None when all are.

        Sequence numbers are not negative.
        """
        if not len(sequences):
            return None
        sequences = np.asarray(sequences, np.int64)
        seen = self._heard_of(publisher, int(sequences[0]))
        if int(sequences[0]) > seen.highest and bool((sequences[1:] > sequences[:-1]).all()):
            self._note(seen, int(sequences[-1]), sequences)
            return None
        new = self._new(seen, sequences)
        if not new.any():
            return np.empty(0, np.int64)
        fresh = sequences[new]
        self._note(seen, max(seen.highest, int(fresh.max())), fresh)
        return None if new.all() else np.flatnonzero(new)

    def _heard_of(self, publisher: str, first: int) -> _Seen:
        """A publisher whose publications have come, of which this is the first."""
        seen = self._publishers.get(publisher)
        if seen is None:
            return self._entered(publisher, first)
        if self._crowded:
            self._heard(publisher)
        return seen

    def _entered(self, publisher: str, first: int) -> _Seen:
        """A new publisher: as if the number before its first had been the highest, and none been seen."""
        seen = _Seen(first - 1, 0)
        self._enter(publisher, seen)
        return seen

    def _enter(self, publisher: str, seen: _Seen) -> None:
        publishers = self._publishers
        publishers[publisher] = seen
        self.empty = False
        if self._crowded:
            self._make_room(self._owned(publisher))
        elif 2 * len(publishers) >= self._publishers_max - 1:
            self._crowded = True
            for name in publishers:
                self._owned(name)

    def _owned(self, publisher: str) -> OrderedDict[str, None]:
        """Enter a name among those of its owner, and return these."""
        owner = _owner_of(publisher)
        names = self._owners.get(owner)
        if names is None:
            names = self._owners[owner] = OrderedDict()
        names[publisher] = None
        return names

    def _make_room(self, names: OrderedDict[str, None]) -> None:
        """Forget one if there are too many; `names` are those of the owner that has one more now."""
        if len(self._publishers) > self._publishers_max:
            if len(names) * len(self._owners) < self._publishers_max:
                # This owner has less than its share, so another one has more.
                names = max(self._owners.values(), key=len)
            self._forget(next(iter(names)))

    def _forget(self, publisher: str) -> None:
        owner = _owner_of(publisher)
        del self._publishers[publisher]
        del self._owners[owner][publisher]
        if not self._owners[owner]:
            del self._owners[owner]
        if self._when_forgotten is not None:
            self._when_forgotten(publisher)

    def _heard(self, publisher: str) -> None:
        self._owners[_owner_of(publisher)].move_to_end(publisher)

    def _new(self, seen: _Seen, sequences: IntArray) -> BoolArray:
        # The highest number before each row decides how far its window reaches back.
        before = np.concatenate([[seen.highest], np.maximum.accumulate(sequences)[:-1]])
        before = np.maximum(before, seen.highest)
        recent: BoolArray = before - sequences < self._window
        first = np.zeros(len(sequences), np.bool_)
        first[np.unique(sequences, return_index=True)[1]] = True
        new = recent & first
        behind = np.flatnonzero(new & (sequences <= seen.highest))
        new[behind] = ~_bits_at(seen.window(self._mask), seen.highest - sequences[behind])
        return new | ~recent if self._old_is_new else new

    def _note(self, seen: _Seen, highest: int, fresh: IntArray) -> None:
        if highest - seen.base > self._latest:
            seen.window(self._mask)
        if highest - seen.base <= self._latest and int(fresh.min()) > seen.base:
            seen.latest |= _marked(fresh - seen.base)
            return
        ahead = highest - seen.highest
        # A shift by the distance itself would, after a very large jump, be a very large number.
        bits = seen.window(self._mask) << ahead & self._mask if ahead < self._window else 0
        if ahead == len(fresh) and int(fresh.min()) == seen.highest + 1:
            # They are all different, so none is missing.
            bits |= (1 << min(ahead, self._window)) - 1
        else:
            offsets = highest - fresh
            bits |= _marked(offsets[offsets < self._window])
        seen.restart(highest, bits)


def _marked(places: IntArray) -> int:
    """A number with the bits at these places."""
    bits = 0
    if len(places) <= _FEW:
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


def _owner_of(publisher: str) -> str:
    """What a principal's names begin with; the same for all that belong to no principal."""
    return publisher.partition("/")[0] if "/" in publisher else ""


def _bits_at(bits: int, places: IntArray) -> BoolArray:
    """The bits at these places; only as many as it takes are unpacked."""
    count = int(places.max(initial=-1)) + 1
    raw: npt.NDArray[np.uint8] = np.frombuffer(
        (bits & (1 << count) - 1).to_bytes((count + 7) // 8, "little"), np.uint8
    )
    found: BoolArray = np.unpackbits(raw, count=count, bitorder="little").astype(np.bool_)[places]
    return found

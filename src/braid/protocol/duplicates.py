"""Has this publication been here before?

Sequence numbers of a publisher rise by one. Of each publisher the highest is remembered, and which of those
within a window below it were seen, so numbers may arrive out of order within the window.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import numpy as np

from braid.errors import ConfigurationError
from braid.protocol.seen_numbers import LATEST, WINDOW_MAX, SeenNumbers, marked

if TYPE_CHECKING:
    from collections.abc import Callable

    from braid.matching.columns import BoolArray, IntArray
    from braid.protocol.batch import PublicationBatch

__all__ = ["PUBLISHER_BYTES", "DuplicateFilter"]


# What each publisher takes beside the numbers that were seen of it: its name and some small objects.
PUBLISHER_BYTES: Final = 400

# Beyond so many bytes publishers are forgotten.
MEMORY_BYTES_MAX: Final = 64 * 1024 * 1024

_NO_ROWS: IntArray = np.empty(0, np.int64)


class _Owner:
    """What is remembered of the names of one owner."""

    __slots__ = ("names", "size")

    def __init__(self) -> None:
        self.names: OrderedDict[str, None] = OrderedDict()
        """The one least recently heard first."""
        self.size: int = 0


class DuplicateFilter:
    """Tells new publications from repeated ones.

    Args:
        publishers_max: of more publishers some are forgotten: of the owner with the most names the one least
            recently heard. Until half as many are known, nothing is noted of who was heard when.
        window: how far behind the highest a number may arrive; what is older counts as seen. Larger:
            more patience with detours, and for publishers with many gaps more memory and work.
        old_is_new: what is older counts as new instead: rather twice than never.
        when_forgotten: is told of each publisher that is forgotten.
        bytes_max: of the owner whose names take the most, some are forgotten beyond this. Each takes about
            400 bytes, and 16 for each run of numbers without a gap, up to a bit for each of the window.
    """

    def __init__(
        self,
        publishers_max: int = 100_000,
        window: int = 1024,
        *,
        old_is_new: bool = False,
        when_forgotten: Callable[[str], None] | None = None,
        bytes_max: int = MEMORY_BYTES_MAX,
    ) -> None:
        if publishers_max < 1 or window < 1:
            raise ConfigurationError(
                f"publishers_max and window must be at least 1, not {publishers_max} and {window}"
            )
        if window > WINDOW_MAX:
            raise ConfigurationError(f"a window has at most {WINDOW_MAX:,} numbers, not {window:,}")
        self._publishers_max = publishers_max
        self._bytes_max = bytes_max
        self._window = window
        self._old_is_new = old_is_new
        self._when_forgotten = when_forgotten
        self._publishers: dict[str, SeenNumbers] = {}
        self._owners: dict[str, _Owner] = {}
        """What each owner has, once it is crowded. All names that have none count as those of one: making up
        names must not pay."""
        self.size = 0
        """What all that is remembered takes, about."""
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
            self._note(batch.publisher, seen, first, last, batch.sequences)
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
            if count > self._latest:
                seen.run(first, first + count - 1, self._window)
                self._weigh(publisher, seen)
                return True
            seen.fold(self._window)
            self._weigh(publisher, seen)
            ahead = 1
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
        if sequence > seen.highest:
            seen.run(sequence, sequence, self._window)
        elif seen.highest - sequence >= self._window:
            return self._old_is_new
        elif seen.has(sequence):
            return False
        else:
            seen.late(sequence, self._window)
        self._weigh(publisher, seen)
        return True

    def packed(self, publisher: str, top: int | None = None) -> tuple[int, bytes]:
        """The highest number seen, and which of those below it were, as bytes.

        Args:
            publisher: one that is known.
            top: is taken for the highest, and what is beyond it left out.
        """
        seen = self._publishers[publisher]
        if top is None:
            top = seen.highest
        return top, seen.packed(self._window, top)

    def recall(self, publisher: str, highest: int, packed: bytes | None) -> None:
        """Go on from what was packed elsewhere; without it, all up to the highest were seen.

        Raises:
            RemoteProtocolError: nothing is packed like that.
        """
        self._enter(publisher, SeenNumbers.unpacked(highest, packed, self._window))

    def recall_all(self, other: DuplicateFilter) -> None:
        """Go on from everything that another one remembers."""
        for publisher in other._publishers:
            self.recall(publisher, *other.packed(publisher))

    def forget(self, publisher: str, sequence: int) -> None:
        """A publication that was here is expected again."""
        seen = self._publishers.get(publisher)
        if seen is not None and self.has(publisher, sequence):
            seen.discard(sequence, self._window)
            self._weigh(publisher, seen)

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
        return seen is not None and seen.highest - sequence < self._window and seen.has(sequence)

    def has_rows(self, publisher: str, sequences: IntArray) -> BoolArray:
        """Which of these publications are known to have been here: what `has` says of each."""
        found = np.zeros(len(sequences), np.bool_)
        seen = self._publishers.get(publisher)
        if seen is not None:
            sequences = np.asarray(sequences, np.int64)
            seen.fold(self._window)
            self._weigh(publisher, seen)
            behind = seen.highest - sequences
            recent = np.flatnonzero((behind >= 0) & (behind < self._window))
            found[recent] = seen.has_many(sequences[recent])
        return found

    def new_rows(self, publisher: str, sequences: IntArray) -> IntArray | None:
        """Which rows of a batch are new, as if they came one by one; None when all are.

        Sequence numbers are not negative.
        """
        if not len(sequences):
            return None
        sequences = np.asarray(sequences, np.int64)
        seen = self._heard_of(publisher, int(sequences[0]))
        first = int(sequences[0])
        if first > seen.highest and bool((sequences[1:] > sequences[:-1]).all()):
            self._note(publisher, seen, first, int(sequences[-1]), sequences)
            return None
        new = self._new(seen, sequences)
        if not new.any():
            return np.empty(0, np.int64)
        fresh = sequences[new]
        self._note(publisher, seen, int(fresh.min()), max(seen.highest, int(fresh.max())), fresh)
        return None if new.all() else np.flatnonzero(new)

    def _heard_of(self, publisher: str, first: int) -> SeenNumbers:
        """A publisher whose publications have come, of which this is the first."""
        seen = self._publishers.get(publisher)
        if seen is None:
            return self._entered(publisher, first)
        if self._crowded:
            self._heard(publisher)
        return seen

    def _entered(self, publisher: str, first: int) -> SeenNumbers:
        """A new publisher: as if the number before its first had been the highest, and none been seen."""
        seen = SeenNumbers(first - 1)
        self._enter(publisher, seen)
        return seen

    def _enter(self, publisher: str, seen: SeenNumbers) -> None:
        publishers = self._publishers
        former = publishers.get(publisher)
        if former is not None:
            seen.counted = former.counted
        publishers[publisher] = seen
        self.empty = False
        if self._crowded:
            self._owned(publisher)
        elif 2 * len(publishers) >= self._publishers_max - 1:
            self._keep_order()
        self._weigh(publisher, seen)

    def _keep_order(self) -> None:
        """From now on it is noted who was heard when, and what each owner takes."""
        self._crowded = True
        for name, seen in self._publishers.items():
            self._owned(name).size += seen.counted

    def _owned(self, publisher: str) -> _Owner:
        """Enter a name among those of its owner."""
        name = _owner_of(publisher)
        owner = self._owners.get(name)
        if owner is None:
            owner = self._owners[name] = _Owner()
        owner.names[publisher] = None
        return owner

    def _weigh(self, publisher: str, seen: SeenNumbers) -> None:
        """Count what is remembered of a publisher now, and forget some if there is too much."""
        size = PUBLISHER_BYTES + seen.size
        more = size - seen.counted
        if not more or self._publishers.get(publisher) is not seen:
            return
        seen.counted = size
        self.size += more
        if self._crowded:
            owner = self._owners[_owner_of(publisher)]
            owner.size += more
            if self.size > self._bytes_max or len(self._publishers) > self._publishers_max:
                self._make_room(owner)
        elif 2 * self.size >= self._bytes_max:
            self._keep_order()

    def _make_room(self, owner: _Owner) -> None:
        """Forget some if there are too many, or too much is known of them; `owner` has more now."""
        owners = self._owners
        while len(self._publishers) > self._publishers_max:
            if len(owner.names) * len(owners) < self._publishers_max:
                # This owner has less than its share, so another one has more.
                owner = max(owners.values(), key=lambda each: len(each.names))
            self._forget(next(iter(owner.names)))
        while self.size > self._bytes_max and len(self._publishers) > 1:
            if owner.size * len(owners) < self._bytes_max:
                owner = max(owners.values(), key=lambda each: each.size)
            self._forget(next(iter(owner.names)))

    def _forget(self, publisher: str) -> None:
        name = _owner_of(publisher)
        owner = self._owners[name]
        size = self._publishers.pop(publisher).counted
        self.size -= size
        owner.size -= size
        del owner.names[publisher]
        if not owner.names:
            del self._owners[name]
        if self._when_forgotten is not None:
            self._when_forgotten(publisher)

    def _heard(self, publisher: str) -> None:
        self._owners[_owner_of(publisher)].names.move_to_end(publisher)

    def _new(self, seen: SeenNumbers, sequences: IntArray) -> BoolArray:
        # The highest number before each row decides how far its window reaches back.
        before = np.concatenate([[seen.highest], np.maximum.accumulate(sequences)[:-1]])
        before = np.maximum(before, seen.highest)
        recent: BoolArray = before - sequences < self._window
        first = np.zeros(len(sequences), np.bool_)
        first[np.unique(sequences, return_index=True)[1]] = True
        new = recent & first
        behind = np.flatnonzero(new & (sequences <= seen.highest))
        seen.fold(self._window)
        new[behind] = ~seen.has_many(sequences[behind])
        return new | ~recent if self._old_is_new else new

    def _note(self, publisher: str, seen: SeenNumbers, first: int, highest: int, fresh: IntArray) -> None:
        """Remember numbers that were not seen; `first` is the least, `highest` that of all from now on."""
        latest = self._latest
        if highest - seen.base > latest:
            seen.fold(self._window)
        if highest - seen.base <= latest and first > seen.base:
            seen.latest |= marked(fresh - seen.base)
            return
        if first > seen.highest and highest - first + 1 == len(fresh):
            seen.run(first, highest, self._window)
        else:
            seen.many(fresh, first, highest, self._window)
        self._weigh(publisher, seen)


def _owner_of(publisher: str) -> str:
    """What a principal's names begin with; the same for all that belong to no principal."""
    return publisher.partition("/")[0] if "/" in publisher else ""

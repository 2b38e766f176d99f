"""Who is interested in a publication?

`FilterIndex` keeps any number of filters under keys of the caller's choice. Filters are added and
removed at any time. New ones wait in a short *tail*; a full tail becomes a segment, and several
segments of a size are merged into a larger one, both in bounded steps with every further call, so
none ever rebuilds the whole index (a log-structured merge, as in storage engines).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from braid.errors import IndexKeyError
from braid.language.filters import Filter
from braid.language.values import Value
from braid.matching.answers import Answer, Counts, Destinations, Pairs, Renumbered
from braid.matching.columns import Batch, check_integers, checked_publications
from braid.matching.groups import Groups
from braid.matching.plan import plan_segment
from braid.matching.regrouping import regroup
from braid.matching.single import SingleAnswer, SingleDestinations, SingleSlots
from braid.matching.tail import FEW_PUBLICATIONS, Tail

if TYPE_CHECKING:
    from braid.matching.columns import BoolArray, IntArray
    from braid.matching.segment import Segment

__all__ = ["HANDFUL", "WAITING", "FilterIndex", "GroupMatrix", "IndexStatistics", "run_to_end"]

Key = TypeVar("Key", bound=Hashable)
_Single = TypeVar("_Single", bound=SingleAnswer)
Attributes = Mapping[str, Value | None]

# So many new filters wait before they become a segment; of a quarter that come together, one is made
# at once.
TAIL_MAX = 1024
# A tail becomes a segment earlier if it was compared so often, per filter and beyond a handful: about
# what making the segment takes.
TAIL_COST_MAX = 2048
# So few filters are quickest evaluated one by one.
HANDFUL = 32
# So many segments of about the same size are merged into one.
FANOUT = 4
# So few publications are quickest matched one by one, without arrays.
SINGLES_MAX = 8
# Publications are matched so many at a time, to bound the memory of a very large batch.
BATCH_MAX = 4096
# Of more destinations than this a whole matrix would be wasteful.
MATRIX_GROUPS_MAX = 4096

# Values of `_home` that are not the number of a segment.
_FREE = -1
WAITING = -2
_NO_KEY: Any = object()


@dataclass(frozen=True, slots=True)
class IndexStatistics:
    """A snapshot for people and metrics."""

    filters: int
    boxes: int
    """Rows in segments; a filter has one per box of its normal form."""
    segments: int
    blocks: int
    tables: int
    waiting: int
    """Filters that are not part of a segment yet."""
    attributes: int
    bytes: int
    """Memory of the index's arrays, without the filters and keys themselves."""


@dataclass(frozen=True, slots=True)
class GroupMatrix:
    """Which destinations each publication goes to: `matrix[publication, column]`, named by `groups`."""

    groups: list[Any]
    matrix: BoolArray


class _Job:
    """Filters on their way into a segment: those of a tail, or of segments that are merged."""

    def __init__(
        self, slots: list[int], work: Generator[None, None, Segment], *, sources: Sequence[int] = ()
    ) -> None:
        self.slots = slots
        self.work = work
        self.sources = sources
        """The segments that the new one replaces."""
        self.removed: list[int] = []
        """Slots whose filters were removed meanwhile."""
        self.regrouped: list[int] = []
        """Slots whose filters got another group meanwhile."""


class FilterIndex(Generic[Key]):
    """Filters under keys, matched against publications, many at a time.

    >>> index = FilterIndex()
    >>> index.add("alice", Filter("price > 10"))
    >>> index.add("bob", Filter("symbol LIKE 'AC%'"))
    >>> sorted(index.match({"symbol": "ACME", "price": 12}))
    ['alice', 'bob']

    Each filter may belong to a *group* (a destination such as a link or a client); `match_groups`
    then tells only which groups have at least one matching filter, which is quicker than listing
    every filter. Not thread-safe: callers that share an index between threads use a lock.
    """

    def __init__(self, items: Iterable[tuple[Any, ...]] = ()) -> None:
        self._slot_of: dict[Key, int] = {}
        self._keys: list[Key] = []
        self._filters: list[Filter | None] = []
        self._free: list[int] = []
        self._home = np.zeros(0, np.int32)
        self._group_of_slot = np.zeros(0, np.int32)
        self._groups = Groups()
        self._segments: dict[int, Segment] = {}
        self._segments_made = 0
        self._tail = Tail()
        self._tail_cost = 0
        self._full_tail = Tail()
        """Becomes a segment, while new filters wait in the other tail."""
        self._sealing: _Job | None = None
        self._merge: _Job | None = None
        self.add_many(items)

    def __len__(self) -> int:
        return len(self._slot_of)

    def __contains__(self, key: object) -> bool:
        return key in self._slot_of

    def __iter__(self) -> Iterator[Key]:
        """The keys, in the order in which they were added."""
        return iter(self._slot_of)

    def __repr__(self) -> str:
        return f"<FilterIndex of {len(self):,} filters>"

    def __getitem__(self, key: Key) -> Filter:
        """The filter under a key."""
        found = self._filters[self._slot(key)]
        if found is None:
            raise IndexKeyError(f"no filter under the key {key!r}")
        return found

    def add(self, key: Key, filter: Filter, *, group: Hashable = None) -> None:
        """Add a filter under a new key; its group is the key itself unless one is given."""
        self._tail.add(self._occupy(key, filter, group), filter)
        if len(self._tail) >= TAIL_MAX:
            self._seal()
        self._work()

    def add_many(self, items: Iterable[tuple[Any, ...]]) -> None:
        """Add `(key, filter)` or `(key, filter, group)` tuples, quicker than one by one.

        All or nothing: a key that is taken or repeated leaves the index as it was.
        """
        added: list[int] = []
        taken = list(items)
        try:
            for item in taken:
                if len(item) not in (2, 3):
                    raise TypeError(f"(key, filter) or (key, filter, group) is needed, not {item!r}")
                added.append(self._occupy(item[0], item[1], item[2] if len(item) == 3 else None))
            segment = run_to_end(self._plan(added)) if len(added) > TAIL_MAX // 4 else None
        except BaseException:
            for slot in added:
                self._vacate(slot)
            raise
        if segment is None:
            for slot, item in zip(added, taken, strict=True):
                self._tail.add(slot, item[1])
            if len(self._tail) >= TAIL_MAX:
                self._seal()
            return
        self._install(segment, added)
        self._schedule()
        for _ in added:  # as many steps as single adds would have taken
            if self._merge is None and self._sealing is None:
                break
            self._work()

    def remove(self, key: Key) -> None:
        """Remove the filter under a key."""
        slot = self._slot(key)
        home = int(self._home[slot])
        if slot in self._tail:
            self._tail.remove(slot)
            self._vacate(slot)
            return
        self._forget(slot)
        self._filters[slot] = None
        if self._sealing is not None and slot in self._full_tail:
            self._full_tail.remove(slot)
            self._sealing.removed.append(slot)
        else:
            segment = self._segments[home]
            segment.remove(slot)
            if self._merge is not None and home in self._merge.sources:
                self._merge.removed.append(slot)
            elif segment.dead == segment.size:
                self._drop(home)
            elif segment.dead * 2 > segment.size:
                self._schedule()
        self._work()

    def regroup(self, keys: Iterable[Key], group: Hashable) -> None:
        """Give filters another group: nothing is compared or built anew."""
        regroup(self, [self._slot(key) for key in keys], group)

    def match(self, attributes: Attributes) -> set[Key]:
        """The keys of the filters that a publication satisfies."""
        return self.match_batch([attributes])[0]

    def match_batch(self, batch: Iterable[Attributes]) -> list[set[Key]]:
        """One set of keys per publication."""
        asked = _sequence(batch)
        keys = self._keys
        singles = self._one_by_one(asked, SingleSlots)
        if singles is not None:
            return [_named(keys, single.slots) for single in singles]
        publications, slots = self.match_pairs(asked)
        return _sets(publications, [keys[slot] for slot in slots.tolist()], len(asked))

    def match_pairs(self, batch: Iterable[Attributes]) -> tuple[IntArray, IntArray]:
        """Every match as two arrays: publications (ascending) and slots, to be named by `key_of`."""
        asked = _sequence(batch)
        singles = self._one_by_one(asked, SingleSlots)
        if singles is not None:
            rows = np.repeat(np.arange(len(singles)), [len(single.slots) for single in singles])
            return rows, np.array([slot for single in singles for slot in single.slots], np.int64)
        publications: list[IntArray] = []
        slots: list[IntArray] = []
        for start in range(0, len(asked), BATCH_MAX):
            answer = Pairs()
            self._answer(asked[start : start + BATCH_MAX], answer)
            found, whose = answer.result()
            publications.append(found + start)
            slots.append(whose)
        if not publications:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return np.concatenate(publications), np.concatenate(slots)

    def key_of(self, slot: int) -> Key:
        """The key of a slot as returned by `match_pairs`."""
        return self._keys[slot]

    def count_batch(self, batch: Iterable[Attributes]) -> npt.NDArray[np.int64]:
        """How many filters each publication satisfies, without listing them."""
        counts = [np.zeros(0, np.int64)]
        asked = _sequence(batch)
        singles = self._one_by_one(asked, SingleSlots)
        if singles is not None:
            return np.array([len(set(single.slots)) for single in singles], np.int64)
        for start in range(0, len(asked), BATCH_MAX):
            some = asked[start : start + BATCH_MAX]
            answer = Counts(len(some))
            self._answer(some, answer)
            counts.append(answer.result())
        return np.concatenate(counts)

    def match_groups(self, batch: Iterable[Attributes]) -> list[set[Any]]:
        """The groups with at least one matching filter, one set per publication.

        Quick while every filter has a group and there are not thousands of groups; otherwise the
        matching filters are listed first.
        """
        publications = _sequence(batch)
        if len(self._groups) > MATRIX_GROUPS_MAX or self._groups.own:
            return self._groups_from_pairs(publications)
        reached = self.destinations(publications)
        if reached is not None:
            return [set(self._groups.named(bits)) for bits in reached]
        found = self.group_matrix(publications)
        rows, columns = np.nonzero(found.matrix)
        reached = [found.groups[column] for column in columns.tolist()]
        return _sets(rows, reached, len(publications))

    def group_matrix(self, batch: Iterable[Attributes]) -> GroupMatrix:
        """The same as one boolean matrix, for routers that select rows of a batch.

        Filters that were added without a group do not appear in it.
        """
        asked = _sequence(batch)
        reached = self.destinations(asked)
        if reached is not None:
            return GroupMatrix(self._groups.values(), self._groups.flags(reached))
        matrices = [np.zeros((0, len(self._groups)), np.bool_)]
        for start in range(0, len(asked), BATCH_MAX):
            some = asked[start : start + BATCH_MAX]
            answer = Destinations(len(some), len(self._groups), self._groups.used(), self._group_of_slot)
            self._answer(some, answer)
            matrices.append(answer.result())
        return GroupMatrix(self._groups.values(), np.concatenate(matrices))

    def destinations(self, asked: Sequence[Attributes]) -> list[int] | None:
        """The same as the bits of one whole number per publication; None where a matrix is quicker.

        It is quicker for more than a few publications, and for some special ones.
        """
        used, group_of_slot = self._groups.used_bits, self._group_of_slot
        singles = self._one_by_one(asked, lambda: SingleDestinations(used, group_of_slot))
        return None if singles is None else [single.reached for single in singles]

    def compact(self) -> None:
        """Finish all merging now, into a single segment (a handful of filters needs none)."""
        if self._tail and len(self) > HANDFUL:
            self._seal()
        self._finish_work()
        if len(self._segments) > 1 or any(segment.dead for segment in self._segments.values()):
            self._start_merge(list(self._segments))
            self._finish_work()

    @property
    def unfinished(self) -> bool:
        """Whether there is work for a quiet moment: merging, or filters that came one by one and could be a
        segment."""
        return self._under_way or len(self._tail) > TAIL_MAX // 4

    @property
    def _under_way(self) -> bool:
        """Whether merging is under way, of which every call does a step."""
        return self._sealing is not None or self._merge is not None

    def tidy(self) -> bool:
        """Do one more step of merging, for who has a quiet moment; returns whether there is more to do."""
        if not self._under_way and self.unfinished:
            self._seal()
        self._work()
        return self.unfinished

    def statistics(self) -> IndexStatistics:
        """What the index holds and how."""
        segments = list(self._segments.values())
        names: set[str] = set().union(*(segment.names for segment in segments))
        return IndexStatistics(
            filters=len(self),
            boxes=sum(len(segment.rows.slots) for segment in segments),
            segments=len(segments),
            blocks=sum(segment.shape[0] for segment in segments),
            tables=sum(segment.shape[1] for segment in segments),
            waiting=len(self._tail) + len(self._full_tail),
            attributes=len(names),
            bytes=self._home.nbytes + self._group_of_slot.nbytes + sum(segment.bytes for segment in segments),
        )

    # Matching.

    def _one_by_one(self, asked: Sequence[Attributes], made: Callable[[], _Single]) -> list[_Single] | None:
        """The answers for so few publications that arrays would not pay; None where they would."""
        if len(asked) > SINGLES_MAX:
            return None
        checked = checked_publications(asked)
        segments = self._segments
        if checked.ranged or not all(segment.takes_single for segment in segments.values()):
            return None
        if int in checked.types:
            check_integers(checked.publications)
        self._advance(len(asked))
        answers = []
        for attributes in checked.publications:
            answer = made()
            for segment in segments.values():
                if not answer.complete:
                    segment.match_one(attributes, answer)
            for tail in (self._full_tail, self._tail):
                if tail:
                    answer.add_slots(tail.matching(attributes))
            answers.append(answer)
        return answers

    def _answer(self, asked: Sequence[Attributes], answer: Answer) -> None:
        if not asked:
            return
        publications, ranged, types = checked_publications(asked)
        self._advance(len(publications))
        if not ranged:
            self._answer_plain(Batch(publications, types), answer)
            return
        batch = Batch(publications)
        for publication in ranged:
            for segment in self._segments.values():
                segment.match_ranged(batch, publication, answer)
            alone = Batch([publications[publication]])
            check_integers(alone.publications)
            for tail in (self._full_tail, self._tail):
                tail.evaluate(alone, Renumbered(answer, np.array([publication])))
        plain = np.setdiff1d(np.arange(len(batch)), ranged)
        if len(plain):
            self._answer_plain(Batch([publications[row] for row in plain]), Renumbered(answer, plain))

    def _answer_plain(self, batch: Batch, answer: Answer) -> None:
        for segment in self._segments.values():
            segment.match(batch, answer)
        if len(batch) <= FEW_PUBLICATIONS:
            check_integers(batch.publications)
        for tail in (self._full_tail, self._tail):
            tail.match(batch, answer)

    def _advance(self, publications: int) -> None:
        """What matching does for adding: a step of merging, and perhaps a segment of the tail."""
        if self._tail or self._full_tail:
            self._consider_sealing(publications)
        self._work()

    def _consider_sealing(self, publications: int) -> None:
        """The tail becomes a segment once comparing it has cost more than that would."""
        self._tail_cost += self._tail.cost(publications) + self._full_tail.cost(publications)
        waiting = len(self._tail) + len(self._full_tail)
        if self._tail_cost > TAIL_COST_MAX * (waiting + HANDFUL) and len(self) > HANDFUL:
            self._seal()
            self._finish_sealing()

    def _groups_from_pairs(self, batch: Sequence[Attributes]) -> list[set[Any]]:
        publications, slots = self.match_pairs(batch)
        result: list[set[Any]] = [set() for _ in batch]
        groups = self._group_of_slot[slots].tolist()
        for row, slot, group in zip(publications.tolist(), slots.tolist(), groups, strict=True):
            result[row].add(self._keys[slot] if group < 0 else self._groups.value(group))
        return result

    # Slots.

    def _slot(self, key: Key) -> int:
        slot = self._slot_of.get(key)
        if slot is None:
            raise IndexKeyError(f"no filter under the key {key!r}")
        return slot

    def _occupy(self, key: Key, filter: Filter, group: Hashable) -> int:
        if key in self._slot_of:
            raise IndexKeyError(f"the key {key!r} is taken; remove its filter first")
        if not isinstance(filter, Filter):
            raise TypeError(f"a Filter is needed under the key {key!r}, not {type(filter).__name__}")
        number = self._groups.enter(group)  # first: it refuses groups that cannot be hashed
        if self._free:
            slot = self._free.pop()
            self._keys[slot], self._filters[slot] = key, filter
        else:
            slot = len(self._keys)
            self._keys.append(key)
            self._filters.append(filter)
            if slot >= len(self._home):
                self._home = _extended(self._home)
                self._group_of_slot = _extended(self._group_of_slot)
        self._slot_of[key] = slot
        self._home[slot] = WAITING
        self._group_of_slot[slot] = number
        return slot

    def _forget(self, slot: int) -> None:
        """The key is gone; the slot stays taken while a segment knows it."""
        del self._slot_of[self._keys[slot]]
        self._keys[slot] = _NO_KEY
        self._groups.leave(int(self._group_of_slot[slot]))

    def _release(self, slot: int) -> None:
        self._filters[slot] = None
        self._home[slot] = _FREE
        self._free.append(slot)

    def _vacate(self, slot: int) -> None:
        self._forget(slot)
        self._release(slot)

    # Segments.

    def _plan(self, slots: list[int]) -> Generator[None, None, Segment]:
        return plan_segment(slots, self._filters, self._group_of_slot)

    def _install(self, segment: Segment, slots: list[int]) -> None:
        self._segments_made += 1
        self._segments[self._segments_made] = segment
        self._home[slots] = self._segments_made

    def _drop(self, number: int) -> None:
        del self._segments[number]
        for slot in np.flatnonzero(self._home == number).tolist():
            self._release(slot)

    def _seal(self) -> None:
        """Let the tail become a segment, step by step, while a new one takes its place."""
        self._finish_sealing()
        self._tail_cost = 0
        if self._tail:
            self._full_tail, self._tail = self._tail, Tail()
            slots = list(self._full_tail)
            self._sealing = _Job(slots, self._plan(slots))

    def _finish_sealing(self) -> None:
        while self._sealing is not None:
            self._work()

    def _schedule(self) -> None:
        """Start a merge if enough segments of a size have come together, or one is half empty."""
        if self._merge is not None:
            return
        tiers: dict[int, list[int]] = {}
        for number, segment in self._segments.items():
            if segment.dead * 2 > segment.size:
                self._start_merge([number])
                return
            tiers.setdefault(_tier(segment.size), []).append(number)
        for tier in sorted(tiers):
            if len(tiers[tier]) >= FANOUT:
                smaller = [number for low in tiers if low < tier for number in tiers[low]]
                self._start_merge(tiers[tier] + smaller)
                return
        # Several segments that one tail could have been cost several times as much as one.
        small = [number for number, segment in self._segments.items() if segment.size < TAIL_MAX]
        if len(small) > 1:
            self._start_merge(small)

    def _start_merge(self, numbers: list[int]) -> None:
        members = np.flatnonzero(np.isin(self._home[: len(self._keys)], numbers)).tolist()
        slots = [slot for slot in members if self._keys[slot] is not _NO_KEY]
        self._merge = _Job(slots, self._plan(slots), sources=numbers)

    def _work(self) -> None:
        """One bounded step of what is under way."""
        job = self._sealing or self._merge
        if job is None:
            return
        try:
            next(job.work)
        except StopIteration as done:
            self._finish(job, done.value)
        except BaseException:
            job.work = self._plan(job.slots)  # a generator that was interrupted cannot go on
            raise

    def _finish_work(self) -> None:
        while self._under_way:
            self._work()

    def _finish(self, job: _Job, made: Segment) -> None:
        if job is self._sealing:
            self._sealing = None
            self._full_tail = Tail()
        else:
            self._merge = None
        self._install(made, job.slots)
        if job.regrouped:
            made.regroup(job.regrouped, self._group_of_slot)
        for slot in job.removed:
            made.remove(slot)
        for number in job.sources:
            self._drop(number)
        if made.dead == made.size:
            self._drop(self._segments_made)
        self._schedule()


def _sequence(batch: Iterable[Attributes]) -> Sequence[Attributes]:
    if isinstance(batch, Mapping):
        raise TypeError("a batch is a list of publications; for a single one use match")
    return batch if isinstance(batch, Sequence) else list(batch)


def _sets(rows: IntArray, found: list[Any], count: int) -> list[set[Any]]:
    """One set per publication from what was found for ascending rows."""
    ends = np.searchsorted(rows, np.arange(count + 1)).tolist()
    return [set(found[ends[row] : ends[row + 1]]) for row in range(count)]


def _named(keys: Sequence[Any], slots: list[int]) -> set[Any]:
    """The keys of slots."""
    if len(slots) < 2:
        return {keys[slot] for slot in slots}
    return set(itemgetter(*slots)(keys))


def run_to_end(work: Generator[None, None, Segment]) -> Segment:
    """The segment, with all steps of the work done at once."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            segment: Segment = done.value
            return segment


def _extended(array: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    return np.concatenate([array, np.zeros(max(64, len(array) // 4), np.int32)])


def _tier(size: int) -> int:
    """Segments in one tier differ in size by less than the fan-out."""
    return int(math.log(max(size, 1), FANOUT))

"""How do many routers in one process match a publication only once?

In a simulated network a publication passes many brokers, and each would ask its own index. `SharedMatching`
keeps the filters of all of them, equal ones once, and answers once per publication which of them match. The
answer travels with the publication as its *memo*; a broker's part is to find those of its destinations
that hold one of the matching filters. What comes out is what each broker would have found by itself.

An answer is a whole number with one bit per filter, and a destination is the number of its own filters, so
that `answer & destination` decides. Filters get their bits in the order of their arrival. An answer remembers
how many there were, and is completed when it meets filters that came later.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from braid.errors import IndexKeyError, PublicationError
from braid.matching.groups import Groups
from braid.matching.index import FilterIndex, GroupMatrix
from braid.matching.matcher import reached_by, require_possible

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from braid.language.filters import Filter
    from braid.language.values import Value
    from braid.matching.matcher import Publications, Reached

__all__ = ["SharedMatching", "SharedView"]

# An answer that lacks up to so many filters is completed one by one; otherwise all are asked again.
LATE_MAX = 16
# Bits of filters that are gone: with more of them than filters, and at least so many, all get new bits.
GONE_MIN = 1024
# Publications that come without a memo, as through a codec, are recognised among the last so many at least.
REMEMBERED_MAX = 8192
# So many answers are shared by publications that match the same filters.
ANSWERS_MAX = 65_536
# So many findings are kept by each broker, some hundred bytes each.
FINDINGS_MAX = 512
# Publications are matched in chunks with at most so many cells of one with a filter.
CELLS_MAX = 2**24


class _Interned:
    """A filter, once for all who hold it."""

    __slots__ = ("filter", "holders", "number")

    def __init__(self, filter: Filter, number: int) -> None:
        self.filter = filter
        self.number = number
        self.holders = 0


class _Answer:
    """Which filters a publication matches. Those with the same matches share one."""

    __slots__ = ("bits", "known")

    def __init__(self, bits: int, known: int) -> None:
        self.bits = bits
        self.known = known
        """Filters with numbers below this were asked."""


class SharedMatching:
    """The filters of all brokers of one process.

    >>> from braid.language.filters import Filter
    >>> shared = SharedMatching()
    >>> north, south = shared.view("north"), shared.view("south")
    >>> north.add_many([("s1", Filter("price > 10"), "alice")])
    >>> south.add_many([("s1", Filter("price > 10"), "north"), ("s2", Filter("price > 99"), "bob")])
    >>> shared.filters
    2
    >>> [group for group, _ in reached_by(south.group_matrix([{"price": 12}]))]
    ['north']
    """

    def __init__(self) -> None:
        self._interned: dict[str, _Interned] = {}
        self._index: FilterIndex[_Interned] = FilterIndex()
        self._views: dict[str, SharedView] = {}
        self._first = 0
        """The number of the filter that the lowest bit stands for."""
        self.known = 0
        """The number that the next filter gets. Whoever knows as many has asked all filters."""
        self._answers: dict[int, _Answer] = {}
        self._remembered: dict[bytes, _Answer] = {}
        self._remembered_before: dict[bytes, _Answer] = {}

    @property
    def filters(self) -> int:
        """How many different filters there are."""
        return len(self._interned)

    def view(self, name: str) -> SharedView:
        """The matcher of one broker. A broker that is started again gets a new one for the old."""
        former = self._views.pop(name, None)
        if former is not None:
            former.clear()
        view = self._views[name] = SharedView(self)
        return view

    def prepare(self, batches: Iterable[Publications]) -> None:
        """Match publications that are about to be sent, many at once, and give them their memos.

        It saves time and changes nothing: one that is not prepared is matched where it first arrives. A
        publication is also recognised by its bytes, so that what others will send can be prepared too: as
        rows of any batch, some thousands ahead.
        """
        waiting = [batch for batch in batches if batch.memo is None]
        try:
            attributes = [values for batch in waiting for values in batch.attributes()]
            answers = self.fresh(attributes)
        except PublicationError:
            for batch in waiting:
                with suppress(PublicationError):  # the broker where it arrives says what is wrong with it
                    self._note(batch, self.fresh(batch.attributes()))
            return
        first = 0
        for batch in waiting:
            self._note(batch, answers[first : first + len(batch)])
            first += len(batch)

    # For the views.

    def intern(self, filter: Filter) -> _Interned:
        """The filter's only copy; one more holds it."""
        text = str(filter)
        interned = self._interned.get(text)
        if interned is None:
            interned = self._interned[text] = _Interned(filter, self.known)
            self._index.add(interned, filter)
            self.known += 1
            self._answers.clear()  # they lack this filter
        interned.holders += 1
        return interned

    def release(self, interned: _Interned) -> None:
        """One fewer holds it."""
        interned.holders -= 1
        if interned.holders:
            return
        del self._interned[str(interned.filter)]
        self._index.remove(interned)
        used = self.known - self._first
        if used > 2 * len(self._interned) + GONE_MIN:
            self._renumber()

    def bit(self, interned: _Interned) -> int:
        """The number that stands for a filter in answers and destinations."""
        return 1 << interned.number - self._first

    def _renumber(self) -> None:
        """Give all filters new bits; answers from before are worth nothing then."""
        self._first = self.known + 1
        for number, interned in enumerate(self._interned.values(), self._first):
            interned.number = number
        self.known = self._first + len(self._interned)
        self._answers.clear()
        self._remembered, self._remembered_before = {}, {}
        for view in self._views.values():
            view.rebuild()

    def one(self, batch: Publications) -> _Answer:
        """The answer for a batch of one row."""
        return self.rows(batch)[0]

    def rows(self, batch: Publications) -> Sequence[_Answer]:
        """The answers for all rows of a batch, which become its memo."""
        carried = self._carried(batch)
        answers = [answer for answer in carried if answer is not None and answer.known == self.known]
        if len(answers) < len(batch):
            attributes = batch.attributes()
            completed = list(map(self._completed, carried, attributes))
            answers = [answer for answer in completed if answer is not None]
            if len(answers) < len(batch):
                answers = self.fresh(attributes)
        self._note(batch, answers)
        return answers

    def fresh(self, attributes: Sequence[Mapping[str, Value | None]]) -> list[_Answer]:
        """Ask all filters."""
        require_possible(attributes)
        size = max(1, CELLS_MAX // (self.known - self._first + 1))
        answers: list[_Answer] = []
        for start in range(0, len(attributes), size):
            answers += self._chunk(attributes[start : start + size])
        return answers

    def _chunk(self, attributes: Sequence[Mapping[str, Value | None]]) -> list[_Answer]:
        rows, slots = self._index.match_pairs(attributes)
        matched = np.zeros((len(attributes), self.known - self._first), np.bool_)
        if len(rows):
            some, places = np.unique(slots, return_inverse=True)
            numbers = np.array([self._index.key_of(slot).number for slot in some.tolist()])
            matched[rows, (numbers - self._first)[places]] = True
        octets = np.packbits(matched, axis=1, bitorder="little")
        return [self._answer(int.from_bytes(row.tobytes(), "little")) for row in octets]

    def _completed(self, answer: _Answer | None, attributes: Mapping[str, Value | None]) -> _Answer | None:
        """The answer with the filters that came after it; None if it is too old for that."""
        if answer is None or answer.known < self._first or self.known - answer.known > LATE_MAX:
            return None
        if answer.known == self.known:
            return answer
        bits = answer.bits
        for interned in reversed(self._interned.values()):
            if interned.number < answer.known:
                break
            if interned.filter.matches(attributes):
                bits |= self.bit(interned)
        return self._answer(bits)

    def _answer(self, bits: int) -> _Answer:
        answer = self._answers.get(bits)
        if answer is None:
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.clear()
            answer = self._answers[bits] = _Answer(bits, self.known)
        return answer

    def _carried(self, batch: Publications) -> Sequence[_Answer | None]:
        """What is known already of each row."""
        memo: Any = batch.memo
        if memo is None:
            before = self._remembered_before
            return [self._remembered.get(record) or before.get(record) for record in batch.records()]
        return [memo] if type(memo) is _Answer else memo

    def _note(self, batch: Publications, answers: Sequence[_Answer]) -> None:
        if batch.memo is None:
            if len(self._remembered) > REMEMBERED_MAX:
                self._remembered_before, self._remembered = self._remembered, {}
            self._remembered.update(zip(batch.records(), answers, strict=True))
        batch.memo = answers[0] if len(answers) == 1 else answers


class SharedView:
    """One broker's matcher: its destinations, and which of the shared filters each of them holds."""

    __slots__ = ("_bits", "_entries", "_findings", "_groups", "_keys_of", "_others", "_shared")

    def __init__(self, shared: SharedMatching) -> None:
        self._shared = shared
        self._entries: dict[str, tuple[_Interned, int]] = {}
        self._groups = Groups()
        self._bits: list[int] = []
        """By the number of a destination, its filters."""
        self._keys_of: dict[tuple[_Interned, int], int] = {}
        """How many keys a destination has for a filter."""
        self._findings: dict[_Answer, Reached] = {}
        self._others: list[SharedView] = []
        """Further views of the same broker."""

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def add_many(self, items: Iterable[tuple[str, Filter, Hashable]]) -> None:
        """Add keys with their filters and destinations."""
        self._findings.clear()
        for key, filter, group in items:
            if key in self._entries:
                raise IndexKeyError(f"the key {key!r} is taken; remove its filter first")
            self._enter(key, self._shared.intern(filter), group)

    def remove(self, key: str) -> None:
        """Remove the filter under a key."""
        if key not in self._entries:
            raise IndexKeyError(f"no filter under the key {key!r}")
        self._findings.clear()
        self._shared.release(self._leave(self._entries.pop(key)))

    def regroup(self, keys: Iterable[str], group: Hashable) -> None:
        """The filters under these keys are for another destination."""
        self._findings.clear()
        for key in keys:
            former = self._entries[key]
            self._enter(key, former[0], group)
            self._leave(former)

    def _enter(self, key: str, interned: _Interned, group: Hashable) -> None:
        number = self._groups.enter(group)
        entry = self._entries[key] = (interned, number)
        if number == len(self._bits):
            self._bits.append(0)
        self._bits[number] |= self._shared.bit(interned)
        self._keys_of[entry] = self._keys_of.get(entry, 0) + 1

    def _leave(self, entry: tuple[_Interned, int]) -> _Interned:
        """A destination has one key fewer for a filter."""
        interned, number = entry
        self._keys_of[entry] -= 1
        if not self._keys_of[entry]:
            del self._keys_of[entry]
            self._bits[number] &= ~self._shared.bit(interned)
        self._groups.leave(number)
        return interned

    def clear(self) -> None:
        """Remove everything."""
        for key in list(self._entries):
            self.remove(key)
        for other in self._others:
            other.clear()

    def another(self) -> SharedView:
        """An empty view for some of the same broker's filters."""
        view = SharedView(self._shared)
        self._others.append(view)
        return view

    def rebuild(self) -> None:
        """The filters have new bits."""
        self._findings.clear()
        self._bits = [0] * len(self._bits)
        for interned, number in self._keys_of:
            self._bits[number] |= self._shared.bit(interned)
        for other in self._others:
            other.rebuild()

    def reached(self, batches: Sequence[Publications]) -> Reached:
        """Who wants which rows, counted through all batches."""
        if len(batches) == 1 and len(batches[0]) == 1:
            answer = batches[0].memo
            if answer is None or answer.known != self._shared.known:
                answer = self._shared.one(batches[0])
            found = self._findings.get(answer)
            return self._found(answer) if found is None else found
        answers = [answer for batch in batches for answer in self._shared.rows(batch)]
        return reached_by(self._matrix(answers))

    def check(self, batches: Sequence[Publications]) -> None:
        """Raise a `PublicationError` for a value that no publication can have."""
        for batch in batches:
            if batch.memo is None:  # otherwise somebody has matched it
                require_possible(batch.attributes())

    def group_matrix(self, batch: Iterable[Mapping[str, Value | None]]) -> GroupMatrix:
        """Who wants which of these publications, as a matrix."""
        return self._matrix(self._shared.fresh(list(batch)))

    @property
    def unfinished(self) -> bool:
        """Always False: the merging of the shared index goes on as it is asked."""
        return False

    def tidy(self) -> bool:
        """There is nothing to do."""
        return False

    def _found(self, answer: _Answer) -> Reached:
        if len(self._findings) >= FINDINGS_MAX:
            self._findings.clear()
        bits = answer.bits
        found = [(self._groups.value(number), None) for number, held in enumerate(self._bits) if held & bits]
        self._findings[answer] = found
        return found

    def _matrix(self, answers: Sequence[_Answer]) -> GroupMatrix:
        wanted = [[bool(held & answer.bits) for held in self._bits] for answer in answers]
        matrix = np.array(wanted, np.bool_).reshape(len(answers), len(self._bits))
        return GroupMatrix(self._groups.values(), matrix)

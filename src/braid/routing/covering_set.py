"""What has one neighbour been told, and what is hidden behind it?

A filter need not travel to a neighbour that already knows one which covers it: whatever the hidden one
wants arrives because of the other. Filters with the same canonical text are one *form*, so the very
common case of equal filters under many keys costs a look into a dictionary.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from braid.errors import LocalProtocolError
from braid.language.covering import Steps
from braid.matching.index import FilterIndex
from braid.routing.witness import witnesses

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from braid.language.filters import Filter
    from braid.language.values import Scalar

    Probe: TypeAlias = list[dict[str, Scalar]]

__all__ = ["REVEALED_AT_ONCE", "Change", "CoveringSet", "Removal"]

# So many forms are placed at a time, enough for arrays to pay; fewer when so many forms are told that,
# if all of them accepted all witnesses, there would be more pairs than a few hundred megabytes hold.
CHUNK = 1024
CHUNK_MIN = 64
PAIRS_MAX = 2**24
# So many candidates are asked whether they cover a form. Opposite corners leave few that do not; past
# this the form is told, which is always safe.
CANDIDATES_MAX = 64
# And so much may be spent on all of them together: a few milliseconds. Filters written by people take a
# handful of steps; unions of hundreds of boxes are told if this does not decide it.
STEPS_MAX = 1_000
# So many hidden filters are revealed when the one that hides them goes. If there are more, it stays told for
# a while, and they are revealed step by step: nobody waits long, and meanwhile the neighbour may send too
# much, never too little.
REVEALED_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class Removal:
    """What the removal of one filter means for the neighbour."""

    told: bool
    """Whether the neighbour knew it, and must hear that it is gone."""
    revealed: list[str]
    """What must be told first, because the removed one hid it."""


@dataclass(frozen=True, slots=True)
class Change:
    """What several removals and additions together mean for the neighbour."""

    told: list[str]
    """To be told, in this order: what was hidden by a removed filter, then what was added."""
    untold: list[str]
    """Known to the neighbour until now. A key that is in `told` as well has got another filter."""


class _Form:
    """All filters of one meaning. Either one of its keys is told, or it is hidden by another form."""

    __slots__ = ("filter", "hidden", "hider", "keys", "number", "retiring", "told", "told_number")

    def __init__(self, filter: Filter, number: int) -> None:
        self.filter = filter
        self.number = number
        self.keys: dict[str, None] = {}
        self.told: str | None = None
        self.told_number = 0
        """Rises in the order of telling; of several that cover a form, the first one told hides it."""
        self.hider: _Form | None = None
        self.hidden: dict[_Form, None] = {}
        self.retiring = False
        """Whether all its keys are gone, and it is told only until what it hides is revealed."""

    @property
    def known_as(self) -> str | None:
        """The told key that stands for this form."""
        return self.told if self.hider is None else self.hider.told


class CoveringSet:
    """Filters under keys, of which a neighbour is told as few as cover the others.

    >>> from braid.language.filters import Filter
    >>> known = CoveringSet()
    >>> known.add("wide", Filter("price > 10"))
    >>> known.add("narrow", Filter("price > 20"))
    'wide'
    >>> known.remove("wide")
    Removal(told=True, revealed=['narrow'])

    What was told stays told when something wider comes later: taking it back would cost a message,
    and the neighbour hides it from its own neighbours. A filter that only a union of several others
    covers is told. With residual conditions more may be told than needed, never less.
    """

    def __init__(self) -> None:
        self._forms: dict[str, _Form] = {}
        self._form_of: dict[str, _Form] = {}
        self._index: FilterIndex[_Form] = FilterIndex()
        """The told forms, in the order in which they were told."""
        self._number_last = 0
        self._told_number_last = 0
        self._retiring: dict[str, _Form] = {}
        """By the key under which they are still told."""

    def __len__(self) -> int:
        return len(self._form_of)

    def __contains__(self, key: object) -> bool:
        return key in self._form_of

    def __iter__(self) -> Iterator[str]:
        """All keys, told and hidden, in the order in which they were added."""
        return iter(self._form_of)

    @property
    def told_count(self) -> int:
        """How many filters the neighbour knows, but for those that are about to go."""
        return len(self._index) - len(self._retiring)

    @property
    def retiring(self) -> Iterable[str]:
        """Keys that are gone, and told until what they hide is revealed."""
        return self._retiring

    @property
    def unfinished(self) -> bool:
        """Whether there is something left for `step`."""
        return bool(self._retiring)

    def hides_many(self, key: str) -> bool:
        """Whether much would have to be revealed at once if this key meant something else from now on."""
        form = self._retiring.get(key) or self._form_of.get(key)
        return form is not None and form.told == key and len(form.hidden) > REVEALED_AT_ONCE

    def told(self) -> list[tuple[str, Filter]]:
        """Everything the neighbour knows."""
        return [(form.told, form.filter) for form in self._index if form.told is not None]

    def told_filter(self, key: str) -> Filter | None:
        """What the neighbour knows under a key; None if nothing."""
        form = self._retiring.get(key) or self._form_of.get(key)
        return form.filter if form is not None and form.told == key else None

    def coverer(self, key: str) -> str | None:
        """The key itself if it was told, otherwise the one that hides it; None for an unknown key."""
        form = self._form_of.get(key)
        return None if form is None else form.known_as

    def filter_of(self, key: str) -> Filter:
        """The filter under a key, or an equal one."""
        return self._form_of[key].filter

    def add(self, key: str, filter: Filter) -> str | None:
        """None if the neighbour must be told now, otherwise the told key that covers the filter."""
        return self.add_many([(key, filter)])[0]

    def add_many(self, items: Sequence[tuple[str, Filter]]) -> list[str | None]:
        """The same as adding one by one, with far less work for each."""
        self.change((), items)
        known_as = [self.coverer(key) for key, _ in items]
        return [
            None if coverer == key else coverer for (key, _), coverer in zip(items, known_as, strict=True)
        ]

    def remove(self, key: str) -> Removal:
        """Take a filter away; what only it covered must be told in its place."""
        change = self.change([key], [])
        return Removal(bool(change.untold), change.told)

    def change(
        self, removed: Iterable[str], added: Sequence[tuple[str, Filter]], again: Container[str] = ()
    ) -> Change:
        """Remove and add at once, so that nothing is revealed which another removal or addition settles.

        A removed key may be added again with another filter, here or (`again`) elsewhere. One that is not may
        stay told for a while if it hides much: `step` goes on with that.
        """
        new = {key for key, _ in added}
        untold: list[str] = []
        touched: dict[_Form, None] = {}
        for key in removed:
            form = self._form_of.pop(key)
            del form.keys[key]
            touched[form] = None
            if form.told != key:
                continue
            if form.keys or len(form.hidden) <= REVEALED_AT_ONCE or key in new or key in again:
                form.told = None
                untold.append(key)
            else:
                form.retiring = True
                self._retiring[key] = form
        unhidden = self._finish_early(new, untold)
        fresh = self._entered(added)
        heirs, orphans = self._settle(touched)
        orphans = sorted(orphans + unhidden, key=lambda form: form.number)
        self._place(fresh)
        self._inherit(heirs)
        self._place(orphans)
        revealed = sorted(heirs + orphans, key=lambda form: form.number)
        told = [form.told for form in revealed if form.told is not None]
        already = set(told)
        told += [key for key, _ in added if self._form_of[key].told == key and key not in already]
        return Change(told, untold + self._retired())

    def finish(self, key: str) -> Change:
        """Reveal at once what a key hides that is still told though it is gone."""
        untold: list[str] = []
        orphans = self._finish_early({key}, untold)
        self._place(orphans)
        return Change([form.told for form in orphans if form.told is not None], untold)

    def step(self, forms_max: int) -> Change:
        """Reveal so many of those that a filter hides which is gone; it is untold after the last of them."""
        orphans: list[_Form] = []
        for form in self._retiring.values():
            for orphan in list(islice(form.hidden, forms_max - len(orphans))):
                del form.hidden[orphan]
                orphan.hider = None
                orphans.append(orphan)
        self._place(orphans)
        return Change([form.told for form in orphans if form.told is not None], self._retired())

    def _finish_early(self, keys: Container[str], untold: list[str]) -> list[_Form]:
        """What is hidden by forms that are told under these keys and gone: they cannot wait."""
        unhidden: list[_Form] = []
        for key in [key for key in self._retiring if key in keys]:
            form = self._retiring[key]
            for orphan in form.hidden:
                orphan.hider = None
                unhidden.append(orphan)
            form.hidden = {}
            untold += self._retired()
        return unhidden

    def _retired(self) -> list[str]:
        """The keys of those that hide nothing any more; they go now."""
        keys = [key for key, form in self._retiring.items() if not form.hidden]
        for key in keys:
            self._index.remove(self._retiring.pop(key))
        return keys

    def _entered(self, items: Sequence[tuple[str, Filter]]) -> list[_Form]:
        """Note the keys; the forms that are new wait to be placed."""
        fresh: list[_Form] = []
        for key, filter in items:
            if key in self._form_of:
                raise LocalProtocolError(f"the key {key!r} is taken; remove its filter first")
            text = str(filter)
            form = self._forms.get(text)
            if form is None:
                self._number_last += 1
                form = self._forms[text] = _Form(filter, self._number_last)
                fresh.append(form)
            form.keys[key] = None
            self._form_of[key] = form
        return fresh

    def _settle(self, touched: Iterable[_Form]) -> tuple[list[_Form], list[_Form]]:
        """After keys were taken away: the heirs and the orphans, in the order of insertion.

        An heir was told and has other keys left, so it can go on hiding what it hid. Orphans were hidden
        by a form that has no keys left.
        """
        heirs: list[_Form] = []
        orphans: dict[_Form, None] = {}
        for form in touched:
            if form.keys:
                if form.told is None and form in self._index:
                    heirs.append(form)
                continue
            del self._forms[str(form.filter)]
            if form.hider is not None:
                form.hider.hidden.pop(form, None)
                continue
            if form.retiring:
                continue
            self._index.remove(form)
            for orphan in form.hidden:
                if orphan.keys:
                    orphan.hider = None
                    orphans[orphan] = None
        return sorted(heirs, key=lambda form: form.number), sorted(orphans, key=lambda form: form.number)

    def _inherit(self, heirs: Sequence[_Form]) -> None:
        """Tell each heir under its next key, unless something that was told later is wider."""
        candidates = _candidates(self._index, {form: witnesses(form.filter) for form in heirs})
        for form in heirs:
            # An heir before this one may have been hidden, and hides nothing now.
            others = [each for each in candidates[form] if each is not form and each in self._index]
            if not _hide(form, others):
                form.told = next(iter(form.keys))
                continue
            self._index.remove(form)
            for hidden in form.hidden:
                hidden.hider = form.hider
            if form.hider is not None:
                form.hider.hidden.update(form.hidden)
            form.hidden = {}

    def _place(self, forms: Sequence[_Form]) -> None:
        """Tell or hide each of the forms, as if one after the other."""
        placed = 0
        while placed < len(forms):
            size = min(CHUNK, max(CHUNK_MIN, PAIRS_MAX // (2 * len(self._index) + 1)))
            chunk = forms[placed : placed + size]
            placed += size
            probes = {form: witnesses(form.filter) for form in chunk}
            candidates = _candidates(self._index, probes)
            remaining = [form for form in chunk if not _hide(form, candidates[form])]
            self._tell({form: probes[form] for form in remaining})

    def _tell(self, probes: Mapping[_Form, Probe]) -> None:
        """Tell what no told form covers, except where an earlier one of these does."""
        if len(probes) > 1:
            # All are candidates for each other, but only those before a form, and told, may hide it.
            candidates = _candidates(FilterIndex((form, form.filter) for form in probes), probes)
        else:
            candidates = {form: [] for form in probes}
        told: dict[_Form, None] = {}
        for form in probes:
            if not _hide(form, [other for other in candidates[form] if other in told]):
                form.told = next(iter(form.keys))
                self._told_number_last += 1
                form.told_number = self._told_number_last
                told[form] = None
        self._index.add_many((form, form.filter) for form in told)


def _hide(form: _Form, candidates: Iterable[_Form]) -> bool:
    """Hide the form behind the first candidate that covers it, if one does."""
    lasting = [each for each in candidates if not each.retiring]
    steps = Steps(STEPS_MAX)
    for candidate in sorted(lasting, key=lambda each: each.told_number)[:CANDIDATES_MAX]:
        if candidate.filter.covers(form.filter, steps=steps):
            form.hider = candidate
            candidate.hidden[form] = None
            return True
    return False


def _candidates(index: FilterIndex[_Form], probes: Mapping[_Form, Probe]) -> dict[_Form, list[_Form]]:
    """For each form the indexed ones that accept all of its witnesses, in one pass over the index."""
    found: dict[_Form, list[_Form]] = {form: [] for form in probes}
    batch = [witness for probe in probes.values() for witness in probe]
    if not batch or not len(index):
        return found
    needed = np.array([len(probe) for probe in probes.values()])
    rows, slots = index.match_pairs(batch)
    if not len(rows):
        return found
    owners = np.repeat(np.arange(len(probes)), needed)[rows]
    span = int(slots.max()) + 1
    pairs, counts = np.unique(owners * span + slots, return_counts=True)
    pairs = pairs[counts == needed[pairs // span]]
    forms = list(probes)
    for owner, slot in zip((pairs // span).tolist(), (pairs % span).tolist(), strict=True):
        found[forms[owner]].append(index.key_of(slot))
    return found

"""Does a neighbour know just enough? Compared with a plain twin that looks at every pair."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from braid.errors import LocalProtocolError
from braid.language import Filter
from braid.language.covering import Steps
from braid.routing import CoveringSet, Removal, covering_set
from braid.routing.covering_set import STEPS_MAX
from braid.routing.witness import witnesses
from tests.language.strategies import filter_texts
from tests.routing.helpers import all_filters, box_filters, has_residual


class PlainForm:
    def __init__(self, filter: Filter) -> None:
        self.filter = filter
        self.keys: list[str] = []
        self.told: str | None = None
        self.told_at = 0
        self.hider: PlainForm | None = None


class PlainCoveringSet:
    """The rules, without any haste."""

    def __init__(self) -> None:
        self.forms: list[PlainForm] = []  # in the order of insertion
        self.told_last = 0

    def form_of(self, key: str) -> PlainForm:
        return next(form for form in self.forms if key in form.keys)

    def coverer(self, key: str) -> str | None:
        form = self.form_of(key)
        return form.told if form.hider is None else form.hider.told

    def add(self, key: str, filter: Filter) -> str | None:
        form = next((form for form in self.forms if form.filter == filter), None)
        if form is None:
            form = PlainForm(filter)
            form.keys.append(key)
            self.place(form, [other for other in self.forms if other.told])
            self.forms.append(form)
        else:
            form.keys.append(key)
        return None if form.told == key else self.coverer(key)

    def remove(self, key: str) -> Removal:
        form = self.form_of(key)
        form.keys.remove(key)
        if form.told != key:
            if not form.keys:
                self.forms.remove(form)
            return Removal(False, [])
        if form.keys:
            form.told = None
            self.place(form, [other for other in self.forms if other.told])
            if form.told:
                return Removal(True, [form.told])
            for other in self.forms:
                if other.hider is form:
                    other.hider = form.hider
            return Removal(True, [])
        self.forms.remove(form)
        known = [other for other in self.forms if other.told]
        orphans = [other for other in self.forms if other.hider is form]
        for orphan in orphans:
            orphan.hider = None
            orphan.told_at = 0
            self.place(orphan, known + [other for other in orphans if other.told])
        return Removal(True, [orphan.told for orphan in orphans if orphan.told])

    def place(self, form: PlainForm, candidates: list[PlainForm]) -> None:
        covering = [other for other in candidates if other.filter.covers(form.filter)]
        if covering and form.filter.satisfiable:
            form.hider = min(covering, key=lambda other: other.told_at)
            return
        form.told = form.keys[0]
        if not form.told_at:
            self.told_last += 1
            form.told_at = self.told_last


class CoveringMachine(RuleBasedStateMachine):
    """Any sequence of additions and removals of filters made of boxes gives what the twin gives."""

    def __init__(self) -> None:
        super().__init__()
        self.quick = CoveringSet()
        self.plain = PlainCoveringSet()
        self.keys: list[str] = []
        self.made = 0

    def fresh(self, filter: Filter) -> tuple[str, Filter]:
        self.made += 1
        return f"k{self.made}", filter

    @initialize(chunk=st.sampled_from([2, 3, 1024]))
    def size(self, chunk: int) -> None:
        covering_set.CHUNK = chunk

    def teardown(self) -> None:
        covering_set.CHUNK = 1024

    @rule(filters=st.lists(box_filters, max_size=8))
    def add_many(self, filters: list[Filter]) -> None:
        items = [self.fresh(filter) for filter in filters]
        assert self.quick.add_many(items) == [self.plain.add(key, filter) for key, filter in items]
        self.keys += [key for key, _ in items]

    @rule(filter=box_filters)
    def add(self, filter: Filter) -> None:
        key, _ = self.fresh(filter)
        assert self.quick.add(key, filter) == self.plain.add(key, filter)
        self.keys.append(key)

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.keys:
            key = data.draw(st.sampled_from(self.keys))
            self.keys.remove(key)
            assert self.quick.remove(key) == self.plain.remove(key)

    @invariant()
    def same_coverers(self) -> None:
        assert sorted(self.quick) == sorted(self.keys)
        assert [self.quick.coverer(key) for key in self.keys] == [
            self.plain.coverer(key) for key in self.keys
        ]
        told = dict(self.quick.told())
        assert told == {form.told: form.filter for form in self.plain.forms if form.told}
        assert self.quick.told_count == len(told)


TestCovering = CoveringMachine.TestCase
TestCovering.settings = settings(max_examples=150, stateful_step_count=30)


@given(filters=st.lists(all_filters, max_size=20), removals=st.lists(st.integers(0, 19), max_size=10))
def test_with_residuals_everything_is_told_or_really_covered(
    filters: list[Filter], removals: list[int]
) -> None:
    known = CoveringSet()
    known.add_many([(f"k{row}", filter) for row, filter in enumerate(filters)])
    left = dict(enumerate(filters))
    for row in removals:
        if left.pop(row, None) is not None:
            known.remove(f"k{row}")
    told = dict(known.told())
    for row, filter in left.items():
        assert told[known.coverer(f"k{row}") or ""].covers(filter)


@given(
    first=st.lists(all_filters, max_size=8),
    second=st.lists(all_filters, max_size=8),
    chosen=st.sets(st.integers(0, 7)),
)
def test_a_change_at_once_tells_exactly_the_difference(
    first: list[Filter], second: list[Filter], chosen: set[int]
) -> None:
    known = CoveringSet()
    known.add_many([(f"k{row}", filter) for row, filter in enumerate(first)])
    before = dict(known.told())
    removed = [f"k{row}" for row in sorted(chosen) if row < len(first)]
    # Some of the removed keys come back with another filter.
    added = [(key, filter) for key, filter in zip(removed, second, strict=False)]
    added += [(f"n{row}", filter) for row, filter in enumerate(second[len(removed) :])]
    change = known.change(removed, added)
    after = dict(known.told())
    assert change.untold == [key for key in removed if key in before]
    assert len(set(change.told)) == len(change.told)
    kept = {key: filter for key, filter in before.items() if key not in removed}
    assert after == kept | {key: known.filter_of(key) for key in change.told}
    for key in known:
        assert after[known.coverer(key) or ""].covers(known.filter_of(key))


def test_an_equal_filter_takes_over_and_goes_on_hiding() -> None:
    known = CoveringSet()
    assert known.add("wide", Filter("price > 10")) is None
    assert known.add("narrow", Filter("price > 20")) == "wide"
    assert known.add("twin", Filter("NOT price <= 10")) == "wide"
    assert known.remove("wide") == Removal(True, ["twin"])
    assert known.coverer("narrow") == "twin"
    assert known.remove("twin") == Removal(True, ["narrow"])


def test_an_equal_filter_is_not_needed_behind_a_wider_one() -> None:
    known = CoveringSet()
    known.add_many([(str(row), Filter(text)) for row, text in enumerate(["a > 1", "a > 1", "a > 2", "TRUE"])])
    assert known.remove("0") == Removal(True, [])
    assert [known.coverer(key) for key in "123"] == ["3", "3", "3"]


def test_a_revealed_filter_may_hide_a_later_one() -> None:
    known = CoveringSet()
    known.add_many([(text, Filter(text)) for text in ("a > 0", "a > 1", "a > 3", "b = 1", "a > 2")])
    assert known.remove("a > 0") == Removal(True, ["a > 1"])
    assert known.coverer("a > 3") == "a > 1"


def test_a_key_is_used_once() -> None:
    known = CoveringSet()
    known.add("k", Filter("a > 1"))
    with pytest.raises(LocalProtocolError, match="'k' is taken"):
        known.add("k", Filter("a > 2"))
    assert known.coverer("another") is None


def test_hundreds_of_filters_agree_with_adding_one_by_one() -> None:
    texts = [f"s = 'w{row % 7}' AND a > {row * 37 % 101}" for row in range(600)]
    items = [(f"k{row}", Filter(text)) for row, text in enumerate(texts)]
    together, single, plain = CoveringSet(), CoveringSet(), PlainCoveringSet()
    assert together.add_many(items) == [single.add(key, filter) for key, filter in items]
    assert single.told() == together.told()
    assert [plain.add(key, filter) for key, filter in items[:150]] == [
        None if single.coverer(key) == key else single.coverer(key) for key, _ in items[:150]
    ]


@given(wider=filter_texts(), narrower=filter_texts())
@example(wider="s > 1", narrower="s NOT IN (-0.0)")
@example(wider="s > 1", narrower="s < 0.0")
def test_whatever_covers_a_filter_accepts_its_witnesses(wider: str, narrower: str) -> None:
    f, either = Filter(narrower), Filter(f"({wider}) OR ({narrower})")
    for witness in witnesses(f):
        if not has_residual(f):
            assert f.matches(witness)
            assert either.matches(witness)
    assert bool(witnesses(f)) == f.satisfiable


def test_unions_of_many_boxes_are_not_compared_at_length(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = 0
    spend = Steps.spend

    def count(self: Steps, steps: int) -> None:
        nonlocal spent
        spent += steps
        spend(self, steps)

    monkeypatch.setattr(Steps, "spend", count)
    known = CoveringSet()
    for count_of_boxes in (80, 300):
        boxes = [f"(a{number} = {number} AND b < {number})" for number in range(count_of_boxes)]
        known.add(str(count_of_boxes), Filter(" OR ".join(boxes)))
    # A question may go a little beyond what is left before it ends.
    assert spent < 2 * 2 * STEPS_MAX
    assert known.told_count == 2

"""Does shared matching find what each broker would find by itself?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from braid.errors import IndexKeyError, PublicationError
from braid.language import Filter, Range
from braid.matching import OwnMatching, SharedMatching, shared
from braid.protocol import Frame, FrameDecoder, PublicationBatch, encode_frames
from braid.protocol.batch import encode_record

if TYPE_CHECKING:
    from braid.matching.matcher import Reached

BROKERS = ["east", "north", "west"]
TEXTS = [
    "TRUE",
    "FALSE",
    *(f"a > {bound}" for bound in range(4)),
    *(f"b BETWEEN {low} AND {low + 2}" for low in range(3)),
    "s = 'x'",
    "s IN ('x', 'y') AND a < 3",
    "a IS NULL",
    "a IS NULL OR b > 1",
    "a < b",
    "s LIKE '%y'",
    "NOT (a <= 1)",
]
values = (
    st.none()
    | st.integers(0, 4)
    | st.builds(lambda low, more: Range(low, low + more), st.integers(0, 3), st.integers(0, 2))
)
publications = st.fixed_dictionaries(
    {}, optional={"a": values, "b": values, "s": st.sampled_from(["x", "y", "xy"])}
).map(lambda found: {name: value for name, value in found.items() if value is not None})


def plain(reached: Reached, rows: int) -> list[tuple[object, list[int]]]:
    return [(group, list(range(rows)) if some is None else some.tolist()) for group, some in reached]


def batch_of(first: int, attributes: list[dict[str, Any]]) -> PublicationBatch:
    records = [encode_record(each, 0) for each in attributes]
    return PublicationBatch.of("p", range(first, first + len(records)), records)


class SharedAndOwn(RuleBasedStateMachine):
    """Brokers that share, beside brokers that do not."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = SharedMatching()
        self.views = {name: self.shared.view(name) for name in BROKERS}
        self.own = {name: OwnMatching() for name in BROKERS}
        self.batches: list[PublicationBatch] = []
        self.sequence = 0

    @rule(
        broker=st.sampled_from(BROKERS),
        key=st.integers(0, 7).map("k{}".format),
        text=st.sampled_from(TEXTS),
        group=st.integers(0, 3).map("g{}".format),
    )
    def change(self, broker: str, key: str, text: str, group: str) -> None:
        """A key that is there goes, one that is not comes."""
        if key in list(self.own[broker]):
            self.own[broker].remove(key)
            self.views[broker].remove(key)
        else:
            self.own[broker].add_many([(key, Filter(text), group)])
            self.views[broker].add_many([(key, Filter(text), group)])

    @rule(broker=st.sampled_from(BROKERS))
    def start_again(self, broker: str) -> None:
        self.own[broker] = OwnMatching()
        self.views[broker] = self.shared.view(broker)

    @rule(attributes=st.lists(publications, min_size=1, max_size=3))
    def publish(self, attributes: list[dict[str, Any]]) -> None:
        self.batches.append(batch_of(self.sequence + 1, attributes))
        self.sequence += len(attributes)
        del self.batches[:-6]

    @rule()
    def prepare(self) -> None:
        self.shared.prepare(self.batches)
        assert all(batch.memo is not None for batch in self.batches)

    @rule(place=st.integers(0, 5))
    def cross_the_wire(self, place: int) -> None:
        """What has gone through the codec has no memo."""
        if place < len(self.batches):
            (frame,) = FrameDecoder().feed(encode_frames([Frame(1, self.batches[place])]))
            assert isinstance(frame.body, PublicationBatch)
            assert frame.body.memo is None
            self.batches[place] = frame.body

    @rule(place=st.integers(0, 5))
    def hop(self, place: int) -> None:
        if place < len(self.batches):
            self.batches[place] = self.batches[place].readdressed(further=True)

    @rule(broker=st.sampled_from(BROKERS), together=st.booleans())
    def route(self, broker: str, together: bool) -> None:
        groups = [self.batches] if together and self.batches else [[batch] for batch in self.batches]
        for some in groups:
            rows = sum(map(len, some))
            expected = plain(self.own[broker].reached(some), rows)
            assert plain(self.views[broker].reached(some), rows) == expected

    @invariant()
    def every_broker_finds_the_same(self) -> None:
        for batch in self.batches[-1:]:
            for broker in BROKERS:
                found = self.views[broker].group_matrix(batch.attributes())
                expected = self.own[broker].group_matrix(batch.attributes())
                assert found.groups == expected.groups
                assert found.matrix.tolist() == expected.matrix.tolist()


class SmallSharedAndOwn(SharedAndOwn):
    """The same with bounds so low that everything is forgotten and renumbered all the time."""

    BOUNDS: ClassVar = {
        "LATE_MAX": 1,
        "GONE_MIN": 0,
        "REMEMBERED_MAX": 2,
        "ANSWERS_MAX": 2,
        "FINDINGS_MAX": 1,
        "CELLS_MAX": 4,
    }

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        for name, bound in self.BOUNDS.items():
            self.patch.setattr(shared, name, bound)

    def teardown(self) -> None:
        self.patch.undo()


TestSharedAndOwn = SharedAndOwn.TestCase
TestSmallSharedAndOwn = SmallSharedAndOwn.TestCase
TestSharedAndOwn.settings = settings(max_examples=60, stateful_step_count=30)
TestSmallSharedAndOwn.settings = settings(max_examples=60, stateful_step_count=30)


def test_equal_filters_are_kept_once_and_as_long_as_somebody_holds_them() -> None:
    together = SharedMatching()
    north, south = together.view("north"), together.view("south")
    north.add_many([("k", Filter("a > 1"), "g"), ("l", Filter("NOT a <= 1"), "g")])
    south.add_many([("k", Filter("a > 1"), "g")])
    assert together.filters == 1
    north.remove("k")
    assert [group for group, _ in north.reached([batch_of(1, [{"a": 2}])])] == ["g"]
    north.remove("l")
    assert together.filters == 1
    together.view("south")
    assert together.filters == 0


def test_an_answer_is_found_once_for_all_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    together = SharedMatching()
    views = [together.view(name) for name in BROKERS]
    for view in views:
        view.add_many([("k", Filter("a > 1"), "g")])
    batch = batch_of(1, [{"a": 2}])
    together.prepare([batch])
    monkeypatch.setattr(together, "fresh", lambda attributes: pytest.fail("it was asked again"))
    for view in views:
        assert list(view.reached([batch])) == [("g", None)]
        batch = batch.readdressed(further=True)


def test_what_cannot_be_published_is_refused_and_spoils_nothing_else() -> None:
    together = SharedMatching()
    view = together.view("north")
    view.add_many([("k", Filter("a > 1"), "g")])
    good, bad = batch_of(1, [{"a": 2}]), batch_of(2, [{"a": 2**64 - 1}])
    together.prepare([good, bad])
    assert good.memo is not None
    assert bad.memo is None
    for _ in range(2):
        with pytest.raises(PublicationError):
            view.reached([bad])
        with pytest.raises(PublicationError):
            view.check([good, bad])
    assert list(view.reached([good])) == [("g", None)]


def test_keys_are_taken_or_unknown_as_in_an_index() -> None:
    view = SharedMatching().view("north")
    view.add_many([("k", Filter("a > 1"), "g")])
    assert list(view) == ["k"]
    with pytest.raises(IndexKeyError):
        view.add_many([("k", Filter("a > 1"), "g")])
    with pytest.raises(IndexKeyError):
        view.remove("l")
    assert not view.unfinished
    assert not view.tidy()

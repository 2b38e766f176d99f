"""Is each publication let through once? Compared with a twin that remembers every number."""

from __future__ import annotations

import gc
import random
import struct
import tracemalloc
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.errors import ConfigurationError, RemoteProtocolError
from braid.protocol import PublicationBatch
from braid.protocol.duplicates import DuplicateFilter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

sequences = st.integers(0, 60) | st.sampled_from([2**40, 2**40 + 3, 2**62, 2**63 - 1])
batches = st.lists(st.tuples(st.sampled_from("pqr"), st.lists(sequences, max_size=12)), max_size=12)
runs = st.tuples(st.integers(0, 80), st.integers(1, 20)).map(lambda run: list(range(run[0], sum(run))))
run_batches = st.lists(st.tuples(st.sampled_from("pqr"), runs), max_size=12)


class PlainDuplicates:
    def __init__(self, window: int, old_is_new: bool = False) -> None:
        self.window = window
        self.old_is_new = old_is_new
        self.seen: dict[str, set[int]] = {}

    def new(self, publisher: str, sequence: int) -> bool:
        seen = self.seen.setdefault(publisher, set())
        old = bool(seen) and max(seen) - sequence >= self.window
        new = self.old_is_new if old else sequence not in seen
        if new and not old:
            seen.add(sequence)
        return new


@given(
    batches=batches | run_batches,
    window=st.sampled_from([1, 2, 5, 8, 9, 16, 1024]),
    old_is_new=st.booleans(),
)
def test_any_batches_are_judged_as_if_they_came_one_by_one(
    batches: list[tuple[str, list[int]]], window: int, old_is_new: bool
) -> None:
    quick = DuplicateFilter(window=window, old_is_new=old_is_new)
    plain = PlainDuplicates(window, old_is_new)
    for publisher, numbers in batches:
        expected = [row for row, number in enumerate(numbers) if plain.new(publisher, number)]
        rows = quick.new_rows(publisher, np.array(numbers, np.int64))
        assert (list(range(len(numbers))) if rows is None else rows.tolist()) == expected
        assert (rows is None) == (len(expected) == len(numbers))
        highest = max(plain.seen.get(publisher, ()), default=None)
        assert quick.highest(publisher) == highest


@given(
    numbers=st.lists(st.tuples(st.sampled_from("pqr"), sequences), max_size=40),
    window=st.sampled_from([1, 2, 5, 8, 1024]),
    alone=st.randoms(use_true_random=False),
    old_is_new=st.booleans(),
)
def test_a_single_publication_is_judged_like_a_batch_of_one(
    numbers: list[tuple[str, int]], window: int, alone: Random, old_is_new: bool
) -> None:
    quick = DuplicateFilter(publishers_max=2, window=window, old_is_new=old_is_new)
    plain = DuplicateFilter(2, window, old_is_new=old_is_new)
    for publisher, number in numbers:
        new = plain.new_rows(publisher, np.array([number])) is None
        if alone.random() < 0.7:
            assert quick.is_new(publisher, number) == new
        else:
            assert (quick.new_rows(publisher, np.array([number])) is None) == new
        assert [quick.highest(each) for each in "pqr"] == [plain.highest(each) for each in "pqr"]


@given(publishers=st.lists(st.sampled_from("pqrst"), max_size=30))
def test_the_least_recently_heard_publisher_is_forgotten(publishers: list[str]) -> None:
    quick = DuplicateFilter(publishers_max=3)
    recent: list[str] = []
    for publisher in publishers:
        rows = quick.new_rows(publisher, np.array([7]))
        assert (rows is None) == (publisher not in recent)
        recent = [*(other for other in recent if other != publisher), publisher][-3:]
        assert len(quick) == len(recent)
    assert [quick.highest(publisher) for publisher in recent] == [7] * len(recent)


def test_a_gap_beside_a_late_number_is_not_taken_for_a_run() -> None:
    quick = DuplicateFilter()
    assert quick.new_rows("p", np.array([10])) is None
    assert quick.new_rows("p", np.array([11, 5, 13])) is None  # three numbers, and three ahead
    assert quick.new_rows("p", np.array([12])) is None
    assert quick.new_rows("p", np.array([5])) is not None


@given(seen=st.lists(st.integers(1, 40)), forgotten=st.lists(st.integers(1, 40)))
def test_what_is_forgotten_may_come_again_and_nothing_else(seen: list[int], forgotten: list[int]) -> None:
    quick = DuplicateFilter(window=16)
    for number in seen:
        quick.is_new("p", number)
    known = {number for number in range(41) if quick.has("p", number)}
    for number in forgotten:
        quick.forget("p", number)
        quick.forget("q", number)
    assert {number for number in range(41) if quick.has("p", number)} == known - set(forgotten)
    assert quick.highest("p") == (max(seen) if seen else None)


def test_unsigned_numbers_are_judged_alike() -> None:
    quick = DuplicateFilter()
    assert quick.new_rows("p", np.array([1, 2, 3], np.uint64)) is None
    rows = quick.new_rows("p", np.array([3, 4], np.uint64))
    assert rows is not None
    assert rows.tolist() == [1]


@pytest.mark.parametrize(("publishers_max", "window"), [(0, 1), (1, 0)])
def test_a_filter_without_memory_is_refused(publishers_max: int, window: int) -> None:
    with pytest.raises(ConfigurationError, match="at least 1"):
        DuplicateFilter(publishers_max, window)


def test_many_names_of_one_owner_are_forgotten_before_those_of_others() -> None:
    memory = DuplicateFilter(100)
    for number in range(20):
        assert memory.is_new(f"till/quotes-{number}", 1)
    assert memory.is_new("somebody", 1)
    for number in range(1000):
        memory.is_new(f"mallory/{number}", 1)
        memory.is_new(f"anonymous-{number}", 1)
    assert len(memory) == 100
    assert not any(memory.is_new(f"till/quotes-{number}", 1) for number in range(20))


@given(
    st.lists(st.integers(0, 200), max_size=40),
    st.lists(st.integers(0, 200), min_size=1, max_size=20, unique=True),
)
def test_many_rows_are_asked_for_at_once(before: list[int], rows: list[int]) -> None:
    seen = DuplicateFilter(window=64)
    for sequence in before:
        seen.is_new("p", sequence)
    expected = [seen.has("p", sequence) for sequence in rows]
    assert seen.has_rows("p", np.array(rows)).tolist() == expected


@given(
    st.lists(st.integers(0, 200), max_size=40),
    st.lists(st.integers(0, 200), min_size=1, max_size=20, unique=True),
)
def test_what_is_new_in_a_batch_is_what_is_new_row_by_row(before: list[int], rows: list[int]) -> None:
    together, one_by_one = DuplicateFilter(window=64), DuplicateFilter(window=64)
    for sequence in before:
        together.is_new("p", sequence)
        one_by_one.is_new("p", sequence)
    batch = PublicationBatch.of("p", sorted(rows), [b""] * len(rows))
    expected = [row for row, sequence in enumerate(sorted(rows)) if one_by_one.is_new("p", sequence)]
    found = together.new_in(batch)
    assert (list(range(len(rows))) if found is None else found.tolist()) == expected
    assert [together.has("p", each) for each in range(201)] == [
        one_by_one.has("p", each) for each in range(201)
    ]


steps = st.tuples(
    st.sampled_from("pq"), st.integers(0, 80), st.lists(st.integers(1, 4), max_size=12), st.integers(0, 2)
)


@given(st.lists(steps, max_size=25), st.sampled_from([1, 2, 5, 16, 48, 1024]), st.booleans())
def test_numbers_are_judged_alike_in_whichever_way_they_come(
    came: list[tuple[str, int, list[int], int]], window: int, old_is_new: bool
) -> None:
    """Runs and gaps, as batches, as arrays and one by one, near the place where the latest bits end."""
    quick = DuplicateFilter(window=window, old_is_new=old_is_new)
    plain = PlainDuplicates(window, old_is_new)
    for publisher, first, gaps, way in came:
        numbers = list(accumulate(gaps, initial=first))
        expected = [row for row, number in enumerate(numbers) if plain.new(publisher, number)]
        if way == 0:
            found = quick.new_in(PublicationBatch.of(publisher, numbers, [b""] * len(numbers)))
        elif way == 1:
            found = quick.new_rows(publisher, np.array(numbers))
        else:
            found = np.flatnonzero([quick.is_new(publisher, number) for number in numbers])
        assert (list(range(len(numbers))) if found is None else found.tolist()) == expected
        assert quick.highest(publisher) == max(plain.seen[publisher], default=None)


class LongMemory:
    """The twin for long windows: as plain, and quick enough for thousands of numbers."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.seen: set[int] = set()
        self.highest = -1

    def new(self, number: int) -> bool:
        if number <= self.highest - self.window or number in self.seen:
            return False
        self.seen.add(number)
        self.highest = max(self.highest, number)
        return True

    def known(self, numbers: range) -> list[int]:
        return [each for each in numbers if each in self.seen and each > self.highest - self.window]


def stretches(fate: Random, count: int) -> Iterator[list[int]]:
    """Numbers as publishers have them: without gaps, with regular or random ones, late, far on."""
    at = 1
    for _ in range(count):
        kind = fate.choice(["run", "run", "stride", "random", "late", "late run", "jump", "single"])
        length = fate.choice([1, 2, 16, 40, 300])
        if kind == "run":
            numbers = list(range(at, at + length))
        elif kind == "stride":
            numbers = list(range(at, at + length * 7, 7))
        elif kind == "random":
            numbers = [each for each in range(at, at + 4 * length) if fate.random() < 0.4] or [at]
        elif kind == "late":
            numbers = sorted({max(0, at - fate.randrange(1, 3000)) for _ in range(length)})
        elif kind == "late run":
            first = max(0, at - fate.randrange(1, 3000))
            numbers = list(range(first, first + length))
        else:
            numbers = [at + (0 if kind == "single" else fate.choice([30, 900, 70_000]))]
        at = max(at, numbers[-1] + 1)
        yield numbers


@pytest.mark.parametrize("window", [64, 1024, 4096, 65_536])
@pytest.mark.parametrize("seed", range(6))
def test_long_lives_of_publishers_are_remembered_as_by_a_plain_set(window: int, seed: int) -> None:
    fate = random.Random(f"{window}/{seed}")
    quick, plain = DuplicateFilter(window=window), LongMemory(window)
    for numbers in stretches(fate, 250):
        expected = [row for row, number in enumerate(numbers) if plain.new(number)]
        way = fate.choice(["batch", "rows", "alone"])
        if way == "batch":
            found = quick.new_in(PublicationBatch.of("p", numbers, [b""] * len(numbers)))
        elif way == "rows":
            found = quick.new_rows("p", np.array(numbers))
        else:
            found = np.flatnonzero([quick.is_new("p", number) for number in numbers])
        assert (list(range(len(numbers))) if found is None else found.tolist()) == expected
        assert quick.highest("p") == plain.highest
        if fate.random() < 0.1:
            near = range(max(0, plain.highest - min(window, 5000)), plain.highest + 3)
            expected = plain.known(near)
            assert [each for each in near if quick.has("p", each)] == expected
            assert [near[row] for row in np.flatnonzero(quick.has_rows("p", np.array(near)))] == expected
            # As it is after it was stored, up to the highest or to one below it.
            top = plain.highest - fate.choice([0, 0, 1, 200])
            if top >= 0:
                again = DuplicateFilter(window=window)
                again.recall("p", *quick.packed("p", top))
                known = [each for each in near if each <= top and each in plain.seen]
                oldest = plain.highest - window
                assert [each for each in near if again.has("p", each) and each > oldest] == [
                    each for each in known if each > oldest
                ]
                if top == plain.highest and fate.random() < 0.5:
                    quick = again
    assert quick.size < 400 + window // 8 + 16 * 512


def test_runs_become_bits_where_these_take_less_and_runs_again() -> None:
    quick = DuplicateFilter(window=65_536)
    quick.new_rows("p", np.arange(0, 1500, 3))
    assert quick.packed("p")[1][0] == 2
    for number in range(1500, 4000, 3):
        assert quick.is_new("p", number)
    assert quick.packed("p")[1][0] == 1
    assert not any(quick.is_new("p", number) for number in range(0, 4000, 3))
    assert all(quick.is_new("p", number) for number in range(1, 4000, 3))
    for first in range(4000, 140_000, 100):
        quick.new_rows("p", np.arange(first, first + 100))
    assert len(quick.packed("p")[1]) == 5


@given(
    seen=st.lists(st.integers(0, 300), max_size=60),
    window=st.sampled_from([1, 5, 64, 1024]),
    late=st.lists(st.integers(0, 320), max_size=20),
)
def test_what_was_packed_goes_on_like_the_original(seen: list[int], window: int, late: list[int]) -> None:
    original, copy = DuplicateFilter(window=window), DuplicateFilter(window=window)
    for number in [7, *seen]:
        original.is_new("p", number)
    copy.recall("p", *original.packed("p"))
    assert [copy.is_new("p", number) for number in late] == [original.is_new("p", number) for number in late]
    assert copy.packed("p") == original.packed("p")


@pytest.mark.parametrize(
    "packed",
    [b"", b"\x00", b"\x03abcd", b"\x02abc", b"\x02" + bytes(60_000), b"\x01" + bytes(9_000)]
    # A run that ends before it begins; runs in the wrong order; runs without a gap between them.
    + [struct.pack(f"<B{len(ends)}H", 2, *ends) for ends in [(1, 2), (3, 3, 9, 9), (9, 5, 4, 0)]],
)
def test_what_nobody_has_packed_is_refused(packed: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        DuplicateFilter().recall("p", 100, packed)


def memory_of(names: int, numbers: list[int]) -> float:
    """The bytes for each name of so many that have published these numbers."""
    gc.collect()
    tracemalloc.start()
    seen = DuplicateFilter(window=65_536)
    for name in range(names):
        for number in numbers:
            seen.is_new(f"principal/name-{name}", number)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert used < 1.5 * seen.size, "what it takes is what is counted"
    return used / names


@pytest.mark.parametrize(
    "numbers",
    [[1, 65_000], [1, 30_000, 65_000, 90_000, 150_000], [*range(1, 64_000, 2000)], [2**40, 1, 2**62]],
    ids=["two", "five", "sparse", "far"],
)
def test_names_with_jumps_take_as_much_memory_as_they_have_published(numbers: list[int]) -> None:
    assert memory_of(500, numbers) < 600 + 20 * len(numbers)


def test_a_publisher_without_gaps_takes_little_however_much_it_publishes() -> None:
    seen = DuplicateFilter(window=65_536)
    for first in range(1, 200_000, 1000):
        assert seen.new_run("p", first, 1000) or first == 1
        if first == 1:
            seen.new_rows("p", np.arange(1, 1001))
    assert seen.size < 500
    assert len(seen.packed("p")[1]) == 5


def test_memory_is_bounded_by_bytes_and_those_pay_who_take_most() -> None:
    seen = DuplicateFilter(window=65_536, bytes_max=1_000_000)
    for number in range(200):
        assert seen.is_new(f"till/quotes-{number}", 1)
    # A bit for each number is the most that a name can take.
    wide = np.arange(1, 60_000, 3)
    for number in range(300):
        seen.new_rows(f"mallory/{number}", wide)
        assert seen.size <= 1_000_000
    assert not any(seen.is_new(f"till/quotes-{number}", 1) for number in range(200))
    assert sum(seen.highest(f"mallory/{number}") is not None for number in range(300)) < 120
    assert seen.has("mallory/299", int(wide[-1])), "the latest is known"

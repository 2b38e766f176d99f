"""What does one workload at one size show?

A cell is measured in this order: build the rivals and check their answers, parse the filters, build
the index and check Braid's answers, let all of them take turns, then change the index while it is
being asked, then weigh it. Right is what the naive loop says, and a wrong answer ends the benchmark: a
fast wrong figure is worth nothing.

The order and a process per cell (`measure_cell_apart`) are for fairness. Small objects made on a heap
that has been in use lie scattered: behind Braid's filters and index the naive loop was measured at a
quarter of its speed, which would have flattered Braid by four.
"""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import compress
from time import process_time, process_time_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from braid.errors import BraidError, ConfigurationError
from braid.language import Filter
from braid.matching import FilterIndex
from braid_bench.rivals import RIVALS, Naive, Rival
from braid_bench.timing import (
    Contest,
    Rate,
    resident_bytes,
    settled_memory,
    significant,
    spent,
    traced_memory,
)
from braid_bench.workloads import Workload, make_workload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = ["BenchSettings", "DisagreementError", "Projections", "measure_cell", "measure_cell_apart"]

_METHODS = ("group_matrix", "match_groups", "match_batch", "count_batch")
_ANSWERS = {"matches": "match_batch", "destinations": "match_groups", "counts": "count_batch"}
# Keys listed in one batch: at a million filters, whole batches of sets would fill the memory.
_LISTED_MAX = 4_000_000
# Above this many filters tracing every allocation takes too long; the resident size has to do.
_TRACED_MAX = 200_000
# Comparisons for the check: the naive loop manages about a million a second.
_CHECKED_PAIRS = 2_000_000


class DisagreementError(BraidError):
    """Two ways of matching gave different answers to the same question."""


@dataclass(frozen=True, kw_only=True)
class BenchSettings:
    """What is measured, and how patiently."""

    workloads: tuple[str, ...] = ("W1", "W2", "W3", "W4")
    sizes: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    seed: int = 1
    destinations: int = 64
    """Filters are spread evenly over this many; rivals have room for 64."""
    batches: tuple[int, ...] = (1, 32, 1024)
    """Publications per call; the last is the one that ratios and goals use."""
    publications: int = 8192
    """Different publications to draw batches from. Fewer: more help from the processor's caches, and
    on W2, where 3 % of the publications make all the matches, a match rate far from the stated one."""
    repeats: int = 5
    """Turns of each contender; the median counts."""
    turn_seconds: float = 0.25
    """CPU seconds of one turn."""
    rival_seconds_max: float = 15.0
    """CPU seconds for all turns of one rival; a rival that needs more is left out, with the reason."""
    build_seconds_max: float = 90.0
    """CPU seconds for building one rival, projected from its previous size."""
    changes: int = 2_000
    """Filters added to and removed from the full index."""
    apart: bool = True
    """Each cell in a process of its own: fair figures, at the price of starting it."""
    rivals: tuple[type[Rival], ...] = RIVALS


# CPU seconds per filter that building took at the previous size, by rival.
Projections = dict[str, float]


def measure_cell_apart(
    name: str, filters: int, settings: BenchSettings, projections: Projections
) -> tuple[dict[str, Any], Projections]:
    """`measure_cell` in a process of its own, which begins with a clean heap and gives all memory back."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        return pool.submit(measure_cell, name, filters, settings, projections).result()


def measure_cell(
    name: str, filters: int, settings: BenchSettings, projections: Projections
) -> tuple[dict[str, Any], Projections]:
    """Everything about one workload at one size, ready for JSON, and what building the rivals took."""
    workload = make_workload(name, filters, settings.publications, settings.seed)
    destination = np.arange(filters, dtype=np.int64) % settings.destinations
    places = _spread(settings.publications, min(64, max(3, _CHECKED_PAIRS // filters)))
    sample = [workload.publications[place] for place in places]
    oracle = Naive(workload.conditions, destination)
    expected = _right_answers(oracle, destination, sample)
    rivals, entered, took = _build_rivals(
        workload, destination, sample, expected, oracle, settings, projections
    )

    parse_seconds, parsed = spent(lambda: [Filter(text) for text in workload.texts])
    normal_form_seconds, _ = spent(lambda: sum(len(each.terms) for each in parsed))
    entries = list(zip(range(filters), parsed, destination.tolist(), strict=True))
    resident_before = resident_bytes()
    index: FilterIndex[int] = FilterIndex()
    build_seconds, _ = spent(lambda: index.add_many(entries))
    first_seconds, _ = spent(lambda: index.match_groups(workload.publications[: settings.batches[-1]]))
    resident_after = resident_bytes()
    counts = index.count_batch(workload.publications)
    groups = index.match_groups(workload.publications)
    _require_right_index(index, expected, sample)
    # Within a long batch a publication must get the answer that it gets in a short one.
    for method, whole in (("count_batch", counts.tolist()), ("match_groups", groups)):
        kind = "counts" if method == "count_batch" else "destinations"
        who = f"Braid's {method} in a long batch"
        _require_same(who, [whole[place] for place in places], expected[kind], sample)
    reached = [len(each) for each in groups]

    contest = Contest()
    listed_max = max(1, int(_LISTED_MAX / max(1.0, float(counts.mean()))))
    batch_used = _enter_braid(contest, index, workload, settings, listed_max)
    for rival, batches in entered:
        contest.enter(rival.name, rival.run, batches)
    with settled_memory():
        rates = contest.hold(settings.repeats, settings.turn_seconds)
        changes = _measure_changes(index, name, filters, settings, workload.publications)
    braid_rates = {
        method: {str(batch): rates[f"{method}/{batch}"].to_json() for batch in settings.batches}
        for method in _METHODS
    }
    for row in rivals:
        rate = rates.get(row["name"])
        row["rate"] = None if rate is None else rate.to_json()
        row["braid_is_faster_by"] = (
            None if rate is None else _factors(braid_rates, str(settings.batches[-1]), rate)
        )
    reported = index.statistics().bytes
    cell = {
        "workload": name,
        "filters": filters,
        "match_rate": significant(float(counts.mean()) / filters),
        "matches_per_publication": significant(float(counts.mean())),
        "destinations_per_publication": significant(sum(reached) / len(reached)),
        "braid": {
            "parse_us_per_filter": significant(1e6 * parse_seconds / filters),
            "normal_form_us_per_filter": significant(1e6 * normal_form_seconds / filters),
            "build_us_per_filter": significant(1e6 * build_seconds / filters),
            "first_batch_ms": significant(1e3 * first_seconds),
            "batch_used_by_match_batch": batch_used,
            "rates": braid_rates,
            **changes,
            "memory": _measure_memory(workload, destination, resident_before, resident_after, reported),
        },
        "rivals": rivals,
    }
    return cell, took


def _spread(total: int, wanted: int) -> list[int]:
    """So many places over the whole of a list, from its first to its last."""
    return sorted({round(step) for step in np.linspace(0, total - 1, wanted)})


def _right_answers(
    oracle: Naive, destination: NDArray[np.int64], sample: list[dict[str, Any]]
) -> dict[str, list[Any]]:
    """What the naive loop says, in each of the three forms."""
    matches = oracle.plain(oracle.run(sample))
    return {
        "matches": matches,
        "destinations": [{int(destination[number]) for number in found} for found in matches],
        "counts": [len(found) for found in matches],
    }


def _require_right_index(
    index: FilterIndex[int], expected: dict[str, list[Any]], sample: list[dict[str, Any]]
) -> None:
    for kind, method in _ANSWERS.items():
        _require_same(f"Braid's {method}", list(getattr(index, method)(sample)), expected[kind], sample)
    found = index.group_matrix(sample)
    reached = [set(compress(found.groups, flags)) for flags in found.matrix.tolist()]
    _require_same("Braid's group_matrix", reached, expected["destinations"], sample)
    one_by_one = [index.match(publication) for publication in sample[:8]]
    _require_same("Braid's match", one_by_one, expected["matches"][:8], sample)


def _require_same(who: str, answers: Sequence[Any], expected: Sequence[Any], sample: list[Any]) -> None:
    if len(answers) != len(expected):
        raise DisagreementError(f"{who} answered {len(answers)} of {len(expected)} publications")
    for publication, answer, right in zip(sample, answers, expected, strict=False):
        if answer != right:
            difference = (
                f"{len(answer - right)} too many, {len(right - answer)} missing"
                if isinstance(right, set)
                else f"{answer} instead of {right}"
            )
            raise DisagreementError(f"{who} is wrong for {publication}: {difference}")


def _build_rivals(
    workload: Workload,
    destination: NDArray[np.int64],
    sample: list[dict[str, Any]],
    expected: dict[str, list[Any]],
    oracle: Naive,
    settings: BenchSettings,
    projections: Projections,
) -> tuple[list[dict[str, Any]], list[tuple[Rival, list[tuple[Any, int]]]], Projections]:
    """A report row per rival, those that take part with their batches, and what building them took."""
    rows: list[dict[str, Any]] = []
    entered: list[tuple[Rival, list[tuple[Any, int]]]] = []
    took = dict(projections)
    built: list[Rival] = [oracle]
    filters = len(workload.texts)
    for kind in settings.rivals:
        row: dict[str, Any] = {"name": kind.name, "title": kind.title, "answers": kind.answers}
        rows.append(row)
        row |= {"build_seconds": None, "batch": None, "reason": None}
        projected = projections.get(kind.name, 0.0) * filters
        if projected > settings.build_seconds_max:
            row["reason"] = f"building it would take about {projected:.0f} s"
            continue
        started = process_time()
        try:
            rival = kind.beside(built, workload.conditions, destination)
        except ConfigurationError as error:
            row["reason"] = str(error)
            continue
        seconds = process_time() - started
        built.append(rival)
        took[kind.name] = seconds / filters
        row["build_seconds"] = significant(seconds)
        # Twice: the first call may compile, the second is what a publication costs.
        for _ in range(2):
            prepared = rival.prepare(sample)
            started = process_time()
            answer = rival.run(prepared)
            cost = (process_time() - started) / len(sample)
        _require_same(kind.title, rival.plain(answer), expected[kind.answers], sample)
        if cost * settings.repeats > settings.rival_seconds_max:
            row["reason"] = f"one publication takes {cost:.1f} s"
            continue
        batch = max(1, min(settings.batches[-1], int(settings.turn_seconds / max(cost, 1e-9))))
        row["batch"] = batch
        entered.append((rival, [(rival.prepare(each), len(each)) for each in _sliced(workload, batch)]))
    return rows, entered, took


def _sliced(workload: Workload, batch: int) -> list[list[dict[str, Any]]]:
    """Whole batches only: a short one at the end would pull the figure towards small batches."""
    publications = workload.publications
    ends = range(batch, len(publications) + 1, batch)
    return [publications[end - batch : end] for end in ends] or [publications]


def _enter_braid(
    contest: Contest, index: FilterIndex[int], workload: Workload, settings: BenchSettings, listed_max: int
) -> dict[str, int]:
    used = {}
    for method in _METHODS:
        for batch in settings.batches:
            size = min(batch, listed_max) if method == "match_batch" else batch
            if method == "match_batch":
                used[str(batch)] = size
            contest.enter(
                f"{method}/{batch}",
                getattr(index, method),
                [(each, len(each)) for each in _sliced(workload, size)],
            )
    return used


def _factors(braid: dict[str, dict[str, dict[str, float]]], batch: str, rival: Rate) -> dict[str, float]:
    """Braid's rate over the rival's, whatever the rival answers."""
    return {method: significant(braid[method][batch]["median"] / rival.median) for method in _METHODS}


def _measure_changes(
    index: FilterIndex[int],
    name: str,
    filters: int,
    settings: BenchSettings,
    publications: list[dict[str, Any]],
) -> dict[str, dict[str, float]]:
    """Adds and removes on the full index, with a small batch matched every now and then.

    Work that a change leaves for later is paid by the next match, so what those matches take beyond
    their usual time counts as the changes' own.
    """
    extra = make_workload(name, settings.changes, 1, settings.seed + 1)
    fresh = [(filters + number, Filter(text)) for number, text in enumerate(extra.texts)]
    batches = [publications[start : start + 32] for start in range(0, min(len(publications), 1024), 32)]
    rounds = 3
    usual = min(spent(lambda: [index.match_groups(batch) for batch in batches])[0] for _ in range(rounds))
    usual_ns = 1e9 * usual / len(batches)

    def changed(changes: Sequence[Callable[[], None]]) -> dict[str, float]:
        each_ns: list[int] = []
        matching_ns = matched = 0
        for number, change in enumerate(changes, 1):
            started = process_time_ns()
            change()
            each_ns.append(process_time_ns() - started)
            if number % 50 == 0:
                started = process_time_ns()
                index.match_groups(batches[matched % len(batches)])
                matching_ns += process_time_ns() - started
                matched += 1
        left_over = max(0.0, matching_ns - matched * usual_ns)
        return {
            "mean_us": significant(sum(each_ns) / len(each_ns) / 1e3),
            "max_us": significant(max(each_ns) / 1e3),
            "amortised_us": significant((sum(each_ns) + left_over) / len(each_ns) / 1e3),
        }

    def adding(key: int, added: Filter) -> Callable[[], None]:
        return lambda: index.add(key, added, group=key % settings.destinations)

    def removing(key: int) -> Callable[[], None]:
        return lambda: index.remove(key)

    return {
        "add": changed([adding(key, added) for key, added in fresh]),
        "remove": changed([removing(key) for key, _ in fresh]),
    }


def _measure_memory(
    workload: Workload,
    destination: NDArray[np.int64],
    resident_before: int | None,
    resident_after: int | None,
    reported: int,
) -> dict[str, Any]:
    """Bytes per filter that building and asking an index adds to filters and keys that exist already.

    A filter has its normal form, which it works out when it is first needed (for covering, for its
    canonical text, for an index). It belongs to the filter, so the filters here have it beforehand; what
    it takes is shown as part of `filter_object_bytes`.
    """
    filters = len(workload.texts)
    memory: dict[str, Any] = {
        "bytes_per_filter": None,
        "method": "resident size",
        "filter_object_bytes": None,
        "of_that_normal_form": None,
        "resident_bytes_per_filter": None,
        "reported_bytes_per_filter": significant(reported / filters),
    }
    if resident_before is not None and resident_after is not None:
        memory["resident_bytes_per_filter"] = significant((resident_after - resident_before) / filters)
        memory["bytes_per_filter"] = memory["resident_bytes_per_filter"]
    if filters > _TRACED_MAX:
        return memory
    # Only what is asked about is traced, for tracing is slow. A sample of filters is enough: those of
    # one workload resemble each other.
    with traced_memory() as allocated:
        some = [Filter(text) for text in workload.texts[:200]]
        parsed_bytes = allocated() / len(some)
        with_terms = sum(len(each.terms) for each in some) and allocated() / len(some)
    parsed = [Filter(text) for text in workload.texts]
    boxes = sum(len(each.terms) for each in parsed)
    entries = list(zip(range(filters), parsed, destination.tolist(), strict=True))
    with traced_memory() as allocated:
        before = allocated()
        index: FilterIndex[int] = FilterIndex()
        index.add_many(entries)
        index.count_batch(workload.publications)  # which makes every bitmap that they need
        with_index = allocated()
    return memory | {
        "bytes_per_filter": significant((with_index - before) / filters),
        "method": "traced allocations",
        "filter_object_bytes": significant(with_terms),
        "of_that_normal_form": significant(with_terms - parsed_bytes),
        "boxes_per_filter": significant(boxes / filters),
    }

"""Are the measures of a failover computed as they should be, and does a real star of brokers show it?"""

from __future__ import annotations

from array import array
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from braid.language import Filter
from braid.pipeline.experiments.availability.real_star import Failover, Read
from braid.pipeline.experiments.availability.replacing import (
    METRICS,
    Content,
    felt_of,
    replace_point,
    samples_of,
    settings_of,
)
from braid.pipeline.experiments.registry import Evidence, Plan, registered
from braid.pipeline.experiments.sweep import RunTask
from braid.pipeline.experiments.sweep_folder import FinishedRun

NAMES = ("subscriptions", "fanout", "pending", "neighbours")
PERIOD_S = 0.01
KILLED_S, DONE_S, SEEN_S = 10.0, 11.0, 10.05
SENT_S = [number * PERIOD_S for number in range(2_000)]
FIRST = 1_005
"""The first number since the death was seen; 95 more are published until the failover is over."""


def a_failover(numbers: list[int], **more: Any) -> Failover:
    return Failover(
        killed_s=KILLED_S,
        detected_s=SEEN_S,
        asked_s=10.06,
        done_s=DONE_S,
        first=FIRST,
        cpu_s=0.25,
        entries_moved=2,
        requested_s={"N1": 10.5},
        replication_s=0.3,
        delivered={"N1": numbers},
        **more,
    )


def a_read(numbers: list[int]) -> Read:
    """Two subscriptions in turns; what was published while the broker was gone comes when that is over."""
    at_s = [DONE_S if KILLED_S <= SENT_S[number] < DONE_S else SENT_S[number] for number in numbers]
    return Read(array("q", [number % 2 for number in numbers]), array("q", numbers), array("d", sorted(at_s)))


def felt(numbers: list[int]) -> dict[str, float | None]:
    return felt_of(a_failover(numbers), {"N1": a_read(numbers)}, SENT_S, lambda _: 1)


def test_a_failover_without_losses() -> None:
    found = felt(list(range(2_000)))
    assert set(found) | {"load_average"} == set(METRICS)
    # Asked to connect at 10.5, served at 11.
    assert found["pdrd_ms"] == pytest.approx(500, abs=1)
    assert found["lmpt_ms"] == pytest.approx(0, abs=1)
    assert found["replication_time_ms"] == pytest.approx(300)
    assert found["detection_ms"] == pytest.approx(50)
    assert found["failover_ms"] == pytest.approx(940)
    assert found["pause_ms"] == pytest.approx(1_000, abs=15)
    assert (found["ordering_degree"], found["dropped_share"], found["doubled"]) == (1.0, 0.0, 0.0)


def test_what_was_dropped_doubled_and_displaced_is_seen() -> None:
    """Planted: half of what waited is missing, one comes twice, and the rest comes in reverse."""
    waited = list(range(FIRST, 1_100))[::-2]
    found = felt([*range(1_000), *waited, waited[-1], *range(1_100, 2_000)])
    assert found["dropped_share"] == pytest.approx(47 / 95)
    assert found["doubled"] == 1.0
    assert found["ordering_degree"] < 0.6


def test_what_was_lost_in_the_broker_that_died_counts_for_nobody() -> None:
    found = felt([number for number in range(2_000) if not 995 <= number < FIRST])
    assert (found["dropped_share"], found["ordering_degree"]) == (0.0, 1.0)


def test_what_never_came_has_no_delay() -> None:
    found = felt([number for number in range(2_000) if not FIRST <= number < 1_100])
    assert (found["pdrd_ms"], found["lmpt_ms"], found["dropped_share"]) == (None, None, 1.0)


def test_who_was_waited_for_by_nothing_has_no_delay() -> None:
    """Of what was published before the request to connect nothing is for this neighbour."""
    found = felt([number for number in range(2_000) if not FIRST <= number < 1_055])
    assert found["pdrd_ms"] is None
    assert found["dropped_share"] > 0


@pytest.mark.parametrize("fanout", [1, 3])
def test_nothing_covers_anything_where_that_is_promised(fanout: int) -> None:
    content = Content(1, "distinct", 40, 2, fanout=fanout)
    filters = [Filter(text) for texts in content.filters() for text in texts]
    assert len(filters) == 40
    assert not any(one.covers(other) for one in filters for other in filters if one is not other)
    for number in range(20):
        met = sum(each.matches(content.attributes(number)) for each in filters)
        assert met == content.fanout(number) == fanout


def test_the_fanout_of_the_papers_workload_is_counted() -> None:
    means = []
    for popular in (False, True):
        content = Content(1, "paper", 100, 1, popular=popular)
        filters = [Filter(text) for text in content.filters()[0]]
        for number in range(20):
            met = sum(each.matches(content.attributes(number)) for each in filters)
            assert met == content.fanout(number)
        means.append(sum(map(content.fanout, range(500))) / 500)
    assert means[0] < means[1]


def evidence(varied: str, values: tuple[int, ...]) -> Evidence:
    """Runs in which PDRD is the value for synchronous resumption, and half of that for incremental."""
    runs = {}
    for protocol, factor in (("synchronous", 1.0), ("incremental", 0.5)):
        for value in values:
            settings = settings_of(protocol, **{varied: value})
            summary = dict.fromkeys(METRICS, 0.0) | {"pdrd_ms": factor * value, "mean_fanout": value}
            key = f"{protocol} {value}"
            runs[key] = FinishedRun(key, "", settings, 1, summary, 1.0)
    nothing: Any = None
    return Evidence(nothing, Plan("quick", 1, Path()), runs, nothing)


def test_shapes_are_rows() -> None:
    samples = samples_of(evidence("pending", (100, 200, 400)), "pending")
    slopes = {
        (each.labels["protocol"], each.labels["of"]): each.value
        for each in samples
        if each.metric == "slope_vs_pending"
    }
    assert slopes["synchronous", "pdrd_ms"] == pytest.approx(1.0)
    assert slopes["incremental", "pdrd_ms"] == pytest.approx(0.5)
    assert slopes["incremental", "replication_time_ms"] == 0.0
    shares = [each.value for each in samples if each.metric == "share_of_synchronous"]
    assert shares == [0.5, 0.5, 0.5]


@pytest.mark.parametrize("scale", ["quick", "paper"])
@pytest.mark.parametrize("name", NAMES)
def test_points_have_the_labels_of_the_figures(name: str, scale: str, tmp_path: Path) -> None:
    experiment = registered()[f"availability.{name}"]
    points = experiment.points(Plan(scale, 1, tmp_path))  # type: ignore[arg-type]
    assert {"synchronous", "incremental"} <= {each.settings["protocol"] for each in points} | {"synchronous"}
    assert {each.settings["workload"] for each in points} == {"distinct", "paper"}
    assert len({each.key(experiment.function) for each in points}) == len(points)
    runs = {
        each.key(""): FinishedRun(each.key(""), "", dict(each.settings), 1, dict.fromkeys(METRICS, 2.0), 1.0)
        for each in points
    }
    nothing: Any = None
    findings = experiment.measure(Evidence(nothing, Plan("quick", 1, tmp_path), runs, nothing))
    wanted = {"protocol", "workload", "subscriptions", "neighbours", "pending"}
    measured = [each for each in findings.samples if each.metric == "pdrd_ms"]
    assert len(measured) == len(points)
    assert all(wanted <= set(each.labels) for each in measured)
    # No two points fall into one row.
    rows = sorted(
        tuple(sorted((name, str(value)) for name, value in each.labels.items())) for each in measured
    )
    assert all(one != other for one, other in pairwise(rows))


@pytest.mark.net
@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_real_broker_is_replaced_with_nothing_dropped(tmp_path: Path) -> None:
    settings = settings_of("incremental", subscriptions=60, pending=50)
    found = replace_point(RunTask(settings, 1, tmp_path, tmp_path))
    assert (found["dropped_share"], found["doubled"], found["entries_before"]) == (0.0, 0.0, 0.0)
    assert found["entries_moved"] == 60
    assert found["replication_time_ms"] > 0
    assert found["pdrd_ms"] > 0

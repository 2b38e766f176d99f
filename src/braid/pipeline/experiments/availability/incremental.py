"""Is a sequence of SHIFTs felt less than rewiring a path at once? (Figure 7)"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from braid.errors import InvariantViolated
from braid.pipeline.experiments.availability.gaps import (
    added_pause,
    mean,
    median,
    ordering_degree,
    slope,
)
from braid.pipeline.experiments.availability.real_path import RealPath
from braid.pipeline.experiments.figures import LineChart, Series
from braid.pipeline.experiments.registry import Experiment, Findings
from braid.pipeline.experiments.rows import PaperValue, Sample
from braid.pipeline.experiments.sweep import Point, run_point

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from braid.pipeline.experiments.availability.real_brokers import Stream
    from braid.pipeline.experiments.availability.real_path import Operation
    from braid.pipeline.experiments.registry import Evidence, Plan
    from braid.pipeline.experiments.rows import Row
    from braid.pipeline.experiments.sweep import RunTask

__all__ = ["EXPERIMENT", "felt", "rewire_point"]

FUNCTION: Final = "braid.pipeline.experiments.availability.incremental:rewire_point"
# As in the paper, between two SHIFTs of the plan.
REST_S: Final = 0.5
# How long the network runs undisturbed before the first operation: what its readers feel without any.
QUIET_S: Final = 10.0
# After each way there and back.
PAUSE_S: Final = 1.5
# What an operation does to readers may reach so much further than its end.
AFTER_S: Final = 0.3
ROUNDS: Final = {"quick": 3, "paper": 20}
"""How often B1 goes there and back in each way."""
RATE: Final = {"quick": 500, "paper": 2_000}
"""Numbers a second."""
SUBSCRIPTIONS: Final = {"quick": 200, "paper": 10_000}
PATHS: Final = {"quick": (3, 5, 7), "paper": (3, 5, 7, 9)}
LONG: Final = 7
"""The path length of Figure 7(a)."""
SIZES: Final = {"quick": (1_000,), "paper": (200, 100_000)}
"""Further numbers of subscriptions, on the shortest path: does the pause of a SHIFT grow with them?"""
WORKLOADS: Final[dict[str, dict[str, Any]]] = {
    "distinct": {"distinct": True},
    "paper": {"distinct": False},
    "skewed": {"distinct": True, "skew": 0.8},
}
# The SHIFT of the paper, and the one whose tables travel ahead.
PROTOCOLS: Final = {"shift": "three-phase", "precopy": "precopy"}
# In a workload where nothing covers anything, an operation has to move this share of what it concerns.
MOVED_MIN: Final = 0.9
# A share of less than this would be one of chance.
SHARE_OF_MS_MIN: Final = 5.0


def _points(plan: Plan) -> list[Point]:
    subscriptions = SUBSCRIPTIONS[plan.scale]
    wanted = [("distinct", length, subscriptions) for length in PATHS[plan.scale]]
    wanted += [(workload, LONG, subscriptions) for workload in WORKLOADS if workload != "distinct"]
    wanted += [("distinct", PATHS[plan.scale][0], size) for size in SIZES[plan.scale]]
    return [
        Point(
            {
                "workload": workload,
                "path_length": length,
                "subscriptions": size,
                "rounds": ROUNDS[plan.scale],
                "rate": RATE[plan.scale],
            },
            seed,
        )
        for workload, length, size in wanted
        for seed in range(1, plan.seeds + 1)
    ]


def _prepare(spark: SparkSession, plan: Plan, points: Sequence[Point]) -> None:
    """Run the points here, one after the other: beside each other they would measure each other."""
    for point in points:
        run_point(FUNCTION, point, plan.out)


def rewire_point(task: RunTask) -> dict[str, Any]:
    """Rewire a line of real brokers at once, and back by SHIFTs, in both ways; says what was felt."""
    with tempfile.TemporaryDirectory(prefix="braid-rewired-") as folder:
        return asyncio.run(_rewire(task, Path(folder)))


async def _rewire(task: RunTask, folder: Path) -> dict[str, Any]:
    settings = task.settings
    length, load = settings["path_length"], os.getloadavg()[0]
    filters = _filters(task.seed, length, settings)
    async with RealPath(length, filters, folder, rate=settings["rate"]) as network:
        names = network.names
        quiet_from_s = time.monotonic()
        await asyncio.sleep(QUIET_S)
        quiet_s = (quiet_from_s, time.monotonic())
        done: dict[str, list[list[Operation]]] = {"direct": [], **{each: [] for each in PROTOCOLS}}
        moved = dict.fromkeys(done, 0)
        for operation, protocol in [*PROTOCOLS.items()] * settings["rounds"]:
            before = network.entries_moved()
            # A path of three is a SHIFT, whatever it is called.
            done["direct"].append([await network.rewire(names, by="three-phase")])
            await asyncio.sleep(PAUSE_S)
            moved["direct"] += network.entries_moved() - before
            before = network.entries_moved()
            # B1 hangs on the last broker; back, it goes from one to the next.
            plan: list[Operation] = []
            for place in range(length - 1, 1, -1):
                path = (names[0], names[place], names[place - 1])
                plan.append(await network.rewire(path, by=protocol))
                if place > 2:
                    await asyncio.sleep(REST_S)
            done[operation].append(plan)
            await asyncio.sleep(PAUSE_S)
            moved[operation] += network.entries_moved() - before
        await network.stop_writing()
    mine = len(filters[0])
    counts = {name: sum(map(len, plans)) for name, plans in done.items()}
    for operation, count in moved.items():
        if settings["workload"] == "distinct" and count < MOVED_MIN * mine * counts[operation]:
            raise InvariantViolated(
                f"{operation} moved {count} entries, and there are {mine} subscriptions that it concerns"
            )
    streams = list(network.streams.values())
    return {
        name: felt(streams, network.published_at_s, plans, quiet_s)
        | {"entries_moved": moved[name] / counts[name], "load_average": load}
        for name, plans in done.items()
    }


def _filters(seed: int, length: int, settings: dict[str, Any]) -> list[list[str]]:
    """What is asked for at each broker."""
    from braid.workloads import workload
    from braid.workloads.tables import broker_name

    chosen = WORKLOADS[settings["workload"]]
    made = workload(
        "availability",
        seed=seed,
        brokers=length,
        per_broker=settings["subscriptions"],
        publishers=1,
        **chosen,
    )
    found: dict[str, list[str]] = {broker_name(number): [] for number in range(length)}
    for row in made.local("subscriptions").to_pylist():
        found[row["broker"]].append(row["filter"])
    return list(found.values())


# What was felt.


def felt(
    streams: Sequence[Stream],
    published_at_s: Mapping[str, Sequence[float]],
    plans: Sequence[Sequence[Operation]],
    quiet_s: tuple[float, float],
) -> dict[str, float]:
    """What readers noticed of operations, each for itself: the median of the pauses, else means over them.

    Only streams that cross the link that changes count: from B1 to the others, and to B1 from the last one.

    Args:
        streams: what was read, and when.
        published_at_s: when it was published, by writer.
        plans: operations that belong together, such as the SHIFTs that bring B1 back.
        quiet_s: from when to when there was none.
    """
    crossing = [each for each in streams if (each.writer == "B1") is not (each.reader == "B1")]
    operations = [operation for plan in plans for operation in plan]
    times = [
        (np.array(published_at_s[each.writer])[each.numbers], np.array(each.read_at_s)) for each in crossing
    ]
    pauses, resumptions, lasts = [], [], []
    for operation in operations:
        pauses.append(added_pause(crossing, operation.began_s, operation.ended_s + AFTER_S, quiet_s))
        for sent_s, read_s in times:
            # What was published meanwhile: when it was read, and how long it took.
            meanwhile = np.flatnonzero((operation.began_s <= sent_s) & (sent_s <= operation.ended_s))
            if len(meanwhile):
                delays_s = read_s[meanwhile] - sent_s[meanwhile]
                latest = int(np.argmax(delays_s))
                resumptions.append(float(delays_s[latest]))
                lasts.append(float(read_s[meanwhile[-1]] - read_s[meanwhile[latest]]))
    return {
        "pause_ms": 1000 * median(pauses),
        "pause_ms_max": 1000 * max(pauses),
        "operations": float(len(operations)),
        "pdrd_ms": 1000 * mean(resumptions),
        "lmpt_ms": 1000 * mean(lasts),
        "operation_time_ms": 1000 * mean([each.ended_s - each.began_s for each in operations]),
        "total_time_ms": 1000 * mean([plan[-1].ended_s - plan[0].began_s for plan in plans]),
        "broker_cpu_ms": 1000 * mean([each.cpu_s for each in operations]),
        "ordering_degree": mean([ordering_degree(stream.numbers) for stream in streams]),
        "lost": float(sum(len(published_at_s[each.writer]) - len(set(each.numbers)) for each in streams)),
        "doubled": float(sum(len(each.numbers) - len(set(each.numbers)) for each in streams)),
    }


METRICS: Final = (
    "pdrd_ms",
    "lmpt_ms",
    "operation_time_ms",
    "total_time_ms",
    "pause_ms",
    "pause_ms_max",
    "operations",
    "ordering_degree",
    "entries_moved",
    "broker_cpu_ms",
    "load_average",
    "lost",
    "doubled",
)


def _measure(evidence: Evidence) -> Findings:
    samples = []
    by_length: dict[tuple[str, int], list[tuple[float, float]]] = {}
    # Most points have the same number of subscriptions; the others are not compared by length.
    sizes = Counter(run.settings["subscriptions"] for run in evidence.runs.values())
    usual = max(sizes, key=sizes.__getitem__, default=0)
    for run in evidence.runs.values():
        settings = run.settings
        for operation, values in run.summary.items():
            labels = {
                "operation": operation,
                "subscriptions": settings["subscriptions"],
                "path_length": settings["path_length"],
                "workload": settings["workload"],
            }
            samples += [Sample(metric, labels, run.seed, values[metric]) for metric in METRICS]
            if settings["workload"] == "distinct" and settings["subscriptions"] == usual:
                point = (float(settings["path_length"]), values["pdrd_ms"])
                by_length.setdefault((operation, run.seed), []).append(point)
        for metric in ("pause_ms", "pdrd_ms"):
            whole = run.summary["shift"][metric]
            if whole < SHARE_OF_MS_MIN:
                continue
            share = run.summary["precopy"][metric] / whole
            labels = {
                "subscriptions": settings["subscriptions"],
                "path_length": settings["path_length"],
                "workload": settings["workload"],
                "of": metric,
            }
            samples.append(Sample("precopy_share", labels, run.seed, share))
    for (operation, seed), points in by_length.items():
        labels = {"operation": operation, "workload": "distinct", "of": "pdrd_ms"}
        samples.append(Sample("slope_vs_path_length", labels, seed, slope(points)))
    return Findings(samples, _charts)


def _charts(rows: Sequence[Row]) -> list[LineChart]:
    chosen = [row for row in rows if row.metric == "pdrd_ms" and row.labels["workload"] == "distinct"]
    series = []
    usual = max((row.labels["subscriptions"] for row in chosen), key=_times(chosen), default="")
    chosen = [row for row in chosen if row.labels["subscriptions"] == usual]
    for operation in ("precopy", "shift", "direct"):
        own = sorted(
            (float(row.labels["path_length"]), row.measured)
            for row in chosen
            if row.labels["operation"] == operation
        )
        series.append(Series(operation, [x for x, _ in own], [y for _, y in own]))
    return [
        LineChart(
            "path-length",
            "Resumption delay by path length (Figure 7(b))",
            "brokers on the path",
            "PDRD [ms]",
            series,
        )
    ]


def _times(rows: Sequence[Row]) -> Callable[[Any], int]:
    """How often a number of subscriptions occurs."""
    return Counter(row.labels["subscriptions"] for row in rows).__getitem__


EXPERIMENT = Experiment(
    paper="availability",
    name="incremental",
    title="Five SHIFTs against rewiring at once",
    shows=(
        "A line of real broker processes, with subscriptions at each. B1 is hung on the last broker at once "
        "(direct), and goes back by SHIFTs, 0.5 s apart; then again, with SHIFTs whose tables travel ahead "
        "(precopy), and so on: 20 rounds at the paper's scale, 3 at the quick one. Two writers publish in "
        "order, together 2,000 numbers a second at the paper's scale and 500 at the quick one; a reader at "
        "every broker writes down what comes. Figures are means over operations, but pause_ms is the median. "
        "Runs are made one at a time."
    ),
    function=FUNCTION,
    points=_points,
    measure=_measure,
    prepare=_prepare,
    paper_values=(
        PaperValue("pdrd_ms", {"operation": "shift", "path_length": LONG, "subscriptions": 10_000}, 4_000.0),
        PaperValue(
            "pdrd_ms", {"operation": "direct", "path_length": LONG, "subscriptions": 10_000}, 21_700.0
        ),
        PaperValue(
            "total_time_ms", {"operation": "direct", "path_length": LONG, "subscriptions": 10_000}, 21_700.0
        ),
        PaperValue(
            "total_time_ms", {"operation": "shift", "path_length": LONG, "subscriptions": 10_000}, 23_400.0
        ),
    ),
    seeds={"quick": 1, "paper": 3},
    shown=("pause_ms", "pdrd_ms", "operation_time_ms", "precopy_share", "slope_vs_path_length"),
    notes=(
        "pause_ms is the longest gap between deliveries during an operation and 0.3 s after it, at any "
        "reader behind the link that changes, minus the longest in equal times before the first operation.",
        "PDRD is seen by readers here: how late the latest of the numbers came that were published during "
        "the operation, which is the first one that was held; LMPT is from then until the last of them had "
        "come. The paper counts from the connection request at a neighbour.",
        "With the paper's workload covering leaves at most 20 entries, whatever the number of subscriptions; "
        "the goals count for `distinct`.",
        "The paper's SHIFT is constant in the path length, and ours was not. A likely reason, which was not "
        "measured on its own: the new link begins like any other, both "
        "ends say all that they know, so that with a fixed number of subscriptions per broker a SHIFT grows "
        "with the path, too, and all brokers share the processors of one machine.",
        "Wall times of processes on one machine depend on what else it does; broker_cpu_ms is beside them, "
        "and load_average is what the machine had to do for others when the run began.",
    ),
    differences={
        "pdrd_ms": "The paper's brokers are Java processes of 2009 on machines of their own, and its SHIFT "
        "rewrites tables that hold every subscription of the path.",
        "total_time_ms": "The same; here the rests of 0.5 s between SHIFTs are most of a plan.",
    },
)

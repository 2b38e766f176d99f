"""One run of a failover with real brokers, what was felt of it, and what the experiments about it share.

`availability.subscriptions`, `fanout`, `pending` and `neighbours` differ in what they vary; the run is the
same (`real_star`), and so are its measures.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from braid.errors import InvariantViolated
from braid.pipeline.experiments.availability.gaps import added_pause, mean, ordering_degree, slope
from braid.pipeline.experiments.availability.real_brokers import Stream
from braid.pipeline.experiments.availability.real_star import PUBLISHER, RealStar
from braid.pipeline.experiments.rows import Sample
from braid.pipeline.experiments.sweep import Point, run_point

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from braid.pipeline.experiments.availability.real_star import Failover, Read
    from braid.pipeline.experiments.registry import Evidence, Plan
    from braid.pipeline.experiments.sweep import RunTask

__all__ = [
    "DIFFERENCES",
    "FUNCTION",
    "METRICS",
    "NOTES",
    "Content",
    "felt_of",
    "prepare",
    "replace_point",
    "samples_of",
    "settings_of",
]

FUNCTION: Final = "braid.pipeline.experiments.availability.replacing:replace_point"
VALUES: Final = 20
"""Published and asked values go from 1 to this, as in the paper."""
# Numbers a second. A failover takes about a second, so that what is published meanwhile is like what waited.
RATE: Final = 200.0
# How long the network runs undisturbed before the broker dies, and after the failover.
QUIET_S: Final = 3.0
AFTER_S: Final = 1.0
MOVED_MIN: Final = 0.9
# A share of less than this would be one of chance.
SHARE_OF_MS_MIN: Final = 1.0
METRICS: Final = (
    "pdrd_ms",
    "lmpt_ms",
    "replication_time_ms",
    "failover_ms",
    "detection_ms",
    "pause_ms",
    "ordering_degree",
    "dropped_share",
    "doubled",
    "entries_before",
    "entries_moved",
    "mean_fanout",
    "broker_cpu_ms",
    "load_average",
)
NOTES: Final = (
    "pdrd_ms is the mean over subscriptions for which something waited: the time from "
    "the request to connect at their broker, by its trace, until they are handed the first publication since "
    "the broker in the middle was known to be gone. lmpt_ms goes on from there to the last one that had been "
    "published when the failover was over. replication_time_ms is that of the paper, by the replica's trace.",
    "pause_ms is felt: the longest gap in what comes to a neighbour's subscriptions from the kill on, with "
    "detection and all that an operator has to ask for, minus the longest in an equal time before. "
    "failover_ms goes from the operator's first request until all links of the replica are open.",
    "detection_ms is until all neighbours know that their link is down. A process that is killed closes its "
    "connections; one that only falls silent is noticed by heartbeats, which takes seconds.",
    "ordering_degree is about what was published between the detection and the end of the failover, at each "
    "neighbour; dropped_share is the part of the deliveries of that time that never came.",
    "In `distinct` nothing covers anything, and a run in which the replica learns fewer than 90 % of the "
    "subscriptions fails. With the paper's workload covering leaves at most 20 entries for each neighbour.",
    "All brokers are processes of one machine and share its processors; broker_cpu_ms is what they took from "
    "the detection to the end of the failover, load_average what the machine had to do for others when the "
    "run began: times mean little where that is more than its processors.",
)
DIFFERENCES: Final = {
    **dict.fromkeys(
        ("pdrd_ms", "replication_time_ms"),
        "The paper's brokers are Java processes of 2009 on machines of their own.",
    ),
    "dropped_share": "Here most of what waits was published at once and crosses at once, before the replica "
    "knows a subscription; the paper does not say how its publications came.",
}


class Content:
    """What is asked for at each neighbour, and what is published.

    Args:
        seed: makes it.
        workload: `paper`, where filters are `attribute > v`, or `distinct`, where each also asks for ids that
            no other filter asks for all of.
        subscriptions: how many at all neighbours together.
        neighbours: how many there are.
        fanout: in `distinct`: how many subscriptions a publication meets.
        degree: of both Zipf distributions of the paper's workload.
        popular: whether these favour publications that meet much, and subscriptions that ask for much.
    """

    def __init__(
        self,
        seed: int,
        workload: str,
        subscriptions: int,
        neighbours: int,
        *,
        fanout: int = 1,
        degree: float = 1.0,
        popular: bool = True,
    ) -> None:
        chance = np.random.default_rng([seed, 15])
        self._distinct = workload == "distinct"
        from braid.workloads.availability import value_shares  # `braid reproduce list` needs no Arrow

        asked = value_shares(VALUES, degree, "low" if popular else "high")
        given = value_shares(VALUES, degree, "high" if popular else "low")
        self.values = 1 + chance.choice(VALUES, subscriptions, p=asked)
        self._fanout = fanout
        self._count = subscriptions
        self._neighbours = neighbours
        # So many that no run comes to their end.
        self._given = 1 + chance.choice(VALUES, 1 << 16, p=given)
        self._ids = chance.integers(fanout - 1, max(subscriptions, fanout), 1 << 16)

    def filters(self) -> list[list[str]]:
        """The filters at each neighbour."""
        found: list[list[str]] = [[] for _ in range(self._neighbours)]
        for number, value in enumerate(self.values.tolist()):
            text = f"attribute > {value}"
            if self._distinct and self._fanout == 1:
                text += f" AND id = {number}"
            elif self._distinct:
                text += f" AND id >= {number} AND id < {number + self._fanout}"
            found[number % self._neighbours].append(text)
        return found

    def attributes(self, number: int) -> dict[str, Any]:
        """What is published with a number."""
        place = number % len(self._given)
        if self._distinct:
            return {"attribute": VALUES + 1, "id": int(self._ids[place])}
        return {"attribute": int(self._given[place])}

    def fanout(self, number: int) -> int:
        """How many subscriptions a number meets."""
        if self._distinct:
            return self._fanout
        return int(np.count_nonzero(self.values < self._given[number % len(self._given)]))


# One run.


def settings_of(protocol: str, **more: Any) -> dict[str, Any]:
    """The settings of a point; what an experiment does not vary has its usual value."""
    usual = {
        "workload": "distinct",
        "subscriptions": 1_000,
        "neighbours": 2,
        "pending": 200,
        "fanout": 1,
        "degree": 1.0,
        "popular": True,
    }
    return {"protocol": protocol, **usual, **more}


def prepare(_: SparkSession, plan: Plan, points: Sequence[Point]) -> None:
    """Run the points here, one after the other: beside each other they would measure each other."""
    for point in points:
        run_point(FUNCTION, point, plan.out)


def replace_point(task: RunTask) -> dict[str, Any]:
    """Kill a broker among real ones and replace it; says what was felt."""
    with tempfile.TemporaryDirectory(prefix="braid-replaced-") as folder:
        return asyncio.run(_replace(task, Path(folder)))


async def _replace(task: RunTask, folder: Path) -> dict[str, Any]:
    settings = task.settings
    content = Content(
        task.seed,
        settings["workload"],
        settings["subscriptions"],
        settings["neighbours"],
        fanout=settings["fanout"],
        degree=settings["degree"],
        popular=settings["popular"],
    )
    load = os.getloadavg()[0]
    async with RealStar(content.filters(), folder, RATE, content.attributes) as network:
        await asyncio.sleep(QUIET_S)
        found = await network.replace(settings["protocol"], settings["pending"])
        await asyncio.sleep(AFTER_S)
        await network.stop_writing()
        await network.phases(found)
    if settings["workload"] == "distinct" and found.entries_moved < MOVED_MIN * settings["subscriptions"]:
        raise InvariantViolated(
            f"the replica knows {found.entries_moved} of {settings['subscriptions']} subscriptions"
        )
    return felt_of(found, network.read, network.published_s, content.fanout) | {"load_average": load}


def felt_of(
    found: Failover, read: Mapping[str, Read], published_s: Sequence[float], fanout: Callable[[int], int]
) -> dict[str, float | None]:
    """What was felt of a failover; None is a delay of what never came.

    Args:
        found: when what happened.
        read: what came to the subscriptions at each neighbour.
        published_s: when each number was published.
        fanout: how many subscriptions a number meets.
    """
    sent_s = np.array(published_s)
    # What waited while the broker in the middle was gone.
    first, end = found.first, int(np.searchsorted(sent_s, found.done_s))
    resumptions, lasts, orders = [], [], []
    came = doubled = 0
    streams = []
    for name, each in read.items():
        subscriptions, numbers = np.array(each.subscriptions, int), np.array(each.numbers, int)
        at_s = np.array(each.at_s)
        doubled += len(numbers) - len(np.unique(np.stack((subscriptions, numbers)), axis=1).T)
        _, once = np.unique(numbers, return_index=True)
        once.sort()  # a number counts when the first subscription there gets it
        streams.append(Stream(PUBLISHER, name, numbers[once].tolist(), at_s[once].tolist()))
        orders.append(ordering_degree([number for number in found.delivered[name] if first <= number < end]))
        mine = np.flatnonzero((first <= numbers) & (numbers < end))
        came += len(mine)
        by_subscription = mine[np.argsort(subscriptions[mine], kind="stable")]
        _, begins = np.unique(subscriptions[by_subscription], return_index=True)
        # Whoever was waited for by nothing has no delay: what came later was published later.
        late = int(np.searchsorted(sent_s, found.requested_s[name]))
        for rows in np.split(by_subscription, begins[1:]) if len(begins) else ():
            if numbers[rows].min() >= late:
                continue
            resumptions.append(max(0.0, float(at_s[rows[0]]) - found.requested_s[name]))
            lasts.append(float(at_s[rows[-1]] - at_s[rows[0]]))
    owed = sum(map(fanout, range(first, end)))
    # Not up to the end: the gap of the failover may begin a little before it.
    quiet_s = (found.killed_s - QUIET_S, found.killed_s - QUIET_S / 6)
    pauses = [added_pause([each], found.killed_s, found.done_s + AFTER_S, quiet_s) for each in streams]
    return {
        "pdrd_ms": 1000 * mean(resumptions) if resumptions else None,
        "lmpt_ms": 1000 * mean(lasts) if lasts else None,
        "replication_time_ms": 1000 * found.replication_s,
        "failover_ms": 1000 * (found.done_s - found.asked_s),
        "detection_ms": 1000 * (found.detected_s - found.killed_s),
        "pause_ms": 1000 * max(pauses),
        "ordering_degree": mean(orders),
        "dropped_share": 1 - (came - doubled) / owed if owed else 0.0,
        "doubled": float(doubled),
        "entries_before": float(found.entries_before),
        "entries_moved": float(found.entries_moved),
        "mean_fanout": owed / max(1, end - first),
        "broker_cpu_ms": 1000 * found.cpu_s,
    }


# Rows.


def samples_of(evidence: Evidence, varied: str, *, over: str = "") -> list[Sample]:
    """Rows of an experiment, how they grow with what it varies, and shares of synchronous resumption.

    Args:
        evidence: its runs.
        varied: the setting that differs between runs.
        over: the measure that slopes are taken over; that setting if not given.
    """
    samples = []
    lines: dict[tuple[str, str, str, int, str], list[tuple[float, float]]] = {}
    known = {}
    for run in evidence.runs.values():
        settings, values = run.settings, run.summary
        labels = _labels(settings, varied)
        samples += [
            Sample(metric, labels, run.seed, values[metric])
            for metric in METRICS
            if values[metric] is not None
        ]
        x = values[over] if over else float(settings[varied])
        for metric in ("pdrd_ms", "replication_time_ms"):
            line = (settings["protocol"], settings["workload"], settings.get("spread", ""), run.seed, metric)
            if values[metric] is not None:
                lines.setdefault(line, []).append((x, values[metric]))
        known[_place(settings, run.seed)] = run
    for run in evidence.runs.values():
        settings = run.settings
        if settings["protocol"] == "synchronous":
            continue
        whole = known.get(_place({**settings, "protocol": "synchronous"}, run.seed))
        for metric in ("pdrd_ms", "replication_time_ms"):
            own, other = run.summary[metric], whole.summary[metric] if whole is not None else None
            if own is not None and other is not None and other >= SHARE_OF_MS_MIN:
                labels = _labels(settings, varied) | {"of": metric}
                samples.append(Sample("share_of_synchronous", labels, run.seed, own / other))
    for (protocol, workload, spread, seed, metric), points in lines.items():
        if len({x for x, _ in points}) > 1:
            labels = {"protocol": protocol, "workload": workload, "of": metric}
            if spread:
                labels["spread"] = spread
            samples.append(Sample(f"slope_vs_{varied}", labels, seed, slope(points)))
    return samples


def _labels(settings: Mapping[str, Any], varied: str) -> dict[str, Any]:
    shown = ("protocol", "workload", "subscriptions", "neighbours", "pending")
    labels = {name: settings[name] for name in (*shown, "spread") if name in settings}
    if varied == "fanout":
        of_paper = f"Zipf {settings['degree']:g}, {'popular' if settings['popular'] else 'unpopular'}"
        labels["fanout"] = settings["fanout"] if settings["workload"] == "distinct" else of_paper
    return labels


def _place(settings: Mapping[str, Any], seed: int) -> tuple[Any, ...]:
    return (*sorted((name, str(value)) for name, value in settings.items()), seed)

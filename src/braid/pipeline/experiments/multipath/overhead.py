"""What does a change of links cost a broker? (Multipath paper, section 7, "Computational overhead".)

No network is simulated: the maps and tables of single brokers of C1 are built, and the processor's time for
rebuilding them is measured.
"""

from __future__ import annotations

import random
import time
from statistics import median
from typing import TYPE_CHECKING, Any

from braid.pipeline.experiments.multipath.measures import bar_chart
from braid.pipeline.experiments.registry import Experiment, Findings
from braid.pipeline.experiments.rows import PaperValue, Sample
from braid.pipeline.experiments.sweep import Point

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from braid.pipeline.experiments.figures import Chart
    from braid.pipeline.experiments.registry import Evidence, Plan
    from braid.pipeline.experiments.rows import Row
    from braid.pipeline.experiments.sweep import RunTask
    from braid.routing import OverlayMap

__all__ = ["EXPERIMENT", "measure_point", "measured_overhead"]

DELTA = 4
_FANOUTS = (5, 10, 20, 35)
_PAPER_FANOUT = 35
_SUBSCRIPTIONS = 6_500
_BROKERS_LOOKED_AT = 8


def _points(plan: Plan) -> list[Point]:
    repeats = 200 if plan.scale == "paper" else 60
    settings = {"configuration": "C1", "subscriptions": _SUBSCRIPTIONS, "repeats": repeats}
    return [
        Point({**settings, "fanout": fanout}, seed)
        for fanout in _FANOUTS
        for seed in range(1, plan.seeds + 1)
    ]


def measure_point(task: RunTask) -> dict[str, Any]:
    """In a Spark task: what rebuilding costs with one fanout."""
    return measured_overhead(seed=task.seed, **task.settings)


def measured_overhead(
    *, configuration: str, fanout: int, subscriptions: int, repeats: int, seed: int
) -> dict[str, float]:
    """Milliseconds of the processor's time to rebuild maps and tables, medians over brokers and repeats."""
    from braid.routing import PATHS, Anchored, MultipathForwarding, OverlayMap, WorkingMap
    from braid.sim.topologies import topology

    network = topology(configuration, seed)
    chance = random.Random(f"{seed}/overhead")
    maps: list[float] = []
    tables: list[float] = []
    written: list[float] = []
    sizes: list[int] = []
    # Those who see the most have the most to do.
    sights = {broker: OverlayMap.of_links(broker, network.links, DELTA) for broker in network.brokers}
    for broker in sorted(sights, key=lambda each: (-len(sights[each]), each))[:_BROKERS_LOOKED_AT]:
        overlay = sights[broker]
        links = _links(overlay, fanout, chance)
        anchors = _anchors(network.links, overlay, subscriptions, chance)
        entries = [Anchored(overlay.toward(anchor), anchor) for anchor in anchors]
        distinct = [(entry, None) for entry in dict.fromkeys(entries)]
        working = WorkingMap(overlay, links)
        sizes.append(len(working.links))
        forwarding = MultipathForwarding(overlay.neighbours, lambda link, publications: None)

        def map_anew(overlay: OverlayMap = overlay, links: set[str] = links) -> None:
            WorkingMap(overlay, links)

        def table_anew(
            forwarding: MultipathForwarding = forwarding,
            working: WorkingMap = working,
            distinct: list[tuple[Anchored, None]] = distinct,
        ) -> None:
            forwarding.use(working, PATHS["S2"])
            # The first publication that meets them looks up all anchors; here it meets every one of them.
            forwarding.next_hops(distinct, None, False, 1)

        def table_written(working: WorkingMap = working, entries: list[Anchored] = entries) -> None:
            [working.substitute(entry.anchor) for entry in entries]

        maps.append(_milliseconds(map_anew, repeats))
        tables.append(_milliseconds(table_anew, repeats))
        written.append(_milliseconds(table_written, max(10, repeats // 10)))
    return {
        "working_map_ms": median(maps),
        "working_table_ms": median(tables),
        "working_table_written_ms": median(written),
        "links": median(sizes),
    }


def _links(overlay: OverlayMap, fanout: int, chance: random.Random) -> set[str]:
    """All neighbours, and soft links to brokers in sight up to the fanout."""
    others = [broker for broker in overlay.brokers if broker not in overlay.neighbours]
    soft = chance.sample(others, min(len(others), max(0, fanout - len(overlay.neighbours))))
    return {*overlay.neighbours, *soft}


def _anchors(
    links: Sequence[tuple[str, str]], overlay: OverlayMap, subscriptions: int, chance: random.Random
) -> list[str]:
    """The anchors of subscriptions from brokers all over the network."""
    from braid.routing import OverlayMap

    whole = OverlayMap.of_links(overlay.centre, links)
    homes = chance.choices(whole.brokers, k=subscriptions)
    return [whole.path(home)[min(DELTA, whole.distance(home)) - 1] for home in homes]


def _milliseconds(work: Callable[[], None], repeats: int) -> float:
    """The median time of one call. Calls are grouped: a clock is coarser than the shortest of them."""
    together = 5
    times = []
    for _ in range(max(3, repeats // together)):
        begun_ns = time.process_time_ns()
        for _ in range(together):
            work()
        times.append((time.process_time_ns() - begun_ns) / together / 1e6)
    return median(times)


def _measure(evidence: Evidence) -> Findings:
    samples: dict[str, list[Sample]] = {}
    for run in evidence.runs.values():
        labels = {
            "strategy": "S2",
            "configuration": run.settings["configuration"],
            "fanout": run.settings["fanout"],
            "subscriptions": run.settings["subscriptions"],
            "window": "converged",
        }
        for metric in ("working_map_ms", "working_table_ms", "working_table_written_ms"):
            samples.setdefault(metric, []).append(Sample(metric, labels, run.seed, run.summary[metric]))
    return Findings([each for group in samples.values() for each in group], _charts)


def _charts(rows: Sequence[Row]) -> list[Chart]:
    return [
        bar_chart(
            rows,
            metric,
            name=metric,
            title=title,
            y_label="ms of processor time",
            caption="The dashed mark is the paper's value; the whisker is our 95 % interval.",
            groups="fanout",
        )
        for metric, title in (
            ("working_map_ms", "Rebuilding the working overlay map (C1, delta 4)"),
            ("working_table_ms", "Deriving the working table (6,500 subscriptions)"),
        )
    ]


EXPERIMENT = Experiment(
    paper="multipath",
    name="overhead",
    title="Rebuilding maps and tables after a change of links",
    shows=(
        "The paper measures how long a broker needs after a change of its links: about 0.8 ms for the "
        "working overlay map, and about 17 ms for the working subscription table with 6,500 subscriptions. "
        "Here the same is measured for the brokers of C1 that see the most others, with subscriptions "
        "from all over the network."
    ),
    function="braid.pipeline.experiments.multipath.overhead:measure_point",
    points=_points,
    measure=_measure,
    paper_values=(
        PaperValue("working_map_ms", {"fanout": _PAPER_FANOUT}, 0.8),
        PaperValue("working_table_ms", {"fanout": _PAPER_FANOUT}, 17.0),
        PaperValue("working_table_written_ms", {"fanout": _PAPER_FANOUT}, 17.0),
    ),
    seeds={"quick": 3, "paper": 5},
    notes=(
        "The working table is not written down here: subscriptions keep the anchors of the master table, and "
        "the link that stands for an anchor is looked up after matching. `working_table_ms` is all that has "
        "to be made anew for that, all anchors included; `working_table_written_ms` is what writing it down "
        "for each of the 6,500 subscriptions would take.",
        "Processor time of one core of the machine that runs the experiment.",
    ),
    differences={
        "working_map_ms": "Another machine and another language; the paper's is a Java broker of 2012.",
        "working_table_ms": "Nothing here grows with the number of subscriptions: see the notes.",
        "working_table_written_ms": "Writing the table down is a look-up per subscription here; the paper's "
        "broker also recomputes covering sets.",
    },
)

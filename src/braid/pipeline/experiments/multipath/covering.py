"""What do many links cost in matching? (Multipath paper, section 7: Figure 12.)

A publication is matched against a *covering set* for every link: the subscriptions behind it that no other
one behind the same link covers. The more links, the fewer subscriptions share one, and the less is covered.

No publication is needed for that. The tables of all brokers follow from the network, the subscriptions and
the soft links; the covering sets are computed as the paper defines them, one per anchor of the working table.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from braid.pipeline.experiments.figures import LineChart, Series
from braid.pipeline.experiments.registry import Experiment, Findings
from braid.pipeline.experiments.rows import PaperValue, Sample
from braid.pipeline.experiments.sweep import Point

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from braid.pipeline.experiments.figures import Chart
    from braid.pipeline.experiments.registry import Evidence, Plan
    from braid.pipeline.experiments.rows import Row
    from braid.pipeline.experiments.sweep import RunTask
    from braid.routing import OverlayMap

__all__ = ["EXPERIMENT", "clauses_of", "covering_set", "covering_sizes", "measure_point"]

DELTA = 4
_FANOUTS = (5, 10, 15, 20, 25, 30, 35)
_SMALLEST = 5
# In the quick scale every so many-th broker is looked at.
_EVERY = {"quick": 5, "paper": 1}

Clauses = tuple[str, ...]
"""The conditions of a filter of DT-C. Each level adds one, so a filter covers those that begin like it."""


def _points(plan: Plan) -> list[Point]:
    settings = {"configuration": "C3", "dataset": "DT-C", "every": _EVERY[plan.scale], "workload": {}}
    chosen = [("S0", 3), ("SB", 500), *(("S2", fanout) for fanout in _FANOUTS)]
    return [
        Point({**settings, "strategy": strategy, "fanout": fanout}, seed)
        for strategy, fanout in chosen
        for seed in range(1, plan.seeds + 1)
    ]


def measure_point(task: RunTask) -> dict[str, Any]:
    """In a Spark task: the covering sets of one network with one fanout."""
    settings = task.settings
    return covering_sizes(
        configuration=settings["configuration"],
        strategy=settings["strategy"],
        fanout=settings["fanout"],
        workload=settings["workload"],
        every=settings["every"],
        seed=task.seed,
    )


def covering_sizes(
    *, configuration: str, strategy: str, fanout: int, workload: Mapping[str, Any], every: int, seed: int
) -> dict[str, float]:
    """Mean size of all covering sets of a broker together, and the conditions in them."""
    from braid.routing import OverlayMap
    from braid.scenario.workload import subscription_rows
    from braid.sim.topologies import topology
    from braid.workloads import workload as made

    network = topology(configuration, seed)
    at_home: dict[str, Counter[Clauses]] = {}
    for row in subscription_rows(made("multipath.DT-C", seed=seed, **workload)):
        at_home.setdefault(row.broker, Counter())[clauses_of(row.filter)] += 1
    weights = {home: sum(found.values()) for home, found in at_home.items()}
    # What is covered at its own broker is covered everywhere.
    homes = {home: covering_set(found) for home, found in at_home.items()}
    sizes, conditions, links, looked_at = 0, 0, 0, 0
    for broker in network.brokers[::every]:
        whole = OverlayMap.of_links(broker, network.links)
        groups = _by_link(whole, homes, weights, strategy, fanout)
        looked_at += 1
        links += len(groups)
        for filters in groups.values():
            covering = covering_set(filters)
            sizes += len(covering)
            conditions += sum(map(len, covering))
    return {
        "covering_set": sizes / looked_at,
        "conditions": conditions / looked_at,
        "links": links / looked_at,
        "subscriptions": sum(weights.values()),
    }


def _by_link(
    whole: OverlayMap,
    homes: Mapping[str, Collection[Clauses]],
    weights: Mapping[str, int],
    strategy: str,
    fanout: int,
) -> dict[str, list[Clauses]]:
    """The filters behind each anchor of a broker's working table; its own subscribers are none."""
    from braid.routing import WorkingMap

    others = [home for home in homes if home != whole.centre]
    if strategy == "SB":
        groups = {home: home for home in others}
    else:
        near = whole.within(1 if strategy == "S0" else DELTA)
        anchors = {home: _anchor(whole, home, near) for home in others}
        demand = Counter[str]()
        for home, anchor in anchors.items():
            demand[anchor] += weights[home]
        working = WorkingMap(near, _links(near, demand, fanout))
        groups = {
            home: working.links[number]
            for home, anchor in anchors.items()
            if (number := working.substitute(anchor)) is not None
        }
    found: dict[str, list[Clauses]] = {}
    for home, group in groups.items():
        found.setdefault(group, []).extend(homes[home])
    return found


def _anchor(whole: OverlayMap, home: str, near: OverlayMap) -> str:
    """The farthest broker on the way to a subscriber that is in sight."""
    path = whole.path(home)
    return next(broker for broker in reversed(path) if broker in near)


def _links(near: OverlayMap, demand: Counter[str], fanout: int) -> set[str]:
    """Neighbours, and soft links where the most is gained if all subscriptions are asked for alike.

    Gain, as in section 6 of the paper: what is sent to a broker times the brokers that a link bypasses.
    """
    behind: Counter[str] = Counter()
    for anchor, count in demand.items():
        for broker in near.path(anchor):
            behind[broker] += count
    soft = sorted(
        (broker for broker in near.brokers if near.distance(broker) > 1),
        key=lambda broker: (-behind[broker] * (near.distance(broker) - 1), broker),
    )
    return {*near.neighbours, *soft[: max(0, fanout - len(near.neighbours))]}


def clauses_of(text: str) -> Clauses:
    """The conditions of a filter of DT-C, in the order of their levels."""
    return tuple(re.split(r" AND (?=x\d)", text))


def covering_set(filters: Iterable[Clauses]) -> set[Clauses]:
    """The filters that no other one covers."""
    every = set(filters)
    return {each for each in every if not any(each[:length] in every for length in range(1, len(each)))}


def _measure(evidence: Evidence) -> Findings:
    smallest = {
        run.seed: run.summary for run in evidence.runs.values() if run.settings["fanout"] == _SMALLEST
    }
    samples: dict[str, list[Sample]] = {}
    for run in evidence.runs.values():
        settings, summary = run.settings, run.summary
        labels = {
            "strategy": settings["strategy"],
            "dataset": settings["dataset"],
            "configuration": settings["configuration"],
            "fanout": settings["fanout"],
            "window": "converged",
        }
        for metric in ("covering_set", "conditions"):
            values = {metric: summary[metric]}
            values[f"{metric}_relative_to_fanout_{_SMALLEST}"] = summary[metric] / smallest[run.seed][metric]
            for name, value in values.items():
                samples.setdefault(name, []).append(Sample(name, labels, run.seed, value))
    return Findings([each for group in samples.values() for each in group], _charts)


def _charts(rows: Sequence[Row]) -> list[Chart]:
    series = []
    for metric, name in (("covering_set", "size of covering sets"), ("conditions", "conditions in them")):
        chosen = [
            row
            for row in rows
            if row.metric == f"{metric}_relative_to_fanout_{_SMALLEST}" and row.labels["strategy"] == "S2"
        ]
        series.append(
            Series(
                name,
                [float(row.labels["fanout"]) for row in chosen],
                [row.measured for row in chosen],
                [row.interval[0] if row.interval else row.measured for row in chosen],
                [row.interval[1] if row.interval else row.measured for row in chosen],
            )
        )
    return [
        LineChart(
            name="covering",
            title="What publications are matched against (C3, DT-C, delta 4)",
            x_label="fanout",
            y_label=f"relative to fanout {_SMALLEST}",
            series=series,
            caption="As Figure 12 of the paper. Mean over the seeds; the band is the 95 % interval.",
        )
    ]


EXPERIMENT = Experiment(
    paper="multipath",
    name="covering",
    title="Covering sets by fanout",
    shows=(
        "Figure 12 of the paper: on C3 (500 brokers) with subscriptions that cover each other (DT-C), the "
        "average size of the covering sets that a broker matches publications against, for several "
        "fanouts, relative to a fanout of 5. From 5 to 10 it grows by 12 %, predicate evaluations by 34 %."
    ),
    function="braid.pipeline.experiments.multipath.covering:measure_point",
    points=_points,
    measure=_measure,
    paper_values=(
        PaperValue(f"covering_set_relative_to_fanout_{_SMALLEST}", {"strategy": "S2", "fanout": 10}, 1.12),
        PaperValue(f"conditions_relative_to_fanout_{_SMALLEST}", {"strategy": "S2", "fanout": 10}, 1.34),
    ),
    seeds={"quick": 2, "paper": 5},
    notes=(
        "Our brokers do not write the working table down: anchors are looked up after matching, and covering "
        "works by the anchors of the master table, whatever the fanout. The paper's covering sets are "
        "therefore computed from the tables, one set per link of the working map.",
        "Soft links go where the most is gained if all subscriptions are asked for alike; the network is not "
        "simulated. The size is that of all covering sets of a broker together.",
        "S0 has one set per primary link. SB knows every broker by itself, so only subscriptions of the same "
        "broker cover each other: what covering loses there. Its fanout label is the number of brokers.",
        "`conditions` counts the predicates of the filters in the sets, not evaluations: matching here "
        "shares equal predicates between filters.",
        "The quick scale looks at every fifth broker.",
    ),
    differences={
        f"conditions_relative_to_fanout_{_SMALLEST}": "It depends on how many conditions covering and "
        "covered filters have, which the paper does not give. In DT-C every level adds one.",
        f"covering_set_relative_to_fanout_{_SMALLEST}": "It depends on how subscriptions cover each other, "
        "which the paper does not give, and on how far apart subscribers of one topic are.",
    },
)

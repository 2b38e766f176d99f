"""How far is each heuristic from the best tree? (Not in the paper.)

The yardstick is the offline solution of the PSOOP for whoever knows everything (`braid.pipeline.planning`),
and the bound below it. The same yardstick measures the trees of section 3.1 (MST, MIT) and the best star.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from braid.pipeline.experiments.registry import Experiment, Findings
from braid.pipeline.experiments.rows import Sample
from braid.pipeline.experiments.selforganising.network import (
    POLICIES,
    TICK_US,
    byte_samples,
    costs_by_period,
    organise_point,
    schedule_of,
    settings_of,
    total,
)
from braid.pipeline.experiments.sweep import Point

if TYPE_CHECKING:
    from collections.abc import Mapping

    from braid.pipeline.experiments.registry import Evidence, Plan
    from braid.pipeline.experiments.sweep import RunTask
    from braid.pipeline.experiments.sweep_folder import FinishedRun
    from braid.pipeline.planning.solver import Instance

__all__ = ["EXPERIMENT", "measure_point", "window_instance"]

_DURATION = {"quick": 8_000, "paper": 15_000}
_WINDOW_TICKS = 2_000
"""The end of a run, when trees have settled; the offline solution knows all that is published there."""
_ROUNDS = {"quick": 10, "paper": 60}
_STARTS = {"quick": 2, "paper": 6}
_STAYS = 1e9
"""A subscription of that length never ends."""

_DEGREE_MAX = 8


def _points(plan: Plan) -> list[Point]:
    duration = _DURATION[plan.scale]
    points = []
    still: dict[str, list[int]] = {"link_changes": [], "processing_changes": []}
    churns = {"none": {"subscription_ticks": _STAYS}, "paper": {}}
    for churn, workload in churns.items():
        for degree_max in (0, _DEGREE_MAX) if churn == "none" or plan.scale == "paper" else (0,):
            shared: dict[str, Any] = {
                "costs": still,
                "workload": {**workload, "loads_change_ticks": 0},
                "churn": churn,
                "degree_max": degree_max,
            }
            seeds = range(1, plan.seeds + 1)
            for policy in POLICIES if not degree_max else ("ci", "exact"):
                topology = {"degree_max": degree_max} if degree_max else {}
                settings = settings_of(policy, duration, topology=topology, **shared)
                points += [Point(settings, seed, {"static": 0.1}.get(policy, 1.0)) for seed in seeds]
            # Many starts are many tasks; the best of them counts.
            solver = {"rounds": _ROUNDS[plan.scale]}
            for start in range(_STARTS[plan.scale]):
                settings = settings_of("offline", duration, solver={**solver, "start": start}, **shared)
                points += [Point(settings, seed, 3.0) for seed in seeds]
    return points


def window_instance(settings: Mapping[str, Any], seed: int) -> Instance:
    """Everything that is published in the window at the end of a run, with the costs of that time."""
    from braid.pipeline.experiments.selforganising.demand import Demand, members_matrix
    from braid.pipeline.planning.solver import Instance
    from braid.workloads import workload

    chosen = dict(settings["workload"])
    duration = settings["duration_ticks"]
    played = workload(chosen.pop("name"), seed=seed, duration_ticks=duration, tick_us=TICK_US, **chosen)
    demand = Demand(played)
    for _ in demand.until((duration - _WINDOW_TICKS) * TICK_US):
        pass
    groups: dict[tuple[int, ...], int] = {}
    for row in demand.until(duration * TICK_US):
        groups[row.members] = groups.get(row.members, 0) + len(row.hashes)
    costs = schedule_of(settings, seed)
    return Instance(
        members_matrix(list(groups), demand.brokers),
        np.array(list(groups.values()), float),
        costs.links[-1][1],
        costs.processing[-1][1],
        settings["degree_max"],
    )


def measure_point(task: RunTask) -> dict[str, Any]:
    """A run of a network, or one start of the offline search with what it is compared with."""
    if task.settings["policy"] != "offline":
        return organise_point(task)
    return _solve(task)


def _solve(task: RunTask) -> dict[str, Any]:
    from braid.adaptation.topology.pricing import NumberedTree
    from braid.pipeline.experiments.selforganising.network import start_links
    from braid.pipeline.planning.bound import lower_bound
    from braid.pipeline.planning.solver import (
        best_shortest_ways,
        best_star,
        interest_tree,
        minimum_tree,
        solve,
    )

    instance = window_instance(task.settings, task.seed)
    start, rounds = task.settings["solver"]["start"], task.settings["solver"]["rounds"]
    known = {"star": best_star, "ways": best_shortest_ways, "mst": minimum_tree, "mit": interest_tree}
    trees = {name: make(instance) for name, make in known.items()}
    if instance.degree_max:
        # A random tree has few links at any broker; the search never exceeds the bound from there.
        links = start_links(
            {**task.settings, "start": "recursive"}, task.seed + 1_000 * start, _schedule(task)
        )
        begin = _bounded(NumberedTree.of_links(instance.brokers, links), instance.degree_max)
    else:
        begin = list(trees.values())[start % len(trees)]
    best = solve(instance, begin, rounds=rounds, seed=start)
    found: dict[str, Any] = {"offline": best.cost, "links": [list(link) for link in best.tree.links]}
    if start == 0:
        found["bound"] = lower_bound(instance)
        found |= {name: instance.cost(tree) for name, tree in trees.items()}
    return found


def _schedule(task: RunTask) -> Any:
    return schedule_of(task.settings, task.seed)


def _bounded(tree: Any, degree_max: int) -> Any:
    """A tree of the same brokers in which none has more links than that: a line through them."""
    from braid.adaptation.topology.pricing import NumberedTree

    degrees = np.bincount(np.array(tree.links).ravel())
    if degrees.max() <= degree_max:
        return tree
    order = tree.order.tolist()
    return NumberedTree.of_links(len(order), list(pairwise(order)))


def _measure(evidence: Evidence) -> Findings:
    costs = costs_by_period(evidence)
    periods = _WINDOW_TICKS // 1_000
    offline: dict[str, float] = {}
    others: dict[str, dict[str, float]] = {}
    for run in evidence.runs.values():
        if run.settings["policy"] == "offline":
            key = _case(run.settings, run.seed)
            offline[key] = min(offline.get(key, np.inf), run.summary["offline"])
            if "bound" in run.summary:
                others[key] = {name: run.summary[name] for name in ("bound", "mst", "mit", "star")}
    samples: list[Sample] = []
    for key, run in evidence.runs.items():
        case = _case(run.settings, run.seed)
        labels = {"churn": run.settings["churn"], "degree_max": run.settings["degree_max"], "costs": "paths"}
        if run.settings["policy"] == "offline":
            if "bound" in run.summary:
                for name, cost in others[case].items():
                    if name == "bound" or not run.settings["degree_max"]:
                        row = {"policy": name, **labels}
                        samples.append(Sample("cost_vs_offline", row, run.seed, cost / offline[case]))
            continue
        last = costs[key][-periods:]
        row = {"policy": run.settings["policy"], **labels}
        spent = total(last, "notifications")
        samples.append(Sample("cost_vs_offline", row, run.seed, spent / offline[case]))
        if run.settings["policy"] != "static":
            samples.append(Sample("control_vs_offline", row, run.seed, (total(last) - spent) / offline[case]))
            samples.append(Sample("total_vs_offline", row, run.seed, total(last) / offline[case]))
        samples.append(Sample("most_links", row, run.seed, run.summary["degree_max"]))
    samples += byte_samples(evidence, _labels, _WINDOW_TICKS)
    return Findings(sorted(samples, key=lambda sample: sample.metric))


def _labels(run: FinishedRun) -> dict[str, Any]:
    churn, degree_max = run.settings["churn"], run.settings["degree_max"]
    return {"policy": run.settings["policy"], "churn": churn, "degree_max": degree_max, "costs": "paths"}


def _case(settings: Mapping[str, Any], seed: int) -> str:
    return json.dumps([settings["churn"], settings["degree_max"], seed])


EXPERIMENT = Experiment(
    paper="self-organising",
    name="headroom",
    title="The distance of each heuristic to the best tree that is known",
    shows=(
        "Every heuristic starts from a random tree and organises the paper's network; the last 2,000 ticks "
        "are compared with the best tree that a search with full knowledge of them finds (`cost_vs_offline`, "
        "notifications alone), with and without coming and going of subscribers, and with at most 8 links at "
        "a broker. `bound` is what no tree can be cheaper than: each notification has the cheapest tree of "
        "its own there."
    ),
    function="braid.pipeline.experiments.selforganising.headroom:measure_point",
    points=_points,
    measure=_measure,
    seeds={"quick": 1, "paper": 5},
    notes=(
        "`total_vs_offline` counts control messages as well, each like a notification whatever its size; "
        "`control_bytes` are the bytes, `false_positive_rate` how often a filter of interest says yes to a "
        "publication that is not in it. `degree_max` 0 means no bound on links.",
        "The search starts from the best star, the best tree of shortest ways, MST and MIT, and goes on from "
        "random exchanges of links.",
    ),
)

"""Does it matter that simulated peers begin with their tables? Every experiment, from real joins."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from braid.pipeline.experiments.infrastructurefree.network import ASSUMPTIONS, FUNCTION
from braid.pipeline.experiments.registry import Evidence, Experiment, Findings, registered
from braid.pipeline.experiments.rows import Sample
from braid.pipeline.experiments.sweep import Point

if TYPE_CHECKING:
    from braid.pipeline.experiments.registry import Plan

__all__ = ["EXPERIMENT"]

PEERS = 5_000


def _compared(plan: Plan) -> dict[str, list[Point]]:
    """By the name of an experiment: its first point among 5,000 peers, settled and from real joins."""
    found: dict[str, list[Point]] = {}
    for experiment in registered().values():
        if experiment.function != FUNCTION or experiment.name == EXPERIMENT.name:
            continue
        first = next((each for each in experiment.points(plan) if each.settings["peers"] == PEERS), None)
        if first is not None:
            found[experiment.name] = [
                Point({**first.settings, "joins": joins}, first.seed) for joins in (True, False)
            ]
    return found


def _points(plan: Plan) -> list[Point]:
    one_seed = replace(plan, seeds=1)
    points = [point for pair in _compared(one_seed).values() for point in pair]
    return list({point.key(FUNCTION): point for point in points}.values())


def _measure(evidence: Evidence) -> Findings:
    from braid.pipeline.experiments.reproduce import SelectedTraces
    from braid.pipeline.experiments.sweep import traces_of

    plan = replace(evidence.plan, seeds=1)
    samples: list[Sample] = []
    for name, points in _compared(plan).items():
        experiment = registered()[f"infrastructure-free.{name}"]
        values: list[dict[str, Sample]] = []
        for point in points:
            key = point.key(FUNCTION)
            runs = {key: evidence.runs[key]}
            traces = SelectedTraces(evidence.spark, traces_of(plan.out), runs)
            measured = experiment.measure(Evidence(evidence.spark, plan, runs, traces)).samples
            values.append({f"{each.metric} {sorted(each.labels.items())}": each for each in measured})
        joined, settled = values
        for about, each in joined.items():
            other = settled.get(about)
            labels = {"experiment": name, **each.labels}
            samples.append(Sample(each.metric, {**labels, "joins": True}, each.seed, each.value))
            if other is not None:
                samples.append(Sample(each.metric, {**labels, "joins": False}, each.seed, other.value))
    return Findings(samples)


EXPERIMENT = Experiment(
    paper="infrastructure-free",
    name="joins",
    title="Every experiment from real joins, beside a start with tables",
    shows=(
        "Not in the paper. The other experiments begin with the tables that joins lead to. Here the first "
        "run of each among 5,000 peers is made a second time, with peers that join one by one (joins=true): "
        "what it measures should be the same."
    ),
    function=FUNCTION,
    points=_points,
    measure=_measure,
    seeds={"quick": 1, "paper": 1},
    notes=(
        *ASSUMPTIONS,
        "Where peers join, they also send each other beats, which those that begin with tables and never "
        "fail do not.",
    ),
)

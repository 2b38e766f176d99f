"""Does it matter that some attributes and values are far more frequent than others? (Figures 21 to 23)"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.pipeline.experiments.infrastructurefree.network import (
    ASSUMPTIONS,
    BEST,
    FUNCTION,
    delivery_samples,
    latency_samples,
    message_samples,
    settings_of,
)
from braid.pipeline.experiments.registry import Experiment, Findings
from braid.pipeline.experiments.rows import Sample
from braid.pipeline.experiments.sweep import Point

if TYPE_CHECKING:
    from braid.pipeline.experiments.registry import Evidence, Plan

__all__ = ["EXPERIMENT"]


def _points(plan: Plan) -> list[Point]:
    kinds = (False, True)
    chosen = [settings_of(zipf=zipf) for zipf in kinds]
    chosen += [settings_of(zipf=zipf, **BEST) for zipf in kinds]
    if plan.scale == "paper":
        chosen += [
            settings_of(zipf=zipf, peers=50_000, subscriptions=count)
            for zipf in kinds
            for count in (50_000, 300_000)
        ]
    return [
        Point(each, seed, each["subscriptions"] / 1_000)
        for each in chosen
        for seed in range(1, plan.seeds + 1)
    ]


def _measure(evidence: Evidence) -> Findings:
    samples = [
        *delivery_samples(evidence, "zipf"),
        *latency_samples(evidence, "zipf"),
        *message_samples(evidence, "zipf"),
    ]
    return Findings([*samples, *_ratios(samples)])


def _ratios(samples: list[Sample]) -> list[Sample]:
    """Skewed over uniform, for each quantity."""
    uniform = {_about(each): each.value for each in samples if not each.labels["zipf"]}
    found = []
    for each in samples:
        before = uniform.get(_about(each))
        if each.labels["zipf"] and before:
            labels = {name: value for name, value in each.labels.items() if name != "zipf"}
            found.append(Sample(f"{each.metric}_skewed_over_uniform", labels, each.seed, each.value / before))
    return found


def _about(sample: Sample) -> tuple[object, ...]:
    labels = tuple((name, value) for name, value in sorted(sample.labels.items()) if name != "zipf")
    return sample.metric, sample.seed, labels


EXPERIMENT = Experiment(
    paper="infrastructure-free",
    name="skew",
    title="Skewed attributes and values",
    shows=(
        "Figures 21 to 23: attributes and values drawn with a Zipf distribution of exponent 1 change neither "
        "the delivery ratio nor the latency much, and the messages only as far as there are more matches. "
        "Rows that end in _skewed_over_uniform are the ratio of both."
    ),
    function=FUNCTION,
    points=_points,
    measure=_measure,
    seeds={"quick": 1, "paper": 1},
    notes=ASSUMPTIONS,
)

"""How much of what was published arrives? (Figures 8, 9 and 21)"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.pipeline.experiments.infrastructurefree.network import (
    ASSUMPTIONS,
    BEST,
    FUNCTION,
    delivery_samples,
    latency_samples,
    ordering_samples,
    settings_of,
)
from braid.pipeline.experiments.registry import Experiment, Findings
from braid.pipeline.experiments.sweep import Point

if TYPE_CHECKING:
    from braid.pipeline.experiments.registry import Evidence, Plan

__all__ = ["EXPERIMENT"]


def _points(plan: Plan) -> list[Point]:
    chosen = [
        settings_of(algorithm=algorithm, tree_cache=cache)
        for algorithm in ("DMM-AR", "DMM")
        for cache in (True, False)
    ]
    chosen += [settings_of(**BEST), settings_of(zipf=True)]
    if plan.scale == "paper":
        chosen += [settings_of(subscriptions=10_000)]
        chosen += [settings_of(peers=50_000, subscriptions=count) for count in (50_000, 300_000)]
    return [
        Point(each, seed, each["subscriptions"] / 1_000)
        for each in chosen
        for seed in range(1, plan.seeds + 1)
    ]


def _measure(evidence: Evidence) -> Findings:
    return Findings(
        [
            *delivery_samples(evidence, "zipf"),
            *latency_samples(evidence, "zipf"),
            *ordering_samples(evidence, "zipf"),
        ]
    )


EXPERIMENT = Experiment(
    paper="infrastructure-free",
    name="delivery",
    title="Delivery ratio with 0.1 % of datagrams lost",
    shows=(
        "Figures 8, 9 and 21: DMM-AR with the cache delivers nearly everything although 0.1 % of all "
        "messages are lost, without it less, and DMM less than both; skewed values and attributes (zipf) "
        "change nothing. Acknowledgements (acknowledged=true) are not in the paper: with them nothing is "
        "lost. `ordering_degree` is not there either: peers do not promise an order."
    ),
    function=FUNCTION,
    points=_points,
    measure=_measure,
    seeds={"quick": 1, "paper": 1},
    notes=ASSUMPTIONS,
)

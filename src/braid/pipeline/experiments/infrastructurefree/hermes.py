"""What does Hermes cost on the same DHT? (section VI-A3)"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.pipeline.experiments.infrastructurefree.network import (
    ASSUMPTIONS,
    FUNCTION,
    delivery_samples,
    latency_samples,
    message_samples,
    settings_of,
)
from braid.pipeline.experiments.registry import Experiment, Findings
from braid.pipeline.experiments.rows import PaperValue, Sample
from braid.pipeline.experiments.sweep import Point

if TYPE_CHECKING:
    from braid.pipeline.experiments.registry import Evidence, Plan

__all__ = ["EXPERIMENT"]


def _points(plan: Plan) -> list[Point]:
    counts = (1_000, 10_000) if plan.scale == "paper" else (1_000,)
    chosen = [
        settings_of(algorithm=algorithm, tree_cache=algorithm == "DMM", subscriptions=count)
        for count in counts
        for algorithm in ("Hermes", "DMM")
    ]
    return [Point(each, seed) for each in chosen for seed in range(1, plan.seeds + 1)]


def _measure(evidence: Evidence) -> Findings:
    messages = message_samples(evidence)
    ratios = []
    for each in messages:
        if (
            each.metric == "messages"
            and each.labels["kind"] == "all"
            and each.labels["algorithm"] == "Hermes"
        ):
            about = {"subscriptions": each.labels["subscriptions"], "peers": each.labels["peers"]}
            ratios += [
                Sample("messages_hermes_over_dmm", about, each.seed, each.value / other.value)
                for other in messages
                if other.metric == "messages"
                and other.labels == {**each.labels, "algorithm": "DMM", "tree_cache": True}
                and other.seed == each.seed
            ]
    return Findings([*ratios, *messages, *delivery_samples(evidence), *latency_samples(evidence)])


EXPERIMENT = Experiment(
    paper="infrastructure-free",
    name="hermes",
    title="Hermes with one event type, beside DMM with the cache",
    shows=(
        "Section VI-A3: with one topic the messages of Hermes are almost those of DMM with the cache. "
        "`messages_hermes_over_dmm` is the ratio of all messages of both."
    ),
    function=FUNCTION,
    points=_points,
    measure=_measure,
    paper_values=(PaperValue("messages_hermes_over_dmm", {"peers": 5_000}, 1.0),),
    seeds={"quick": 1, "paper": 1},
    notes=(
        *ASSUMPTIONS,
        "A publication of Hermes goes up hop by hop to the rendezvous peer of its type, and at every peer on "
        "the way down to those whose filters it satisfies.",
    ),
    differences={"messages_hermes_over_dmm": "Peers of DMM that would only pass on step aside."},
)

"""How many messages do subscriptions and publications cost? (Figures 10 to 13)"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.pipeline.experiments.infrastructurefree.network import (
    ASSUMPTIONS,
    BEST,
    FUNCTION,
    message_samples,
    settings_of,
)
from braid.pipeline.experiments.registry import Experiment, Findings
from braid.pipeline.experiments.rows import PaperValue, Sample
from braid.pipeline.experiments.sweep import Point

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.pipeline.experiments.registry import Evidence, Plan

__all__ = ["EXPERIMENT"]


def _points(plan: Plan) -> list[Point]:
    chosen = [settings_of(subscriptions=1_000), settings_of(subscriptions=10_000)]
    chosen += [settings_of(tree_cache=False), settings_of(peers=1_000)]
    chosen += [settings_of(algorithm="DMM", tree_cache=cache) for cache in (True, False)]
    chosen.append(settings_of(**BEST))
    if plan.scale == "paper":
        chosen += [settings_of(subscriptions=count) for count in (2_000, 5_000)]
        chosen += [settings_of(peers=50_000, subscriptions=count) for count in (50_000, 300_000)]
        # A tree that splits costs DMM more than DMM-AR.
        chosen += [
            settings_of(algorithm="DMM", subscriptions=10_000, split_threshold=each) for each in (100, 1_000)
        ]
    return [
        Point(each, seed, each["subscriptions"] / 1_000)
        for each in chosen
        for seed in range(1, plan.seeds + 1)
    ]


def _measure(evidence: Evidence) -> Findings:
    samples = message_samples(evidence)
    return Findings([*samples, *_growth(samples)])


def _growth(samples: Sequence[Sample]) -> list[Sample]:
    """How many times the messages ten times the subscriptions cost."""
    found: list[Sample] = []
    totals = {
        (tuple(sorted(each.labels.items())), each.seed): each.value
        for each in samples
        if each.metric == "messages" and each.labels["kind"] == "all"
    }
    for (items, seed), value in totals.items():
        labels = dict(items)
        more = dict(labels, subscriptions=10 * int(labels["subscriptions"]))
        larger = totals.get((tuple(sorted(more.items())), seed))
        if larger is not None:
            told = {name: labels[name] for name in more if name != "kind"}
            found.append(Sample("messages_growth_tenfold", told, seed, larger / value))
    return found


_PAPER_MODE: dict[str, str | bool] = {
    "algorithm": "DMM-AR",
    "tree_cache": True,
    "lookup": "climb",
    "acknowledged": False,
}

EXPERIMENT = Experiment(
    paper="infrastructure-free",
    name="messages",
    title="Messages by subscriptions, by peers and for each match",
    shows=(
        "Figures 10 to 13: ten times the subscriptions cost less than five times the messages, nearly all of "
        "them carry publications, and with 1,000 subscriptions about 7 messages deliver a publication to an "
        "interested subscriber. `messages` has a label `kind`: publication, subscription (with beacons), "
        "cache, acknowledgement and all. `messages_growth_tenfold` is the factor for ten times the "
        "subscriptions."
    ),
    function=FUNCTION,
    points=_points,
    measure=_measure,
    paper_values=(
        PaperValue("messages_per_match", {**_PAPER_MODE, "subscriptions": 1_000, "peers": 5_000}, 7.0),
        PaperValue("messages_growth_tenfold", {**_PAPER_MODE, "subscriptions": 1_000, "peers": 5_000}, 5.0),
    ),
    seeds={"quick": 1, "paper": 1},
    notes=(
        *ASSUMPTIONS,
        "The paper's growth is an upper bound: less than five.",
        "With acknowledgements a publication is confirmed on every hop and from end to end; these messages "
        "count as `acknowledgement`.",
    ),
)

"""What about real social traffic? (Multipath paper, section 7, "Facebook dataset".)"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from braid.pipeline.experiments.multipath.measures import bar_chart
from braid.pipeline.experiments.multipath.network import FUNCTION, prepare_workloads, watched_point
from braid.pipeline.experiments.multipath.overload import PATIENT, delivered_samples
from braid.pipeline.experiments.registry import Experiment, Findings
from braid.pipeline.experiments.rows import PaperValue
from braid.pipeline.experiments.sweep import Point

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from braid.pipeline.experiments.figures import Chart
    from braid.pipeline.experiments.registry import Evidence, Plan, Scale
    from braid.pipeline.experiments.rows import Row

__all__ = ["EXPERIMENT"]

_STRATEGIES = ("S0", "S1", "S2", "SH", "SB")
_FANOUT = 20
# Processing times of a publication. The higher, the more brokers are overloaded.
_COSTS_US: Mapping[Scale, Sequence[int]] = {"quick": (40_000,), "paper": (20_000, 40_000, 80_000)}
_DURATIONS_S: Mapping[Scale, float] = {"quick": 60.0, "paper": 300.0}
_REVIEWS = 30
# Does it matter where users sit?
_TOGETHER = "community"
_TOGETHER_COST_US = 40_000


def _settings(plan: Plan, strategy: str, cost_us: int, placement: str = "hash") -> dict[str, Any]:
    duration_s = _DURATIONS_S[plan.scale]
    placed = {} if placement == "hash" else {"placement": placement}
    return {
        "configuration": "C1",
        "dataset": "DT-FB",
        "strategy": strategy,
        "fanout": _FANOUT,
        "workload": {"duration_s": duration_s, "subscriptions_of": "broker", **placed},
        "brokers": {
            **PATIENT,
            "uplink_messages_per_s": round(1e6 / cost_us, 1),
            "soft_links": {"review_us": round(duration_s * 1e6) // _REVIEWS},
        },
        "node": {"cost_us": {"publication": cost_us}},
        "drain_us": 1_000_000,
    }


def _points(plan: Plan) -> list[Point]:
    chosen = [
        _settings(plan, strategy, cost_us) for cost_us in _COSTS_US[plan.scale] for strategy in _STRATEGIES
    ]
    chosen += [_settings(plan, strategy, _TOGETHER_COST_US, _TOGETHER) for strategy in _STRATEGIES]
    points = [Point(settings, seed) for settings in chosen for seed in range(1, plan.seeds + 1)]
    return [*points, watched_point(_settings(plan, _STRATEGIES[-1], max(_COSTS_US[plan.scale])))]


def _measure(evidence: Evidence) -> Findings:
    samples = delivered_samples(
        evidence,
        _DURATIONS_S[evidence.plan.scale],
        same=("dataset", "node", "workload"),
        extra=lambda run: {
            "processing_ms": run.settings["node"]["cost_us"]["publication"] / 1_000,
            "placement": run.settings["workload"].get("placement", "hash"),
        },
    )
    return Findings(samples, _charts)


def _charts(rows: Sequence[Row]) -> list[Chart]:
    return [
        bar_chart(
            rows,
            "deliveries_relative_to_S0",
            name="social",
            title=f"Deliveries relative to S0 (C1, DT-FB, fanout {_FANOUT})",
            y_label="deliveries / deliveries with S0",
            caption="By the processing time of a publication, in ms. The dashed mark is the paper's value; "
            "the whisker is our 95 % interval.",
            groups="processing_ms",
            where={"placement": "hash"},
        ),
        bar_chart(
            rows,
            "deliveries_relative_to_S0",
            name="social_placement",
            title=f"Deliveries relative to S0 by where users sit (C1, DT-FB, {_TOGETHER_COST_US / 1e3:g} ms)",
            y_label="deliveries / deliveries with S0",
            caption="Placed by hash, or friends together. The dashed mark is the paper's value.",
            groups="placement",
            where={"processing_ms": _TOGETHER_COST_US / 1_000},
        ),
    ]


EXPERIMENT = Experiment(
    paper="multipath",
    name="social",
    title="Deliveries of a real social network's messages under overload",
    shows=(
        "The paper takes traces of user interaction in a social network (DT-FB) to C1 with a fanout of 20 "
        "and 3,600 publications in a minute: S1 and S2 outperform S0 by 37 % and 115 %. Here the trace is "
        "that of an online community of 1,899 users, whose contacts subscribe to each other."
    ),
    function=FUNCTION,
    points=_points,
    prepare=prepare_workloads,
    measure=_measure,
    paper_values=(
        PaperValue("deliveries_relative_to_S0", {"strategy": "S1"}, 1.37),
        PaperValue("deliveries_relative_to_S0", {"strategy": "S2"}, 2.15),
    ),
    seeds={"quick": 1, "paper": 5},
    notes=(
        "The trace of the paper is not public; this one is CollegeMsg. One client per broker asks for all "
        "authors that users there follow, so that 120 subscriptions do what 27,676 would.",
        "What is outperformed must be throughput under overload: without it all strategies deliver the same. "
        "How fast the paper's brokers were is not known, so several processing times are shown.",
    ),
    differences={
        "deliveries_relative_to_S0": "Another trace, and another degree of overload: compare the rows with "
        "different processing times. In this trace a publication is wanted at every fourth broker (32 of "
        "120), so there is less to be passed by: for one that is wanted at ten (DT1), under a similar "
        "overload, `multipath.throughput` shows gains like the paper's. Where users sit hardly matters "
        "(placement).",
    },
)

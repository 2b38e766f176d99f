"""What about a small network with thin uplinks? (Multipath paper, section 7: Figure 13(c), PlanetLab.)"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.pipeline.experiments.multipath.measures import bar_chart
from braid.pipeline.experiments.multipath.network import FUNCTION, prepare_workloads, watched_point
from braid.pipeline.experiments.multipath.overload import congested, delivered_samples
from braid.pipeline.experiments.registry import Experiment, Findings
from braid.pipeline.experiments.sweep import Point

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from braid.pipeline.experiments.figures import Chart
    from braid.pipeline.experiments.registry import Evidence, Plan, Scale
    from braid.pipeline.experiments.rows import Row

__all__ = ["EXPERIMENT"]

_STRATEGIES = ("S0", "S1", "S2", "SH", "SB")
_FANOUT = 10
_UPLINK_BYTES_PER_S = 10_000
# With these bodies a publication takes about so many bytes on a link.
_BODIES_BYTES = (20, 100, 200)
_MESSAGE_BYTES = 90
_DURATIONS_S: Mapping[Scale, float] = {"quick": 100.0, "paper": 300.0}
_REVIEWS = 15


def _points(plan: Plan) -> list[Point]:
    duration_s = _DURATIONS_S[plan.scale]
    points = [
        Point(
            congested(
                "CPL",
                dataset,
                strategy,
                fanout=_FANOUT,
                duration_s=duration_s,
                reviews=_REVIEWS,
                messages_per_s=round(_UPLINK_BYTES_PER_S / (_MESSAGE_BYTES + body_bytes), 1),
                node={"uplink_bytes_per_s": _UPLINK_BYTES_PER_S},
                workload={"body_bytes": body_bytes},
            ),
            seed,
        )
        for dataset in ("DT4", "DT5")
        for body_bytes in _BODIES_BYTES
        for strategy in _STRATEGIES
        for seed in range(1, plan.seeds + 1)
    ]
    return [*points, watched_point(points[-1].settings)]


def _measure(evidence: Evidence) -> Findings:
    samples = delivered_samples(
        evidence,
        _DURATIONS_S[evidence.plan.scale],
        same=("dataset", "workload"),
        extra=lambda run: {"body_bytes": run.settings["workload"]["body_bytes"]},
    )
    return Findings(samples, _charts)


def _charts(rows: Sequence[Row]) -> list[Chart]:
    return [
        bar_chart(
            rows,
            "delivered_share",
            name=f"delivered_{dataset}",
            title=f"Delivered in time, by the size of bodies (CPL, {dataset})",
            y_label="share of what is due",
            caption="As Figure 13(c) of the paper; the whisker is the 95 % interval.",
            groups="body_bytes",
            where={"dataset": dataset},
        )
        for dataset in ("DT4", "DT5")
    ]


EXPERIMENT = Experiment(
    paper="multipath",
    name="planetlab",
    title="Deliveries in a network of 21 brokers with thin uplinks",
    shows=(
        "Figure 13(c) of the paper: 21 brokers whose uplinks carry 10 KB in a second, and 3,300 "
        "publications in a minute for five minutes. With the sparse dataset (DT4) S0 is congested, while S1 "
        "and S2 deliver everything; with the dense one (DT5) nobody does, and S0 delivers the least."
    ),
    function=FUNCTION,
    points=_points,
    prepare=prepare_workloads,
    measure=_measure,
    seeds={"quick": 1, "paper": 5},
    notes=(
        "The paper gives no sizes of messages, on which it depends who is congested: three are shown.",
        "The paper prints bars without numbers.",
        "The quick scale publishes for 100 s instead of 300 s.",
        "The fanout is 10, half of the network; the paper does not give one here.",
    ),
)

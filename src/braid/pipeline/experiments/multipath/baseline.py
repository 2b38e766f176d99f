"""What does forwarding along the tree cost? (Multipath paper, section 7: S0 in Table 2 and Figure 9.)"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.pipeline.experiments.figures import BarChart, Bars
from braid.pipeline.experiments.multipath.measures import (
    forwarding_periods,
    forwarding_samples,
    hop_chart,
    path_lengths,
)
from braid.pipeline.experiments.multipath.network import (
    FUNCTION,
    PUBLICATIONS,
    prepare_workloads,
    watched_point,
)
from braid.pipeline.experiments.multipath.table2 import DURATIONS_S, strategy_points
from braid.pipeline.experiments.registry import Experiment, Findings
from braid.pipeline.experiments.rows import PaperValue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.pipeline.experiments.figures import Chart
    from braid.pipeline.experiments.registry import Evidence, Plan
    from braid.pipeline.experiments.rows import Row
    from braid.pipeline.experiments.sweep import Point

__all__ = ["EXPERIMENT"]


def _points(plan: Plan) -> list[Point]:
    points = strategy_points(plan, ["S0"])
    return [*points, watched_point(points[0].settings)]


def _measure(evidence: Evidence) -> Findings:
    hops = hop_chart(
        evidence,
        path_lengths(evidence),
        "dataset",
        name="hops",
        title="Path lengths along the tree (S0, C1)",
        caption="Share of deliveries that crossed at most so many links, as in Figure 9 of the paper. "
        "Mean over the seeds; the band is the 95 % interval.",
    )
    duration_s = DURATIONS_S[evidence.plan.scale]
    periods = forwarding_periods(evidence, duration_s)
    samples = forwarding_samples(evidence, periods, duration_s)
    return Findings(samples, lambda rows: [hops, *_bars(rows)])


def _bars(rows: Sequence[Row]) -> list[Chart]:
    return [
        _bar_chart(rows, "pure_forwarders", "Pure forwarders", f"per {PUBLICATIONS:,} publications"),
        _bar_chart(rows, "yield", "System yield", "deliveries / publications sent"),
    ]


def _bar_chart(rows: Sequence[Row], metric: str, title: str, y_label: str) -> BarChart:
    chosen = [row for row in rows if row.metric == metric]
    return BarChart(
        name=metric,
        title=f"{title} (S0, C1)",
        y_label=y_label,
        groups=[str(row.labels["dataset"]) for row in chosen],
        bars=[
            Bars(
                "S0",
                [row.measured for row in chosen],
                [row.interval for row in chosen],
                [row.paper_value for row in chosen],
            )
        ],
        caption="The dashed mark is the value in Table 2 of the paper; the whisker is our 95 % interval.",
    )


EXPERIMENT = Experiment(
    paper="multipath",
    name="baseline",
    title="Forwarding along the tree (S0): pure forwarders, yield, path lengths",
    shows=(
        "The paper compares its strategies with S0, which sends a publication along the links of the "
        "tree only. On configuration C1 (120 brokers, at most 3 links each) 36,000 publications enter "
        "within ten minutes, of which each is wanted at 9.67 brokers on average (DT1, sparse) or 28.7 "
        "(DT2, dense). A pure forwarder is a publication at a broker that nobody there wanted; the "
        "yield is the share of publications sent between brokers that arrive where they are wanted."
    ),
    function=FUNCTION,
    points=_points,
    prepare=prepare_workloads,
    measure=_measure,
    paper_values=tuple(
        PaperValue(metric, {"strategy": "S0", "dataset": dataset}, value)
        for dataset, values in {
            "DT1": {"pure_forwarders": 559_000, "yield": 0.38, "deliveries": 348_000},
            "DT2": {"pure_forwarders": 1_010_000, "yield": 0.50, "deliveries": 1_034_000},
        }.items()
        for metric, value in values.items()
    ),
    seeds={"quick": 3, "paper": 5},
    notes=(
        "The quick scale publishes for four of the paper's ten minutes. Yield and path lengths do "
        "not depend on how many publications there are; counts are scaled to 36,000 publications and "
        "labelled so.",
        "The paper does not print how its datasets match. Here publications of 60 classes per "
        "publisher are wanted by Zipf-distributed shares of the 60 subscriber brokers, scaled to the "
        "deliveries that the paper reports; the number of deliveries is therefore an input, and pure "
        "forwarders and yield are the result.",
        "All publishers share their classes, and a subscriber broker asks for all it wants with one "
        "subscription. Every publication matches the brokers that it would match with the 6,500 "
        "subscriptions of the paper, but they need not travel through 120 brokers first; tables of that "
        "size are what `multipath.overhead` measures.",
        "One more run, a short one, is checked delivery by delivery; a lost, doubled or uninvited one makes "
        "the experiment fail. Measured runs are not: that costs time and memory for each delivery.",
        "The runs are those of S0 in `multipath.table2`: in one folder they are done once. The fanout is a "
        "label for comparison only; S0 has no soft links.",
        "S0 adapts nothing, so its whole run after the subscriptions have spread counts as converged.",
    ),
    differences={
        "pure_forwarders": "It depends on how the tree is shaped and on where interested brokers sit "
        "in it, which the paper leaves open; different trees of the same kind "
        "differ by several per cent.",
        "yield": "It follows from the pure forwarders, and those from the shape of the tree.",
    },
)

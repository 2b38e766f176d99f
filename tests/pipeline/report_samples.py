"""What do the tests of the report show? A made-up experiment with rows near the paper and far from it."""

from __future__ import annotations

from pathlib import Path

from braid.pipeline.experiments.figures import BarChart, Bars, LineChart, Series
from braid.pipeline.experiments.registry import Experiment, Findings, Plan
from braid.pipeline.experiments.reproduce import Result
from braid.pipeline.experiments.rows import Row

__all__ = ["BARS", "CDF", "LINES", "RESULT"]

LINES = LineChart(
    "traffic",
    "Traffic over time",
    "seconds",
    "messages per second",
    [
        Series("S0", [0, 60, 120, 180], [3400, 3390, 3420, 3400], [3300] * 4, [3500] * 4),
        Series("S2", [0, 60, 120, 180], [3400, 2900, 2300, 2200]),
    ],
    "A line with a band, and one without.",
)
CDF = LineChart(
    "hops",
    "Path lengths",
    "hops",
    "share of deliveries",
    [
        Series("DT1", [0, 1, 2, 3, 4], [0, 0.1, 0.4, 0.8, 1], [0, 0.05, 0.3, 0.7, 1], [0, 0.15, 0.5, 0.9, 1]),
        Series("DT2", [0, 1, 2, 3, 4], [0, 0.2, 0.6, 0.9, 1]),
        Series("again", [0, 1, 2, 3, 4], [0, 0.1, 0.4, 0.8, 1]),
    ],
    "A distribution & its <band>.",
    steps=True,
    y_limits=(0, 1.02),
)
BARS = BarChart(
    "pure_forwarders",
    "Pure forwarders",
    "per 36,000 publications",
    ["DT1", "DT2"],
    [
        Bars("S0", [551_000, 1_030_000], [(540_000, 562_000), None], [559_000, 1_010_000]),
        Bars("S2", [216_000, 325_000]),
    ],
)

EXPERIMENT = Experiment(
    paper="multipath",
    name="madeup",
    title="A made-up experiment",
    shows='Pages must survive <angle brackets>, "quotes" & ampersands.',
    function="nowhere:nothing",
    points=lambda plan: [],
    measure=lambda evidence: Findings([]),
    notes=("A note about <everything>, and `hops`.",),
    differences={"mean_latency_s": "Links are 1 ms long here."},
)


def row(metric: str, dataset: str, paper: float | None, measured: float, reach: float | None) -> Row:
    interval = None if reach is None else (measured - reach, measured + reach)
    labels = {"strategy": "S0", "dataset": dataset, "window": "converged"}
    return Row("multipath", "madeup", metric, labels, paper, measured, interval, 1 if reach is None else 3)


RESULT = Result(
    experiment=EXPERIMENT,
    plan=Plan("quick", 3, Path("out")),
    rows=[
        row("pure_forwarders", "DT1", 559_000, 551_234, 11_000),
        row("pure_forwarders", "DT2", 1_010_000, 1_030_000, None),
        row("mean_latency_s", "DT1", 0.014, 0.0093, 0.0001),
        row("mean_hops", "DT<1>", None, 7.77, 0.2),
        row("yield", "DT1", 0.38, 0.5, 0.01),
    ],
    charts=[LINES, CDF, BARS],
    runs=6,
    executed=6,
    settings=[
        {"dataset": name, "strategy": "S0", "workload": {"brokers": 120}, "seeds": 3}
        for name in ("DT1", "DT2")
    ],
    seconds=12.3,
    simulation_seconds=45.6,
)

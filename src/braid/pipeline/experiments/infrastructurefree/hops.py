"""Over how many peers does a publication come to a subscriber? (Figure 19)"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.pipeline.experiments.figures import LineChart, Series
from braid.pipeline.experiments.infrastructurefree.network import (
    ASSUMPTIONS,
    BEST,
    FUNCTION,
    SECOND_US,
    labels_of,
    settings_of,
)
from braid.pipeline.experiments.registry import Experiment, Findings
from braid.pipeline.experiments.rows import PaperValue, Sample
from braid.pipeline.experiments.sweep import Point

if TYPE_CHECKING:
    from braid.pipeline.experiments.registry import Evidence, Plan

__all__ = ["EXPERIMENT"]


def _points(plan: Plan) -> list[Point]:
    chosen = [settings_of(), settings_of(tree_cache=False), settings_of(**BEST)]
    return [Point(each, seed) for each in chosen for seed in range(1, plan.seeds + 1)]


def _measure(evidence: Evidence) -> Findings:
    from braid.pipeline.metrics.delay import dht_hops

    traces = evidence.traces
    series: dict[str, list[tuple[float, int, float]]] = {}
    for run, row in evidence.by_run(dht_hops(traces.publication, traces.delivery)):
        second = (row["at_us"] - run.summary["begin_us"]) / SECOND_US
        series.setdefault(run.key, []).append((second, row["publications"], row["mean_hops"]))
    samples: list[Sample] = []
    lines: list[Series] = []
    for key, found in series.items():
        run = evidence.runs[key]
        labels = labels_of(run)
        for window, from_s in (("from_cold", float("-inf")), ("converged", 30.0)):
            some = [(count, mean) for second, count, mean in found if second >= from_s]
            publications = sum(count for count, _ in some)
            mean = sum(count * mean for count, mean in some) / publications
            samples.append(Sample("mean_hops", {**labels, "window": window}, run.seed, mean))
        name = f"{labels['lookup']}, {'cache' if labels['tree_cache'] else 'no cache'}"
        lines.append(Series(name, [second for second, *_ in found], [mean for *_, mean in found]))
    chart = LineChart(
        name="hops",
        title="Mean hops of a delivery by the time of publishing",
        x_label="seconds since the first publication",
        y_label="hops",
        series=lines,
        markers=False,
    )
    return Findings(samples, lambda rows: [chart])


EXPERIMENT = Experiment(
    paper="infrastructure-free",
    name="hops",
    title="Hops of the DHT from a publisher to a subscriber",
    shows=(
        "Figure 19: with the cache a publication of DMM-AR takes slightly less than 10 hops, matching and "
        "delivery included. Here each datagram is a hop, counted along the chain of datagrams that led to a "
        "delivery; what a timer has sent again counts from there."
    ),
    function=FUNCTION,
    points=_points,
    measure=_measure,
    paper_values=(
        PaperValue(
            "mean_hops", {"lookup": "climb", "tree_cache": True, "window": "converged", "peers": 5_000}, 10.0
        ),
    ),
    seeds={"quick": 1, "paper": 1},
    notes=(*ASSUMPTIONS, "The paper's value is an upper bound: slightly less than 10."),
    differences={
        "mean_hops": "A cache at the publisher saves the whole way to the region, and peers that would only "
        "pass on step aside."
    },
)

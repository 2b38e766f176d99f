"""How long are publications under way, and how soon does the cache help? (Figures 14 to 18)"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from braid.pipeline.experiments.figures import LineChart, Series
from braid.pipeline.experiments.infrastructurefree.network import (
    ASSUMPTIONS,
    BEST,
    FUNCTION,
    SECOND_US,
    WARM_AFTER_S,
    labels_of,
    latency_samples,
    settings_of,
)
from braid.pipeline.experiments.registry import Experiment, Findings
from braid.pipeline.experiments.rows import PaperValue, Sample
from braid.pipeline.experiments.sweep import Point

if TYPE_CHECKING:
    from braid.pipeline.experiments.registry import Evidence, Plan

__all__ = ["EXPERIMENT", "warm_up_s"]

PERIOD_S: Final = 5
# Warm is a cache from when on latencies stay within this factor of those at the end.
WARM_FACTOR: Final = 1.25
# The end is the last half of the time of publishing.
PUBLISH_S: Final = 100


def _points(plan: Plan) -> list[Point]:
    chosen = [settings_of(tree_cache=cache) for cache in (True, False)]
    chosen += [settings_of(cache_place=place) for place in ("path", "leaf-hop")]
    chosen += [settings_of(algorithm="DMM", tree_cache=cache) for cache in (True, False)]
    chosen += [settings_of(tree_cache=cache, **BEST) for cache in (True, False)]
    chosen += [settings_of(algorithm="DMM", tree_cache=False, **BEST)]
    if plan.scale == "paper":
        chosen += [
            settings_of(peers=50_000, subscriptions=50_000, tree_cache=cache) for cache in (True, False)
        ]
    return [
        Point(each, seed, each["subscriptions"] / 1_000)
        for each in chosen
        for seed in range(1, plan.seeds + 1)
    ]


def _measure(evidence: Evidence) -> Findings:
    series = _over_time(evidence)
    samples = latency_samples(evidence, "cache_place")
    for key, found in series.items():
        run = evidence.runs[key]
        labels = labels_of(run, "cache_place")
        if run.settings["tree_cache"]:
            means = [(second, mean) for second, mean, _ in found]
            halves = [(second, median) for second, _, median in found]
            samples.append(Sample("warm_up_s", {**labels, "of": "mean"}, run.seed, warm_up_s(means)))
            samples.append(Sample("warm_up_s", {**labels, "of": "most"}, run.seed, warm_up_s(halves)))
        late = [median for second, _, median in found if second >= WARM_AFTER_S]
        if late:
            value = sum(late) / len(late)
            samples.append(Sample("median_latency_s", {**labels, "window": "converged"}, run.seed, value))
    lines = []
    for key, found in series.items():
        labels = labels_of(evidence.runs[key], "cache_place")
        name = ", ".join(
            [
                labels["algorithm"],
                f"cache ({labels['cache_place']})" if labels["tree_cache"] else "no cache",
                labels["lookup"],
                f"{labels['peers']:,} peers",
            ]
        )
        lines.append(Series(name, [second for second, *_ in found], [mean for _, mean, _ in found]))
    chart = LineChart(
        name="latency",
        title="Mean latency by the time of publishing",
        x_label="seconds since the first publication",
        y_label="seconds",
        series=lines,
        markers=False,
    )
    return Findings(samples, lambda rows: [chart])


def _over_time(evidence: Evidence) -> dict[str, list[tuple[int, float, float]]]:
    """By run: mean and median latency of what was published in each period, by its beginning in seconds."""
    from pyspark.sql import functions as F

    from braid.pipeline.metrics.frames import PUBLICATION, at_brokers, first_published

    published = first_published(evidence.traces.publication).select(
        *PUBLICATION, F.col("at_us").alias("published_at_us")
    )
    delay = F.col("at_us") - F.col("published_at_us")
    delays = (
        at_brokers(evidence.traces.delivery)
        .join(published, list(PUBLICATION))
        .withColumn("period", F.floor(F.col("published_at_us") / (PERIOD_S * SECOND_US)))
        .groupBy("run", "period")
        .agg(F.avg(delay).alias("mean_us"), F.median(delay).alias("median_us"))
        .orderBy("run", "period")
    )
    found: dict[str, list[tuple[int, float, float]]] = {}
    for run, row in evidence.by_run(delays):
        begin_s = run.summary["begin_us"] // SECOND_US
        second = int(row["period"]) * PERIOD_S - begin_s
        both = (row["mean_us"] / SECOND_US, row["median_us"] / SECOND_US)
        found.setdefault(run.key, []).append((second, *both))
    return found


def warm_up_s(series: list[tuple[int, float]]) -> float:
    """How long after the first publication latencies are what they are at the end, and stay so."""
    late = [mean for second, mean in series if second >= PUBLISH_S / 2] or [series[-1][1]]
    limit = WARM_FACTOR * sum(late) / len(late)
    slow = [second for second, mean in series if mean > limit]
    return float(max(0, max(slow) + PERIOD_S)) if slow else 0.0


def _paper(algorithm: str, cache: bool, window: str, value: float, **labels: int) -> PaperValue:
    told: dict[str, str | int | bool] = {
        "algorithm": algorithm,
        "tree_cache": cache,
        "window": window,
        "lookup": "climb",
    }
    return PaperValue("mean_latency_s", {**told, **labels}, value)


EXPERIMENT = Experiment(
    paper="infrastructure-free",
    name="latency",
    title="Latency with and without the tree cache",
    shows=(
        "Figures 14 to 18: without the cache a publication of DMM-AR takes 15 s among 5,000 peers and 17 s "
        "among 50,000, with it 3 s and 4 s after some 20 s; DMM takes about 10 s both ways. Rows labelled "
        "window=converged are about publications from 30 s after the first on, `from_cold` about all. "
        "lookup=search halves the possible lengths of a region's code instead of climbing one level at a "
        "time. The paper says that after 20 s most publications are quick: `warm_up_s` with of=most is when "
        "the median has come down for good, with of=mean when the mean has, in which the last few regions "
        "that a publisher meets for the first time weigh much; `median_latency_s` is from 30 s on. "
        "cache_place=leaf-hop is the paper's text to the letter, path lets everybody on the way remember."
    ),
    function=FUNCTION,
    points=_points,
    measure=_measure,
    paper_values=(
        _paper("DMM-AR", False, "from_cold", 15.0, peers=5_000),
        _paper("DMM-AR", True, "converged", 3.0, peers=5_000),
        _paper("DMM-AR", False, "from_cold", 17.0, peers=50_000),
        _paper("DMM-AR", True, "converged", 4.0, peers=50_000),
        _paper("DMM", False, "from_cold", 10.0, peers=5_000),
        _paper("DMM", True, "converged", 10.0, peers=5_000),
        PaperValue("warm_up_s", {"algorithm": "DMM-AR", "lookup": "climb", "of": "most"}, 20.0),
    ),
    seeds={"quick": 1, "paper": 1},
    notes=ASSUMPTIONS,
    differences={
        "mean_latency_s": "The transit-stub network has the paper's figures, not its links; a cache that "
        "publishers keep helps DMM, too, which one at the last hop does not.",
        "warm_up_s": "Publishers keep the cache, and each publishes every 10 s to up to ten regions. Where "
        "everybody on the way keeps it, it is warm sooner, at eight times the messages about regions; kept "
        "by the last hop before a region it is hardly ever met.",
    },
)

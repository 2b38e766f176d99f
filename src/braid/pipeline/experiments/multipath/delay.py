"""How long are publications under way? (Multipath paper, section 7: Figure 10.)"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from braid.pipeline.experiments.figures import LineChart, Series
from braid.pipeline.experiments.multipath.measures import CONVERGED, FROM_COLD, converged_from_us, start_us_of
from braid.pipeline.experiments.multipath.network import FUNCTION, labels_of, prepare_workloads, watched_point
from braid.pipeline.experiments.multipath.table2 import DURATIONS_S, FANOUT, strategy_points
from braid.pipeline.experiments.registry import Experiment, Findings
from braid.pipeline.experiments.rows import PaperValue, Sample

if TYPE_CHECKING:
    from braid.pipeline.experiments.registry import Evidence, Plan
    from braid.pipeline.experiments.sweep import Point

__all__ = ["EXPERIMENT"]

_DATASET = "DT2"
_PUBLISHED_MS = {"S0": 14.0, "S1": 12.5, "S2": 9.3, "SH": 9.3}


def _points(plan: Plan) -> list[Point]:
    points = strategy_points(plan, datasets=[_DATASET])
    return [*points, watched_point(points[-1].settings)]


def _measure(evidence: Evidence) -> Findings:
    from braid.pipeline.metrics.delay import delivery_delay_by_pair

    traces, duration_s = evidence.traces, DURATIONS_S[evidence.plan.scale]
    samples: dict[str, list[Sample]] = {}
    curves: list[LineChart] = []
    for window, said, from_us in (
        (FROM_COLD, "from cold", start_us_of(evidence)),
        (CONVERGED, "once the mesh is built", converged_from_us(evidence, duration_s)),
    ):
        # Pairs are few, so their means are the table from which everything else follows.
        pairs: dict[str, list[tuple[float, int]]] = {}
        table = delivery_delay_by_pair(traces.publication, traces.delivery, from_us=from_us)
        for run, row in evidence.by_run(table):
            pairs.setdefault(run.key, []).append((row["mean_delay_us"] / 1_000, row["deliveries"]))
        means = {
            key: sum(delay * count for delay, count in found) / sum(count for _, count in found)
            for key, found in pairs.items()
        }
        along_the_tree = {
            run.seed: means[key] for key, run in evidence.runs.items() if run.settings["strategy"] == "S0"
        }
        by_strategy: dict[str, list[list[float]]] = {}
        for key, found in pairs.items():
            run = evidence.runs[key]
            ordered = sorted(delay for delay, _ in found)
            by_strategy.setdefault(run.settings["strategy"], []).append(ordered)
            for metric, value in (
                ("mean_delay_ms", means[key]),
                ("delay_relative_to_S0", means[key] / along_the_tree[run.seed]),
                ("slowest_pair_ms", ordered[-1]),
            ):
                samples.setdefault(metric, []).append(Sample(metric, labels_of(run, window), run.seed, value))
        curves.append(
            LineChart(
                name=f"delay_{window}",
                title=f"Delivery delay, {said} (C1, {_DATASET}, fanout {FANOUT})",
                x_label="pairs of source and destination brokers, in order of delay (%)",
                y_label="mean delay (ms)",
                series=[_percentiles(name, runs) for name, runs in by_strategy.items()],
                caption="Mean delay of each pair of source and destination broker, as in Figure 10 of the "
                "paper; each strategy orders the pairs by its own delay. Mean over the seeds.",
            )
        )
    ordered_samples = [each for group in samples.values() for each in group]
    return Findings(ordered_samples, lambda rows: list(reversed(curves)))


def _percentiles(name: str, runs: list[list[float]]) -> Series:
    """Pairs in ascending order, at each per cent of them."""
    places = list(range(0, 101, 5))
    values = [fmean(delays[(len(delays) - 1) * place // 100] for delays in runs) for place in places]
    return Series(name, places, values)


EXPERIMENT = Experiment(
    paper="multipath",
    name="delay",
    title="Delivery delay with all strategies",
    shows=(
        "Figure 10 of the paper: the mean time from publishing to delivery, for pairs of source and "
        "destination broker, on C1 with the dense dataset (DT2) and a fanout of 35. As in the paper every "
        "link between brokers takes 1 ms."
    ),
    function=FUNCTION,
    points=_points,
    prepare=prepare_workloads,
    measure=_measure,
    paper_values=(
        *(PaperValue("mean_delay_ms", {"strategy": name}, value) for name, value in _PUBLISHED_MS.items()),
        *(
            PaperValue("delay_relative_to_S0", {"strategy": name}, round(value / _PUBLISHED_MS["S0"], 3))
            for name, value in _PUBLISHED_MS.items()
        ),
    ),
    seeds={"quick": 1, "paper": 5},
    notes=(
        "The paper does not say how long its brokers take for a publication. Here it is 0.65 ms, one after "
        "the other, chosen so that S0 comes to the paper's 14 ms; ratios between strategies are the result.",
        "The runs are those of `multipath.table2`: in one folder they are done once.",
    ),
    differences={
        "mean_delay_ms": "Delay follows the number of brokers on the way. The paper's S1 and S2 are means "
        "over ten minutes that include building the mesh (see from_cold), at a speed that it leaves open; "
        "compare the yields in `multipath.table2`.",
        "delay_relative_to_S0": "See mean_delay_ms. What the paper calls 50 % is 14.0 / 9.3, a third less.",
    },
)

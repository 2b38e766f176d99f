"""How much more is delivered when brokers are overloaded? (Multipath paper, section 7: Figure 13.)"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from braid.pipeline.experiments.figures import LineChart, Series
from braid.pipeline.experiments.multipath.measures import bar_chart
from braid.pipeline.experiments.multipath.network import FUNCTION, prepare_workloads, watched_point
from braid.pipeline.experiments.multipath.overload import congested, delivered_samples
from braid.pipeline.experiments.registry import Experiment, Findings
from braid.pipeline.experiments.rows import PaperValue
from braid.pipeline.experiments.sweep import Point

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from braid.pipeline.experiments.figures import Chart
    from braid.pipeline.experiments.registry import Evidence, Plan, Scale
    from braid.pipeline.experiments.rows import Row

__all__ = ["EXPERIMENT"]

_STRATEGIES = ("S1", "S2", "SH", "SB")
_RATE_PER_MINUTE = 3_600.0
_SATURATION_US = 17_000
"""Processing time of a publication at which the busiest broker of the tree is busy all the time."""
_LOAD = 2.0
_DURATIONS_S: Mapping[Scale, float] = {"quick": 60.0, "paper": 120.0}
_REVIEWS = 30
# Brokers that are overloaded by processing have no uplink limit; SH goes by what they can process.
_NETWORKS: Mapping[Scale, Sequence[tuple[str, str]]] = {
    "quick": (("C1", "DT1"),),
    "paper": (("C1", "DT1"), ("C1", "DT2"), ("C2", "DT3")),
}
_FANOUTS: Mapping[Scale, Sequence[int]] = {"quick": (5, 35), "paper": (5, 15, 25, 35)}
_LOADS: Mapping[Scale, Sequence[float]] = {"quick": (1.0, 4.0), "paper": (0.5, 1.0, 4.0, 8.0)}


def _settings(
    plan: Plan, network: tuple[str, str], strategy: str, fanout: int, load: float
) -> dict[str, Any]:
    duration_s = _DURATIONS_S[plan.scale]
    cost_us = round(load * _SATURATION_US)
    settings = congested(
        *network,
        strategy,
        fanout=fanout,
        duration_s=duration_s,
        reviews=_REVIEWS,
        messages_per_s=round(1e6 / cost_us, 1),
        node={"cost_us": {"publication": cost_us}},
        workload={"rate_per_minute": _RATE_PER_MINUTE},
    )
    return {**settings, "load": load}


def _points(plan: Plan) -> list[Point]:
    largest = max(_FANOUTS[plan.scale])
    chosen = []
    for network in _NETWORKS[plan.scale]:
        # S0 has no soft links, so one run serves all fanouts.
        chosen.append(_settings(plan, network, "S0", largest, _LOAD))
        chosen += [
            _settings(plan, network, strategy, fanout, _LOAD)
            for strategy in _STRATEGIES
            for fanout in _FANOUTS[plan.scale]
        ]
    chosen += [
        _settings(plan, ("C1", "DT1"), strategy, largest, load)
        for load in _LOADS[plan.scale]
        for strategy in ("S0", *_STRATEGIES)
    ]
    points = [Point(settings, seed) for settings in chosen for seed in range(1, plan.seeds + 1)]
    return [*points, watched_point(_settings(plan, ("C1", "DT1"), "SH", largest, _LOAD))]


def _measure(evidence: Evidence) -> Findings:
    samples = delivered_samples(
        evidence,
        _DURATIONS_S[evidence.plan.scale],
        same=("configuration", "dataset", "load"),
        extra=lambda run: {"load": run.settings["load"]},
    )
    return Findings(samples, _charts)


def _charts(rows: Sequence[Row]) -> list[Chart]:
    networks = dict.fromkeys((row.labels["configuration"], row.labels["dataset"]) for row in rows)
    by_fanout: list[Chart] = [
        bar_chart(
            rows,
            "deliveries_relative_to_S0",
            name=f"throughput_{configuration}_{dataset}",
            title=f"Deliveries relative to S0 ({configuration}, {dataset}, load {_LOAD:g})",
            y_label="deliveries / deliveries with S0",
            caption="As Figure 13 of the paper, by fanout; the whisker is the 95 % interval.",
            groups="fanout",
            where={"configuration": configuration, "dataset": dataset, "load": _LOAD},
        )
        for configuration, dataset in networks
    ]
    lines: dict[str, dict[float, Row]] = {}
    for row in rows:
        if row.metric == "delivered_share" and (row.labels["configuration"], row.labels["dataset"]) == (
            "C1",
            "DT1",
        ):
            of_strategy = lines.setdefault(str(row.labels["strategy"]), {})
            load, fanout = float(row.labels["load"]), int(row.labels["fanout"])
            if load not in of_strategy or fanout > int(of_strategy[load].labels["fanout"]):
                of_strategy[load] = row
    over_load = LineChart(
        name="throughput_over_load",
        title="Delivered in time, by load (C1, DT1, fanout 35)",
        x_label="load: 1 is where the busiest broker of the tree has no pause",
        y_label="share of what is due",
        series=[
            Series(name, sorted(found), [found[load].measured for load in sorted(found)])
            for name, found in lines.items()
        ],
        caption="What a strategy gains depends on how overloaded S0 is.",
    )
    return [*by_fanout, over_load]


EXPERIMENT = Experiment(
    paper="multipath",
    name="throughput",
    title="Deliveries in a fixed time under overload, by fanout and by load",
    shows=(
        "Figure 13 of the paper: 72,000 publications in a minute push the system to the edge, and the number "
        "of deliveries within the interval says what each strategy achieves, for fanouts from 5 to 35. The "
        "paper finds up to 115 % more than with S0, more with higher fanout, and S2 slightly ahead of SH."
    ),
    function=FUNCTION,
    points=_points,
    prepare=prepare_workloads,
    measure=_measure,
    paper_values=(
        PaperValue("deliveries_relative_to_S0", {"strategy": "S2", "fanout": 35, "load": _LOAD}, 2.15),
    ),
    seeds={"quick": 1, "paper": 5},
    notes=(
        "Brokers are limited by what they can process, one publication after the other. Instead of 1,200 "
        "publications per second on fast brokers, 60 per second meet brokers that are twenty times slower: "
        "the same utilisation with a twentieth of the messages. `load` 1 is where the busiest broker of the "
        "tree (S0, DT1) has no pause.",
        "The paper gives one number, up to 115 % more; it depends on how overloaded S0 is, as the figure "
        "over load shows, and the paper does not say how overloaded it was.",
        "The interval is shorter than the paper's ten minutes, and reviews of soft links come in proportion.",
    ),
    differences={
        "deliveries_relative_to_S0": "The paper's 2.15 is its largest gain, at an unknown overload. "
        "At low load all strategies deliver everything (ratio 1); the higher the load, the more the busiest "
        "broker of the tree limits S0. The figure over load shows it.",
    },
)

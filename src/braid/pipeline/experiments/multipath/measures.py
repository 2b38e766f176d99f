"""What do the traces of several strategies say, before the mesh is there and after?

A broker reviews its soft links every 20 s, so a run begins as a tree and becomes a mesh. Figures are for
two *windows* of the same run: `from_cold` is all of it, as the paper measured; `converged` is the last third,
when little changes any more. One pass over the traces counts by periods of reviews; both windows, and the
curve over time, are sums of them.
"""

from __future__ import annotations

from itertools import accumulate
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from braid.errors import ConfigurationError
from braid.pipeline.experiments.figures import BarChart, Bars, LineChart, Series
from braid.pipeline.experiments.multipath.network import PUBLICATIONS, labels_of
from braid.pipeline.experiments.rows import Sample, estimate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from braid.pipeline.experiments.registry import Evidence
    from braid.pipeline.experiments.rows import Row
    from braid.pipeline.experiments.sweep_folder import FinishedRun

__all__ = [
    "CONVERGED",
    "FROM_COLD",
    "Period",
    "bar_chart",
    "converged_from_us",
    "curve",
    "exchange_metric",
    "exchange_shares",
    "forwarding_periods",
    "forwarding_samples",
    "hop_chart",
    "path_lengths",
    "start_us_of",
    "summed",
    "yield_chart",
]

CONVERGED, FROM_COLD = "converged", "from_cold"

EXCHANGES = {"SB": "link_state"}
"""Strategies whose brokers tell each other something else than loads."""

# A run is divided into so many periods. At ten minutes each is as long as the time between two reviews.
PERIODS = 30
# The last third counts as converged.
CONVERGED_PERIODS = 10


class Period(NamedTuple):
    """What happened in one part of a run, or in several of them together."""

    sent: int
    """Publications sent between brokers."""
    deliveries: int
    """Those that came where they were wanted."""
    pure_forwarders: int
    repeats: int
    """Those that came to a broker again."""
    local_deliveries: int
    links: int
    """Links that all deliveries crossed, added up."""

    @property
    def system_yield(self) -> float:
        """Deliveries of all that was sent."""
        return self.deliveries / self.sent if self.sent else 0.0

    @property
    def mean_hops(self) -> float:
        """Links per delivery."""
        paths = self.deliveries + self.local_deliveries
        return self.links / paths if paths else 0.0


def summed(periods: Sequence[Period]) -> Period:
    """Several periods as one."""
    return Period(*map(sum, zip(*periods, strict=True)))


def start_us_of(evidence: Evidence) -> int:
    """When publishing began, in the time of the traces; the same for all runs."""
    starts = {run.summary["start_us"] for run in evidence.runs.values()}
    if len(starts) != 1:
        raise ConfigurationError(f"runs that start at {sorted(starts)} us cannot be measured together")
    return int(starts.pop())


def converged_from_us(evidence: Evidence, duration_s: float) -> int:
    """When the window `converged` begins, in the time of the traces."""
    period_us = round(duration_s * 1e6) // PERIODS
    return start_us_of(evidence) + (PERIODS - CONVERGED_PERIODS) * period_us


def forwarding_periods(evidence: Evidence, duration_s: float) -> dict[str, list[Period]]:
    """Of every run its periods, by the run's key. What arrives after the last one began belongs to it."""
    from braid.pipeline.metrics.forwarding import forwarding_over_time

    traces, start_us = evidence.traces, start_us_of(evidence)
    period_us = round(duration_s * 1e6) // PERIODS
    table = forwarding_over_time(traces.hop, traces.delivery, period_us=period_us, from_us=start_us)
    nothing = Period(0, 0, 0, 0, 0, 0)
    found = {key: [nothing] * PERIODS for key in evidence.runs}
    for run, row in evidence.by_run(table):
        number = min((row["at_us"] - start_us) // period_us, PERIODS - 1)
        here = Period(*(row[name] for name in Period._fields))
        found[run.key][number] = summed([found[run.key][number], here])
    return found


def forwarding_samples(
    evidence: Evidence,
    periods: Mapping[str, Sequence[Period]],
    duration_s: float,
    windows: Sequence[str] = (CONVERGED,),
) -> list[Sample]:
    """Pure forwarders, yield, deliveries, messages (Table 2) and mean path length (Figure 9) of every run.

    Counts of a window with fewer publications are scaled to the paper's number, and labelled so: every
    publication adds to them on its own, because no broker is overloaded.
    """
    repeated = _repeated(evidence)
    samples: dict[str, list[Sample]] = {}
    for window in windows:
        whole = window == FROM_COLD or FROM_COLD not in windows
        doubled = repeated
        if not whole and any(repeated.values()):  # hardly ever: it takes a while
            doubled = _repeated(evidence, converged_from_us(evidence, duration_s))
        for key, run in evidence.runs.items():
            labels = labels_of(run, window)
            chosen = periods[key] if whole else periods[key][-CONVERGED_PERIODS:]
            counts = summed(chosen)
            factor = PUBLICATIONS * PERIODS / (run.summary["publications"] * len(chosen))
            counted = labels if factor == 1 else {**labels, "scaled_to_publications": PUBLICATIONS}
            for metric, about, value in (
                ("pure_forwarders", counted, factor * counts.pure_forwarders),
                ("yield", labels, counts.system_yield),
                ("deliveries", counted, factor * counts.deliveries),
                ("mean_hops", labels, counts.mean_hops),
                ("messages", counted, factor * counts.sent),
                ("duplicates", labels, doubled.get(key, 0)),
                ("second_arrivals", counted, factor * counts.repeats),
            ):
                samples.setdefault(metric, []).append(Sample(metric, about, run.seed, value))
    return [sample for of_metric in samples.values() for sample in of_metric]


def _repeated(evidence: Evidence, from_us: int | None = None) -> dict[str, int]:
    """Of every run how often a client got a publication again, by the run's key."""
    from braid.pipeline.metrics.forwarding import repeated_deliveries

    table = repeated_deliveries(evidence.traces.delivery, from_us=from_us)
    return {run.key: row["repeated_deliveries"] for run, row in evidence.by_run(table)}


def exchange_shares(evidence: Evidence, *, from_us: int, to_us: int | None = None) -> dict[str, float]:
    """Of every run with soft links the share of bytes that choosing them costs, by the run's key.

    These are the loads that brokers tell each other, or with SB their link states.
    """
    from braid.pipeline.metrics.traffic import messages_by_kind

    table = messages_by_kind(evidence.traces.link_sample, from_us=from_us, to_us=to_us)
    shares = {key: 0.0 for key, run in evidence.runs.items() if run.settings["strategy"] != "S0"}
    for run, row in evidence.by_run(table):
        if run.key in shares and row["kind"] == EXCHANGES.get(run.settings["strategy"], "loads"):
            shares[run.key] = row["bytes_share"]
    return shares


def exchange_metric(run: FinishedRun) -> str:
    """What the share of a run is called in rows."""
    return "link_state_bytes_share" if run.settings["strategy"] in EXCHANGES else "load_exchange_bytes_share"


# Charts.


def yield_chart(
    evidence: Evidence, periods: Mapping[str, Sequence[Period]], dataset: str, duration_s: float
) -> LineChart:
    """How the yield develops while soft links are chosen, one line per strategy."""
    runs: dict[str, list[Sequence[Period]]] = {}
    for key, run in evidence.runs.items():
        if run.settings["dataset"] == dataset:
            runs.setdefault(_series_name(run), []).append(periods[key])
    length_s = duration_s / PERIODS
    minutes = [round((number + 1) * length_s / 60, 3) for number in range(PERIODS)]
    series = []
    for name, found in runs.items():
        values = [fmean(each[number].system_yield for each in found) for number in range(PERIODS)]
        series.append(Series(name, minutes, values))
    return LineChart(
        name=f"yield_over_time_{dataset}",
        title=f"Yield while the mesh is built (C1, {dataset})",
        x_label="minutes since the first publication",
        y_label="yield",
        series=series,
        caption="The yield of each period, mean over the seeds. Every run begins with the tree alone; "
        f"brokers review their soft links every {length_s:g} s.",
        y_limits=(0.0, 1.05),
    )


def _series_name(run: FinishedRun) -> str:
    strategy, fanout = run.settings["strategy"], run.settings.get("fanout")
    return strategy if strategy == "S0" or fanout is None else f"{strategy}, fanout {fanout}"


def bar_chart(
    rows: Sequence[Row],
    metric: str,
    *,
    name: str,
    title: str,
    y_label: str,
    caption: str,
    groups: str = "dataset",
    bars: str = "strategy",
    where: Mapping[str, object] | None = None,
) -> BarChart:
    """The rows of a metric: one group per value of a label, one colour per value of another one."""
    chosen = [
        row
        for row in rows
        if row.metric == metric and all(row.labels.get(key) == value for key, value in (where or {}).items())
    ]
    values = dict.fromkeys(row.labels[groups] for row in chosen)
    if all(map(_is_number, values)):
        values = dict.fromkeys(sorted(values, key=float))
    group_names = [str(value) for value in values]
    found: dict[str, dict[str, Row]] = {}
    for row in chosen:
        found.setdefault(str(row.labels[bars]), {})[str(row.labels[groups])] = row
    return BarChart(
        name=name,
        title=title,
        y_label=y_label,
        groups=group_names,
        bars=[
            Bars(
                each,
                [of_group[group].measured if group in of_group else 0.0 for group in group_names],
                [of_group[group].interval if group in of_group else None for group in group_names],
                [of_group[group].paper_value if group in of_group else None for group in group_names],
            )
            for each, of_group in found.items()
        ],
        caption=caption,
        x_label=groups.replace("_", " ") if all(map(_is_number, values)) else "",
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def curve(name: str, runs: Sequence[Mapping[int, float]], places: Sequence[int]) -> Series:
    """A cumulative distribution over several runs: the mean, and its 95 % interval as a band."""
    # Between the values that occur the share stays what it was.
    filled = [[_share_up_to(each, place) for place in places] for each in runs]
    found = [estimate([each[number] for each in filled]) for number in range(len(places))]
    low = [each.mean if each.low is None else max(0.0, each.low) for each in found]
    high = [each.mean if each.high is None else min(1.0, each.high) for each in found]
    return Series(name, list(places), [each.mean for each in found], low, high)


def path_lengths(evidence: Evidence, *, from_us: int | None = None) -> dict[str, dict[int, float]]:
    """Of every run the share of deliveries by links crossed, by the run's key."""
    from braid.pipeline.metrics.forwarding import hop_distribution

    found: dict[str, dict[int, float]] = {}
    for run, row in evidence.by_run(hop_distribution(evidence.traces.delivery, from_us=from_us)):
        found.setdefault(run.key, {})[row["hops"]] = row["share"]
    return found


def hop_chart(
    evidence: Evidence,
    lengths: Mapping[str, Mapping[int, float]],
    by: str,
    *,
    name: str,
    title: str,
    caption: str,
    where: Mapping[str, object] | None = None,
) -> LineChart:
    """The paper's Figure 9: path lengths as a cumulative distribution, one line per value of a setting.

    The line is the mean over the seeds, the band around it the 95 % interval. `lengths` are those of
    `path_lengths`.
    """
    curves: dict[str, list[Mapping[int, float]]] = {}
    for key, shares in lengths.items():
        settings = evidence.runs[key].settings
        if all(settings.get(name) == value for name, value in (where or {}).items()):
            places = sorted(shares)
            up_to = dict(zip(places, accumulate(shares[place] for place in places), strict=True))
            curves.setdefault(str(settings[by]), []).append(up_to)
    longest = max(hops for runs in curves.values() for up_to in runs for hops in up_to)
    return LineChart(
        name,
        title,
        "links crossed (hops)",
        "share of deliveries",
        [curve(value, runs, range(longest + 1)) for value, runs in curves.items()],
        caption,
        steps=True,
        y_limits=(0.0, 1.02),
    )


def _share_up_to(lengths: Mapping[int, float], place: int) -> float:
    return max((share for length, share in lengths.items() if length <= place), default=0.0)

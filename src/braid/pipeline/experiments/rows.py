"""What did the paper say, what was measured, and how sure is that?

An experiment yields one `Sample` per run and quantity. Samples that differ in their seed only become one
`Row`: their mean beside the paper's value, and the 95 % confidence interval of the mean over the seeds.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "Estimate",
    "PaperValue",
    "Row",
    "Sample",
    "common_labels",
    "estimate",
    "plain_name",
    "rows_of",
    "student_quantile",
]

Labels = tuple[tuple[str, "str | int | float | bool"], ...]


# What the papers call by a number.
_PLAIN = {"DT1": "sparse (DT1)", "DT2": "dense (DT2)"}


def plain_name(value: object) -> str:
    """What people call a value of a label."""
    return re.sub(r"\b(?<!\()DT[12]\b", lambda found: _PLAIN[found[0]], str(value))


def common_labels(labels: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """What is the same in all of several rows, if there are several."""
    if len(labels) < 2:
        return {}
    return {
        name: value for name, value in labels[0].items() if all(each.get(name) == value for each in labels)
    }


@dataclass(frozen=True, slots=True)
class Sample:
    """One quantity of one run."""

    metric: str
    labels: Mapping[str, str | int | float | bool]
    seed: int
    value: float


@dataclass(frozen=True, slots=True)
class PaperValue:
    """What the paper gives for a metric, where all these labels hold."""

    metric: str
    labels: Mapping[str, str | int | float | bool]
    value: float

    def is_about(self, metric: str, labels: Mapping[str, object]) -> bool:
        """Whether it speaks of this quantity; labels that it does not name may be anything."""
        return metric == self.metric and all(
            labels.get(name) == wanted for name, wanted in self.labels.items()
        )


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean and, from two values on, its 95 % confidence interval."""

    mean: float
    low: float | None
    high: float | None
    count: int


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a result: the paper's value (None where it gives only a curve) and ours."""

    paper: str
    experiment: str
    metric: str
    labels: Mapping[str, str | int | float | bool]
    paper_value: float | None
    measured: float
    interval: tuple[float, float] | None
    seeds: int

    @property
    def ratio(self) -> float | None:
        """Measured over published; None where nothing, or zero, was published."""
        return self.measured / self.paper_value if self.paper_value else None

    def to_json(self) -> dict[str, Any]:
        """As `braid reproduce --json` prints it."""
        return {
            "paper": self.paper,
            "experiment": self.experiment,
            "metric": self.metric,
            "labels": dict(self.labels),
            "paper_value": self.paper_value,
            "measured": self.measured,
            "ratio": None if self.ratio is None else round(self.ratio, 4),
            "interval": None if self.interval is None else list(self.interval),
            "seeds": self.seeds,
        }


def rows_of(
    paper: str, experiment: str, samples: Iterable[Sample], paper_values: Sequence[PaperValue]
) -> list[Row]:
    """One row per metric and labels, in the order in which they first appear."""
    groups: dict[tuple[str, Labels], list[float]] = {}
    for sample in samples:
        groups.setdefault((sample.metric, tuple(sample.labels.items())), []).append(sample.value)
    rows = []
    for (metric, items), values in groups.items():
        labels = dict(items)
        found = estimate(values)
        interval = None
        if found.low is not None and found.high is not None:
            interval = (_rounded(found.low), _rounded(found.high))
        published = next((each.value for each in paper_values if each.is_about(metric, labels)), None)
        rows.append(
            Row(paper, experiment, metric, labels, published, _rounded(found.mean), interval, found.count)
        )
    return rows


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of independent runs, with the interval that holds the true mean in 95 of 100 such experiments.

    Student's distribution, because seeds are few: with 5 of them the interval is 2.78 standard errors to
    either side, where a normal distribution would promise 1.96.
    """
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return Estimate(mean, None, None, count)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    reach = student_quantile(count - 1) * deviation / math.sqrt(count)
    return Estimate(mean, mean - reach, mean + reach, count)


def student_quantile(degrees: int, probability: float = 0.95) -> float:
    """The t with P(-t < T < t) = probability for Student's distribution, found by halving.

    P has a closed form for whole degrees of freedom, a finite sum in the angle atan(t / sqrt(degrees)).
    """
    low, high = 0.0, 1.0
    while _within(high, degrees) < probability:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, degrees) < probability else (low, middle)
    return (low + high) / 2


def _within(t: float, degrees: int) -> float:
    """P(-t < T < t)."""
    angle = math.atan2(t, math.sqrt(degrees))
    cosine = math.cos(angle)
    if degrees % 2:
        term, total = cosine, 0.0
        for step in range(1, (degrees - 1) // 2 + 1):
            total += term
            term *= cosine * cosine * 2 * step / (2 * step + 1)
        return 2 / math.pi * (angle + math.sin(angle) * total)
    term, total = 1.0, 0.0
    for step in range(1, degrees // 2 + 1):
        total += term
        term *= cosine * cosine * (2 * step - 1) / (2 * step)
    return math.sin(angle) * total


def _rounded(value: float) -> float:
    """Six digits say more than any of these measurements mean; whole numbers stay whole."""
    return float(f"{value:.6g}")

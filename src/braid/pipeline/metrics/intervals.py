"""How sure is a mean over a few seeds?

Student's 95 % confidence interval, without a statistics library: the quantiles of the t distribution come
from the regularised incomplete beta function by its continued fraction.
"""

from __future__ import annotations

import math
from statistics import fmean, stdev
from typing import TYPE_CHECKING, NamedTuple

from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MeanInterval", "mean_interval", "t_quantile"]

# The fraction converges within some dozens of terms for all arguments used here; more means a mistake.
TERMS_MAX = 10_000
PRECISION = 1e-15
TINY = 1e-300


class MeanInterval(NamedTuple):
    """A mean, and the interval that holds the true one with the wanted confidence."""

    mean: float
    low: float
    high: float


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> MeanInterval:
    """The mean of independent values, such as one per seed, and its confidence interval.

    One value says nothing about the spread: the interval is then the value itself, so that a figure shows a
    point without bars.

    Raises:
        ConfigurationError: there is no value, or the confidence does not lie between 0 and 1.
    """
    if not values:
        raise ConfigurationError("a mean needs at least one value")
    if not 0 < confidence < 1:
        raise ConfigurationError(f"a confidence of {confidence}: it must lie between 0 and 1, such as 0.95")
    mean = fmean(values)
    if len(values) == 1:
        return MeanInterval(mean, mean, mean)
    half = t_quantile((1 + confidence) / 2, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return MeanInterval(mean, mean - half, mean + half)


def t_quantile(probability: float, degrees: int) -> float:
    """The value below which a variable with Student's t distribution stays with this probability."""
    if not 0 < probability < 1 or degrees < 1:
        raise ConfigurationError(
            f"no quantile for probability {probability} with {degrees} degrees of freedom: "
            "a probability lies between 0 and 1, and there is at least 1 degree"
        )
    if probability < 0.5:
        return -t_quantile(1 - probability, degrees)
    low, high = 0.0, 1.0
    while _t_distribution(high, degrees) < probability:
        low, high = high, high * 2
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return middle
        if _t_distribution(middle, degrees) < probability:
            low = middle
        else:
            high = middle


def _t_distribution(value: float, degrees: int) -> float:
    """The probability that a t variable stays below `value >= 0`."""
    return 1 - _incomplete_beta(degrees / (degrees + value * value), degrees / 2, 0.5) / 2


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    # The fraction converges fast below this point; beyond it, the mirrored function does.
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(x, a, b) / a
    return 1 - front * _beta_fraction(1 - x, b, a) / b


def _beta_fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function, evaluated from the front (Lentz's method)."""
    c, d = 1.0, 1 / _nonzero(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, TERMS_MAX):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _nonzero(1 + term * d)
            c = _nonzero(1 + term / c)
            value *= d * c
        if abs(d * c - 1) < PRECISION:
            return value
    raise ArithmeticError(f"the incomplete beta function of {x} with {a}, {b} does not converge")


def _nonzero(value: float) -> float:
    return value if abs(value) > TINY else TINY

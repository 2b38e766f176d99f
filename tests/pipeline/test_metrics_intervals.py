"""Are confidence intervals those of Student's t distribution?"""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.errors import ConfigurationError
from braid.pipeline.metrics.intervals import mean_interval, t_quantile


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    # The column for 95 % of every printed table.
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (9, 2.262), (24, 2.064), (120, 1.980)],
)
def test_quantiles_of_the_printed_table(degrees: int, quantile: float) -> None:
    assert round(t_quantile(0.975, degrees), 3) == quantile


@given(probability=st.floats(0.001, 0.999))
def test_closed_forms(probability: float) -> None:
    # With one degree it is the Cauchy distribution; with two there is a formula as well.
    assert t_quantile(probability, 1) == pytest.approx(
        math.tan(math.pi * (probability - 0.5)), rel=1e-9, abs=1e-12
    )
    spread = 4 * probability * (1 - probability)
    assert t_quantile(probability, 2) == pytest.approx(
        2 * (probability - 0.5) * math.sqrt(2 / spread), rel=1e-9, abs=1e-12
    )


def test_many_degrees_come_close_to_the_normal_distribution() -> None:
    assert t_quantile(0.975, 1_000_000) == pytest.approx(NormalDist().inv_cdf(0.975), abs=1e-5)


def test_an_interval_by_hand() -> None:
    # Mean 3, standard deviation sqrt(2.5), t(4) = 2.776: half width 2.776 * sqrt(2.5 / 5) = 1.963.
    mean, low, high = mean_interval([1, 2, 3, 4, 5])
    assert (mean, round(low, 3), round(high, 3)) == (3, 1.037, 4.963)


def test_more_confidence_is_wider() -> None:
    assert mean_interval([1, 2, 4], 0.99).high > mean_interval([1, 2, 4], 0.9).high


def test_one_value_has_no_spread() -> None:
    assert mean_interval([7.5]) == (7.5, 7.5, 7.5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mean_interval([]), "at least one value"),
        (lambda: mean_interval([1, 2], 95), "must lie between 0 and 1"),
        (lambda: t_quantile(1.0, 3), "no quantile for probability 1.0"),
        (lambda: t_quantile(0.5, 0), "at least 1 degree"),
    ],
)
def test_impossible_wishes_are_refused(call, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        call()

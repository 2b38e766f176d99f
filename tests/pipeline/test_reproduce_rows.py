"""Are means, intervals and ratios what statistics books say?"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.pipeline.experiments.rows import PaperValue, Sample, estimate, rows_of, student_quantile


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (10, 2.228), (30, 2.042), (1000, 1.962)],
)
def test_students_quantiles_as_printed_in_tables(degrees: int, quantile: float) -> None:
    assert student_quantile(degrees) == pytest.approx(quantile, abs=6e-4)


def test_another_confidence() -> None:
    assert student_quantile(5, 0.99) == pytest.approx(4.032, abs=6e-4)


def test_an_interval_computed_by_hand() -> None:
    found = estimate([9.0, 10.0, 11.0])
    assert (found.mean, found.count) == (10.0, 3)
    assert found.low == pytest.approx(10 - 4.3027 / math.sqrt(3), abs=1e-3)
    assert found.high == pytest.approx(10 + 4.3027 / math.sqrt(3), abs=1e-3)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=9), st.randoms())
def test_an_interval_lies_around_the_mean_whatever_the_order(values: list[float], random) -> None:
    found = estimate(values)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.mean <= found.high
    random.shuffle(values)
    assert estimate(values).mean == pytest.approx(found.mean, rel=1e-9, abs=1e-9)


def test_samples_that_differ_in_their_seed_become_one_row() -> None:
    dense, sparse = {"dataset": "DT2", "window": "converged"}, {"dataset": "DT1", "window": "converged"}
    rows = rows_of(
        "multipath",
        "baseline",
        [
            Sample("yield", sparse, 1, 0.36),
            Sample("yield", dense, 1, 0.5),
            Sample("yield", sparse, 2, 0.40),
            Sample("mean_hops", sparse, 1, 7.5),
        ],
        [PaperValue("yield", {"dataset": "DT1"}, 0.38), PaperValue("hops", {"dataset": "DT1"}, 9)],
    )
    assert [row.to_json() for row in rows] == [
        {
            "paper": "multipath",
            "experiment": "baseline",
            "metric": "yield",
            "labels": sparse,
            "paper_value": 0.38,
            "measured": 0.38,
            "ratio": 1.0,
            "interval": [0.125876, 0.634124],
            "seeds": 2,
        },
        {
            "paper": "multipath",
            "experiment": "baseline",
            "metric": "yield",
            "labels": dense,
            "paper_value": None,
            "measured": 0.5,
            "ratio": None,
            "interval": None,
            "seeds": 1,
        },
        {
            "paper": "multipath",
            "experiment": "baseline",
            "metric": "mean_hops",
            "labels": sparse,
            "paper_value": None,
            "measured": 7.5,
            "ratio": None,
            "interval": None,
            "seeds": 1,
        },
    ]

"""Is a draw a function of seed, purpose and row, and has it the distribution it claims?"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.errors import ConfigurationError
from braid.workloads.draws import (
    choices,
    integers,
    permutation,
    permutations,
    uniform,
    uniform_columns,
    weighted_samples,
    zipf_shares,
)
from braid.workloads.schedule import arrival_times_us, numbered, take_turns

SEEDS = st.integers(0, 2**40)
ROWS = st.lists(st.integers(0, 2**50), min_size=1, max_size=30)


def splitmix64(state: int) -> int:
    """The reference, in Python's integers."""
    state = (state + 0x9E3779B97F4A7C15) % 2**64
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) % 2**64
    return state ^ (state >> 31)


@given(seed=SEEDS, rows=ROWS)
def test_a_row_gets_its_number_whoever_asks_for_it(seed: int, rows: list[int]) -> None:
    together = uniform(seed, "test", rows)
    alone = [float(uniform(seed, "test", [row])[0]) for row in rows]
    assert together.tolist() == alone
    assert all(0 <= each < 1 for each in alone)


@given(seed=SEEDS, rows=ROWS)
def test_consecutive_rows_are_the_stream_of_splitmix64(seed: int, rows: list[int]) -> None:
    from hashlib import blake2b

    key = int.from_bytes(blake2b(f"{seed}/test".encode(), digest_size=8).digest(), "little")
    expected = [(splitmix64((key + row * 0x9E3779B97F4A7C15) % 2**64) >> 11) / 2**53 for row in rows]
    assert uniform(seed, "test", rows).tolist() == expected


@given(seed=SEEDS, rows=ROWS, columns=st.integers(1, 8))
def test_columns_belong_to_their_row(seed: int, rows: list[int], columns: int) -> None:
    together = uniform_columns(seed, "test", rows, columns)
    assert together.shape == (len(rows), columns)
    assert all(
        (uniform_columns(seed, "test", [row], columns)[0] == together[at]).all()
        for at, row in enumerate(rows)
    )


def test_another_process_draws_the_same() -> None:
    program = "from braid.workloads.draws import uniform; print(uniform(7, 'x', [0, 5, 9]).tolist())"
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert printed == {f"{uniform(7, 'x', [0, 5, 9]).tolist()}\n"}


def test_uniform_numbers_look_uniform_and_purposes_do_not_share_them() -> None:
    rows = np.arange(100_000)
    drawn = uniform(1, "one", rows)
    shares, _ = np.histogram(drawn, bins=20, range=(0, 1))
    assert abs(shares - 5_000).max() < 350  # five standard deviations
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.02
    assert abs(np.corrcoef(drawn, uniform(1, "other", rows))[0, 1]) < 0.02
    assert abs(np.corrcoef(drawn, uniform(2, "one", rows))[0, 1]) < 0.02


@given(seed=SEEDS, low=st.integers(-1_000, 1_000), span=st.integers(1, 1_000))
def test_integers_stay_within_their_bounds(seed: int, low: int, span: int) -> None:
    drawn = integers(seed, "test", np.arange(200), low, low + span)
    assert low <= drawn.min()
    assert drawn.max() < low + span


def test_an_empty_span_of_integers_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least 3 and below 3"):
        integers(1, "test", [0], 3, 3)


def test_choices_follow_their_shares() -> None:
    shares = zipf_shares(5, 1.0)
    assert shares.tolist() == pytest.approx([60 / 137, 30 / 137, 20 / 137, 15 / 137, 12 / 137])
    drawn = np.bincount(choices(1, "test", np.arange(100_000), shares), minlength=5) / 100_000
    assert drawn == pytest.approx(shares, abs=0.01)


@given(seed=SEEDS, count=st.integers(1, 50))
def test_permutations_hold_every_number_once(seed: int, count: int) -> None:
    assert sorted(permutation(seed, "test", count).tolist()) == list(range(count))
    for order in permutations(seed, "test", [0, 1, 2], count).tolist():
        assert sorted(order) == list(range(count))


def test_weighted_samples_draw_without_replacement() -> None:
    shares = np.array([0.5, 0.3, 0.2])
    orders = weighted_samples(1, "test", np.arange(50_000), shares)
    assert (np.sort(orders, axis=1) == [0, 1, 2]).all()
    assert np.bincount(orders[:, 0]) / 50_000 == pytest.approx(shares, abs=0.01)
    # After a 0 came first, the second is drawn with the shares of those that are left.
    second = orders[orders[:, 0] == 0, 1]
    assert (second == 1).mean() == pytest.approx(0.6, abs=0.02)


def test_even_arrivals_have_equal_gaps_and_poisson_ones_exponential_gaps() -> None:
    rows = np.arange(10_000)
    even = arrival_times_us(1, "even", rows, 10_000, 60_000_000)
    assert set(np.diff(even).tolist()) == {6_000}
    poisson = arrival_times_us(1, "poisson", rows, 10_000, 60_000_000)
    gaps = np.diff(poisson)
    assert gaps.min() >= 0
    assert gaps.mean() == pytest.approx(6_000, rel=0.01)
    assert gaps.std() == pytest.approx(6_000, rel=0.05)
    assert (arrival_times_us(1, "poisson", rows[500:600], 10_000, 60_000_000) == poisson[500:600]).all()


@given(rows=st.integers(0, 200), clients=st.integers(1, 20), seed=SEEDS)
def test_clients_take_turns_and_number_their_publications(rows: int, clients: int, seed: int) -> None:
    client, sequence = take_turns(seed, np.arange(rows), clients)
    assert (numbered(client) == sequence).all()
    assert rows < clients or set(client.tolist()) == set(range(clients))


@given(st.lists(st.integers(0, 5), max_size=60))
def test_numbering_agrees_with_counting(clients: list[int]) -> None:
    expected = [clients[:place].count(each) for place, each in enumerate(clients)]
    assert numbered(np.array(clients, dtype=np.int64)).tolist() == expected

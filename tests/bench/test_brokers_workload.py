"""Does the broker benchmark know exactly who must get what?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.language import Filter
from braid_bench.brokers.workload import (
    BODY_BYTES,
    MARKER,
    Interest,
    Quote,
    expected_deliveries,
    make_interests,
    make_messages,
)

SEEDS = st.integers(0, 1_000)


def quotes(count: int, seed: int) -> list[Quote]:
    return [message.quote for message in make_messages(count, seed, quotes=True) if message.quote]


@settings(deadline=None, max_examples=50)
@given(
    seed=SEEDS,
    interests=st.integers(0, 60),
    connections=st.integers(1, 7),
    form=st.sampled_from(["sql", "equality"]),
    once_per=st.sampled_from(["subscription", "connection"]),
)
def test_expected_deliveries_agree_with_a_plain_loop(seed, interests, connections, form, once_per) -> None:
    asked = make_interests(interests, seed)
    published = quotes(30, seed)
    counts = [[0] * connections for _ in published]
    for row, quote in enumerate(published):
        for number, interest in enumerate(asked):
            meant = interest.matches(quote) if form == "sql" else interest.equals(quote)
            counts[row][number % connections] += meant
        if once_per == "connection":
            counts[row] = [min(each, 1) for each in counts[row]]
    assert expected_deliveries(published, asked, connections, form, once_per).tolist() == counts


@settings(deadline=None, max_examples=50)
@given(seed=SEEDS)
def test_the_sql_text_means_what_the_plain_comparison_means(seed: int) -> None:
    for interest in make_interests(4, seed):
        condition = Filter(interest.sql())
        for quote in quotes(50, seed):
            # The symbol is made to agree, else hardly anything would.
            same = Quote(interest.symbol, quote.price, quote.volume)
            assert condition.matches(same.values()) == interest.matches(same)


@pytest.mark.parametrize("form", ["sql", "equality"])
def test_half_a_percent_of_the_subscriptions_match(form) -> None:
    asked = make_interests(20_000, 1)
    counts = expected_deliveries(quotes(500, 1), asked, 20, form, "subscription")
    assert counts.sum() / (500 * 20_000) == pytest.approx(0.005, rel=0.05)


def test_interests_have_two_or_three_predicates_in_both_forms() -> None:
    for interest in make_interests(10, 3):
        predicates = 1 + interest.sql().count(" AND ")
        assert predicates in (2, 3)
        assert len(interest.equal) == predicates


def test_the_same_seed_makes_the_same_work() -> None:
    assert make_messages(20, 7, quotes=True) == make_messages(20, 7, quotes=True)
    assert make_interests(20, 7) == make_interests(20, 7)
    assert make_interests(20, 7) != make_interests(20, 8)


def test_every_body_has_200_bytes_and_one_marker() -> None:
    for message in make_messages(5, 1, quotes=False):
        assert len(message.body) == BODY_BYTES
        assert message.body.count(MARKER) == 1
        assert message.quote is None


def test_bands_split_price_and_volume_evenly() -> None:
    assert Quote("s01", 0.0, 0).bands() == {"symbol": "s01", "quarter": "q0", "half": "h0", "size": "v0"}
    assert Quote("s01", 99.75, 999).bands() == {"symbol": "s01", "quarter": "q3", "half": "h1", "size": "v1"}
    shares = np.unique([quote.bands()["quarter"] for quote in quotes(4_000, 1)], return_counts=True)[1]
    assert len(shares) == 4
    assert shares.min() > 800


def test_an_interest_of_two_predicates_says_nothing_about_volume() -> None:
    interest = Interest("s01", 50.0, None, (("symbol", "s01"), ("quarter", "q2")))
    assert interest.sql() == "symbol = 's01' AND price > 50.0"
    assert interest.matches(Quote("s01", 50.25, 999))
    assert not interest.matches(Quote("s01", 50.0, 0))

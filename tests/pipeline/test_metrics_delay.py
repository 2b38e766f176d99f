"""Are delays, delivery ratios, ordering degrees and DHT hops what one works out by hand?"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from braid.errors import ConfigurationError
from braid.pipeline.metrics.delay import (
    delivery_delay,
    delivery_delay_by_pair,
    delivery_ratio,
    delivery_ratio_over_time,
    dht_hops,
)
from braid.pipeline.metrics.ordering import ordering_degree, ordering_degree_by_sequence
from tests.pipeline.metric_tables import rows_of, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def publication(spark: SparkSession) -> DataFrame:
    return table(
        spark,
        "publication",
        "at_us publisher sequence broker expected",
        (1_000, "p", 1, "A", 2),
        (2_000, "p", 2, "A", 1),
        (11_000, "q", 1, "B", 3),
        (12_000, "q", 2, "B", None),
        (21_000, "q", 3, "B", 0),
    )


@pytest.fixture
def delivery(spark: SparkSession) -> DataFrame:
    return table(
        spark,
        "delivery",
        "at_us publisher sequence broker subscriber hops",
        (1_300, "p", 1, "C", "c1", 3),
        (1_900, "p", 1, "C", "c2", 3),  # a second client of C: the broker had it 300 us after publishing
        (1_100, "p", 1, "B", "b1", 1),
        (2_500, "p", 2, "C", "c1", 3),
        (11_400, "q", 1, "C", "c1", 2),
        (12_700, "q", 2, "C", "c1", 6),
    )


def test_delay_of_each_pair_of_brokers(publication, delivery) -> None:
    # A to B: 100. A to C: 300 and 500. B to C: 400 and 700.
    assert rows_of(delivery_delay_by_pair(publication, delivery)) == [
        ("", "A", "B", 1, 100.0, 100),
        ("", "A", "C", 2, 400.0, 500),
        ("", "B", "C", 2, 550.0, 700),
    ]


def test_overall_delay_is_over_deliveries_and_not_over_pairs(publication, delivery) -> None:
    # (100 + 300 + 500 + 400 + 700) / 5 = 400; what was published from 2000 to 12000: 500 and 400.
    assert rows_of(delivery_delay(publication, delivery)) == [("", 5, 400.0, 700)]
    assert rows_of(delivery_delay(publication, delivery, from_us=2_000, to_us=12_000)) == [
        ("", 2, 450.0, 500)
    ]


def test_delivery_ratio_needs_an_expectation(publication, delivery) -> None:
    # Expected 2 + 1 + 3 + 0 at brokers, delivered 2 + 1 + 1 + 0; q 2 has no expectation and does not count.
    assert rows_of(delivery_ratio(publication, delivery)) == [("", 6, 4, round(4 / 6, 12))]


def test_delivery_ratio_belongs_to_the_time_of_publishing(publication, delivery) -> None:
    assert rows_of(delivery_ratio_over_time(publication, delivery, period_us=10_000)) == [
        ("", 0, 3, 3, 1.0),
        ("", 10_000, 3, 1, round(1 / 3, 12)),
        ("", 20_000, 0, 0, None),  # nothing was expected, so there is no ratio
    ]


def test_a_period_must_have_a_length(publication, delivery) -> None:
    with pytest.raises(ConfigurationError, match="a period of 0 us"):
        delivery_ratio_over_time(publication, delivery, period_us=0)


def test_dht_hops_are_a_mean_over_publications(publication, delivery) -> None:
    # First period: p 1 took (3 + 1) / 2 = 2, p 2 took 3: mean 2.5. Second: q 1 took 2, q 2 took 6: mean 4.
    assert rows_of(dht_hops(publication, delivery, period_us=10_000)) == [
        ("", 0, 2, 2.5),
        ("", 10_000, 2, 4.0),
    ]


def arrivals(spark: SparkSession, *orders: tuple[str, str, list[int]]) -> DataFrame:
    """Deliveries to a subscriber from a publisher in the given order of sequence numbers."""
    rows = [
        (10 * place, publisher, sequence, subscriber)
        for subscriber, publisher, order in orders
        for place, sequence in enumerate(order)
    ]
    return table(spark, "delivery", "at_us publisher sequence subscriber", *rows)


@pytest.mark.parametrize(
    ("order", "displaced", "degree"),
    [
        ([1, 2, 3, 4], 0, 1.0),
        ([1, 5, 9], 0, 1.0),  # lost ones displace nobody
        # Two neighbours change places: D = 1 twice, so (4*2 + 3*2) / 16.
        ([2, 1, 3, 4], 2, 14 / 16),
        # The first comes last: D = 3 once, D = 1 three times, so (1*1 + 3*3) / 16.
        ([2, 3, 4, 1], 4, 10 / 16),
        # Reversed: D = 3, 1, 1, 3, so (1 + 3 + 3 + 1) / 16: the lowest for four.
        ([4, 3, 2, 1], 4, 8 / 16),
    ],
)
def test_ordering_degree_of_one_sequence(spark, order, displaced, degree) -> None:
    result = ordering_degree_by_sequence(arrivals(spark, ("s", "p", order)))
    assert rows_of(result) == [("", "s", "p", len(order), displaced, degree)]


def test_publishers_do_not_disturb_each_other_and_long_sequences_weigh_more(spark) -> None:
    # s gets four from p with degree 14/16 and one from q with degree 1: (4 * 14/16 + 1) / 5 = 0.9.
    delivery = arrivals(spark, ("s", "p", [2, 1, 3, 4]), ("s", "q", [7]))
    assert rows_of(ordering_degree(delivery)) == [("", 2, 5, 2, 0.9, 0.875)]


def test_what_arrives_at_once_is_in_order(spark) -> None:
    rows = [(5, "p", sequence, "s") for sequence in (3, 1, 2)]
    delivery = table(spark, "delivery", "at_us publisher sequence subscriber", *rows)
    assert rows_of(ordering_degree(delivery), "displaced ordering_degree") == [(0, 1.0)]


def test_random_sequences_agree_with_the_histogram_of_the_paper(spark) -> None:
    stream = random.Random("4/ordering")
    orders = []
    for subscriber in "stu":
        for publisher in "pq":
            order = stream.sample(range(100), stream.randrange(1, 25))
            orders.append((subscriber, publisher, order))

    expected = []
    for subscriber, publisher, order in orders:
        length = len(order)
        histogram: defaultdict[int, int] = defaultdict(int)
        for place, sequence in enumerate(order):
            histogram[abs(place - sorted(order).index(sequence))] += 1
        degree = sum((length - d) * histogram[d] for d in range(length + 1)) / length**2
        expected.append(("", subscriber, publisher, length, length - histogram[0], round(degree, 12)))
    assert rows_of(ordering_degree_by_sequence(arrivals(spark, *orders))) == sorted(expected)


def test_a_publication_that_was_sent_again_is_one_and_under_way_since_the_first_time(
    spark: SparkSession, publication: DataFrame, delivery: DataFrame
) -> None:
    # p's client lost A before p 1 was acknowledged, and published it again at B, twice.
    again = table(
        spark,
        "publication",
        "at_us publisher sequence broker expected",
        (1_200, "p", 1, "B", 2),
        (12_000, "p", 1, "B", None),
    )
    noted = publication.unionByName(again)
    for metric in (delivery_delay, delivery_delay_by_pair, delivery_ratio, dht_hops):
        assert rows_of(metric(noted, delivery)) == rows_of(metric(publication, delivery)), metric.__name__
    assert rows_of(delivery_ratio(noted, delivery, from_us=1_100)) == rows_of(
        delivery_ratio(publication, delivery, from_us=1_100)
    )

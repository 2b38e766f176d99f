"""Costs that change, by periods and components, worked out by hand."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from braid.errors import ConfigurationError
from braid.pipeline.metrics.cost import (
    RECONFIGURATION_KINDS,
    cost_over_time,
    delivery_tree_cost,
    forwarding_cost,
)
from braid.protocol import changes
from tests.pipeline.metric_tables import rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SAMPLE = (
    "run string, at_us long, period_us long, source string, target string, link string, kind string, "
    "messages long, bytes long"
)
LOAD = "run string, at_us long, period_us long, broker string, published long"
LINK_COSTS = "source string, target string, cost double, from_us long"
BROKER_COSTS = "broker string, cost double, from_us long"


def costs(spark: SparkSession) -> dict[str, DataFrame]:
    return {
        # A-B costs 2, from 1,000 on 5; only one direction is said.
        "link_costs": spark.createDataFrame([("A", "B", 2.0, 0), ("A", "B", 5.0, 1_000)], LINK_COSTS),
        # B costs 10, from 2,000 on 1; A is not named.
        "broker_costs": spark.createDataFrame([("B", 10.0, 0), ("B", 1.0, 2_000)], BROKER_COSTS),
    }


def test_what_crossed_links_pays_the_costs_of_its_time(spark: SparkSession) -> None:
    link_sample = spark.createDataFrame(
        [
            ("", 1_000, 1_000, "A", "B", "primary", "publication", 3, 0),
            ("", 2_000, 1_000, "A", "B", "primary", "publication", 4, 0),
            ("", 2_000, 1_000, "B", "A", "primary", "topology_news", 7, 0),
            ("", 2_000, 1_000, "B", "A", "primary", "ping", 100, 0),
            ("", 2_000, 1_000, "A", "C", "soft", "publication", 100, 0),
            ("", 3_000, 1_000, "A", "B", "primary", "link_request", 1, 0),
            ("", 3_000, 1_000, "A", "C", "primary", "shift", 2, 0),
        ],
        SAMPLE,
    )
    broker_load = spark.createDataFrame([("", 1_000, 1_000, "A", 3), ("", 2_000, 1_000, "B", 2)], LOAD)
    found = rows_of(cost_over_time(link_sample, broker_load, period_us=1_000, **costs(spark)))
    assert found == [
        # 3 enter at A for 1 each, cross A-B for 2 and come to B for 10.
        ("", 0, 3 * (1 + 2 + 10), 0.0, 0.0, 0.0, 39.0),
        # 4 cross for 5 to B for 10, 2 enter at B for 10; 7 news cross B-A for 5 to A for 1.
        ("", 1_000, 4 * 15.0 + 20, 7 * 6.0, 0.0, 0.0, 122.0),
        # B costs 1 by now; A-C and C are not named.
        ("", 2_000, 0.0, 0.0, 6.0, 2 * 2.0, 10.0),
    ]
    together = rows_of(cost_over_time(link_sample, broker_load, period_us=10_000, **costs(spark)))
    assert together == [("", 0, 119.0, 42.0, 6.0, 4.0, 171.0)]
    later = cost_over_time(
        link_sample, broker_load, period_us=1_000, from_us=1_000, to_us=2_000, **costs(spark)
    )
    assert rows_of(later) == [found[1]]


def test_without_tables_everything_costs_one(spark: SparkSession) -> None:
    link_sample = spark.createDataFrame([("", 10, 10, "A", "B", "primary", "publication", 3, 0)], SAMPLE)
    broker_load = spark.createDataFrame([("", 10, 10, "A", 3)], LOAD)
    assert rows_of(cost_over_time(link_sample, broker_load, period_us=10)) == [
        ("", 0, 9.0, 0.0, 0.0, 0.0, 9.0)
    ]


def test_hops_pay_the_costs_of_their_time(spark: SparkSession) -> None:
    publication = spark.createDataFrame(
        [("", 500, "p", 1, "A"), ("", 1_500, "p", 2, "A")],
        "run string, at_us long, publisher string, sequence long, broker string",
    )
    hop = spark.createDataFrame(
        [("", 900, "A", "B"), ("", 1_900, "A", "B"), ("", 2_100, "B", "A")],
        "run string, at_us long, source string, target string",
    )
    # Links 2 + 5 + 5; brokers: A twice and once more, B for 10 twice.
    assert rows_of(forwarding_cost(publication, hop, **costs(spark))) == [("", 2, 12.0, 23.0, 35.0)]


def test_a_tree_is_priced_at_one_time(spark: SparkSession) -> None:
    empty = spark.createDataFrame([], "run string")
    with pytest.raises(ConfigurationError, match="from_us"):
        delivery_tree_cost(empty, empty, empty, **costs(spark))


def test_every_message_of_a_change_has_a_price() -> None:
    kinds = {re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name in changes.__all__}
    assert kinds <= set(RECONFIGURATION_KINDS)

"""Are traffic, overhead, messages per match and state what one adds up by hand?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.pipeline.metrics.state import covering_set_size, state_distribution, state_per_peer
from braid.pipeline.metrics.traffic import (
    control_overhead,
    message_size,
    messages_by_kind,
    messages_per_match,
    network_traffic,
)
from tests.pipeline.metric_tables import rows_of, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

S = 1_000_000


def test_traffic_has_zeros_where_nothing_was_sent(spark: SparkSession) -> None:
    hop = table(
        spark,
        "hop",
        "run at_us size_bytes",
        ("x", 1 * S, 100),
        ("x", 1 * S + 999_999, 50),
        ("x", 4 * S, 10),
        ("y", 9 * S, 1),
    )
    assert rows_of(network_traffic(hop)) == [
        ("x", 1 * S, 2.0, 150.0),
        ("x", 2 * S, 0.0, 0.0),
        ("x", 3 * S, 0.0, 0.0),
        ("x", 4 * S, 1.0, 10.0),
        ("y", 9 * S, 1.0, 1.0),
    ]


def test_traffic_is_per_second_whatever_the_period(spark: SparkSession) -> None:
    hop = table(spark, "hop", "at_us size_bytes", (0, 100), (1 * S, 100), (3 * S, 40))
    # Two-second periods: 2 messages and 200 bytes, then 1 and 40; the interval adds an empty one at its end.
    assert rows_of(network_traffic(hop, period_us=2 * S, from_us=0, to_us=5 * S)) == [
        ("", 0, 1.0, 100.0),
        ("", 2 * S, 0.5, 20.0),
        ("", 4 * S, 0.0, 0.0),
    ]


def samples(spark: SparkSession):  # type: ignore[no-untyped-def]
    return table(
        spark,
        "link_sample",
        "run at_us source target kind messages bytes",
        ("x", 1 * S, "A", "B", "publication", 10, 900),
        ("x", 1 * S, "B", "A", "acknowledgement", 5, 50),
        ("x", 2 * S, "A", "B", "publication", 2, 180),
        ("x", 2 * S, "A", "B", "ping", 3, 70),
        ("y", 1 * S, "A", "B", "publication", 1, 100),
    )


def test_messages_and_bytes_by_kind(spark: SparkSession) -> None:
    # Run x: 20 messages and 1200 bytes in all.
    assert rows_of(messages_by_kind(samples(spark))) == [
        ("x", "acknowledgement", 5, 50, 0.25, round(50 / 1200, 12)),
        ("x", "ping", 3, 70, 0.15, round(70 / 1200, 12)),
        ("x", "publication", 12, 1080, 0.6, 0.9),
        ("y", "publication", 1, 100, 1.0, 1.0),
    ]


def test_control_overhead_is_what_is_not_publications(spark: SparkSession) -> None:
    assert rows_of(control_overhead(samples(spark))) == [("x", 8, 120, 1200, 0.1), ("y", 0, 0, 100, 0.0)]
    # Only the samples at 2 s: 70 of 250 bytes.
    assert rows_of(control_overhead(samples(spark), from_us=2 * S)) == [("x", 3, 70, 250, 0.28)]


def test_the_mean_size_of_a_publication_on_a_link(spark: SparkSession) -> None:
    hop = table(spark, "hop", "at_us run size_bytes", (1, "a", 100), (2, "a", 140), (3, "b", 90))
    assert rows_of(message_size(hop)) == [("a", 2, 120.0), ("b", 1, 90.0)]
    assert rows_of(message_size(hop, from_us=2)) == [("a", 1, 140.0), ("b", 1, 90.0)]


def test_messages_per_match(spark: SparkSession) -> None:
    publication = table(
        spark,
        "publication",
        "at_us publisher sequence expected",
        (0, "p", 1, 2),
        (5, "p", 2, 0),
        (6, "p", 3, None),
    )
    hop = table(spark, "hop", "at_us publisher sequence", *[(9, "p", 1)] * 5, *[(9, "p", 2)] * 3, (9, "p", 3))
    # 5 + 3 messages for 2 matches; p 3 has no expectation.
    assert rows_of(messages_per_match(hop, publication)) == [("", 8, 2, 4.0)]
    # Published before 5: 5 messages for 2 matches, whenever they arrived.
    assert rows_of(messages_per_match(hop, publication, to_us=5)) == [("", 5, 2, 2.5)]
    # What nobody wants costs messages for no match.
    assert rows_of(messages_per_match(hop, publication, from_us=5)) == [("", 3, 0, None)]


def loads(spark: SparkSession):  # type: ignore[no-untyped-def]
    return table(
        spark,
        "broker_load",
        "at_us broker covering_set subscriptions",
        (1 * S, "A", 10, 100),
        (2 * S, "A", 20, 200),
        (3 * S, "A", 30, 300),
        (3 * S, "B", 50, 300),
        (3 * S, "C", 2, 7),
    )


def test_covering_set_size_is_a_mean_over_brokers(spark: SparkSession) -> None:
    # A has 20 on average, B 50, C 2: 72 / 3. Subscriptions: (200 + 300 + 7) / 3.
    assert rows_of(covering_set_size(loads(spark))) == [("", 3, 24.0, 50, 169.0)]
    assert rows_of(covering_set_size(loads(spark), to_us=3 * S)) == [("", 1, 15.0, 20, 150.0)]


def test_state_is_that_of_the_last_sample(spark: SparkSession) -> None:
    assert rows_of(state_per_peer(loads(spark))) == [("", "A", 300), ("", "B", 300), ("", "C", 7)]
    assert rows_of(state_per_peer(loads(spark), to_us=3 * S)) == [("", "A", 200)]
    assert rows_of(state_distribution(loads(spark))) == [("", 7, 1), ("", 300, 2)]

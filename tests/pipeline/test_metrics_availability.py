"""Are operation time, replication time, PDRD and LMPT what the availability paper defines?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from braid.pipeline.metrics.availability import disruption, operation_time, replication_time, resumption
from tests.pipeline.metric_tables import rows_of, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# R replaces a broker between P, where publications enter, and the neighbours B and C with subscribers.
PHASES = [
    (1_000, "replicate", "1", "granted", "B", "R"),
    (1_100, "replicate", "1", "state requested", "R", ""),
    (1_150, "replicate", "1", "state requested", "R", ""),
    (1_200, "replicate", "1", "connection requested", "B", "F"),
    (1_250, "replicate", "1", "connection requested", "C", "F"),
    (1_400, "replicate", "1", "state received", "R", ""),
    (1_900, "replicate", "1", "state received", "R", ""),
    (1_500, "replicate", "1", "something else", "R", ""),
    (2_000, "replicate", "1", "finished", "R", ""),
    (5_000, "shift", "2", "locking", "A", ""),
    (5_300, "shift", "2", "aborted", "A", ""),
    (6_000, "shift", "3", "locking", "A", ""),
]


@pytest.fixture
def reconfiguration(spark: SparkSession) -> DataFrame:
    return table(spark, "reconfiguration", "at_us operation operation_id phase broker detail", *PHASES)


def test_operation_time(reconfiguration) -> None:
    assert rows_of(operation_time(reconfiguration)) == [
        ("", "replicate", "1", 1_000, 1_000, False),
        ("", "shift", "2", 5_000, 300, True),
        ("", "shift", "3", 6_000, None, False),  # it has not ended
    ]
    assert rows_of(operation_time(reconfiguration, from_us=2_000, to_us=6_000), "operation_id") == [("2",)]


def test_replication_time_is_from_the_first_request_to_the_last_subscription(reconfiguration) -> None:
    # 1900 - 1100.
    assert rows_of(replication_time(reconfiguration)) == [("", "replicate", "1", "R", 800)]


@pytest.fixture
def traffic(spark: SparkSession) -> tuple[DataFrame, DataFrame, DataFrame]:
    publication = table(
        spark,
        "publication",
        "at_us publisher sequence broker",
        (500, "p", 1, "P"),
        (900, "p", 2, "P"),
        (1_999, "p", 3, "P"),
        (2_000, "p", 4, "P"),  # published when the operation had ended: never pending
    )
    hop = table(
        spark,
        "hop",
        "at_us publisher sequence source target",
        (1_150, "p", 1, "R", "B"),  # before B was asked to connect, so not through the new connection
        (1_700, "p", 2, "R", "B"),
        (2_600, "p", 3, "R", "B"),
        (3_000, "p", 4, "R", "B"),
        (1_600, "p", 3, "X", "B"),  # by another way
        (2_250, "p", 4, "R", "C"),
    )
    delivery = table(
        spark,
        "delivery",
        "at_us publisher sequence broker subscriber",
        (1_160, "p", 1, "B", "b1"),
        (1_710, "p", 2, "B", "b1"),
        (2_610, "p", 3, "B", "b1"),
        (2_610, "p", 3, "B", "b2"),
        (3_010, "p", 4, "B", "b1"),
        (2_260, "p", 4, "C", "c1"),
        (1_710, "p", 2, "A", "a1"),  # elsewhere
    )
    return publication, hop, delivery


def test_resumption_of_each_subscriber(reconfiguration, traffic) -> None:
    assert rows_of(resumption(reconfiguration, *traffic)) == [
        # p 2 arrives at 1700, 500 after the request; p 3 is the last that was pending, at 2600.
        ("", "replicate", "1", "B", "b1", 500, 900),
        # b2 wants only p 3: first and last at once.
        ("", "replicate", "1", "B", "b2", 1_400, 0),
        # The first for c1 is p 4, which was never pending: nothing to work off.
        ("", "replicate", "1", "C", "c1", 1_000, 0),
    ]


def test_mean_over_subscribers(reconfiguration, traffic) -> None:
    # PDRD (500 + 1400 + 1000) / 3 us, LMPT (900 + 0 + 0) / 3 us.
    assert rows_of(disruption(reconfiguration, *traffic)) == [
        ("", "replicate", 3, round(2.9 / 3, 12), 0.3),
    ]


def test_while_an_operation_goes_on_everything_is_pending(reconfiguration, traffic) -> None:
    unfinished = reconfiguration.where("phase <> 'finished'")
    assert rows_of(resumption(unfinished, *traffic), "subscriber lmpt_us") == [
        ("b1", 1_300),
        ("b2", 0),
        ("c1", 0),
    ]


def test_the_interval_is_of_connection_requests(reconfiguration, traffic) -> None:
    assert rows_of(resumption(reconfiguration, *traffic, from_us=1_250), "subscriber") == [("c1",)]

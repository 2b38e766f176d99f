"""Are hops, pure forwarders, yield and throughput what one counts by hand?"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from braid.errors import ConfigurationError
from braid.pipeline.metrics.forwarding import (
    forwarding_over_time,
    hop_distribution,
    mean_hops,
    pure_forwarders,
    repeated_deliveries,
    system_yield,
    throughput,
)
from braid.pipeline.metrics.frames import within
from tests.pipeline.metric_tables import rows_of, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A line A - B - C - D; everything is published at A.
#   p 1: delivered at C (to three clients) and D. B is a pure forwarder.
#   p 2: delivered at B and also at A, where it entered.
#   p 3: sent to B although nobody wants it there, and once more by mistake.
HOPS = [
    (1_000, "", "p", 1, "A", "B", 1),
    (2_000, "", "p", 1, "B", "C", 2),
    (3_000, "", "p", 1, "C", "D", 3),
    (4_000, "", "p", 2, "A", "B", 1),
    (5_000, "", "p", 3, "A", "B", 1),
    (5_500, "", "p", 3, "A", "B", 1),
]
DELIVERIES = [
    (2_010, "", "p", 1, "C", "c1", 2),
    (2_020, "", "p", 1, "C", "c2", 2),
    (2_030, "", "p", 1, "C", "c3", 2),
    (3_010, "", "p", 1, "D", "d1", 3),
    (3_500, "", "p", 2, "A", "a1", 0),
    (4_010, "", "p", 2, "B", "b1", 1),
]


@pytest.fixture
def hop(spark: SparkSession) -> DataFrame:
    return table(spark, "hop", "at_us run publisher sequence source target hops", *HOPS)


@pytest.fixture
def delivery(spark: SparkSession) -> DataFrame:
    return table(spark, "delivery", "at_us run publisher sequence broker subscriber hops", *DELIVERIES)


def test_a_broker_with_three_subscribers_counts_once_in_the_distribution_of_hops(delivery) -> None:
    # Paths: A-C 2 links, A-D 3, A-A 0, A-B 1: four of them, one of each length.
    assert rows_of(hop_distribution(delivery)) == [
        ("", 0, 1, 0.25, 0.25),
        ("", 1, 1, 0.25, 0.5),
        ("", 2, 1, 0.25, 0.75),
        ("", 3, 1, 0.25, 1.0),
    ]


def test_mean_hops(delivery) -> None:
    # (0 + 1 + 2 + 3) / 4, and within [3000, 4000) only A-D and A-A.
    assert rows_of(mean_hops(delivery)) == [("", 4, 1.5, 3)]
    assert rows_of(mean_hops(delivery, from_us=3_000, to_us=4_000)) == [("", 2, 1.5, 3)]


def test_yield_counts_brokers_and_leaves_out_what_crossed_no_link(hop, delivery) -> None:
    # Sent: 6 hops. Delivered where they arrived: p1 at C and D, p2 at B: 3. Pure: p1 and p3 at B: 2.
    # The second arrival of p3 is a repeat. p2 at A crossed no link.
    result = system_yield(hop, delivery)
    assert result.columns == [
        "run", "sent", "deliveries", "pure_forwarders", "repeats", "local_deliveries", "yield",
    ]  # fmt: skip
    assert rows_of(result) == [("", 6, 3, 2, 1, 1, 0.5)]
    assert rows_of(pure_forwarders(hop, delivery)) == [("", 2, round(2 / 6, 12))]


def test_deliveries_are_repeated_only_for_the_same_client(spark: SparkSession, delivery: DataFrame) -> None:
    # Three clients of C get p 1, each once. In the other run c1 gets it three times, at last at 9000.
    again = [(at_us, "x", "p", 1, "C", "c1", 2) for at_us in (7_000, 8_000, 9_000)]
    both = delivery.unionByName(
        table(spark, "delivery", "at_us run publisher sequence broker subscriber hops", *again)
    )
    assert rows_of(repeated_deliveries(both)) == [("", 0), ("x", 2)]
    assert rows_of(repeated_deliveries(both, from_us=9_000)) == [("", 0), ("x", 2)]
    assert rows_of(repeated_deliveries(both, to_us=9_000)) == [("", 0), ("x", 0)]


def test_periods_add_up_to_the_yield_of_the_whole(hop, delivery) -> None:
    columns = "sent deliveries pure_forwarders repeats local_deliveries"
    series = forwarding_over_time(hop, delivery, period_us=2_000, from_us=1_000)
    [whole] = rows_of(system_yield(hop, delivery), columns)
    found = rows_of(series, f"at_us {columns} links yield")
    assert [row[0] for row in found] == [1_000, 3_000, 5_000]
    assert tuple(map(sum, zip(*(row[1:6] for row in found), strict=True))) == whole
    [mean] = rows_of(mean_hops(delivery), "deliveries mean_hops")
    assert sum(row[6] for row in found) / mean[0] == pytest.approx(mean[1])
    assert found[2][1:6] == (2, 0, 1, 1, 0), "p 3 came twice to nobody"
    assert rows_of(forwarding_over_time(hop, delivery, from_us=90_000)) == []


def test_an_arrival_at_the_end_of_an_interval_finds_its_delivery_behind_it(hop, delivery) -> None:
    # Within [2000, 2005) p1 arrives at C; it is delivered there at 2010.
    assert rows_of(system_yield(hop, delivery, from_us=2_000, to_us=2_005)) == [("", 1, 1, 0, 0, 0, 1.0)]
    # Within [3400, 3600) there is only the delivery at A, which says nothing about links: no yield.
    assert rows_of(system_yield(hop, delivery, from_us=3_400, to_us=3_600)) == [("", 0, 0, 0, 0, 1, None)]


def test_the_paper_s_own_arithmetic(spark) -> None:
    # Table 2(a), S0, in thousands: 348 deliveries and 559 pure forwarders are a yield of 38 %.
    arrivals = [("p", number, "B") for number in range(348 + 559)]
    hop = table(spark, "hop", "publisher sequence target", *arrivals)
    delivery = table(
        spark, "delivery", "publisher sequence broker hops", *((*row, 1) for row in arrivals[:348])
    )
    [row] = system_yield(hop, delivery).collect()
    assert (row["pure_forwarders"], round(row["yield"], 2)) == (559, 0.38)


def test_runs_are_kept_apart(spark) -> None:
    hop = table(spark, "hop", "run publisher sequence target", ("x", "p", 1, "B"), ("y", "p", 1, "B"))
    delivery = table(spark, "delivery", "run publisher sequence broker hops", ("y", "p", 1, "B", 1))
    assert rows_of(system_yield(hop, delivery), "run yield") == [("x", 0.0), ("y", 1.0)]


def test_throughput_counts_first_deliveries_within_the_interval(delivery) -> None:
    # First deliveries at brokers: 2010 (C, three clients), 3010 (D), 3500 (A), 4010 (B).
    # [2005, 3510) holds three of them, with five clients, in 1505 us.
    assert rows_of(throughput(delivery, from_us=2_005, to_us=3_510)) == [
        ("", 3, 5, 0.001505, round(3 / 0.001505, 12))
    ]
    # The other clients of C are no new delivery in the next interval; open ends are the run's own.
    assert rows_of(throughput(delivery, from_us=2_015), "deliveries client_deliveries") == [(3, 3)]
    assert rows_of(throughput(delivery), "deliveries seconds") == [(4, 0.002001)]


def test_an_empty_trace_gives_empty_tables(spark) -> None:
    hop, delivery = table(spark, "hop", "run"), table(spark, "delivery", "run")
    for result in (
        hop_distribution(delivery),
        mean_hops(delivery),
        system_yield(hop, delivery),
        throughput(delivery),
    ):
        assert rows_of(result) == []


def test_an_interval_keeps_its_beginning_and_not_its_end(delivery) -> None:
    kept = within(delivery, 2_020, 3_010)
    assert sorted(row.at_us for row in kept.collect()) == [2_020, 2_030]
    with pytest.raises(ConfigurationError, match="is empty"):
        within(delivery, 5, 5)


def test_random_traces_agree_with_a_plain_count(spark) -> None:
    stream = random.Random("4/yield")
    arrivals, delivered = [], []
    for _ in range(600):
        key = (stream.choice("xy"), stream.choice("pq"), stream.randrange(20), stream.choice("ABCDE"))
        at_us = stream.randrange(1_000)
        if stream.random() < 0.6:
            arrivals.append((at_us, *key))
        else:
            delivered.append((at_us, *key, stream.randrange(4)))
    hop = table(spark, "hop", "at_us run publisher sequence target", *arrivals)
    delivery = table(spark, "delivery", "at_us run publisher sequence broker hops", *delivered)

    expected = []
    for run in "xy":
        reached = Counter(row[1:] for row in arrivals if row[1] == run and 200 <= row[0] < 800)
        wanted = {row[1:5] for row in delivered if row[1] == run}
        local = {row[1:5] for row in delivered if row[1] == run and row[5] == 0 and 200 <= row[0] < 800}
        both = sum(place in wanted for place in reached)
        sent = reached.total()
        expected.append(
            (
                run,
                sent,
                both,
                len(reached) - both,
                sent - len(reached),
                len(local - set(reached)),
                both / sent,
            )
        )
    assert rows_of(system_yield(hop, delivery, from_us=200, to_us=800)) == [
        (*row[:-1], round(row[-1], 12)) for row in expected
    ]


def test_deliveries_from_logs_have_the_hops_that_brought_them_there(
    spark: SparkSession, hop, delivery
) -> None:
    # A log at A, where p 1 and p 2 entered, one at C beside its clients, one at D where nobody else is.
    from_logs = table(
        spark,
        "delivery",
        "at_us run publisher sequence broker subscriber hops",
        (3_100, "", "p", 1, "A", "durable:a", -1),
        (3_200, "", "p", 1, "C", "durable:c", -1),
        (3_300, "logs", "p", 1, "D", "durable:d", -1),
        (3_400, "logs", "p", 1, "A", "durable:a", -1),
    )
    everywhere = delivery.unionByName(from_logs)
    arrivals = hop.unionByName(table(spark, "hop", "at_us run publisher sequence source target hops",
                                     (3_000, "logs", "p", 1, "C", "D", 3)))  # fmt: skip
    # Hops 0, 0, 1, 2, 3 in the first run; 0 and 3 in the one where all deliveries are from logs.
    assert rows_of(mean_hops(everywhere, arrivals)) == [("", 5, 1.2, 3), ("logs", 2, 1.5, 3)]
    assert rows_of(hop_distribution(everywhere, arrivals), "run hops deliveries") == [
        ("", 0, 2), ("", 1, 1), ("", 2, 1), ("", 3, 1), ("logs", 0, 1), ("logs", 3, 1),
    ]  # fmt: skip
    # Without the arrivals nothing is known of p 1 at A, and the other run has no figure at all.
    assert rows_of(mean_hops(everywhere)) == [("", 4, 1.5, 3)]
    columns = "run sent deliveries pure_forwarders local_deliveries"
    assert rows_of(system_yield(arrivals, everywhere), columns) == [("", 6, 3, 2, 2), ("logs", 1, 1, 0, 1)]
    # D's copy came before the interval, so that its delivery within it is not a local one.
    assert rows_of(system_yield(arrivals, everywhere, from_us=3_100), columns)[1] == ("logs", 0, 0, 0, 1)
    series = forwarding_over_time(arrivals, everywhere, period_us=1_000_000)
    assert rows_of(series, f"{columns} links") == [("", 6, 3, 2, 2, 6), ("logs", 1, 1, 0, 1, 3)]

"""Filters in Spark SQL mean what they mean everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import braid
import braid.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILTERS = ["price > 10", "symbol LIKE 'A%' AND price <= 10", "missing IS NULL", "inner.depth = 3"]


def test_filters_in_sql(spark: SparkSession) -> None:
    braid.spark.register(spark)
    rows = [
        (1, "ACME", 12.5, (3,), "price > 10"),
        (2, "XY", 3.0, (4,), "symbol = 'XY'"),
        (3, "A", None, None, "price > 10"),
        (4, None, 10.0, (3,), None),
    ]
    frame = spark.createDataFrame(
        rows, "id int, symbol string, price double, inner struct<depth:int>, wish string"
    )
    frame.createOrReplaceTempView("some_quotes")
    found = spark.sql(
        "SELECT id, braid_matches(wish, struct(symbol, price)) AS m FROM some_quotes ORDER BY id"
    )
    assert [(row.id, row.m) for row in found.collect()] == [(1, True), (2, True), (3, False), (4, None)]
    listed = ", ".join('"' + text + '"' for text in FILTERS)
    pairs = spark.sql(
        "SELECT q.id, m.position, m.filter FROM some_quotes q, "
        f"LATERAL braid_matching(struct(q.symbol, q.price, q.inner), array({listed})) m"
    ).collect()
    truth = set()
    for number, symbol, price, inner, _ in rows:
        attributes = {"symbol": symbol, "price": price, "inner.depth": inner and inner[0]}
        plain = {name: value for name, value in attributes.items() if value is not None}
        truth |= {
            (number, place, text) for place, text in enumerate(FILTERS) if braid.Filter(text).matches(plain)
        }
    assert {tuple(row) for row in pairs} == truth
    assert len(pairs) == len(truth)
    with pytest.raises(Exception, match="not a filter: line 1") as raised:
        spark.sql("SELECT braid_matches('price >', struct(price)) FROM some_quotes").collect()
    assert "Traceback" not in str(raised.value).split("JVM stacktrace")[0]

"""Filters that are read once: kept columns, sets that are saved and refreshed, and streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from braid.errors import ConfigurationError, FilterError
from braid.language import Filter
from braid.pipeline.matching_join import FilterSet, match_join
from tests.pipeline.test_matching_join import TINY

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

PRICES = [1, 5, 10, 20, None]
TEXTS = ["price > 4", "price BETWEEN 5 AND 10", "name LIKE 'n%'", "price = 20 OR price = 1"]


def quotes(spark: SparkSession) -> DataFrame:
    rows = [(number, price, f"n{number % 2}", [number]) for number, price in enumerate(PRICES)]
    return spark.createDataFrame(rows, "id INT, price INT, name STRING, `odd column` ARRAY<INT>")


def filters(spark: SparkSession, texts: list[str]) -> DataFrame:
    rows = [(number, text, f"d{number % 2}") for number, text in enumerate(texts)]
    return spark.createDataFrame(rows, "id INT, filter STRING, destination STRING")


def expected(texts: list[str]) -> list[tuple[int, int]]:
    found = []
    for number, price in enumerate(PRICES):
        attributes: dict[str, Any] = {"name": f"n{number % 2}"} | ({} if price is None else {"price": price})
        found.append((number, sum(Filter(text).matches(attributes) for text in texts)))
    return found


def counted(joined: DataFrame) -> list[tuple[int, int]]:
    return sorted((row.publication, row["count"]) for row in joined.collect())


@pytest.mark.parametrize("strategy", ["index", "split", "zcode"])
@pytest.mark.parametrize("how", ["counts", "destinations", "pairs"])
def test_kept_columns_are_those_of_the_publication(spark: SparkSession, strategy: Any, how: Any) -> None:
    chosen: dict[str, Any] = {"how": how, "destination_column": "destination", "strategy": strategy}
    chosen |= {"settings": TINY, "attributes": ["price", "name"]}
    table, asked = quotes(spark), filters(spark, TEXTS)
    plain = match_join(table, asked, **chosen)
    kept = match_join(table, asked, keep=["odd column", "price"], **chosen)
    assert kept.columns == ["publication", "odd column", "price", *plain.columns[1:]]
    rows = kept.collect()
    assert all(row["odd column"] == [row.publication] for row in rows)
    assert all(row.price == PRICES[row.publication] for row in rows)
    answers = sorted((row.publication, row[plain.columns[1]]) for row in rows)
    assert answers == sorted(map(tuple, plain.collect()))


def test_a_set_is_built_saved_and_refreshed(spark: SparkSession, tmp_path: Path) -> None:
    table = quotes(spark)
    with FilterSet.build(filters(spark, TEXTS), destination_column="destination") as ready:
        assert counted(match_join(table, ready, attributes=["price", "name"])) == expected(TEXTS)
        assert (ready.filters, ready.bytes > 0) == (4, True)
        # The order of the rows is not another set.
        assert not ready.refresh(filters(spark, TEXTS).orderBy("filter"))
        ready.save(str(tmp_path / "set"), spark)
        fewer = TEXTS[:2]
        assert ready.refresh(filters(spark, fewer))
        assert counted(match_join(table, ready, attributes=["price", "name"])) == expected(fewer)
        with pytest.raises(FilterError, match="the filter with id 0"):
            ready.refresh(filters(spark, ["price >"]))
        assert counted(match_join(table, ready, attributes=["price", "name"])) == expected(fewer)
    with FilterSet.load(str(tmp_path / "set"), spark) as again:
        assert counted(match_join(table, again, attributes=["price", "name"])) == expected(TEXTS)
        where = match_join(table, again, how="destinations", attributes=["price", "name"], keep=["price"])
        assert where.where("publication = 0").first().destinations == ["d0", "d1"]  # type: ignore[union-attr]
        assert not again.refresh(filters(spark, TEXTS))


def test_what_a_set_cannot_do_is_said(spark: SparkSession, tmp_path: Path) -> None:
    table = quotes(spark)
    ready = FilterSet.build(filters(spark, TEXTS))
    with pytest.raises(ConfigurationError, match="cannot be joined by 'split'"):
        match_join(table, ready, attributes=["price"], strategy="split")
    with pytest.raises(ConfigurationError, match="built with destination_column"):
        match_join(table, ready, attributes=["price"], how="destinations")
    with pytest.raises(ConfigurationError, match="the answer has already"):
        match_join(table.withColumnRenamed("price", "count"), ready, attributes=["name"], keep=["count"])
    ready.close()
    ready.close()
    with pytest.raises(ConfigurationError, match="has been closed"):
        match_join(table, ready, attributes=["price"])
    table.select("id").write.parquet(str(tmp_path / "other"))
    with pytest.raises(ConfigurationError, match="no saved set of filters"):
        FilterSet.load(str(tmp_path / "other"), spark)


def test_a_closed_set_leaves_nothing_on_the_driver(spark: SparkSession) -> None:
    """Broadcasts of joins that nobody needs any more would stay until the session ends."""
    ready = FilterSet.build(filters(spark, TEXTS))
    counted(match_join(quotes(spark), ready, attributes=["price", "name"]))
    shared = ready.shards_for(quotes(spark))
    joined = match_join(quotes(spark), ready, attributes=["price", "name"])
    ready.close()
    with pytest.raises(Exception, match=r"[Dd]estroyed"):
        joined.collect()
    assert shared.freed


def test_a_stream_is_joined_with_a_table(spark: SparkSession, tmp_path: Path) -> None:
    quotes(spark).coalesce(1).write.parquet(str(tmp_path / "quotes"))
    stream = spark.readStream.schema(quotes(spark).schema).parquet(str(tmp_path / "quotes"))
    asked = filters(spark, TEXTS)
    for strategy in ("split", "zcode"):
        with pytest.raises(ConfigurationError, match="a stream of publications cannot be joined by"):
            match_join(stream, asked, attributes=["price"], strategy=strategy)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="filters are a table and not a stream"):
        match_join(quotes(spark), stream, attributes=["price"], filter_column="name")
    joined = match_join(stream, asked, attributes=["price", "name"], keep=["price"])
    query = joined.writeStream.format("memory").queryName("matched").trigger(availableNow=True).start()
    query.awaitTermination()
    assert counted(spark.table("matched")) == expected(TEXTS)

"""Does the matching join give what evaluating every filter on every publication gives?"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

import pytest

from braid.errors import ConfigurationError, FilterError
from braid.language import Filter, to_spark
from braid.pipeline.matching_join import JoinSettings, match_join
from tests.language.strategies import Maker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

SCHEMA = """
    id BIGINT, i BIGINT, j BIGINT, x DOUBLE, y DOUBLE, `odd ``name` DOUBLE, s STRING, t STRING, p BOOLEAN,
    q BOOLEAN, d STRUCT<e: BIGINT, f: STRUCT<g: STRING>>
"""
FLAT = ("i", "j", "x", "y", "odd `name", "s", "t", "p", "q")
STRATEGIES = ("index", "split", "zcode")
# So small that a handful of filters is split into several slices.
TINY = JoinSettings(filters_bytes_max=160_000, shard_filters_max=60, shard_filters_min=10)

Row = tuple[Any, ...]


def publications_of(spark: SparkSession, publications: Sequence[Mapping[str, Any]]) -> DataFrame:
    rows = [
        (number, *map(each.get, FLAT), (each.get("d.e"), (each.get("d.f.g"),)))
        for number, each in enumerate(publications)
    ]
    return spark.createDataFrame(rows, SCHEMA)


def filters_of(spark: SparkSession, texts: Sequence[str]) -> DataFrame:
    rows = [(f"f{place}", text, f"to {place % 7}") for place, text in enumerate(texts)]
    return spark.createDataFrame(rows, "id STRING, filter STRING, destination STRING")


def naive(publications: Sequence[Mapping[str, Any]], texts: Sequence[str]) -> set[tuple[int, int]]:
    filters = [Filter(text) for text in texts]
    return {
        (row, place)
        for row, attributes in enumerate(publications)
        for place, each in enumerate(filters)
        if each.matches(attributes)
    }


def expected(how: str, pairs: set[tuple[int, int]], rows: int) -> list[Row]:
    if how == "pairs":
        return sorted((row, f"f{place}") for row, place in pairs)
    if how == "counts":
        return [(row, sum(each == row for each, _ in pairs)) for row in range(rows)]
    return [(row, sorted({f"to {place % 7}" for each, place in pairs if each == row})) for row in range(rows)]


def answer(joined: DataFrame) -> list[Row]:
    return sorted(tuple(row) for row in joined.collect())


def require_all(
    spark: SparkSession,
    publications: Sequence[Mapping[str, Any]],
    texts: Sequence[str],
    *,
    settings: JoinSettings = TINY,
    partitions: int = 2,
) -> None:
    """Every strategy and every question, against the plain loop."""
    pairs = naive(publications, texts)
    table = publications_of(spark, publications).repartition(partitions)
    filters = filters_of(spark, texts)
    for strategy in STRATEGIES:
        for how in ("counts", "destinations", "pairs"):
            joined = match_join(
                table,
                filters,
                how=how,  # type: ignore[arg-type]
                destination_column="destination",
                strategy=strategy,  # type: ignore[arg-type]
                settings=settings,
            )
            assert answer(joined) == expected(how, pairs, len(publications)), f"{strategy}, {how}"


def ranges(draw: random.Random, count: int) -> list[str]:
    """Filters of nothing but number ranges, which have z-codes."""
    texts = []
    for _ in range(count):
        conditions = []
        for name in draw.sample(["i", "j", "x", "y"], draw.randint(1, 4)):
            low = draw.randint(-5, 60)
            conditions.append(
                draw.choice(
                    [
                        f"{name} BETWEEN {low} AND {low + draw.randint(0, 30)}",
                        f"{name} > {low}.5",
                        f"{name} <= {low}",
                    ]
                )
            )
        texts.append(" AND ".join(conditions))
    return texts


def points(draw: random.Random, count: int) -> list[dict[str, Any]]:
    made = []
    for _ in range(count):
        row: dict[str, Any] = {"i": draw.randint(-5, 90), "j": draw.randint(-5, 90)}
        row |= {"x": draw.uniform(-5, 90), "y": float(draw.randint(-5, 90))}
        made.append({name: value for name, value in row.items() if draw.random() < 0.8})
    return made


@pytest.mark.parametrize("part", range(2))
def test_random_tables_of_every_kind(spark: SparkSession, part: int) -> None:
    maker = Maker(random.Random(f"matching join/{part}"), typed=True, arithmetic=2 * part, depth=2 + part)
    publications = [maker.publication() for _ in range(40)]
    draw = random.Random(f"matching join ranges/{part}")
    texts = [maker.filter() for _ in range(70)] + ranges(draw, 30)
    assert len(naive(publications, texts)) > len(texts), "the comparison is about more than misses"
    require_all(spark, publications, texts)


def test_ranges_of_numbers_have_codes(spark: SparkSession) -> None:
    draw = random.Random("matching join/codes")
    publications, texts = points(draw, 80), ranges(draw, 150)
    assert len(naive(publications, texts)) > 500
    require_all(spark, publications, texts, partitions=2)


def test_numbers_at_the_edges(spark: SparkSession) -> None:
    large = 2**53
    publications: list[dict[str, Any]] = [
        {"i": value, "x": number}
        for value in (large - 1, large, large + 1, 2**63 - 1, -(2**63), -large - 1, 0)
        for number in (math.nan, math.inf, -math.inf, 0.0, -0.0, float(large), 5e-324)
    ]
    publications += [{}, {"i": large + 1}, {"x": math.nan}]
    bounds = (large - 1, large, large + 1, 2**63 - 1, -large, 0)
    texts = [f"i {operator} {bound}" for operator in ("=", "<", ">=", "<>") for bound in bounds]
    texts += [
        f"x {operator} {bound}" for operator in ("=", "<", ">=") for bound in ("0", "1e308", str(large))
    ]
    texts += [
        "i = x",
        "x <> x",
        "x = x",
        "i IS NULL",
        "x IS NOT NULL AND i > 0",
        f"i BETWEEN {large} AND {large + 1}",
    ]
    require_all(spark, publications, texts)


def test_spark_itself_agrees(spark: SparkSession) -> None:
    maker = Maker(random.Random("matching join/spark"), typed=True)
    publications = [maker.publication() for _ in range(30)]
    texts = [maker.filter() for _ in range(20)]
    table = publications_of(spark, publications)
    found = answer(match_join(table, filters_of(spark, texts), how="pairs"))
    for place, text in enumerate(texts):
        theirs = sorted(row.id for row in table.where(to_spark(Filter(text), table.schema)).collect())
        assert [row for row, key in found if key == f"f{place}"] == theirs, text


def test_partitions_and_slices_do_not_show(spark: SparkSession) -> None:
    draw = random.Random("matching join/partitions")
    publications, texts = points(draw, 60), ranges(draw, 90)
    table, filters = publications_of(spark, publications), filters_of(spark, texts)
    answers = [
        answer(
            match_join(
                table.repartition(rows),
                filters.repartition(parts),
                how="pairs",
                strategy=strategy,  # type: ignore[arg-type]
                settings=settings,
            )
        )
        for rows, parts, strategy, settings in (
            (1, 1, "auto", None),
            (5, 4, "index", TINY),
            (2, 3, "auto", JoinSettings(filters_bytes_max=20_000)),
            (3, 1, "split", JoinSettings(filters_bytes_max=3_000)),
        )
    ]  # fmt: skip
    assert all(each == answers[0] for each in answers)
    assert answers[0]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("how", ["counts", "destinations", "pairs"])
def test_empty_tables(spark: SparkSession, strategy: Any, how: Any) -> None:
    asked = {"how": how, "strategy": strategy, "destination_column": "destination"}
    some, none = publications_of(spark, [{"i": 1}]), publications_of(spark, [])
    filters, no_filters = filters_of(spark, ["i = 1"]), filters_of(spark, [])
    assert answer(match_join(none, filters, **asked)) == []
    assert answer(match_join(none, no_filters, **asked)) == []
    nothing = {"counts": [(0, 0)], "destinations": [(0, [])], "pairs": []}
    assert answer(match_join(some, no_filters, **asked)) == nothing[how]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rows_that_share_a_key_count_for_themselves(spark: SparkSession, strategy: Any) -> None:
    publications = spark.createDataFrame([("a", 1), ("a", 5), ("a", 9)], "id STRING, i INT")
    filters = spark.createDataFrame([(7, "i > 3"), (7, "i > 3"), (7, "i > 8")], "id INT, filter STRING")
    joined = match_join(publications, filters, strategy=strategy)
    assert answer(joined) == [("a", 0), ("a", 2), ("a", 3)]
    pairs = match_join(publications, filters, how="pairs", strategy=strategy)
    assert answer(pairs) == [("a", 7)] * 5


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_destinations_may_be_integers_and_missing(spark: SparkSession, strategy: Any) -> None:
    publications = spark.createDataFrame([(1, 5), (2, 50)], "id INT, i INT")
    rows = [(1, "i > 3", 20), (2, "i > 4", 3), (3, "i > 4", None), (4, "i > 40", None)]
    filters = spark.createDataFrame(rows, "id INT, filter STRING, broker INT")
    asked = {"how": "destinations", "strategy": strategy, "destination_column": "broker"}
    assert answer(match_join(publications, filters, **asked)) == [(1, [3, 20]), (2, [3, 20])]


def test_very_many_destinations(spark: SparkSession) -> None:
    rows = [(place, f"i >= {place}", f"{place:05d}") for place in range(5_000)]
    filters = spark.createDataFrame(rows, "id INT, filter STRING, broker STRING")
    publications = spark.createDataFrame([(1, 4), (2, 4_500), (3, -1)], "id INT, i INT")
    joined = match_join(publications, filters, how="destinations", destination_column="broker")
    assert answer(joined) == [
        (1, [f"{place:05d}" for place in range(5)]),
        (2, [f"{place:05d}" for place in range(4_501)]),
        (3, []),
    ]


def test_where_attributes_are(spark: SparkSession) -> None:
    publications = spark.sql(
        "SELECT 'p' AS name, 3 AS a, named_struct('a', 30, 'n', named_struct('b', 'x')) AS fields, "
        "CAST(1.5 AS DECIMAL(5, 2)) AS m, NULL AS nothing, DATE'2024-01-01' AS day"
    )
    filters = spark.createDataFrame(
        [
            (1, "a = 3"),
            (2, "a = 30"),
            (3, "n.b = 'x'"),
            (4, "fields.n.b = 'x'"),
            (5, "m = 1.5"),
            (6, "nothing IS NULL"),
        ],
        "number INT, condition STRING",
    )
    keys = {
        "key_column": "number",
        "publication_key_column": "name",
        "filter_column": "condition",
        "how": "pairs",
    }
    inside = answer(match_join(publications, filters, attributes="fields", **keys))  # type: ignore[arg-type]
    assert inside == [("p", 2), ("p", 3), ("p", 6)]
    listed = match_join(publications, filters, attributes=["a", "fields", "m", "nothing"], **keys)  # type: ignore[arg-type]
    assert answer(listed) == [("p", 1), ("p", 4), ("p", 5), ("p", 6)]


def test_what_cannot_be_joined_is_named(spark: SparkSession) -> None:
    publications = spark.sql("SELECT 1 AS id, 2 AS a, DATE'2024-01-01' AS day, array(1) AS list")
    filters = spark.createDataFrame([(1, "a = 2", 1.5)], "id INT, filter STRING, weight DOUBLE")

    def refused(match: str, **asked: Any) -> None:
        with pytest.raises(ConfigurationError, match=match):
            match_join(publications, filters, **asked)

    refused(
        "'day' has the type date, which filters cannot compare: use CAST\\(day AS STRING\\), or leave it out"
    )
    refused("'list' has the type array<int>.*such as list\\[0\\]", attributes=["list"])
    refused("publications has no column 'b'; its columns are id, a, day, list", attributes=["b"])
    refused(
        "filters has no column 'rule'; its columns are id, filter, weight",
        filter_column="rule",
        attributes=["a"],
    )
    refused("publications has no column 'key'", publication_key_column="key")
    refused("must name a struct column, but its type is int", attributes="a")
    refused("has the type int; filters are SQL text", filter_column="id", attributes=["a"])
    refused("needs destination_column", how="destinations", attributes=["a"])
    refused("'weight' has the type double", how="destinations", destination_column="weight", attributes=["a"])
    refused("how='all' is not known; choose one of counts, destinations, pairs", how="all")
    refused("strategy='fast' is not known", strategy="fast")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_filters_that_cannot_be_read(spark: SparkSession, strategy: Any) -> None:
    publications = spark.createDataFrame([(1, 5)], "id INT, i INT")
    rows = [(10, "i > 3"), (11, "i >"), (12, None), (13, "i < 9")]
    filters = spark.createDataFrame(rows, "id INT, filter STRING")
    with pytest.raises(FilterError, match="the filter with id 11: line 1, column 4: found end of filter"):
        match_join(publications, filters, strategy=strategy)
    told: list[str] = []
    joined = match_join(publications, filters, strategy=strategy, on_error="skip", report=told.append)
    assert answer(joined) == [(1, 2)]
    assert [message.split(":")[0] for message in told] == ["the filter with id 11", "the filter with id 12"]

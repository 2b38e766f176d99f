"""Does a filter mean the same here and in Spark SQL?

Thousands of random filters run as columns of a few Spark queries, each over its own batch of
publications in a typed table; every outcome, TRUE, FALSE and NULL, is compared.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from braid.errors import FilterError
from braid.language import Filter, to_spark, to_spark_sql
from braid.language.evaluate import evaluate
from tests.language.strategies import Maker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

SCHEMA = """
    i BIGINT, j BIGINT, x DOUBLE, y DOUBLE, `odd ``name` DOUBLE, s STRING, t STRING, p BOOLEAN, q BOOLEAN,
    d STRUCT<e: BIGINT, f: STRUCT<g: STRING>>
"""
FILTERS_PER_QUERY = 250
PUBLICATIONS_PER_BATCH = 40


def table_of(spark: SparkSession, publications: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Publications as rows, numbered by `row`; dotted attributes as nested columns."""
    flat = ("i", "j", "x", "y", "odd `name", "s", "t", "p", "q")
    rows = [
        (number, *map(attributes.get, flat), (attributes.get("d.e"), (attributes.get("d.f.g"),)))
        for number, attributes in enumerate(publications)
    ]
    return spark.createDataFrame(rows, "row INT, " + SCHEMA)


def spark_outcomes(table: DataFrame, expressions: Sequence[str]) -> dict[int, list[bool | None]]:
    """Per row, what Spark makes of every expression."""
    row = table.selectExpr("row", f"array({', '.join(expressions)}) AS outcomes").collect()
    return {each["row"]: each["outcomes"] for each in row}


def disagreements(
    table: DataFrame,
    filters: Sequence[Filter],
    expressions: Sequence[str],
    publications: Sequence[Mapping[str, Any]],
) -> list[str]:
    found = []
    for row, outcomes in spark_outcomes(table, expressions).items():
        attributes = publications[row]
        for each, expression, theirs in zip(filters, expressions, outcomes, strict=True):
            ours = evaluate(each.condition, attributes)
            if ours is not theirs or each.matches(attributes) is not (theirs is True):
                found.append(
                    f"{each.text}\n  as {expression}\n  of {attributes}\n  ours {ours}, Spark {theirs}"
                )
    return found


def report(found: list[str]) -> str:
    return f"{len(found)} disagreements, the shortest:\n" + "\n".join(sorted(found, key=len)[:5])


@pytest.mark.parametrize("part", range(5))
def test_thousands_of_filters_select_the_same_rows_as_spark(spark: SparkSession, part: int) -> None:
    maker = Maker(random.Random(f"agreement/{part}"), typed=True, arithmetic=2 * part, depth=2 + part % 3)
    matched = 0
    for _ in range(5):
        filters = [Filter(maker.filter()) for _ in range(FILTERS_PER_QUERY)]
        publications = [maker.publication() for _ in range(PUBLICATIONS_PER_BATCH)]
        table = table_of(spark, publications)
        expressions = [to_spark_sql(each, table.schema) for each in filters]
        found = disagreements(table, filters, expressions, publications)
        assert not found, report(found)
        matched += sum(each.matches(attributes) for each in filters for attributes in publications)
    assert matched > FILTERS_PER_QUERY * PUBLICATIONS_PER_BATCH, "the comparison is about more than misses"


def test_the_text_itself_means_the_same_in_spark_on_common_ground(spark: SparkSession) -> None:
    maker = Maker(random.Random("common ground"), typed=True, wild=False, common_ground=True)
    publications = [maker.publication() for _ in range(PUBLICATIONS_PER_BATCH)]
    table = table_of(spark, publications).cache()
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    for _ in range(4):
        filters = [Filter(maker.filter()) for _ in range(FILTERS_PER_QUERY)]
        found = disagreements(table, filters, [each.text for each in filters], publications)
        assert not found, report(found)
    table.unpersist()


def test_where_takes_the_text_the_column_and_the_canonical_text(spark: SparkSession) -> None:
    maker = Maker(random.Random("where"), typed=True, wild=False, common_ground=True)
    publications = [maker.publication() for _ in range(PUBLICATIONS_PER_BATCH)]
    table = table_of(spark, publications).cache()
    for _ in range(10):
        each = Filter(maker.filter())
        expected = [row for row, attributes in enumerate(publications) if each.matches(attributes)]
        for condition in (each.text, to_spark(each, table.schema), to_spark(Filter(str(each)), table)):
            selected = table.where(condition).select("row").collect()
            assert sorted(row["row"] for row in selected) == expected, (each.text, condition)
    table.unpersist()


NAN, INFINITY = float("nan"), float("inf")
INT_MAX, INT_MIN = 2**63 - 1, -(2**63)

# What the language promises at its corners, worked out by hand: filter, publication, outcome.
CORNERS: list[tuple[str, dict[str, Any], bool | None]] = [
    # Text: escapes in literals.
    (r"s = 'it''s'", {"s": "it's"}, True),
    (r"s = 'it\'s'", {"s": "it's"}, True),
    (r"s = '\"'", {"s": '"'}, True),
    (r"s = 'a\\b'", {"s": "a\\b"}, True),
    (r"s = '\t\n\r\b\0\Z'", {"s": "\t\n\r\b\0\x1a"}, True),
    (r"s = '\u00e9\U0001F600'", {"s": "é😀"}, True),
    (r"s = '\ud83d\ude00'", {"s": "😀"}, True),
    (r"s = '\101\060'", {"s": "A0"}, True),
    (r"s = '\q\777'", {"s": "q777"}, True),
    (r"s = '\%\_'", {"s": "\\%\\_"}, True),
    ("s = 'two\nlines'", {"s": "two\nlines"}, True),
    ("s = ''", {"s": ""}, True),
    ("s > '\uffff'", {"s": "😀"}, True),  # by code point, not by UTF-16 unit
    ("s < 'a'", {"s": "Z"}, True),
    # LIKE.
    ("s LIKE 'a%'", {"s": "a"}, True),
    ("s LIKE '_'", {"s": "😀"}, True),
    ("s LIKE '_'", {"s": ""}, False),
    ("s LIKE '%b'", {"s": "a\nb"}, True),
    (r"s LIKE '100\%'", {"s": "100%"}, True),
    (r"s LIKE '100\\%'", {"s": "100%"}, True),
    (r"s LIKE '100\\%'", {"s": "100 percent"}, False),
    (r"s LIKE 'a\\\\b'", {"s": "a\\b"}, True),
    ("s LIKE '100!%%' ESCAPE '!'", {"s": "100% of it"}, True),
    ("s LIKE 'a!!' ESCAPE '!'", {"s": "a!"}, True),
    (r"s LIKE 'a\\b' ESCAPE '!'", {"s": "a\\b"}, True),
    ("s LIKE '[a-z]'", {"s": "b"}, False),
    ("s LIKE '.'", {"s": "b"}, False),
    ("s NOT LIKE 'a%'", {}, None),
    ("s LIKE ''", {"s": ""}, True),
    # NaN, infinities and the two zeros.
    ("x = y", {"x": NAN, "y": NAN}, True),
    ("x > 1.7976931348623157e308", {"x": NAN}, True),
    ("x > y", {"x": NAN, "y": INFINITY}, True),
    ("x <> x", {"x": NAN}, False),
    ("x < -1.7976931348623157e308", {"x": -INFINITY}, True),
    ("x NOT BETWEEN 0 AND 1", {"x": NAN}, True),
    ("x IN (1, 2)", {"x": NAN}, False),
    ("x = 0", {"x": -0.0}, True),
    ("x < 0", {"x": -0.0}, False),
    ("x IN (0.0, 1.0)", {"x": -0.0}, True),
    ("x = -0.0", {"x": 0.0}, True),
    ("x = 0.1 + 0.2", {"x": 0.30000000000000004}, True),
    ("x > 4.9e-324", {"x": 5e-324}, False),
    # Integers beyond 2^53: exact among themselves, doubles with doubles.
    ("i = 9007199254740993", {"i": 2**53}, False),
    ("i = 9007199254740993", {"i": 2**53 + 1}, True),
    ("x = 9007199254740993", {"x": float(2**53)}, True),
    ("i = 9007199254740992.0", {"i": 2**53 + 1}, True),
    ("i = x", {"i": 2**53 + 1, "x": float(2**53)}, True),
    ("i < j", {"i": 2**53, "j": 2**53 + 1}, True),
    ("i = 9223372036854775807", {"i": INT_MAX}, True),
    ("i = -9223372036854775808", {"i": INT_MIN}, True),
    ("i >= 9.223372036854775807e18", {"i": INT_MAX}, True),
    ("x > 9223372036854775807", {"x": 2.0**63}, False),
    # Arithmetic.
    ("i % 3 = -1", {"i": -7}, True),
    ("i % -3 = 1", {"i": 7}, True),
    ("x % 3 = -1.5", {"x": -7.5}, True),
    ("i % 0 = 0", {"i": 7}, None),
    ("x % 0 IS NULL", {"x": 7.0}, True),
    ("i / 2 = 3.5", {"i": 7}, True),
    ("i / 0 IS NULL", {"i": 7}, True),
    ("x / y IS NULL", {"x": 1.0, "y": -0.0}, True),
    ("NOT i / 0 = 1", {"i": 7}, None),
    ("i + 1 IS NULL", {"i": INT_MAX}, True),
    ("i + 1.0 > 0", {"i": INT_MAX}, True),
    ("i - 1 > 0", {"i": INT_MIN}, None),
    ("i * 2 IS NOT NULL", {"i": 2**62}, False),
    ("-i IS NULL", {"i": INT_MIN}, True),
    ("-i = 5", {"i": -5}, True),
    ("i % -1 = 0", {"i": INT_MIN}, True),
    ("x * 10 > 1e308", {"x": 1e308}, True),
    ("x - y IS NULL", {"x": INFINITY, "y": INFINITY}, False),
    ("x % 2 > 5", {"x": INFINITY}, True),  # NaN, which is above everything
    ("x % y = 1.5", {"x": 1.5, "y": INFINITY}, True),
    ("2 + 3 * 4 - 6 / 3 = i", {"i": 12}, True),
    ("i - 1 - 1 = 0", {"i": 2}, True),
    ("+i = 5", {"i": 5}, True),
    # Overflow follows the order that was written, also where Spark's optimiser would sort a chain.
    ("-4 + i + j > 0", {"i": 4, "j": INT_MAX}, True),
    ("i * 6 * j = 0", {"i": 2**62, "j": 0}, None),
    ("i + (j + -4) > 0", {"i": 4, "j": INT_MAX}, True),
    # Three-valued logic.
    ("i = 1 OR s = 'a'", {"s": "a"}, True),
    ("i = 1 AND s = 'b'", {"s": "a"}, False),
    ("i = 1 AND s = 'a'", {"s": "a"}, None),
    ("NOT (i = 1)", {}, None),
    ("i = NULL", {"i": 1}, None),
    ("i IN (1, NULL)", {"i": 1}, True),
    ("i IN (2, NULL)", {"i": 1}, None),
    ("i NOT IN (2, NULL)", {"i": 1}, None),
    ("i NOT BETWEEN 5 AND NULL", {"i": 1}, True),
    ("i BETWEEN 5 AND 1", {"i": 3}, False),
    ("p", {"p": True}, True),
    ("NOT p", {"p": False}, True),
    ("NOT p", {}, None),
    ("p > q", {"p": True, "q": False}, True),
    # Different kinds, and attributes that no column holds.
    ("i = '1'", {"i": 1}, None),
    ("s = 1", {"s": "1"}, None),
    ("p = 1", {"p": True}, None),
    ("s + 1 = 2", {"s": "1"}, None),
    ("i LIKE '1'", {"i": 1}, None),
    ("i IN ('1', 1)", {"i": 1}, True),
    ("i NOT IN ('1', 2)", {"i": 1}, None),
    ("gone IS NULL", {}, True),
    ("d.f.g = 'deep' AND d.e = 1", {"d.f.g": "deep", "d.e": 1}, True),
    ("`odd ``name` > 1", {"odd `name": 2.0}, True),
    ("I = 1", {"i": 1}, None),
]


@pytest.mark.parametrize(("text", "attributes", "outcome"), CORNERS)
def test_a_corner_is_what_the_language_promises(
    text: str, attributes: dict[str, Any], outcome: object
) -> None:
    each = Filter(text)
    assert evaluate(each.condition, attributes) is outcome
    assert each.matches(attributes) is (outcome is True)
    assert Filter(str(each)).matches(attributes) is (outcome is True)


def test_spark_agrees_on_every_corner(spark: SparkSession) -> None:
    filters = [Filter(text) for text, _, _ in CORNERS]
    publications = [attributes for _, attributes, _ in CORNERS]
    table = table_of(spark, publications)
    expressions = [to_spark_sql(each, table.schema) for each in filters]
    found = disagreements(table, filters, expressions, publications)
    assert not found, report(found)


def test_without_a_schema_names_are_taken_as_they_stand(spark: SparkSession) -> None:
    table = spark.createDataFrame([(1, "a"), (2, "b"), (None, "c")], "i BIGINT, s STRING")
    assert [row["s"] for row in table.where(to_spark(Filter("i + 1 > 2 OR s LIKE 'a%'"))).collect()] == [
        "a",
        "b",
    ]


def test_narrow_and_decimal_columns_count_as_numbers(spark: SparkSession) -> None:
    table = spark.sql(
        "SELECT CAST(100 AS TINYINT) AS t, CAST(0.1 AS FLOAT) AS f, CAST(1.5 AS DECIMAL(5, 2)) AS n, "
        "CAST('ab' AS VARCHAR(5)) AS v"
    )
    attributes = {"t": 100, "f": 0.10000000149011612, "n": 1.5, "v": "ab"}
    texts = ["t + 100 = 200", "f = 0.1", "f > 0.1", "n * 2 = 3", "v LIKE 'a_'", "t = '100'", "n <> 'x'"]
    for text in texts:
        each = Filter(text)
        assert bool(table.where(to_spark(each, table.schema)).count()) is each.matches(attributes), text


def test_a_column_that_cannot_be_compared_is_named(spark: SparkSession) -> None:
    table = spark.sql("SELECT array(1) AS numbers, 1 AS i")
    assert table.where(to_spark(Filter("i = 1"), table)).count() == 1
    with pytest.raises(FilterError, match="'numbers' has the type array<int>"):
        to_spark(Filter("numbers = 1"), table)

"""Does a filter mean the same here and in Spark SQL?

Thousands of random filters run as columns of a few Spark queries, each over its own batch of
publications in a typed table; every outcome, TRUE, FALSE and NULL, is compared.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from braid.language import Filter, to_spark_sql
from braid.language.evaluate import evaluate
from braid.language.text import name_text
from tests.language.strategies import Maker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

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
                found.append(f"{each.text}\n  as {expression}\n  of {attributes}\n  ours {ours}, Spark {theirs}")
    return found


def report(found: list[str]) -> str:
    return f"{len(found)} disagreements, the shortest:\n" + "\n".join(sorted(found, key=len)[:5])


@pytest.mark.parametrize("part", range(4))
def test_five_thousand_filters_select_the_same_rows_as_spark(spark: SparkSession, part: int) -> None:
    maker = Maker(random.Random(f"agreement/{part}"), typed=True)
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

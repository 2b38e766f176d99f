"""Filters as functions of Spark SQL.

    SELECT * FROM quotes WHERE braid_matches('price > 10', struct(*))
    SELECT q.id, m.filter FROM quotes q, LATERAL braid_matching(struct(q.*), array('price > 10')) m

`braid_matches` says whether a row satisfies a filter; `braid_matching` lists those of an array that it does.
They mean what a broker means. For many filters and many rows, `match_join` is much quicker.
"""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # Spark reads the annotations
from pyspark.sql import functions as F

from braid.errors import FilterError
from braid.language import Filter, Range
from braid.matching import FilterIndex
from braid.pipeline.source.errors import SourceError, as_sentences

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

__all__ = ["register_functions"]

MATCHES = "braid_matches"
MATCHING = "braid_matching"
# Different filters, or lists of them, that one worker keeps ready.
READY_MAX = 256


def register_functions(spark: SparkSession) -> None:
    """Make both known to a session, for SQL."""
    functions: Any = F  # PySpark's annotations do not know of Arrow functions yet
    spark.udf.register(MATCHES, functions.arrow_udf(_matches, "boolean"))
    spark.udtf.register(MATCHING, functions.udtf(_Matching, returnType="position int, filter string"))


def _matches(filters: pa.Array, rows: pa.Array) -> pa.Array:
    """Whether each row satisfies the filter beside it; NULL where there is no filter."""
    with as_sentences():
        attributes = [_attributes(row) for row in rows.to_pylist()]
        texts = filters.to_pylist()
        places: dict[str, list[int]] = {}
        for place, text in enumerate(texts):
            if text is not None:
                places.setdefault(text, []).append(place)
        found: list[bool | None] = [None] * len(texts)
        for text, own in places.items():
            counts = _index((text,)).count_batch([attributes[place] for place in own]).tolist()
            for place, count in zip(own, counts, strict=True):
                found[place] = count > 0
        return pa.array(found, pa.bool_())


class _Matching:
    """Lists the filters that a row satisfies, with their places in the array."""

    def eval(self, row: Any, filters: Sequence[str | None]) -> Iterator[tuple[int, str]]:
        """One row of the table."""
        with as_sentences():
            texts = tuple(text for text in filters if text is not None)
            attributes = _attributes(row.asDict(recursive=True) if row is not None else {})
            for place in sorted(_index(texts).match(attributes)):
                yield place, texts[place]


@lru_cache(maxsize=READY_MAX)
def _index(texts: tuple[str, ...]) -> FilterIndex[int]:
    try:
        return FilterIndex((place, Filter(text)) for place, text in enumerate(texts))
    except FilterError as error:
        raise SourceError(f"not a filter: {error}") from None


def _attributes(row: Mapping[str, Any] | None, before: str = "") -> dict[str, Any]:
    """The fields of a row that have a value; those of nested structs have dotted names."""
    found: dict[str, Any] = {}
    for name, value in (row or {}).items():
        if isinstance(value, dict):
            if set(value) == {"low", "high"}:
                if value["low"] is not None and value["high"] is not None:
                    found[before + name] = Range(value["low"], value["high"])
            else:
                found.update(_attributes(value, f"{before}{name}."))
        elif isinstance(value, Decimal):
            found[before + name] = float(value)
        elif isinstance(value, (bool, int, float, str)):
            found[before + name] = value
        elif value is not None:
            raise SourceError(
                f"the field {before + name!r} is a {type(value).__name__}, which filters cannot compare; "
                "cast it, or leave it out of the struct"
            )
    return found

"""Options, offsets, schemas, records and predicates of the Spark source, without a session."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

import braid
from braid.client import StoredRecords
from braid.pipeline.source.decoding import Decoding
from braid.pipeline.source.errors import SourceError
from braid.pipeline.source.offsets import LogRange, cut, limited, place, require_same
from braid.pipeline.source.options import SinkOptions, SourceOptions
from braid.pipeline.source.pushdown import Pushed
from braid.pipeline.source.schema import METADATA, RANGE, checked_schema, inferred_schema
from braid.protocol.batch import encode_record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import Filter

GOOD = {"brokers": "braid://127.0.0.1:7000", "log": "orders"}


def status(**changes: Any) -> braid.DurableStatus:
    known: dict[str, Any] = {
        "name": "orders",
        "key": "a/orders",
        "id": "A.1",
        "filter": "TRUE",
        "when_full": "block",
        "first": 0,
        "safe": 100,
        "next": 100,
        "acknowledged": -1,
        "bytes": 0,
        "read": False,
        "epochs": (("e1", 0), ("e2", 50)),
    }
    return braid.DurableStatus(**{**known, **changes})


# Options.


def test_options_have_defaults_and_any_case() -> None:
    found = SourceOptions.of({"BROKERS": "braid://h:1", "Log": "orders", "maxrowspertrigger": "7"})
    assert (found.rows_per_partition, found.fail_on_data_loss, found.when_full) == (100_000, True, "block")
    assert (found.max_rows_per_trigger, found.starting, found.ending) == (7, "earliest", "latest")
    assert found.places() == [("braid://h:1", "orders")]
    two = SourceOptions.of({**GOOD, "brokers": "braid://h:1, braid://h:2", "shards": "3"})
    assert two.places() == [
        ("braid://h:1", "orders.0"),
        ("braid://h:2", "orders.1"),
        ("braid://h:1", "orders.2"),
    ]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"log": "orders"}, "'brokers' is missing"),
        ({"brokers": "braid://h:1"}, "'log' is missing"),
        ({**GOOD, "maxRowPerTrigger": "7"}, "did you mean 'maxRowsPerTrigger'"),
        (
            {**GOOD, "rowsPerPartition": "many"},
            "'rowsPerPartition' is a whole number of at least 1, not 'many'",
        ),
        ({**GOOD, "rowsPerPartition": "0"}, "at least 1"),
        ({**GOOD, "failOnDataLoss": "perhaps"}, "is 'true' or 'false'"),
        ({**GOOD, "filter": "price >"}, "'filter' is not a filter: line 1"),
        ({**GOOD, "startingOffset": "yesterday"}, "'startingOffset' is 'earliest', 'latest', an offset"),
        ({**GOOD, "startingOffset": '{"other": 3}'}, "names the logs other, and this query reads orders"),
        ({**GOOD, "whenFull": "explode"}, "'whenFull' is"),
        ({**GOOD, "brokers": "braid://h:1,braid://h:2"}, "a log lives at one broker"),
        ({**GOOD, "tokenFile": "/a", "tokenEnv": "B"}, "one of the options 'tokenFile' and 'tokenEnv'"),
        ({**GOOD, "keyFile": "/a"}, "'keyFile' needs 'certificateFile'"),
        ({**GOOD, "connectTimeout": "-1"}, "'connectTimeout' is a number above 0"),
    ],
)
def test_a_wrong_option_is_named_in_one_sentence(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(SourceError, match=complaint.replace("(", r"\(")):
        SourceOptions.of(options)


def test_a_literal_token_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    SourceOptions.of({**GOOD, "token": "braid_x"})
    assert "use 'tokenFile' or 'tokenEnv'" in caplog.text
    caplog.clear()
    SinkOptions.of({"brokers": "braid://h:1", "tokenEnv": "TOKEN"})
    assert caplog.text == ""


# Offsets.


def test_a_place_in_a_log_is_told_from_that_in_another() -> None:
    at = place(status(), 70)
    assert at == {"id": "A.1", "next": 70, "epoch": "e2"}
    assert require_same("orders", status(), at, fail_on_data_loss=True) == 70
    with pytest.raises(SourceError, match="dropped and made anew"):
        require_same("orders", status(id="A.2"), at, fail_on_data_loss=True)
    with pytest.raises(SourceError, match="restored from a backup"):
        require_same("orders", status(safe=60, next=60), at, fail_on_data_loss=True)
    with pytest.raises(SourceError, match="restored from a backup"):
        require_same("orders", status(epochs=(("e1", 0), ("e3", 40))), at, fail_on_data_loss=True)
    with pytest.raises(SourceError, match="rows 70 to 79 of the log 'orders' are not kept any more"):
        require_same("orders", status(first=80), at, fail_on_data_loss=True)
    assert require_same("orders", status(first=80), at, fail_on_data_loss=False) == 80


@given(
    st.dictionaries(st.sampled_from("abc"), st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1),
    st.none() | st.integers(0, 120),
)
def test_a_limit_is_kept_and_used_up(logs: dict[str, tuple[int, int]], rows_max: int | None) -> None:
    starts = {name: start for name, (start, _) in logs.items()}
    ends = {name: start + more for name, (start, more) in logs.items()}
    found = limited(starts, ends, rows_max)
    assert all(starts[name] <= found[name] <= ends[name] for name in logs)
    total = sum(more for _, more in logs.values())
    assert sum(found[name] - starts[name] for name in logs) == (
        total if rows_max is None else min(total, rows_max)
    )


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 500)), max_size=4),
    st.integers(1, 200),
    st.integers(1, 20),
)
def test_pieces_are_the_ranges_without_gap_or_overlap(
    ranges: list[tuple[int, int]], rows: int, partitions_max: int
) -> None:
    whole = [
        LogRange("b", f"log {n}", "i", "e", first, first + size - 1) for n, (first, size) in enumerate(ranges)
    ]
    pieces = cut(whole, rows, partitions_max)
    for each in whole:
        own = [piece for piece in pieces if piece.name == each.name]
        assert [offset for piece in own for offset in range(piece.first, piece.last + 1)] == list(
            range(each.first, each.last + 1)
        )
        assert [piece.epoch for piece in own] == ["e"] + [""] * (len(own) - 1)
    assert len(pieces) <= partitions_max + len(whole)


# Schemas and records.


def records(*rows: dict[str, Any], body: bytes = b"", kind: str = "") -> StoredRecords:
    encoded = [
        ("p#7", number, encode_record(row, 1_000_000 + number, body, kind)) for number, row in enumerate(rows)
    ]
    return StoredRecords.of([*enumerate(encoded, 10)], "e1")


def test_columns_are_inferred_by_what_most_values_are() -> None:
    sample = records(
        {"a": 1, "b": 1, "c": "x", "d": True, "r": braid.Range(1, 2)},
        {"a": 2, "b": 2.5, "c": "y", "r": 3},
        {"c": 7, "a.b": 1},
    )
    found = inferred_schema("log", [record for _, _, record in sample.rows])
    assert {field.name: field.dataType.simpleString() for field in found if field.name not in METADATA} == {
        "a": "bigint",
        "a.b": "bigint",
        "b": "double",
        "c": "string",
        "d": "boolean",
        "r": "struct<low:double,high:double>",
    }
    assert [field.name for field in found][-len(METADATA) :] == list(METADATA)
    with pytest.raises(SourceError, match="no rows to infer columns from"):
        inferred_schema("log", [])


def test_a_schema_that_publications_cannot_fill_is_refused() -> None:
    assert checked_schema(T.StructType([T.StructField("x", RANGE)]))
    with pytest.raises(SourceError, match="'x' cannot be a decimal"):
        checked_schema(T.StructType([T.StructField("x", T.DecimalType(10, 2))]))
    with pytest.raises(SourceError, match="'_offset' is a bigint, not a string"):
        checked_schema(T.StructType([T.StructField("_offset", T.StringType())]))


def test_values_of_a_wrong_type_are_null_and_counted() -> None:
    schema = T.StructType(
        [
            T.StructField("n", T.LongType()),
            T.StructField("small", T.ByteType()),
            T.StructField("x", T.DoubleType()),
            T.StructField("s", T.StringType()),
            T.StructField("r", RANGE),
            *(T.StructField(name, kind) for name, kind in METADATA.items()),
        ]
    )
    decoding = Decoding(schema)
    rows = decoding.batch(
        "log",
        records(
            {"n": 1, "small": 127, "x": 2, "s": "a", "r": braid.Range(1, 2.5)},
            {"n": 1.5, "small": 128, "x": "two", "s": 3, "r": "wide"},
            {"n": True, "x": True, "r": 4},
            {},
            body=b"body",
            kind="text/plain",
        ),
    ).to_pylist()
    assert [row["n"] for row in rows] == [1, None, None, None]
    assert [row["small"] for row in rows] == [127, None, None, None]
    assert [row["x"] for row in rows] == [2.0, None, None, None]
    assert [row["s"] for row in rows] == ["a", None, None, None]
    assert [row["r"] for row in rows] == [
        {"low": 1.0, "high": 2.5},
        None,
        {"low": 4.0, "high": 4.0},
        None,
    ]
    assert [row["_mistyped"] for row in rows] == [0, 5, 2, 0]
    assert decoding.mistyped == 7
    assert [(row["_publisher"], row["_epoch"], row["_sequence"], row["_offset"]) for row in rows] == [
        ("p", "7", number, 10 + number) for number in range(4)
    ]
    assert rows[0]["_published_at"].timestamp() == 1.0
    assert {(row["_log"], row["_body"], row["_content_type"]) for row in rows} == {
        ("log", b"body", "text/plain")
    }


# Predicates.

COLUMNS = T.StructType(
    [
        T.StructField("n", T.LongType()),
        T.StructField("small", T.IntegerType()),
        T.StructField("x", T.DoubleType()),
        T.StructField("s", T.StringType()),
        T.StructField("b", T.BooleanType()),
        T.StructField("_offset", T.LongType()),
    ]
)
VALUES: list[Any] = [
    *(0, 1, -1, 7, 2**31 - 1, 2**31, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)),
    *(0.0, -0.0, 0.5, 1.0, 7.0, -1.5, 2.0**53, 1e300, math.inf, -math.inf, math.nan),
    *("", "a", "a%b", "a_b", "A", "ab!", "it's", "größe", "\U0001f600", "7", "true"),
    *(True, False, None),
    braid.Range(0, 8),
]
COMPARISONS = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    EqualNullSafe: "<=>",
}


def sql_of(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, float):
        special = {math.inf: "inf", -math.inf: "-inf"}
        text = "NaN" if math.isnan(value) else special.get(value, repr(value))
        return f"CAST('{text}' AS DOUBLE)"
    return f"CAST('{value}' AS BIGINT)"


def predicate(random_: random.Random) -> tuple[Filter, str]:
    """A predicate as Spark hands it to a source, and as SQL."""
    name = random_.choice(["n", "small", "x", "s", "b", "_offset"])
    kinds = {"s": str, "b": bool, "x": float}
    value = random_.choice([each for each in VALUES if type(each) is kinds.get(name, int)])
    kind = random_.choice([*COMPARISONS, In, IsNull, IsNotNull, Not, "pattern"])
    column = f"`{name}`"
    if kind is Not:
        inner, text = predicate(random_)
        return Not(inner), f"NOT ({text})"
    if kind is IsNull:
        return IsNull((name,)), f"{column} IS NULL"
    if kind is IsNotNull:
        return IsNotNull((name,)), f"{column} IS NOT NULL"
    if kind is In:
        some = [each for each in VALUES if type(each) is type(value)][: random_.randint(1, 4)]
        return In((name,), some), f"{column} IN ({', '.join(map(sql_of, some))})"
    if kind == "pattern":
        value = random_.choice([each for each in VALUES if isinstance(each, str)])
        pattern, function = random_.choice(
            [(StringStartsWith, "startswith"), (StringEndsWith, "endswith"), (StringContains, "contains")]
        )
        return pattern(("s",), value), f"{function}(`s`, {sql_of(value)})"
    comparison = kind(attribute=(name,), value=value)
    return comparison, f"{column} {COMPARISONS[kind]} {sql_of(value)}"


def test_what_is_pushed_means_exactly_what_spark_means(spark: SparkSession) -> None:
    """Spark judges every predicate on the columns; the broker's filter and the task's mask must agree."""
    random_ = random.Random(18)
    rows = []
    for _ in range(400):
        chosen = {name: random_.choice(VALUES) for name in ("n", "small", "x", "s", "b")}
        rows.append({name: value for name, value in chosen.items() if value is not None})
    stored = records(*rows)
    batch = Decoding(COLUMNS).batch("log", stored)
    predicates = [predicate(random_) for _ in range(400)]
    frame = spark.createDataFrame(pa.Table.from_batches([batch]))
    judged = frame.selectExpr("_offset", *(f"({text}) AS p{n}" for n, (_, text) in enumerate(predicates)))
    truth = {row["_offset"]: row for row in judged.collect()}
    accepted = 0
    for number, (each, text) in enumerate(predicates):
        pushed = Pushed()
        if pushed.accept([each], COLUMNS):
            continue
        accepted += 1
        wanted = {offset for offset, row in truth.items() if row[f"p{number}"]}
        wish = braid.Filter(pushed.filter())
        sent = {10 + place for place, row in enumerate(rows) if wish.matches(row)}
        assert wanted <= sent, text  # the broker loses nothing
        exact = {row["_offset"] for row in pushed.apply(batch).to_pylist()}
        assert exact == wanted, text
    assert accepted > 150


def test_what_has_another_meaning_stays_with_spark() -> None:
    stay: list[Filter] = [
        EqualNullSafe(("n",), 1),
        IsNull(("n",)),
        Not(IsNotNull(("n",))),
        EqualTo(("_offset",), 3),
        EqualTo(("missing",), 3),
        EqualTo(("n", "inner"), 3),
        EqualTo(("x",), 2.0**60),
        EqualTo(("x",), math.nan),
        In(("n",), [1, None]),
    ]
    pushed = Pushed()
    assert pushed.accept(stay, COLUMNS) == stay
    assert pushed.filter() == ""
    assert pushed.accept([EqualTo(("n",), 1), StringContains(("s",), "a%'")], COLUMNS) == []
    assert pushed.filter("x > 1") == "(x > 1) AND (`n` = 1) AND (`s` LIKE '%a!%''%' ESCAPE '!')"

"""Records read a column at a time mean what each of them means by itself."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

pytest.importorskip("pyspark")

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T

import braid
from braid.client import StoredRecords
from braid.pipeline.source import decoding as decoding_module
from braid.pipeline.source.columns import PADDING, read_columns
from braid.pipeline.source.decoding import Decoding
from braid.pipeline.source.schema import METADATA
from braid.protocol.batch import encode_record

SCHEMA = T.StructType(
    [
        T.StructField("n", T.LongType()),
        T.StructField("small", T.ShortType()),
        T.StructField("x", T.DoubleType()),
        T.StructField("f", T.FloatType()),
        T.StructField("s", T.StringType()),
        T.StructField("b", T.BooleanType()),
        *(T.StructField(name, kind) for name, kind in METADATA.items()),
    ]
)
# Every width of a number and of a length, from both sides.
WIDTHS = [0, 7, 8, 15, 16, 31, 32, 63]
NUMBERS = sorted({sign * (2**bits + shift) for bits in WIDTHS for shift in (-1, 0) for sign in (1, -1)})
INTEGERS = [number for number in NUMBERS if -(2**63) <= number < 2**63]
TEXTS = ["", "a", "ü" * 15, "b" * 31, "b" * 32, "c" * 255, "d" * 256, "e" * 65_536, "\U0001f600"]
FLOATS = [0.0, -0.0, 1.0, 0.1, -1e300, math.inf, -math.inf, math.nan, 1e-320]
USUAL: dict[str, list[Any]] = {
    "n": INTEGERS,
    "small": [0, 127, 128, -32_768, 32_767, 32_768, -40_000],
    "x": [*FLOATS, 3, 2**53 + 1],
    "f": [*FLOATS, 3, 16_777_217],
    "s": TEXTS,
    "b": [True, False],
    "other": [1, "text", True, 2.5, braid.Range(1, 2), braid.Range(0.5, 2**40), 2**40],
    "längerer Name als 31 Zeichen, mit Umlaut": [1],
}
ODD: list[Any] = [None, 2**63, 2**64 - 1, "7", 1.5, True, braid.Range(1, 2)]


def expected(attributes: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """What one publication is as a row, said without the code that is tested."""
    row: dict[str, Any] = {}
    wrong = 0
    for name in ("n", "small", "x", "f", "s", "b"):
        value = attributes.get(name)
        kinds: tuple[type, ...] = {"x": (int, float), "f": (int, float), "s": (str,), "b": (bool,)}.get(
            name, (int,)
        )
        bound = {"n": 2**63, "small": 2**15}.get(name)
        fits = type(value) in kinds and (bound is None or -bound <= value < bound)
        wrong += value is not None and not fits
        row[name] = None if not fits else value
        if row[name] is not None and name == "x":
            row[name] = float(value)
        elif row[name] is not None and name == "f":
            with np.errstate(over="ignore"):
                row[name] = float(np.float32(float(value)))
    return row, wrong


def publications(seed: int, shapes: int, rows: int, odd: float) -> list[dict[str, Any]]:
    random_ = random.Random(seed)
    known = []
    for _ in range(shapes):
        names = random_.sample([*USUAL], random_.randint(0, len(USUAL)))
        known.append(names)
    found = []
    for _ in range(rows):
        names = random_.choice(known)
        found.append(
            {
                name: random_.choice(ODD) if random_.random() < odd else random_.choice(USUAL[name])
                for name in names
            }
        )
    return found


def same(found: Any, wanted: Any) -> bool:
    if isinstance(found, float) and isinstance(wanted, float):
        return math.copysign(1, found) == math.copysign(1, wanted) and (
            found == wanted or (math.isnan(found) and math.isnan(wanted))
        )
    return type(found) is type(wanted) and bool(found == wanted)


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 2**32),
    shapes=st.integers(1, 12),
    rows=st.sampled_from([0, 1, 15, 16, 17, 120]),
    odd=st.sampled_from([0.0, 0.05, 0.5]),
    bodies=st.booleans(),
)
def test_columns_are_what_each_record_says(
    seed: int, shapes: int, rows: int, odd: float, bodies: bool
) -> None:
    chosen = publications(seed, shapes, rows, odd)
    encoded = []
    for number, attributes in enumerate(chosen):
        body, kind = (b"x" * (number * 7 % 300), "text/plain") if bodies and number % 3 else (b"", "")
        wire = {name: value for name, value in attributes.items() if value is not None or number % 2}
        chosen[number] = wire
        record = encode_record(wire, 2**40 + number, body, kind)
        encoded.append((5 + number, (f"p{number % 3}#e{number % 2}", 2**62 + number * 3, record)))
    if not encoded:
        return
    reader = Decoding(SCHEMA)
    found = reader.batch("log", StoredRecords.of(encoded, "e")).to_pylist()
    assert len(found) == rows
    mistyped = 0
    for number, (row, attributes) in enumerate(zip(found, chosen, strict=True)):
        wanted, wrong = expected(attributes)
        mistyped += wrong
        for name, value in wanted.items():
            assert same(row[name], value), (name, row[name], value)
        has_body = bodies and number % 3
        assert row["_mistyped"] == wrong
        assert (row["_publisher"], row["_epoch"]) == (f"p{number % 3}", f"e{number % 2}")
        assert (row["_offset"], row["_sequence"]) == (5 + number, 2**62 + number * 3)
        assert round(row["_published_at"].timestamp() * 1e6) == 2**40 + number
        assert row["_body"] == (b"x" * (number * 7 % 300) if has_body else b"")
        assert row["_content_type"] == ("text/plain" if has_body else "")
    assert reader.mistyped == mistyped


def test_usual_records_are_not_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the speed would be gone without anything being wrong."""
    rows = [(number, ("p", number, encode_record({"n": number, "s": "x"}, 1))) for number in range(100)]
    monkeypatch.setattr(
        decoding_module.Decoding, "_from_records", lambda *_: pytest.fail("a record was read by itself")
    )
    batch = Decoding(SCHEMA).batch("log", StoredRecords.of(rows, "e"))
    assert batch.column("n").to_pylist() == [*range(100)]


@pytest.mark.parametrize("seed", range(40))
def test_bytes_that_are_no_records_are_never_read_beyond_their_end(seed: int) -> None:
    """A broker that lies gets its records left out here, and refused where they are read one by one."""
    random_ = random.Random(seed)
    good = encode_record({"n": 70_000, "s": "text", "other": braid.Range(1, 2)}, 7)
    records = []
    for _ in range(40):
        record = bytearray(good)
        for _ in range(random_.randint(0, 2)):
            record[random_.randrange(len(record))] = random_.randrange(256)
        records.append(bytes(record[: random_.choice([len(record), random_.randint(1, len(record))])]))
    records[0] = good
    whole = b"".join(records)
    ends = np.cumsum([len(record) for record in records])
    starts = ends - [len(record) for record in records]
    columns = read_columns(
        np.frombuffer(whole + bytes(PADDING), np.uint8),
        np.arange(40),
        starts,
        ends,
        wanted={"n": int, "s": str},
        body=True,
    )
    kept = columns.rows.tolist()
    assert 0 in kept
    for place, row in enumerate(kept):
        assert columns.values["s"].ends[place] <= ends[row]
        decoded = msgspec.msgpack.Decoder(ext_hook=lambda code, data: bytes(data))
        try:
            attributes = decoded.decode(records[row])[0]
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # such as text that is no text, or something behind what was read
        assert attributes["n"] == columns.values["n"][place] or "n" in columns.valid

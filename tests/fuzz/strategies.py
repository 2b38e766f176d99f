"""What can cross a doorway? Hypothesis strategies for values, batches and every kind of message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from hypothesis import strategies as st

from braid.language import Range
from braid.protocol import Frame, PublicationBatch
from braid.protocol.batch import encode_record
from braid.protocol.copies import CopyHead
from braid.protocol.messages import (
    UNSEQUENCED,
    Ask,
    Message,
    StoredPublications,
)
from braid.protocol.organising import PathStep, RequestStep
from braid.protocol.packed_rows import PackedRows

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["KINDS", "attributes", "batches", "frames", "messages", "records", "values"]

KINDS: tuple[type[Any], ...] = get_args(Message)

INT64 = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), 2**63 - 1, 2**53 + 1, 0, -1])
# Any code point but surrogates, which UTF-8 cannot say.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
BOUNDS = INT64 | st.floats(allow_nan=False)


def _range(pair: tuple[int | float, int | float]) -> Range:
    low, high = pair
    return Range(low, high) if low <= high else Range(high, low)


def values() -> st.SearchStrategy[Any]:
    """Every kind of value that an attribute can have, NaN, infinities and the ends of 64 bits included."""
    return INT64 | st.floats() | TEXT | st.booleans() | st.tuples(BOUNDS, BOUNDS).map(_range)


def attributes() -> st.SearchStrategy[dict[str, Any]]:
    """The attributes of one publication."""
    return st.dictionaries(TEXT.filter(bool), values(), max_size=4)


def records() -> st.SearchStrategy[bytes]:
    """The bytes of one publication."""
    return st.builds(encode_record, attributes(), st.integers(0, 2**62), st.binary(max_size=20), TEXT)


@st.composite
def batches(draw: Callable[..., Any], *, rows_max: int = 5) -> PublicationBatch:
    """A batch as a publisher or a broker may send it."""
    rows = draw(st.lists(records(), min_size=1, max_size=rows_max))
    steps = draw(st.lists(st.integers(1, 2**28), min_size=len(rows) - 1, max_size=len(rows) - 1))
    sequences = [draw(st.integers(0, 2**62))]
    for step in steps:
        sequences.append(sequences[-1] + step)
    batch = PublicationBatch.of(
        draw(TEXT.filter(bool)),
        sequences,
        rows,
        acknowledged=draw(st.booleans()),
        ordered=draw(st.booleans()),
        receipt=draw(st.booleans()),
        again=draw(st.booleans()),
    )
    batch.hops, batch.target = draw(st.integers(0, 255)), draw(st.integers(0, 2**16 - 1))
    return batch


def _fields(kind: type[Any]) -> dict[str, st.SearchStrategy[Any]]:
    """A strategy for each field, by its annotation."""
    special: dict[type[Any], dict[str, st.SearchStrategy[Any]]] = {
        StoredPublications: {
            "rows": st.lists(st.tuples(TEXT, INT64, st.binary(max_size=20)), max_size=3),
        },
        Ask: {"arguments": st.dictionaries(TEXT, TEXT, max_size=3)},
    }
    plain: dict[str, st.SearchStrategy[Any]] = {
        "int": INT64,
        "str": TEXT,
        "bool": st.booleans(),
        "str | None": st.none() | TEXT,
    }
    costs = st.floats(allow_nan=False)
    path_step = st.builds(PathStep, TEXT, costs, costs, costs, st.binary(max_size=12))
    request_step = st.builds(RequestStep, TEXT, costs, costs, st.binary(max_size=12))
    plain["tuple[PathStep, ...]"] = st.lists(path_step, max_size=6).map(tuple)
    plain["tuple[RequestStep, ...]"] = st.lists(request_step, max_size=6).map(tuple)
    plain["tuple[float, ...]"] = st.lists(costs, max_size=6).map(tuple)
    plain["tuple[str, ...]"] = st.lists(TEXT, max_size=6).map(tuple)
    plain["list[str]"] = st.lists(TEXT, max_size=3)
    plain["list[str] | None"] = st.none() | st.lists(TEXT, max_size=3)
    plain["dict[str, str]"] = st.dictionaries(TEXT, TEXT, max_size=3)
    plain["list[int]"] = st.lists(INT64, max_size=4)
    plain["list[tuple[str, int]]"] = st.lists(st.tuples(TEXT, INT64), max_size=3)
    plain["bytes"] = st.binary(max_size=20)
    plain["list[tuple[str, str, str]]"] = st.lists(st.tuples(TEXT, TEXT, TEXT), max_size=3)
    ends = st.tuples(TEXT, TEXT, INT64, TEXT)
    plain["list[tuple[str, str, int, str]]"] = st.lists(ends, max_size=3)
    plain["list[tuple[str, int, int, int]]"] = st.lists(st.tuples(TEXT, INT64, INT64, INT64), max_size=3)
    plain["list[tuple[str, str]]"] = st.lists(st.tuples(TEXT, TEXT), max_size=3)
    plain["list[tuple[int, int]]"] = st.lists(st.tuples(INT64, INT64), max_size=3)
    triples = st.lists(st.tuples(TEXT, INT64, st.binary(max_size=20)), max_size=3)
    packed = triples.map(PackedRows.of)
    plain["list[tuple[str, int, bytes]]"] = triples
    plain["PackedRows"] = packed
    plain["PackedRows | None"] = st.none() | packed
    if kind is not CopyHead:
        plain["CopyHead"] = st.builds(CopyHead, **_fields(CopyHead))
    chosen = special.get(kind, {})
    return {
        name: chosen[name] if name in chosen else plain[kind.__annotations__[name]]
        for name in kind.__struct_fields__
    }


def messages(kinds: tuple[type[Any], ...] = KINDS) -> st.SearchStrategy[Any]:
    """Any message of these kinds."""
    return st.one_of([st.builds(kind, **_fields(kind)) for kind in kinds])


def _frame(body: Any, sequence: int) -> Frame:
    return Frame(0 if isinstance(body, UNSEQUENCED) else sequence, body)


def frames() -> st.SearchStrategy[Frame]:
    """Any frame that follows the rules."""
    return st.builds(_frame, messages() | batches(), st.integers(1, 2**63 - 1))

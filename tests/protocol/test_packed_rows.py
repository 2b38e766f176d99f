"""Rows as columns: the same rows, and columns that do not fit together are refused."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.errors import RemoteProtocolError
from braid.protocol.packed_rows import PackedRows

TRIPLES = st.lists(
    st.tuples(
        st.sampled_from(["p", "q#1", "größe"]), st.integers(-(2**63), 2**63 - 1), st.binary(max_size=9)
    ),
    max_size=12,
)


@given(rows=TRIPLES, cut=st.integers(-1, 13))
def test_packed_rows_are_the_rows(rows: list[tuple[str, int, bytes]], cut: int) -> None:
    packed = PackedRows.of(rows)
    back = msgspec.msgpack.decode(msgspec.msgpack.encode(packed), type=PackedRows).checked()
    assert (back.count, back.rows()) == (len(rows), rows)
    assert packed.without(cut).checked().rows() == rows[max(cut, 0) :]


GOOD = PackedRows.of([("p", 1, b"one"), ("q", 2, b"three")])


@pytest.mark.parametrize(
    "changes",
    [
        {"records": b"onethre"},
        {"records": b"onethree!"},
        {"lengths": GOOD.lengths[:-1]},
        {"lengths": b""},
        {"lengths": b"\xff\xff\xff\xff" * 2},
        {"sequences": GOOD.sequences[:-8]},
        {"sequences": GOOD.sequences + b"\0"},
        {"which": GOOD.which[:-4]},
        {"which": b""},
        {"which": b"\0\0\0\0\2\0\0\0"},
        {"publishers": ["p"]},
        {"publishers": [], "which": b""},
    ],
)
def test_columns_that_do_not_fit_together_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(RemoteProtocolError, match="do not fit together"):
        msgspec.structs.replace(GOOD, **changes).checked()

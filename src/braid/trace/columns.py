"""How do the rows of a writer become the columns of a file?

A writer notes values one behind the other in a flat list, several publications of a batch as one entry. Here
they become arrays. That costs some hundred nanoseconds per row and is done in blocks, so that a thread that
does it beside a broker lets the broker go on between them.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from braid.protocol.publisher_names import short_name
from braid.trace.records import TABLES, schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["BATCH_KINDS", "arrow_table", "entry_width"]

# An entry of these is the columns of the table and then the number of publications. Its `sequence` is that of
# the only one, or a base and how far all are from it as bytes.
BATCH_KINDS: Final = frozenset({"publication", "hop", "delivery"})
# Entries that are converted at once: the interpreter is held for less than a millisecond.
_BLOCK: Final = 8_192


def entry_width(kind: str) -> int:
    """How many values one entry of a table takes in the flat list."""
    return len(TABLES[kind]) + (kind in BATCH_KINDS)


def arrow_table(kind: str, values: list[Any], pause: Callable[[], None]) -> Any:
    """The `pyarrow.Table` of a flat list; `values` is empty afterwards.

    Args:
        kind: which table.
        values: entries of `entry_width` values each.
        pause: called between blocks, so that other threads have their turn.
    """
    import pyarrow

    width = entry_width(kind)
    expansion = _Expansion(_blocks(values, width - 1, width), pause) if kind in BATCH_KINDS else None
    arrays = []
    for place, (column, field) in enumerate(zip(TABLES[kind], schema(kind), strict=True)):
        if column.name == "sequence" and expansion is not None:
            array = pyarrow.array(expansion.numbers(values[place::width]))
        else:
            array = _array(_blocks(values, place, width), field.type, pause)
            if column.name == "publisher":
                names = [short_name(name) for name in array.dictionary.to_pylist()]
                array = pyarrow.DictionaryArray.from_arrays(array.indices, names)
            if expansion is not None:
                share = column.name == "size_bytes"
                array = expansion.shares(array) if share else expansion.repeated(array)
        arrays.append(array)
        pause()
    while values:
        # Freeing millions of values at once would hold everybody up for as long as making them.
        del values[-_BLOCK * width :]
        pause()
    fields = [
        pyarrow.field(field.name, array.type, nullable=field.nullable)
        for field, array in zip(schema(kind), arrays, strict=True)
    ]
    return pyarrow.Table.from_arrays(arrays, schema=pyarrow.schema(fields))


def _blocks(values: list[Any], place: int, width: int) -> list[list[Any]]:
    """One column of the flat list, in parts."""
    step = _BLOCK * width
    return [values[start + place : start + step : width] for start in range(0, len(values), step)]


def _array(blocks: Sequence[list[Any]], type_: Any, pause: Callable[[], None]) -> Any:
    """One array; strings, which repeat a lot, as a dictionary and places in it."""
    import pyarrow

    parts = []
    for block in blocks:
        parts.append(pyarrow.array(block, type_))
        pause()
    whole = pyarrow.chunked_array(parts, type_)
    if pyarrow.types.is_string(type_):
        whole = whole.dictionary_encode()
    combined = whole.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pyarrow.ChunkedArray) else combined


class _Expansion:
    """Makes a row of each publication of a batch."""

    def __init__(self, counts: Sequence[list[int]], pause: Callable[[], None]) -> None:
        parts = []
        for block in counts:
            parts.append(np.array(block, np.int64))
            pause()
        self._counts = np.concatenate(parts) if parts else np.empty(0, np.int64)
        self._ends = np.cumsum(self._counts)
        self._rows = int(self._ends[-1]) if len(self._ends) else 0
        self._single = self._rows == len(self._counts)

    def numbers(self, entries: list[Any]) -> Any:
        """The sequence numbers of all rows."""
        if self._single:
            return np.array(entries, np.int64)
        several = [entry for entry in entries if type(entry) is tuple]
        bases = np.array([base for base, _ in several], np.int64)
        counts = self._counts[self._counts > 1]
        offsets = np.frombuffer(b"".join([offsets for _, offsets in several]), "<u4")
        of_several = np.repeat(bases, counts) + offsets
        if len(several) == len(entries):
            return of_several
        numbers = np.empty(self._rows, np.int64)
        place = np.repeat(self._counts > 1, self._counts)
        numbers[place] = of_several
        numbers[~place] = [entry for entry in entries if type(entry) is not tuple]
        return numbers

    def repeated(self, array: Any) -> Any:
        """An array of entries as one of rows."""
        if self._single:
            return array
        import pyarrow

        if array.null_count == len(array):
            return pyarrow.nulls(self._rows, array.type)
        if array.null_count:
            places = np.repeat(np.arange(len(self._counts)), self._counts)
            return array.take(pyarrow.array(places))
        if isinstance(array, pyarrow.DictionaryArray):
            places = np.repeat(array.indices.to_numpy(), self._counts)
            return pyarrow.DictionaryArray.from_arrays(pyarrow.array(places), array.dictionary)
        return pyarrow.array(np.repeat(array.to_numpy(), self._counts), array.type)

    def shares(self, sizes: Any) -> Any:
        """What each row has of its frame's bytes; together they are exactly the frame."""
        if self._single:
            return sizes
        import pyarrow

        shares, left = np.divmod(sizes.to_numpy(), self._counts)
        larger = self._within < np.repeat(left, self._counts)
        return pyarrow.array(np.repeat(shares, self._counts) + larger, sizes.type)

    @cached_property
    def _within(self) -> Any:
        """The place of each row within its batch."""
        return np.arange(self._rows) - np.repeat(self._ends - self._counts, self._counts)

"""How does an Arrow table become a batch of publications, without a mapping per row?

`ArrowPublications` can be given to every method of a `FilterIndex` that takes a batch. Numbers go from
Arrow's buffers into the index's columns as they are; strings and booleans become Python objects, column
by column; a whole publication is made only where a filter has to be evaluated one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from braid.errors import PublicationError
from braid.language.value_sets import EXACT_MAX
from braid.matching.answers import Pairs
from braid.matching.columns import Column, Columnar, Numbers, ordinals_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from braid.matching.answers import SlotBlock
    from braid.matching.columns import IntArray, WordArray
    from braid.matching.index import FilterIndex

__all__ = ["ArrowPublications", "Listed", "listed_matches"]

# Publications times filters in one piece: bounds the memory for listed matches to about 1 GB at worst.
_PAIRS_MAX = 1 << 26
_BATCH_MAX = 4096


class ArrowPublications(Columnar):
    """Publications whose attributes are Arrow arrays of one length; a null is an absent attribute."""

    def __init__(self, columns: Mapping[str, Any], size: int) -> None:
        """
        Args:
            columns: an array per attribute: booleans, integers, floating-point or decimal numbers, strings.
            size: how many publications there are.
        """
        self._columns = {name: _plain(name, array) for name, array in columns.items()}
        self._size = size
        self._lists: dict[str, list[Any]] = {}

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            start, stop, step = place.indices(self._size)
            if step != 1:
                raise ValueError("publications are taken in a row")
            part = ArrowPublications({}, max(0, stop - start))
            part._columns = {name: each.slice(start, len(part)) for name, each in self._columns.items()}
            return part
        row = range(self._size)[place]
        values = ((name, self.values(name)[row]) for name in self._columns)
        return {name: value for name, value in values if value is not None}

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return (self[row] for row in range(self._size))

    def names(self) -> set[str]:
        return set(self._columns)

    def column(self, name: str) -> Column:
        array = self._columns.get(name)
        return _ArrowColumn(name, self, array)

    def values(self, name: str) -> list[Any]:
        """The values of an attribute as Python objects, made once."""
        values = self._lists.get(name)
        if values is None:
            array = self._columns.get(name)
            values = self._lists[name] = [None] * self._size if array is None else array.to_pylist()
        return values


class _ArrowColumn(Column):
    """A column of an Arrow table."""

    __slots__ = ("_table",)

    def __init__(self, name: str, table: ArrowPublications, array: Any) -> None:
        super().__init__(name, table, _numbers(array))
        self._table = table

    @property
    def values(self) -> list[Any]:
        """The values as Python objects."""
        return self._table.values(self.name)


class Listed(NamedTuple):
    """Matches as lists: publication `rows[i]` satisfies the next `counts[i]` of `slots`.

    A publication may have several lists, and a slot of a filter with several boxes may repeat.
    """

    rows: IntArray
    counts: IntArray
    slots: IntArray


def listed_matches(index: FilterIndex[Any], publications: ArrowPublications) -> Iterator[Listed]:
    """Matches as `FilterIndex.match_pairs` gives them, in pieces, without naming a publication per match."""
    step = min(_BATCH_MAX, max(16, _PAIRS_MAX // max(1, len(index))))
    for start in range(0, len(publications), step):
        answer = _Lists()
        index._answer(publications[start : start + step], answer)
        rows, counts, slots = answer.listed()
        yield Listed(rows + start, counts, slots)


class _Lists(Pairs):
    """Every match, as lists of slots."""

    def __init__(self) -> None:
        super().__init__()
        self._listed: list[Listed] = []

    def add_bits(self, block: SlotBlock, publications: IntArray, bits: WordArray) -> None:
        counts = np.bitwise_count(bits).sum(axis=1, dtype=np.int64)
        total = int(counts.sum())
        if total < bits.size:  # less than one bit in 64: it is quicker to look for words that have any
            super().add_bits(block, publications, bits)
            return
        flags = np.unpackbits(bits.reshape(-1).view(np.uint8), bitorder="little").view(np.bool_)
        columns = np.flatnonzero(flags)
        columns -= np.repeat(np.arange(len(counts)) * (bits.shape[1] * 64), counts)
        self._listed.append(Listed(publications, counts, block.slots[columns]))

    def listed(self) -> Listed:
        """All of them."""
        publications, slots = self.result()
        rows, counts = np.unique(publications, return_counts=True)
        pieces = [*self._listed, Listed(rows, counts, slots)]
        return Listed(*(np.concatenate(each) for each in zip(*pieces, strict=True)))


def _plain(name: str, array: Any) -> Any:
    """The array in one of the types that the index knows: bool, int64, float64, string."""
    import pyarrow as pa

    kind = pa.types
    if hasattr(array, "combine_chunks") and not isinstance(array, pa.Array):
        array = array.combine_chunks()
    if kind.is_dictionary(array.type):
        array = array.dictionary_decode()
    if kind.is_boolean(array.type) or kind.is_int64(array.type) or kind.is_float64(array.type):
        return array
    if kind.is_null(array.type) or kind.is_integer(array.type):
        return array.cast(pa.int64())
    if kind.is_floating(array.type) or kind.is_decimal(array.type):
        return array.cast(pa.float64())
    if kind.is_string(array.type) or kind.is_large_string(array.type) or kind.is_string_view(array.type):
        return array
    raise PublicationError(f"attribute {name!r}: a column of the type {array.type} cannot be matched")


def _numbers(array: Any) -> Numbers | None:
    """The numbers of an array; None where there is anything else, or an integer that shares its double."""
    import pyarrow as pa

    if array is None:
        return Numbers(np.empty(0, np.intp), np.empty(0), np.empty(0, np.int64), True)
    whole = pa.types.is_int64(array.type)
    if not whole and not pa.types.is_float64(array.type):
        return None
    if array.null_count:
        rows = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))
        values = array.drop_null().to_numpy()
    else:
        rows = np.arange(len(array))
        values = array.to_numpy()
    if whole and len(values) and (values.max() >= EXACT_MAX or values.min() <= -EXACT_MAX):
        return None
    doubles = values.astype(np.float64)
    return Numbers(rows, doubles, ordinals_of(doubles), whole)

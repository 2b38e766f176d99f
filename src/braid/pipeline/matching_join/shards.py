"""How do filters reach the workers that match with them?

Filters are indexed by Spark tasks, some ten thousand in one *shard*, so that parsing (most of the work) is
shared by all cores. The driver collects the packed shards and hands them to every Python worker process,
which opens them once, whatever number of tasks it runs.
"""

from __future__ import annotations

import gc
import io
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from braid.errors import FilterError
from braid.language import Filter
from braid.matching.bulk import bulk_index
from braid.matching.from_arrow import ArrowPublications, Listed, listed_matches
from braid.matching.plain_texts import NumberBoxes, read_plain_texts
from braid.matching.snapshot import pack, unpack, unread_filter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from braid.matching import FilterIndex

__all__ = ["ReadFilters", "Shard", "Shards", "build_shard", "read_filters", "undisturbed"]


@dataclass(slots=True)
class Shard:
    """An index whose keys are the places of its filters, with their own keys and destinations beside it."""

    index: FilterIndex[int]
    keys: Any
    """An Arrow array: the key of each filter."""
    destinations: Any = None
    """An Arrow array: the different destinations, ascending."""
    groups: Any = None
    """For each filter the place of its destination among these, -1 where it has none."""
    several_boxes: Any = None
    """Which filters have several boxes and may be found more than once; None if none has."""
    names: tuple[str, ...] = ()
    """The attributes that the filters speak about."""

    def counts(self, publications: ArrowPublications) -> Any:
        """How many filters each publication satisfies."""
        return self.index.count_batch(publications)

    def matches(self, publications: ArrowPublications) -> Iterator[Listed]:
        """Every match once, as lists of places of filters."""
        for found in listed_matches(self.index, publications):
            if self.several_boxes is None or not self.several_boxes[found.slots].any():
                yield found
                continue
            pairs = np.repeat(found.rows, found.counts).astype(np.int64) << 32 | found.slots
            unique = np.unique(pairs)
            rows, counts = np.unique(unique >> 32, return_counts=True)
            yield Listed(rows, counts, unique & 0xFFFF_FFFF)

    def matrix(self, publications: ArrowPublications) -> Any:
        """A matrix: which of the shard's destinations each publication goes to."""
        found = self.index.group_matrix(publications)
        return found.matrix[:, np.argsort(found.groups)]

    def reached(self, publications: ArrowPublications) -> Iterator[tuple[Any, Any]]:
        """The same as pairs of a row and a destination, for destinations too many for a matrix."""
        for found in listed_matches(self.index, publications):
            groups = self.groups[found.slots]
            known = groups >= 0
            rows = np.repeat(found.rows, found.counts).astype(np.int64)
            unique = np.unique(rows[known] << 32 | groups[known])
            yield unique >> 32, unique & 0xFFFF_FFFF

    def packed(self) -> bytes:
        """The shard as bytes."""
        import pickle

        columns = [None if each is None else _to_bytes(each) for each in (self.keys, self.destinations)]
        return pickle.dumps(
            (pack(self.index), columns, self.groups, self.several_boxes, self.names), protocol=5
        )

    @classmethod
    def unpacked(cls, content: bytes) -> Shard:
        """The shard from its bytes."""
        import pickle

        index, columns, *rest = pickle.loads(content)
        keys, destinations = [None if each is None else _from_bytes(each) for each in columns]
        return cls(unpack(index), keys, destinations, *rest)


def build_shard(keys: Any, read: ReadFilters, destinations: Any = None) -> Shard:
    """Index filters; `keys` and `destinations` are Arrow arrays with an entry for each that could be read."""
    import pyarrow.compute as pc

    values = groups = numbers = None
    if destinations is not None:
        values = destinations.drop_null().unique()
        values = values.take(pc.sort_indices(values))
        places = pc.index_in(destinations, value_set=values)
        numbers = places.to_pylist()
        groups = pc.fill_null(places, -1).to_numpy(zero_copy_only=False).astype(np.int32)
    index = bulk_index(read.filters, read.boxes, numbers)
    several = np.zeros(len(read.filters), np.bool_)
    names = set(read.boxes.names)
    for place in np.flatnonzero(~read.boxes.plain).tolist():
        each = read.filters[place]
        several[place] = len(each.terms) > 1
        for term in each.terms:
            names.update(term.box)
            if term.residual:
                names |= each.attributes
    return Shard(index, keys, values, groups, several if several.any() else None, tuple(sorted(names)))


@dataclass(frozen=True, slots=True)
class ReadFilters:
    """Filters that could be read, and what was wrong with the others."""

    places: Any
    """Where they were among the texts."""
    filters: list[Filter]
    boxes: NumberBoxes
    """The bounds of those that are nothing but ranges of numbers."""
    problems: list[str]
    """A message for every other text."""


def read_filters(keys: Any, texts: Sequence[str | None], key_name: str) -> ReadFilters:
    """Read texts; `keys` is an Arrow array with what names each of them in a message."""
    boxes = read_plain_texts(texts)
    filters = [
        unread_filter(text) if plain and text is not None else None
        for text, plain in zip(texts, boxes.plain.tolist(), strict=True)
    ]
    problems = []
    for place in np.flatnonzero(~boxes.plain).tolist():
        try:
            text = texts[place]
            if text is None:
                raise FilterError("the filter is NULL; an SQL condition is needed")
            filters[place] = Filter(text)
        except FilterError as problem:
            problems.append(f"the filter with {key_name} {keys[place].as_py()!r}: {problem}")
    found = [each for each in filters if each is not None]
    if not problems:
        return ReadFilters(np.arange(len(texts)), found, boxes, problems)
    good = np.array([each is not None for each in filters], np.bool_)
    return ReadFilters(np.flatnonzero(good), found, boxes.of_texts(good), problems)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Without the garbage collector, which would visit all filters again and again while they are made."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@dataclass(slots=True)
class Shards:
    """Packed shards on their way to workers, which open them when they first need them."""

    packed: list[bytes]
    _open: list[Shard] | None = field(default=None, repr=False)
    _destinations: tuple[Any, list[Any]] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, shards: list[Shard]) -> Shards:
        """Shards that are open already."""
        return cls([], shards)

    def opened(self) -> list[Shard]:
        """The shards, opened once; their bytes are forgotten one by one."""
        if self._open is None:
            self._open = []
            with undisturbed():
                while self.packed:
                    self._open.append(Shard.unpacked(self.packed.pop(0)))
        return self._open

    def destinations(self) -> tuple[Any, list[Any]]:
        """All destinations, ascending, and for each shard the places of its own among them."""
        if self._destinations is None:
            import pyarrow as pa
            import pyarrow.compute as pc

            own = [shard.destinations for shard in self.opened()]
            values = pa.concat_arrays(own).unique()
            values = values.take(pc.sort_indices(values))
            places = [pc.index_in(each, value_set=values).to_numpy(zero_copy_only=False) for each in own]
            self._destinations = values, places
        return self._destinations


def _to_bytes(array: Any) -> bytes:
    import pyarrow as pa

    target = io.BytesIO()
    batch = pa.record_batch([array], names=["values"])
    with pa.ipc.new_stream(target, batch.schema) as writer:
        writer.write_batch(batch)
    return target.getvalue()


def _from_bytes(content: bytes) -> Any:
    import pyarrow as pa

    array = pa.ipc.open_stream(content).read_all().column(0)
    return array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)

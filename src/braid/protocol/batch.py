"""How do many publications travel as one?

A batch holds publications of one publisher: their sequence numbers as an array, and their records as
one run of bytes. Routing selects rows of it; the bytes of a record never change on their way, and are
decoded at most once per broker. Each record is decoded by itself: that proves that the lengths a peer
states are true, without which a selected row could be something else than the row that was checked.
"""

from __future__ import annotations

import struct
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from braid.errors import RemoteProtocolError
from braid.language.publication import Publication
from braid.language.values import Range
from braid.matching.columns import IntArray
from braid.protocol.publisher_names import publisher_and_epoch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "BATCH_KIND",
    "PUBLISHER_BYTES_MAX",
    "WAITED_FOR",
    "PublicationBatch",
    "decode_heads",
    "decode_record",
    "encode_record",
    "record_decoder",
]


# The kind of frame that holds a batch.
BATCH_KIND: Final = 2
PUBLISHER_BYTES_MAX: Final = 255

# Frame: length of what follows, kind, channel sequence number. Batch: flags, hops, target, bytes of the
# publisher's name, rows, the first publication's sequence number.
_HEADER = struct.Struct("<IBQBBHHIQ")
_BATCH_HEADER = struct.Struct("<BBHHIQ")
_ROW_BYTES = 8
_OFFSET = struct.Struct("<I")
_FEW_ROWS = 16

_ACKNOWLEDGED = 1
_ORDERED = 2
_RECEIPT = 4
_ROUTED = 8
_FREE = 16
_AGAIN = 32

WAITED_FOR: Final = _ACKNOWLEDGED | _RECEIPT
"""The flags of batches that somebody waits for, at the end of their way or at their next broker."""

_SEQUENCE_MAX = 2**63 - 1
# Rows say how far they are from the first, in 32 bits.
_OFFSET_MAX = 2**32

_RANGE_EXTENSION = 1


class _Attributes(msgspec.Struct, array_like=True):
    """A record without a copy of its body. Routing looks at the attributes only, but a record that
    subscribers could not read must not get to them, so that all of it is checked."""

    attributes: dict[str, Any]
    published_at_us: int = 0
    body: memoryview = memoryview(b"")
    content_type: str = ""


class _Record(msgspec.Struct, array_like=True):
    attributes: dict[str, Any]
    published_at_us: int = 0
    body: bytes = b""
    content_type: str = ""


def _decode_extension(code: int, data: memoryview) -> Any:
    if code != _RANGE_EXTENSION:
        raise ValueError(f"extension {code} is not known")
    low, high = _bounds_decoder.decode(data)
    return Range(low, high)


_encoder = msgspec.msgpack.Encoder()
_bounds_decoder = msgspec.msgpack.Decoder(tuple[int | float, int | float])
_attributes_decoder = msgspec.msgpack.Decoder(_Attributes, ext_hook=_decode_extension)
_record_decoder = msgspec.msgpack.Decoder(_Record, ext_hook=_decode_extension)
_MALFORMED = (msgspec.MsgspecError, ValueError, RecursionError)


def encode_record(
    attributes: Mapping[str, Any], published_at_us: int, body: bytes = b"", content_type: str = ""
) -> bytes:
    """The bytes of one publication, as they travel and are stored; the attributes were checked."""
    if Range in map(type, attributes.values()):
        attributes = {
            name: msgspec.msgpack.Ext(_RANGE_EXTENSION, _encoder.encode((value.low, value.high)))
            if type(value) is Range
            else value
            for name, value in attributes.items()
        }
    if body or content_type:
        return _encoder.encode((attributes, published_at_us, body, content_type))
    return _encoder.encode((attributes, published_at_us))


def record_decoder(kind: Any) -> Any:
    """A decoder of records, or of arrays of them, into a type of the caller's."""
    return msgspec.msgpack.Decoder(kind, ext_hook=_decode_extension)


def decode_heads(records: Iterable[bytes]) -> list[_Attributes]:
    """Attributes and times of records, without copies of their bodies.

    Raises:
        RemoteProtocolError: the bytes are not a record.
    """
    try:
        return [_attributes_decoder.decode(record) for record in records]
    except _MALFORMED as error:
        raise RemoteProtocolError(f"a record is malformed: {error}") from None


def decode_record(record: bytes, publisher: str, sequence: int) -> Publication:
    """The publication of a record.

    Raises:
        RemoteProtocolError: the bytes are not a record.
    """
    return _decoded(record, *publisher_and_epoch(publisher), sequence)


def _decoded(record: bytes, publisher: str, epoch: str, sequence: int) -> Publication:
    try:
        found = _record_decoder.decode(record)
    except _MALFORMED as error:
        raise RemoteProtocolError(f"publication {sequence} of {publisher!r} is malformed: {error}") from None
    return Publication(
        found.attributes, found.body, found.content_type, publisher, sequence, found.published_at_us, epoch
    )


class PublicationBatch(msgspec.Struct, eq=False, gc=False):
    """Publications of one publisher, in the order of their sequence numbers.

    Rows are kept as they travel: for each how far its number is from `base`, and for each the length of its
    record. Arrays are made of that when they are asked for; a batch that is only passed on needs none.

    It is a struct because those are made and copied in a fraction of the time. It is part of no cycle, so the
    collector of garbage need not know of it.
    """

    publisher: str
    base: int
    _table: bytes
    """Says which record is which."""
    _records: bytes
    """Those of all rows, one after the other."""
    flags: int = 0
    hops: int = 0
    target: int = 0
    """The credit class it travels in. To a client: which of its delivery classes this is for. Between
    brokers: 1 for a copy for a set of brokers that may take any link, 0 for everything else."""
    route: bytes = b""
    """Between brokers: the brokers that this copy is for, packed; empty: whoever wants it downstream."""
    size: int = 0
    """Bytes of the frame that holds this batch. (Nobody else need say so.)"""
    first: int = 0
    """The first row's sequence number. (Nor that.)"""
    count: int = 0
    """How many rows there are: `len` of the batch, without a call."""
    memo: Any = None
    """What a matcher knows of these rows already. It stays within one process."""
    _sequences: IntArray | None = None
    _pieces: list[bytes] | None = None
    _attributes: list[dict[str, Any]] | None = None
    _onward: PublicationBatch | None = None
    _delivery: PublicationBatch | None = None

    if TYPE_CHECKING:  # as every struct has it

        def __copy__(self) -> PublicationBatch: ...

    def __post_init__(self) -> None:
        table = self._table
        self.size = (
            _HEADER.size + len(self.publisher.encode()) + len(self.route) + len(table) + len(self._records)
        )
        self.count = len(table) // _ROW_BYTES
        self.first = self.base + _OFFSET.unpack_from(table)[0] if table else self.base

    @classmethod
    def of(
        cls,
        publisher: str,
        sequences: Sequence[int],
        records: Sequence[bytes],
        *,
        acknowledged: bool = False,
        ordered: bool = False,
        receipt: bool = False,
        again: bool = False,
    ) -> PublicationBatch:
        """A batch from single records; the sequence numbers must ascend."""
        base = sequences[0]
        offsets = [sequence - base for sequence in sequences]
        return cls(
            publisher,
            base,
            struct.pack(f"<{2 * len(records)}I", *offsets, *map(len, records)),
            b"".join(records),
            flags=_ACKNOWLEDGED * acknowledged | _ORDERED * ordered | _RECEIPT * receipt | _AGAIN * again,
        )

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"<{len(self)} publications of {self.publisher!r} from {self.base}>"

    @property
    def sequences(self) -> IntArray:
        """The sequence number of each row."""
        if self._sequences is None:
            self._sequences = np.frombuffer(self._table, "<u4", self.count).astype(np.int64) + self.base
        return self._sequences

    @property
    def offsets(self) -> bytes:
        """How far each row's sequence number is from `base`, as little-endian numbers of 32 bits."""
        return self._table[: _OFFSET.size * self.count]

    @property
    def last(self) -> int:
        """The last row's sequence number."""
        offset: int = _OFFSET.unpack_from(self._table, _OFFSET.size * (self.count - 1))[0]
        return self.base + offset

    @property
    def acknowledged(self) -> bool:
        """Kept by every broker until everybody downstream has it."""
        return bool(self.flags & _ACKNOWLEDGED)

    @property
    def ordered(self) -> bool:
        """Must not overtake: rides primary links only."""
        return bool(self.flags & _ORDERED)

    @property
    def again(self) -> bool:
        """A repetition: goes everywhere along the tree, also where it has been, and is handed over once."""
        return bool(self.flags & _AGAIN)

    @property
    def keeps_to_tree(self) -> bool:
        """Takes primary links only."""
        return bool(self.flags & (_ORDERED | _AGAIN))

    @property
    def receipt(self) -> bool:
        """The sender waits for an acknowledgement, so it should not be delayed."""
        return bool(self.flags & _RECEIPT)

    def attributes(self) -> list[dict[str, Any]]:
        """The attributes of every row, decoded once.

        Raises:
            RemoteProtocolError: the records are not what the format says.
        """
        if self._attributes is None:
            decode = _attributes_decoder.decode
            try:
                self._attributes = [decode(record).attributes for record in self.records()]
            except _MALFORMED as error:
                raise RemoteProtocolError(f"a batch of {self.publisher!r} is malformed: {error}") from None
        return self._attributes

    def publications(self) -> list[Publication]:
        """Every row as the subscriber sees it."""
        publisher, epoch = publisher_and_epoch(self.publisher)
        return [
            _decoded(record, publisher, epoch, sequence)
            for record, sequence in zip(self.records(), self.sequences.tolist(), strict=True)
        ]

    def records(self) -> list[bytes]:
        """The bytes of each row."""
        if self._pieces is None:
            if self.count == 1:
                self._pieces = [self._records]
            else:
                lengths = struct.unpack_from(f"<{self.count}I", self._table, _OFFSET.size * self.count)
                records = self._records
                ends = accumulate(lengths, initial=0)
                self._pieces = [records[start:end] for start, end in pairwise(ends)]
        return self._pieces

    def select(self, rows: IntArray) -> PublicationBatch:
        """Some rows, ascending, as a batch of their own."""
        places = rows.tolist()
        pieces = self.records()
        pieces = [pieces[row] for row in places]
        table = np.frombuffer(self._table, "<u4").reshape(2, self.count)
        selected = PublicationBatch(
            self.publisher,
            self.base,
            table[:, rows].tobytes(),
            b"".join(pieces),
            flags=self.flags,
            hops=self.hops,
            target=self.target,
            route=self.route,
        )
        selected._pieces = pieces
        if len(places) == self.count:
            selected.memo = self.memo
        if self._attributes is not None:
            attributes = self._attributes
            selected._attributes = [attributes[row] for row in places]
        return selected

    def continues(self, earlier: PublicationBatch) -> bool:
        """Whether both can travel as one batch, this one behind the other."""
        return (
            self.publisher == earlier.publisher
            and self.flags | _RECEIPT == earlier.flags | _RECEIPT
            and (self.hops, self.target, self.route) == (earlier.hops, earlier.target, earlier.route)
            and earlier.last < self.first
            and earlier.base <= self.base
            and self.last - earlier.base < _OFFSET_MAX
        )

    @classmethod
    def joined(cls, batches: Sequence[PublicationBatch]) -> PublicationBatch:
        """Several batches as one; each continues the one before."""
        first = batches[0]
        flags = first.flags
        for batch in batches:
            flags |= batch.flags
        count = sum(len(batch) for batch in batches)
        table = np.empty((2, count), np.uint32)
        at = 0
        for batch in batches:
            rows = np.frombuffer(batch._table, "<u4").reshape(2, len(batch))
            table[:, at : at + len(batch)] = rows
            table[0, at : at + len(batch)] += np.uint32(batch.base - first.base)
            at += len(batch)
        records = b"".join([batch._records for batch in batches])
        return cls(
            first.publisher,
            first.base,
            table.tobytes(),
            records,
            flags=flags,
            hops=first.hops,
            target=first.target,
            route=first.route,
        )

    def readdressed(self, *, target: int = 0, further: bool = False, route: bytes = b"") -> PublicationBatch:
        """The same rows for another receiver, `further` by one hop, or for a set of destinations."""
        copy = self._copied()
        if further:
            copy.hops += 1
        copy.target = target
        if route is not self.route:
            copy.size += len(route) - len(self.route)
            copy.route = route
        return copy

    def repetition(self) -> PublicationBatch:
        """The same rows, said to come again."""
        copy = self.__copy__()
        copy.flags |= _AGAIN
        copy._onward = copy._delivery = None
        return copy

    def _copied(self) -> PublicationBatch:
        copy = self.__copy__()
        if copy.flags:
            copy.flags &= ~_RECEIPT
        # What was decoded stays behind: it is done with, and a batch may wait long for its receiver.
        copy._sequences = copy._pieces = copy._attributes = copy._onward = copy._delivery = None
        return copy

    def onward(self) -> PublicationBatch:
        """The same rows one hop further. Simulated brokers that pass on the same batch share it."""
        onward = self._onward
        if onward is None:
            if self.route or self.target:
                onward = self.readdressed(further=True)
            else:
                onward = self._copied()
                onward.hops += 1
            self._onward = onward
        return onward

    def delivery(self, target: int) -> PublicationBatch:
        """The same rows for a client's delivery class. Clients next to each other mostly share it."""
        delivery = self._delivery
        if delivery is None or delivery.target != target:
            delivery = self._delivery = self.readdressed(target=target)
        return delivery

    def pieces(self, sequence: int) -> Iterable[bytes]:
        """The bytes of the frame, ready to be joined; `sequence` is the channel's."""
        publisher = self.publisher.encode()
        route = self.route
        length = _HEADER.size - 4 + len(publisher) + len(route) + len(self._table) + len(self._records)
        header = _HEADER.pack(
            length,
            BATCH_KIND,
            sequence,
            self.flags if not route else self.flags | _ROUTED | (_FREE if self.target else 0),
            self.hops,
            # Only clients have delivery classes, and only brokers destinations.
            len(route) if route else self.target,
            len(publisher),
            self.count,
            self.base,
        )
        return (header, publisher, route, self._table, self._records)

    @classmethod
    def from_payload(cls, payload: bytes, start: int, end: int) -> PublicationBatch:
        """Read what follows a frame's header, in `payload[start:end]`.

        Raises:
            RemoteProtocolError: the bytes are not a batch.
        """
        if end - start < _BATCH_HEADER.size:
            raise RemoteProtocolError(f"a batch of {end - start} bytes is shorter than its header")
        flags, hops, target, publisher_bytes, count, base = _BATCH_HEADER.unpack_from(payload, start)
        route_bytes = target if flags & _ROUTED else 0
        route_at = start + _BATCH_HEADER.size + publisher_bytes
        rows_at = route_at + route_bytes
        records_at = rows_at + _ROW_BYTES * count
        if not 0 < publisher_bytes <= PUBLISHER_BYTES_MAX or not count or records_at > end:
            raise RemoteProtocolError(
                f"a batch of {end - start} bytes cannot hold {count} rows of a publisher "
                f"whose name has {publisher_bytes} bytes"
            )
        try:
            publisher = payload[route_at - publisher_bytes : route_at].decode()
        except UnicodeDecodeError:
            raise RemoteProtocolError("the publisher's name in a batch is not UTF-8") from None
        table = payload[rows_at:records_at]
        ascending, last, total = _checked_rows(table, count)
        if not ascending:
            raise RemoteProtocolError(f"the sequence numbers in a batch of {publisher!r} do not ascend")
        if base + last > _SEQUENCE_MAX:
            raise RemoteProtocolError(f"a sequence number in a batch of {publisher!r} is beyond 63 bits")
        if records_at + total != end:
            raise RemoteProtocolError(
                f"the rows in a batch of {publisher!r} add up to {total} bytes where {end - records_at} are"
            )
        return cls(
            publisher,
            base,
            table,
            payload[records_at:end],
            flags=flags & ~(_ROUTED | _FREE),
            hops=hops,
            target=target if not route_bytes else 1 if flags & _FREE else 0,
            route=payload[route_at:rows_at],
        )


def _checked_rows(table: bytes, count: int) -> tuple[bool, int, int]:
    """Whether the sequence numbers ascend, how far the last is, and how many bytes the records take."""
    if count <= _FEW_ROWS:  # quicker without arrays
        values = struct.unpack(f"<{2 * count}I", table)
        ascending = all(earlier < later for earlier, later in pairwise(values[:count]))
        return ascending, values[count - 1], sum(values[count:])
    rows = np.frombuffer(table, "<u4").reshape(2, count)
    ascending = bool((rows[0, 1:] > rows[0, :-1]).all())
    return ascending, int(rows[0, -1]), int(rows[1].sum(dtype=np.int64))

"""Does a batch say on the far side what it said here, and does it refuse to lie?"""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.errors import RemoteProtocolError
from braid.language import Range
from braid.protocol import Frame, FrameDecoder, PublicationBatch, encode_frames
from braid.protocol.batch import BATCH_KIND, decode_record, encode_record
from tests.fuzz.strategies import TEXT, attributes, batches

FRAME_HEADER_BYTES = 13


def there_and_back(batch: PublicationBatch, sequence: int = 1) -> PublicationBatch:
    data = encode_frames([Frame(sequence, batch)])
    assert len(data) == batch.size, "credit counts the bytes that really travel"
    (frame,) = FrameDecoder().feed(data)
    assert frame.sequence == sequence
    assert isinstance(frame.body, PublicationBatch)
    return frame.body


def said(batch: PublicationBatch) -> tuple[Any, ...]:
    """Everything a batch says; publications as text, in which NaN equals itself."""
    return (
        batch.publisher,
        batch.sequences.tolist(),
        batch.records(),
        batch.flags,
        batch.hops,
        batch.target,
        batch.size,
        repr(batch.publications()),
    )


@given(attributes(), st.integers(0, 2**62), st.binary(max_size=30), TEXT)
def test_a_record_holds_every_kind_of_value(
    given_values: dict[str, Any], at_us: int, body: bytes, content_type: str
) -> None:
    found = decode_record(encode_record(given_values, at_us, body, content_type), "carol", 7)
    assert repr(dict(found.attributes)) == repr(given_values)
    assert {name: type(value) for name, value in found.attributes.items()} == {
        name: type(value) for name, value in given_values.items()
    }
    assert (found.body, found.content_type, found.published_at_us) == (body, content_type, at_us)
    assert (found.publisher, found.sequence) == ("carol", 7)


@given(batches(), st.integers(1, 2**63 - 1))
def test_a_batch_comes_back_as_it_was(batch: PublicationBatch, sequence: int) -> None:
    back = there_and_back(batch, sequence)
    assert said(back) == said(batch)
    assert (back.acknowledged, back.ordered, back.receipt, back.again) == (
        batch.acknowledged,
        batch.ordered,
        batch.receipt,
        batch.again,
    )


@given(batches(), st.data(), st.booleans(), st.booleans())
def test_select_agrees_with_picking_rows_one_by_one(
    batch: PublicationBatch, data: st.DataObject, relayed: bool, decoded_before: bool
) -> None:
    if relayed:
        batch = there_and_back(batch)
    if decoded_before:
        batch.attributes()
    rows = sorted(data.draw(st.sets(st.integers(0, len(batch) - 1), min_size=1)))
    selected = batch.select(np.array(rows, np.int64))
    records, sequences = batch.records(), batch.sequences.tolist()
    twin = PublicationBatch.of(
        batch.publisher,
        [sequences[row] for row in rows],
        [records[row] for row in rows],
        acknowledged=batch.acknowledged,
        ordered=batch.ordered,
        receipt=batch.receipt,
        again=batch.again,
    )
    twin.hops, twin.target = batch.hops, batch.target
    assert said(selected) == said(twin)
    assert repr(selected.attributes()) == repr(twin.attributes())
    assert said(there_and_back(selected)) == said(twin)


@given(batches(), st.integers(0, 3), st.booleans())
def test_a_readdressed_batch_says_the_same_to_somebody_else(
    batch: PublicationBatch, target: int, further: bool
) -> None:
    batch.hops %= 255
    before = said(batch)
    copy = batch.readdressed(target=target, further=further)
    assert said(batch) == before, "the one it was made from is as it was"
    assert (copy.target, copy.hops) == (target, batch.hops + further)
    assert not copy.receipt
    assert (copy.acknowledged, copy.ordered) == (batch.acknowledged, batch.ordered)
    assert repr(copy.publications()) == repr(batch.publications())
    assert said(there_and_back(copy)) == said(copy)


@given(batches(), st.data())
def test_lengths_that_are_untrue_are_refused(batch: PublicationBatch, data: st.DataObject) -> None:
    """Bytes moved from one row to another would make a row that nobody had checked."""
    records = batch.records()
    if len(records) < 2:
        records = [*records, encode_record({"price": 1}, 0)]
    joined = b"".join(records)
    cuts = sorted(
        data.draw(st.lists(st.integers(0, len(joined)), min_size=len(records) - 1, max_size=len(records) - 1))
    )
    lengths = np.diff([0, *cuts, len(joined)])
    true = [len(record) for record in records]
    table = np.array([np.arange(len(records)), lengths], "<u4").tobytes()
    liar = PublicationBatch("carol", 0, table, joined)
    (frame,) = FrameDecoder().feed(encode_frames([Frame(1, liar)]))
    assert isinstance(frame.body, PublicationBatch)
    if lengths.tolist() == true:
        assert len(frame.body.attributes()) == len(records)
    else:
        with pytest.raises(RemoteProtocolError, match="malformed"):
            frame.body.attributes()


def payload(
    count: int = 1,
    base: int = 1,
    table: tuple[int, ...] = (0, 4),
    publisher: bytes = b"carol",
    rest: bytes = b"",
) -> bytes:
    return (
        struct.pack("<BBHHIQ", 0, 0, 0, len(publisher), count, base)
        + publisher
        + struct.pack(f"<{len(table)}I", *table)
        + rest
    )


RECORD = encode_record({}, 0)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "shorter than its header"),
        (payload()[:17], "shorter than its header"),
        (payload(count=0, table=()), "cannot hold"),
        (payload(publisher=b"", rest=RECORD), "cannot hold"),
        (payload(publisher=b"x" * 256, rest=RECORD), "cannot hold"),
        (payload(count=2**32 - 1), "cannot hold"),
        (payload(publisher=b"\xff\xfe", rest=RECORD), "not UTF-8"),
        (payload(table=(0, 5), rest=RECORD), "add up to 5 bytes where"),
        (payload(table=(0, 2**32 - 1), rest=RECORD), "add up to"),
        (payload(count=2, table=(0, 0, 3, 3), rest=RECORD * 2), "do not ascend"),
        (payload(count=2, table=(5, 3, 3, 3), rest=RECORD * 2), "do not ascend"),
        (payload(base=2**63, table=(0, 3), rest=RECORD), "beyond 63 bits"),
        (payload(base=2**63 - 1, table=(1, 3), rest=RECORD), "beyond 63 bits"),
        (payload(count=2, base=2**63 - 1, table=(0, 1, 3, 3), rest=RECORD * 2), "beyond 63 bits"),
    ],
)
def test_what_is_no_batch_is_refused(data: bytes, complaint: str) -> None:
    with pytest.raises(RemoteProtocolError, match=complaint):
        PublicationBatch.from_payload(data, 0, len(data))


def test_the_highest_sequence_number_travels() -> None:
    batch = there_and_back(PublicationBatch.of("carol", [2**63 - 1], [RECORD]))
    assert batch.sequences.tolist() == [2**63 - 1]


@pytest.mark.parametrize(
    "record",
    [
        msgspec.msgpack.encode([{"price": 1}, "noon"]),
        msgspec.msgpack.encode([{"price": 1}, 0, "text"]),
        msgspec.msgpack.encode([{"price": 1}, 0, b"", b"type"]),
        msgspec.msgpack.encode([{1: 1}, 0]),
        msgspec.msgpack.encode([[], 0]),
        msgspec.msgpack.encode([]),
        msgspec.msgpack.encode([{"price": msgspec.msgpack.Ext(2, b"")}, 0]),
        msgspec.msgpack.encode([{"price": msgspec.msgpack.Ext(1, msgspec.msgpack.encode((5, 3)))}, 0]),
        msgspec.msgpack.encode([{"price": msgspec.msgpack.Ext(1, b"\x91\x01")}, 0]),
        encode_record({"price": 1}, 0) + b"\x00",
        encode_record({"price": 1}, 0)[:-1],
        b"",
        b"\x91\x81\xa1a" + b"\x91" * 5000 + b"\x01",
        b"\x91\x81\xa1a\x81\x80\x01",
    ],
)
def test_a_broker_refuses_every_record_that_a_subscriber_would(record: bytes) -> None:
    """Routing looks at attributes only; a bad tail that it let pass would cost subscribers their links."""
    with pytest.raises(RemoteProtocolError):
        decode_record(record, "carol", 1)
    with pytest.raises(RemoteProtocolError):
        PublicationBatch.of("carol", [1], [record]).attributes()


@given(st.binary(max_size=60), st.data())
def test_random_and_changed_bytes_are_refused_politely(noise: bytes, data: st.DataObject) -> None:
    batch = data.draw(batches(rows_max=3))
    good = bytearray(encode_frames([Frame(1, batch)])[FRAME_HEADER_BYTES:])
    for _ in range(data.draw(st.integers(0, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    for candidate in (noise, bytes(good)):
        try:
            found = PublicationBatch.from_payload(candidate, 0, len(candidate))
            found.attributes()
            found.publications()
        except RemoteProtocolError:
            continue
        assert len(found.publications()) == len(found) > 0


def test_ranges_keep_the_kind_of_their_ends() -> None:
    found = decode_record(encode_record({"height": Range(3, 5.0)}, 0), "carol", 1)
    assert repr(found["height"]) == "Range(low=3, high=5.0)"
    assert BATCH_KIND == 2


def test_a_memo_travels_with_the_whole_batch_and_never_as_bytes() -> None:
    batch = PublicationBatch.of("p", [1, 2], [encode_record({"a": 1}, 0), encode_record({"a": 2}, 0)])
    assert batch.memo is None
    batch.memo = "known"
    assert batch.readdressed(further=True).memo == "known"
    assert batch.select(np.array([0, 1])).memo == "known"
    assert batch.select(np.array([1])).memo is None
    assert PublicationBatch.joined([batch]).memo is None
    assert there_and_back(batch).memo is None

"""Do frames survive the network, however it cuts them, and does nothing else pass for one?"""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.errors import RemoteProtocolError
from braid.protocol import Frame, FrameDecoder, PublicationBatch, encode_frames
from braid.protocol.batch import encode_record
from braid.protocol.codec import Vocabulary
from braid.protocol.messages import (
    UNSEQUENCED,
    Acknowledgement,
    Goodbye,
    Ping,
    Subscribe,
    SyncBegin,
)
from tests.fuzz.strategies import KINDS, batches, frames, messages


def same(left: Frame, right: Frame) -> bool:
    if left.sequence != right.sequence or type(left.body) is not type(right.body):
        return False
    if isinstance(left.body, PublicationBatch):
        return encode_frames([left]) == encode_frames([right])
    return left.body == right.body


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=25)
@given(data=st.data())
def test_every_message_comes_back_as_it_was(kind: type[Any], data: st.DataObject) -> None:
    message = data.draw(messages((kind,)))
    sequence = 0 if kind in UNSEQUENCED else data.draw(st.integers(1, 2**63 - 1))
    assert FrameDecoder().feed(encode_frames([Frame(sequence, message)])) == [Frame(sequence, message)]


@given(st.lists(frames(), max_size=5), st.data())
def test_however_a_stream_is_cut_it_holds_the_same_frames(sent: list[Frame], data: st.DataObject) -> None:
    stream = encode_frames(sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    decoder = FrameDecoder()
    found: list[Frame] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += decoder.feed(stream[start:end])
        assert decoder.waiting_bytes == end - sum(len(encode_frames([frame])) for frame in found)
    assert len(found) == len(sent)
    assert all(map(same, found, sent))
    assert decoder.waiting_bytes == 0


@settings(max_examples=20)
@given(st.lists(frames(), min_size=1, max_size=2))
def test_a_stream_that_comes_byte_by_byte_holds_the_same_frames(sent: list[Frame]) -> None:
    decoder = FrameDecoder()
    found = [frame for byte in encode_frames(sent) for frame in decoder.feed(bytes([byte]))]
    assert len(found) == len(sent)
    assert all(map(same, found, sent))


FRAME_MAX = 400


@settings(max_examples=300)
@given(
    st.lists(st.binary(max_size=80), max_size=6)
    | st.lists(frames().map(lambda frame: encode_frames([frame])), max_size=4),
    st.data(),
)
def test_whatever_comes_the_decoder_answers_politely_and_holds_little(
    pieces: list[bytes], data: st.DataObject
) -> None:
    stream = bytearray(b"".join(pieces))
    for _ in range(data.draw(st.integers(0, 3)) if stream else 0):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    step = data.draw(st.integers(1, 64))
    decoder = FrameDecoder(FRAME_MAX)
    for start in range(0, len(stream), step):
        try:
            found = decoder.feed(bytes(stream[start : start + step]))
        except RemoteProtocolError:
            return
        assert decoder.waiting_bytes <= FRAME_MAX + step
        for frame in found:
            if isinstance(frame.body, PublicationBatch):
                try:
                    frame.body.attributes()
                except RemoteProtocolError:
                    return


@given(batches(), st.integers(0, 3))
def test_a_frame_may_be_as_large_as_the_bound_and_no_larger(batch: PublicationBatch, less: int) -> None:
    data = encode_frames([Frame(1, batch)])
    decoder = FrameDecoder(len(data) - less)
    if less:
        # It is refused for what it says, before it has come.
        with pytest.raises(RemoteProtocolError, match="at most"):
            decoder.feed(data[:13])
    else:
        assert len(decoder.feed(data)) == 1


def test_a_long_frame_in_small_pieces_is_joined_once() -> None:
    batch = PublicationBatch.of("carol", [1], [encode_record({}, 0, b"x" * 1_000_000)])
    data = encode_frames([Frame(1, batch)])
    decoder = FrameDecoder()
    found = [frame for start in range(0, len(data), 100) for frame in decoder.feed(data[start : start + 100])]
    assert [
        frame.body.publications()[0].body for frame in found if isinstance(frame.body, PublicationBatch)
    ] == [b"x" * 1_000_000]


def header(length: int, kind: int = 1, sequence: int = 0) -> bytes:
    return struct.pack("<IBQ", length, kind, sequence)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (header(8), "shorter than a frame's header"),
        (header(0), "shorter than a frame's header"),
        (header(2**32 - 1), "at most"),
        (header(10, kind=3) + b"\x90", "unknown kind 3"),
        (header(10, sequence=2**63) + b"\x90", "beyond 63 bits"),
        (header(10) + b"\x90", "malformed message"),
        (header(11) + b"\x91\x63", "malformed message"),
        (header(9 + 5000) + b"\x91" * 5000, "malformed message"),
        (encode_frames([Frame(1, Ping(1))]), "where none was expected"),
        (encode_frames([Frame(0, SyncBegin())]), "where one was expected"),
        (encode_frames([Frame(0, Subscribe(1, "1", "TRUE"))]), "where one was expected"),
        (encode_frames([Frame(4, Acknowledgement(1, 1, 1))]), "where none was expected"),
        (encode_frames([Frame(0, PublicationBatch.of("c", [1], [b"\x91\x80"]))]), "where one was expected"),
    ],
)
def test_a_broken_frame_is_refused_with_a_reason(data: bytes, complaint: str) -> None:
    with pytest.raises(RemoteProtocolError, match=complaint):
        FrameDecoder().feed(data)


def test_a_message_with_more_fields_than_we_know_is_understood() -> None:
    """A newer peer may say more; the version says whether it may say it to us."""
    data = encode_frames([Frame(0, Goodbye("until tomorrow"))])
    payload = bytearray(data[13:])
    assert 0x90 < payload[0] < 0x9F, "a short array"
    payload[0] += 1
    payload += b"\xc0"
    (frame,) = FrameDecoder().feed(header(9 + len(payload)) + bytes(payload))
    assert frame.body == Goodbye("until tomorrow")


class Whisper(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """What some other machine says, under a number that brokers use for something else."""

    text: str


class Shout(msgspec.Struct, array_like=True, frozen=True, tag=2):
    text: str


def test_another_machine_has_messages_of_its_own() -> None:
    vocabulary = Vocabulary(Whisper | Shout, (Shout,))
    frames = [Frame(1, Whisper("psst")), Frame(0, Shout("hey"))]
    assert FrameDecoder(vocabulary=vocabulary).feed(encode_frames(frames)) == frames
    with pytest.raises(RemoteProtocolError, match="where none was expected"):
        FrameDecoder(vocabulary=vocabulary).feed(encode_frames([Frame(1, Shout("hey"))]))
    with pytest.raises(RemoteProtocolError, match="malformed message"):
        FrameDecoder(vocabulary=vocabulary).feed(encode_frames([Frame(0, Ping(1))]))
    with pytest.raises(RemoteProtocolError):
        FrameDecoder().feed(encode_frames([Frame(1, Whisper("psst"))]))

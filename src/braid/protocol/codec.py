"""How do messages become bytes, and bytes messages again?

A frame is a length, a kind, a sequence number and a payload:

    0   u32  how many bytes follow this field
    4   u8   1 for a message, 2 for a batch of publications
    5   u64  the frame's number in its channel, 0 if it has none
    13       the payload

All numbers are little-endian. A peer that breaks the format gets a `RemoteProtocolError` that says how.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec

from braid.errors import RemoteProtocolError
from braid.protocol.batch import BATCH_KIND, PublicationBatch
from braid.protocol.limits import FRAME_BYTES_MAX
from braid.protocol.messages import UNSEQUENCED, Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "BROKER_VOCABULARY",
    "FRAME_BYTES_MAX",
    "GREETING_BYTES_MAX",
    "Body",
    "Frame",
    "FrameDecoder",
    "Vocabulary",
    "encode_frames",
]

Body: TypeAlias = Message | PublicationBatch

# As long as it is not known who is at the other end, a greeting is all that is expected.
GREETING_BYTES_MAX: Final = 64 * 1024

_HEADER = struct.Struct("<IBQ")
_LENGTH_BYTES = 4
_MESSAGE_KIND = 1
_SEQUENCE_MAX = 2**63 - 1

_encoder = msgspec.msgpack.Encoder()


class Vocabulary:
    """The messages that one kind of machine understands. Each kind has its own, and reads no other.

    Args:
        messages: the union of their types, tagged by numbers.
        unsequenced: those of them that have no number in a channel.
    """

    def __init__(self, messages: Any, unsequenced: tuple[type, ...]) -> None:
        self.messages = messages
        self.decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder(messages).decode
        self.unsequenced = unsequenced


BROKER_VOCABULARY = Vocabulary(Message, UNSEQUENCED)
"""What brokers and their clients say to each other."""


class Frame(NamedTuple):
    """One message or batch, with its number in the channel (0 for those that are not sequenced)."""

    sequence: int
    body: Body


def encode_frames(frames: Iterable[Frame]) -> bytes:
    """The bytes of several frames, for one write."""
    pieces: list[bytes] = []
    for sequence, body in frames:
        if isinstance(body, PublicationBatch):
            pieces.extend(body.pieces(sequence))
        else:
            payload = _encoder.encode(body)
            pieces.append(_HEADER.pack(_HEADER.size - _LENGTH_BYTES + len(payload), _MESSAGE_KIND, sequence))
            pieces.append(payload)
    return b"".join(pieces)


class FrameDecoder:
    """Turns what arrives on one connection, in whatever pieces, into frames."""

    def __init__(
        self, frame_bytes_max: int = FRAME_BYTES_MAX, vocabulary: Vocabulary = BROKER_VOCABULARY
    ) -> None:
        self._vocabulary = vocabulary
        self.frame_bytes_max = frame_bytes_max
        """May be lowered or raised once it is known who the peer is."""
        # What has come of a frame that is not whole yet. Pieces are joined only when enough have come:
        # joining at every read would make a long frame cost the square of its length.
        self._pieces: list[bytes] = []
        self._waiting_bytes = 0
        self._needed_bytes = _HEADER.size

    @property
    def waiting_bytes(self) -> int:
        """How much of an unfinished frame is held."""
        return self._waiting_bytes

    def feed(self, data: bytes) -> list[Frame]:
        """Take in the bytes of one read and give back the frames that are whole now.

        Raises:
            RemoteProtocolError: they break the format. Nothing more can be read from this peer.
        """
        if self._pieces:
            self._pieces.append(data)
            self._waiting_bytes += len(data)
            if self._waiting_bytes < self._needed_bytes:
                return []
            data = b"".join(self._pieces)
            self._pieces.clear()
        frames: list[Frame] = []
        start, end = 0, len(data)
        while end - start >= _HEADER.size:
            length, kind, sequence = _HEADER.unpack_from(data, start)
            stop = start + _LENGTH_BYTES + length
            if length + _LENGTH_BYTES > self.frame_bytes_max:
                raise RemoteProtocolError(
                    f"a frame of {length + _LENGTH_BYTES:,} bytes; "
                    f"at most {self.frame_bytes_max:,} are accepted"
                )
            if length < _HEADER.size - _LENGTH_BYTES:
                raise RemoteProtocolError(f"a frame of {length} bytes is shorter than a frame's header")
            if stop > end:
                self._needed_bytes = stop - start
                break
            if sequence > _SEQUENCE_MAX:
                raise RemoteProtocolError(f"a frame's sequence number {sequence} is beyond 63 bits")
            body = _body(data, kind, start + _HEADER.size, stop, self._vocabulary)
            if (sequence == 0) != (kind == _MESSAGE_KIND and isinstance(body, self._vocabulary.unsequenced)):
                raise _wrongly_sequenced(sequence, body)
            frames.append(Frame(sequence, body))
            start = stop
        else:
            self._needed_bytes = _HEADER.size
        self._waiting_bytes = end - start
        if start < end:
            self._pieces.append(data[start:] if start else data)
        return frames


def _body(data: bytes, kind: int, start: int, stop: int, vocabulary: Vocabulary) -> Body:
    if kind == BATCH_KIND:
        return PublicationBatch.from_payload(data, start, stop)
    if kind != _MESSAGE_KIND:
        raise RemoteProtocolError(f"a frame of the unknown kind {kind}")
    try:
        body: Body = vocabulary.decode(data[start:stop])
        return body
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise RemoteProtocolError(f"a malformed message: {error}") from None


def _wrongly_sequenced(sequence: int, body: Body) -> RemoteProtocolError:
    expected = "none" if sequence else "one"
    return RemoteProtocolError(
        f"a {type(body).__name__} with the sequence number {sequence}, where {expected} was expected"
    )

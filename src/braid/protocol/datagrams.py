"""How do datagrams travel over a stream, and how do peers greet each other?

Peers have no links. A connection between two of them carries datagrams one way: whoever opened it says who
it is (`PeerHello`), hears `PeerWelcome` or `PeerRefused`, and sends `Datagram`s from then on. The frames are
those of `codec`; the first bytes of a connection tell a peer from a client or a broker, so one port serves
all.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar

import msgspec

from braid.protocol.codec import Frame, Vocabulary, encode_frames

__all__ = [
    "FIRST_BYTES",
    "PEER_VERSION",
    "Datagram",
    "PeerHello",
    "PeerRefused",
    "PeerWelcome",
    "datagram_vocabulary",
    "encode_datagram",
    "is_peer_greeting",
]

M = TypeVar("M")

# Rises with every change that an older peer would misunderstand.
PEER_VERSION: Final = 1

_HELLO_TAG: Final = 60


class PeerHello(msgspec.Struct, array_like=True, tag=_HELLO_TAG, frozen=True):
    """The first message of a peer that opened the connection."""

    version: int
    network: str
    """What all peers of a network agree on, as a digest; see `NetworkSchema.digest`."""
    address: str
    """Where the sender can be reached: the sender of all its datagrams."""
    token: str | None = None


class PeerWelcome(msgspec.Struct, array_like=True, tag=61, frozen=True):
    """Datagrams are welcome."""

    version: int
    network: str
    datagram_bytes_max: int
    """The largest datagram that is read."""


class PeerRefused(msgspec.Struct, array_like=True, tag=62, frozen=True):
    """The connection is closed after this, and here is why."""

    code: str
    reason: str


class Datagram(msgspec.Struct, Generic[M], array_like=True, tag=63, gc=False):
    """What one `SendTo` carries."""

    messages: list[M]


def datagram_vocabulary(machine: Vocabulary) -> Vocabulary:
    """What is said on a connection between peers whose machines understand these messages."""
    spoken: Any = PeerHello | PeerWelcome | PeerRefused | Datagram[machine.messages]  # type: ignore[name-defined]
    return Vocabulary(spoken, (msgspec.Struct,))


def encode_datagram(messages: list[msgspec.Struct]) -> bytes:
    """The bytes of a datagram."""
    return encode_frames((Frame(0, Datagram(messages)),))  # type: ignore[arg-type]


FIRST_BYTES: Final = 15
"""So many bytes of a connection tell who has opened it: the header of a frame, an array and its tag."""


def is_peer_greeting(data: bytes) -> bool:
    """Whether a connection that begins with these bytes comes from a peer."""
    return data[4] == 1 and data[13] & 0xF0 == 0x90 and data[14] == _HELLO_TAG

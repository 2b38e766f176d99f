"""Identifiers of peers and keys: numbers on a circle of 2**128, as 16 bytes, most significant first.

A key belongs to the peer whose identifier is *closest* on the circle, in either direction; of two that are
equally close, to the one that comes before the key. Every substrate of `braid.p2p.dht` uses this rule, so
changing the substrate moves no key.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, NamedTuple, TypeAlias

__all__ = [
    "CIRCLE",
    "KEY_BYTES",
    "Address",
    "Contact",
    "Key",
    "closeness",
    "contact_of",
    "key_of",
    "number_of",
]

Key: TypeAlias = bytes
"""A place on the circle, 16 bytes."""
Address: TypeAlias = str
"""Where a peer's datagrams go: `host:port` on real sockets, any name in a simulation."""

KEY_BYTES: Final = 16
CIRCLE: Final = 1 << (8 * KEY_BYTES)


class Contact(NamedTuple):
    """How to speak of a peer."""

    id: Key
    address: Address


def key_of(name: str | bytes) -> Key:
    """The key of a name: its BLAKE2b digest, so that any names are spread evenly over the circle."""
    return blake2b(name.encode() if isinstance(name, str) else name, digest_size=KEY_BYTES).digest()


def contact_of(address: Address) -> Contact:
    """The peer at an address. Its identifier follows from the address, so it cannot choose its place."""
    return Contact(key_of(address), address)


def number_of(key: Key) -> int:
    """A key as a number from 0 to below 2**128."""
    return int.from_bytes(key, "big")


def closeness(number: int, key: int) -> int:
    """How far an identifier is from a key; smaller is closer, and no two identifiers are equally close."""
    ahead = (number - key) % CIRCLE
    behind = CIRCLE - ahead
    return 2 * ahead + 1 if ahead < behind else 2 * behind

"""How does a copy of a publication say which brokers it is for?

A broker's *digest* is a 24-bit hash of its id, so brokers can come and go without anybody handing out
numbers. A set of digests travels as the differences between neighbours in ascending order, seven bits to a
byte: about three bytes for each of some thirty brokers among a thousand. Brokers whose digests collide are
not put into such sets; whoever knows both sends to them along the tree.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

from braid.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["DESTINATIONS_MAX", "digest_of", "packed_destinations", "unpacked_destinations"]

_DIGEST_BYTES = 3

# As many brokers as one network may have here; a longer list is a mistake or an attack.
DESTINATIONS_MAX = 16_384


@lru_cache(maxsize=65_536)
def digest_of(broker: str) -> int:
    """The number that stands for a broker.

    >>> 0 <= digest_of("B-17") < 1 << 24
    True
    """
    return int.from_bytes(blake2b(broker.encode(), digest_size=_DIGEST_BYTES).digest(), "big")


def packed_destinations(digests: Iterable[int]) -> bytes:
    """A set of digests as bytes; what is in it twice counts once.

    >>> unpacked_destinations(packed_destinations({5, 300, 16_000_000})) == {5, 300, 16_000_000}
    True
    """
    packed = bytearray()
    before = -1
    for digest in sorted(set(digests)):
        gap = digest - before - 1
        before = digest
        while gap > 127:
            packed.append(gap & 127 | 128)
            gap >>= 7
        packed.append(gap)
    return bytes(packed)


def unpacked_destinations(packed: bytes) -> frozenset[int]:
    """The set of digests in these bytes.

    Raises:
        RemoteProtocolError: they are no such set.
    """
    digests: list[int] = []
    before = -1
    gap = shift = 0
    for byte in packed:
        gap |= (byte & 127) << shift
        if byte > 127:
            shift += 7
            if shift > 21:
                raise RemoteProtocolError("a set of destinations has a gap of more than 28 bits")
            continue
        before += gap + 1
        if before >= 1 << 8 * _DIGEST_BYTES:
            raise RemoteProtocolError("a set of destinations goes beyond 24 bits")
        digests.append(before)
        gap = shift = 0
    if shift:
        raise RemoteProtocolError("a set of destinations ends within a number")
    if len(digests) > DESTINATIONS_MAX:
        raise RemoteProtocolError(f"a set of {len(digests)} destinations; {DESTINATIONS_MAX} are allowed")
    return frozenset(digests)

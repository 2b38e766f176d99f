"""How large may a frame be, so that it still fits when brokers have added to it?

Each side of a connection says in its greeting how large a frame it reads at most (`frame_bytes_max`). What a
client sends grows on its way: a copy gains the set of brokers it is for, a stored publication the names of
its log and its publisher, a subscription a longer key. `HEAD_ROOM` is more than any of that, so what a broker
accepts from a client it can always pass on to a neighbour that reads as much as itself, and to a reader.
"""

from __future__ import annotations

from typing import Final

__all__ = ["FRAME_BYTES_MAX", "HEAD_ROOM", "carried_bytes", "readable_bytes"]

# More than this in one frame would let a single peer hold too much memory; senders split their batches.
FRAME_BYTES_MAX: Final = 4 * 1024 * 1024

HEAD_ROOM: Final = 16 * 1024
"""What brokers may add to what a client sends, in bytes."""


def carried_bytes(frame_bytes_max: int) -> int:
    """How large something of a client may be where brokers read frames of so many bytes.

    Where frames are very small, half of one: names are then too long for it before anything else is.
    """
    return max(frame_bytes_max - HEAD_ROOM, frame_bytes_max // 2, 1)


def readable_bytes(taken_bytes: int) -> int:
    """The largest frame that a client reads, unless it says another, which is told that so much is taken."""
    return max(FRAME_BYTES_MAX, taken_bytes + HEAD_ROOM)

"""What the peers of a publish/subscribe network say to each other, beside the DHT. Tags from 200 up."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = [
    "DMM_MESSAGES",
    "Beacon",
    "Content",
    "Entry",
    "Find",
    "Multicast",
    "Update",
    "Wanted",
]


class Entry(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One term of a subscription, as tables hold it. Where it lies follows from the filter's text."""

    name: str
    """The peer of the subscriber, its subscription and the number of the term: no other entry has it."""
    text: str
    """The whole filter."""
    term: int = 0
    """Which of the filter's places it is."""
    axis: int = -1
    """In the space of a single attribute: the axis of the term's own space that it stands for. Else -1."""


class Content(msgspec.Struct, array_like=True, frozen=True):
    """A publication on its way. The publisher's name and the number are its id."""

    publisher: str
    sequence: int
    attributes: dict[str, bool | int | float | str | tuple[int | float, int | float]]
    """A pair is a `Range`."""
    published_at_us: int = 0
    body: bytes = b""
    content_type: str = ""


class Update(msgspec.Struct, array_like=True, tag=200):
    """What the sender wants to be given of a space has changed."""

    space: str
    added: list[Entry]
    removed: list[str]
    digest: int
    """Of all that the sender wants of it, with this; it shows whether an earlier word was lost."""
    fresh: bool = False
    """Whether nothing that was said before counts any more."""
    more: bool = False
    """Whether another part follows: the digest is that of the last one."""


class Wanted(msgspec.Struct, array_like=True, tag=201):
    """Say all that you want of these spaces: the receiver of your beacon has heard otherwise."""

    spaces: list[str]


class Beacon(msgspec.Struct, array_like=True, tag=202):
    """What the sender has asked for still holds; spaces and digests."""

    digests: list[tuple[str, int]]


class Find(msgspec.Struct, array_like=True, tag=203):
    """A publication looks for the active region that its point lies in, and, if it has ranges, for all."""

    space: str
    target: str
    """The code of the smallest region around the part of the publication that this copy is for."""
    length: int
    """So many bits of the target name the region that it is at, or on its way to."""
    low: int
    high: int
    """The active region's code is known to be at least and at most so long."""
    content: Content
    origin: str
    """The peer that published."""
    lookups: int = 1


class Multicast(msgspec.Struct, array_like=True, tag=204):
    """A publication on its way back along what subscribers asked for in a space."""

    space: str
    content: Content


DMM_MESSAGES: Final = (Update, Wanted, Beacon, Find, Multicast)

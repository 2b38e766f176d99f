"""What the peers of a publish/subscribe network say to each other, beside the DHT. Tags from 200 up.

A region is named by its space and its code, `""` for the root of the space.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

__all__ = [
    "DMM_MESSAGES",
    "Active",
    "Arrived",
    "Beacon",
    "Content",
    "Enter",
    "Entry",
    "Find",
    "Gateway",
    "Gathered",
    "Gone",
    "Idle",
    "InUse",
    "Installed",
    "Load",
    "Merge",
    "Multicast",
    "Name",
    "Replica",
    "Resend",
    "Retire",
    "Table",
    "Taken",
    "Update",
    "Wanted",
]

Name: TypeAlias = tuple[str, str]
"""A region: its space and its code."""


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


# Asking for publications.


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
    code: str = ""
    """The region that it is for, if the sender knows it; else it goes on towards the root."""
    target: str = ""
    """To whom publications are to be sent for it, if not to the sender: those who only pass on step aside."""
    request: int = 0
    """The number of an answer that is wanted, when all that the sender has asked for is installed; or 0."""


class Wanted(msgspec.Struct, array_like=True, tag=201):
    """Say all that you want of these: the receiver of your beacon has heard otherwise."""

    names: list[Name]


class Beacon(msgspec.Struct, array_like=True, tag=202):
    """What the sender has asked for still holds: space, code of the region (or empty) and digest of each."""

    digests: list[tuple[str, str, int]]


class Enter(msgspec.Struct, array_like=True, tag=203):
    """Entries look for the active regions that they meet, from this region on."""

    space: str
    code: str
    holder: str
    """The last peer before the tree of regions, which confirms them there."""
    target: str
    """To whom publications are to be sent for it."""
    entries: list[Entry]
    doubt: bool = False
    """Whether it comes for the second time to a region that is not active although its parent says so."""
    asker: str = ""
    """Who wants to know when they are installed,"""
    request: int = 0
    """and the number of the answer; 0: nobody does."""
    guess: bool = False
    """Whether nobody has said that this region is there: if it is not, the one around it is asked."""
    half: str = ""
    """The half of this region that it comes back from, and that it is for alone; empty: for both."""


class Installed(msgspec.Struct, array_like=True, tag=206, gc=False):
    """What came with a request is where it has to be: all that satisfies it is on its way to the asker."""

    request: int
    failed: bool = False
    """Whether it is not, for now: ask again."""


class Gateway(msgspec.Struct, array_like=True, tag=218, gc=False):
    """Routed to the collector: there is a gateway to brokers."""

    address: str


class Gathered(msgspec.Struct, array_like=True, tag=219):
    """What all peers together want, for a gateway."""

    filters: list[str]
    request: int = 0
    """The number of a request that goes on to the brokers; 0: none."""


class Active(msgspec.Struct, array_like=True, tag=204):
    """These regions are active, at the sender."""

    names: list[Name]
    held: bool = False
    """Whether the receiver holds entries there, and is to confirm them there; else it publishes to them."""


class Gone(msgspec.Struct, array_like=True, tag=205):
    """These regions are not active at the sender."""

    names: list[Name]


# Publications.


class Find(msgspec.Struct, array_like=True, tag=210):
    """A publication looks for the active region that it lies in; with ranges, for all of them."""

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
    direct: bool = False
    """Whether it goes to where the region was known to be active, not by the DHT."""
    relayed: bool = False
    """Whether the owner, who is new, asks the former one to match it."""
    doubt: bool = False
    """Whether it comes for the second time to a region that is not active although its parent says so."""
    caches: tuple[str, ...] = ()
    """Who is to be told where the active region is."""


class Multicast(msgspec.Struct, array_like=True, tag=211):
    """A publication on its way back along what subscribers asked for in a space."""

    space: str
    content: Content


class Arrived(msgspec.Struct, array_like=True, tag=212, gc=False):
    """A publication was matched in a region."""

    publisher: str
    sequence: int
    space: str
    code: str


class Idle(msgspec.Struct, array_like=True, tag=213, gc=False):
    """Nobody wants anything of this space. The sender will say when that changes, for some time."""

    space: str


class InUse(msgspec.Struct, array_like=True, tag=214, gc=False):
    """What was said of an idle space does not hold any more."""

    space: str
    request: int = 0
    """The number of the answer that is wanted."""


# The tree of regions.


class Table(msgspec.Struct, array_like=True, tag=220):
    """A part of the entries of a region, for whoever is to be responsible for them."""

    space: str
    code: str
    """The region that they are for now."""
    came_from: str
    """The code of the region that they are from."""
    source: str
    kind: Literal["split", "move", "merge", "leave"]
    part: int
    parts: int
    holder: str
    target: str
    entries: list[Entry]
    inner: bool = False
    """Whether the region has halves, and so no entries of its own."""
    request: int = 0
    """The number of an answer that a peer wants that is leaving: when the region is active and has asked for
    all that it needs."""
    number: int = 0
    """Of this sending of the table. Parts of two sendings make no whole, for the table may have changed; the
    later one has the higher number."""


class Taken(msgspec.Struct, array_like=True, tag=221):
    """All parts of a table have come."""

    space: str
    code: str


class Load(msgspec.Struct, array_like=True, tag=222):
    """To the owner of the region around: how many entries a half has; -1 if it has halves itself."""

    space: str
    code: str
    owner: str
    count: int


class Merge(msgspec.Struct, array_like=True, tag=223):
    """To the owner of a half: send your table to the region around."""

    space: str
    code: str


class Retire(msgspec.Struct, array_like=True, tag=224):
    """To the owner of a half: the region around is active again, and yours is not."""

    space: str
    code: str


# Failures.


class Replica(msgspec.Struct, array_like=True, tag=230):
    """Whom to ask for what the sender knows, if it dies."""

    addresses: list[str]


class Resend(msgspec.Struct, array_like=True, tag=231):
    """A peer has died, or is leaving. What it was told, tell again to whoever is responsible now."""

    address: str
    spaces: tuple[str, ...] = ()
    """Where it is the peer itself that says so, as it leaves: the spaces in which it was asked,"""
    request: int = 0
    """and the number of the answer that it waits for."""


DMM_MESSAGES: Final = (
    Update,
    Wanted,
    Beacon,
    Enter,
    Installed,
    Gateway,
    Gathered,
    Active,
    Gone,
    Find,
    Multicast,
    Arrived,
    Idle,
    InUse,
    Table,
    Taken,
    Load,
    Merge,
    Retire,
    Replica,
    Resend,
)

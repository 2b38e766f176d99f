"""A region of a space at the peer that owns it: the entries that meet it, by the peer that holds each.

Its life:

    (absent) -- entries come --> LEAF                  only the root of a space begins like this
    (absent) -- a table comes --> BUILDING -- it is complete --> LEAF, INNER
    (absent) -- a table of a peer that is leaving comes --> BUILDING -- that peer says goodbye --> LEAF, INNER
    LEAF -- too many entries, both halves have theirs --> INNER
    INNER -- few entries, both halves have sent theirs --> LEAF
    LEAF, INNER -- another peer owns it and has its table --> MOVED -- after some time --> (absent)
    LEAF -- the region around is active again --> MOVED

Only a LEAF matches. A publication that comes to an INNER region goes down, one that comes to an absent or
MOVED region goes up, one that comes to a BUILDING region goes to where the table comes from.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from braid.p2p.dht.identifiers import Address
    from braid.p2p.dmm.arrivals import Arrival
    from braid.p2p.dmm.columns import Columns
    from braid.p2p.dmm.tables import Bundle
    from braid.p2p.space import Space

__all__ = ["Region", "State", "Transfer"]


class State(Enum):
    """Where a region is in its life."""

    LEAF = "leaf"
    INNER = "inner"
    BUILDING = "building"
    MOVED = "moved"


class Transfer:
    """A table on its way to another peer."""

    __slots__ = ("address", "again_us", "done", "kind", "tries")

    def __init__(self, kind: str, address: Address | None, again_us: int) -> None:
        self.kind = kind
        self.address = address
        """Who gets it; None: the owner of the key, found by the DHT."""
        self.again_us = again_us
        """When it is sent again, if nobody has said that it came."""
        self.tries = 1
        self.done = False
        """Whether it has come. What comes in later still goes the same way, until this region's work is
        over."""


class Region:
    """One region."""

    __slots__ = (
        "box",
        "bundles",
        "cachers",
        "code",
        "columns",
        "halves_come",
        "held",
        "incoming",
        "loads",
        "merged",
        "merging_until_us",
        "outgoing",
        "primaries",
        "samples",
        "source",
        "space",
        "split_from",
        "state",
        "until_us",
        "waits_inner",
    )

    def __init__(self, space: Space, code: str, state: State = State.LEAF) -> None:
        self.space = space
        self.code = code
        self.box = space.region(code)
        self.state = state
        self.bundles: dict[Address, Bundle] = {}
        """By the last peer before the tree of regions, which publications go back to."""
        self.columns: Columns | None = None
        """The same, to be matched; None if that is to be made anew."""
        self.primaries: dict[str, int] = {}
        """By name, the axis by which an entry is found (DMM-AR)."""
        self.samples: list[Arrival] = []
        """The latest publications that came here: they tell which attributes are selective."""
        self.cachers: dict[Address, int] = {}
        """Who publishes to this region directly, and when each did so last."""
        self.held: list[Arrival] | None = None
        """While its entries are coming back after a failure: publications that they are to be given."""
        self.until_us: int | None = None
        """BUILDING: when it goes on without the rest. MOVED: when it is forgotten. INNER: when it stops
        asking for publications of single attributes. LEAF: when what was held is given up."""
        self.source: Address | None = None
        """BUILDING: where the table comes from, and publications are matched meanwhile."""
        self.incoming: dict[tuple[Address, str], tuple[int, set[int]]] = {}
        """The number of the latest sending of a table and the parts of it that have come, by source and the
        code of the region that it is from."""
        self.outgoing: dict[str, Transfer] = {}
        """Tables that are on their way, by the code of the region that they are for."""
        self.loads: dict[str, tuple[int, Address]] = {}
        """INNER: how many entries each half has, and its owner."""
        self.merging_until_us: int | None = None
        """INNER: until when the tables of both halves are waited for."""
        self.halves_come: set[str] = set()
        """INNER: the halves whose tables have come completely."""
        self.merged = False
        """Whether it became a LEAF by joining its halves."""
        self.waits_inner: bool | None = None
        """BUILDING: all parts have come of a table of a peer that is leaving, and when it has left this is an
        INNER region (True) or a LEAF (False)."""
        self.split_from = 0
        """With so many entries it is worth trying to halve it again."""

    @property
    def name(self) -> tuple[str, str]:
        """Its space and its code."""
        return (self.space.name, self.code)

    @property
    def purpose(self) -> str:
        """What this region's wishes in other spaces are filed under."""
        return f"{self.space.name}\n{self.code}"

    @property
    def size(self) -> int:
        """How many entries it has."""
        return sum(len(bundle.entries) for bundle in self.bundles.values())

    def holds(self, name: str) -> bool:
        """Whether an entry of this name is here, by whatever way."""
        return any(name in bundle.entries for bundle in self.bundles.values())

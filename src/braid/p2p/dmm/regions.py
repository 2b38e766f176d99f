"""A region of a space at the peer that owns it: the entries that meet it, by the peer that holds each."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from braid.p2p.dht.identifiers import Address
    from braid.p2p.dmm.tables import Bundle
    from braid.p2p.space import Space

__all__ = ["Region"]


class Region:
    """An active region."""

    __slots__ = ("bundles", "code", "primaries", "space")

    def __init__(self, space: Space, code: str) -> None:
        self.space = space
        self.code = code
        self.bundles: dict[Address, Bundle] = {}
        """By the last peer before the tree of regions, which publications go back to."""
        self.primaries: dict[str, int] = {}
        """By name, the axis by which an entry is found (DMM-AR)."""

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

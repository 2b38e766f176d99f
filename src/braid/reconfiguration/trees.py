"""What does the primary network look like as a whole?

A *valid* overlay is connected and has no cycle (availability paper, section III-A). An `OverlayTree` is
always valid: what is not cannot be made. It is a value, so that a plan can be tried out without a network.
"""

from __future__ import annotations

from collections import deque
from functools import cached_property
from typing import TYPE_CHECKING

from braid.errors import ConfigurationError
from braid.routing.overlay_map import OverlayMap

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Link", "OverlayTree", "difference", "link_between"]

Link = tuple[str, str]
"""Two neighbours, the smaller name first."""


def link_between(left: str, right: str) -> Link:
    """The name of a link does not depend on which end is said first."""
    return (left, right) if left < right else (right, left)


class OverlayTree:
    """Brokers and the links between them: connected, without a cycle.

    >>> tree = OverlayTree([("A", "B"), ("B", "C"), ("B", "D")])
    >>> tree.brokers, tree.neighbours("B"), tree.path("A", "D")
    (('A', 'B', 'C', 'D'), ('A', 'C', 'D'), ('A', 'B', 'D'))
    >>> OverlayTree([], ["A"])
    <tree of 1 broker>

    Args:
        links: pairs of brokers, in either order.
        brokers: all of them; only a tree of a single broker has to say it.

    Raises:
        ConfigurationError: that is no tree; the message says why not.
    """

    __slots__ = ("__dict__", "_beside", "links")

    def __init__(self, links: Iterable[tuple[str, str]], brokers: Iterable[str] = ()) -> None:
        beside: dict[str, list[str]] = {broker: [] for broker in brokers}
        names: set[Link] = set()
        for left, right in links:
            if left == right:
                raise ConfigurationError(f"no tree: {left!r} is linked to itself")
            link = link_between(left, right)
            if link in names:
                raise ConfigurationError(f"no tree: {link[0]!r} and {link[1]!r} are linked twice")
            names.add(link)
            beside.setdefault(left, []).append(right)
            beside.setdefault(right, []).append(left)
        self.links = frozenset(names)
        """All links."""
        self._beside = {broker: tuple(sorted(beside[broker])) for broker in sorted(beside)}
        self._check()

    def _check(self) -> None:
        if not self._beside:
            raise ConfigurationError("no tree: there is no broker")
        first = next(iter(self._beside))
        reached = {first}
        line = deque([first])
        while line:
            for other in self._beside[line.popleft()]:
                if other not in reached:
                    reached.add(other)
                    line.append(other)
        if len(reached) < len(self._beside):
            cut_off = next(broker for broker in self._beside if broker not in reached)
            raise ConfigurationError(f"no tree: there is no way from {first!r} to {cut_off!r}")
        if len(self.links) >= len(self._beside):
            raise ConfigurationError(
                f"no tree: {len(self._beside)} brokers with {len(self.links)} links have a cycle"
            )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OverlayTree):
            return NotImplemented
        return self.links == other.links and self.brokers == other.brokers

    def __hash__(self) -> int:
        return hash((self.links, self.brokers))

    def __contains__(self, broker: str) -> bool:
        return broker in self._beside

    def __len__(self) -> int:
        return len(self._beside)

    def __repr__(self) -> str:
        return f"<tree of {len(self)} broker{'' if len(self) == 1 else 's'}>"

    @cached_property
    def brokers(self) -> tuple[str, ...]:
        """All brokers, by name."""
        return tuple(self._beside)

    @property
    def outer(self) -> tuple[str, ...]:
        """The brokers with a single neighbour."""
        return tuple(broker for broker, beside in self._beside.items() if len(beside) == 1)

    def has_link(self, left: str, right: str) -> bool:
        """Whether two brokers are neighbours."""
        return link_between(left, right) in self.links

    def neighbours(self, broker: str) -> tuple[str, ...]:
        """The brokers that a broker has a link to, by name."""
        return self._beside[self.require(broker)]

    def degree(self, broker: str) -> int:
        """How many links a broker has."""
        return len(self._beside[self.require(broker)])

    def seen_from(self, broker: str) -> OverlayMap:
        """The tree as the map of one of its brokers."""
        return OverlayMap.of_links(self.require(broker), self.links)

    def path(self, source: str, target: str) -> tuple[str, ...]:
        """The brokers from one to another, both included."""
        self.require(target)
        return (source, *self.seen_from(source).path(target))

    def distance(self, source: str, target: str) -> int:
        """Links on the path between two brokers."""
        return len(self.path(source, target)) - 1

    def behind(self, broker: str, neighbour: str) -> frozenset[str]:
        """The brokers that a broker is the way to, for one of its neighbours; itself included."""
        self.require_link(broker, neighbour)
        reached = {broker}
        line = [broker]
        while line:
            for other in self._beside[line.pop()]:
                if other not in reached and other != neighbour:
                    reached.add(other)
                    line.append(other)
        return frozenset(reached)

    def connects(self, brokers: Iterable[str]) -> bool:
        """Whether some brokers form a subtree: each reaches each without leaving them."""
        wanted = frozenset(brokers)
        for broker in wanted:
            self.require(broker)
        inner = sum(left in wanted and right in wanted for left, right in self.links)
        return len(wanted) > 0 and inner == len(wanted) - 1

    def require(self, broker: str) -> str:
        """The broker, if it is there.

        Raises:
            ConfigurationError: it is not.
        """
        if broker not in self._beside:
            raise ConfigurationError(f"there is no broker {broker!r} in the tree")
        return broker

    def require_link(self, left: str, right: str) -> None:
        """Nothing, if two brokers are neighbours.

        Raises:
            ConfigurationError: they are not.
        """
        if not self.has_link(self.require(left), self.require(right)):
            raise ConfigurationError(f"there is no link between {left!r} and {right!r}")


def difference(found: OverlayTree, wanted: OverlayTree) -> str:
    """Where a tree differs from another, in words; empty if it does not."""
    surplus = [f"{left}-{right} is there" for left, right in sorted(found.links - wanted.links)]
    missing = [f"{left}-{right} is missing" for left, right in sorted(wanted.links - found.links)]
    words = [*surplus, *missing]
    if not words and found != wanted:
        words = [f"the broker is {found.brokers[0]}, not {wanted.brokers[0]}"]
    return ", ".join(words[:6]) + (", ..." if len(words) > 6 else "")

"""Sorts subscriptions into a tree: what is below another one asks for a part of it.

Covering is what brokers use to tell each other less, so the tree shows what they need not say. Comparing all
pairs costs the square of their number; beyond a bound the rest is listed without its place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from braid.errors import FilterError
from braid.language import Filter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["covering_forest"]

# Different filters that are compared with each other.
FILTERS_MAX: Final = 250
# Subscribers of one filter that are named.
OWNERS_MAX: Final = 50


@dataclass
class _Node:
    text: str
    filter: Filter | None
    owners: list[dict[str, Any]] = field(default_factory=list)
    count: int = 0
    below: list[_Node] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "filter": self.text,
            "count": self.count,
            "owners": self.owners,
            "below": [node.to_json() for node in self.below],
        }


def covering_forest(subscriptions: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Trees of filters, widest at the top; equal filters are one node with all who asked.

    A subscription has `filter`, `client`, `broker`, `durable`, and `cut` if its text is not whole.
    """
    nodes: dict[str, _Node] = {}
    for subscription in subscriptions:
        text = str(subscription["filter"])
        node = nodes.get(text)
        if node is None:
            node = nodes[text] = _Node(text, None if subscription.get("cut") else _read(text))
        node.count += 1
        if len(node.owners) < OWNERS_MAX:
            node.owners.append({name: subscription[name] for name in ("client", "broker", "durable")})
    readable = [node for node in nodes.values() if node.filter is not None]
    compared, rest = readable[:FILTERS_MAX], readable[FILTERS_MAX:]
    rest += [node for node in nodes.values() if node.filter is None]
    roots: list[_Node] = []
    for node in _widest_first(compared):
        _hang(node, roots)
    return {
        "trees": [node.to_json() for node in [*roots, *rest]],
        "filters": len(nodes),
        "compared": len(compared),
    }


def _read(text: str) -> Filter | None:
    try:
        return Filter(text)
    except FilterError:
        return None


def _widest_first(nodes: list[_Node]) -> list[_Node]:
    """Each one after all that cover it and not the other way round."""
    wider = {
        id(node): sum(
            other is not node
            and other.filter is not None
            and node.filter is not None
            and other.filter.covers(node.filter)
            for other in nodes
        )
        for node in nodes
    }
    return sorted(nodes, key=lambda node: (wider[id(node)], node.text))


def _hang(node: _Node, beside: list[_Node]) -> None:
    """Below the first that covers it, as deep as possible; otherwise here."""
    level = beside
    while True:
        above = next(
            (
                other
                for other in level
                if other.filter is not None and node.filter is not None and other.filter.covers(node.filter)
            ),
            None,
        )
        if above is None:
            level.append(node)
            return
        level = above.below

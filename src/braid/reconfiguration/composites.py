"""Which larger changes are made of single steps?

The composites of the availability paper (Table II), each as the steps that make it up on a given tree. Its
first column is missing in print; the names are in the glossary. A composite that a tree does not allow is
refused before its first step.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from braid.errors import ConfigurationError
from braid.reconfiguration.primitives import Append, Detach, Shift, Step

if TYPE_CHECKING:
    from collections.abc import Iterable

    from braid.reconfiguration.trees import OverlayTree

__all__ = ["delete", "insert", "move", "sequester", "splice"]


def move(tree: OverlayTree, moving: str, old: str, new: str) -> tuple[Shift, ...]:
    """MOVE: hang a broker, with what hangs on it, on any broker that does not hang on it.

    One SHIFT for each link between its old and its new neighbour.

    Raises:
        ConfigurationError: `moving` and `old` are no neighbours, or `new` is behind `moving`.
    """
    tree.require_link(moving, old)
    if tree.require(new) in tree.behind(moving, old):
        raise ConfigurationError(f"MOVE({moving}, {old}, {new}): {new!r} hangs on {moving!r} itself")
    return tuple(Shift(moving, before, after) for before, after in pairwise(tree.path(old, new)))


def sequester(tree: OverlayTree, broker: str, keep: str) -> tuple[Shift, ...]:
    """SEQUESTER: take all links from a broker but one; its other neighbours go to the one it keeps.

    Raises:
        ConfigurationError: `broker` and `keep` are no neighbours.
    """
    tree.require_link(broker, keep)
    return tuple(Shift(other, broker, keep) for other in tree.neighbours(broker) if other != keep)


def delete(tree: OverlayTree, broker: str, heir: str | None = None) -> tuple[Step, ...]:
    """DELETE: take a broker off the tree, wherever it is.

    Args:
        tree: where it is.
        broker: who goes.
        heir: the neighbour that gets its other neighbours; by itself the one with the fewest links.

    Raises:
        ConfigurationError: it is not there, is alone, or `heir` is no neighbour.
    """
    if heir is None:
        beside = tree.neighbours(broker)
        if not beside:
            raise ConfigurationError(f"DELETE({broker}): the last broker stays")
        heir = min(beside, key=tree.degree)
    return (*sequester(tree, broker, heir), Detach(broker, heir))


def insert(tree: OverlayTree, broker: str, beside: Iterable[str]) -> tuple[Step, ...]:
    """INSERT: a new broker with links to some that form a subtree, in place of the links between those.

    Raises:
        ConfigurationError: the broker is there already, or the others do not form a subtree.
    """
    wanted = sorted(set(beside))
    if broker in tree:
        raise ConfigurationError(f"INSERT({broker}, ...): there is a broker {broker!r} in the tree already")
    _require_subtree(tree, f"INSERT({broker}, ...)", wanted)
    return (Append(broker, wanted[0]), *_gather(tree, broker, wanted[0], wanted))


def splice(tree: OverlayTree, broker: str, beside: Iterable[str]) -> tuple[Shift, ...]:
    """SPLICE: what INSERT does, with a broker that is in the tree already.

    If none of the others is its neighbour, it moves to the nearest one first, with what hangs on it. Its
    other links stay as they are.

    Raises:
        ConfigurationError: the others do not form a subtree, or the broker is one of them.
    """
    wanted = sorted(set(beside))
    if tree.require(broker) in wanted:
        raise ConfigurationError(f"SPLICE({broker}, ...): {broker!r} cannot be linked to itself")
    _require_subtree(tree, f"SPLICE({broker}, ...)", wanted)
    around = tree.seen_from(broker)
    nearest = min(wanted, key=around.distance)  # only one is: the others lie behind it
    moves = move(tree, broker, around.toward(nearest), nearest)
    return (*moves, *_gather(tree, broker, nearest, wanted))


def _gather(tree: OverlayTree, broker: str, first: str, wanted: list[str]) -> tuple[Shift, ...]:
    """Hang a subtree's brokers one by one on the broker that hangs on the first of them."""
    inside = frozenset(wanted)
    steps = []
    reached = {first}
    line = [first]
    while line:
        before = line.pop(0)
        for other in tree.neighbours(before):
            if other in inside and other not in reached:
                steps.append(Shift(other, before, broker))
                reached.add(other)
                line.append(other)
    return tuple(steps)


def _require_subtree(tree: OverlayTree, what: str, wanted: list[str]) -> None:
    if not wanted:
        raise ConfigurationError(f"{what}: no brokers are named to link it to")
    if not tree.connects(wanted):
        raise ConfigurationError(
            f"{what}: {', '.join(wanted)} do not form a subtree; "
            "each must reach each without leaving them, or the links would close a cycle"
        )

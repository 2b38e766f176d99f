"""Which single steps change a tree?

APPEND, DETACH and SHIFT of the availability paper (Table I). A step is a value; applied to a tree it gives
another one, or says why it cannot be done there. Both are checked to be trees (*safe*, section III-A).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from braid.errors import ConfigurationError
from braid.reconfiguration.trees import OverlayTree, link_between

__all__ = ["Append", "Detach", "Shift", "Step"]


@dataclass(frozen=True, slots=True)
class Append:
    """Hang a new broker on one that is there; it becomes an outer broker."""

    broker: str
    neighbour: str

    def __str__(self) -> str:
        return f"APPEND({self.broker}, {self.neighbour})"

    def apply(self, tree: OverlayTree) -> OverlayTree:
        """The tree after it.

        Raises:
            ConfigurationError: it cannot be done there.
        """
        if self.broker in tree:
            raise ConfigurationError(f"{self}: there is a broker {self.broker!r} in the tree already")
        _require(self, tree, self.neighbour)
        return OverlayTree([*tree.links, (self.broker, self.neighbour)])

    @property
    def undo(self) -> Detach:
        """The step back."""
        return Detach(self.broker, self.neighbour)


@dataclass(frozen=True, slots=True)
class Detach:
    """Take an outer broker off its neighbour. The last broker stays."""

    broker: str
    neighbour: str

    def __str__(self) -> str:
        return f"DETACH({self.broker})"

    def apply(self, tree: OverlayTree) -> OverlayTree:
        """The tree after it.

        Raises:
            ConfigurationError: it cannot be done there.
        """
        _require(self, tree, self.broker)
        beside = tree.neighbours(self.broker)
        if beside != (self.neighbour,):
            where = f"its neighbours are {', '.join(beside)}" if beside else "it is alone"
            raise ConfigurationError(
                f"{self}: {self.broker!r} is no outer broker beside {self.neighbour!r}; {where}"
            )
        return OverlayTree(tree.links - {link_between(self.broker, self.neighbour)}, [self.neighbour])

    @property
    def undo(self) -> Append:
        """The step back."""
        return Append(self.broker, self.neighbour)


@dataclass(frozen=True, slots=True)
class Shift:
    """Hang `moving` on `new` instead of `old`; `old` and `new` stay neighbours.

        moving - old - new    =>    old - new - moving

    The paper's SHIFT(i, j, k). What hangs on `moving` comes along.
    """

    moving: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"SHIFT({self.moving}, {self.old}, {self.new})"

    def apply(self, tree: OverlayTree) -> OverlayTree:
        """The tree after it.

        Raises:
            ConfigurationError: it cannot be done there.
        """
        if self.moving == self.new:
            raise ConfigurationError(f"{self}: a broker cannot be hung on itself")
        for left, right in ((self.moving, self.old), (self.old, self.new)):
            _require(self, tree, left)
            _require(self, tree, right)
            if not tree.has_link(left, right):
                raise ConfigurationError(f"{self}: there is no link between {left!r} and {right!r}")
        return OverlayTree(
            [*(tree.links - {link_between(self.moving, self.old)}), (self.moving, self.new)], tree.brokers
        )

    @property
    def undo(self) -> Shift:
        """The step back."""
        return Shift(self.moving, self.new, self.old)


Step: TypeAlias = Append | Detach | Shift


def _require(step: Step, tree: OverlayTree, broker: str) -> None:
    if broker not in tree:
        raise ConfigurationError(f"{step}: there is no broker {broker!r} in the tree")

"""What does a machine have its store remember of its neighbours?"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EndLink", "ForgetNeighbour", "KeepNeighbour", "KeepStanding"]


@dataclass(frozen=True, slots=True)
class KeepNeighbour:
    """Remember a neighbouring broker, or its new address."""

    broker_id: str
    address: str
    key: str = ""
    """By which it can be told from others who use its name."""
    met_at: str = ""
    """The address where it was met: it is dialled there if it cannot show that it knows the key."""
    epoch: int = 0
    """How often its name has gone to another process."""
    former: tuple[str, ...] = ()
    """Where those that had the name before were dialled: settings may say so still, and are overridden."""


@dataclass(frozen=True, slots=True)
class KeepStanding:
    """Remember that this machine runs in the place of another one, under its name."""

    broker_id: str
    """The name."""
    epoch: int
    """How often that name has gone to another process."""
    key: str
    """What the keys are made from by which its neighbours know it."""
    neighbours: tuple[tuple[str, str], ...] = ()
    """The neighbours that have agreed, each with its address."""
    resumption: str = ""
    """How publications come back while it rebuilds its tables. Not kept: one that begins once more, from what
    is kept, has them wait."""


@dataclass(frozen=True, slots=True)
class ForgetNeighbour:
    """Forget a neighbouring broker; one that is not known is forgotten already."""

    broker_id: str


@dataclass(frozen=True, slots=True)
class EndLink:
    """Remember that an operation has ended the link to a broker, until that is kept as a neighbour again."""

    broker_id: str
    epoch: int
    """That of the operation: later ones have a greater one."""
    place: str
    """The broker in whose place there is a link now."""
    address: str
    """Where that can be dialled."""
    dialled: tuple[str, ...] = ()
    """Where the broker was dialled: settings may say so still, and are overridden."""

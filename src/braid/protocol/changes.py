"""What do the brokers of a path say to each other while an operation changes their links?

The markers of a SHIFT (availability paper, Algorithm 1), the decision, and what follows from it. See
`broker/reconfigurations.py`.
"""

from __future__ import annotations

import msgspec

__all__ = [
    "AvoidShortcuts",
    "ChangeAbort",
    "ChangeCommit",
    "ChangeDone",
    "ChangeFinish",
    "ChangeReady",
    "ChangeRequest",
    "ShortcutsAvoided",
    "UseShortcuts",
]


class _Change(msgspec.Struct, array_like=True, frozen=True):
    """The root of these; kinds are numbers, as for all other messages."""


class ChangeRequest(_Change, tag=51, frozen=True):
    """Sequenced, between brokers along a path, behind all publications: prepare to change it.

    The first broker of the path is to be linked to the last one instead of the second (SHIFTREQ of the
    availability paper).
    """

    operation: str
    """Its id, unlike that of every other operation."""
    kind: str
    """`shift`, or `direct` for a longer path."""
    path: list[str]
    epoch: int
    """Greater than that of every earlier change that the brokers so far have taken part in."""
    by: str = ""
    """How it is done: `three-phase` or `precopy`."""


class ChangeReady(_Change, tag=52, frozen=True):
    """Sequenced, back along the path, behind all publications: everybody behind me is ready (SHIFTACK)."""

    operation: str
    address: str
    """Where the last broker of the path can be dialled."""
    epoch: int
    """The epoch of the change, as all of them agree."""


class ChangeCommit(_Change, tag=53, frozen=True):
    """Sequenced: the change is decided, and whoever hears of it carries out its part."""

    operation: str
    kind: str
    path: list[str]
    epoch: int
    addresses: list[str]
    """Where the first and the last broker of the path can be dialled."""
    brokers: list[str]
    """The first broker of the path, and those who are reached through it."""


class ChangeDone(_Change, tag=54, frozen=True):
    """Sequenced, along the path: I have carried out my part, and all that you have to know of it is said."""

    operation: str


class ChangeFinish(_Change, tag=55, frozen=True):
    """Sequenced: all that you have to know of what moved is said (SHIFTFIN).

    It goes back along the path to the second broker, from there along the path to the last, and to the first.
    """

    operation: str


class ChangeAbort(_Change, tag=56, frozen=True):
    """Sequenced: the change is not to be, and everything stays as it was."""

    operation: str
    reason: str


class AvoidShortcuts(_Change, tag=57, frozen=True):
    """Sequenced, passed on along the tree: use no shortcut past a link between brokers of this path."""

    operation: str
    path: list[str]
    hops: int
    """How many links further this goes."""


class ShortcutsAvoided(_Change, tag=58, frozen=True):
    """Sequenced: nothing is under way on such shortcuts any more, here or behind me."""

    operation: str


class UseShortcuts(_Change, tag=59, frozen=True):
    """Sequenced, passed on along the tree: the change is wrapped up or given up."""

    operation: str
    hops: int

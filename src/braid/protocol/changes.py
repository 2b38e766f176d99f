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
    "ChangeMoving",
    "ChangeReady",
    "ChangeRequest",
    "MoveEntries",
    "MoveInUse",
    "MoveLast",
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
    """How it is done: one of the ways of `operation_requests.py`."""


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


class ChangeMoving(_Change, tag=60, frozen=True):
    """Sequenced, to the last broker of the path: these entries that I told you will come from the first one.

    Or to the first one, over the link that is to be: I have told you everything so far.
    """

    operation: str
    keys: list[str]
    last: bool
    """Whether everything is said that there is to be known so far."""


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


class MoveEntries(_Change, tag=75, frozen=True):
    """Sequenced, from the broker that moves to its new neighbour and back along the path.

    What is wanted behind it, for the temporary tables of a delta-move.
    """

    operation: str
    filters: list[str]


class MoveInUse(_Change, tag=76, frozen=True):
    """Sequenced, the same way, behind all publications: from here on everything goes both ways.

    The broker that moves says so first, behind the last of its entries.
    """

    operation: str


class MoveLast(_Change, tag=77, frozen=True):
    """Sequenced, along the path behind all publications: from the broker that has moved nothing more comes
    this way."""

    operation: str

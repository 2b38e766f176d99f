"""Operations that change links of the tree: what a broker knows of the one it takes part in.

A SHIFT hangs the first broker of a path on its last one instead of the second (availability paper, section
III). A path of three brokers is a SHIFT as printed; with more brokers the same protocol rewires them all at
once (*direct*).

This is data that several handlers read. Only `Reconfigurations` changes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from braid.broker.operation_life import OPERATION_LIFE, OperationStage
from braid.broker.parties import Link
from braid.broker.snapshot import OperationSnapshot
from braid.errors import RemoteProtocolError, RequestRefusedError
from braid.protocol import PublicationBatch
from braid.protocol.messages import (
    Advertise,
    DropDurable,
    Separate,
    Subscribe,
    SubscribeDurable,
    Unadvertise,
    Unsubscribe,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from braid.broker.operation_life import OperationStep
    from braid.broker.parties import Client, Party
    from braid.protocol.changes import ChangeReady, ChangeRequest

__all__ = [
    "DELTA",
    "ID_LENGTH_MAX",
    "PATH_MAX",
    "Changing",
    "Ended",
    "Operation",
    "checked_path",
    "requested_path",
]

# What waits at the door while an operation runs here: publications, and all that changes tables.
_HELD = frozenset(
    {
        PublicationBatch,
        Subscribe,
        Unsubscribe,
        Advertise,
        Unadvertise,
        SubscribeDurable,
        DropDurable,
        Separate,
    }
)
PATH_MAX = 64
# The way of doing it in which publications go on meanwhile.
DELTA = "delta"
ID_LENGTH_MAX = 128
# Brokers whose links an operation has ended; the oldest are forgotten.
ENDED_MAX = 256
# Operations that are over and remembered, so that what comes late means nothing and a question has an answer.
OVER_MAX = 256

_STAGE = OperationStage


class Ended(NamedTuple):
    """A link that an operation has ended: until another operation makes it again it is not to be."""

    epoch: int
    place: str
    """Who has its place now."""
    address: str
    """Where that broker can be dialled."""


@dataclass(slots=True, eq=False)
class Operation:
    """One operation, as one of its brokers sees it."""

    id: str
    kind: str
    by: str
    path: tuple[str, ...]
    epoch: int
    here: str
    """This broker."""
    until_us: int = 0
    """When it has taken too long, in this stage."""
    asker: tuple[Client, int] | None = None
    """The operator's client and its request, where it was asked for."""
    lock: int = 0
    """The token of the lock; 0 if there is none."""
    locked: bool = False
    """Whether it may begin as soon as no shortcut is used past its links."""
    addresses: tuple[str, str] = ("", "")
    """Where the first and the last broker of the path can be dialled."""
    brokers: frozenset[str] = frozenset()
    """The first broker of the path, and those who are reached through it."""
    copied: bool = False
    """Whether its tables were prepared here before it was decided."""
    answer: ChangeReady | None = None
    """The marker that has come back, until it can go on."""
    all_said: bool = False
    """Where tables are copied ahead: whether a marker has come that waits until nothing is left to be told;
    at the broker that moves, whether the new neighbour has told everything."""
    written: bool = False
    """Whether the decision is safe in the store of this broker, if it has one."""
    told_done: bool = False
    """Whether the broker before on the path has carried out its part."""
    said_done: bool = False
    """Whether this one has told the broker after so."""
    told_finish: bool = False
    """Whether the broker after on the path has told everything that moved."""
    passed_on: bool = False
    """Whether this broker has told the one before that it has."""
    all_finished: bool = False
    """Whether all brokers before on the path know that."""
    begun_us: int = 0
    flows: bool = False
    """Whether publications go on meanwhile, and only what changes tables is held: a delta-move."""
    marked: bool = False
    """Whether all has come that the first broker had sent the old way."""
    stage: OperationStage = OperationStage.IDLE

    def step(self, step: OperationStep) -> None:
        """Something has happened to it; for its owner alone.

        Raises:
            LocalProtocolError: that cannot happen in the stage that it is in.
        """
        self.stage = OPERATION_LIFE.after(self.stage, step, self)

    @property
    def position(self) -> int:
        """Where this broker is on the path."""
        return self.path.index(self.here)

    @property
    def first(self) -> bool:
        """Whether this broker moves."""
        return self.here == self.path[0]

    @property
    def last(self) -> bool:
        """Whether the first broker is to be linked to this one."""
        return self.here == self.path[-1]

    @property
    def before(self) -> str:
        """The broker before this one on the path; empty for the first."""
        return "" if self.first else self.path[self.position - 1]

    @property
    def after(self) -> str:
        """The broker after this one on the path; empty for the last."""
        return "" if self.last else self.path[self.position + 1]

    @property
    def toward(self) -> str:
        """The neighbour through which the first broker, which has moved, is reached from now on."""
        return self.path[0] if self.last else self.after

    @property
    def paused(self) -> bool:
        """Whether publications are held at the door."""
        return self.stage in (_STAGE.PREPARED, _STAGE.FLUSHED, _STAGE.COMMITTED)

    @property
    def stops(self) -> bool:
        """Whether no publication of a client is routed."""
        return self.paused and not self.flows

    @property
    def decided(self) -> bool:
        """Whether there is no way back."""
        return self.stage in (_STAGE.COMMITTED, _STAGE.RESUMED, _STAGE.FINISHED)

    @property
    def over(self) -> bool:
        """Whether nothing more happens to it."""
        return self.stage in (_STAGE.FINISHED, _STAGE.ABORTED)

    def snapshot(self) -> OperationSnapshot:
        """What operators see of it."""
        return OperationSnapshot(
            id=self.id,
            kind=self.kind,
            path=self.path,
            epoch=self.epoch,
            stage=self.stage.name.lower(),
            paused=self.paused,
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.id} of {', '.join(self.path)}"


def requested_path(arguments: Mapping[str, str], here: str) -> tuple[str, ...]:
    """The path that an operator wants to have changed, at the broker that is to move.

    Raises:
        RequestRefusedError: it is none.
    """
    kind = arguments.get("operation", "shift")
    if kind == "shift":
        path = tuple(arguments.get(name, "") for name in ("moving", "old", "new"))
    elif kind in ("direct", "delta"):
        path = tuple(arguments.get("path", "").split(","))
    else:
        raise RequestRefusedError(f"an operation is 'shift', 'direct' or 'delta', not {kind!r}", "argument")
    if not 3 <= len(path) <= PATH_MAX or len(set(path)) < len(path) or not all(path):
        raise RequestRefusedError(
            f"{kind} needs a path of 3 to {PATH_MAX} different brokers: the one that moves, its old "
            f"neighbour, and so on to the new one; not {', '.join(path)!r}",
            "argument",
        )
    if path[0] != here:
        raise RequestRefusedError(f"this is {here}; ask {path[0]}, the broker that is to move", "elsewhere")
    return path


def checked_path(path: Sequence[str], here: str) -> tuple[str, ...]:
    """The path that a neighbour speaks of.

    Raises:
        RemoteProtocolError: this broker is not on it, or it is none.
    """
    if here not in path or not 3 <= len(path) <= PATH_MAX or len(set(path)) < len(path):
        raise RemoteProtocolError(f"a change of the path {', '.join(path)[:1000]!r} makes no sense here")
    return tuple(path)


class Changing:
    """The operation that a broker takes part in, and what earlier ones have left."""

    def __init__(self, broker_id: str) -> None:
        self.broker_id = broker_id
        self.current: Operation | None = None
        self.dialled = ""
        """The address that is dialled for the new link."""
        self.epoch = 0
        """That of the latest operation that was decided here."""
        self.ended: dict[str, Ended] = {}
        """By neighbour: links that operations have ended."""
        self.over: dict[str, str] = {}
        """The operations that are over, with what came of them; the oldest are forgotten."""
        self.leaving: set[str] = set()
        """Neighbours that tables know and that are none: not any more, or not yet."""
        self.moving = False
        """Whether entries of tables are on their way to where they belong."""

    @property
    def active(self) -> bool:
        """Whether an operation is under way here, or has left something to be done."""
        return self.current is not None or self.moving

    def requested(self, message: ChangeRequest, neighbour: str) -> Operation:
        """The operation that a neighbour asks to prepare.

        Raises:
            RemoteProtocolError: it is not the one to ask for that, or it makes no sense.
        """
        path = checked_path(message.path, self.broker_id)
        position = path.index(self.broker_id)
        if not position or path[position - 1] != neighbour or len(message.operation) > ID_LENGTH_MAX:
            raise RemoteProtocolError(f"a change of the path {', '.join(path)!r} does not come from there")
        epoch = max(message.epoch, self.epoch + 1)
        return Operation(
            message.operation,
            message.kind,
            message.by,
            path,
            epoch,
            self.broker_id,
            flows=message.by == DELTA,
        )

    @property
    def engaged(self) -> bool:
        """Whether the operation under way leaves no room for another one."""
        current = self.current
        return current is not None and not current.over and current.stage is not _STAGE.UNDECIDED

    def require_free(self, operation: Operation, reserved: str) -> None:
        """Refuse an operation that is over, or while there is another one, or something that excludes it.

        Raises:
            RequestRefusedError: it cannot begin now, or never.
        """
        if self.engaged or self.moving or reserved:
            busy = self.current if self.engaged else reserved or "what another operation has left to be done"
            raise RequestRefusedError(f"{self.broker_id} takes part in {busy}", "busy")
        if operation.id in self.over:
            outcome = self.over[operation.id]
            raise RequestRefusedError(f"at {self.broker_id} {operation} was {outcome}", "over")

    @property
    def paused(self) -> bool:
        """Whether anything is held at the door."""
        return self.current is not None and self.current.paused

    @property
    def stopped(self) -> bool:
        """Whether publications of clients are."""
        return self.current is not None and self.current.stops

    def held(self, party: Party, kind: type) -> bool:
        """Whether messages of a kind from a party wait until the operation is through.

        What comes along the path is not held before the decision: it was routed by the tables that are still
        in force, and has to go on before the markers. After the decision only publications wait.
        """
        operation = self.current
        if operation is None or not operation.paused or kind not in _HELD:
            return False
        if operation.flows and kind is PublicationBatch:
            return self._early(operation, party)
        if not isinstance(party, Link) or party.name not in operation.path:
            return True
        if operation.stage is not _STAGE.COMMITTED:
            return False
        # What comes from where the first broker is now waits until the broker before has told what was hidden
        # behind entries that have moved: nobody may believe for a moment that there is less.
        early = (
            operation.position > 1
            and not operation.told_done
            and not operation.copied
            and party.name == operation.toward
        )
        return early or kind is PublicationBatch

    def moves(self, neighbour: str) -> bool:
        """Whether this broker moves to a neighbour, as is decided."""
        operation = self.current
        return (
            operation is not None
            and operation.first
            and operation.decided
            and neighbour == operation.path[-1]
        )

    @staticmethod
    def _early(operation: Operation, party: Party) -> bool:
        """Whether publications over the new link of a delta-move wait until all sent before is there.

        At the broker that moves that is so when all that is on its way the old way comes the new way as well;
        at the other end, when what the broker that moves had sent the old way has come.
        """
        if not isinstance(party, Link):
            return False
        if operation.first:
            return not operation.decided and party.name == operation.path[-1]
        return operation.last and not operation.marked and party.name == operation.path[0]

    def awaits(self, name: str, operation: str) -> bool:
        """Whether a broker may come for the link that an operation makes."""
        current = self.current
        return current is not None and current.id == operation and name in (current.path[0], current.path[-1])

    def successor(self, link: Link) -> str:
        """Where what a neighbour takes back belongs from now on; empty if it is just taken back.

        Between the decision and the word that it is done, the broker before on the path takes back what came
        from the one that has moved, and nothing else.
        """
        operation = self.current
        if operation is None or operation.stage is not _STAGE.COMMITTED or operation.told_done:
            return ""
        if operation.copied:
            return ""
        return operation.toward if link.name == operation.before and operation.position > 1 else ""

    def forget(self, outcome: str) -> None:
        """The operation is over here."""
        if self.current is not None:
            self.over[self.current.id] = outcome
        while len(self.over) > OVER_MAX:
            del self.over[next(iter(self.over))]
        self.current = None
        self.dialled = ""

    def end(self, name: str, ended: Ended) -> None:
        """A link is not to be any more."""
        self.ended.pop(name, None)
        self.ended[name] = ended
        while len(self.ended) > ENDED_MAX:
            self.ended.pop(next(iter(self.ended)))

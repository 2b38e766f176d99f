"""What operators ask brokers to change, under the locks of those concerned, and what they hear of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from braid.broker.operations import DELTA, ID_LENGTH_MAX, Changing, Operation, requested_path
from braid.errors import RequestRefusedError
from braid.protocol.effects import Lock, Unlock
from braid.protocol.inputs import Locked, LockLost, LockRefused
from braid.protocol.messages import Done

if TYPE_CHECKING:
    from collections.abc import Callable

    from braid.broker.parties import Client
    from braid.broker.turn import Turn
    from braid.protocol.messages import Ask

__all__ = ["PRECOPY", "OperationRequests"]

PRECOPY = "precopy"
WAYS = ("three-phase", PRECOPY, DELTA)
"""How an operation can be done: as the paper has it, with tables copied ahead, or without a pause at all."""


class OperationRequests:
    """Takes the requests of operators, and answers them in the end.

    Args:
        turn: where answers and effects go.
        changing: the operation under way.
        require_possible: whether an operation could begin now.
        ask: an operator has asked for one.
        begin: its locks are ours.
        give_up: they are not to be had, or lost.
        new_id: a name that nobody else gives.
    """

    def __init__(
        self,
        turn: Turn,
        changing: Changing,
        *,
        require_possible: Callable[[Operation], None],
        ask: Callable[[Operation], None],
        begin: Callable[[Operation], None],
        give_up: Callable[[Operation, str], None],
        new_id: Callable[[], str],
    ) -> None:
        self._turn = turn
        self._changing = changing
        self._require_possible = require_possible
        self._ask = ask
        self._begin = begin
        self._give_up = give_up
        self._new_id = new_id
        self._locks = 0

    def ask(self, client: Client, message: Ask) -> None:
        """An operator asks for an operation at the broker that is to move.

        Who asks again, with the same id, hears what came of it. So a command that was interrupted goes on.

        Raises:
            RequestRefusedError: it cannot be done, or not now.
        """
        arguments = message.arguments
        settings = self._turn.settings
        path = requested_path(arguments, settings.broker_id)
        name = arguments.get("id") or self._new_id()
        asker = (client, message.request)
        if self._changing.over.get(name) == "finished":
            self._tell(asker, {"id": name, "outcome": "finished"})
            return
        current = self._changing.current
        if current is not None and current.id == name:
            current.asker = asker
            return
        if len(name) > ID_LENGTH_MAX or name in self._changing.over:
            raise RequestRefusedError(
                f"an id is new and has at most {ID_LENGTH_MAX} characters: {name[:ID_LENGTH_MAX]!r}",
                "argument",
            )
        delta = arguments.get("operation") == "delta"
        by = arguments.get("by") or (DELTA if delta else WAYS[0])
        if by not in WAYS:
            raise RequestRefusedError(
                f"an operation is done by one of {', '.join(WAYS)}, not {by!r}", "argument"
            )
        if delta and by != DELTA:
            raise RequestRefusedError(f"a delta-move is not done by {by!r}", "argument")
        kind = DELTA if by == DELTA else "shift" if len(path) == 3 else "direct"
        if by == PRECOPY and kind == "direct":
            raise RequestRefusedError(
                "a whole path is rewired by three-phase: tables are copied ahead for a SHIFT alone",
                "argument",
            )
        operation = self._asked(name, kind, by, path, 0)
        operation.asker = asker
        operation.lock = self.new_token()
        self._turn.effect(Lock(operation.lock, path, settings.operation_us_max))

    def shift(self, name: str, path: tuple[str, ...], epoch: int) -> None:
        """Begin a SHIFT of this broker's own, under locks that are held already.

        Raises:
            RequestRefusedError: it cannot be done, or not now.
        """
        self._begin(self._asked(name, "shift", WAYS[0], path, epoch))

    def _asked(self, name: str, kind: str, by: str, path: tuple[str, ...], epoch: int) -> Operation:
        settings = self._turn.settings
        epoch = max(epoch, self._changing.epoch + 1)
        operation = Operation(name, kind, by, path, epoch, settings.broker_id, flows=by == DELTA)
        self._require_possible(operation)
        operation.begun_us = self._turn.now_us
        operation.until_us = self._turn.now_us + 2 * settings.operation_us_max
        self._ask(operation)
        return operation

    def new_token(self) -> int:
        """For locks that the directory is asked for, unlike all others of this broker."""
        self._locks += 1
        return self._locks

    def lock(self, stimulus: Locked | LockRefused | LockLost) -> None:
        """The directory says whether the locks of an operation's brokers are ours.

        Where there is no directory, brokers look after themselves: each takes part in one at a time.
        """
        operation = self._changing.current
        if operation is None or not operation.lock or operation.lock != stimulus.token or operation.decided:
            return
        if isinstance(stimulus, Locked):
            operation.epoch = max(operation.epoch, stimulus.epoch)
            self._begin(operation)
            return
        operation.lock = 0
        if isinstance(stimulus, LockLost):
            self._give_up(operation, f"the lock was lost: {stimulus.reason}")
        elif stimulus.temporary:
            self._give_up(operation, stimulus.reason)
        else:
            self._begin(operation)

    def over(self, operation: Operation, problem: str) -> None:
        """An operation is over here: locks are given back, and who asked for it hears what came of it."""
        if operation.lock:
            self._turn.effect(Unlock(operation.lock))
        if operation.asker is None:
            return
        client, request = operation.asker
        if problem and client.connection is not None:
            reason = f"{operation} was given up, and nothing has changed: {problem}"
            self._turn.fail(client, request, RequestRefusedError(reason, "given_up"))
        elif not problem:
            took_us = self._turn.now_us - operation.begun_us
            self._tell(
                operation.asker,
                {"id": operation.id, "operation": operation.kind, "outcome": "finished", "took_us": took_us},
            )

    def _tell(self, asker: tuple[Client, int], answer: dict[str, Any]) -> None:
        client, request = asker
        if client.connection is not None:
            self._turn.tell(client, Done(request, msgspec.json.encode(answer).decode()))

"""How does a broker take part in a SHIFT whose pause does not grow with the tables?

Before the three phases of `reconfigurations.py` there is one more, in which tables travel to their new
places and everything goes on as before (*pre-copy*; `copying.py` says what travels where). The request and
the answer go along the path once for it, and nothing waits; the broker that moves makes its new connection
then. When all is said, they go along the path a second time, now in line behind publications, and what was
prepared counts from the decision on.

Nobody passes the marker on before all that it has to tell is on its way ahead of it. So at the decision
nothing is under way that tables would have to learn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.broker.delta_moves import DeltaMoves
from braid.broker.operation_life import OperationStage, OperationStep
from braid.broker.operation_requests import PRECOPY
from braid.protocol.changes import ChangeReady
from braid.protocol.effects import Dial

if TYPE_CHECKING:
    from braid.broker.events import Joined, JoinLost, LinkBegun
    from braid.broker.operations import Operation
    from braid.broker.parties import Link
    from braid.protocol.changes import ChangeMoving, ChangeRequest

__all__ = ["PreCopies"]

# Copying may take so many times as long as what holds publications. Links that are lost end it at once.
PATIENCE = 30

_STAGE, _STEP = OperationStage, OperationStep


class PreCopies(DeltaMoves):
    """Takes part in operations, of which some copy tables ahead."""

    def _prepare(self, operation: Operation) -> None:
        if operation.by != PRECOPY:
            super()._prepare(operation)
            return
        self._copy(operation)
        self._ask_to_prepare(operation)

    def _copy(self, operation: Operation) -> None:
        """Tables travel ahead."""
        self._changing.current = operation
        limit_us = PATIENCE * self._turn.settings.operation_us_max
        operation.until_us = self._turn.now_us + (limit_us if operation.first else 2 * limit_us)
        self._step(operation, _STEP.COPYING)
        self._copying.begin(operation)

    def requested(self, link: Link, message: ChangeRequest) -> None:
        """The broker before on the path asks to copy, or then to prepare."""
        operation = self._of(message.operation)
        if operation is not None and operation.stage is _STAGE.COPYING and link.name == operation.before:
            self._wait_for_the_rest(operation)
            return
        if message.by != PRECOPY:
            super().requested(link, message)
            return
        operation = self._admitted(link, message)
        if operation is None:
            return
        self._copy(operation)
        if operation.last:
            ready = ChangeReady(operation.id, self._turn.settings.address, operation.epoch)
            self._turn.tell(link, ready, in_line=True)
        else:
            self._ask_to_prepare(operation)

    def _wait_for_the_rest(self, operation: Operation) -> None:
        """Hold publications; the marker goes on when nothing is left to be told before it."""
        self._step(operation, _STEP.REQUESTED)
        self._hold(operation)
        operation.all_said = True
        self.look()

    def ready(self, link: Link, message: ChangeReady) -> None:
        """All brokers further on are ready: to copy, or then to change."""
        operation = self._of(message.operation)
        if operation is None or operation.by != PRECOPY or link.name != operation.after:
            super().ready(link, message)
        elif operation.stage is _STAGE.COPYING:
            operation.addresses = (self._turn.settings.address, message.address)
            operation.epoch = max(operation.epoch, message.epoch)
            if not operation.first:
                self._turn.tell(self._neighbours[operation.before], message, in_line=True)
            elif not message.address:
                self._give_up(operation, f"{operation.path[-1]} does not say where it can be dialled")
            else:
                self._changing.dialled = message.address
                self._turn.effect(Dial(message.address, frame_bytes_max=self._turn.settings.frame_bytes_max))
        elif operation.stage is _STAGE.PREPARED:
            operation.answer = message
            self.look()

    def joined(self, event: Joined) -> None:
        """The new link has a connection: before the decision, what is to be known can be told over it."""
        operation = self._changing.current
        if operation is None or operation.stage is not _STAGE.COPYING:
            super().joined(event)
        elif event.link.name == (operation.path[-1] if operation.first else operation.path[0]):
            self._copying.joined(operation, event.link)

    def moving(self, link: Link, message: ChangeMoving) -> None:
        """The old neighbour says what moves, or the new one that it has told everything."""
        operation = self._of(message.operation)
        if operation is None or operation.decided or not self._copying.prepares(operation):
            return
        if self._copying.moving(operation, link, message) and operation.paused:
            operation.all_said = True
        self.look()

    def look(self) -> None:
        """Go on with what can go on."""
        operation = self._changing.current
        if operation is not None and operation.by == PRECOPY and not operation.decided:
            if self._copying.prepares(operation):
                self._copying.step(operation)
            self._go_on(operation)
        super().look()

    def _go_on(self, operation: Operation) -> None:
        """Towards the decision."""
        if operation.first:
            self._go_on_at_first(operation)
        elif operation.stage is _STAGE.PREPARED and operation.all_said:
            if not operation.last:
                if self._copying.complete and self._quiet(operation.after):
                    operation.all_said = False
                    self._ask_to_prepare(operation)
            elif self._quiet(operation.before, operation.path[0]):
                operation.all_said = False
                self._step(operation, _STEP.READY)
                self._copying.say_all(operation)
                ready = ChangeReady(operation.id, self._turn.settings.address, operation.epoch)
                self._turn.tell(self._neighbours[operation.before], ready, in_line=True)
        elif operation.stage is _STAGE.PREPARED and operation.answer and self._quiet(operation.before):
            self._step(operation, _STEP.READY)
            self._turn.tell(self._neighbours[operation.before], operation.answer, in_line=True)

    def _go_on_at_first(self, operation: Operation) -> None:
        old, copying = operation.after, self._copying
        if operation.stage is _STAGE.COPYING:
            if copying.complete and copying.link is not None and copying.quiet(old, confirmed=True):
                operation.all_said = False
                self._step(operation, _STEP.REQUESTED)
                self._hold(operation)
                self._ask_to_prepare(operation)
        elif operation.stage is _STAGE.PREPARED and operation.answer is not None:
            self._step(operation, _STEP.READY)
        if operation.stage is _STAGE.FLUSHED and operation.all_said and copying.link is not None:
            self._joined(operation, copying.link)

    def _quiet(self, *names: str) -> bool:
        return all(self._copying.quiet(name) for name in names)

    def link_begun(self, event: LinkBegun) -> None:
        """A session has begun anew: its other end may have forgotten what was to be copied."""
        operation = self._changing.current
        if (
            operation is not None
            and operation.stage is _STAGE.COPYING
            and event.link.name == operation.before
            and not event.ahead
        ):
            self._give_up(operation, f"{event.link.name} has begun anew")
            return
        super().link_begun(event)

    def join_lost(self, event: JoinLost) -> None:
        """The connection for the new link has ended before the decision, as far as is known here."""
        operation = self._changing.current
        if operation is not None and operation.last and operation.stage is _STAGE.COPYING:
            self._give_up(operation, f"the connection to {event.link.name} was lost")
            return
        super().join_lost(event)

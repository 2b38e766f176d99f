"""How does a broker take part in a change of the tree while publications flow?

SHIFT(i, j, k) of the availability paper (section III-B, Algorithm 1), and the same over a longer path. The
broker that moves, the first of the path, is asked by an operator and decides:

1. *Flush.* It holds publications at its door and sends a marker along the path, in line behind everything
   that it has sent. Each broker that gets it does the same; the last one sends a marker back. What comes
   along the path is still routed. When the marker is back, nothing is under way between them.
2. *Decide.* It makes a connection to the last broker. If that works, it decides, and tells both neighbours.
   Until here nothing has changed: any refusal, loss or delay ends with everything as it was.
3. *Rewrite* (Table III, corrected). The first broker renames the origin of what came from its old neighbour.
   The second one lets the entries of the first come from the next broker; that takes those back from the next
   one, which keeps them as entries of where they come from now. What was hidden behind them is told first.
   Over the new link both ends say everything, as in any new session.
4. *Resume.* Each broker lets publications go as soon as its own tables are right.

From the decision on every broker carries out its part whenever and however it hears of it. If the first
broker is not there to be asked, the others go on in the old tree with a link that is down, until it comes
back, to the old neighbour or to the new one: then they know.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from braid.broker.events import (
    LinkOpening,
    OperationEnded,
    PlaceChanged,
    PublicationsHeld,
    PublicationsResumed,
    TrackLost,
)
from braid.broker.link_life import LinkStage
from braid.broker.operation_life import OperationStage, OperationStep
from braid.broker.operation_requests import OperationRequests
from braid.broker.operations import (
    ID_LENGTH_MAX,
    Changing,
    Ended,
    Operation,
    checked_path,
)
from braid.broker.settling import Pending, WaitingFor
from braid.errors import RemoteProtocolError, RequestRefusedError
from braid.protocol.changes import (
    ChangeAbort,
    ChangeCommit,
    ChangeDone,
    ChangeFinish,
    ChangeReady,
    ChangeRequest,
)
from braid.protocol.effects import Dial, Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from braid.broker.copying import Copying
    from braid.broker.events import DialFailed, Events, Joined, JoinLost, LinkBegun, LinkLost
    from braid.broker.link_changes import MovableLinks
    from braid.broker.parties import Link
    from braid.broker.shortcut_limits import ShortcutLimits
    from braid.broker.table_moves import TableMoves
    from braid.broker.turn import Turn
    from braid.routing import RoutingTables, Tell

__all__ = ["Reconfigurations"]

# While something is waited for that other turns bring about, it is looked at again so soon.
LOOK_US = 20_000

_STAGE, _STEP = OperationStage, OperationStep


class Reconfigurations:
    """Takes part in operations.

    Args:
        turn: where messages and effects go.
        changing: what is known of the operation under way.
        links: whose places change.
        tables: what came from which neighbour.
        moves: moves it to another one.
        copying: has prepared that.
        limits: shortcuts that are avoided meanwhile.
        events: tells others what has changed.
        inform: tells neighbours what they have to know.
        drop_stale: forgets what a neighbour did not repeat.
        new_id: a name that nobody else gives.
        refusing: whether this broker is about to stop.
        when_safe: settles something once all that the store was asked for so far is done.
        reserved_from: what other change an operation has to wait for; empty if there is none.
    """

    def __init__(
        self,
        turn: Turn,
        changing: Changing,
        links: MovableLinks,
        tables: RoutingTables,
        moves: TableMoves,
        copying: Copying,
        limits: ShortcutLimits,
        events: Events,
        *,
        inform: Callable[[Iterable[Tell]], None],
        drop_stale: Callable[[LinkOpening], None],
        new_id: Callable[[], str],
        refusing: Callable[[], bool],
        when_safe: Callable[[Pending], None],
        reserved_from: Callable[[Operation], str],
    ) -> None:
        self._turn = turn
        self._here = turn.settings.broker_id
        self._changing = changing
        self._links = links
        self._neighbours: Mapping[str, Link] = links.links
        self._tables = tables
        self._moves = moves
        self._copying = copying
        self._limits = limits
        self._events = events
        self._inform = inform
        self._drop_stale = drop_stale
        self._refusing = refusing
        self._when_safe = when_safe
        turn.settlement.resolve(WaitingFor.DECISION, self._written)
        self._reserved_from = reserved_from
        self.requests = OperationRequests(
            turn,
            changing,
            require_possible=self._require_free,
            ask=self._asked,
            begin=self._begin,
            give_up=self._give_up,
            new_id=new_id,
        )

    # Flush.

    def _asked(self, operation: Operation) -> None:
        self._changing.current = operation
        self._step(operation, _STEP.ASKED)

    def _begin(self, operation: Operation) -> None:
        if operation.stage is not _STAGE.LOCKING:
            return
        try:
            self._links.require_open(operation.after)
        except RequestRefusedError as error:
            self._give_up(operation, str(error))
            return
        operation.locked = True
        self._limits.begin(operation)

    def _prepare(self, operation: Operation) -> None:
        """No shortcut bypasses the link: it can be flushed."""
        self._step(operation, _STEP.REQUESTED)
        self._hold(operation)
        self._ask_to_prepare(operation)

    def _ask_to_prepare(self, operation: Operation) -> None:
        request = ChangeRequest(
            operation.id, operation.kind, list(operation.path), operation.epoch, operation.by
        )
        self._turn.tell(self._neighbours[operation.after], request, in_line=True)

    def requested(self, link: Link, message: ChangeRequest) -> None:
        """The broker before on the path asks to prepare, behind all publications that it has sent."""
        operation = self._admitted(link, message)
        if operation is None:
            return
        self._changing.current = operation
        self._step(operation, _STEP.REQUESTED)
        self._hold(operation)
        if operation.last:
            self._step(operation, _STEP.READY)
            ready = ChangeReady(operation.id, self._turn.settings.address, operation.epoch)
            self._turn.tell(link, ready, in_line=True)
        else:
            self._ask_to_prepare(operation)

    def _admitted(self, link: Link, message: ChangeRequest) -> Operation | None:
        """The operation, if this broker can take part in it."""
        operation = self._changing.requested(message, link.name)
        operation.begun_us = self._turn.now_us
        try:
            self._require_free(operation)
        except RequestRefusedError as error:
            self._turn.tell(link, ChangeAbort(message.operation, str(error)), in_line=True)
            return None
        return operation

    def _require_free(self, operation: Operation) -> None:
        self._changing.require_free(operation, self._reserved_from(operation))
        if self._refusing():
            raise RequestRefusedError(f"{self._here} is about to stop", "closing")
        if operation.before:
            self._links.require_open(operation.before)
        if operation.after:
            self._links.require_open(operation.after)
        elif operation.path[0] in self._neighbours:
            raise RequestRefusedError(f"{operation.path[0]} is a neighbour of {self._here} already", "linked")

    def ready(self, link: Link, message: ChangeReady) -> None:
        """All brokers further on are ready, and what they had sent has come."""
        operation = self._of(message.operation)
        if operation is None or operation.stage is not _STAGE.PREPARED or link.name != operation.after:
            return
        self._step(operation, _STEP.READY)
        operation.addresses = (self._turn.settings.address, message.address)
        operation.epoch = max(operation.epoch, message.epoch)
        if not operation.first:
            self._turn.tell(self._neighbours[operation.before], message, in_line=True)
        elif not message.address:
            self._give_up(operation, f"{operation.path[-1]} does not say where it can be dialled")
        else:
            self._changing.dialled = message.address
            self._turn.effect(Dial(message.address, frame_bytes_max=self._turn.settings.frame_bytes_max))

    # Decide.

    def joined(self, event: Joined) -> None:
        """The new link has a connection. The broker that moves decides now; the other one waits for that."""
        operation = self._changing.current
        if operation is None or not operation.first or event.link.name != operation.path[-1]:
            return
        if operation.stage is not _STAGE.FLUSHED:
            self._links.give_up_joining()
            return
        self._joined(operation, event.link)

    def _joined(self, operation: Operation, new: Link) -> None:
        """Decide, at the broker that moves."""
        old = self._neighbours[operation.after]
        operation.brokers = self._links.reach_besides(old)
        commit = self._commit(operation)
        self._turn.tell(new, commit)
        self._turn.tell(old, commit)
        self._decided(operation)

    def _commit(self, operation: Operation) -> ChangeCommit:
        return ChangeCommit(
            operation.id,
            operation.kind,
            list(operation.path),
            operation.epoch,
            list(operation.addresses),
            sorted(operation.brokers),
        )

    def committed(self, link: Link, message: ChangeCommit) -> None:
        """The change is decided."""
        path = checked_path(message.path, self._here)
        if len(message.addresses) != 2 or len(message.operation) > ID_LENGTH_MAX:
            raise RemoteProtocolError(f"a change of the path {', '.join(path)!r} makes no sense")
        operation = self._of(message.operation)
        if operation is None:
            if self._changing.over.get(message.operation) == "finished":
                # One that was started again has yet to hear that this broker has done its part, and told all.
                self._turn.tell(link, ChangeDone(message.operation))
                self._turn.tell(link, ChangeFinish(message.operation))
            if message.operation in self._changing.over or message.epoch <= self._changing.epoch:
                return
            if self._changing.engaged or (path[0] == self._here and path[1] not in self._neighbours):
                return
            operation = Operation(message.operation, message.kind, "", path, message.epoch, self._here)
            self._changing.current = operation
        elif operation.decided:
            return
        operation.addresses = (message.addresses[0], message.addresses[1])
        operation.brokers = frozenset({path[0], *message.brokers})
        for name in {operation.before, operation.after} - {"", link.name}:
            neighbour = self._neighbours.get(name)
            if neighbour is not None and neighbour.agreed:
                self._turn.tell(neighbour, message)
        self._decided(operation)

    # Rewrite.

    def _decided(self, operation: Operation) -> None:
        held = operation.paused
        self._step(operation, _STEP.DECIDED)
        operation.copied = self._copying.prepares(operation)
        if not held:
            self._hold(operation)
        self._changing.epoch = max(self._changing.epoch, operation.epoch)
        operation.until_us = self._turn.now_us + self._turn.settings.operation_us_max
        first, last = operation.path[0], operation.path[-1]
        place = PlaceChanged(first, operation.path[1], last, "")
        if operation.first:
            self._changing.dialled = operation.addresses[1]
            # The old neighbour has its way to the new one, and makes no other if that is further off.
            address = operation.addresses[1] if len(operation.path) == 3 else ""
            ended = Ended(operation.epoch, last, address)
            old = self._neighbours.get(operation.after)
            if old is not None:
                ahead = partial(self._copying.decided, operation, old) if operation.copied else None
                self._links.take_place(old, last, operation.addresses[1], ended, ahead)
        elif operation.last:
            before = self._neighbours.get(operation.before)
            if first not in self._neighbours:
                ahead = partial(self._copying.decided, operation, None) if operation.copied else None
                new = self._links.welcome(
                    first, operation.addresses[0], before, operation.brokers, operation.path[1], ahead
                )
                heard_all = held and before is not None and before.stage is LinkStage.OPEN
                if not heard_all and new.stage is not LinkStage.OPEN:
                    self._events.tell(TrackLost(new))
        elif operation.position == 1:
            ended = Ended(operation.epoch, last, operation.addresses[1])
            moving, after = self._neighbours.get(first), self._neighbours.get(operation.after)
            if moving is not None:
                self._links.let_go(moving, after, ended, operation.path)
                if operation.copied:
                    self._copying.decided(operation, moving)
                elif after is not None:
                    self._moves.begin(first, after)
        else:
            before, after = self._neighbours.get(operation.before), self._neighbours.get(operation.after)
            self._links.pass_by(before, after, operation.brokers, place)
        self._when_safe(Pending(WaitingFor.DECISION, key=operation))

    def _written(self, pending: Pending) -> None:
        """The decision is safe here: after a crash this broker knows what it did."""
        pending.key.written = True
        if pending.key is self._changing.current:
            self.look()

    def done(self, link: Link, message: ChangeDone) -> None:
        """The broker before on the path has carried out its part."""
        operation = self._of(message.operation)
        if operation is not None and operation.decided and link.name == operation.before:
            operation.told_done = True
            if operation.paused:
                self._events.tell(PublicationsHeld())  # what the broker that has moved says waits no longer

    def finish(self, link: Link, message: ChangeFinish) -> None:
        """All that moved was told, by the broker after on the path; or the one before says that it knows."""
        operation = self._of(message.operation)
        if operation is None or not operation.decided:
            return
        if link.name == (operation.path[-1] if operation.first else operation.after):
            operation.told_finish = True
        elif link.name == operation.before:
            operation.all_finished = True

    # Going on.

    @property
    def next_us(self) -> int | None:
        """When `look` is to be called at the latest."""
        operation = self._changing.current
        if (self._moves.unfinished and not self._moves.waiting) or self._copying.unfinished:
            return self._turn.now_us
        if operation is None:
            return self._turn.now_us + LOOK_US if self._moves.unfinished else None
        return min(operation.until_us, self._turn.now_us + LOOK_US)

    def look(self) -> None:
        """Go on with what can go on; called with every turn while an operation is under way."""
        if self._moves.unfinished:
            self._moves.step()
        operation = self._changing.current
        if operation is None:
            return
        if operation.stage is _STAGE.LOCKING and operation.locked and self._limits.quiet(operation.id):
            self._prepare(operation)
        if operation.written and not (operation.first or operation.last or operation.said_done):
            self._say_done(operation)
        if operation.stage is _STAGE.COMMITTED and self._part_done(operation):
            self._part_is_done(operation)
        if operation.stage is _STAGE.RESUMED and operation.written and self._wrapped_up(operation):
            self._finished(operation)
        elif self._turn.now_us >= operation.until_us and not operation.over:
            self._overdue(operation)

    def _part_done(self, operation: Operation) -> bool:
        """Whether the tables of this broker are right, so that publications can go on."""
        if operation.first or not operation.written:
            return operation.first
        if operation.copied:
            return True
        if operation.position == 1:
            return not self._moves.unfinished and self._tables.settled(operation.after)
        if not operation.told_done:
            return False
        if operation.last:
            # What the broker before has forgotten to take back counts as its own here, and would be told to
            # where it came from.
            new, before = self._neighbours.get(operation.path[0]), self._neighbours.get(operation.before)
            if before is None or not before.stale_subscriptions or (new is not None and new.complete):
                self._hand_over(operation)
            return new is None or new.complete
        # One in the middle learns from further on what was hidden from it behind entries before.
        return operation.told_finish

    def _hand_over(self, operation: Operation) -> None:
        """The broker that has moved is told everything from now on."""
        new = self._neighbours.get(operation.path[0])
        if new is not None and new.handing_over:
            new.handing_over = False
            self._inform(self._tables.unmute(new.name))
            self._links.tell_complete()

    def _part_is_done(self, operation: Operation) -> None:
        self._step(operation, _STEP.PART_DONE)
        self._carry_over(operation)
        self._resume(operation)

    def _carry_over(self, operation: Operation) -> None:
        """What was sent the old way and is not settled goes the new way, before publications go on."""
        toward = operation.path[-1] if operation.first else operation.toward
        before = operation.before if operation.position > 1 else ""
        self._links.carry_over(self._neighbours.get(toward), self._neighbours.get(before))

    def _say_done(self, operation: Operation) -> None:
        """Tell the broker after that all it has to know of what moved is said, once that is so."""
        after = self._neighbours.get(operation.after)
        moved = not self._moves.unfinished if operation.position == 1 else operation.told_done
        if moved and after is not None and after.agreed and self._tables.settled(after.name):
            operation.said_done = True
            self._turn.tell(after, ChangeDone(operation.id))

    def _wrapped_up(self, operation: Operation) -> bool:
        """Whether everything that moved was told, and everybody further back on the path knows that."""
        if operation.first or operation.last:
            new = self._neighbours.get(operation.path[-1] if operation.first else operation.path[0])
            if new is None or new.stage is not LinkStage.OPEN or new.outstanding.announces:
                return False
        if self._moves.unfinished or not (operation.last or operation.told_finish):
            return False
        if operation.position < 2:
            return True
        before = self._neighbours.get(operation.before)
        if not operation.passed_on and before is not None and self._tables.settled(before.name):
            operation.passed_on = True
            self._turn.tell(before, ChangeFinish(operation.id))
        return operation.all_finished

    def _finished(self, operation: Operation) -> None:
        self._step(operation, _STEP.WRAPPED_UP, self._moves.so_far)
        onward = self._neighbours.get(operation.toward)
        if not operation.first and onward is not None:
            self._turn.tell(onward, ChangeFinish(operation.id))
        self._end(operation)

    def _overdue(self, operation: Operation) -> None:
        """It has taken too long here."""
        if not operation.decided and operation.first:
            self._give_up(operation, f"it took too long; it was {operation.stage.name.lower()}")
            return
        held = operation.paused
        before = operation.stage
        self._step(operation, _STEP.OVERDUE)
        self._turn.note(
            "warning", "an operation takes long", operation=operation.id, stage=before.name.lower()
        )
        operation.until_us = self._turn.now_us + 2 * self._turn.settings.operation_us_max
        if operation.stage is _STAGE.RESUMED:
            self._carry_over(operation)
        if held and not operation.paused:
            self._resume(operation)
        if operation.stage is _STAGE.RESUMED:
            if operation.last:
                self._hand_over(operation)
        elif operation.over:
            finished = operation.stage is _STAGE.FINISHED
            self._end(operation, "" if finished else "nothing was heard of the decision")

    # The end.

    def _end(self, operation: Operation, problem: str = "") -> None:
        if self._copying.prepares(operation):
            self._copying.abandon(operation)
        if operation.decided:
            link = self._neighbours.get(operation.path[-1] if operation.first else operation.toward)
            if link is not None and link.complete:
                self._drop_stale(LinkOpening(link))
            self._links.settle_announcements()
        self._changing.forget("given up" if problem else "finished")
        if operation.first:
            self._limits.lift(operation.id)
        self.requests.over(operation, problem)
        if operation.first:
            self._events.tell(OperationEnded(operation.id, problem))

    def _give_up(self, operation: Operation, reason: str) -> None:
        """Nothing has changed, and nothing will."""
        held = operation.paused
        self._step(operation, _STEP.GIVEN_UP, reason)
        self._links.give_up_joining()
        for name in (operation.before, operation.after):
            link = self._neighbours.get(name)
            if link is not None and link.agreed:
                self._turn.tell(link, ChangeAbort(operation.id, reason), in_line=True)
        self._end(operation, reason)
        if held:
            self._resume(operation)

    def aborted(self, link: Link, message: ChangeAbort) -> None:
        """Another broker of the path calls it off, or asks the one that decides to do so."""
        operation = self._of(message.operation)
        if operation is None or operation.decided or link.name not in operation.path:
            return
        if operation.first or link.name == operation.before:
            self._give_up(operation, message.reason)
            return
        before = self._neighbours.get(operation.before)
        if before is not None and before.agreed:
            self._turn.tell(before, message, in_line=True)

    # What happens to links meanwhile.

    def link_lost(self, event: LinkLost) -> None:
        """The connection of a link has ended."""
        operation, name = self._changing.current, event.link.name
        if operation is None or operation.decided or name not in (operation.before, operation.after):
            return
        if self._neighbours.get(name) is not event.link:
            return  # a former link to that broker, which had left and is settled now
        if operation.first:
            self._give_up(operation, f"the link to {name} was lost")
        elif name == operation.after:
            before = self._neighbours.get(operation.before)
            if before is not None and before.agreed:
                abort = ChangeAbort(operation.id, f"{self._here} has lost its link to {name}")
                self._turn.tell(before, abort, in_line=True)

    def link_begun(self, event: LinkBegun) -> None:
        """A session has begun anew: its other end may have forgotten everything."""
        operation, name = self._changing.current, event.link.name
        if operation is None or name not in operation.path or event.ahead:
            return
        self._moves.begun_anew(event.link)
        if operation.decided:
            operation.passed_on = operation.said_done = False
            new = self._neighbours.get(operation.path[0])
            if operation.last and name == operation.before and new is not None and not new.complete:
                # It will not take back what it has forgotten: who wants what behind the first broker is known
                # again when that one has said so.
                self._events.tell(TrackLost(new))
            # Not in line: publications may wait until the other end knows where everybody is.
            self._turn.tell(event.link, self._commit(operation))
        elif operation.position == 1 and name == operation.before:
            # The broker that decides is back where it was.
            self._give_up(operation, f"{name} has begun anew")

    def join_lost(self, event: JoinLost) -> None:
        """The connection for the new link has ended before the decision."""
        operation = self._changing.current
        if operation is not None and operation.first and not operation.decided:
            self._give_up(operation, f"the connection to {event.link.name} was lost")

    def dial_failed(self, event: DialFailed) -> None:
        """The last broker of the path cannot be dialled."""
        operation = self._changing.current
        if operation is None or event.soft or event.address != self._changing.dialled:
            return
        if operation.first and not operation.decided:
            self._give_up(operation, f"there is no way from {self._here} to {event.address}")

    # All stages.

    def _of(self, name: str) -> Operation | None:
        operation = self._changing.current
        return operation if operation is not None and operation.id == name else None

    def _step(self, operation: Operation, step: OperationStep, detail: str = "") -> None:
        operation.step(step)
        if operation.stage is not _STAGE.RESUMED:  # the row that ends the pause says so
            self._progress(operation, operation.stage.name.lower(), detail)

    def _progress(self, operation: Operation, phase: str, detail: str = "") -> None:
        self._turn.effect(Progress(operation.kind, operation.id, phase, detail))

    def _hold(self, operation: Operation) -> None:
        limit_us = self._turn.settings.operation_us_max
        operation.until_us = self._turn.now_us + (limit_us if operation.first else 2 * limit_us)
        self._progress(operation, "paused")
        self._events.tell(PublicationsHeld())

    def _resume(self, operation: Operation) -> None:
        self._progress(operation, "resumed", self._moves.so_far)
        self._events.tell(PublicationsResumed())

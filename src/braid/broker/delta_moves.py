"""How does a broker change its place without anybody waiting for that (multipath paper, section 6)?

The delta-move in its four phases. What changes links, and who decides, is as for every operation
(`reconfigurations.py`); what is different is that publications go on meanwhile:

1. *Preparation.* The broker that moves asks the coordinator for permission: the locks of the path.
2. *Initialization.* Shortcuts past the links that change are given up (`shortcut_limits.py`), and all
   brokers of the path make ready: until the end they hold what changes tables.
3. *Update.* It connects to its new neighbour and says there what is wanted behind it. From the new end to
   the old one each broker of the path makes a temporary table of that (`detours.py`), and from then on
   publications go both ways. Its word that it does so goes on in line, behind what it has sent the old way
   alone. So when that word is back, all that still comes the old way comes the new way as well; until then
   what comes the new way waits, so that nothing overtakes.
4. *Wrap-up.* The broker that moves decides. It takes what comes from the new link only, but for what it has
   had, sends there what comes from behind it, and the old way a word behind the last that it had sent. The
   new neighbour lets nothing from it pass before that word has come along the path. The old tables become
   the new ones while the temporary ones stand in for them; those go when everybody knows everything.

Before the decision a refusal, a lost link or a delay ends with the old tree, and the second copies are
forgotten: the first went the old way. After it, nobody goes back.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from braid.broker.delta_move_life import MOVE_LIFE, MoveStage, MoveStep
from braid.broker.events import PublicationsHeld
from braid.broker.maps import told_bytes
from braid.broker.operation_life import OperationStage
from braid.broker.operations import DELTA
from braid.broker.reconfigurations import Reconfigurations
from braid.errors import FilterError, RemoteProtocolError
from braid.language.filters import Filter
from braid.protocol.changes import ChangeDone, MoveEntries, MoveInUse, MoveLast
from braid.protocol.fitting import portions

if TYPE_CHECKING:
    from braid.broker.detours import Detours
    from braid.broker.events import LinkBegun, LinkLost
    from braid.broker.operations import Operation
    from braid.broker.parties import Link
    from braid.protocol.changes import ChangeDone as Done
    from braid.protocol.changes import ChangeRequest

__all__ = ["DeltaMoves"]

# Entries in one message, and in those of one turn: a few milliseconds at their receivers.
ENTRIES_PER_MESSAGE = 16
ENTRIES_PER_TURN = 64
# And so many are looked at to find them.
LOOKED_AT_PER_TURN = 1_024
# Entries of a temporary table; who is told of more asks for something that cannot be.
ENTRIES_MAX = 5_000_000

_STAGE, _STEP = MoveStage, MoveStep


class _Move:
    """A delta-move, as one of its brokers sees it."""

    def __init__(self, stage: MoveStage) -> None:
        self.stage = stage
        self.entries: set[str] | None = None
        """What has been told of what is wanted behind the broker that moves, at that broker; None before it
        is asked."""
        self.untold: deque[str] = deque()
        """The keys of what may have to be told yet."""
        self.version = 0
        """Which state of the tables that was."""
        self.all_told = False
        """Whether the word that those were all was said."""

    def step(self, step: MoveStep) -> None:
        """Something has happened to it."""
        self.stage = MOVE_LIFE.after(self.stage, step, self)


class DeltaMoves(Reconfigurations):
    """Takes part in operations, of which some are delta-moves.

    Args:
        arguments: as for `Reconfigurations`.
        detours: where publications go beside their ways meanwhile.
        more: as for `Reconfigurations`.
    """

    def __init__(self, *arguments: Any, detours: Detours, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._detours = detours
        self._move: _Move | None = None

    # Preparation and initialization.

    def _asked(self, operation: Operation) -> None:
        super()._asked(operation)
        if operation.flows:
            self._begun(operation, _STAGE.PREPARATION)

    def _begin(self, operation: Operation) -> None:
        super()._begin(operation)
        if operation.locked and self._move is not None and self._move.stage is _STAGE.PREPARATION:
            self._come_to(operation, _STEP.PERMITTED)

    def requested(self, link: Link, message: ChangeRequest) -> None:
        """The broker before on the path asks to prepare."""
        super().requested(link, message)
        operation = self._of(message.operation)
        if operation is not None and operation.flows:
            self._detours.clear()
            self._begun(operation, _STAGE.INITIALIZATION)

    def _begun(self, operation: Operation, stage: MoveStage) -> None:
        self._move = _Move(stage)
        self._progress(operation, stage.name.lower())

    def _come_to(self, operation: Operation, step: MoveStep, detail: str = "") -> None:
        if self._move is not None:
            self._move.step(step)
            self._progress(operation, self._move.stage.name.lower(), detail)

    # Update.

    def _joined(self, operation: Operation, new: Link) -> None:
        if operation.flows:
            self._come_to(operation, _STEP.READY)
        else:
            super()._joined(operation, new)

    def _covers_all(self, operation: Operation, move: _Move) -> bool:
        """Whether all was told that is wanted behind this broker: what its old neighbour knows."""
        told = move.entries
        if told is None or not move.all_told:
            return False
        if move.version == self._tables.told_version(operation.after):
            return True  # nothing has changed since
        entries = map(
            partial(self._tables.told_entry, operation.after), self._tables.perhaps_told(operation.after)
        )
        return all(entry[0].text in told for entry in entries if entry is not None)

    def _tell_entries(self, operation: Operation, move: _Move) -> None:
        """Go on telling the new neighbour what is wanted behind this broker."""
        new = self._links.joining.get(operation.path[-1])
        if new is None or not self._tables.settled(operation.after):
            return
        if move.entries is None:
            move.entries = set()
            move.version = self._tables.told_version(operation.after)
            move.untold.extend(self._tables.perhaps_told(operation.after))
        if move.all_told:
            return
        operation.until_us = self._turn.now_us + self._turn.settings.operation_us_max
        some: list[str] = []
        looked_at = 0
        while move.untold and len(some) < ENTRIES_PER_TURN and looked_at < LOOKED_AT_PER_TURN:
            looked_at += 1
            entry = self._tables.told_entry(operation.after, move.untold.popleft())
            if entry is not None:  # otherwise another one covers it
                some.append(entry[0].text)
        move.entries.update(some)
        for portion in portions(some, list(map(len, some)), told_bytes(new)):
            for first in range(0, len(portion), ENTRIES_PER_MESSAGE):
                filters = portion[first : first + ENTRIES_PER_MESSAGE]
                self._turn.tell(new, MoveEntries(operation.id, filters))
        if not move.untold:
            move.all_told = True
            self._turn.tell(new, MoveInUse(operation.id))

    def entries(self, link: Link, message: MoveEntries) -> None:
        """Some of what is wanted behind the broker that moves.

        Raises:
            RemoteProtocolError: there are too many, or one cannot be read.
        """
        operation, move = self._of(message.operation), self._move
        if operation is None or move is None or not self._expects(operation, link):
            return
        if move.stage is _STAGE.INITIALIZATION:
            self._come_to(operation, _STEP.READY)
        if self._detours.entries + len(message.filters) > ENTRIES_MAX:
            raise RemoteProtocolError(f"more than {ENTRIES_MAX:,} entries of a temporary table")
        try:
            filters = [Filter(text) for text in message.filters]
        except FilterError as error:
            raise RemoteProtocolError(f"an entry of a temporary table: {error}") from None
        self._detours.enter(filters)
        self._live_on(operation)
        before = self._neighbours.get(operation.before)
        if operation.position > 1 and before is not None and before.agreed:
            self._turn.tell(before, message)

    def in_use(self, link: Link, message: MoveInUse) -> None:
        """All of the path from the new end to there send publications both ways."""
        operation, move = self._of(message.operation), self._move
        if operation is None or move is None or not self._expects(operation, link):
            return
        if operation.first:
            self._confirmed(operation, move)
            return
        if move.stage is _STAGE.INITIALIZATION:
            self._come_to(operation, _STEP.READY)  # nothing is wanted there
        toward = self._links.joining.get(link.name) if operation.last else link
        before = self._neighbours.get(operation.before)
        if move.stage is not _STAGE.UPDATE or toward is None or before is None:
            return
        self._detours.use(toward, operation.before if operation.position == 1 else "")
        self._come_to(operation, _STEP.IN_USE, f"{self._detours.entries} temporary entries")
        self._live_on(operation)
        if before.agreed:
            self._turn.tell(before, message, in_line=True)

    def _expects(self, operation: Operation, link: Link) -> bool:
        """Whether a word about temporary tables may come from there now."""
        if not operation.flows or operation.stage not in (OperationStage.FLUSHED, OperationStage.UNDECIDED):
            return False
        return link.name == (operation.path[0] if operation.last else operation.after)

    def _live_on(self, operation: Operation) -> None:
        """Those that wait for others have heard of them: tables may be long."""
        operation.until_us = self._turn.now_us + 2 * self._turn.settings.operation_us_max

    def _confirmed(self, operation: Operation, move: _Move) -> None:
        """Everybody sends both ways, and nothing is under way that does not come both ways: decide."""
        new, old = self._links.joining.get(operation.path[-1]), self._neighbours[operation.after]
        if new is None or move.stage is not _STAGE.UPDATE or move.entries is None or not move.all_told:
            return
        if not self._covers_all(operation, move):
            self._give_up(operation, "what is wanted behind it has changed meanwhile")
            return
        self._come_to(operation, _STEP.IN_USE, f"{len(move.entries)} entries told")
        super()._joined(operation, new)
        self._turn.tell(old, MoveLast(operation.id), in_line=True)

    # Wrap-up.

    def _decided(self, operation: Operation) -> None:
        doubled = self._move is not None and self._move.stage is _STAGE.DOUBLED
        # Without a temporary table publications wait until the new tables are right.
        operation.flows = operation.flows and doubled
        super()._decided(operation)
        if not operation.flows:
            self._detours.clear()
            return
        self._come_to(operation, _STEP.DECIDED)
        if operation.last:
            self._detours.use(self._neighbours[operation.path[0]], "")
        if operation.position > 1:
            self._detours.pass_back(self._neighbours.get(operation.before))
        moving = self._neighbours.get(operation.path[0])
        if operation.position == 1 and (moving is None or not moving.channel.connected):
            self._look_for_last(operation)

    def last(self, link: Link, message: MoveLast) -> None:
        """From the broker that has moved nothing more comes the old way."""
        operation = self._of(message.operation)
        if operation is not None and link.name == operation.before:
            self._mark(operation)

    def _look_for_last(self, operation: Operation) -> None:
        """Nothing more comes from the old place if the link to it is gone."""
        if not any(link.name == operation.before for link in self._links.leaving):
            self._mark(operation)

    def _mark(self, operation: Operation) -> None:
        if operation.marked:
            return
        operation.marked = True
        after = self._neighbours.get(operation.after)
        if operation.last:
            if operation.paused:
                self._events.tell(PublicationsHeld())  # less waits than before
        elif after is not None and after.agreed:
            self._turn.tell(after, MoveLast(operation.id), in_line=True)

    def done(self, link: Link, message: Done) -> None:
        """The broker before on the path has carried out its part, or the new neighbour is ready for all."""
        super().done(link, message)
        operation = self._of(message.operation)
        if operation is None or not operation.flows or not operation.decided:
            return
        if operation.first:
            if link.name == operation.path[-1] and link.handing_over:
                self._links.say_everything(link)
        elif operation.told_done:
            new = self._neighbours.get(operation.path[0])
            if operation.last and new is not None and new.agreed:
                self._turn.tell(new, ChangeDone(operation.id))

    def _part_done(self, operation: Operation) -> bool:
        waits = operation.flows and operation.last and not operation.marked
        return not waits and super()._part_done(operation)

    def _wrapped_up(self, operation: Operation) -> bool:
        # Whoever ends here stops passing back what the tables do not want: they must be right by then.
        told = not operation.flows or operation.first or self._tables.settled(operation.toward)
        return told and super()._wrapped_up(operation)

    # All phases.

    @property
    def next_us(self) -> int | None:
        """When `look` is to be called at the latest."""
        if self._move is not None and self._move.untold:
            return self._turn.now_us
        return super().next_us

    def look(self) -> None:
        """Go on with what can go on."""
        operation, move = self._changing.current, self._move
        if operation is not None and operation.first and move is not None and move.stage is _STAGE.UPDATE:
            self._tell_entries(operation, move)
        super().look()

    def link_lost(self, event: LinkLost) -> None:
        """The connection of a link has ended."""
        super().link_lost(event)
        operation = self._changing.current
        if operation is not None and operation.decided and event.link.name == operation.before:
            self._mark(operation)

    def link_begun(self, event: LinkBegun) -> None:
        """A session has begun anew."""
        super().link_begun(event)
        operation = self._changing.current
        if operation is None or not operation.decided:
            return
        if event.link.name == operation.before:
            self._mark(operation)
        elif operation.first and event.link.handing_over and not event.ahead:
            event.link.handing_over = False  # everything is said in this session anyway
            self._links.tell_complete()

    def _progress(self, operation: Operation, phase: str, detail: str = "") -> None:
        if operation.flows and phase in ("paused", "resumed"):  # nothing pauses
            if phase == "resumed" and operation.decided:
                super()._progress(operation, "replaced", detail)
            return
        super()._progress(operation, phase, detail)

    def _end(self, operation: Operation, problem: str = "") -> None:
        if operation.kind == DELTA:
            new = self._neighbours.get(operation.path[-1])
            if operation.first and operation.decided and new is not None and new.handing_over:
                self._links.say_everything(new)
            if not operation.decided:
                self._links.give_up_joining()
        if self._move is not None:
            self._move.step(_STEP.ENDED)
            self._move = None
        self._detours.clear()
        super()._end(operation, problem)

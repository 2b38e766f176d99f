"""Whose frames are handled next, and how many of them in one turn?

A turn never waits, so a peer that makes a turn long makes all others wait. What one read brings may ask for
seconds of work: a few bytes subscribe, and tables and neighbours follow. So a turn does a bounded amount of
work, counted and not timed, and what is left stands in line. Those in line are served a few requests at a
time, one after the other; neighbours come first. While a party stands in line nothing more is read from
it, which bounds the line and hands the waiting on to the one that asks too much.

The order of a party's frames stays as it is. Only what merely reports how far the other side has come, and
heartbeats, pass the line.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from itertools import groupby, islice
from typing import TYPE_CHECKING

from braid.broker.parties import Client, Link
from braid.errors import RemoteProtocolError
from braid.protocol import Frame, PublicationBatch
from braid.protocol.effects import Pause
from braid.protocol.messages import (
    AcknowledgeDurable,
    Acknowledgement,
    Advertise,
    Ask,
    CreateDurable,
    DropDurable,
    LogStatus,
    Ping,
    PinLog,
    Pong,
    Replay,
    Settled,
    Subscribe,
    SubscribeDurable,
    Unadvertise,
    Unsubscribe,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from braid.broker.events import PublicationsHeld, PublicationsResumed
    from braid.broker.parties import Party
    from braid.broker.turn import Turn

__all__ = ["WORK_PER_TURN", "FairQueue"]

# A unit is some twenty microseconds of an ordinary machine, so that a turn stays well below ten milliseconds.
WORK_PER_TURN = 128
# What one client may take of a turn while others stand in line as well.
WORK_PER_CLIENT = 32
# Requests change tables at every broker on the way; what else there is costs next to nothing.
_WORK = {
    Subscribe: 16,
    Unsubscribe: 16,
    SubscribeDurable: 16,
    DropDurable: 16,
    CreateDurable: 16,
    LogStatus: 4,
    AcknowledgeDurable: 4,
    PinLog: 8,
    Replay: 16,
    Advertise: 16,
    Unadvertise: 16,
    Ask: 32,
}
# Frames of one line that a turn looks at.
FRAMES_PER_TURN = 512
# To read a filter takes as much as to subscribe for every so many characters.
CHARACTERS_PER_UNIT = 16
# Publications of a batch that cost as much as a unit, beside the one for the batch.
ROWS_PER_UNIT = 64
# One read has no more frames than this. It only meets those whose driver reads on nevertheless.
LINE_FRAMES_MAX = 200_000

# Messages that change nothing about who gets which publications.
_ROUTINE = frozenset({Acknowledgement, Ping, Pong, Settled})


class _Line:
    """What has come from one connection and is not handled yet."""

    __slots__ = ("frames", "not_before_us", "party")

    def __init__(self, party: Party) -> None:
        self.party = party
        self.frames: deque[Frame] = deque()
        self.not_before_us = 0
        """When its client may ask for more, by its rate."""

    def look_at_rate(self, now_us: int) -> None:
        """See how long its client has to wait for its next request."""
        if isinstance(self.party, Client):
            self.not_before_us = now_us + self.party.limiter.requests_owed_us(now_us)

    @property
    def open(self) -> bool:
        """Whether its answers are read: one who takes none is asked to wait."""
        return self.party.channel.writable

    @property
    def due_us(self) -> int | None:
        """When it is to be served; None while it is not. Publications wait for neither rate nor reading."""
        if self.frames and type(self.frames[0].body) is PublicationBatch:
            return 0
        return self.not_before_us if self.open else None


class FairQueue:
    """Handles frames, a bounded amount of work at a time."""

    def __init__(
        self,
        turn: Turn,
        *,
        handler: Callable[[Party, type], Callable[[Any, Any], None]],
        batches: Callable[[Party, Sequence[Frame]], None],
        subscribe_link: Callable[[Link, Sequence[Subscribe]], None],
        changing: Callable[[], None],
        check: Callable[[Party], None],
        busy: Callable[[Link], bool],
        held: Callable[[Party, type], bool],
        guard: Callable[[int, Callable[[], None]], None],
    ) -> None:
        """
        Args:
            turn: where effects go.
            handler: who handles a kind of message from a party.
            batches: accepts and handles publications.
            subscribe_link: handles subscriptions from a neighbour, which are cheaper together.
            changing: called before anything that may change who gets what.
            check: complains about a party that asks for more than it takes.
            busy: whether a neighbour has yet to be told what its last messages lead to; until then what it
                says next waits.
            held: whether messages of a kind from a party wait until an operation is through.
            guard: runs something that a peer's mistake may end, which then ends that connection.
        """
        self._turn = turn
        self._handler = handler
        self._batches = batches
        self._subscribe_link = subscribe_link
        self._changing = changing
        self._check = check
        self._busy = busy
        self._held = held
        self._guard = guard
        self.holding = False
        """Whether an operation holds publications, and what changes tables, at the door."""
        self._left: list[_Line] = []
        """What clients have left behind that have gone meanwhile."""
        self.waiting: dict[int, _Line] = {}
        """Who stands in line, by connection."""
        self._neighbours: dict[int, _Line] = {}
        self._clients: OrderedDict[int, _Line] = OrderedDict()
        self.due_us: int | None = None
        """When those in line are to be served at the latest; None while nobody can be."""
        self.work = 0
        """Units of work that the present turn has done so far."""

    def take_in(self, party: Party, frames: Sequence[Frame]) -> None:
        """Handle what has come from a party, in order; what is too much for this turn stands in line."""
        connection = party.connection
        if connection is None:
            return
        line = self.waiting.get(connection)
        if line is None:
            # A client waits behind other clients. Neighbours are few, and others depend on them.
            crowded = bool(self._clients) and isinstance(party, Client)
            handled = self._handle(party, frames, 0 if crowded else WORK_PER_TURN)
            if handled == len(frames):
                return
            frames = frames[handled:]
            line = self._begin(connection, party)
        self._stand_in_line(line, frames)

    def serve(self) -> None:
        """Do one turn's worth of what stands in line."""
        budget = WORK_PER_TURN
        for connection in list(self._neighbours):
            if budget > 0 and not self._waits(self._neighbours[connection]):
                budget -= self._serve(connection, self._neighbours[connection], budget)
        ready = True
        while ready and budget > 0:
            ready = False
            for _ in range(len(self._clients)):
                if budget <= 0 or not self._clients:
                    break
                connection, line = next(iter(self._clients.items()))
                self._clients.move_to_end(connection)
                due_us = line.due_us
                if due_us is not None and due_us <= self._turn.now_us and not self._waits(line):
                    ready = True
                    budget -= self._serve(connection, line, min(budget, WORK_PER_CLIENT))
        self._find_due()

    def review(self) -> None:
        """Go on not reading from those in line. So they are not silent, and hear that we are there."""
        if not self.waiting:
            return
        now_us = self._turn.now_us
        for connection, line in self.waiting.items():
            self._turn.effect(Pause(connection, self._rest_us))
            party = line.party
            if now_us - party.heard_at_us > self._turn.settings.heartbeat_us:
                party.heard_at_us = now_us
                if line.open:
                    self._turn.tell_connection(party, Ping(now_us))
        self._find_due()

    def hold(self, _: PublicationsHeld) -> None:
        """An operation begins."""
        self.holding = True
        self._find_due()

    def resume(self, _: PublicationsResumed) -> None:
        """An operation is through here: what waited goes on, that of those who have gone first."""
        self.holding = False
        left, self._left = self._left, []
        for line in left:
            self._let_go(line)
        self._find_due()

    def _waits(self, line: _Line) -> bool:
        """Whether a line stands still until an operation is through."""
        return self.holding and bool(line.frames) and self._held(line.party, type(line.frames[0].body))

    def writable(self, connection: int) -> None:
        """One in line reads its answers again, or does not any more."""
        if connection in self.waiting:
            self._find_due()

    def forget(self, connection: int) -> None:
        """A connection has ended, and with it what stood in line."""
        if self.waiting.pop(connection, None) is not None:
            self._neighbours.pop(connection, None)
            self._clients.pop(connection, None)

    def last_words(self, connection: int) -> None:
        """A client has gone by itself: what it published goes its way, and what it asked for is no matter."""
        line = self.waiting.get(connection)
        self.forget(connection)
        if line is not None and isinstance(line.party, Client):
            if self.holding:
                self._left.append(line)
            else:
                self._let_go(line)

    def _let_go(self, line: _Line) -> None:
        """Route what a client has published that has gone."""
        channel = line.party.channel
        for kind, run in groupby(line.frames, key=_kind):
            if kind is PublicationBatch:
                self._batches(line.party, list(run))
            else:
                for frame in run:
                    if frame.sequence:
                        channel.accept(frame)

    # One party.

    def _serve(self, connection: int, line: _Line, work_max: int) -> int:
        """Handle some of a line; returns how much work it was."""
        if line.party.connection != connection:
            self.forget(connection)  # another connection has taken over, and all is said again there
            return 1
        before = self.work

        def handle() -> None:
            frames = list(islice(line.frames, FRAMES_PER_TURN))
            for _ in range(self._handle(line.party, frames, work_max)):
                line.frames.popleft()
            line.look_at_rate(self._turn.now_us)

        self._guard(connection, handle)
        if not line.frames and self.waiting.get(connection) is line:
            self.forget(connection)
            party = line.party
            owed_us = party.limiter.owed_us(self._turn.now_us) if isinstance(party, Client) else 0
            self._turn.effect(Pause(connection, owed_us))
        return max(1, self.work - before)

    def _handle(self, party: Party, frames: Sequence[Frame], work_max: int) -> int:
        """Handle as much as fits; returns how many frames that were. Reports always fit."""
        handled = self._handle_runs(party, frames, work_max)
        self._check(party)
        if party.channel.acknowledgement_waits:
            self._turn.arrived(party)
        return handled

    def _handle_runs(self, party: Party, frames: Sequence[Frame], work_max: int) -> int:
        """Handle neighbouring frames of one kind together."""
        handled = 0
        for kind, run in _runs(frames):
            if party.connection is None:
                return len(frames)  # something before has ended it
            if self.holding and self._held(party, kind):
                return handled
            if kind is PublicationBatch:
                # Also those of a client that may not ask for anything now: publications have their share.
                fitting, work = _fitting_batches(run, max(work_max, WORK_PER_CLIENT))
                work_max -= work
                self.work += work
                self._batches(party, run[:fitting])
                if fitting < len(run):
                    return handled + fitting
            elif kind in _ROUTINE:
                self._each(party, kind, run)
            else:
                fitting = self._fitting(party, run, work_max)
                work = sum(map(_work_of, run[:fitting]))
                work_max -= work
                self.work += work
                if fitting:
                    self._changing()
                    self._each(party, kind, run[:fitting])
                if fitting < len(run):
                    return handled + fitting
            handled += len(run)
        return handled

    def _fitting(self, party: Party, run: Sequence[Frame], work_max: int) -> int:
        """How many of these requests may be handled now."""
        if isinstance(party, Client):
            if party.limiter.requests_owed_us(self._turn.now_us) or not party.channel.writable:
                return 0
        elif isinstance(party, Link) and self._busy(party):
            return 0
        fitting = 0
        while fitting < len(run) and work_max > 0:
            work_max -= _work_of(run[fitting])
            fitting += 1
        if isinstance(party, Client):
            party.limiter.ask(fitting, self._turn.now_us)
        return fitting

    def _each(self, party: Party, kind: type, frames: Sequence[Frame]) -> None:
        if kind is Subscribe and isinstance(party, Link):
            new = [frame.body for frame in frames if party.channel.accept(frame)]
            self._subscribe_link(party, [body for body in new if isinstance(body, Subscribe)])
            return
        handler = self._handler(party, kind)
        for frame in frames:
            if party.connection is None:
                return
            if frame.sequence == 0 or party.channel.accept(frame):
                handler(party, frame.body)

    # Standing in line.

    def _begin(self, connection: int, party: Party) -> _Line:
        line = self.waiting[connection] = _Line(party)
        line.look_at_rate(self._turn.now_us)
        if isinstance(party, Client):
            self._clients[connection] = line
        else:
            self._neighbours[connection] = line
        self._turn.effect(Pause(connection, self._rest_us))
        return line

    def _stand_in_line(self, line: _Line, frames: Sequence[Frame]) -> None:
        for frame in frames:
            if type(frame.body) in _ROUTINE:
                self._each(line.party, type(frame.body), (frame,))
            else:
                line.frames.append(frame)
        if len(line.frames) > LINE_FRAMES_MAX:
            raise RemoteProtocolError(f"more than {LINE_FRAMES_MAX:,} frames stand in line")
        self._find_due()

    def _find_due(self) -> None:
        now_us = self._turn.now_us
        if any(not self._waits(line) for line in self._neighbours.values()):
            self.due_us = now_us
            return
        times = [line.due_us for line in self._clients.values() if not self._waits(line)]
        self.due_us = min((max(now_us, due_us) for due_us in times if due_us is not None), default=None)

    @property
    def _rest_us(self) -> int:
        """How long nothing is read from those in line, if nothing else is said: until the next review."""
        return 3 * self._turn.settings.heartbeat_us


def _runs(frames: Sequence[Frame]) -> Iterable[tuple[type, Sequence[Frame]]]:
    """Neighbouring frames of one kind, with that kind."""
    if len(frames) == 1:  # by far the most frequent
        return ((type(frames[0].body), frames),)
    return ((kind, list(run)) for kind, run in groupby(frames, key=_kind))


def _kind(frame: Frame) -> type:
    return type(frame.body)


def _fitting_batches(run: Sequence[Frame], work_max: int) -> tuple[int, int]:
    """How many batches may be handled now, one at least, and how much work they are.

    Those that are made one, as `joined` does, cost as one.
    """
    work = 0
    before = ""
    for count, (_, batch) in enumerate(run):
        if isinstance(batch, PublicationBatch):
            if batch.publisher != before or batch.acknowledged:
                work += ROWS_PER_UNIT
                before = batch.publisher
            work += batch.count
        if work > work_max * ROWS_PER_UNIT and count:
            return count, work_max
    return len(run), work // ROWS_PER_UNIT


def _work_of(frame: Frame) -> int:
    body = frame.body
    work = _WORK.get(type(body), 1)
    if isinstance(body, (Subscribe, Advertise, SubscribeDurable, CreateDurable, Replay)):
        work += len(body.filter) // CHARACTERS_PER_UNIT
    return work

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
from functools import partial
from itertools import groupby, islice, takewhile
from typing import TYPE_CHECKING

from braid.broker.joining import is_long, rows_per_piece
from braid.broker.parties import Client, Link
from braid.errors import RemoteProtocolError, RequestRefusedError
from braid.protocol import Frame, PublicationBatch
from braid.protocol.changes import MoveEntries
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
    from braid.broker.ways import Arrival

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
    MoveEntries: 64,
}
# Frames of one line that a turn looks at.
FRAMES_PER_TURN = 512
# To read a filter takes as much as to subscribe for every so many characters.
CHARACTERS_PER_UNIT = 16
# Publications of a batch that cost as much as a unit, beside the one for the batch.
ROWS_PER_UNIT = 64
# And as many bytes of a long batch.
BYTES_PER_UNIT = 8_192
# One read has no more frames than this. It only meets those whose driver reads on nevertheless.
LINE_FRAMES_MAX = 200_000

# Messages that change nothing about who gets which publications.
_ROUTINE = frozenset({Acknowledgement, Ping, Pong, Settled})


class _Line:
    """What has come from one connection and is not handled yet."""

    __slots__ = ("connection", "frames", "not_before_us", "party", "pieces")

    def __init__(self, connection: int, party: Party) -> None:
        self.connection = connection
        self.party = party
        self.frames: deque[Frame] = deque()
        self.pieces: deque[Arrival] = deque()
        """What is left of a long batch, which goes before the frames. It has been accepted: it is routed
        whatever becomes of the connection."""
        self.not_before_us = 0
        """When its client may ask for more, by its rate."""

    def look_at_rate(self, now_us: int) -> None:
        """See how long its client has to wait for its next request."""
        if isinstance(self.party, Client):
            self.not_before_us = now_us + self.party.limiter.requests_owed_us(now_us)

    @property
    def next_is_long(self) -> bool:
        """Whether the next thing to do is a part of a long batch."""
        return bool(self.pieces) or (bool(self.frames) and is_long(self.frames[0].body))

    @property
    def open(self) -> bool:
        """Whether its answers are read: one who takes none is asked to wait."""
        return self.party.channel.writable

    @property
    def due_us(self) -> int | None:
        """When it is to be served; None while it is not. Publications wait for neither rate nor reading."""
        if self.pieces or (self.frames and type(self.frames[0].body) is PublicationBatch):
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
        divided: Callable[[Party, Frame, int], list[Arrival]],
        pieces: Callable[[Party, Sequence[Arrival]], None],
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
            divided: accepts a batch, and makes pieces of so many rows of it.
            pieces: handles some of these.
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
        self._divided = divided
        self._pieces = pieces
        self._subscribe_link = subscribe_link
        self._changing = changing
        self._check = check
        self._busy = busy
        self._held = held
        self._guard = guard
        self.holding = False
        """Whether an operation holds publications, and what changes tables, at the door."""
        self._left: list[_Line] = []
        """What connections that have ended have left behind and is still to be routed."""
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
        if line is None and self._left and self._has_left(party):
            line = self._begin(connection, party)
        elif line is None:
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
        while self._left and budget > 0 and not self.holding:
            line = self._left[0]
            before = self.work
            self._guard(line.connection, partial(self._let_go, line, budget))
            budget -= max(1, self.work - before)
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
        """An operation begins, or holds less than before."""
        self.holding = True
        self._find_due()

    def resume(self, _: PublicationsResumed) -> None:
        """An operation is through here: what waited goes on, that of those who have gone first."""
        self.holding = False
        self._find_due()

    @property
    def busy(self) -> bool:
        """Whether anything stands in line."""
        return bool(self.waiting or self._left)

    @property
    def routing(self) -> bool:
        """Whether something is still to be routed that was accepted, or that a client has left behind."""
        return bool(self._left) or any(line.pieces for line in self.waiting.values())

    def _waits(self, line: _Line) -> bool:
        """Whether a line stands still: until an operation is through, or what its party left behind is."""
        if self._left and self._has_left(line.party):
            return True
        if not self.holding:
            return False
        kind = PublicationBatch if line.pieces else _kind(line.frames[0]) if line.frames else None
        return kind is not None and self._held(line.party, kind)

    def _has_left(self, party: Party) -> bool:
        """Whether a former connection of a party, or of one with its name, has left something behind."""
        return any(type(line.party) is type(party) and line.party.name == party.name for line in self._left)

    def writable(self, connection: int) -> None:
        """One in line reads its answers again, or does not any more."""
        if connection in self.waiting:
            self._find_due()

    def forget(self, connection: int) -> None:
        """A connection has ended, and with it what stood in line and was not accepted."""
        line = self._remove(connection)
        if line is not None:
            line.frames.clear()
            self._leave(line)

    def last_words(self, connection: int) -> None:
        """A client has gone by itself: what it published goes its way, and what it asked for is no matter."""
        line = self.waiting.get(connection)
        if line is not None and isinstance(line.party, Client):
            self._remove(connection)
            self._leave(line)

    def _remove(self, connection: int) -> _Line | None:
        self._neighbours.pop(connection, None)
        self._clients.pop(connection, None)
        return self.waiting.pop(connection, None)

    def _leave(self, line: _Line) -> None:
        """Keep what is still to be routed of a connection that has ended."""
        if not (line.pieces or line.frames):
            return
        self._left.append(line)
        if not self.holding and len(self._left) == 1:
            # Mostly that is all of it.
            self._let_go(line, WORK_PER_TURN)
        self._find_due()

    def _let_go(self, line: _Line, work_max: int) -> None:
        """Route some of what a connection that has ended has left behind."""
        try:
            if line.next_is_long:
                self._route_pieces(line, work_max)
            else:
                self._accept_some(line, work_max)
        except (RemoteProtocolError, RequestRefusedError):
            line.frames.clear()  # as if its connection had ended for that
            raise
        finally:
            if not (line.pieces or line.frames):
                self._left.remove(line)

    def _accept_some(self, line: _Line, work_max: int) -> None:
        """Take in some frames of a client that has gone: what it published goes its way."""
        kind = _kind(line.frames[0])
        run = list(islice(takewhile(lambda frame: _kind(frame) is kind, line.frames), FRAMES_PER_TURN))
        if kind is PublicationBatch:
            fitting, work = _fitting_batches(run, work_max)
            del run[fitting:]
            self.work += work
        for _ in run:
            line.frames.popleft()
        if kind is PublicationBatch:
            self._batches(line.party, run)
            return
        for frame in run:
            if frame.sequence:
                line.party.channel.accept(frame)

    def _route_pieces(self, line: _Line, work_max: int) -> None:
        """Route pieces of a long batch, one at least."""
        if not line.pieces:
            frame = line.frames.popleft()
            line.pieces.extend(self._divided(line.party, frame, rows_per_piece(frame.body)))
        while line.pieces:
            piece = line.pieces.popleft()
            work = 1 + max(piece[0].count // ROWS_PER_UNIT, piece[0].size // BYTES_PER_UNIT)
            work_max -= work
            self.work += work
            try:
                self._pieces(line.party, (piece,))
            except (RemoteProtocolError, RequestRefusedError):
                line.pieces.clear()
                raise
            if work_max <= 0:
                return

    # One party.

    def _serve(self, connection: int, line: _Line, work_max: int) -> int:
        """Handle some of a line; returns how much work it was."""
        if line.party.connection != connection:
            self.forget(connection)  # another connection has taken over, and all is said again there
            return 1
        before = self.work

        def handle() -> None:
            if line.next_is_long:
                self._route_pieces(line, work_max)
                self._after(line.party)
            else:
                frames = list(islice(line.frames, FRAMES_PER_TURN))
                for _ in range(self._handle(line.party, frames, work_max)):
                    line.frames.popleft()
            line.look_at_rate(self._turn.now_us)

        self._guard(connection, handle)
        if not (line.frames or line.pieces) and self.waiting.get(connection) is line:
            self.forget(connection)
            party = line.party
            owed_us = party.limiter.owed_us(self._turn.now_us) if isinstance(party, Client) else 0
            self._turn.effect(Pause(connection, owed_us))
        return max(1, self.work - before)

    def _handle(self, party: Party, frames: Sequence[Frame], work_max: int) -> int:
        """Handle as much as fits; returns how many frames that were. Reports always fit."""
        handled = self._handle_runs(party, frames, work_max)
        self._after(party)
        return handled

    def _after(self, party: Party) -> None:
        """Something of a party's has been handled."""
        self._check(party)
        if party.channel.acknowledgement_waits:
            self._turn.arrived(party)

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
                if fitting:
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
        line = self.waiting[connection] = _Line(connection, party)
        line.look_at_rate(self._turn.now_us)
        if isinstance(party, Client):
            self._clients[connection] = line
        else:
            self._neighbours[connection] = line
        self._turn.effect(Pause(connection, self._rest_us))
        return line

    def _stand_in_line(self, line: _Line, frames: Sequence[Frame]) -> None:
        for frame in frames:
            # What has a number is handled in the order of the numbers, also where it would change nothing.
            if type(frame.body) in _ROUTINE and not frame.sequence:
                self._each(line.party, type(frame.body), (frame,))
            else:
                line.frames.append(frame)
        if len(line.frames) > LINE_FRAMES_MAX:
            raise RemoteProtocolError(f"more than {LINE_FRAMES_MAX:,} frames stand in line")
        self._find_due()

    def _find_due(self) -> None:
        now_us = self._turn.now_us
        if self._left and not self.holding:
            self.due_us = now_us
            return
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
    """How many batches may be handled now, and how much work they are: one at least that is not long.

    Those that are made one, as `joined` does, cost as one.
    """
    work = 0
    before = ""
    for count, frame in enumerate(run):
        batch = frame.body
        if isinstance(batch, PublicationBatch):
            if is_long(frame.body):
                return count, work // ROWS_PER_UNIT
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

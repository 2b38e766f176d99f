"""What has been asked of the store, and what is safe?

All store work of one turn is one *piece*, done in one transaction. What waits for a piece is a record, and
its turn comes once that piece and all before it are done. A piece that fails for want of something that may
come back, such as room on the disk, is asked for again at a bounded pace, and those after it follow in their
order: nothing is safe before its turn, and nothing is forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from braid.broker.settling import Pending
from braid.protocol.effects import Persist

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from braid.broker.durable_log import DurableLog
    from braid.broker.parties import Client, Link
    from braid.broker.turn import Turn
    from braid.protocol.inputs import Persisted
    from braid.protocol.log import LogRow, StoreOperation
    from braid.protocol.messages import Message

__all__ = ["Answer", "Appended", "StoreWork", "Word"]

# The pause before failed work is tried again doubles from the first to the second of these.
RETRY_US_MIN = 500_000
RETRY_US_MAX = 5_000_000
# Turns are made one piece up to so many operations: a larger one might find no room where these do.
OPERATIONS_JOINED_MAX = 64


class Appended(NamedTuple):
    """Rows that were handed to the store for a log."""

    log: DurableLog
    first: int
    rows: list[LogRow]
    size: int
    recent_bytes: int = 0
    """What goes along with them: which numbers of their publisher are in the log."""


class Answer(NamedTuple):
    """An answer that a client gets once what it asked for is safe."""

    client: Client
    message: Message
    log: DurableLog | None = None
    """The log that is read from then on."""


class Word(NamedTuple):
    """What a neighbour is told once all that it is about is safe."""

    link: Link
    message: Message


Waiting: TypeAlias = Pending | Appended | Answer | Word
"""Those who wait for the store: publications that become safe, rows that may be read, clients, neighbours."""


class _State(Enum):
    WAITING = "not asked for, or to be asked for again"
    ASKED = "asked for"
    DONE = "done, but something before it is not"


class _Piece:
    """The work of one turn."""

    __slots__ = ("asked", "operations", "refused", "state", "waiting")

    def __init__(self, operations: list[StoreOperation], waiting: list[Waiting]) -> None:
        self.operations = operations
        self.waiting = waiting
        self.state = _State.WAITING
        self.asked = 0
        """When it was last asked for, by the number of askings."""
        self.refused = False
        """Whether it is tried again."""


class StoreWork:
    """Everything on its way to the store."""

    def __init__(self, turn: Turn, table: Mapping[type, Callable[[Any], None]]) -> None:
        """`table`: what becomes of those who wait, by the type of their records."""
        self._turn = turn
        self._table = table
        self._operations: list[StoreOperation] = []
        self._when_safe: list[Waiting] = []
        self._pieces: OrderedDict[int, _Piece] = OrderedDict()
        self._tokens = 0
        self._askings = 0
        self.broken = False
        """Some work can never be done: what waited for it is not safe, and only a new start can mend that."""
        self._retry_at_us: int | None = None
        self._pause_us = RETRY_US_MIN

    def ask(self, operation: StoreOperation) -> None:
        """Have this done at the end of the turn."""
        self._operations.append(operation)

    def when_safe(self, waiting: Waiting) -> None:
        """A party waits until everything that was asked for so far is done."""
        self._when_safe.append(waiting)

    @property
    def failed(self) -> bool:
        """The store refuses work: what is durable is not safe here."""
        return self.broken or self._retry_at_us is not None

    @property
    def idle(self) -> bool:
        """Nothing is on its way to the store."""
        return not self._operations and not self._pieces

    def collect(self) -> None:
        """At the end of a turn: ask for all its work in one transaction."""
        if not (self._operations or self._when_safe):
            return
        while self._when_safe and not self._operations and not self._pieces:
            waiting, self._when_safe = self._when_safe, []
            self._resolve_all(waiting)
        if not (self._operations or self._when_safe):
            return
        if self._retry_at_us is None:
            self._tokens += 1
            piece = self._pieces[self._tokens] = _Piece(self._operations, self._when_safe)
            self._operations, self._when_safe = [], []
            self._ask_for(self._tokens, piece)
            return
        # Nothing is asked for at the moment, so this may as well be one piece with what waits. (Not with the
        # first one, which is what is tried again.)
        last = next(reversed(self._pieces.values()))
        if (
            len(self._pieces) > 1
            and last.state is _State.WAITING
            and len(last.operations) < OPERATIONS_JOINED_MAX
        ):
            last.operations += self._operations
            last.waiting += self._when_safe
        else:
            self._tokens += 1
            self._pieces[self._tokens] = _Piece(self._operations, self._when_safe)
        self._operations, self._when_safe = [], []

    def _ask_for(self, token: int, piece: _Piece) -> None:
        piece.state = _State.ASKED
        self._askings += 1
        piece.asked = self._askings
        self._turn.effect(Persist(token, piece.operations))

    def persisted(self, answer: Persisted) -> None:
        """The store has done a piece, or has not."""
        piece = self._pieces.get(answer.token)
        if piece is None:
            return
        if answer.error is None:
            piece.state = _State.DONE
        elif answer.temporary or self._out_of_turn(piece):
            # After one failure those behind it may fail for no reason of their own: they would leave a gap.
            piece.state, piece.refused = _State.WAITING, True
            self._failed(answer.error)
        else:
            self.broken = True
            del self._pieces[answer.token]
            self._turn.note("error", "the store failed", reason=answer.error)
        if self._retry_at_us is not None and piece.refused and piece.state is not _State.WAITING:
            self._works_again()
        first = piece
        while self._pieces and (first := next(iter(self._pieces.values()))).state is _State.DONE:
            self._resolve_all(self._pieces.popitem(last=False)[1].waiting)
        if piece.state is _State.DONE and first.state is _State.WAITING and self._retry_at_us is not None:
            # All before it is done, so that there may be room in the store's own queue.
            self._ask_for(next(iter(self._pieces)), first)

    def _resolve_all(self, waiting: Iterable[Waiting]) -> None:
        for each in waiting:
            self._table[type(each)](each)

    def _out_of_turn(self, piece: _Piece) -> bool:
        """Whether something before this was refused, and so comes to the store behind it."""
        for earlier in self._pieces.values():
            if earlier is piece:
                return False
            if earlier.state is _State.WAITING or earlier.asked > piece.asked:
                return True
        return False

    def _failed(self, reason: str) -> None:
        if self._retry_at_us is None:
            self._turn.note("error", "the store takes nothing and is tried again", reason=reason)
        # Several answers may come from one failure: the pause counts from the last of them.
        self._retry_at_us = self._turn.now_us + self._pause_us

    def review(self) -> None:
        """From time to time: try again what failed, the first piece alone."""
        if self._retry_at_us is None or self._turn.now_us < self._retry_at_us:
            return
        token, piece = next(iter(self._pieces.items()))
        if piece.state is _State.WAITING:
            self._pause_us = min(2 * self._pause_us, RETRY_US_MAX)
            self._ask_for(token, piece)

    def _works_again(self) -> None:
        self._retry_at_us = None
        self._pause_us = RETRY_US_MIN
        self._turn.note("info", "the store works again")
        for token, piece in self._pieces.items():
            if piece.state is _State.WAITING:
                self._ask_for(token, piece)

"""How is an exchange of links carried out that brokers have agreed on?

The self-organising paper, section 4.3: on the path i ... a b ... j a link between i and j takes the place
of the one between a and b. It is done by SHIFTs, two fewer than the cycle has links, and every one leaves a
tree:

1. j has the verdict. It asks the directory for the locks of the whole path, if there is one, and sends a
   request along the path. Whoever it comes to takes part in no other change until this one is over. A broker
   that takes part in something else already, that has lost the link or that is about to stop ends it: so of
   two exchanges that meet one gives way, and one that was agreed on for a tree that is gone is dropped.
2. The request is at i: all are ready. The turn goes back to a, which hangs itself on the brokers from b to j,
   one after the other. Then it is the turn of j, which does the same from a to i.
3. j says around the cycle that it is over.

Each SHIFT is an operation as an operator asks for it (`reconfigurations.py`), but for its locks, which are
there already. If one cannot begin yet, or is given up, it is tried again for a while. Whatever is lost in the
middle, what remains is the tree after some of the SHIFTs: nothing is taken back, and the next proposals start
from there. Nobody waits longer for the end than the SHIFTs may take.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from braid.broker.exchange_life import EXCHANGE_LIFE, ExchangeStage, ExchangeStep
from braid.broker.link_life import LinkStage
from braid.broker.operations import ID_LENGTH_MAX, checked_path
from braid.errors import RemoteProtocolError, RequestRefusedError
from braid.protocol.effects import Lock, Progress, Unlock
from braid.protocol.inputs import Locked, LockLost, LockRefused
from braid.protocol.organising import ExchangeEnd, ExchangeRequest, ExchangeTurn
from braid.reconfiguration.exchanges import exchange_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from braid.adaptation.topology import LinkExchange
    from braid.broker.events import OperationEnded
    from braid.broker.operations import Changing, Operation
    from braid.broker.parties import Link
    from braid.broker.turn import Turn
    from braid.reconfiguration import Shift

__all__ = ["Exchanges"]

# Locks that others hold so long are not waited for: their change may make this one worthless.
LOCK_WAIT_US = 1_000_000
# A SHIFT that cannot begin is tried again so soon.
AGAIN_US = 50_000

_STAGE, _STEP = ExchangeStage, ExchangeStep


@dataclass(slots=True, eq=False)
class _Exchange:
    """An exchange as one of its brokers sees it."""

    id: str
    path: tuple[str, ...]
    removed: int
    here: str
    stage: ExchangeStage
    until_us: int
    """When it has taken too long."""
    epoch: int = 0
    lock: int = 0
    """The token of the locks, at the last broker; 0 if there are none."""
    steps: deque[Shift] = field(default_factory=deque)
    """What this broker has yet to carry out, the first one now."""
    tried: int = 0
    """How many operations it has begun for that."""
    waits_for: str = ""
    """The one that is under way."""

    @property
    def place(self) -> int:
        return self.path.index(self.here)

    @property
    def last(self) -> bool:
        return self.here == self.path[-1]

    def step(self, step: ExchangeStep) -> None:
        self.stage = EXCHANGE_LIFE.after(self.stage, step, self)

    def __str__(self) -> str:
        near, far = self.path[self.removed : self.removed + 2]
        return f"exchange {self.id} of {near} - {far} for {self.path[0]} - {self.path[-1]}"


class Exchanges:
    """Takes part in exchanges, in one at a time.

    Args:
        turn: where messages and effects go.
        neighbours: the links by their names.
        changing: the operation under way.
        shift: begins an operation of this broker under locks that are held: its id, path and epoch.
        new_token: for locks.
        new_id: a name that nobody else gives.
        unwilling: why this broker wants no exchange now; empty if it does.
        carried_out: hears that this broker was on the path of an exchange that was.
    """

    def __init__(
        self,
        turn: Turn,
        neighbours: Mapping[str, Link],
        changing: Changing,
        *,
        shift: Callable[[str, tuple[str, ...], int], None],
        new_token: Callable[[], int],
        new_id: Callable[[], str],
        unwilling: Callable[[], str],
        carried_out: Callable[[], None],
    ) -> None:
        self._turn = turn
        self._here = turn.settings.broker_id
        self._neighbours = neighbours
        self._changing = changing
        self._shift = shift
        self._new_token = new_token
        self._new_id = new_id
        self._unwilling = unwilling
        self._carried_out = carried_out
        self._current: _Exchange | None = None
        self.next_us: int | None = None
        """When `look` is to be called at the latest."""
        self.done = 0
        """Exchanges that were carried out, counted where they were begun."""
        self.given_up = 0
        """Those that were not."""

    # Who takes part.

    def reserved_from(self, operation: Operation) -> str:
        """The exchange because of which an operation has to wait; empty if it does not."""
        current = self._current
        if current is None or operation.id.startswith(f"{current.id}/"):
            return ""
        return str(current)

    @property
    def under_way(self) -> str:
        """The exchange that this broker takes part in; empty if there is none."""
        return str(self._current) if self._current is not None else ""

    def begin(self, agreed: LinkExchange) -> None:
        """The verdict was given here, at the last broker of the path: carry it out, or leave it at that."""
        problem = self._hindrance(agreed.path)
        if problem:
            self._note("a better tree is not tried", agreed.path, problem)
            return
        self._reserve(self._new_id(), agreed.path, agreed.removed, _STAGE.LOCKING)
        current = self._current
        assert current is not None
        current.lock = self._new_token()
        self._turn.effect(Lock(current.lock, current.path, LOCK_WAIT_US))

    def lock(self, stimulus: Locked | LockRefused | LockLost) -> None:
        """The directory says whether the locks of a path are ours."""
        current = self._current
        if current is None or not current.lock or current.lock != stimulus.token:
            return
        if isinstance(stimulus, Locked):
            current.epoch = stimulus.epoch
        else:
            current.lock = 0
            if isinstance(stimulus, LockLost) or stimulus.temporary:
                self._end(current, stimulus.reason)
                return
        self._step(current, _STEP.LOCKED)
        # The locks may have taken a while.
        problem = self._hindrance(current.path, current)
        if problem:
            self._end(current, problem)
            return
        request = ExchangeRequest(current.id, current.path, current.removed, current.epoch)
        self._turn.tell(self._neighbours[current.path[-2]], request)

    def requested(self, link: Link, message: ExchangeRequest) -> None:
        """The broker behind on the path, toward the last one, asks to take part."""
        path = checked_path(message.path, self._here)
        place = path.index(self._here)
        if (
            place == len(path) - 1
            or path[place + 1] != link.name
            or not 0 <= message.removed < len(path) - 1
            or not 0 < len(message.exchange) <= ID_LENGTH_MAX // 2
        ):
            raise RemoteProtocolError(f"an exchange of links on {', '.join(path)!r} does not come from there")
        problem = self._hindrance(path)
        if problem:
            self._turn.tell(link, ExchangeEnd(message.exchange, f"{self._here}: {problem}"))
            return
        self._reserve(message.exchange, path, message.removed, _STAGE.RESERVED)
        current = self._current
        assert current is not None
        current.epoch = message.epoch
        if place:
            self._turn.tell(self._neighbours[path[place - 1]], message)
        else:
            self._turn_comes(current)

    def _hindrance(self, path: tuple[str, ...], own: _Exchange | None = None) -> str:
        """Why there can be no exchange on a path now, as far as this broker knows."""
        if self._current is not own:
            return f"it takes part in {self._current}"
        if self._changing.active:
            return f"it takes part in {self._changing.current}"
        place = path.index(self._here)
        for name in (*path[max(0, place - 1) : place], *path[place + 1 : place + 2]):
            link = self._neighbours.get(name)
            if link is None or link.stage is not LinkStage.OPEN:
                return f"there is no open link to {name} any more"
        other = path[-1] if not place else path[0] if place == len(path) - 1 else ""
        if other in self._neighbours:
            return f"{other} is a neighbour already"
        return self._unwilling()

    def _reserve(self, name: str, path: tuple[str, ...], removed: int, stage: ExchangeStage) -> None:
        until_us = self._turn.now_us + LOCK_WAIT_US + (len(path) - 1) * self._turn.settings.operation_us_max
        self._current = _Exchange(name, path, removed, self._here, stage, until_us)
        self.next_us = until_us
        self._turn.effect(Progress("exchange", name, stage.name.lower()))

    def _step(self, current: _Exchange, step: ExchangeStep, detail: str = "") -> None:
        current.step(step)
        self._turn.effect(Progress("exchange", current.id, current.stage.name.lower(), detail))

    # Whose turn it is.

    def its_turn(self, link: Link, message: ExchangeTurn) -> None:
        """All of the path are ready: on to the first broker that moves, or from there to the other one."""
        current = self._current
        if current is None or current.id != message.exchange or current.stage is not _STAGE.RESERVED:
            return  # it was given up here
        path, place = current.path, current.place
        if current.last:
            before = path[current.removed]
        else:
            before = path[place - 1] if 0 < place <= current.removed else ""
        if link.name != before:
            raise RemoteProtocolError(f"the turn in {current} does not come from there")
        self._turn_comes(current)

    def _turn_comes(self, current: _Exchange) -> None:
        if current.place < current.removed:
            self._tell_turn(current, current.path[current.place + 1])
            return
        self._step(current, _STEP.TURN)
        steps = exchange_steps(current.path, current.removed)
        current.steps = deque(each for each in steps if each.moving == self._here)
        self.next_us = self._turn.now_us

    def _tell_turn(self, current: _Exchange, name: str) -> None:
        link = self._neighbours.get(name)
        if link is None or not link.agreed:
            self._end(current, f"{self._here} has lost its link to {name}")
        else:
            self._turn.tell(link, ExchangeTurn(current.id))

    # Moving.

    @property
    def active(self) -> bool:
        """Whether `look` has something to do, sooner or later."""
        return self._current is not None

    def look(self) -> None:
        """Go on with what can go on, and end what takes too long."""
        current = self._current
        if current is None:
            return
        now_us = self._turn.now_us
        if now_us >= current.until_us:
            self._end(current, f"it took too long; it was {current.stage.name.lower()} at {self._here}")
        elif current.stage is _STAGE.MOVING and not current.waits_for and now_us >= (self.next_us or 0):
            self._move(current)

    def _move(self, current: _Exchange) -> None:
        if not current.steps:
            self._moved(current)
            return
        step = current.steps[0]
        current.tried += 1
        current.waits_for = f"{current.id}/{self._here[: ID_LENGTH_MAX // 4]}/{current.tried}"
        self.next_us = current.until_us
        try:
            self._shift(current.waits_for, (step.moving, step.old, step.new), current.epoch)
        except RequestRefusedError:
            # Others may not be through with the last one yet. What does not pass ends with the time there is.
            self._try_again(current)

    def _try_again(self, current: _Exchange) -> None:
        current.waits_for = ""
        self.next_us = min(self._turn.now_us + AGAIN_US, current.until_us)

    def violations(self) -> Iterator[str]:
        """What is wrong with it; nothing if all is well."""
        current = self._current
        if current is not None and current.stage is ExchangeStage.OVER:
            yield f"{current} is over and still under way"
        if (current is None) != (self.next_us is None):
            yield f"{current} is looked at again at {self.next_us}"
        if current is not None and current.waits_for and not current.steps:
            yield f"{current} waits for {current.waits_for}, and has nothing to carry out"

    def operation_ended(self, event: OperationEnded) -> None:
        """An operation of this broker is over."""
        current = self._current
        if current is None or not current.waits_for or current.waits_for != event.operation:
            return
        if event.problem:
            self._try_again(current)
            return
        current.waits_for = ""
        current.steps.popleft()
        self.next_us = self._turn.now_us

    def _moved(self, current: _Exchange) -> None:
        if current.last:
            self._end(current, "")
            return
        self._step(current, _STEP.MOVED)
        self.next_us = current.until_us
        self._tell_turn(current, current.path[-1])

    # The end.

    def ended(self, link: Link, message: ExchangeEnd) -> None:
        """A broker of the cycle says that it is over."""
        current = self._current
        if current is not None and current.id == message.exchange and link.name in current.path:
            self._end(current, message.problem, link.name)

    def _end(self, current: _Exchange, problem: str, heard_from: str = "") -> None:
        self._step(current, _STEP.ENDED, problem)
        self._current = self.next_us = None
        path, place = current.path, current.place
        for name in (path[place - 1], path[(place + 1) % len(path)]):
            link = self._neighbours.get(name)
            if link is not None and link.agreed and name != heard_from:
                self._turn.tell(link, ExchangeEnd(current.id, problem))
        if current.lock:
            self._turn.effect(Unlock(current.lock))
        if not problem:
            self._carried_out()
        if current.last:
            self.done += not problem
            self.given_up += bool(problem)
            self._note("a better tree was given up" if problem else "the tree is better now", path, problem)

    def _note(self, text: str, path: tuple[str, ...], problem: str) -> None:
        self._turn.note("info", text, path=list(path), problem=problem)

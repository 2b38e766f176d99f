"""How do the rooms act as one broker?

`BrokerCore` is a machine without sockets or clocks: inputs go in, effects come out. It hands each message to
the handler that knows what to do, and sees to it that a peer's mistake closes that peer's connection and
touches nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.broker.composition import Composition
from braid.broker.connections import kind_of_party
from braid.broker.draining import REVIEW_US as DRAINING_REVIEW_US
from braid.broker.parties import Client
from braid.broker.reports import statistics_of
from braid.broker.story import Story
from braid.errors import InvariantViolated, RemoteProtocolError, RequestRefusedError, UnknownStepError
from braid.protocol import Frame, PublicationBatch
from braid.protocol.inputs import (
    Closed,
    Drain,
    Locked,
    LockLost,
    LockRefused,
    LogRead,
    Malformed,
    Opened,
    Persisted,
    Probed,
    Received,
    Reconfigured,
    Resources,
    Swept,
    Tick,
    Writable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from braid.broker.access import AccessPolicy
    from braid.broker.settings import BrokerSettings
    from braid.broker.snapshot import BrokerSnapshot
    from braid.broker.ways import Source
    from braid.matching import Matcher
    from braid.protocol.effects import Effect
    from braid.protocol.inputs import Input
    from braid.protocol.log import KeepStanding, StoreState

__all__ = ["BrokerCore"]

# Between two steps of tidying, so that others have their turn.
TIDY_PAUSE_US = 1_000


class BrokerCore:
    """One broker."""

    __slots__ = (
        "_admission",
        "_changing",
        "_completeness",
        "_connections",
        "_delegated",
        "_dialling",
        "_draining",
        "_durables",
        "_endings",
        "_exchanges",
        "_handshake",
        "_invariants",
        "_limits",
        "_links",
        "_liveness",
        "_loads",
        "_maps",
        "_matcher",
        "_mesh",
        "_operator",
        "_publish",
        "_reconfigurations",
        "_replacements",
        "_reports",
        "_resumptions",
        "_review_at_us",
        "_soft",
        "_sources",
        "_story",
        "_streams",
        "_subscriptions",
        "_tidy_at_us",
        "_topology",
        "_turn",
        "_turns",
        "_ways",
        "incarnation",
        "settings",
    )

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        incarnation: str,
        seed: int,
        access: AccessPolicy | None = None,
        store: StoreState | None = None,
        neighbours: Iterable[tuple[str, str]] = (),
        stopwatch: Callable[[], int] | None = None,
        matcher: Matcher | None = None,
        standing: KeepStanding | None = None,
    ) -> None:
        """
        Args:
            settings: its choices.
            incarnation: unlike that of every earlier start of a broker with this id.
            seed: for the chance in its pauses, and for names that nobody can guess.
            access: who may do what; everybody everything if not given.
            store: what was kept from earlier; None if nothing is kept.
            stopwatch: nanoseconds, for statistics only; without one matching is not timed.
            neighbours: ids and addresses that another part, such as a directory, remembers from earlier.
            matcher: who answers which destinations want a publication; its own index if not given.
            standing: in whose place it runs, with whose name; what the store says if not given.
        """
        self.settings = settings
        self.incarnation = incarnation
        parts = Composition(settings, incarnation, seed, access, store, stopwatch, matcher, standing)
        self._turn = parts.turn
        self._connections = parts.connections
        self._endings = parts.endings
        self._dialling = parts.dialling
        self._handshake = parts.handshake
        self._links = parts.links
        self._completeness = parts.completeness
        self._maps = parts.maps
        self._soft = parts.soft
        self._loads = parts.loads
        self._mesh = parts.mesh
        self._subscriptions = parts.subscriptions
        self._streams = parts.streams
        self._durables = parts.durables
        self._delegated = parts.delegated
        self._publish = parts.publish
        self._ways = parts.publish.ways
        self._sources = self._ways.sources
        self._admission = parts.admission
        self._liveness = parts.liveness
        self._reports = parts.reports
        self._topology, self._exchanges = parts.topology, parts.exchanges
        self._operator = parts.operator
        self._draining = parts.draining
        self._changing = parts.changing
        self._limits = parts.limits
        self._reconfigurations = parts.reconfigurations
        self._replacements = parts.replacements
        self._resumptions = parts.resumptions
        self._turns = parts.turns
        self._matcher = parts.tables.matcher
        self._invariants = parts.invariants
        self._story = Story()
        self._review_at_us: int | None = None
        self._tidy_at_us: int | None = None
        self._remember(neighbours, store, parts.standing)
        if settings.flooding:
            self._subscriptions.announce_anything()

    def _remember(
        self,
        neighbours: Iterable[tuple[str, str]],
        store: StoreState | None,
        standing: KeepStanding | None,
    ) -> None:
        """What was there before the last restart, and who belongs to the place of another process."""
        self._links.remember((name, "") for name in self.settings.expected)
        if standing is not None:
            self._links.remember(standing.neighbours, dict(standing.neighbours))
        self._links.remember(neighbours)
        if store is not None:
            self._links.remember(store.neighbours, dict(store.met_at))
            self._links.restore(store.ended)
            self._replacements.restore(store.replaced)
            for log in store.logs:
                self._durables.restore(log)

    # The two doors.

    def handle(self, stimulus: Input, now_us: int) -> list[Effect]:
        """Take in what happened and say what is to be done, in order."""
        if now_us < self._turn.calm_until_us and type(stimulus) is Received:
            source = self._sources.get(stimulus.connection) or self._source(stimulus.connection)
            try:
                if source is not None:
                    taken = self._publish.take_in(source, stimulus.frames, now_us)
                    if taken is not None:
                        if self._topology.organising is not None:
                            self._topology.organising.observe(stimulus, taken)
                        return taken
            except (RemoteProtocolError, RequestRefusedError) as error:
                self._endings.wrong(stimulus.connection, error)
                stimulus = Tick()  # all that is left of this turn
        self._story.add(stimulus, now_us)
        late_us = now_us - self._turn.deadline_us
        self._turn.now_us = now_us
        if late_us > self.settings.heartbeat_us and self._review_at_us is not None:
            self._ways.forget()
            self._replacements.woke(late_us)
        self._turns.work = 0
        try:
            self._act(stimulus, now_us)
        except UnknownStepError as error:
            self._ways.forget()
            self._endings.stray(error, self._story.lines())
        self._durables.work.collect()
        effects = self._turn.collect()
        organising = self._topology.organising
        if organising is not None:
            organising.observe(stimulus, effects)
        self._turn.deadline_us = deadline_us = self._next_deadline_us()
        busy = self._links.holding or self._draining.begun or self._turns.busy or self._changing.active
        self._turn.calm_until_us = 0 if busy or self._tidy_at_us is not None else deadline_us
        return effects

    def _act(self, stimulus: Input, now_us: int) -> None:
        """Do what follows from an input, and from the time that it is.

        Raises:
            UnknownStepError: something happened to a party that cannot; what else there was to do is left.
        """
        if isinstance(stimulus, Received):
            self._endings.guarded(stimulus.connection, self._take_in, stimulus.connection, stimulus.frames)
        elif not isinstance(stimulus, Tick):
            self._ways.forget()
            self._happened(stimulus)
        self._on_time(now_us)
        if self._turns.due_us is not None and now_us >= self._turns.due_us and not self._turns.work:
            self._turns.serve()
        if isinstance(stimulus, Tick) and self._subscriptions.unfinished:
            self._ways.forget()
            self._subscriptions.step()
        if isinstance(stimulus, Tick) and self._resumptions.unfinished:
            self._resumptions.step()
        if self._limits.active:
            self._limits.look()
        if self._changing.active:
            self._ways.forget()
            self._reconfigurations.look()
        if self._exchanges.active:
            self._exchanges.look()
        if self._tidy_at_us is not None or self._matcher.unfinished:
            self._tidy(now_us, quiet=isinstance(stimulus, Tick))

    def _happened(self, stimulus: Input) -> None:
        if isinstance(stimulus, Writable):
            self._writable(stimulus)
        elif isinstance(stimulus, Opened):
            self._handshake.opened(stimulus)
        elif isinstance(stimulus, Closed):
            self._closed(stimulus)
        elif isinstance(stimulus, Malformed):
            self._endings.broken(stimulus.connection, "malformed", stimulus.reason)
        elif isinstance(stimulus, Persisted | Swept | Resources):
            self._durables.heard(stimulus)
        elif isinstance(stimulus, LogRead):
            self._durables.reading.was_read(stimulus)
        elif isinstance(stimulus, Reconfigured):
            self._admission.reconfigured(stimulus)
        elif isinstance(stimulus, Locked | LockRefused | LockLost):
            self._reconfigurations.requests.lock(stimulus)
            self._exchanges.lock(stimulus)
        elif isinstance(stimulus, Probed):
            self._topology.probed(stimulus)
        elif isinstance(stimulus, Drain):
            self._draining.begin()
            self._review_at_us = None
        else:
            raise TypeError(f"{stimulus!r} is no input")

    def _source(self, connection: int) -> Source | None:
        party = self._connections.parties.get(connection)
        return self._ways.source(party) if party is not None else None

    def next_deadline_us(self) -> int | None:
        """When a `Tick` is due at the latest."""
        return self._turn.deadline_us

    def _next_deadline_us(self) -> int:
        due_us = self._review_at_us
        if due_us is None:
            return 0
        organising = self._topology.organising
        for at_us in (
            self._turn.acknowledge_at_us,
            self._dialling.next_us,
            self._tidy_at_us,
            self._mesh.review_at_us,
            self._subscriptions.installations.next_deadline_us,
            self._turns.due_us,
            self._handshake.next_refusal_us,
            organising.due_us if organising is not None else None,
            self._reconfigurations.next_us,
            self._exchanges.next_us,
            self._turn.now_us if self._subscriptions.unfinished or self._resumptions.unfinished else None,
        ):
            if at_us is not None and at_us < due_us:
                due_us = at_us
        return due_us

    # Messages.

    def _take_in(self, connection: int, frames: Sequence[Frame]) -> None:
        party = self._connections.parties.get(connection)
        visitor = self._connections.visitors.get(connection)
        if party is None and visitor is not None and visitor.refusal is None and frames:
            first = frames[0].body
            if isinstance(first, PublicationBatch):
                raise RemoteProtocolError("publications before a greeting")
            self._ways.forget()
            party, frames = self._handshake.greeted(connection, first), frames[1:]
        if party is not None:
            party.heard(self._turn.now_us)
            if not frames and visitor is None:
                self._liveness.comes_on(party)
            if self._draining.begun and isinstance(party, Client):
                frames = self._draining.admitted(party, frames)
            self._turns.take_in(party, frames)

    # Connections.

    def _writable(self, stimulus: Writable) -> None:
        party = self._connections.parties.get(stimulus.connection)
        if party is not None:
            party.channel.writable = stimulus.writable
            self._turn.caught_up(party)
            self._turn.changed(party)
            self._turns.writable(stimulus.connection)

    def _closed(self, closed: Closed) -> None:
        connection = closed.connection
        if connection is None:
            self._endings.not_made(closed.dialled, closed.soft)
            return
        party = self._connections.parties.get(connection)
        if party is not None:
            self._turn.note("info", "connection closed", party=party.name, reason=closed.reason)
            self._endings.guarded(connection, self._turns.last_words, connection)
        self._endings.closed(connection)

    # Time.

    def _on_time(self, now_us: int) -> None:
        self._links.begin(now_us)
        self._dialling.due(now_us)
        for connection, error in self._handshake.refusals_due() if self._handshake.refused else ():
            self._endings.broken(connection, error.code, str(error))
        if self._mesh.review_at_us is not None and now_us >= self._mesh.review_at_us:
            self._review_mesh(now_us)
        self._subscriptions.installations.review(now_us)
        if self._topology.organising is not None:
            self._topology.organising.on_time(now_us)
        if self._review_at_us is not None and now_us < self._review_at_us:
            return
        self._review_at_us = now_us + min(self.settings.heartbeat_us, self.settings.recovery_us_max) // 4
        self._review(now_us)

    def _tidy(self, now_us: int, quiet: bool) -> None:
        """Let the index go on with its merging when nothing else is to be done, a step at a time."""
        matcher = self._matcher
        if not matcher.unfinished:
            self._tidy_at_us = None
        elif self._tidy_at_us is None:
            self._tidy_at_us = now_us + TIDY_PAUSE_US
        elif quiet and now_us >= self._tidy_at_us:
            self._tidy_at_us = now_us + TIDY_PAUSE_US if matcher.tidy() else None

    def _review(self, now_us: int) -> None:
        """Look after everything that only time brings about."""
        for connection in self._handshake.overdue():
            self._endings.broken(connection, "late", "no greeting came in time")
        self._turns.review()
        self._durables.review()
        self._durables.reading.review()
        self._admission.review()
        parties = list(self._connections.parties.values())
        for party in parties:
            if party.line.waiting:
                self._turn.tell_apart(party)
        for party, code, reason in self._liveness.review(parties):
            if party.connection is not None:
                self._endings.broken(party.connection, code, reason)
                self._delegated.leave(party)
        for party in parties:
            for stream in () if party.is_broker else self._turn.stalled(party):
                if party.connection is not None:
                    self._ways.forget()
                    self._streams.give_up(stream)
        if self._links.holding and any(link.down for link in self._links.links.values()):
            self._ways.forget()
        self._replacements.review()
        self._links.review_waiting()
        self._links.review_leaving()
        self._completeness.tell()
        self._review_mesh(now_us)
        if self._draining.begun:
            self._review_at_us = now_us + DRAINING_REVIEW_US
            self._draining.review(now_us)

    def _review_mesh(self, now_us: int) -> None:
        self._ways.add_up()  # it looks at what was passed on
        self._delegated.look_again()
        self._mesh.review(now_us)
        self._ways.forget_if_moved()

    # For people and metrics.

    @property
    def ready(self) -> bool:
        """Whether publications are accepted."""
        return self._completeness.ready and not (self._draining.begun or self._durables.short)

    def validate(self) -> None:
        """Check everything that must hold between two turns. It looks at all there is: it takes a while.

        Raises:
            InvariantViolated: what does not hold, with the latest inputs as its story.
        """
        found = [*self._endings.strayed, *self._invariants.violations()]
        if found:
            problem = f"{self.settings.broker_id}: {'; '.join(found)}"
            raise InvariantViolated(problem, tuple(self._story.lines()))

    def snapshot(self) -> BrokerSnapshot:
        """What this broker is like now: a value that can be compared, shown and sent."""
        self._ways.add_up()
        return self._reports.snapshot()

    def who(self, connection: int) -> tuple[str, str] | None:
        """Who is at the other end of a connection: `client`, `broker` or `soft`, and the name."""
        party = self._connections.parties.get(connection)
        return None if party is None else (kind_of_party(party), party.name)

    def answer(self, topic: str, answer: Callable[[Mapping[str, str]], Any]) -> None:
        """Have a further question of operators answered, such as one about what this broker is part of."""
        self._operator.topics[topic] = answer

    def statistics(self) -> dict[str, Any]:
        """The same in numbers, for metrics."""
        return statistics_of(self.snapshot())

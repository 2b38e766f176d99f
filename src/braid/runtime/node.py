"""How does a machine meet real time, real sockets and a real disk?

A `Node` drives any machine: it reports what happened, performs what the machine decides, and knows nothing
of what it means. A turn runs to its end without awaiting, so the effects of two inputs never interleave.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from braid.errors import BraidError, StoreError
from braid.protocol.codec import BROKER_VOCABULARY
from braid.protocol.effects import (
    Close,
    Dial,
    Drained,
    Granted,
    Greeted,
    Lock,
    Neighbours,
    Note,
    Pause,
    Persist,
    Probe,
    Progress,
    ReadLog,
    Reload,
    Replaced,
    Send,
    SendTo,
    SweepStore,
    Unlock,
)
from braid.protocol.inputs import (
    Closed,
    Drain,
    LockRefused,
    LogRead,
    Persisted,
    Probed,
    Reconfigured,
    Swept,
    Tick,
)
from braid.runtime.clock import Clock
from braid.runtime.connection import Connection
from braid.runtime.datagrams import FirstBytes
from braid.runtime.probing import probed_us
from braid.runtime.reading import FilterReader
from braid.runtime.tls import handshake_problem, parse_address

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from braid.protocol import Machine
    from braid.protocol.codec import Vocabulary
    from braid.protocol.effects import Effect
    from braid.protocol.inputs import Input, Resources
    from braid.protocol.log import Sweep
    from braid.runtime.datagrams import Datagrams
    from braid.runtime.store import StoreThread
    from braid.runtime.tracing import NodeTracing

__all__ = ["Handshakes", "Node"]

# One attempt to open a connection, with its handshake; a machine that does not answer costs this long.
DIAL_TIMEOUT_S: Final = 5.0
# How long a connection that was accepted may take for its TLS handshake, if nothing else is said.
HANDSHAKE_S_MAX: Final = 10.0
# How long nothing is accepted after the system could not give us another connection.
ACCEPT_AGAIN_S: Final = 0.1
# Connections the system may hold for us until we accept them.
BACKLOG: Final = 1024
# How often the machine is told how much disk and memory there is.
LOOK_S: Final = 1.0

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


@dataclass(slots=True)
class Handshakes:
    """TLS handshakes of connections that came to us."""

    under_way: int = 0
    failed: int = 0
    """Those that were not finished, or not in time."""
    refused: int = 0
    """Connections that were closed before, because there were too many."""


class Node:
    """Runs one machine on the running event loop."""

    def __init__(
        self,
        machine: Machine,
        *,
        name: str,
        store: StoreThread | None = None,
        server_tls: ssl.SSLContext | None = None,
        client_tls: ssl.SSLContext | None = None,
        resources: Callable[[], Resources] | None = None,
        on_turn: Callable[[Input, int], None] | None = None,
        tracing: NodeTracing | None = None,
        handshake_s_max: float = HANDSHAKE_S_MAX,
        connections_max: int = 10_000,
        audit: Callable[[Note], None] | None = None,
        vocabulary: Vocabulary = BROKER_VOCABULARY,
        datagrams: Datagrams | None = None,
    ) -> None:
        """
        Args:
            machine: what decides.
            name: for the log.
            store: where durable rows are kept, if anywhere.
            server_tls: for connections that are accepted; None for plain ones.
            client_tls: for connections to `braids://` addresses.
            resources: looks how much there is of what may run out; the machine is told every second.
            on_turn: told after every turn what it was about and how many microseconds it took.
            tracing: writes down what happens in each turn.
            handshake_s_max: how long a TLS handshake may take.
            connections_max: how many connections there may be before another one shakes hands.
            audit: writes down who was let in or refused, and what operators did.
            vocabulary: the messages that the machine understands on its connections.
            datagrams: carries what the machine sends without a connection; it shares the listener.
        """
        self._vocabulary = vocabulary
        self._datagrams = datagrams
        self.handshakes = Handshakes()
        self.reload: Callable[[int], None] = self._cannot_reload
        """Called to read access file and certificates again; it reports `Reconfigured` with this token."""
        self.on_neighbours: Callable[[tuple[str, ...]], None] = lambda names: None
        """Called when the machine has other neighbours than before."""
        self.on_replaced: Callable[[Replaced], None] = lambda replaced: None
        """Called when another process has the machine's name: this one is to be stopped."""
        self.locks: Callable[[Lock | Unlock], None] = self._no_locks
        """Called to take and give back locks; it reports `Locked`, `LockRefused` and `LockLost`."""
        self._audit = audit
        self.drained = asyncio.Event()
        """The machine has finished everything after `drain`."""
        self._machine = machine
        self._log = logging.getLogger(f"braid.node.{name}")
        self._store = store
        self._server_tls = server_tls
        self._client_tls = client_tls
        self._resources = resources
        self._looking: asyncio.TimerHandle | None = None
        self._handshake_s_max = handshake_s_max
        self._connections_max = connections_max
        self._accepting: set[asyncio.Task[None]] = set()
        self._on_turn = on_turn
        self._tracing = tracing
        self._observer: Callable[[Input, Sequence[Effect], int], None] | None = None
        self._loop = asyncio.get_running_loop()
        self._clock = Clock()
        self._filters = FilterReader(self._loop)
        self._servers: list[asyncio.Server] = []
        self._connections: dict[int, Connection] = {}
        self._connections_ever = 0
        self._dialling: set[asyncio.Task[None]] = set()
        self._unreachable: set[str] = set()
        self._inputs: deque[Input] = deque()
        self._in_turn = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_us = 0
        self._stopped = False

    # Starting and stopping.

    async def listen(self, host: str, port: int) -> int:
        """Accept connections; returns the port, which is a free one for 0."""
        tls = self._server_tls is not None
        server = await self._loop.create_server(
            self._visitor, host, port, backlog=BACKLOG, start_serving=not tls
        )
        self._servers.append(server)
        bound: int = server.sockets[0].getsockname()[1]
        if tls:
            for each in server.sockets:
                listener = socket.socket(fileno=os.dup(each.fileno()))
                listener.setblocking(False)
                listener.listen(BACKLOG)
                self._keep(self._accepting, self._accept(listener))
        return bound

    def _cannot_reload(self, token: int) -> None:
        self.report(Reconfigured(token, problem="there are no files to read again"))

    def _no_locks(self, wish: Lock | Unlock) -> None:
        if isinstance(wish, Lock):
            reason = "there is no directory to keep locks in; start the brokers with one"
            self.report(LockRefused(wish.token, reason, temporary=False))

    def use_tls(self, server: ssl.SSLContext | None, client: ssl.SSLContext | None) -> None:
        """Encrypt connections with these from now on. Whether the listener does so at all stays as it was."""
        if self._server_tls is not None and server is not None:
            self._server_tls = server
        self._client_tls = client
        if self._datagrams is not None:
            self._datagrams.use_tls(client)

    def _keep(self, tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _accept(self, listener: socket.socket) -> None:
        """Accept connections that have to shake hands; they count from the first moment."""
        with listener:
            while True:
                try:
                    connection, _ = await self._loop.sock_accept(listener)
                except OSError as error:
                    self._log.warning(
                        "a connection could not be accepted", extra={"fields": {"reason": str(error)}}
                    )
                    await asyncio.sleep(ACCEPT_AGAIN_S)
                    continue
                if len(self._connections) >= self._connections_max:
                    self.handshakes.refused += 1
                    connection.close()
                    continue
                self._keep(self._dialling, self._shake_hands(connection))

    async def _shake_hands(self, accepted: socket.socket) -> None:
        visitor = self._visitor()
        self.handshakes.under_way += 1
        try:
            await self._loop.connect_accepted_socket(
                lambda: visitor,
                accepted,
                ssl=self._server_tls,
                ssl_handshake_timeout=self._handshake_s_max,
            )
        except (OSError, TimeoutError) as error:
            self.handshakes.failed += 1
            if isinstance(visitor, Connection):
                self._forget(visitor.number)
            self._log.info("a handshake failed", extra={"fields": {"reason": handshake_problem(error)}})
        finally:
            self.handshakes.under_way -= 1

    def start(self) -> None:
        """Let the machine begin."""
        if self._datagrams is not None:
            self._datagrams.start(self.report)
        self.report(Tick())
        self._look()

    async def drain(self) -> None:
        """Ask the machine to finish, and wait until it has; it bounds that itself."""
        for server in self._servers:
            server.close()
        for task in self._accepting:
            task.cancel()
        self.report(Drain())
        await self.drained.wait()

    async def stop(self) -> None:
        """End everything now."""
        self._stopped = True
        self._filters.close()
        for timer in (self._timer, self._looking):
            if timer is not None:
                timer.cancel()
        for server in self._servers:
            server.close()
        for task in [*self._dialling, *self._accepting]:
            task.cancel()
        if self._datagrams is not None:
            await self._datagrams.stop()
        waiting = [
            *self._dialling,
            *self._accepting,
            *(connection.lost for connection in self._connections.values()),
        ]
        for connection in list(self._connections.values()):
            connection.close("shutting down")
        if waiting:
            await asyncio.wait(waiting, timeout=3)
        if self._store is not None:
            await asyncio.to_thread(self._store.close)
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.close, self._clock.now_us())

    def now_us(self) -> int:
        """The time by which turns are done."""
        return self._clock.now_us()

    def observe(self, observer: Callable[[Input, Sequence[Effect], int], None] | None) -> None:
        """Have this called after every turn with what came in, what was decided and when it began."""
        self._observer = observer

    # Turns.

    def report(self, stimulus: Input) -> None:
        """Tell the machine what happened and do what it says."""
        if self._stopped:
            return
        self._inputs.append(stimulus)
        if self._in_turn:
            return  # performing an effect has led to it; it has its turn after the others
        self._in_turn = True
        try:
            while self._inputs:
                self._turn(self._inputs.popleft())
        finally:
            self._in_turn = False
        self._rearm()

    def _turn(self, stimulus: Input) -> None:
        begin_us = self._clock.now_us()
        effects = self._machine.handle(stimulus, begin_us)
        for effect in effects:
            self._perform(effect)
        if self._tracing is not None:
            self._tracing.turn(stimulus, effects, begin_us)
        if self._observer is not None:
            self._observer(stimulus, effects, begin_us)
        if self._on_turn is not None:
            self._on_turn(stimulus, self._clock.now_us() - begin_us)

    def _rearm(self) -> None:
        """See to it that the machine's next deadline is met; one that fires early is harmless."""
        deadline_us = self._machine.next_deadline_us()
        if deadline_us is None:
            return
        if self._timer is not None:
            if self._timer_at_us <= deadline_us:
                return
            self._timer.cancel()
        self._timer_at_us = deadline_us
        delay_us = max(0, deadline_us - self._clock.now_us())
        self._timer = self._loop.call_later((delay_us + 1) / 1e6, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self.report(Tick())

    # Effects.

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, Send):
            connection = self._connections.get(effect.connection)
            if connection is not None:
                connection.send(effect.frames)
        elif isinstance(effect, SendTo) and self._datagrams is not None:
            self._datagrams.send(effect)
        elif isinstance(effect, Persist):
            self._persist(effect)
        elif isinstance(effect, ReadLog):
            self._read(effect)
        elif isinstance(effect, SweepStore):
            self._sweep()
        elif isinstance(effect, Close):
            connection = self._connections.get(effect.connection)
            if connection is not None:
                connection.close(effect.reason)
        elif isinstance(effect, Dial):
            self._keep(self._dialling, self._dial(effect))
        elif isinstance(effect, Note):
            self._log.log(_LEVELS[effect.level], effect.what, extra={"fields": dict(effect.fields)})
            if effect.audit and self._audit is not None:
                self._audit(effect)
        elif isinstance(effect, Progress):
            fields = {"operation": effect.operation, "id": effect.id, "phase": effect.phase}
            self._log.info("reconfiguration", extra={"fields": {**fields, "detail": effect.detail}})
        elif isinstance(effect, Pause):
            connection = self._connections.get(effect.connection)
            if connection is not None:
                connection.pause(effect.duration_us)
        elif isinstance(effect, Greeted):
            connection = self._connections.get(effect.connection)
            if connection is not None:
                connection.greeted(effect.frame_bytes_max)
        elif isinstance(effect, Granted):
            connection = self._connections.get(effect.connection)
            if connection is not None:
                connection.granted = effect
        elif isinstance(effect, Drained):
            self.drained.set()
        elif isinstance(effect, Replaced):
            self.on_replaced(effect)
        elif isinstance(effect, Neighbours):
            self.on_neighbours(effect.names)
        elif isinstance(effect, Lock | Unlock):
            self.locks(effect)
        elif isinstance(effect, Probe):
            self._keep(self._dialling, self._probe(effect))
        elif isinstance(effect, Reload):
            self.reload(effect.token)
        else:
            raise TypeError(f"{effect!r} is no effect")

    def _visitor(self) -> asyncio.Protocol:
        """What takes the next connection that comes to us."""
        if self._datagrams is None:
            return self._connection(None)
        return FirstBytes(
            self._datagrams, lambda: self._connection(None), self._handshake_s_max, self._connections_max
        )

    def _connection(self, dialled: Dial | None) -> Connection:
        self._connections_ever += 1
        number = self._connections_ever
        connection = self._connections[number] = Connection(
            number,
            self.report,
            self._forget,
            dialled=dialled,
            vocabulary=self._vocabulary,
            read_filter=self._filters.read,
        )
        return connection

    def _forget(self, number: int) -> None:
        self._connections.pop(number, None)

    async def _dial(self, dial: Dial) -> None:
        text = dial.address
        made: list[int] = []

        def make() -> Connection:
            made.append(self._connections_ever + 1)
            return self._connection(dial)

        try:
            address = parse_address(text)
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                await self._loop.create_connection(
                    make,
                    address.host,
                    address.port,
                    ssl=self._client_tls if address.tls else None,
                )
        except TimeoutError:
            problem = f"{text} did not answer within {DIAL_TIMEOUT_S:g} s"
        except ssl.SSLError as error:
            problem = f"{text}: {handshake_problem(error)}"
        except (OSError, BraidError) as error:
            problem = f"{text}: {error}"
        else:
            self._unreachable.discard(text)
            return
        for number in made:
            self._forget(number)  # its handshake failed, so nobody else knows of it
        # Once per outage is enough for people: it is tried again and again.
        level = logging.DEBUG if text in self._unreachable else logging.WARNING
        self._unreachable.add(text)
        self._log.log(level, "a neighbour cannot be reached", extra={"fields": {"problem": problem}})
        self.report(Closed(None, problem, text, dial.soft))

    async def _probe(self, probe: Probe) -> None:
        self.report(Probed(probe.broker, await probed_us(probe.address)))

    # The store.

    def _persist(self, effect: Persist) -> None:
        def done(error: StoreError | None) -> None:
            self._from_store(_persisted(effect.token, error))

        if self._store is None:
            self.report(Persisted(effect.token, "there is no store"))
            return
        try:
            self._store.submit(effect.operations, done)
        except StoreError as error:
            self.report(_persisted(effect.token, error))

    def _read(self, effect: ReadLog) -> None:
        def done(found: Any) -> None:
            if isinstance(found, StoreError):
                self._from_store(LogRead(effect.token, error=str(found)))
            elif isinstance(found, list):
                self._from_store(LogRead(effect.token, found))
            else:
                self._from_store(LogRead(effect.token, packed=found))

        if self._store is None:
            self.report(LogRead(effect.token, error="there is no store"))
            return
        try:
            read = self._store.read_packed if effect.packed else self._store.read
            read(effect.name, effect.first, effect.last, effect.bytes_max, done)
        except StoreError as error:
            self.report(LogRead(effect.token, error=str(error)))

    def _from_store(self, answer: Input) -> None:
        """On the store's thread: hand the answer to the loop, unless it has ended."""
        if not self._stopped:
            self._loop.call_soon_threadsafe(self.report, answer)

    def _look(self) -> None:
        """Tell the machine from time to time how much disk and memory there is."""
        if self._resources is not None:
            self._looking = self._loop.call_later(LOOK_S, self._look)
            self.report(self._resources())

    def _sweep(self) -> None:
        """Have the store remove old rows; while it is busy, that can wait."""

        def done(found: Sweep | StoreError) -> None:
            if isinstance(found, StoreError):
                self._from_store(Swept(error=str(found)))
            else:
                self._from_store(Swept(found.logs, found.finished))

        if self._store is None or not self._store.has_room:
            self.report(Swept())
        else:
            self._store.sweep(self._clock.now_us(), done)


def _persisted(token: int, error: StoreError | None) -> Persisted:
    return Persisted(token) if error is None else Persisted(token, str(error), error.temporary)

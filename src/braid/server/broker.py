"""`braid.serve`: a whole broker on the event loop of a program.

    async with braid.serve(braid.ServerSettings.of(broker_id="A", listen="127.0.0.1:0")) as broker:
        async with braid.connect(broker.address) as client:
            ...

What the settings name is opened in this order, and closed in the opposite one: access file and certificates,
the audit log, the data directory, the directory of brokers, the trace, the listener, the HTTP server. Several
brokers may live on one event loop; nothing is shared between them.

Logging is left to the program: Braid's loggers are below `braid`. The command `braid broker` sets them up by
the table `[log]`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
import uuid
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from braid.broker.core import BrokerCore
from braid.errors import BraidError, ConfigurationError, DirectoryError
from braid.runtime.locks import DirectoryLocks
from braid.runtime.logs import announce
from braid.runtime.metrics import Metrics, TurnTimes
from braid.runtime.node import Node
from braid.runtime.resources import resources_of
from braid.runtime.tls import parse_address
from braid.server.assembly import (
    check_listener,
    listen,
    open_audit,
    open_broker_directory,
    open_http,
    open_store,
    open_trace,
    reserved,
    with_addresses,
)
from braid.server.dashboard import open_dashboard
from braid.server.doorkeeping import Doorkeeping
from braid.server.peering import Peering, open_peering
from braid.server.registration import Registration, known_neighbours
from braid.server.settings import ServerSettings
from braid.server.standby import answer_standby, in_place, with_ports
from braid.server.watching import Watching

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Mapping
    from types import TracebackType

    from braid.broker.settings import BrokerSettings
    from braid.protocol.effects import Replaced
    from braid.protocol.inputs import Input
    from braid.protocol.log import KeepStanding

__all__ = ["Broker", "BrokerStart", "serve"]

# The machine bounds its draining itself; this is for the case that it cannot.
DRAIN_EXTRA_S: Final = 5.0
# So many leases a standby waits for the name of a broker that is gone, and so long between two attempts.
LEASES_WAITED: Final = 3
NAME_AGAIN_S: Final = 0.5

_log = logging.getLogger("braid.broker")


def serve(
    settings: ServerSettings | Mapping[str, Mapping[str, Any]] | str | os.PathLike[str],
) -> BrokerStart:
    """Run a broker on the running event loop: use it with `async with`, or await it and `stop` it yourself.

    Left without an error, the broker first hands over what it holds (see `Broker.drain`); left by an error,
    it stops at once.

    Args:
        settings: see `ServerSettings.of`; or the path of a configuration file; or what such a file holds, as
            a mapping of tables: `{"broker": {"broker_id": "A"}}`.

    Raises:
        ConfigurationError: something in the settings cannot be used; the message says what to change. Nothing
            is left open then.
    """
    return BrokerStart(settings if isinstance(settings, ServerSettings) else ServerSettings.of(settings))


class BrokerStart:
    """What `serve` returns: await it, or enter it with `async with`."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._broker: Broker | None = None

    def __await__(self) -> Generator[Any, None, Broker]:
        return self._start().__await__()

    async def _start(self) -> Broker:
        if self._broker is not None:
            raise ConfigurationError("a broker is started once; call serve() again for another one")
        broker = self._broker = Broker(self._settings)
        await broker._open()
        return broker

    async def __aenter__(self) -> Broker:
        return await self._start()

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if self._broker is not None:
            await self._broker.stop(drain=error is None)


class Broker:
    """A running broker; made by `serve`. Everything here belongs to the event loop that it was started on."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        """What it was started with."""
        self.http = ""
        """Where it serves health and metrics, such as `http://127.0.0.1:9000`; "" if it does not."""
        self.dashboard = ""
        """Where its dashboard is, such as `http://127.0.0.1:7080/`; "" if it has none."""
        self._stack = AsyncExitStack()
        self._peering: Peering | None = None
        self.refused = asyncio.Event()
        """Set when the peers that it was to join do not want it, or another process has its name;
        `why_not_ready` says why."""
        self._standing: KeepStanding | None = None
        self._replaced: Replaced | None = None
        self._taking: asyncio.Task[None] | None = None
        self._leaving = asyncio.Event()
        """Set when this process is to end, so that it does not wait for another's name any longer."""
        self._ending: asyncio.Future[None] | None = None
        self._settings: BrokerSettings
        self._core: BrokerCore
        self._node: Node
        self._port = 0
        self._ready = asyncio.Event()
        self._draining = False
        self._cut_short = False
        self._stopping: asyncio.Task[None] | None = None

    # What a program may know.

    @property
    def broker_id(self) -> str:
        """Its name in the network."""
        return self.settings.broker.broker_id

    @property
    def address(self) -> str:
        """Where clients and neighbours reach it, with the real port, such as `braid://127.0.0.1:7000`."""
        address = self._settings.address
        return address.replace("://", "+p2p://", 1) if self.settings.peers.alone else address

    @property
    def port(self) -> int:
        """The port of the listener; the one that was taken if 0 was asked for."""
        return self._port

    @property
    def ready(self) -> bool:
        """Whether publications are accepted: it knows what its neighbours want, and has room."""
        return not self.stopped and self._core.ready and (self._peering is None or self._peering.joined)

    @property
    def stopped(self) -> bool:
        """Whether it has ended, or is about to."""
        return self._stopping is not None

    def why_not_ready(self) -> str:
        """A sentence, empty while it is ready."""
        if self.ready:
            return ""
        if self._replaced is not None:
            return (
                f"the broker at {self._replaced.address} has the name {self.broker_id} now: this process is "
                "not needed any more. To use it again, give it another id and an empty data directory"
            )
        found = self.statistics()
        if found["store_failed"]:
            return "the store has failed; the log says how"
        if found["disk_low"]:
            return "the disk is nearly full"
        if found["memory_high"]:
            return "memory is short"
        if not found["ready"]:
            return "waiting for the tables of the neighbours"
        if self._peering is not None and (reason := self._peering.why_not_ready()):
            return reason
        return "shutting down"

    def statistics(self) -> dict[str, Any]:
        """Counters, and how much there is of everything now: what metrics and `braid overlay top` show."""
        return self._core.statistics()

    async def wait_ready(self, timeout_s: float | None = None) -> None:
        """Return once publications are accepted for the first time.

        Raises:
            TimeoutError: not within `timeout_s` seconds; the message says what it waits for.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._ready.wait()
        except TimeoutError:
            raise TimeoutError(
                f"broker {self.broker_id} is not ready after {timeout_s:g} s: {self.why_not_ready()}"
            ) from None

    # What a program may do.

    def reload(self) -> None:
        """Read access file, certificates and revocation lists again, as SIGHUP makes `braid broker` do.

        If something is wrong with one of them, nothing changes, and the log says what is wrong.
        """
        self._node.reload(0)

    async def drain(self) -> bool:
        """Accept nothing more and hand over what is held; True when all of it was handed over.

        Bounded by the setting `drain_us_max`. Afterwards only `stop` is left.
        """
        if not self.stopped:
            self._draining = True
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.drain_us_max / 1e6 + DRAIN_EXTRA_S):
                    await self._node.drain()
        return self._node.drained.is_set() and not self._cut_short

    async def stop(self, *, drain: bool = True) -> None:
        """End the broker. May be called any number of times; with `drain=False` it ends others that drain.

        Args:
            drain: whether what it holds is handed over first. Without, publications that are neither
                acknowledged delivery nor stored may be lost.
        """
        self._leaving.set()
        try:
            if self._taking is not None and self._taking is not asyncio.current_task():
                await asyncio.wait([self._taking])
            if drain:
                await self.drain()
        finally:
            if self._stopping is None:
                self._stopping = asyncio.ensure_future(self._close())
            await asyncio.shield(self._stopping)

    async def _close(self) -> None:
        drained = self._node.drained
        self._cut_short = not drained.is_set()
        if self._draining and self._cut_short:
            _log.warning("stopped before everything was handed over")
        await self._stack.aclose()
        drained.set()  # nobody waits for what cannot happen any more
        announce("stopped")

    # Taking the place of another broker, or giving way to one.

    def _take_over(self, standing: KeepStanding) -> None:
        """This process is to have the name of a broker that is gone."""
        if self._taking is None and not self.stopped:
            self._taking = asyncio.ensure_future(self._change_places(standing))

    async def _change_places(self, standing: KeepStanding) -> None:
        try:
            # Whoever asked for it is told before the connections end.
            async with asyncio.timeout(DRAIN_EXTRA_S):
                await self._node.drain()
        except TimeoutError:
            _log.warning("takes another broker's place before all clients have left")
        await self._stack.aclose()
        self._ready = asyncio.Event()
        given = with_ports(self.settings, self._port, self.http)
        try:
            await self._open_in_place(given, standing)
        except BraidError as error:
            _log.error("cannot take the place of a broker", extra={"fields": {"reason": str(error)}})
            self.refused.set()
        self._taking = None

    async def _open_in_place(self, given: ServerSettings, standing: KeepStanding) -> None:
        """Begin anew. In a directory the name is taken until the lease of the broker that is gone ends."""
        clock = asyncio.get_running_loop().time
        until_s = clock() + LEASES_WAITED * given.directory_settings.lease_s
        while True:
            self._stack = AsyncExitStack()
            self._standing, self.settings = standing, given
            try:
                await self._open()
            except DirectoryError as error:
                if clock() >= until_s or self._leaving.is_set():
                    raise
                _log.info("waits for the name of a broker", extra={"fields": {"reason": str(error)}})
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._leaving.wait(), NAME_AGAIN_S)
            else:
                return

    def _gives_way(self, replaced: Replaced) -> None:
        """Another process has our name: end, at once."""
        self._replaced = replaced
        self.refused.set()
        self._ending = asyncio.ensure_future(self.stop(drain=False))

    # The beginning.

    async def _open(self) -> None:
        try:
            await self._open_all(self._stack)
        except BaseException:
            await self._stack.aclose()
            raise
        announce("listening", address=self.address, **({"http": self.http} if self.http else {}))
        self._node.start()
        try:
            self.dashboard = await open_dashboard(self.settings, self.address, self._stack)
        except BaseException:
            await self._stack.aclose()
            raise
        if self.dashboard:
            announce("dashboard", address=self.dashboard)

    async def _open_all(self, stack: AsyncExitStack) -> None:
        wanted = self.settings
        doors = Doorkeeping(wanted)
        listener = parse_address(wanted.listener.listen)
        check_listener(listener.host, wanted, doors)
        http = parse_address(wanted.http.listen.removeprefix("http://")) if wanted.http.listen else None
        if http is not None:
            check_listener(http.host, wanted, doors, "to serve HTTP")
        audit = open_audit(wanted, stack)
        store, state = open_store(wanted, stack, self._standing)
        # What is kept does not say how publications come back: that holds for this beginning only.
        standing, self._standing = self._standing, None
        if standing is None and state is not None:
            standing = state.standing
        wanted = self.settings = in_place(wanted, standing)
        directory = await open_broker_directory(wanted, stack)
        listener, keeper = reserved(listener, doors.server_tls is not None)
        with keeper:
            settings = self._settings = with_addresses(wanted.broker, listener)
            peering = self._peering = open_peering(wanted, settings, listener, doors)
            if peering is not None:
                peering.on_refusal = self.refused.set
            core = self._core = BrokerCore(
                settings,
                incarnation=uuid.uuid4().hex,
                seed=secrets.randbits(64),
                access=doors.amend(doors.access),
                store=state,
                neighbours=await known_neighbours(directory, settings.broker_id),
                stopwatch=time.perf_counter_ns,
                standing=standing,
            )
            answer_standby(wanted, core, standing, self._take_over)
            turns = TurnTimes()
            tls = doors.client_tls if doors.server_tls is not None else None
            node = self._node = Node(
                peering.open(core, tls) if peering is not None else core,
                name=settings.broker_id,
                store=store,
                server_tls=doors.server_tls,
                client_tls=doors.client_tls,
                resources=partial(resources_of, wanted.store.data_dir),
                on_turn=_Observer(lambda: self.ready, turns, self._ready),
                tracing=open_trace(
                    wanted.trace, core, stack, peering.report if peering is not None else None
                ),
                handshake_s_max=settings.handshake_us_max / 1e6,
                connections_max=settings.connections_max,
                audit=audit,
                datagrams=peering.datagrams if peering is not None else None,
            )
            node.reload = partial(doors.reload, node, audit)
            watching = Watching(core.who, node.now_us, node.observe)
            core.answer("watch", watching.watch)
            core.answer("way", watching.way)
            core.answer("process", lambda arguments: {"busy_us": turns.busy_us})
            node.on_replaced = self._gives_way
            stack.push_async_callback(node.stop)
            await listen(node, listener)
            self._port = listener.port
        if directory is not None:
            registration = Registration(directory, core)
            node.on_neighbours = registration.changed
            await registration.begin()
            stack.push_async_callback(registration.end)
            locks = DirectoryLocks(directory, node.report)
            node.locks = locks
            stack.push_async_callback(locks.close)
        metrics = Metrics(core, turns, node.handshakes, peering.report if peering is not None else None)
        self.http = await open_http(http, self.why_not_ready, metrics, doors, stack)


class _Observer:
    """Hears of every turn: times it, and says when the broker has become ready."""

    def __init__(self, is_ready: Callable[[], bool], turns: TurnTimes, ready: asyncio.Event) -> None:
        self._is_ready = is_ready
        self._turns = turns
        self._ready = ready
        self._waiting = True

    def __call__(self, stimulus: Input, duration_us: int) -> None:
        self._turns(stimulus, duration_us)
        if self._waiting and self._is_ready():
            self._waiting = False
            self._ready.set()
            if not logging.getLogger("braid.node").isEnabledFor(logging.INFO):
                announce("ready")  # otherwise the broker's own line has said it

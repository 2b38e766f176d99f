"""How is a broker run from a terminal or by a service manager?

`run_broker` opens what the configuration names, in this order, and closes it in the opposite one: the log,
access file and certificates, the data directory, the directory of brokers, the trace, the listener, the HTTP
server.
Whatever is wrong with one of them is a `BraidError` before anybody can connect.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import secrets
import signal
import socket
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from braid.broker.core import BrokerCore
from braid.broker.settings import BrokerSettings
from braid.cli.config_file import Configuration, TraceSettings
from braid.cli.reloading import Doorkeeping
from braid.errors import BraidError, ConfigurationError, DirectoryError
from braid.protocol.inputs import Input
from braid.protocol.log import StoreState
from braid.runtime.audit import AuditLog
from braid.runtime.directory import BrokerEntry, Directory, open_directory
from braid.runtime.http import HttpServer, operator_routes
from braid.runtime.logs import announce, configure_logs
from braid.runtime.metrics import Metrics, TurnTimes
from braid.runtime.node import Node
from braid.runtime.resources import resources_of
from braid.runtime.store import SqliteStore, StoreThread
from braid.runtime.tls import Address, check_binding, is_loopback, parse_address
from braid.runtime.tracing import NodeTracing

__all__ = ["run_broker"]

# The machine bounds its draining itself; this is for the case that it cannot.
DRAIN_EXTRA_S: Final = 5.0
# How often the directory is told who the neighbours are, if that has changed.
DIRECTORY_REVIEW_S: Final = 1.0

# Objects made and not freed before the collector looks.
GC_ALLOCATIONS: Final = 50_000

_log = logging.getLogger("braid.broker")


def run_broker(configuration: Configuration) -> None:
    """Run until SIGTERM or SIGINT, then hand everything over and return; a second signal ends it at once.

    Raises:
        BraidError: it could not be started.
    """
    configure_logs(
        configuration.broker.broker_id, format=configuration.log.format, level=configuration.log.level
    )
    # Publications make many short-lived objects, and none of them in circles: look for circles less often,
    # and never among what was there from the start.
    gc.freeze()
    gc.set_threshold(GC_ALLOCATIONS, 20, 100)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_run(configuration))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed, which saves a third of the time per message."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _run(configuration: Configuration) -> None:
    doors = Doorkeeping(configuration)
    listen = parse_address(configuration.listener.listen)
    tls = doors.server_tls is not None
    _check_listener(listen.host, configuration, doors)
    http = (
        parse_address(configuration.http.listen.removeprefix("http://"))
        if configuration.http.listen
        else None
    )
    if http is not None:
        _check_listener(http.host, configuration, doors, "to serve HTTP")
    async with AsyncExitStack() as stack:
        audit = _open_audit(configuration, stack)
        store, state = _open_store(configuration, stack)
        directory = await _open_directory(configuration, stack)
        listen, reserved = _reserved(listen, tls)
        with reserved:
            settings = _settings(configuration.broker, listen)
            known = await _known_neighbours(directory, settings.broker_id)
            core = BrokerCore(
                settings,
                incarnation=uuid.uuid4().hex,
                seed=secrets.randbits(64),
                access=doors.access,
                store=state,
                neighbours=known,
                stopwatch=time.perf_counter_ns,
            )
            turns = TurnTimes()
            tracing = _open_trace(configuration.trace, core, stack)
            node = Node(
                core,
                name=settings.broker_id,
                store=store,
                server_tls=doors.server_tls,
                client_tls=doors.client_tls,
                resources=partial(resources_of, configuration.store.data_dir),
                on_turn=_Observer(core, turns),
                tracing=tracing,
                handshake_s_max=settings.handshake_us_max / 1e6,
                connections_max=settings.connections_max,
                audit=audit,
            )
            node.reload = partial(doors.reload, node, audit)
            stack.push_async_callback(node.stop)
            await _listen(node, listen)
        if directory is not None:
            registration = _Registration(directory, core)
            await registration.begin()
            stack.push_async_callback(registration.end)
        served = await _serve_http(http, Metrics(core, turns, node.handshakes), core, doors, stack)
        with _signals(node) as stop:
            announce("listening", address=settings.address, **({"http": served} if served else {}))
            node.start()
            await stop.wait()
            await _drain(node, stop, settings.drain_us_max / 1e6 + DRAIN_EXTRA_S)
    announce("stopped")


# What is opened.


def _check_listener(
    host: str, configuration: Configuration, doors: Doorkeeping, purpose: str = "to listen"
) -> None:
    known = doors.access is not None and not doors.access.is_open
    try:
        remark = check_binding(
            host,
            tls=doors.server_tls is not None,
            authenticated=known or configuration.tls.require_client_certificate,
            insecure=configuration.listener.insecure,
        )
    except ConfigurationError as error:
        raise ConfigurationError(str(error).replace("to listen", purpose, 1)) from None
    if remark:
        _log.warning(remark)


def _open_audit(configuration: Configuration, stack: AsyncExitStack) -> AuditLog | None:
    if configuration.log.audit is None:
        return None
    audit = AuditLog(configuration.log.audit, configuration.broker.broker_id)
    stack.callback(audit.close)
    return audit


def _open_store(
    configuration: Configuration, stack: AsyncExitStack
) -> tuple[StoreThread | None, StoreState | None]:
    if configuration.store.data_dir is None:
        return None, None
    store = SqliteStore(
        configuration.store.data_dir,
        retention=configuration.retention,
        synchronous=configuration.store.synchronous,
    )
    stack.callback(store.close)
    state = store.state()
    thread = StoreThread(store)
    stack.callback(thread.close)  # the node closes it too, if it comes so far; twice does no harm
    return thread, state


def _open_trace(settings: TraceSettings, core: BrokerCore, stack: AsyncExitStack) -> NodeTracing | None:
    if settings.directory is None:
        return None
    from braid.trace import TraceWriter

    broker = core.settings.broker_id
    writer = TraceWriter(
        settings.directory,
        broker,
        rows_max=settings.rows_max,
        age_us_max=round(settings.age_s_max * 1e6),
        background=True,
    )
    stack.callback(writer.close)  # the node closes it too, if it comes so far; twice does no harm
    return NodeTracing(writer, broker, core.statistics)


async def _open_directory(configuration: Configuration, stack: AsyncExitStack) -> Directory | None:
    if not configuration.directory.url:
        return None
    directory = open_directory(configuration.directory.url, configuration.directory_settings)
    await stack.enter_async_context(directory)
    return directory


async def _known_neighbours(directory: Directory | None, broker_id: str) -> list[tuple[str, str]]:
    """The neighbours that the directory remembers; their addresses where they live."""
    if directory is None:
        return []
    names = await directory.neighbours_of(broker_id)
    living = await directory.brokers() if names else {}
    return [(name, living[name].addresses[0] if name in living else "") for name in names]


def _reserved(listen: Address, tls: bool) -> tuple[Address, socket.socket]:
    """The address with its real port, and a socket that keeps that port for us until we listen there.

    The broker must know its address before its first connection. A socket that is bound and does not
    listen lets another one of the same kind listen on its port.
    """
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    reserved = socket.socket(family, socket.SOCK_STREAM)
    if listen.port == 0:
        try:
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.bind((listen.host, 0))
        except OSError as error:
            reserved.close()
            raise _cannot_listen(listen, error) from None
        listen = replace(listen, port=reserved.getsockname()[1])
        if sys.platform != "linux":
            reserved.close()  # elsewhere it would be in the way
    return replace(listen, tls=tls), reserved


def _settings(settings: BrokerSettings, listen: Address) -> BrokerSettings:
    """The broker's settings with addresses in one spelling, so that equal ones are seen to be equal."""
    return replace(
        settings,
        address=str(parse_address(settings.address)) if settings.address else str(listen),
        neighbours=tuple(str(parse_address(each)) for each in settings.neighbours),
    )


async def _listen(node: Node, listen: Address) -> None:
    try:
        await node.listen(listen.host, listen.port)
    except OSError as error:
        raise _cannot_listen(listen, error) from None


def _cannot_listen(listen: Address, error: OSError) -> ConfigurationError:
    # asyncio wraps the system's words in a sentence of its own.
    reason = str(error.strerror or error).rpartition(": ")[2]
    return ConfigurationError(
        f"cannot listen on {listen.host}:{listen.port}: {reason}; choose another address with --listen"
    )


async def _serve_http(
    address: Address | None, metrics: Metrics, core: BrokerCore, doors: Doorkeeping, stack: AsyncExitStack
) -> str:
    if address is None:
        return ""
    beyond = not is_loopback(address.host)
    tls = doors.http_tls if beyond else None
    server = HttpServer(
        operator_routes(lambda: _why_not_ready(core), metrics),
        tls=tls,
        admits=(lambda token: doors.operates(token, time.time_ns() // 1000)) if beyond else None,
    )
    port = await server.listen(address.host, address.port)
    stack.push_async_callback(server.close)
    scheme = "https" if tls is not None else "http"
    return f"{scheme}://{str(replace(address, port=port, tls=False)).partition('://')[2]}"


def _why_not_ready(core: BrokerCore) -> str:
    """A sentence, empty when publications are accepted."""
    if core.ready:
        return ""
    found = core.statistics()
    if found["store_failed"]:
        return "the store has failed; the log says how"
    if found["disk_low"]:
        return "the disk is nearly full"
    if found["memory_high"]:
        return "memory is short"
    if not found["ready"]:
        return "waiting for the tables of the neighbours"
    return "shutting down"


class _Observer:
    """Hears of every turn: times it, and says when the broker has become ready."""

    def __init__(self, core: BrokerCore, turns: TurnTimes) -> None:
        self._core = core
        self._turns = turns
        self._waiting = True

    def __call__(self, stimulus: Input, duration_us: int) -> None:
        self._turns(stimulus, duration_us)
        if self._waiting and self._core.ready:
            self._waiting = False
            if not logging.getLogger("braid.node").isEnabledFor(logging.INFO):
                announce("ready")  # otherwise the broker's own line has said it


class _Registration:
    """Keeps the directory's entry of a broker, with its neighbours as they are."""

    def __init__(self, directory: Directory, core: BrokerCore) -> None:
        self._directory = directory
        self._core = core
        self._entry = BrokerEntry(
            broker_id=core.settings.broker_id,
            addresses=(core.settings.address,),
            neighbours=self._neighbours(),
            incarnation=core.incarnation,
            registered_at_us=time.time_ns() // 1000,
        )
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        await self._directory.register(self._entry)
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        try:
            await self._directory.deregister(self._entry.broker_id)
        except DirectoryError as error:
            _log.warning("the directory still lists this broker", extra={"fields": {"reason": str(error)}})

    def _neighbours(self) -> tuple[str, ...]:
        return tuple(sorted(self._core.statistics()["link_waiting_bytes"]))

    async def _keep(self) -> None:
        complained = False
        while True:
            await asyncio.sleep(DIRECTORY_REVIEW_S)
            entry = replace(self._entry, neighbours=self._neighbours())
            if entry == self._entry:
                continue
            try:
                await self._directory.update(entry)
            except DirectoryError as error:
                if not complained:
                    reason = {"reason": str(error)}
                    _log.error("the directory could not be told of the neighbours", extra={"fields": reason})
                complained = True
            else:
                self._entry, complained = entry, False


# The end.


@contextmanager
def _signals(node: Node) -> Iterator[asyncio.Event]:
    """An event that SIGTERM and SIGINT set, in place of what they do otherwise; SIGHUP reloads."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    actions: dict[signal.Signals, Callable[[], None]] = {
        signal.SIGTERM: stop.set,
        signal.SIGINT: stop.set,
        signal.SIGHUP: lambda: node.reload(0),
    }
    for number, action in actions.items():
        with suppress(NotImplementedError, RuntimeError, ValueError):  # not on Windows, nor in a thread
            loop.add_signal_handler(number, action)
    try:
        yield stop
    finally:
        for number in actions:
            with suppress(NotImplementedError, RuntimeError, ValueError):
                loop.remove_signal_handler(number)


async def _drain(node: Node, stop: asyncio.Event, seconds_max: float) -> None:
    """Hand over what is held, unless that takes too long or somebody signals once more."""
    stop.clear()
    draining = asyncio.ensure_future(node.drain())
    again = asyncio.ensure_future(stop.wait())
    waiting: set[asyncio.Future[Any]] = {draining, again}
    done, _ = await asyncio.wait(waiting, timeout=seconds_max, return_when=asyncio.FIRST_COMPLETED)
    for each in waiting:
        each.cancel()
    await asyncio.wait(waiting)
    if draining not in done:
        _log.warning("stopped before everything was handed over")
    elif not draining.cancelled() and (problem := draining.exception()) is not None:
        raise problem if isinstance(problem, BraidError) else RuntimeError("draining failed") from problem

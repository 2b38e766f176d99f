"""Opens what a broker's settings name: the parts of a broker, each with what may be wrong with it.

Whatever is opened is closed again by the stack that it is handed to. Whatever is wrong with one of them is a
`BraidError` that says what to do.
"""

from __future__ import annotations

import logging
import socket
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from braid.errors import ConfigurationError
from braid.runtime.audit import AuditLog
from braid.runtime.directory import open_directory
from braid.runtime.http import HttpServer, operator_routes
from braid.runtime.metrics import require_prometheus
from braid.runtime.store import SqliteStore, StoreThread
from braid.runtime.tls import Address, check_binding, is_loopback, parse_address
from braid.runtime.tracing import NodeTracing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AsyncExitStack

    from braid.broker.core import BrokerCore
    from braid.broker.settings import BrokerSettings
    from braid.protocol.log import KeepStanding, StoreState
    from braid.runtime.directory import Directory
    from braid.runtime.metrics import Metrics
    from braid.runtime.node import Node
    from braid.server.doorkeeping import Doorkeeping
    from braid.server.settings import ServerSettings, TraceSettings

__all__ = [
    "check_listener",
    "listen",
    "open_audit",
    "open_broker_directory",
    "open_http",
    "open_store",
    "open_trace",
    "reserved",
    "with_addresses",
]

_log = logging.getLogger("braid.broker")


def check_listener(
    host: str, settings: ServerSettings, doors: Doorkeeping, purpose: str = "to listen"
) -> None:
    """Raise unless it is safe to listen there; say so in the log where it is safe on loopback alone."""
    known = doors.access is not None and not doors.access.is_open
    try:
        remark = check_binding(
            host,
            tls=doors.server_tls is not None,
            authenticated=known or settings.tls.require_client_certificate,
            insecure=settings.listener.insecure,
        )
    except ConfigurationError as error:
        raise ConfigurationError(str(error).replace("to listen", purpose, 1)) from None
    if remark:
        _log.warning(remark)


def open_audit(settings: ServerSettings, stack: AsyncExitStack) -> AuditLog | None:
    """The audit log, if one is wanted."""
    if settings.log.audit is None:
        return None
    audit = AuditLog(settings.log.audit, settings.broker.broker_id)
    stack.callback(audit.close)
    return audit


def open_store(
    settings: ServerSettings, stack: AsyncExitStack, standing: KeepStanding | None = None
) -> tuple[StoreThread | None, StoreState | None]:
    """The store and what is in it, if there is one; `standing`: what it is to remember first."""
    if settings.store.data_dir is None:
        return None, None
    store = SqliteStore(
        settings.store.data_dir, retention=settings.retention, synchronous=settings.store.synchronous
    )
    stack.callback(store.close)
    if standing is not None:
        store.apply([standing])
    state = store.state()
    thread = StoreThread(store)
    stack.callback(thread.close)  # the node closes it too, if it comes so far; twice does no harm
    return thread, state


def open_trace(
    settings: TraceSettings,
    core: BrokerCore,
    stack: AsyncExitStack,
    peer: Callable[[], Mapping[str, Any]] | None = None,
) -> NodeTracing | None:
    """What writes the trace, if one is wanted, with what there is to know about the peer of this process."""
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
    return NodeTracing(writer, broker, core.statistics, peer)


async def open_broker_directory(settings: ServerSettings, stack: AsyncExitStack) -> Directory | None:
    """The directory of brokers, if one is named."""
    if not settings.directory.url:
        return None
    directory = open_directory(settings.directory.url, settings.directory_settings)
    await stack.enter_async_context(directory)
    return directory


def reserved(address: Address, tls: bool) -> tuple[Address, socket.socket]:
    """The address with its real port, and a socket that keeps that port for us until we listen there.

    The broker must know its address before its first connection. A socket that is bound and does not
    listen lets another one of the same kind listen on its port.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    keeper = socket.socket(family, socket.SOCK_STREAM)
    if address.port == 0:
        try:
            keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            keeper.bind((address.host, 0))
        except OSError as error:
            keeper.close()
            raise _cannot_listen(address, error) from None
        address = replace(address, port=keeper.getsockname()[1])
        if sys.platform != "linux":
            keeper.close()  # elsewhere it would be in the way
    return replace(address, tls=tls), keeper


def with_addresses(settings: BrokerSettings, listener: Address) -> BrokerSettings:
    """The broker's settings with addresses in one spelling, so that equal ones are seen to be equal."""
    return replace(
        settings,
        address=str(parse_address(settings.address)) if settings.address else str(listener),
        neighbours=tuple(str(parse_address(each)) for each in settings.neighbours),
    )


async def listen(node: Node, address: Address) -> None:
    """Let clients and neighbours come."""
    try:
        await node.listen(address.host, address.port)
    except OSError as error:
        raise _cannot_listen(address, error) from None


def _cannot_listen(address: Address, error: OSError) -> ConfigurationError:
    # asyncio wraps the system's words in a sentence of its own.
    reason = str(error.strerror or error).rpartition(": ")[2]
    return ConfigurationError(
        f"cannot listen on {address.host}:{address.port}: {reason}; choose another address (listen, --listen)"
    )


async def open_http(
    address: Address | None,
    why_not_ready: Callable[[], str],
    metrics: Metrics,
    doors: Doorkeeping,
    stack: AsyncExitStack,
) -> str:
    """Serve health, readiness and metrics; returns where, or "" if it is not wanted."""
    if address is None:
        return ""
    try:
        require_prometheus()
    except ConfigurationError as error:
        _log.warning("/metrics will have no numbers: %s", error)  # now, and not when they are asked for
    beyond = not is_loopback(address.host)
    tls = doors.http_tls if beyond else None
    server = HttpServer(
        operator_routes(why_not_ready, metrics),
        tls=tls,
        admits=(lambda token: doors.operates(token, time.time_ns() // 1000)) if beyond else None,
    )
    port = await server.listen(address.host, address.port)
    stack.push_async_callback(server.close)
    scheme = "https" if tls is not None else "http"
    return f"{scheme}://{str(replace(address, port=port, tls=False)).partition('://')[2]}"

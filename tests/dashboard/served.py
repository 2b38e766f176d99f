"""A dashboard that is served from a thread of the test, and ends with it."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import uvicorn

from braid.cli.connection_options import Door
from braid.dashboard.guard import Guard
from braid.dashboard.web import Dashboard

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

__all__ = ["ServedDashboard", "served"]


class ServedDashboard:
    """Where it is, and how to have it do something on its own event loop."""

    def __init__(self, dashboard: Dashboard, url: str, loop: asyncio.AbstractEventLoop) -> None:
        self.dashboard = dashboard
        self.url = url
        self._loop = loop

    def call(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        """Run this there, and wait for it."""

        async def run() -> Any:
            return await function(*arguments)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(30)


@contextmanager
def served(
    watch: Any,
    *,
    interval_s: float = 3600.0,
    door: Door | None = None,
    admits: Callable[[str | None], bool] = lambda token: True,
    probe: Any = None,
    measured: Any = None,
) -> Iterator[ServedDashboard]:
    """Serve this on loopback. It looks once at the beginning, and then every `interval_s`."""
    door = door or Door(timeout_s=5.0)

    async def admit(token: str | None) -> bool:
        return admits(token)

    guard = Guard("127.0.0.1", (), door, watch.start, admit)
    dashboard = Dashboard(watch, guard, door, interval_s=interval_s, probe=probe, measured=measured)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    config = uvicorn.Config(
        dashboard.app(),
        lifespan="on",
        log_config=None,
        access_log=False,
        ws="none",
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    started = threading.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        serving = asyncio.create_task(server.serve([listener]))
        started.set()  # the listener takes connections from now on, and they are served soon
        await serving

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    assert started.wait(30)
    try:
        yield ServedDashboard(dashboard, f"http://127.0.0.1:{listener.getsockname()[1]}", loops[0])
    finally:
        loops[0].call_soon_threadsafe(dashboard.end)
        server.should_exit = True
        thread.join(30)
        listener.close()
        assert not thread.is_alive()

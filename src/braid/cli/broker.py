"""`braid broker`: a process that is a broker, run from a terminal or by a service manager."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from braid.errors import ConfigurationError
from braid.runtime.logs import configure_logs
from braid.server import Broker, ServerSettings, loop_factory, serve

__all__ = ["run_broker"]

# Objects made and not freed before the collector looks.
GC_ALLOCATIONS: Final = 50_000


def run_broker(settings: ServerSettings) -> None:
    """Run until SIGTERM or SIGINT, then hand everything over and return; a second signal ends it at once.

    Raises:
        BraidError: it could not be started.
    """
    configure_logs(settings.broker.broker_id, format=settings.log.format, level=settings.log.level)
    # Publications make many short-lived objects, and none of them in circles: look for circles less often,
    # and never among what was there from the start.
    gc.freeze()
    gc.set_threshold(GC_ALLOCATIONS, 20, 100)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_run(settings))


async def _run(settings: ServerSettings) -> None:
    running: list[Broker] = []

    def reload() -> None:
        for broker in running:
            broker.reload()

    stop = asyncio.Event()
    with _signals({signal.SIGTERM: stop.set, signal.SIGINT: stop.set, signal.SIGHUP: reload}):
        broker = await serve(settings)
        running.append(broker)
        try:
            refused = asyncio.ensure_future(broker.refused.wait())
            stopped = asyncio.ensure_future(stop.wait())
            await asyncio.wait([refused, stopped], return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            if not refused.cancel() and not stop.is_set():
                raise ConfigurationError(broker.why_not_ready())
        finally:
            stop.clear()
            leaving = asyncio.ensure_future(broker.stop())
            again = asyncio.ensure_future(stop.wait())
            await asyncio.wait([leaving, again], return_when=asyncio.FIRST_COMPLETED)
            again.cancel()
            await broker.stop(drain=False)  # at once, if it has not ended by itself
            await leaving


@contextmanager
def _signals(actions: dict[signal.Signals, Callable[[], object]]) -> Iterator[None]:
    """Do these in place of what signals do otherwise."""
    loop = asyncio.get_running_loop()
    for number, action in actions.items():
        with suppress(NotImplementedError, RuntimeError, ValueError):  # not on Windows, nor in a thread
            loop.add_signal_handler(number, action)
    try:
        yield
    finally:
        for number in actions:
            with suppress(NotImplementedError, RuntimeError, ValueError):
                loop.remove_signal_handler(number)

"""`braid.serve_sync`: a whole broker for a program without an event loop.

    with braid.serve_sync(braid.ServerSettings.of(broker_id="A", listen="127.0.0.1:0")) as broker:
        with braid.connect_sync(broker.address) as client:
            ...

The same broker as `braid.serve` makes, on an event loop in a thread of its own; everything may be called from
any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeVar

from braid.errors import ConfigurationError
from braid.runtime.loop_thread import LoopThread
from braid.server.broker import serve
from braid.server.loops import loop_factory

if TYPE_CHECKING:
    import os
    from collections.abc import Coroutine, Mapping
    from types import TracebackType

    from braid.server.broker import Broker, BrokerStart
    from braid.server.settings import ServerSettings

__all__ = ["SyncBroker", "serve_sync"]

Answer = TypeVar("Answer")


def serve_sync(
    settings: ServerSettings | Mapping[str, Mapping[str, Any]] | str | os.PathLike[str],
) -> SyncBroker:
    """Run a broker in a thread: use it with `with`, or `stop` it yourself. See `serve`.

    It runs from the moment this returns. Like a file that is opened, it is best opened in a `with` statement.
    """
    return SyncBroker(serve(settings))


class SyncBroker:
    """A running broker for ordinary threads; made by `serve_sync`. See `Broker`."""

    def __init__(self, start: BrokerStart) -> None:
        self._life = LoopThread("braid-broker", start, end=_end, loop_factory=loop_factory())
        self._broker = self._life.lives

    # What a program may know.

    @property
    def settings(self) -> ServerSettings:
        """What it was started with."""
        return self._broker.settings

    @property
    def broker_id(self) -> str:
        """Its name in the network."""
        return self._broker.broker_id

    @property
    def address(self) -> str:
        """Where clients and neighbours reach it, with the real port, such as `braid://127.0.0.1:7000`."""
        return self._broker.address

    @property
    def port(self) -> int:
        """The port of the listener; the one that was taken if 0 was asked for."""
        return self._broker.port

    @property
    def http(self) -> str:
        """Where it serves health, readiness and metrics; "" if it does not."""
        return self._broker.http

    @property
    def ready(self) -> bool:
        """Whether publications are accepted."""
        return self._broker.ready

    @property
    def stopped(self) -> bool:
        """Whether it has ended, or is about to."""
        return not self._life.alive or self._broker.stopped

    def why_not_ready(self) -> str:
        """A sentence, empty while it is ready."""

        async def why() -> str:
            return self._broker.why_not_ready()

        return self._run(why())

    def statistics(self) -> dict[str, Any]:
        """Counters, and how much there is of everything now. See `Broker.statistics`."""

        async def statistics() -> dict[str, Any]:
            return self._broker.statistics()

        return self._run(statistics())

    def wait_ready(self, timeout_s: float | None = None) -> None:
        """Return once publications are accepted for the first time. See `Broker.wait_ready`."""
        self._run(self._broker.wait_ready(timeout_s))

    # What a program may do.

    def reload(self) -> None:
        """Read access file, certificates and revocation lists again. See `Broker.reload`."""

        async def reload() -> None:
            self._broker.reload()

        self._run(reload())

    def drain(self) -> bool:
        """Accept nothing more and hand over what is held; True when all of it was. See `Broker.drain`."""
        return self._run(self._broker.drain())

    def stop(self, *, drain: bool = True) -> None:
        """End the broker. May be called any number of times. See `Broker.stop`."""
        if self._life.alive:
            try:
                self._run(self._broker.stop(drain=drain))
            finally:
                self._life.leave()
            self._life.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.stop(drain=error is None)

    def _run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Have the loop do something and wait for it."""
        try:
            future = self._life.submit(work, "braid.serve")
        except RuntimeError:
            raise ConfigurationError(f"broker {self.broker_id} has ended") from None
        try:
            return future.result()
        except BaseException:
            future.cancel()  # whoever waited has been interrupted
            raise


async def _end(broker: Broker) -> None:
    await broker.stop(drain=False)  # it has been drained, unless that was not wanted

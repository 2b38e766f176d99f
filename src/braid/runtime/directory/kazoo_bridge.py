"""How does an event loop talk to ZooKeeper through kazoo, which has threads of its own?

kazoo's `..._async` methods only queue a request and never block, so they are called on the loop, and their
answers come back to it. Only stopping blocks, and runs in a thread.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    OperationTimeoutError,
    SessionExpiredError,
)

from braid.errors import DirectoryError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from braid.runtime.directory.interface import DirectorySettings

__all__ = ["KazooBridge"]

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

# kazoo looks for a lost server until it is told to stop; this bounds how often, not how long.
RECONNECT = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0}
# Between two attempts of one operation whose connection broke; its operation timeout bounds their number.
RETRY_S = 0.05
PASSING = (ConnectionLoss, SessionExpiredError, OperationTimeoutError)


class KazooBridge:
    """One kazoo client, seen from an event loop."""

    def __init__(
        self,
        name: str,
        hosts: tuple[str, ...],
        settings: DirectorySettings,
        when_connected: Callable[[], None],
    ) -> None:
        """`when_connected` is called on the loop after every connection, the first included."""
        self._name = name
        self._hosts = hosts
        self._timeout_s = settings.operation_timeout_s
        self._lease_s = settings.lease_s
        self._when_connected = when_connected
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_connected = asyncio.Event()
        self.client: Any = None

    @property
    def session_id(self) -> int | None:
        """The number of the current session, or None without a connection."""
        pair = self.client.client_id
        return None if pair is None else int(pair[0])

    async def start(self) -> None:
        """Connect, or say why not."""
        self._loop = asyncio.get_running_loop()
        self._is_connected.clear()
        self.client = KazooClient(
            hosts=",".join(self._hosts), timeout=self._lease_s, connection_retry=dict(RECONNECT)
        )
        self.client.add_listener(self._state_changed)
        self.client.start_async()  # starts its threads; they look up names and connect
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._is_connected.wait()
        except TimeoutError as problem:
            self._discard()
            raise self._unreachable() from problem
        except BaseException:
            self._discard()
            raise

    async def stop(self) -> None:
        """End the session; ZooKeeper then removes what belongs to it."""
        stopped = self._discard()
        try:
            async with asyncio.timeout(self._timeout_s):
                await stopped.wait()
        except TimeoutError:
            logger.warning(
                "%s: the ZooKeeper client has not stopped after %g s and is left behind; its session ends by "
                "its timeout",
                self._name,
                self._timeout_s,
            )

    def _discard(self) -> asyncio.Event:
        """Stop the client in the background; the answer is set when that is done.

        kazoo waits for its own threads, for up to ten seconds when a server accepts a connection and then is
        silent. A daemon thread does not make the end of the program wait for that too.
        """
        client, stopped = self.client, asyncio.Event()
        client.remove_listener(self._state_changed)

        def work() -> None:
            try:
                client.stop()
                client.close()
            except Exception as problem:
                logger.warning("%s: the ZooKeeper client did not stop cleanly: %r", self._name, problem)
            self.on_loop(stopped.set)

        threading.Thread(target=work, name="braid-directory-stop", daemon=True).start()
        return stopped

    def _state_changed(self, state: str) -> None:
        """kazoo's listener; runs in its thread."""
        if state == "CONNECTED":
            self.on_loop(self._note_connection)
        else:
            consequence = (
                "interrupted" if state == "SUSPENDED" else "lost with its session, which is begun again"
            )
            logger.warning("%s: connection to %s %s", self._name, ",".join(self._hosts), consequence)

    def _note_connection(self) -> None:
        self._is_connected.set()
        self._when_connected()

    def on_loop(self, function: Callable[[], object]) -> None:
        """Call it on the event loop, from any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop was closed: nobody is left to be told
                self._loop.call_soon_threadsafe(function)

    async def call(self, begin: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Await one of the client's `..._async` methods; raises kazoo's exceptions, so use `attempt`."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()

        def settle(result: Any) -> None:
            if answer.done():
                return
            if result.successful():
                answer.set_result(result.value)
            else:
                answer.set_exception(result.exception)

        begin(*arguments, **options).rawlink(lambda result: self.on_loop(lambda: settle(result)))
        return await answer

    async def attempt(self, work: Callable[[], Awaitable[Answer]]) -> Answer:
        """Do work that may be repeated, again after a broken connection, until the operation timeout."""
        try:
            async with asyncio.timeout(self._timeout_s):
                while True:
                    try:
                        return await work()
                    except ConnectionClosedError:  # to kazoo a kind of expiry, but it does not pass
                        raise
                    except PASSING:
                        await asyncio.sleep(RETRY_S)
        except TimeoutError as problem:
            raise self._unreachable() from problem
        except KazooException as problem:
            raise self._failed(problem) from problem

    def _unreachable(self) -> DirectoryError:
        return DirectoryError(
            f"{self._name}: ZooKeeper at {', '.join(self._hosts)} did not answer within {self._timeout_s:g} "
            "s; check that a server runs there, that host and port in the URL are right and can be reached "
            "from here (firewall, DNS), and that a majority of the servers is up"
        )

    def _failed(self, problem: KazooException) -> DirectoryError:
        if isinstance(problem, ConnectionClosedError):
            return DirectoryError(f"{self._name} was closed; open it again with open_directory")
        if isinstance(problem, NoAuthError | AuthFailedError):
            advice = "its access lists do not let us; choose another root, or have them opened"
        else:
            advice = "the server's log says more"
        return DirectoryError(
            f"{self._name}: ZooKeeper at {', '.join(self._hosts)} refused with {problem!r}; {advice}"
        )

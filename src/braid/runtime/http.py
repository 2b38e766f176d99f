"""How do load balancers and Prometheus ask a broker how it is?

A small HTTP/1.1 server for answers that are ready at once. It takes GET alone, reads no body, answers one
request per connection, and bounds everything: the size of a request, the time a connection may take, and how
many there are.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from braid.errors import BraidError, ConfigurationError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from braid.runtime.metrics import Metrics

__all__ = ["Answer", "HttpServer", "operator_routes"]

# What monitoring programs send has a few hundred bytes.
REQUEST_BYTES_MAX: Final = 8 * 1024
# From the first byte read to the last one written; whoever is slower can ask again.
REQUEST_S_MAX: Final = 5.0
# Probes and scrapers are few; more at once means that somebody does not close.
CONNECTIONS_MAX: Final = 64

_TEXT: Final = "text/plain; charset=utf-8"
_PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"

_log = logging.getLogger("braid.http")


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back."""

    status: HTTPStatus
    body: bytes
    content_type: str = _TEXT


class HttpServer:
    """Answers GET requests from a table of paths."""

    def __init__(
        self,
        routes: Mapping[str, Callable[[], Answer]],
        *,
        tls: ssl.SSLContext | None = None,
        admits: Callable[[str | None], bool] | None = None,
    ) -> None:
        """
        Args:
            routes: answers by path.
            tls: what connections are encrypted with; None for plain ones.
            admits: whether the bearer of this token (None: without one) is answered; None answers everybody.
        """
        self._routes = dict(routes)
        self._tls = tls
        self._admits = admits
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int) -> int:
        """Begin to answer; returns the port, which is a free one for 0.

        Raises:
            ConfigurationError: nothing can listen there.
        """
        try:
            self._server = await asyncio.start_server(
                self._serve,
                host,
                port,
                limit=REQUEST_BYTES_MAX,
                ssl=self._tls,
                ssl_handshake_timeout=REQUEST_S_MAX if self._tls is not None else None,
            )
        except OSError as error:
            raise ConfigurationError(
                f"cannot serve HTTP on {host}:{port}: {error.strerror or error}; choose another address"
            ) from None
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        """Answer nobody any more."""
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        if task is not None:
            self._connections.add(task)
        try:
            async with asyncio.timeout(REQUEST_S_MAX):
                writer.write(_encoded(self._answer(await reader.readuntil(b"\r\n\r\n"))))
                await writer.drain()
        except asyncio.LimitOverrunError:
            problem = f"a request has at most {REQUEST_BYTES_MAX} bytes\n"
            writer.write(_encoded(Answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, problem.encode())))
        except TimeoutError:
            writer.write(_encoded(Answer(HTTPStatus.REQUEST_TIMEOUT, b"too slow\n")))
        except (asyncio.IncompleteReadError, OSError):
            pass  # it has gone
        except asyncio.CancelledError:
            pass  # we are closing; a callback of asyncio would report it as an error
        finally:
            if task is not None:
                self._connections.discard(task)
            writer.close()
            with suppress(OSError, TimeoutError, asyncio.CancelledError):
                async with asyncio.timeout(REQUEST_S_MAX):
                    await writer.wait_closed()
            writer.transport.abort()

    def _answer(self, request: bytes) -> Answer:
        words = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return Answer(HTTPStatus.BAD_REQUEST, b"this is not HTTP/1.1\n")
        method, target, _ = words
        if self._admits is not None and not self._admits(_bearer(request)):
            return Answer(HTTPStatus.UNAUTHORIZED, b"the token of an operator of this broker is needed\n")
        if method != "GET":
            return Answer(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET is answered\n")
        route = self._routes.get(target.partition("?")[0])
        if route is None:
            known = ", ".join(sorted(self._routes))
            return Answer(HTTPStatus.NOT_FOUND, f"there is {known}\n".encode())
        try:
            return route()
        except Exception:
            _log.exception("a request could not be answered", extra={"fields": {"path": target}})
            return Answer(HTTPStatus.INTERNAL_SERVER_ERROR, b"it failed; the log says how\n")


def _bearer(request: bytes) -> str | None:
    """The token in a request's headers."""
    for line in request.split(b"\r\n")[1:]:
        name, _, value = line.decode("latin-1").partition(":")
        kind, _, token = value.strip().partition(" ")
        if name.lower() == "authorization" and kind.lower() == "bearer":
            return token.strip()
    return None


def _encoded(answer: Answer) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
        f"Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\n"
        + ("Allow: GET\r\n" if answer.status is HTTPStatus.METHOD_NOT_ALLOWED else "")
        + ("WWW-Authenticate: Bearer\r\n" if answer.status is HTTPStatus.UNAUTHORIZED else "")
        + "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + answer.body


def operator_routes(why_not_ready: Callable[[], str], metrics: Metrics) -> dict[str, Callable[[], Answer]]:
    """The paths every broker has: `/health`, `/ready` and `/metrics`.

    Args:
        why_not_ready: a sentence, empty when it is ready.
        metrics: its numbers.
    """

    def health() -> Answer:
        return Answer(HTTPStatus.OK, b"alive\n")

    def ready() -> Answer:
        problem = why_not_ready()
        if problem:
            return Answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{problem}\n".encode())
        return Answer(HTTPStatus.OK, b"ready\n")

    def numbers() -> Answer:
        try:
            return Answer(HTTPStatus.OK, metrics.text(), _PROMETHEUS)
        except BraidError as error:
            return Answer(HTTPStatus.NOT_IMPLEMENTED, f"{error}\n".encode())

    return {"/health": health, "/ready": ready, "/metrics": numbers}

"""Does the small HTTP server answer what it should, and survive what it should not be sent?"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import pytest

from braid.errors import ConfigurationError
from braid.runtime import http, metrics
from braid.runtime.http import Answer, HttpServer, operator_routes
from braid.runtime.metrics import Metrics
from braid.runtime.tls import TlsSettings, client_context, server_context
from tests.runtime.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

pytestmark = pytest.mark.net


class Machine:
    def statistics(self) -> dict[str, Any]:
        return {"broker": "A", "clients": 3}


@asynccontextmanager
async def serving(routes: Mapping[str, Callable[[], Answer]]) -> AsyncIterator[int]:
    server = HttpServer(routes)
    port = await server.listen("127.0.0.1", 0)
    try:
        yield port
    finally:
        await server.close()


async def send(port: int, request: bytes) -> tuple[int, str]:
    """The status and the body of the answer to these bytes; (0, "") when there is none."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        async with asyncio.timeout(30):
            answer = await reader.read()
    except ConnectionError:
        return 0, ""
    finally:
        writer.close()
    head, _, body = answer.decode().partition("\r\n\r\n")
    if not head:
        return 0, ""
    assert f"Content-Length: {len(body.encode())}" in head
    return int(head.split(" ")[1]), body


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


async def test_what_operators_ask() -> None:
    problem = ["waiting"]
    async with serving(operator_routes(lambda: problem[0], Metrics(Machine()))) as port:
        assert await send(port, get("/health")) == (200, "alive\n")
        assert await send(port, get("/ready")) == (503, "waiting\n")
        problem[0] = ""
        assert await send(port, get("/ready?verbose=1")) == (200, "ready\n")
        status, body = await send(port, get("/metrics"))
        assert status == 200
        assert 'braid_clients{broker="A"} 3.0' in body
        assert (await send(port, get("/secret")))[0] == 404


async def test_beyond_loopback_it_asks_for_a_token() -> None:
    server = HttpServer(
        operator_routes(lambda: "", Metrics(Machine())), admits=lambda token: token == "secret"
    )
    port = await server.listen("127.0.0.1", 0)

    def bearing(header: str) -> bytes:
        return get("/metrics").replace(b"\r\n\r\n", f"\r\n{header}\r\n\r\n".encode())

    try:
        for header in (
            "X: y",
            "Authorization: Basic secret",
            "Authorization: Bearer guess",
            "Authorization:",
        ):
            assert (await send(port, bearing(header)))[0] == 401
        assert (await send(port, bearing("authorization: bearer secret")))[0] == 200
    finally:
        await server.close()


async def test_it_speaks_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("listener")
    context = server_context(TlsSettings(certificate=files.certificate, key=files.key))
    server = HttpServer({"/health": lambda: Answer(HTTPStatus.OK, b"alive\n")}, tls=context)
    port = await server.listen("127.0.0.1", 0)
    try:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=client_context(TlsSettings(authority=authority.certificate))
        )
        writer.write(get("/health"))
        assert (await reader.read()).endswith(b"alive\n")
        writer.close()
    finally:
        await server.close()


async def test_metrics_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "find_spec", lambda name: None)
    async with serving(operator_routes(lambda: "", Metrics(Machine()))) as port:
        status, body = await send(port, get("/metrics"))
    assert status == 501
    assert "pip install" in body


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST /health HTTP/1.1\r\n\r\n", 405),
        (b"HEAD /health HTTP/1.1\r\n\r\n", 405),
        (b"nonsense\r\n\r\n", 400),
        (b"GET /health SPDY/3\r\n\r\n", 400),
        (b"\xff\xfe\xfd \r\n\r\n", 400),
        (b"GET /" + b"x" * 3 * http.REQUEST_BYTES_MAX, 431),
    ],
)
async def test_what_it_should_not_be_sent(request_bytes: bytes, status: int) -> None:
    async with serving({"/health": lambda: Answer(HTTPStatus.OK, b"alive\n")}) as port:
        # Bytes of ours that were not read may reset the connection before the answer is here.
        assert (await send(port, request_bytes))[0] in ({status, 0} if status == 431 else {status})
        assert await send(port, get("/health")) == (200, "alive\n")


async def test_a_slow_client_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_S_MAX", 0.05)
    async with serving({}) as port:
        assert (await send(port, b"GET /hea"))[0] == 408


async def test_too_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 1)
    async with serving({"/health": lambda: Answer(HTTPStatus.OK, b"alive\n")}) as port:
        _, first = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(30):
            while (await send(port, get("/health")))[0] != 0:
                pass  # the first connection has not been noticed yet
            first.close()
            while (await send(port, get("/health")))[0] != 200:
                pass


async def test_a_route_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> Answer:
        raise ZeroDivisionError

    async with serving({"/": fail}) as port:
        assert (await send(port, get("/")))[0] == 500
    assert "could not be answered" in caplog.text


async def test_closing_does_not_wait_for_clients() -> None:
    async with serving({}) as port:
        _, idle = await asyncio.open_connection("127.0.0.1", port)
    idle.close()


async def test_an_address_in_use() -> None:
    async with serving({}) as port:
        with pytest.raises(ConfigurationError, match=f"127.0.0.1:{port}"):
            await HttpServer({}).listen("127.0.0.1", port)

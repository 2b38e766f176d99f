"""How is nats-server spoken to? The core NATS protocol, text commands and raw payloads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.errors import RemoteProtocolError
from braid_bench.brokers.clients.connection import RawPublisher, RawSubscriber, SetUp
from braid_bench.brokers.clients.rival import Rival
from braid_bench.brokers.server import NatsServer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid_bench.brokers.server import RunningServer
    from braid_bench.brokers.workload import Interest, Message

__all__ = ["Nats"]

_SUBJECT = "quotes"
_CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"echo":false}\r\nPING\r\n'


class Nats(Rival):
    """nats-server; it routes by subject, so it takes no part in content filtering."""

    name = "nats-server"
    server = NatsServer

    def publisher(self, server: RunningServer) -> RawPublisher:
        """Open the publishing connection."""
        return RawPublisher(_connect(server).done(), _encode)

    def subscriber(self, server: RunningServer, interests: Sequence[Interest] | None) -> RawSubscriber:
        """Open a connection that gets every message."""
        connection = _connect(server)
        connection.send(f"SUB {_SUBJECT} 1\r\nPING\r\n".encode())
        _await_pong(connection)
        return RawSubscriber(connection.done())


def _connect(server: RunningServer) -> SetUp:
    connection = SetUp(server.ports[0])
    connection.read_until(b"\r\n")  # INFO
    connection.send(_CONNECT)
    _await_pong(connection)
    return connection


def _await_pong(connection: SetUp) -> None:
    answer = connection.read_until(b"\r\n")
    # The server may ping first, to learn the round-trip time; nobody has to answer.
    while answer == b"PING\r\n":
        answer = connection.read_until(b"\r\n")
    if answer != b"PONG\r\n":
        raise RemoteProtocolError(f"nats-server answered {answer!r} instead of PONG")


def _encode(message: Message) -> bytes:
    return b"PUB %s %d\r\n%s\r\n" % (_SUBJECT.encode(), len(message.body), message.body)

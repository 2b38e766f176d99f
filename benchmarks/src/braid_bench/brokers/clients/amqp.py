"""How is RabbitMQ spoken to? AMQP 0-9-1: a headers exchange, transient queues, no acknowledgements.

Only what a load client needs is here: the methods are numbered (class, method) as in the specification.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from braid.errors import RemoteProtocolError
from braid_bench.brokers.clients.connection import RawPublisher, RawSubscriber, SetUp
from braid_bench.brokers.clients.rival import Rival
from braid_bench.brokers.server import RabbitMq

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from braid_bench.brokers.server import RunningServer
    from braid_bench.brokers.workload import Interest, Message

__all__ = ["Amqp"]

_METHOD, _HEADER, _BODY = 1, 2, 3
_END = b"\xce"
_CONTROL_CHANNEL, _CHANNEL = 0, 1

_START, _START_OK, _TUNE, _TUNE_OK = (10, 10), (10, 11), (10, 30), (10, 31)
_OPEN, _OPEN_OK, _CHANNEL_OPEN, _CHANNEL_OPEN_OK = (10, 40), (10, 41), (20, 10), (20, 11)
_EXCHANGE_DECLARE, _EXCHANGE_DECLARE_OK = (40, 10), (40, 11)
_QUEUE_DECLARE, _QUEUE_DECLARE_OK, _QUEUE_BIND, _QUEUE_BIND_OK = (50, 10), (50, 11), (50, 20), (50, 21)
_CONSUME, _CONSUME_OK, _PUBLISH = (60, 20), (60, 21), (60, 40)

_EXCHANGE = "quotes"
_EXCLUSIVE_AND_AUTO_DELETE = 0b01100
_NO_ACKNOWLEDGEMENT = 0b0010
# The property list of a content header: only the header table (bit 13) and the delivery mode (bit 12).
_PROPERTIES = 1 << 13 | 1 << 12
_TRANSIENT = 1


class Amqp(Rival):
    """RabbitMQ with a headers exchange: equality of two or three headers, all of which must match."""

    name = "rabbitmq-server"
    server = RabbitMq
    filter_form = "equality"
    once_per = "connection"

    def publisher(self, server: RunningServer) -> RawPublisher:
        """Open the publishing connection; the exchange is declared by whoever comes first."""
        return RawPublisher(_connect(server).done(), _encode)

    def subscriber(self, server: RunningServer, interests: Sequence[Interest] | None) -> RawSubscriber:
        """Open a connection with one queue, and one binding for each interest, or one for every message."""
        connection = _connect(server)
        _call(
            connection,
            _QUEUE_DECLARE,
            b"\0\0" + _short("") + bytes([_EXCLUSIVE_AND_AUTO_DELETE]) + _table({}),
            _QUEUE_DECLARE_OK,
        )
        # The empty name means the queue that this channel declared last.
        wanted: list[Mapping[str, str]] = (
            [{}] if interests is None else [dict(each.equal) for each in interests]
        )
        last = len(wanted) - 1
        connection.send(b"".join(_method(_QUEUE_BIND, _binding(each)) for each in wanted[:last]))
        _call(connection, _QUEUE_BIND, _binding(wanted[last], no_wait=False), _QUEUE_BIND_OK)
        consume = b"\0\0" + _short("") + _short("") + bytes([_NO_ACKNOWLEDGEMENT]) + _table({})
        _call(connection, _CONSUME, consume, _CONSUME_OK)
        return RawSubscriber(connection.done())


def _connect(server: RunningServer) -> SetUp:
    connection = SetUp(server.ports[0])
    connection.send(b"AMQP\0\0\x09\x01")
    _expect(connection, _START)
    login = _table({}) + _short("PLAIN") + _long(b"\0guest\0guest") + _short("en_US")
    connection.send(_method(_START_OK, login, _CONTROL_CHANNEL))
    limits = _expect(connection, _TUNE)[:6]  # channels and frame size as offered; no heartbeat
    connection.send(_method(_TUNE_OK, limits + b"\0\0", _CONTROL_CHANNEL))
    connection.send(_method(_OPEN, _short("/") + _short("") + b"\0", _CONTROL_CHANNEL))
    _expect(connection, _OPEN_OK)
    _call(connection, _CHANNEL_OPEN, _short(""), _CHANNEL_OPEN_OK)
    declare = b"\0\0" + _short(_EXCHANGE) + _short("headers") + b"\0" + _table({})
    _call(connection, _EXCHANGE_DECLARE, declare, _EXCHANGE_DECLARE_OK)
    return connection


def _binding(headers: Mapping[str, str], *, no_wait: bool = True) -> bytes:
    """Bind the queue; a headers exchange ignores the routing key, which is left empty."""
    condition = _table({"x-match": "all", **headers})
    return b"\0\0" + _short("") + _short(_EXCHANGE) + _short("") + bytes([no_wait]) + condition


def _encode(message: Message) -> bytes:
    bands = {} if message.quote is None else message.quote.bands()
    content = (
        struct.pack(">HHQH", _PUBLISH[0], 0, len(message.body), _PROPERTIES)
        + _table(bands)
        + bytes([_TRANSIENT])
    )
    return (
        _method(_PUBLISH, b"\0\0" + _short(_EXCHANGE) + _short("") + b"\0")
        + _frame(_HEADER, _CHANNEL, content)
        + _frame(_BODY, _CHANNEL, message.body)
    )


def _call(connection: SetUp, method: tuple[int, int], arguments: bytes, answer: tuple[int, int]) -> None:
    connection.send(_method(method, arguments))
    _expect(connection, answer)


def _expect(connection: SetUp, method: tuple[int, int]) -> bytes:
    """The arguments of the next frame, which must be this method."""
    _, _, size = struct.unpack(">BHI", connection.read(7))
    content = connection.read(size + 1)[:-1]
    if struct.unpack(">HH", content[:4]) != method:
        raise RemoteProtocolError(f"rabbitmq-server answered {content[:300]!r} instead of method {method}")
    return content[4:]


def _method(method: tuple[int, int], arguments: bytes, channel: int = _CHANNEL) -> bytes:
    return _frame(_METHOD, channel, struct.pack(">HH", *method) + arguments)


def _frame(kind: int, channel: int, content: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(content)) + content + _END


def _short(text: str) -> bytes:
    data = text.encode()
    return bytes([len(data)]) + data


def _long(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _table(entries: Mapping[str, str]) -> bytes:
    return _long(b"".join(_short(name) + b"S" + _long(value.encode()) for name, value in entries.items()))

"""How is mosquitto spoken to? MQTT 3.1.1, quality of service 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.errors import RemoteProtocolError
from braid_bench.brokers.clients.connection import RawPublisher, RawSubscriber, SetUp
from braid_bench.brokers.clients.rival import Rival
from braid_bench.brokers.server import Mosquitto

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid_bench.brokers.server import RunningServer
    from braid_bench.brokers.workload import Interest, Message

__all__ = ["Mqtt"]

_TOPIC = b"quotes"
_CONNECT, _PUBLISH, _SUBSCRIBE = 0x10, 0x30, 0x82
_CLEAN_SESSION = 0x02
_CONNECTED = bytes([0x20, 2, 0, 0])
_SUBSCRIBED = bytes([0x90, 3, 0, 1, 0])


class Mqtt(Rival):
    """mosquitto; it routes by topic, so it takes no part in content filtering."""

    name = "mosquitto"
    server = Mosquitto

    def publisher(self, server: RunningServer) -> RawPublisher:
        """Open the publishing connection."""
        return RawPublisher(_connect(server).done(), _encode)

    def subscriber(self, server: RunningServer, interests: Sequence[Interest] | None) -> RawSubscriber:
        """Open a connection that gets every message."""
        connection = _connect(server)
        connection.send(_packet(_SUBSCRIBE, b"\0\1" + _text(_TOPIC) + b"\0"))
        _expect(connection, _SUBSCRIBED)
        return RawSubscriber(connection.done())


def _connect(server: RunningServer) -> SetUp:
    connection = SetUp(server.ports[0])
    # No keep-alive (two zero bytes) and no client id: the server makes one up.
    connection.send(_packet(_CONNECT, _text(b"MQTT") + bytes([4, _CLEAN_SESSION, 0, 0]) + _text(b"")))
    _expect(connection, _CONNECTED)
    return connection


def _expect(connection: SetUp, answer: bytes) -> None:
    actual = connection.read(len(answer))
    if actual != answer:
        raise RemoteProtocolError(f"mosquitto answered {actual!r} instead of {answer!r}")


def _encode(message: Message) -> bytes:
    return _packet(_PUBLISH, _text(_TOPIC) + message.body)


def _text(data: bytes) -> bytes:
    return len(data).to_bytes(2, "big") + data


def _packet(kind: int, content: bytes) -> bytes:
    length, rest = [], len(content)
    while True:
        rest, low = divmod(rest, 128)
        length.append(low | (0x80 if rest else 0))
        if not rest:
            return bytes([kind, *length]) + content

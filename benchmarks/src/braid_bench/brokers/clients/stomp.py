"""How is ActiveMQ spoken to? STOMP 1.2: selectors on a topic, automatic acknowledgement, not persistent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.errors import RemoteProtocolError
from braid_bench.brokers.clients.connection import RawPublisher, RawSubscriber, SetUp
from braid_bench.brokers.clients.rival import Rival
from braid_bench.brokers.server import ActiveMq

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid_bench.brokers.server import RunningServer
    from braid_bench.brokers.workload import Interest, Message

__all__ = ["Stomp"]

_TOPIC = "/topic/quotes"
# Broker and client write at the same time, so subscribing in larger steps could fill both directions.
_STEP = 500


class Stomp(Rival):
    """ActiveMQ Classic, with JMS selectors."""

    name = "activemq"
    server = ActiveMq
    filter_form = "sql"

    def publisher(self, server: RunningServer) -> RawPublisher:
        """Open the publishing connection."""
        return RawPublisher(_connect(server).done(), _encode)

    def subscriber(self, server: RunningServer, interests: Sequence[Interest] | None) -> RawSubscriber:
        """Open a connection with one subscription for each interest, or one for every message.

        STOMP headers are text, which ActiveMQ reads as a number of the same kind as the selector's literal:
        `price > 50` would not match a price of 75.0, but `price > 50.0` does.
        """
        connection = _connect(server)
        selectors = [""] if interests is None else [each.sql() for each in interests]
        for start in range(0, len(selectors), _STEP):
            step = selectors[start : start + _STEP]
            last = start + len(step) - 1
            connection.send(
                b"".join(
                    _subscribe(number, selector, receipt=number == last)
                    for number, selector in enumerate(step, start)
                )
            )
            answer = connection.read_until(b"\0")
            if f"receipt-id:{last}".encode() not in answer:
                raise RemoteProtocolError(f"activemq refused a subscription: {answer[:300]!r}")
        return RawSubscriber(connection.done())


def _connect(server: RunningServer) -> SetUp:
    connection = SetUp(server.ports[0])
    connection.send(_frame("CONNECT", {"accept-version": "1.2", "host": "localhost", "heart-beat": "0,0"}))
    answer = connection.read_until(b"\0")
    if not answer.startswith(b"CONNECTED"):
        raise RemoteProtocolError(f"activemq refused the connection: {answer[:300]!r}")
    return connection


def _subscribe(number: int, selector: str, *, receipt: bool) -> bytes:
    headers = {"destination": _TOPIC, "id": str(number), "ack": "auto"}
    if selector:
        headers["selector"] = selector
    if receipt:
        headers["receipt"] = str(number)
    return _frame("SUBSCRIBE", headers)


def _encode(message: Message) -> bytes:
    headers = {"destination": _TOPIC, "content-length": str(len(message.body))}
    if message.quote is not None:
        headers.update({name: str(value) for name, value in message.quote.values().items()})
    return _frame("SEND", headers, message.body)


def _frame(command: str, headers: dict[str, str], body: bytes = b"") -> bytes:
    lines = [f"{name}:{value}" for name, value in headers.items()]
    return "\n".join([command, *lines, "", ""]).encode() + body + b"\0"

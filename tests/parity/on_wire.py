"""The scenario's steps over broker cores in one process."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from braid.language import Filter
from braid.protocol.messages import (
    Acknowledge,
    Advertise,
    Done,
    Subscribe,
    SubscribeDurable,
    Unadvertise,
    Unsubscribe,
)
from tests.broker.wire import Network, WireClient

if TYPE_CHECKING:
    from tests.parity.scenario import Heard

__all__ = ["WireDriver"]

# More than any acknowledgement or redial waits for.
STEP_US = 200_000


class WireDriver:
    """Drives cores step by step; time is a number."""

    def __init__(self) -> None:
        self._network = Network()
        self._clients: dict[str, WireClient] = {}
        self._filters: dict[tuple[str, str], Filter] = {}
        self._heard: Heard = defaultdict(lambda: defaultdict(list))
        self._requests = 0

    async def start(self, links: dict[str, str | None], clients: dict[str, str]) -> None:
        for name, other in links.items():
            self._network.start(name, neighbours=(other,) if other else (), store=True)
            self._network.run(us=1_000_000)
        for name, broker in clients.items():
            self._clients[name] = self._network.client(name, broker)

    def _ask(self, client: str, kind: type[Any], *arguments: Any) -> None:
        self._requests += 1
        self._clients[client].ask(kind(self._requests, *arguments))
        self._settle()
        assert self._clients[client].answers(Done)[-1].request == self._requests

    def _settle(self) -> None:
        self._network.run(us=STEP_US)
        for name, client in self._clients.items():
            for publication in client.publications:
                for (owner, key), filter in self._filters.items():
                    if owner == name and filter.matches(publication.attributes):
                        self._heard[(name, key)][publication.publisher].append(publication.sequence)
            for log, _, publication in client.stored:
                self._heard[(name, log)][publication.publisher].append(publication.sequence)
            client.publications.clear()
            client.stored.clear()

    async def subscribe(self, client: str, key: str, text: str) -> None:
        self._ask(client, Subscribe, key, text)
        self._filters[(client, key)] = Filter(text)

    async def unsubscribe(self, client: str, key: str) -> None:
        self._ask(client, Unsubscribe, key)
        del self._filters[(client, key)]

    async def advertise(self, client: str, key: str, text: str) -> None:
        self._ask(client, Advertise, key, text)

    async def unadvertise(self, client: str, key: str) -> None:
        self._ask(client, Unadvertise, key)

    async def read_durable(self, client: str, key: str, text: str) -> None:
        self._ask(client, SubscribeDurable, key, text)

    async def leave_durable(self, client: str, key: str, count: int) -> None:
        # There is no message for it: another connection takes the log over and goes.
        self._clients[client].ask(Acknowledge(key, count - 1))
        self._settle()
        other = self._network.client(f"{client}-away", self._clients[client].broker)
        other.ask(SubscribeDurable(1, key, "", takeover=True))
        self._network.run()
        assert not other.stored, "everything was acknowledged"
        self._network.leave(other)
        self._settle()

    async def publish(self, client: str, rows: list[dict[str, Any]], acknowledged: bool) -> None:
        publisher = self._clients[client]
        for row in rows[:-1]:
            publisher.publish(row, acknowledged=acknowledged)
        publisher.publish(rows[-1], acknowledged=True)
        self._settle()
        assert publisher.channel.idle

    async def heard(self, counts: dict[tuple[str, str], int]) -> Heard:
        self._settle()
        return self._heard

    async def close(self) -> None:
        """There is nothing to end."""

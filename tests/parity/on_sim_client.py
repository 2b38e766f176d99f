"""The scenario's steps in a simulated world, with the client that people use instead of light ones."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from braid.language import Filter
from braid.protocol.publisher_names import publisher_and_epoch
from braid.sim import FullClient, World
from tests.sim.brokers import add_tree

if TYPE_CHECKING:
    from tests.parity.scenario import Heard

__all__ = ["SimClientDriver"]

# More than any acknowledgement waits for.
STEP_S = 0.2


class SimClientDriver:
    """Drives broker cores and client machines in virtual time, with latency and through the codec."""

    def __init__(self) -> None:
        self._world = World(1, codec=True)
        self._clients: dict[str, FullClient] = {}
        self._advertised: dict[tuple[str, str], int] = {}

    async def start(self, links: dict[str, str | None], clients: dict[str, str]) -> None:
        add_tree(self._world, links, store=True)
        for name, broker in clients.items():
            self._clients[name] = self._world.admit(FullClient(name, (broker,), acknowledge_every=10**9))
        self._settle()

    def _settle(self) -> None:
        self._world.run_for(seconds=STEP_S)
        for client in self._clients.values():
            assert client.problems == []

    async def subscribe(self, client: str, key: str, text: str) -> None:
        self._clients[client].subscribe(key, text)
        self._settle()
        assert key in self._clients[client].answered

    async def unsubscribe(self, client: str, key: str) -> None:
        self._clients[client].unsubscribe(key)
        self._settle()

    async def advertise(self, client: str, key: str, text: str) -> None:
        session = self._clients[client].session
        self._advertised[(client, key)], _ = session.requests.advertise(Filter(text))
        self._clients[client].act()
        self._settle()

    async def unadvertise(self, client: str, key: str) -> None:
        self._clients[client].session.requests.unadvertise(self._advertised.pop((client, key)))
        self._clients[client].act()
        self._settle()

    async def read_durable(self, client: str, key: str, text: str) -> None:
        self._clients[client].subscribe(key, text, durable=True)
        self._settle()
        assert key in self._clients[client].answered

    async def leave_durable(self, client: str, key: str, count: int) -> None:
        self._clients[client].unsubscribe(key, through=count - 1)
        self._settle()

    async def publish(self, client: str, rows: list[dict[str, Any]], acknowledged: bool) -> None:
        publisher = self._clients[client]
        for row in rows[:-1]:
            publisher.publish(row, acknowledged=acknowledged)
        publisher.publish(rows[-1], acknowledged=True)
        self._settle()
        assert not publisher.session.outbox.kept_bytes

    async def heard(self, counts: dict[tuple[str, str], int]) -> Heard:
        self._settle()
        self._world.checkers.require()
        heard: Heard = defaultdict(lambda: defaultdict(list))
        for name, client in self._clients.items():
            for key, rows in client.rows.items():
                for row in rows:
                    heard[(name, key)][publisher_and_epoch(row.publisher)[0]].append(row.sequence)
        return heard

    async def close(self) -> None:
        """There is nothing to end."""

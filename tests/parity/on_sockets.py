"""The scenario's steps over real sockets, with the client that people use."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from braid.broker.core import BrokerCore
from braid.broker.settings import BrokerSettings
from braid.client.stored import StoredPublication
from braid.protocol.memory_store import MemoryStore
from braid.runtime.connecting import connect
from braid.runtime.node import Node
from braid.runtime.store import StoreThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from braid.runtime.client import Client
    from braid.runtime.client_subscription import Advertisement, Subscription
    from tests.parity.scenario import Heard

__all__ = ["SocketDriver", "until"]

DEADLINE_S = 20.0


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, not for a time."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 (what is waited for does not tell)
            await asyncio.sleep(0.002)


class SocketDriver:
    """Brokers on free loopback ports, all on the running event loop."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._ports: dict[str, int] = {}
        self._clients: dict[str, Client] = {}
        self._subscriptions: dict[tuple[str, str], Subscription] = {}
        self._advertisements: dict[tuple[str, str], Advertisement] = {}
        self._heard: Heard = defaultdict(lambda: defaultdict(list))
        self._offsets: dict[tuple[str, str], int] = {}

    async def start(self, links: dict[str, str | None], clients: dict[str, str]) -> None:
        cores = []
        for name, other in links.items():
            neighbours = (f"127.0.0.1:{self._ports[other]}",) if other else ()
            store = MemoryStore()
            settings = BrokerSettings(broker_id=name, neighbours=neighbours)
            core = BrokerCore(settings, incarnation=f"{name}-1", seed=1, store=store.state())
            node = self._nodes[name] = Node(core, name=name, store=StoreThread(store))
            self._ports[name] = await node.listen("127.0.0.1", 0)
            node.start()
            await until(lambda core=core: core.ready)
            cores.append(core)
        await until(lambda: sum(core.statistics()["links_up"] for core in cores) == 2 * (len(cores) - 1))
        for name, broker in clients.items():
            address = f"127.0.0.1:{self._ports[broker]}"
            self._clients[name] = await connect(address, name=name, publisher=name)

    async def subscribe(self, client: str, key: str, text: str) -> None:
        self._subscriptions[(client, key)] = await self._clients[client].subscribe(text, queue_size=10_000)

    async def unsubscribe(self, client: str, key: str) -> None:
        await self._drain((client, key))
        await self._subscriptions.pop((client, key)).close()

    async def advertise(self, client: str, key: str, text: str) -> None:
        self._advertisements[(client, key)] = await self._clients[client].advertise(text)

    async def unadvertise(self, client: str, key: str) -> None:
        await self._advertisements.pop((client, key)).close()

    async def read_durable(self, client: str, key: str, text: str) -> None:
        reader = self._clients[client]
        self._subscriptions[(client, key)] = await reader.subscribe(text, durable=key, queue_size=10_000)

    async def leave_durable(self, client: str, key: str, count: int) -> None:
        place = (client, key)
        await self._drain(place, count)
        subscription = self._subscriptions.pop(place)
        offset = self._offsets.pop(place, None)
        if offset is not None:
            await subscription.acknowledge(offset)
        await subscription.close()

    async def publish(self, client: str, rows: list[dict[str, Any]], acknowledged: bool) -> None:
        publisher = self._clients[client]
        for row in rows[:-1]:
            await publisher.publish(row, delivery="acknowledged" if acknowledged else "fast")
        await (await publisher.publish(rows[-1], delivery="acknowledged"))

    async def _drain(self, place: tuple[str, str], count: int = 0) -> None:
        """Take what has come, and wait until it is so much."""
        subscription = self._subscriptions[place]
        while (
            subscription.statistics().queued or sum(len(each) for each in self._heard[place].values()) < count
        ):
            publication = await subscription.get(DEADLINE_S)
            if isinstance(publication, StoredPublication):
                self._offsets[place] = publication.offset
            self._heard[place][publication.publisher].append(publication.sequence)

    async def heard(self, counts: dict[tuple[str, str], int]) -> Heard:
        for place in list(self._subscriptions):
            await self._drain(place, counts.get(place, 0))
        return self._heard

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()
        for node in reversed(self._nodes.values()):
            await node.stop()

"""Do clients and real brokers understand each other?"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from braid.broker.core import BrokerCore
from braid.broker.settings import BrokerSettings
from braid.client.stored import StoredPublication
from braid.errors import ConfigurationError, ConnectionLostError, RequestRefusedError
from braid.language import Filter
from braid.protocol.memory_store import MemoryStore
from braid.runtime.connecting import connect
from braid.runtime.node import Node
from braid.runtime.store import StoreThread
from braid.runtime.tls import TlsSettings, client_context, server_context
from tests.runtime.certificates import Authority
from tests.runtime.fake_broker import DEADLINE_S, until

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator
    from pathlib import Path

    from braid.broker.access import AccessPolicy

pytestmark = pytest.mark.net


class RunningBroker:
    """A broker on a loopback port; it can be stopped, and started again on the same port."""

    def __init__(
        self,
        broker_id: str,
        neighbours: tuple[str, ...] = (),
        tls: ssl.SSLContext | None = None,
        access: AccessPolicy | None = None,
        **settings: Any,
    ) -> None:
        self.tls = tls
        self.access = access
        self.settings = settings
        self.broker_id = broker_id
        self.neighbours = neighbours
        self.port = 0
        self.starts = 0
        self.store = MemoryStore(secret=f"the secret of {broker_id}")
        self.core: BrokerCore
        self.node: Node

    async def start(self) -> None:
        self.starts += 1
        settings = BrokerSettings(
            broker_id=self.broker_id,
            neighbours=self.neighbours,
            address=f"127.0.0.1:{self.port}",
            **self.settings,
        )
        self.core = BrokerCore(
            settings,
            incarnation=f"{self.broker_id}-{self.starts}",
            seed=1,
            access=self.access,
            store=self.store.state(),
        )
        self.node = Node(self.core, name=self.broker_id, store=StoreThread(self.store), server_tls=self.tls)
        self.port = await self.node.listen("127.0.0.1", self.port)
        self.node.start()

    async def stop(self) -> None:
        await self.node.stop()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@asynccontextmanager
async def line_of(*names: str) -> AsyncIterator[list[RunningBroker]]:
    """Brokers in a row, each linked to the one before."""
    async with AsyncExitStack() as stack:
        brokers: list[RunningBroker] = []
        for name in names:
            broker = RunningBroker(name, tuple(each.address for each in brokers[-1:]))
            await broker.start()
            stack.push_async_callback(broker.stop)
            brokers.append(broker)
        await until(lambda: all(broker.core.ready for broker in brokers))
        yield brokers


async def test_publications_cross_a_line_of_brokers() -> None:
    async with (
        line_of("A", "B", "C") as brokers,
        connect(brokers[0].address) as publisher,
        connect(brokers[2].address) as subscriber,
    ):
        even = await subscriber.subscribe("n % 2 = 0", queue_size=10_000)
        low = await subscriber.subscribe("n < 100", queue_size=10_000)
        for number in range(1000):
            await publisher.publish({"n": number}, delivery="acknowledged" if number % 5 == 0 else "fast")
        await publisher.flush(DEADLINE_S)
        assert [(await even.get(DEADLINE_S))["n"] for _ in range(500)] == list(range(0, 1000, 2))
        assert [(await low.get(DEADLINE_S))["n"] for _ in range(100)] == list(range(100))
        await low.close()
        await publisher.publish({"n": 1001})
        await publisher.publish({"n": 1002})
        assert (await even.get(DEADLINE_S))["n"] == 1002


async def test_a_durable_subscription_survives_the_broker() -> None:
    async with line_of("A") as brokers:
        broker = brokers[0]
        async with connect(broker.address) as client:
            log = await client.subscribe("n >= 0", durable="log")
            ordinary = await client.subscribe("n >= 0")
            for number in range(20):
                await client.publish({"n": number}, delivery="acknowledged")
            await client.flush(DEADLINE_S)
            rows = [await log.get(DEADLINE_S) for _ in range(10)]
            assert isinstance(rows[9], StoredPublication)
            await log.acknowledge(rows[9])
            await client.flush(DEADLINE_S)
            await broker.stop()
            await until(lambda: not client.connected)
            await client.publish({"n": 20}, delivery="acknowledged")
            await broker.start()
            await client.flush(DEADLINE_S)
            rows += [await log.get(DEADLINE_S) for _ in range(11)]
            assert [row["n"] for row in rows] == list(range(21))
            assert (log.statistics().queued, log.statistics().waiting) == (0, 0)
            assert [(await ordinary.get(DEADLINE_S))["n"] for _ in range(20)] == list(range(20))
            replayed = [row["n"] async for row in client.replay("log", 5, 9)]
            assert replayed == [5, 6, 7, 8, 9]
            await client.drop_durable("log")
            with pytest.raises(RequestRefusedError):
                await client.subscribe(None, durable="log")


async def test_a_slow_reader_holds_a_publisher_up_and_loses_nothing() -> None:
    async with (
        line_of("A") as brokers,
        connect(brokers[0].address, outgoing_bytes_max=1_000_000) as publisher,
        connect(brokers[0].address) as subscriber,
    ):
        subscription = await subscriber.subscribe("n >= 0", queue_size=5)
        body = b"x" * 50_000

        async def publish() -> None:
            for number in range(1000):
                await publisher.publish({"n": number}, body)

        publishing = asyncio.create_task(publish())
        found = [(await subscription.get(DEADLINE_S))["n"] for _ in range(1000)]
        await publishing
        assert found == list(range(1000))


async def test_advertisements_and_questions() -> None:
    async with line_of("A", "B") as brokers, connect(brokers[0].address) as client:
        async with await client.advertise("n >= 0") as advertisement:
            assert advertisement.filter == Filter("n >= 0")
            async with connect(brokers[1].address) as other:
                subscription = await other.subscribe("n = 5")
                await client.publish({"n": 5})
                assert (await subscription.get(DEADLINE_S))["n"] == 5
        assert (await client.ask("overlay"))["broker"] == "A"
        with pytest.raises(RequestRefusedError, match="topic"):
            await client.ask("nonsense")


async def test_connections_are_encrypted_and_both_sides_known(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("broker")
    broker = RunningBroker(
        "A",
        tls=server_context(
            TlsSettings(
                certificate=own.certificate,
                key=own.key,
                authority=authority.certificate,
                require_client_certificate=True,
            )
        ),
    )
    await broker.start()
    mine = authority.issue("client")
    known = TlsSettings(certificate=mine.certificate, key=mine.key, authority=authority.certificate)
    for url, tls in (
        (f"braids://127.0.0.1:{broker.port}", known),
        (f"localhost:{broker.port}", known),
        (broker.address, client_context(known)),
    ):
        async with connect(url, tls=tls) as client:
            subscription = await client.subscribe("n >= 0")
            await client.publish({"n": 1})
            assert (await subscription.get(DEADLINE_S))["n"] == 1
    with pytest.raises(ConfigurationError, match="braids"):
        connect(f"braid://{broker.address}", tls=known)
    for url, settings, reason in (
        (f"braids://{broker.address}", None, "certificate is not accepted"),
        (broker.address, TlsSettings(authority=authority.certificate), "client certificate"),
        (f"braid://{broker.address}", None, "does it expect TLS"),
    ):
        with pytest.raises(ConnectionLostError, match=reason):
            await connect(url, tls=settings, timeout_s=0.5)
    await broker.stop()

"""Those who publish quotes and those who read them, and what they write down.

What was published, who wanted what, and what each reader got are tables beside the traces of the brokers.
So the judgement at the end rests on both: brokers say how, clients say whether.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, Final

from braid.errors import BraidError
from braid.runtime.connecting import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from braid.cli.network_demo.market import Market
    from braid.runtime.client import Client

__all__ = ["Clients"]

ROWS_AT_ONCE_MAX: Final = 500
# How long a client tries to reach its broker, first and again.
PATIENCE_S: Final = 120.0
# What comes twice may come late.
QUIET_S: Final = 0.7
LOOK_S: Final = 0.1
# How far a publisher may fall behind its pace before it gives up catching up.
BEHIND_S_MAX: Final = 0.2


class Clients:
    """All readers and publishers.

    Args:
        addresses: of the brokers, by name.
        market: the quotes.
        filters: what the reader at each broker wants.
        durable: brokers whose reader has a durable subscription; the others have plain ones.
        publishing: brokers where quotes are published.
        rate: quotes a second of each publisher.
    """

    def __init__(
        self,
        addresses: Mapping[str, str],
        market: Market,
        filters: Mapping[str, str],
        durable: frozenset[str],
        publishing: tuple[str, ...],
        rate: float,
    ) -> None:
        self._addresses = addresses
        self._market = market
        self._filters = filters
        self._durable = durable
        self._publishing = publishing
        self._rate = rate
        self._stack = AsyncExitStack()
        self._reading: list[asyncio.Task[None]] = []
        self._next_quote = 0
        self.published: list[dict[str, Any]] = []
        """Publisher, number, act, time and attributes of all quotes."""
        self.received: list[tuple[str, str, str, int, int]] = []
        """Broker, reader, publisher, number and time of all that was read, rows of logs once each."""

    async def __aenter__(self) -> Clients:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)
        with suppress(BraidError, TimeoutError):
            await self._stack.aclose()

    async def _connect(self, name: str, broker: str) -> Client:
        return await self._stack.enter_async_context(
            connect(
                self._addresses[broker],
                name=name,
                timeout_s=PATIENCE_S,
                reconnect_for_s=PATIENCE_S,
                request_timeout_s=PATIENCE_S,
            )
        )

    async def subscribe(self) -> int:
        """Have all readers subscribe; how many there are. From then on nothing passes them by."""
        for broker, text in self._filters.items():
            name = f"reader-{broker}"
            client = await self._connect(name, broker)
            subscription: Any
            if broker in self._durable:
                subscription = await client.subscribe(text, durable=name)
            else:
                subscription = await client.subscribe(text, when_full="block", queue_size=10_000)
            self._reading.append(asyncio.create_task(self._read(broker, name, subscription)))
        return len(self._reading)

    async def _read(self, broker: str, name: str, subscription: Any) -> None:
        durable = broker in self._durable
        last_offset = -1
        while True:
            rows = await subscription.get_many(ROWS_AT_ONCE_MAX)
            now_us = time.time_ns() // 1000
            for row in rows:
                if durable:
                    # A row that was not acknowledged before a crash is read again: it is the same row.
                    if row.offset <= last_offset:
                        continue
                    last_offset = row.offset
                self.received.append((broker, name, row.publisher, row.sequence, now_us))
            if durable:
                await subscription.acknowledge(rows[-1].offset)

    async def publish(
        self, act: str, seconds: float, patience_s: float, tick: Callable[[], None] = lambda: None
    ) -> str:
        """Publish quotes at all publishing brokers, with receipts; an empty text, or what went wrong."""
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(
                    connect(
                        self._addresses[broker],
                        name=f"{act}-{place}",
                        publisher=f"{act}-{place}",
                        timeout_s=PATIENCE_S,
                        reconnect_for_s=PATIENCE_S,
                    )
                )
                for place, broker in enumerate(self._publishing)
            ]
            problems = await asyncio.gather(
                *(self._publish_one(client, act, seconds, patience_s, tick) for client in clients)
            )
        return "; ".join(filter(None, problems))

    async def _publish_one(
        self, client: Client, act: str, seconds: float, patience_s: float, tick: Callable[[], None]
    ) -> str:
        quotes = self._market.quotes
        end_s = time.monotonic() + seconds
        due_s = time.monotonic()
        try:
            while (now_s := time.monotonic()) < end_s:
                quote = quotes[self._next_quote % len(quotes)]
                self._next_quote += 1
                at_us = time.time_ns() // 1000
                async with asyncio.timeout(max(1.0, end_s - now_s) + patience_s):
                    receipt = await client.publish(quote, delivery="acknowledged")
                self.published.append(
                    {"act": act, "publisher": client.publisher, "sequence": receipt.sequence, "at_us": at_us}
                    | quote
                )
                tick()
                due_s = max(due_s + 1 / self._rate, time.monotonic() - BEHIND_S_MAX)
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            await client.flush(patience_s)
        except (BraidError, TimeoutError) as error:
            return f"{client.name} did not get all its receipts: {str(error) or 'they did not come in time'}"
        return ""

    async def settle(self) -> None:
        """Wait until nothing more arrives."""
        before = -1
        quiet_s = 0.0
        while quiet_s < QUIET_S:
            await asyncio.sleep(LOOK_S)
            quiet_s = quiet_s + LOOK_S if len(self.received) == before else 0.0
            before = len(self.received)

    def write(self, directory: Path) -> None:
        """The tables, as Parquet files."""
        import pyarrow as pa
        from pyarrow import parquet

        directory.mkdir(parents=True, exist_ok=True)
        names = ("broker", "subscriber", "publisher", "sequence", "at_us")
        columns: list[list[Any]] = [list(column) for column in zip(*self.received, strict=True)] or [[]] * 5
        kinds = (pa.string(), pa.string(), pa.string(), pa.int64(), pa.int64())
        received = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        parquet.write_table(pa.Table.from_arrays(received, names=list(names)), directory / "received.parquet")
        parquet.write_table(pa.Table.from_pylist(self.published), directory / "published.parquet")
        wanted = [
            {"broker": broker, "subscriber": f"reader-{broker}", "filter": text}
            for broker, text in self._filters.items()
        ]
        parquet.write_table(pa.Table.from_pylist(wanted), directory / "wanted.parquet")

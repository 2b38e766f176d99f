"""Do brokers with real sockets and stores change places under load, and come back to their new places?"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

import braid

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.net

FREE = "127.0.0.1:0"
PUBLICATIONS = 300


def named(broker_id: str, folder: Path, **options: Any) -> braid.ServerSettings:
    return braid.ServerSettings.of(broker_id=broker_id, listen=FREE, data_dir=folder / broker_id, **options)


async def neighbours_of(address: str) -> set[str]:
    async with braid.connect(address) as operator:
        shown = await operator.ask("overlay")
    return {link["neighbour"] for link in shown["links"]}


async def publish(address: str, publisher: str, manner: dict[str, Any]) -> None:
    """Publish so that some are under way across each operation."""
    async with braid.connect(address) as client:
        for number in range(PUBLICATIONS):
            await client.publish({"publisher": publisher, "number": number, "price": number % 40}, **manner)
            await asyncio.sleep(0.002)


async def received(subscription: Any, wanted: int) -> dict[str, list[int]]:
    """What a subscriber got of each publisher, in order."""
    found: dict[str, list[int]] = {}
    for _ in range(wanted):
        publication = await asyncio.wait_for(subscription.get(), 60)
        found.setdefault(publication["publisher"], []).append(publication["number"])
    return found


async def test_a_shift_under_load_loses_doubles_and_reorders_nothing(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:

        async def start(name: str, *dialled: Any) -> Any:
            addresses = [each.address for each in dialled]
            return await stack.enter_async_context(braid.serve(named(name, tmp_path, neighbours=addresses)))

        j = await start("J")
        i, k, m = await start("I", j), await start("K", j), await start("M", j)
        x, y = await start("X", i), await start("Y", k)
        for broker in (i, j, k, m, x, y):
            await broker.wait_ready(30)
        manners: dict[str, tuple[Any, dict[str, Any]]] = {
            "fast": (x, {}),
            "acknowledged": (m, {"delivery": "acknowledged"}),
            "ordered": (y, {"ordered": True}),
        }
        readers = []
        for broker in (i, j, k, m, x, y):
            client = await stack.enter_async_context(braid.connect(broker.address))
            readers.append(await client.subscribe("price > 9"))
        expected = [number for number in range(PUBLICATIONS) if number % 40 > 9]
        work = [
            asyncio.create_task(publish(broker.address, name, manner))
            for name, (broker, manner) in manners.items()
        ]
        reading = [asyncio.create_task(received(reader, 3 * len(expected))) for reader in readers]
        await asyncio.sleep(0.1)
        async with braid.connect(i.address) as operator:
            moved = await operator.ask("reconfigure", operation="shift", moving="I", old="J", new="K")
            assert moved["outcome"] == "finished"
            back = await operator.ask("reconfigure", operation="shift", moving="I", old="K", new="J")
            assert back["outcome"] == "finished"
            again = await operator.ask("reconfigure", operation="shift", moving="I", old="J", new="K")
            assert again["outcome"] == "finished"
        await asyncio.gather(*work)
        for found in await asyncio.gather(*reading):
            assert found == dict.fromkeys(found, expected)
            assert found.keys() == manners.keys()
        assert await neighbours_of(i.address) == {"X", "K"}
        assert await neighbours_of(j.address) == {"K", "M"}
        assert await neighbours_of(k.address) == {"I", "J", "Y"}

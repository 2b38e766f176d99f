"""Subscribers and publishers in one event loop; run it with `python examples/async_bus.py`."""

from __future__ import annotations

import asyncio

import braid


async def main() -> None:
    async with braid.open() as bus:
        alarms = await bus.subscribe(
            "kind = 'temperature' AND degrees > 30", when_full="drop_oldest", queue_size=10
        )

        async def watch() -> None:
            async for publication in alarms:
                print(f"room {publication['room']} is at {publication['degrees']} degrees")

        watcher = asyncio.create_task(watch())
        for room, degrees in enumerate([21.5, 33.0, 19.0, 41.5]):
            await bus.publish({"kind": "temperature", "room": room, "degrees": degrees})
    await watcher  # closing the bus ends the iteration


if __name__ == "__main__":
    asyncio.run(main())

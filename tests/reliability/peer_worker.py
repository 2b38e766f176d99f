"""Some real peers in a process of their own, added one by one as standard input says.

Each line of standard input is a JSON object with `bootstrap`: a peer is started, and when it has its place
its address is printed. At the end of standard input all of them say goodbye.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from typing import Any

import braid

__all__: list[str] = []

READY_S_MAX = 60.0


async def main(trace: str, settings: dict[str, Any]) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with AsyncExitStack() as stack:
        while line := await reader.readline():
            order = json.loads(line)
            source = {"peers": settings, "trace": {"age_s_max": 1.0}}
            peer = await stack.enter_async_context(
                braid.serve_peer(source, bootstrap=order["bootstrap"], peer_id=order["name"], trace=trace)
            )
            await peer.wait_ready(READY_S_MAX)
            print(peer.address, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))

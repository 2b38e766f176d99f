"""How far is another broker away, before there is a link to it?

A probe opens a connection to the other's listener and ends it before anything is said: the time of that is a
round trip as the network has it, without the other's queue of work. Links that are there are probed in the
same way, so that both are compared fairly.
"""

from __future__ import annotations

import asyncio
import time

from braid.errors import BraidError
from braid.runtime.tls import parse_address

__all__ = ["probed_us"]

# Farther brokers are not worth a link.
PROBE_TIMEOUT_S = 2.0


async def probed_us(text: str) -> int | None:
    """The round trip to an address, in microseconds; None if nobody answers there."""
    try:
        address = parse_address(text)
        begun_ns = time.perf_counter_ns()
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            _, writer = await asyncio.open_connection(address.host, address.port)
    except (OSError, TimeoutError, BraidError):
        return None
    took_us = (time.perf_counter_ns() - begun_ns) // 1_000
    writer.transport.abort()
    return max(1, took_us)

"""How long does a publication take from each broker to the one that is watched from?

Once a second a probe is published at the next broker in turn and waited for at the first one. Both ends
are this process, so one clock tells the time. A probe is a publication like any other and takes the way
that others take.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from contextlib import suppress
from statistics import median
from typing import TYPE_CHECKING, Final

from braid.errors import BraidError
from braid.runtime.connecting import connect

if TYPE_CHECKING:
    from braid.dashboard.watch import NetworkWatch

__all__ = ["ATTRIBUTE", "Probe"]

ATTRIBUTE: Final = "braid_dashboard_probe"
INTERVAL_S: Final = 1.0
# One that has not come by then is lost for this purpose.
PATIENCE_S: Final = 2.0
# After a failure, such as a grant that does not let us publish.
PAUSE_S: Final = 10.0
# The latest times; their median is shown.
TIMES_MAX: Final = 12


class Probe:
    """Measures latencies through a network that is watched."""

    def __init__(self, watch: NetworkWatch) -> None:
        self._watch = watch
        self._times_ms: deque[float] = deque(maxlen=TIMES_MAX)
        self._mark = secrets.token_hex(8)
        self.by_broker: dict[str, float] = {}
        """The latest time from each broker, in milliseconds."""
        self.problem = ""
        """Why nothing is measured; empty if something is."""

    @property
    def latency_ms(self) -> float | None:
        """The median of the latest times; None before the first one."""
        return round(median(self._times_ms), 3) if self._times_ms else None

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            try:
                await self._measure()
            except (BraidError, TimeoutError, OSError) as error:
                self.problem = str(error)
                self._times_ms.clear()
                self.by_broker.clear()
            await asyncio.sleep(PAUSE_S)

    async def _measure(self) -> None:
        door = self._watch.door
        async with connect(
            self._watch.start, token=door.token, tls=door.tls, timeout_s=door.timeout_s, reconnect_for_s=0
        ) as client:
            arrivals = await client.subscribe(
                f"{ATTRIBUTE} = '{self._mark}'", when_full="drop_oldest", queue_size=100, partial=True
            )
            turn = 0
            while not client.closed:
                names = self._watch.brokers()
                if names:
                    turn += 1
                    name = names[turn % len(names)]
                    with suppress(BraidError, TimeoutError):  # that broker is shown as failed elsewhere
                        publisher = await self._watch.client(name)
                        began_s = time.perf_counter()
                        await publisher.publish({ATTRIBUTE: self._mark, "turn": turn}, timeout_s=PATIENCE_S)
                        async with asyncio.timeout(PATIENCE_S):
                            while (await arrivals.get())["turn"] != turn:
                                pass
                        taken_ms = 1000 * (time.perf_counter() - began_s)
                        self._times_ms.append(taken_ms)
                        self.by_broker[name] = round(taken_ms, 2)
                        self.problem = ""
                    for gone in self.by_broker.keys() - set(names):
                        del self.by_broker[gone]
                await asyncio.sleep(INTERVAL_S)

"""What do subscribers of real brokers feel while the broker between them and a publisher is replaced?

A star: the broker P, where everything is published, the neighbours N1, N2, ... with the subscriptions, and F
between them, which is killed (SIGKILL). A standby takes its name and its place, by one of the failover
protocols, and gets all tables from the neighbours. Brokers write traces, of which the phases of the
replication are read, and in which order a neighbour handed publications over: a client with many
subscriptions serves them side by side. All else is what clients published and read.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import signal
import subprocess
import time
from array import array
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from braid.broker.identities import granted_key
from braid.broker.replica_progress import REPLICATE
from braid.errors import ConfigurationError, RequestRefusedError
from braid.pipeline.experiments.availability.real_brokers import LOOK_S, RealBrokers
from braid.trace.reader import read_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from braid.language import Publication
    from braid.runtime.client import Client

__all__ = ["PUBLISHER", "Failover", "Read", "RealStar"]

PUBLISHER: Final = "P"
GONE: Final = "F"
STANDBY: Final = "S"
# How long each step of a failover may take.
STEP_S_MAX: Final = 120.0
STOP_S_MAX: Final = 30.0
# How soon a link that has gone down is seen to be.
WATCH_S: Final = 0.005


@dataclass(slots=True)
class Read:
    """All that the subscriptions at one neighbour were handed, in order."""

    subscriptions: array[int] = field(default_factory=lambda: array("q"))
    """The number of the subscription at that neighbour."""
    numbers: array[int] = field(default_factory=lambda: array("q"))
    at_s: array[float] = field(default_factory=lambda: array("d"))


@dataclass(slots=True)
class Failover:
    """What happened, by one clock, in seconds."""

    killed_s: float = 0.0
    detected_s: float = 0.0
    """Since when all neighbours know that their link is down."""
    asked_s: float = 0.0
    done_s: float = 0.0
    """Since when all links of the replica are open."""
    first: int = 0
    """The first number that was published after all neighbours knew."""
    cpu_s: float = 0.0
    """Processor time of all brokers from the detection to the end."""
    entries_before: int = 0
    """Subscriptions that the standby knew when the broker died."""
    entries_moved: int = 0
    """Those that the replica knows afterwards."""
    requested_s: dict[str, float] = field(default_factory=dict)
    """When each neighbour got the request to connect."""
    delivered: dict[str, list[int]] = field(default_factory=dict)
    """The numbers that each neighbour handed to its subscriptions, in order."""
    replication_s: float = 0.0
    """From the first request for state to the last answer."""


class RealStar(RealBrokers):
    """A star of brokers on loopback.

    Args:
        filters: what is asked for at each neighbour.
        folder: for logs, traces and the directory of brokers.
        rate: numbers that are published each second.
        attributes: what is published with a number.
    """

    def __init__(
        self,
        filters: Sequence[Sequence[str]],
        folder: Path,
        rate: float,
        attributes: Callable[[int], dict[str, Any]],
    ) -> None:
        # In a directory the broker that was killed would have its name until its lease is over.
        super().__init__(folder, directory=False)
        self.neighbours = tuple(f"N{number}" for number in range(1, len(filters) + 1))
        self.read = {name: Read() for name in self.neighbours}
        self._filters = filters
        self._rate = rate
        self._attributes = attributes
        self._writer: Client

    @property
    def published_s(self) -> list[float]:
        """When each number was published."""
        return self.published_at_s[PUBLISHER]

    async def _open(self) -> None:
        await self._traced(GONE)
        around = (PUBLISHER, *self.neighbours)
        await asyncio.gather(
            *(self._traced(name, "--neighbor", self._addresses[GONE]) for name in around),
            self._traced(STANDBY, "--standby"),
        )
        for name in (*around, STANDBY):
            await self._operate(name)
        await self._linked(around)
        for name, filters in zip(self.neighbours, self._filters, strict=True):
            handlers = [partial(self._took, self.read[name], number) for number in range(len(filters))]
            await self._load(name, filters, handlers)
        self._writer = await self._client(PUBLISHER, "writer")
        self.start_writing(PUBLISHER, self._writer, self._rate, self._attributes)
        self._stack.push_async_callback(self.stop_writing)
        await self._flows()

    async def _traced(self, name: str, *options: str) -> None:
        await self._broker(name, "--trace", str(self._folder / f"trace-{name}"), *options)

    @staticmethod
    def _took(read: Read, subscription: int, publication: Publication) -> None:
        number = publication.attributes["probe"]
        if isinstance(number, int):
            read.subscriptions.append(subscription)
            read.numbers.append(number)
            read.at_s.append(time.monotonic())

    async def _flows(self) -> None:
        """Wait until every neighbour gets something that was just published."""

        def flowing(read: Read) -> bool:
            return bool(read.numbers) and self.published_s[read.numbers[-1]] > time.monotonic() - 1.0

        await self._until(lambda: all(map(flowing, self.read.values())), "publications do not come")

    async def _until(self, so: Callable[[], bool], problem: str) -> None:
        deadline_s = time.monotonic() + STEP_S_MAX
        while not so():
            if time.monotonic() > deadline_s:
                raise ConfigurationError(f"{problem} within {STEP_S_MAX:g} s")
            await asyncio.sleep(LOOK_S)

    async def _all_read(self) -> None:
        before = -1
        while (found := sum(len(read.numbers) for read in self.read.values())) != before:
            before = found
            await asyncio.sleep(1.0)

    # The failover.

    async def replace(self, protocol: str, pending: int) -> Failover:
        """Kill the broker in the middle, publish more than it could get, and give its place to the standby.

        Raises:
            BraidError: a step did not come to its end.
        """
        found = Failover()
        found.entries_before = await self._subscriptions(self._operators[STANDBY])
        around = (PUBLISHER, *self.neighbours)
        found.killed_s = time.monotonic()
        self._processes[GONE].send_signal(signal.SIGKILL)
        await asyncio.gather(*(self._wait_link(name, lambda link: not link["up"]) for name in around))
        found.detected_s = time.monotonic()
        cpu_s = self.cpu_s()
        found.first = len(self.published_s)
        for _ in range(pending):
            number = len(self.published_s)
            self.published_s.append(time.monotonic())
            await self._writer.publish(self._publication(number), ordered=True)
        found.asked_s = time.monotonic()
        await self._take_over(around, protocol)
        await asyncio.gather(
            *(self._wait_link(name, lambda link: link["stage"] == "open") for name in around)
        )
        found.done_s = time.monotonic()
        found.cpu_s = self.cpu_s() - cpu_s
        self._operators.pop(STANDBY)
        found.entries_moved = await self._subscriptions(await self._client(STANDBY, "auditor"))
        return found

    def _publication(self, number: int) -> dict[str, Any]:
        return {"probe": number, "writer": PUBLISHER, **self._attributes(number)}

    @staticmethod
    async def _subscriptions(broker: Client) -> int:
        return int((await broker.ask("statistics"))["routing"]["subscriptions"])

    async def _wait_link(self, name: str, so: Callable[[dict[str, Any]], bool]) -> None:
        """Wait until the link of a broker to the one in the middle is as wanted."""
        deadline_s = time.monotonic() + STEP_S_MAX
        while True:
            overlay = await self._operators[name].ask("overlay")
            if any(link["neighbour"] == GONE and so(link) for link in overlay["links"]):
                return
            if time.monotonic() > deadline_s:
                raise ConfigurationError(f"the link of {name} is not as it should be: {overlay['links']}")
            await asyncio.sleep(WATCH_S)

    async def _take_over(self, around: Sequence[str], protocol: str) -> None:
        """What `braid overlay replicate` does."""
        key, address = secrets.token_hex(32), (await self._operators[STANDBY].ask("standby"))["address"]
        await asyncio.gather(*(self._granted(name, address, key) for name in around))
        await self._operators[STANDBY].ask(
            "take_over",
            name=GONE,
            epoch=1,
            key=key,
            neighbours=json.dumps({name: self._addresses[name] for name in around}),
            resumption=protocol,
        )

    async def _granted(self, name: str, address: str, key: str) -> None:
        deadline_s = time.monotonic() + STEP_S_MAX
        while True:
            try:
                await self._operators[name].ask(
                    "grant", name=GONE, address=address, epoch=1, key=granted_key(key, name)
                )
            except RequestRefusedError as error:
                if error.code not in ("lease", "up") or time.monotonic() > deadline_s:
                    raise
                await asyncio.sleep(LOOK_S)
            else:
                return

    # Traces.

    async def phases(self, found: Failover) -> None:
        """End all brokers, so that their traces are whole, and read the phases and what was handed over.

        Raises:
            ConfigurationError: they are not there.
        """
        offset_s = time.time() - time.monotonic()
        for client in self._clients:
            await client.close()
        running = [each for name, each in self._processes.items() if name != GONE]
        for process in running:
            process.send_signal(signal.SIGTERM)
        deadline_s = time.monotonic() + STOP_S_MAX
        for process in running:
            left_s = max(0.1, deadline_s - time.monotonic())
            with suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(process.wait, left_s)
        asked, answered = [], []
        for name in self._processes:
            if name == GONE:
                continue
            rows = read_table(self._folder / f"trace-{name}", "reconfiguration").to_pylist()
            for row in rows:
                at_s = row["at_us"] / 1e6 - offset_s
                if row["operation"] != REPLICATE:
                    continue
                if row["phase"] == "connection requested":
                    found.requested_s[name] = at_s
                elif row["phase"] == "state requested":
                    asked.append(at_s)
                elif row["phase"] == "state received":
                    answered.append(at_s)
        for name in self.neighbours:
            rows = read_table(self._folder / f"trace-{name}", "delivery", columns=["sequence"])
            found.delivered[name] = [number - 1 for number in rows["sequence"].to_pylist()]
        if not answered or not set(self.neighbours) <= set(found.requested_s):
            raise ConfigurationError("the traces of the brokers lack phases of the replication")
        found.replication_s = max(answered) - min(asked)

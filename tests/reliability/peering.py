"""Do peers behind a gateway get what brokers publish, and brokers what peers publish?

Readers at the peers ask for some of what the writers of a run publish with receipts: kept by brokers until
the gateway has it, and by peers from hop to hop. Peers publish without such receipts. So their publications
all reach a reader at the gateway, and a reader elsewhere in the network as long as no broker dies.
"""

from __future__ import annotations

import asyncio
import random
import resource
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from braid.runtime.connecting import connect
from tests.reliability.copying import PartFound
from tests.reliability.peers import FILES_MAX, Worker
from tests.reliability.plan import price_of

if TYPE_CHECKING:
    from contextlib import AsyncExitStack
    from pathlib import Path

    from braid.language import Publication
    from braid.runtime.client import Client
    from tests.reliability.checker import Checker

__all__ = ["PeersBeside"]

PEERS, PROCESSES = 20, 4
PATIENCE_S = 120.0
PAUSE_S = 0.5
# What a reader at a peer wants of one writer: two in a hundred.
PRICE_LOW = 98
# Publications of peers from so long before a kill until so long after the replacement may be lost.
MARGIN_US = 5_000_000
ARRIVED_S_MAX = 90.0


class PeersBeside:
    """Twenty peers in four processes, and their clients.

    Args:
        directory: for traces.
        gateway: the address of the broker that is a peer, too.
        elsewhere: that of another broker that is not killed.
        writers: whose publications the readers at peers want.
        seed: of what peers do.
    """

    SETTINGS = "\n[peers]\nenabled = true\n"

    def __init__(self, directory: Path, gateway: str, elsewhere: str, writers: list[str], seed: int) -> None:
        self.disturbed: list[tuple[int, int]] = []
        """From the kill of a broker until it was replaced, in microseconds since 1970."""
        self.addresses: list[str] = []
        self._gateway, self._elsewhere, self._writers = gateway, elsewhere, writers
        self._chance = random.Random(f"{seed}/peers beside")
        self._directory = directory
        self._workers: list[Worker] = []
        self._clients: list[Client] = []
        self._wanted: list[str] = []
        """By reader: the writer that it listens to."""
        self._got: list[Counter[tuple[str, int]]] = []
        self._from_peers = {"gateway": Counter[int](), "elsewhere": Counter[int]()}
        self._published_us: list[int] = []
        self._since_ns = 0

    async def begin(self, stack: AsyncExitStack) -> None:
        """Start the peers, and have everybody subscribe."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(FILES_MAX, hard)), hard))
        self._workers = [Worker(self._directory / f"peers-{number}", {}) for number in range(PROCESSES)]
        for number in range(PEERS):
            bootstrap = [self._gateway, *self._chance.sample(self.addresses, min(1, number))]
            self.addresses.append(await self._workers[number % PROCESSES].add(f"P{number:02d}", bootstrap))
        for number, address in enumerate(self.addresses):
            client = await self._connect(stack, address, f"peer{number}")
            writer = self._writers[number % len(self._writers)]
            got: Counter[tuple[str, int]] = Counter()
            await client.subscribe(
                f"writer = '{writer}' AND price >= {PRICE_LOW}", partial(_count_ids, got), queue_size=100_000
            )
            self._clients.append(client)
            self._wanted.append(writer)
            self._got.append(got)
        for where, address in (("gateway", self._gateway), ("elsewhere", self._elsewhere)):
            client = await self._connect(stack, address, f"from peers at {where}")
            await client.subscribe("kind = 'peer'", partial(_count_numbers, self._from_peers[where]))

    async def _connect(self, stack: AsyncExitStack, address: str, name: str) -> Client:
        return await stack.enter_async_context(
            connect(
                address,
                name=name,
                timeout_s=PATIENCE_S,
                reconnect_for_s=PATIENCE_S,
                request_timeout_s=PATIENCE_S,
            )
        )

    async def publish(self, end_s: float) -> None:
        """Publish at peers until then. What brokers publish counts from the beginning of it."""
        self._since_ns = time.monotonic_ns()
        while time.monotonic() < end_s:
            client = self._chance.choice(self._clients)
            self._published_us.append(time.time_ns() // 1000)
            await client.publish({"kind": "peer", "number": len(self._published_us) - 1})
            await asyncio.sleep(PAUSE_S)

    async def finish(self, checker: Checker) -> PartFound:
        """Wait until everything has arrived, and count."""
        deadline_s = time.monotonic() + ARRIVED_S_MAX
        while self._missing(checker) and time.monotonic() < deadline_s:
            checker.read()
            await asyncio.sleep(0.5)
        return self.judge(checker)

    def judge(self, checker: Checker) -> PartFound:
        """Hold what everybody has against what was published."""
        found = PartFound(
            {
                "deliveries at peers": sum(sum(got.values()) for got in self._got),
                "published by peers": len(self._published_us),
            }
        )
        missing = self._missing(checker)
        for place, lost in missing.items():
            found.mistakes.append(("lost", f"{place} lacks {len(lost)}, such as {lost[0]}", len(lost)))
        counted: list[tuple[str, Counter[Any]]] = [
            *((f"the reader at P{number:02d}", got) for number, got in enumerate(self._got)),
            *((f"the reader of peers at {where}", got) for where, got in self._from_peers.items()),
        ]
        for place, got in counted:
            if doubled := sum(got.values()) - len(got):
                found.mistakes.append(("doubled", f"{place} has {doubled} publications twice", doubled))
        for number, (writer, got) in enumerate(zip(self._wanted, self._got, strict=True)):
            if wrong := [
                each for each in got if not each[0].startswith(f"{writer}.") or price_of(*each) < PRICE_LOW
            ]:
                sentence = f"P{number:02d} was given {wrong[0]}, which nobody there wants"
                found.mistakes.append(("wrong", sentence, len(wrong)))
        return found

    def _missing(self, checker: Checker) -> dict[str, list[Any]]:
        """What should have arrived and has not, by reader."""
        missing: dict[str, list[Any]] = {}
        for number, (writer, got) in enumerate(zip(self._wanted, self._got, strict=True)):
            written = checker.writers[writer]
            lost = [
                (publisher, sequence)
                for publisher, last in written.settled.items()
                for sequence in range(1, last + 1)
                if price_of(publisher, sequence) >= PRICE_LOW
                and (publisher, sequence) not in got
                and written.published_at(publisher, sequence) >= self._since_ns
            ]
            if lost:
                missing[f"the reader at P{number:02d}"] = lost
        for where, got_numbers in self._from_peers.items():
            numbers = [
                number
                for number, at_us in enumerate(self._published_us)
                if number not in got_numbers and (where == "gateway" or self._quiet(at_us))
            ]
            if numbers:
                missing[f"the reader of peers at {where}"] = numbers
        return missing

    def _quiet(self, at_us: int) -> bool:
        """Whether all brokers were there."""
        return not any(begin - MARGIN_US <= at_us <= end + MARGIN_US for begin, end in self.disturbed)

    async def end(self) -> None:
        """Let all peers say goodbye."""
        await asyncio.gather(*(asyncio.to_thread(worker.end) for worker in self._workers))


def _count_ids(got: Counter[tuple[str, int]], publication: Publication) -> None:
    got[str(publication.publisher).partition("#")[0], int(publication.sequence or 0)] += 1


def _count_numbers(got: Counter[int], publication: Publication) -> None:
    number = publication.attributes["number"]
    assert isinstance(number, int)
    got[number] += 1

"""What do the clients of a reliability run do, in a process that may be killed at any moment?

`python -m tests.reliability.worker SPECIFICATION` runs a few clients on one event loop until standard input
ends; each line of it is one more client that comes at once. At the end publishers wait for all their
receipts, and subscribers leave.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import threading
import time
from collections import deque
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from braid.client.stored import StoredPublication
from braid.errors import BraidError
from braid.runtime.connecting import connect
from tests.reliability.journal import Journal
from tests.reliability.plan import body_bytes, id_of, price_of

if TYPE_CHECKING:
    from braid.language import Publication
    from braid.runtime.client import Client
    from braid.runtime.client_receipts import Receipt
    from braid.runtime.client_subscription import DurableSubscription

__all__ = ["ClientTask", "Specification"]

# Connections, requests and receipts may take as long as the brokers around them are down.
PATIENCE_S = 180.0
# Bursts without a receipt. More would only wait longer while a broker is down.
BURSTS_WAITING_MAX = 60
BURST_MAX = 40
ROWS_AT_ONCE_MAX = 500
# How often a subscriber makes sure that its acknowledgements are stored.
CONFIRM_S = 1.0


@dataclass(frozen=True, slots=True)
class ClientTask:
    """One client."""

    name: str
    url: str
    filter: str
    """What a subscriber wants, or what a publisher says first that it will publish (empty: nothing)."""
    ordered: bool = False
    """Whether a publisher asks for order."""
    fast: bool = False
    """Whether it does without acknowledgements."""
    ids: tuple[int, ...] = ()
    """What a watcher wants: each with a subscription of its own."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class Specification:
    """One process."""

    publishes: bool
    life: int
    """1 for the first process with these clients."""
    seed: int
    directory: str
    rate: float
    """Publications per second and publisher."""
    clients: tuple[ClientTask, ...]
    body_bytes_max: int = 0
    """Publications have bodies up to this size."""
    filters: int = 0
    """Publications are about one of so many things; 0: they do not say."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Specification:
        values = json.loads(text)
        values["clients"] = tuple(ClientTask(**each) for each in values["clients"])
        return cls(**values)


async def run(specification: Specification) -> None:
    """Run all clients until standard input ends."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    tasks = {loop.create_task(_reported(specification, each, stop)) for each in specification.clients}

    def come(line: str) -> None:
        task = ClientTask(**json.loads(line))
        tasks.add(loop.create_task(_reported(specification, task, stop)))

    def watch() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(come, line)
        loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=watch, daemon=True).start()
    await stop.wait()
    await asyncio.gather(*tasks)


async def _reported(specification: Specification, task: ClientTask, stop: asyncio.Event) -> None:
    journal = Journal(Path(specification.directory), task.name)
    journal.write(f"life {specification.life}")
    role = _publish if specification.publishes else _watch if task.ids else _subscribe
    try:
        await role(specification, task, stop, journal)
    except* (BraidError, TimeoutError) as group:
        for error in group.exceptions:
            journal.write(f"trouble {type(error).__name__}: {error}".replace("\n", " "))
    finally:
        journal.close()


async def _publish(
    specification: Specification, task: ClientTask, stop: asyncio.Event, journal: Journal
) -> None:
    publisher = f"{task.name}.{specification.life}"
    chance = random.Random(f"{specification.seed}/{publisher}")
    async with connect(
        task.url,
        name=task.name,
        publisher=publisher,
        timeout_s=PATIENCE_S,
        reconnect_for_s=PATIENCE_S,
        request_timeout_s=PATIENCE_S,
    ) as client:
        if task.filter:
            await client.advertise(task.filter)
        journal.write(f"ready {time.monotonic_ns()}")
        waiting: deque[Receipt] = deque()
        sequence = 0
        while not stop.is_set():
            burst = chance.randrange(1, BURST_MAX)
            journal.write(f"published {publisher} {sequence + burst} {time.monotonic_ns()}")
            for _ in range(burst):
                sequence += 1
                attributes: dict[str, str | int] = {
                    "writer": task.name,
                    "price": price_of(publisher, sequence),
                }
                if specification.filters:
                    attributes["id"] = id_of(publisher, sequence, specification.filters)
                size = body_bytes(publisher, sequence, specification.body_bytes_max)
                receipt = await client.publish(
                    attributes,
                    body=bytes(size),
                    delivery="fast" if task.fast else "acknowledged",
                    ordered=task.ordered,
                )
            waiting.append(receipt)
            await asyncio.sleep(chance.uniform(0, 2) * burst / specification.rate)
            await _settle(waiting, BURSTS_WAITING_MAX, journal)
        await _settle(waiting, 0, journal)
        refused, reason = client.refusals
        if refused:
            journal.write(f"trouble {refused} publications were refused: {reason}")
        journal.write(f"flushed {publisher}")


async def _settle(waiting: deque[Receipt], waiting_max: int, journal: Journal) -> None:
    """Take the receipts that are there, and wait for more while too many are missing."""
    settled: Receipt | None = None
    while waiting and (waiting[0].done or len(waiting) > waiting_max):
        settled = waiting.popleft()
        async with asyncio.timeout(PATIENCE_S):
            await settled
    if settled is not None:
        journal.write(f"settled {settled.publisher} {settled.sequence} {time.monotonic_ns()}")


async def _subscribe(
    specification: Specification, task: ClientTask, stop: asyncio.Event, journal: Journal
) -> None:
    chance = random.Random(f"{specification.seed}/{task.name}/{specification.life}")
    async with connect(
        task.url,
        name=task.name,
        timeout_s=PATIENCE_S,
        reconnect_for_s=PATIENCE_S,
        request_timeout_s=PATIENCE_S,
    ) as client:
        subscription = await client.subscribe(task.filter, durable=task.name, takeover=True)
        journal.write(f"ready {time.monotonic_ns()}")
        reading = asyncio.ensure_future(
            _read(client, subscription, chance, journal, specification.body_bytes_max)
        )
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait([reading, stopping], return_when=asyncio.FIRST_COMPLETED)
        for each in (reading, stopping):
            each.cancel()
        await asyncio.wait([reading, stopping])
        if not reading.cancelled():
            reading.result()


async def _watch(
    specification: Specification, task: ClientTask, stop: asyncio.Event, journal: Journal
) -> None:
    """Have a plain subscription for each thing, and write down what comes."""
    async with connect(
        task.url,
        name=task.name,
        timeout_s=PATIENCE_S,
        reconnect_for_s=PATIENCE_S,
        request_timeout_s=PATIENCE_S,
    ) as client:

        def seen(id: int, publication: Publication) -> None:
            where = f"{publication.publisher} {publication.sequence}"
            journal.write(f"seen {id} {where} {time.monotonic_ns()}")

        wishes = (client.subscribe(f"{task.filter} AND id = {id}", partial(seen, id)) for id in task.ids)
        await asyncio.gather(*wishes)
        journal.write(f"ready {time.monotonic_ns()}")
        await stop.wait()


async def _read(
    client: Client,
    subscription: DurableSubscription,
    chance: random.Random,
    journal: Journal,
    body_bytes_max: int,
) -> None:
    """Write down what comes, and acknowledge most of it at once and the rest a little later."""
    async with asyncio.TaskGroup() as group:
        await _read_on(client, subscription, chance, journal, group, body_bytes_max)


async def _read_on(
    client: Client,
    subscription: DurableSubscription,
    chance: random.Random,
    journal: Journal,
    group: asyncio.TaskGroup,
    body_bytes_max: int,
) -> None:
    confirming: asyncio.Task[None] | None = None
    confirm_at = time.monotonic() + CONFIRM_S
    last: StoredPublication | None = None
    acknowledged, resets = -1, 0
    while True:
        try:
            rows = await subscription.get_many(ROWS_AT_ONCE_MAX, timeout_s=0.2)
        except TimeoutError:
            rows = []
        stored = [row for row in rows if isinstance(row, StoredPublication)]
        for row in stored:
            if row.log_resets != resets:
                journal.write("reset")
                resets, acknowledged = row.log_resets, -1
            journal.write(f"row {row.offset} {row.publisher} {row.sequence} {row.attributes['price']}")
            if len(row.body or b"") != body_bytes(row.publisher, row.sequence, body_bytes_max):
                journal.write(f"trouble {row.publisher}/{row.sequence} has a body of {len(row.body or b'')}")
            last = row
        if last is not None and last.offset > acknowledged and (not rows or chance.random() < 0.7):
            await subscription.acknowledge(last)
            acknowledged = last.offset
        free = confirming is None or confirming.done()
        if free and time.monotonic() >= confirm_at:
            confirm_at = time.monotonic() + CONFIRM_S
            confirming = group.create_task(_confirm(client, subscription, acknowledged, journal))


async def _confirm(client: Client, subscription: DurableSubscription, offset: int, journal: Journal) -> None:
    """Learn that what was acknowledged before is stored.

    A broker answers whoever asks for a durable subscription once all that was to be stored before is safe.
    """
    began_ns = time.monotonic_ns()
    barrier = await client.subscribe("writer = 'nobody'", durable=f"{subscription.durable}.barrier")
    await barrier.close()
    journal.write(f"confirmed {offset} {began_ns}")


def main() -> None:
    """Run the process that the only argument describes."""
    asyncio.run(run(Specification.from_json(sys.argv[1])))


if __name__ == "__main__":
    main()

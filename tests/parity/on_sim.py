"""The scenario's steps in a simulated world."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any

from braid.language import Filter
from braid.protocol import decode_record
from braid.protocol.messages import (
    Acknowledge,
    Done,
    StopReading,
    StoredPublications,
    SubscribeDurable,
)
from braid.sim import Station, World
from tests.sim.brokers import add_tree

if TYPE_CHECKING:
    from braid.protocol import PublicationBatch
    from braid.protocol.messages import Message
    from tests.parity.scenario import Heard

__all__ = ["SimDriver"]

# More than any acknowledgement waits for.
STEP_S = 0.2


class SimDriver:
    """Drives cores in virtual time, with latency and through the codec."""

    def __init__(self) -> None:
        self._world = World(1, codec=True)
        self._filters: dict[tuple[str, str], Filter] = {}
        self._heard: Heard = defaultdict(lambda: defaultdict(list))
        self._answered: set[int] = set()

    async def start(self, links: dict[str, str | None], clients: dict[str, str]) -> None:
        add_tree(self._world, links, store=True)
        for name, broker in clients.items():
            self._world.attach(Station(name, broker, on_delivery=self._delivered, on_message=self._message))
        self._settle()

    def _delivered(self, station: Station, batch: PublicationBatch) -> None:
        for publication in batch.publications():
            for (owner, key), filter in self._filters.items():
                if owner == station.name and filter.matches(publication.attributes):
                    self._heard[(owner, key)][publication.publisher].append(publication.sequence)

    def _message(self, station: Station, message: Message) -> None:
        if isinstance(message, StoredPublications):
            for publisher, sequence, record in message.rows:
                decode_record(record, publisher, sequence)
                self._heard[(station.name, message.name)][publisher].append(sequence)
        elif isinstance(message, Done):
            self._answered.add(message.request)

    def _settle(self) -> None:
        self._world.run_for(seconds=STEP_S)

    async def subscribe(self, client: str, key: str, text: str) -> None:
        self._filters[(client, key)] = Filter(text)
        self._world.station(client).subscribe(key, text)
        self._require_done(client)

    async def unsubscribe(self, client: str, key: str) -> None:
        self._world.station(client).unsubscribe(key)
        self._require_done(client)
        del self._filters[(client, key)]

    async def advertise(self, client: str, key: str, text: str) -> None:
        self._world.station(client).advertise(key, text)
        self._require_done(client)

    async def unadvertise(self, client: str, key: str) -> None:
        self._world.station(client).unadvertise(key)
        self._require_done(client)

    def _require_done(self, client: str) -> None:
        self._settle()
        station = self._world.station(client)
        assert not station.asking
        assert not station.refused

    async def read_durable(self, client: str, key: str, text: str) -> None:
        station = self._world.station(client)
        request = station.next_request()
        station.say(SubscribeDurable(request, key, text))
        self._settle()
        assert request in self._answered

    async def leave_durable(self, client: str, key: str, count: int) -> None:
        station = self._world.station(client)
        station.say(Acknowledge(key, count - 1))
        station.say(StopReading(key))
        self._settle()

    async def publish(self, client: str, rows: list[dict[str, Any]], acknowledged: bool) -> None:
        station = self._world.station(client)
        for row in rows[:-1]:
            # In time, one after the other, as the stations of a simulation publish.
            self._world.at(self._world.now_us, partial(station.publish, row, acknowledged=acknowledged))
        self._world.at(self._world.now_us, partial(station.publish, rows[-1], acknowledged=True))
        self._settle()
        assert station.channel.idle

    async def heard(self, counts: dict[tuple[str, str], int]) -> Heard:
        self._settle()
        self._world.checkers.require()
        return self._heard

    async def close(self) -> None:
        """There is nothing to end."""

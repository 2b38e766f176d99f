"""What happens when one of a client's subscriptions falls behind the others?

Subscriptions of a client that choose the same share one copy of each publication, and one window of credit.
When one of them is not read, the client asks for copies of its own for it: a *stream* with a small window and
a small queue. Then the others go on, and only those who publish for the unread one are held up.

What waits for the shared class at that moment is there for all of them, so the one that leaves gets its rows
of it as the beginning of its stream. What was sent before is its as well: the client tells the frames before
the answer from those behind it. So nothing is lost, doubled or reordered by leaving.

A stream that holds others up for too long without moving is given up, as a client that reads nothing at all
would be: its subscriptions are taken back, and the client makes them again when they have been read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from braid.broker.parties import ClientDestination
from braid.errors import RequestRefusedError
from braid.matching import FilterIndex
from braid.protocol.incoming import STREAM_FIRST, STREAMS_MAX
from braid.protocol.messages import Done, Failed

if TYPE_CHECKING:
    from braid.broker.parties import Client
    from braid.broker.settling import Pending
    from braid.broker.subscriptions import Subscriptions
    from braid.broker.turn import Turn
    from braid.language import Filter
    from braid.protocol import PublicationBatch
    from braid.protocol.messages import Separate, Unsubscribe
    from braid.routing import RoutingTables

__all__ = ["Streams"]

# A stream begins only while no more than so many times what may wait for one class waits for the others.
COPIES_MAX = 3


class Streams:
    """Gives subscriptions that are behind a class of their own."""

    def __init__(self, turn: Turn, subscriptions: Subscriptions, tables: RoutingTables) -> None:
        self._turn = turn
        self._subscriptions = subscriptions
        self._tables = tables

    def separate(self, client: Client, message: Separate) -> None:
        """A client wants copies of its own for one of its subscriptions."""
        key = client.subscriptions.get(message.key, "")
        filter, former = self._tables.local(key) or (None, None)
        try:
            if filter is None or not isinstance(former, ClientDestination):
                raise RequestRefusedError(f"no subscription {message.key!r} on this connection", "unknown")
            if not STREAM_FIRST <= message.stream < STREAM_FIRST + STREAMS_MAX:
                raise RequestRefusedError(f"there is no stream {message.stream}")
            if former.is_stream:
                raise RequestRefusedError(f"the subscription {message.key!r} is in a stream already")
            taken = client.destinations.get(message.stream)
            if taken is not None and taken.separated:
                raise RequestRefusedError(f"the stream {message.stream} has a subscription already")
            self._require_room(client, former)
        except RequestRefusedError as error:
            self._turn.fail(client, message.request, error)
            return
        stream = client.destinations.get(message.stream)
        if stream is None:
            stream = client.destinations[message.stream] = ClientDestination(client, message.stream)
        stream.separated[message.key] = message.request
        self._subscriptions.retarget(key, filter, stream)
        if client.channel.waiting_bytes_of(former.number):
            client.channel.copy_waiting(former.number, _Rows(filter, stream.number).chosen, _both)
        self._turn.tell(client, Done(message.request))

    def _require_room(self, client: Client, former: ClientDestination) -> None:
        """What waits is copied, and a client must not multiply it at will."""
        channel = client.channel
        copies_bytes = channel.waiting_bytes - channel.waiting_bytes_of(former.number)
        if copies_bytes > COPIES_MAX * self._turn.settings.client_queue_bytes_max:
            raise RequestRefusedError("too much waits for this client to be copied", "limit")

    def unsubscribe(self, client: Client, message: Unsubscribe) -> None:
        """A client unsubscribes, perhaps from what has a stream."""
        for destination in client.destinations.values():
            if destination.separated.pop(message.key, None) is not None:
                self._clear(destination)
        self._subscriptions.unsubscribe_client(client, message)

    def _clear(self, stream: ClientDestination) -> int:
        """Drop what waits for nobody any more; returns how many rows that were."""
        rows, cares = stream.client.channel.drop_waiting(stream.number)
        self._turn.let_go_class(stream)
        for care in cares:
            self._turn.settlement.settle(care)
        return rows

    def give_up(self, stream: ClientDestination) -> None:
        """Take back subscriptions that have held up others for too long and are not read."""
        client = stream.client
        separated, stream.separated = stream.separated, {}
        rows = self._clear(stream)
        self._turn.counters.dropped += rows
        reason = f"it held up others and was not read; {rows:,} publications were dropped"
        for name, request in separated.items():
            key = client.subscriptions.pop(name, None)
            if key is not None:
                self._turn.quotas.subscribed(client.principal, -1)
                self._subscriptions.withdraw(key)
                self._turn.tell(client, Failed(request, "slow", reason))
        self._turn.note(
            "warning", "a subscription that is not read was given up", client=client.name, dropped=rows
        )


class _Rows:
    """What one subscription wants of batches that were for several."""

    def __init__(self, filter: Filter, stream: int) -> None:
        self._index: FilterIndex[int] = FilterIndex([(stream, filter)])
        self._stream = stream

    def chosen(self, batch: PublicationBatch) -> PublicationBatch | None:
        """Its rows, for its stream."""
        wanted = np.flatnonzero(self._index.count_batch(batch.attributes()))
        if not len(wanted):
            return None
        rows = batch.select(wanted) if len(wanted) < len(batch) else batch
        return rows.readdressed(target=self._stream)


def _both(care: Pending) -> tuple[Pending, Pending]:
    """Two shares of what one waited for."""
    return care, care.share()

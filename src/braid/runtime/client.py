"""The asyncio client: how a program takes part in the network.

    async with braid.connect("braid://127.0.0.1:7000") as client:
        quotes = await client.subscribe("symbol = 'ACME' AND price > 10")
        await client.publish({"symbol": "ACME", "price": 12.5})
        print((await quotes.get())["price"])

A client keeps its place when the connection breaks: publications wait and are sent again, subscriptions are
made again. Only when no broker can be reached for `reconnect_for_s` seconds does everything fail with a
`ConnectionLostError`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeVar, overload

from braid.client.outbox import BATCH_BYTES
from braid.embedded.arguments import (
    QUEUE_SIZE,
    checked_choice,
    checked_filter,
    checked_handler,
    checked_timeout,
    require_size,
    require_text,
)
from braid.embedded.farewell import CLOSE_TIMEOUT_S
from braid.errors import (
    BraidError,
    BusClosedError,
    ConfigurationError,
)
from braid.runtime.client_arguments import (
    manner_of,
    microseconds,
    publication_record,
    publication_records,
    refused_by_peers,
    report_of,
    waiting_for_links,
)
from braid.runtime.client_engine import ClientEngine
from braid.runtime.client_logs import durable_status, replay_wish
from braid.runtime.client_receipts import Receipt
from braid.runtime.client_secrets import DurableSecrets
from braid.runtime.client_subscription import (
    Advertisement,
    DurableSubscription,
    RecordReplay,
    Replay,
    Subscription,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from braid.client.effects import ClientSettings
    from braid.client.inbox import Interest
    from braid.client.stored import StoredPublication
    from braid.embedded import WhenFull
    from braid.language import Filter, Publication
    from braid.runtime.client_events import ConnectionHandler, ErrorHandler
    from braid.runtime.client_logs import DurableStatus
    from braid.runtime.tls import Address

__all__ = ["PIN_LIFETIME_S", "RECORDS_QUEUE_SIZE", "Client"]

# How long a pin holds unless it is moved.
PIN_LIFETIME_S = 7 * 24 * 3600.0
# Pieces of a replay that may wait for their reader, each as large as a broker's window.
RECORDS_QUEUE_SIZE = 4
# What a client of peers is told to do without.
NO_LOG = "there are no logs"

_log = logging.getLogger("braid.client")

AnySubscription = TypeVar("AnySubscription", Subscription, DurableSubscription)


class Client:
    """A connection to the network; made by `connect`. Belongs to one event loop."""

    def __init__(
        self,
        settings: ClientSettings,
        addresses: Mapping[str, tuple[Address, ssl.SSLContext | None]],
        request_timeout_s: float,
        on_error: ErrorHandler | None,
        on_connection: ConnectionHandler | None,
        *,
        peers: bool = False,
    ) -> None:
        """The arguments are those of `connect`; `peers`: whether it connects to peers, which offer less."""
        self.peers = peers
        """Whether this is a client of peers, which offer neither durable subscriptions nor replays,
        acknowledged delivery or an order of deliveries."""
        self._engine = ClientEngine(settings, addresses, request_timeout_s, on_error, on_connection)
        self._secrets = DurableSecrets()

    # What a program may know.

    @property
    def connected(self) -> bool:
        """Whether a broker listens at this moment."""
        return self._engine.session.live

    @property
    def closed(self) -> bool:
        """True once nothing can be published any more."""
        return self._engine.closing or self._engine.failure is not None

    @property
    def broker(self) -> str:
        """The name of the broker, or of the last one."""
        return self._engine.session.broker

    @property
    def name(self) -> str:
        """What the broker calls this client."""
        return self._engine.settings.name

    @property
    def publisher(self) -> str:
        """The name in the ids of what this client publishes."""
        return self._engine.receipts.publisher

    @property
    def epoch(self) -> str:
        """The epoch in the ids of what this client publishes."""
        return self._engine.receipts.epoch

    @property
    def secret(self) -> str:
        """What an anonymous client needs, with its name and epoch, to be taken for the same publisher."""
        return self._engine.settings.secret

    @property
    def overtaken(self) -> tuple[int, int]:
        """How many of `discards` are only too old to be told from repetitions, and the highest number known.

        A broker does not know whether it had a publication whose number is tens of thousands below the
        highest of its publisher, and takes it for one that it had.
        """
        return self._engine.receipts.overtaken

    @property
    def discards(self) -> int:
        """How many publications the broker took for repetitions; their receipts say so."""
        return self._engine.receipts.discards

    @property
    def refusals(self) -> tuple[int, BraidError | None]:
        """How many publications the broker did not take, and why it did not take the last of them."""
        return self._engine.receipts.refusals

    @property
    def first_sequence(self) -> int:
        """The number of its first publication."""
        return self._engine.settings.first_sequence

    def __repr__(self) -> str:
        state = "closed" if self.closed else "connected" if self.connected else "not connected"
        return f"<Client {self.name!r} {state}>"

    # Publishing.

    async def publish(
        self,
        attributes: Mapping[str, Any] | Publication,
        body: bytes = b"",
        content_type: str = "",
        *,
        timeout_s: float | None = None,
        delivery: str = "fast",
        ordered: bool = False,
    ) -> Receipt:
        """Send a publication on its way; publications of a client never overtake each other on their way out.

        It leaves at the end of this turn of the event loop. This waits only while too much is on its way
        already. Awaiting the receipt waits for the arrival.

        Args:
            attributes: what filters see; a flat mapping of names to numbers, strings, booleans, ranges.
                Or a `Publication`, for its attributes, body and content type.
            body: bytes that are carried and never looked at.
            content_type: what the body is, for those who read it.
            timeout_s: how long to wait for room; None: as long as it takes.
            delivery: `fast`, or `acknowledged`: kept by every broker until everybody downstream has it.
            ordered: arrives in the order of publishing with everybody; others may take faster ways.

        Raises:
            PublicationError: attributes or a body that cannot be published; names the attribute.
            PublishTimeoutError: there was no room in time, and nothing was published.
            BusClosedError, ConnectionLostError: nothing more can be published.
        """
        limit_s = checked_timeout(timeout_s)
        manner = manner_of(delivery, ordered, peers=self.peers)
        record = publication_record(attributes, body, content_type)
        if not self._engine.has_room:
            await self._engine.wait_room_for(limit_s)
        sequence = self._engine.session.publish(record, manner)
        await self._flush_soon()
        return Receipt(self._engine.receipts, sequence, delivery == "acknowledged")

    async def publish_batch(
        self,
        batch: Iterable[Mapping[str, Any] | Publication],
        *,
        timeout_s: float | None = None,
        delivery: str = "fast",
        ordered: bool = False,
    ) -> Receipt:
        """Send many publications on their way in their order; the receipt speaks of all of them.

        Each is a mapping of attributes, or a `Publication` for its attributes and body. They are all
        checked first: when one cannot be published, none is. Otherwise as `publish`.
        """
        limit_s = checked_timeout(timeout_s)
        manner = manner_of(delivery, ordered, peers=self.peers)
        records = publication_records(batch)
        if not self._engine.has_room:
            await self._engine.wait_room_for(limit_s)
        for record in records:
            self._engine.session.check_size(record)
        outbox = self._engine.session.outbox
        first = outbox.last_sequence + 1
        for record in records:
            outbox.add(record, manner)
        await self._flush_soon()
        return Receipt(self._engine.receipts, first, delivery == "acknowledged", len(records))

    async def _flush_soon(self) -> None:
        self._engine.driver.flush_soon()
        if self._engine.session.outbox.pending_bytes >= BATCH_BYTES:
            # A publisher that never waits for anything else would keep the loop from reading.
            await asyncio.sleep(0)

    async def flush(self, timeout_s: float | None = None) -> None:
        """Return when everything published so far has arrived, and is settled where that was asked for.

        What the broker refused counts as dealt with; its receipts say so.

        Raises:
            TimeoutError: that took longer than `timeout_s`.
        """
        self._engine.check_closed()
        async with asyncio.timeout(checked_timeout(timeout_s)):
            await self._engine.wait_arrived()

    # Subscribing.

    @overload
    async def subscribe(
        self,
        filter: Filter | str,
        callback: Callable[[Publication], object] | None = None,
        *,
        name: str | None = None,
        when_full: WhenFull | str | None = None,
        queue_size: int = QUEUE_SIZE,
        on_error: ErrorHandler | None = None,
        durable: None = None,
        partial: bool = False,
    ) -> Subscription: ...

    @overload
    async def subscribe(
        self,
        filter: Filter | str | None,
        callback: Callable[[StoredPublication], object] | None = None,
        *,
        name: str | None = None,
        when_full: WhenFull | str | None = None,
        queue_size: int = QUEUE_SIZE,
        on_error: ErrorHandler | None = None,
        durable: str,
        takeover: bool = False,
        secret: str | None = None,
        copies: int = 0,
        partial: bool = False,
    ) -> DurableSubscription: ...

    async def subscribe(
        self,
        filter: Filter | str | None,
        callback: Callable[[Any], object] | None = None,
        *,
        name: str | None = None,
        when_full: WhenFull | str | None = None,
        queue_size: int = QUEUE_SIZE,
        on_error: ErrorHandler | None = None,
        durable: str | None = None,
        takeover: bool = False,
        secret: str | None = None,
        copies: int = 0,
        partial: bool = False,
    ) -> Subscription | DurableSubscription:
        """Receive what satisfies `filter`, beginning with what is published anywhere after this returns.

        Args:
            filter: what to receive; None goes on with the filter that a durable subscription has.
            callback: is called with each publication, one at a time; may be a coroutine function. Without
                one, read from the subscription that is returned.
            name: what messages and statistics call it.
            when_full: what happens when `queue_size` publications wait here: `block` (the default) holds up
                publishers, `drop_oldest` loses the oldest, `disconnect` ends the subscription. For a durable
                one it is about the log, and `drop_oldest` is the default.
            queue_size: publications that may wait for the subscriber.
            on_error: instead of the client's own handler.
            durable: the name of a log at the broker that collects publications also while it is not read.
            takeover: take the log over from another client that reads it. Without this, this one is refused.
            secret: opens the log, where this client is anonymous; made from a key of this user if left out.
            copies: with 1 a neighbour of the broker keeps the rows, too, so that the log outlives its disk.
            partial: do not wait for links that are down; `subscription.missing` names what is not covered.

        Raises:
            UnreachedError: links were down for too long; it names them.
            FilterSyntaxError: the filter cannot be read.
            AccessDeniedError, RequestRefusedError: the broker did not agree; the code `taken` means that
                another client reads this log.
        """
        self._engine.check()
        wanted = None
        if durable is None or filter is not None:
            wanted = checked_filter(filter)  # type: ignore[arg-type] # which says what is wrong with None
        require_size("queue_size", queue_size)
        if name is not None:
            require_text("the name of a subscription", name)
        if callback is not None and not callable(callback):
            raise ConfigurationError(f"a callback must be callable, not {type(callback).__name__}")
        handler = checked_handler(on_error) or self._engine.on_error
        waiting = waiting_for_links(partial, self._engine.request_timeout_s)
        requests = self._engine.session.requests
        if durable is None and wanted is not None:
            if takeover or copies or secret is not None:
                raise ConfigurationError(
                    "takeover, secret and copies are about a log; subscribe with durable=NAME"
                )
            choice = checked_choice(when_full or "block").value
            interest = requests.subscribe(wanted, choice, queue_size, **waiting)
            plain = Subscription(self._engine, interest, name, handler)
            return await self._installed(plain, interest, callback)
        self._require_brokers("durable subscriptions", "subscribe without durable")
        if not isinstance(durable, str) or not durable:
            raise ConfigurationError(f"a durable subscription needs a name, not {durable!r}")
        if self._engine.session.inbox.durable(durable) is not None:
            raise ConfigurationError(f"this client already reads the durable subscription {durable!r}")
        choice = checked_choice(when_full or "drop_oldest").value
        opens = self._secrets.of(durable, secret)
        interest = requests.subscribe_durable(
            durable, wanted, choice, queue_size, opens, takeover=bool(takeover), copies=copies, **waiting
        )
        durably = DurableSubscription(self._engine, interest, name, handler)
        return await self._installed(durably, interest, callback)

    def _require_brokers(self, what: str, instead: str) -> None:
        if self.peers:
            raise refused_by_peers(what, instead)

    async def _installed(
        self, subscription: AnySubscription, interest: Interest, callback: Callable[[Any], object] | None
    ) -> AnySubscription:
        """Wait until the broker has answered."""
        self._engine.readers[interest.number] = subscription
        try:
            await self._engine.answer(interest.request)
        except BaseException:
            self._engine.abandon(interest)
            raise
        if callback is not None:
            subscription._start(callback)
        return subscription

    def replay(
        self,
        name: str,
        first: int = 0,
        last: int | None = None,
        *,
        queue_size: int = QUEUE_SIZE,
        secret: str | None = None,
        filter: Filter | str | None = None,
        columns: Sequence[str] | None = None,
        complete: bool = False,
        log: str | None = None,
    ) -> Replay:
        """The publications of a durable subscription from offset `first` to `last` (included; None: the end).

        Read it with `async for`; it ends after the last one, and its `range` then says which offsets that
        were.

        Args:
            name: of the log; `OWNER/NAME` for another owner's that was granted to this client.
            first: the first offset.
            last: the last one, included; None for the end of what is safely stored.
            queue_size: publications that may wait here.
            secret: as in `subscribe`.
            filter: only publications that also satisfy this. The others do not leave the broker.
            columns: only these attributes, and no body.
            complete: whether an offset that is not there any more, or not safely stored yet, is a
                `RequestRefusedError` (codes `trimmed` and `unsafe`) instead of being passed over.
            log: the id of the log that is meant; with another one under this name the code is `reset`.
        """
        self._engine.check()
        self._require_brokers("replays", NO_LOG)
        require_size("queue_size", queue_size)
        wish = replay_wish(first, last, filter, columns, log, complete=complete)
        opens = self._secrets.of(name, secret)
        interest = self._engine.session.requests.replay(name, wish, queue_size, opens)
        replay = Replay(self._engine, interest)
        self._engine.readers[interest.number] = replay
        self._engine.driver.act()
        return replay

    def replay_records(
        self,
        name: str,
        first: int = 0,
        last: int | None = None,
        *,
        queue_size: int = RECORDS_QUEUE_SIZE,
        secret: str | None = None,
        filter: Filter | str | None = None,
        columns: Sequence[str] | None = None,
        log: str | None = None,
        epoch: str = "",
    ) -> RecordReplay:
        """A complete replay as `StoredRecords`, many rows at a time, for those who decode them themselves.

        `queue_size` counts those; `epoch` is that of the row before the first, as `log_status` tells it: if
        the log has another one there, such as after a restore from backup, the code is `reset`.
        """
        self._engine.check()
        self._require_brokers("replays", NO_LOG)
        require_size("queue_size", queue_size)
        wish = replay_wish(first, last, filter, columns, log, complete=True, epoch=epoch, records=True)
        opens = self._secrets.of(name, secret)
        interest = self._engine.session.requests.replay(name, wish, queue_size, opens)
        replay = RecordReplay(self._engine, interest)
        self._engine.readers[interest.number] = replay
        self._engine.driver.act()
        return replay

    # Logs, whoever reads them.

    async def create_durable(
        self,
        name: str,
        filter: Filter | str,
        *,
        when_full: WhenFull | str | None = None,
        secret: str | None = None,
        partial: bool = False,
        shard: tuple[int, int] = (0, 1),
        copies: int = 0,
    ) -> DurableStatus:
        """Have a log that collects what satisfies `filter`, without reading it.

        One that is there already needs to have the same filter. With `when_full="block"`, the default here,
        clients that publish at its broker wait while its owner keeps more than it may; what is published
        elsewhere is not held up, and beyond twice that limit the oldest rows go, pinned ones too. With
        `shard=(2, 4)` it is one of four logs, perhaps at different brokers, that have some of the publishers
        each: order holds per publisher. The rest is as in `subscribe`.
        """
        self._engine.check()
        self._require_brokers("durable subscriptions", "subscribe without durable")
        wanted = checked_filter(filter)
        choice = checked_choice(when_full or "block").value
        waiting = waiting_for_links(partial, self._engine.request_timeout_s)
        opens = self._secrets.of(name, secret)
        request = self._engine.session.requests.create_log(
            name, wanted, choice, opens, shard, copies, **waiting
        )
        return durable_status(await self._engine.answer(request))

    async def log_status(self, name: str, *, secret: str | None = None) -> DurableStatus:
        """Where a log stands: one of this client's, or one that it was granted to replay."""
        self._engine.check()
        self._require_brokers("durable subscriptions", NO_LOG)
        opens = self._secrets.of(name, secret)
        return durable_status(
            await self._engine.answer(self._engine.session.requests.log_status(name, opens))
        )

    async def acknowledge_log(
        self, name: str, offset: int, *, log: str | None = None, secret: str | None = None
    ) -> None:
        """Everything up to this offset is done with. Returns when that is stored.

        Of a log that a client has subscribed to, only the subscriber says so, with its own `acknowledge`: it
        goes on after what is acknowledged, and would miss rows. Others are refused (code `subscribed`).

        `log` is the id of the log that is meant, if that matters.
        """
        self._engine.check()
        self._require_brokers("durable subscriptions", NO_LOG)
        opens = self._secrets.of(name, secret)
        await self._engine.answer(
            self._engine.session.requests.acknowledge_log(name, offset, log or "", opens)
        )

    async def pin_log(
        self,
        name: str,
        consumer: str,
        offset: int | None,
        *,
        lifetime_s: float = PIN_LIFETIME_S,
        log: str | None = None,
        secret: str | None = None,
    ) -> None:
        """Keep a log's rows from `offset` on, acknowledged or not, for a consumer that may go back to them.

        The next call for the same consumer moves the pin; None takes it away. It ends by itself after
        `lifetime_s` seconds.
        """
        self._engine.check()
        self._require_brokers("durable subscriptions", NO_LOG)
        opens = self._secrets.of(name, secret)
        place = -1 if offset is None else offset
        request = self._engine.session.requests.pin_log(
            name, consumer, place, microseconds(lifetime_s), log or "", opens
        )
        await self._engine.answer(request)

    async def drop_durable(self, name: str, *, secret: str | None = None) -> None:
        """End a durable subscription and forget its log, whether or not it is being read.

        `secret` is as in `subscribe`.
        """
        self._engine.check()
        self._require_brokers("durable subscriptions", "there is none to drop")
        opens = self._secrets.of(name, secret)
        await self._engine.answer(self._engine.session.requests.drop_durable(name, opens))

    async def advertise(self, filter: Filter | str) -> Advertisement:
        """Announce that what satisfies `filter` will be published here, and wait until that is known.

        A broker announces everything for a client that publishes without having announced anything.
        """
        self._engine.check()
        wanted = checked_filter(filter)
        number, request = self._engine.session.requests.advertise(wanted)
        try:
            await self._engine.answer(request)
        except BaseException:
            self._engine.session.requests.unadvertise(number)
            self._engine.driver.act()
            raise
        return Advertisement(self._engine, wanted, number)

    async def ask(self, topic: str, /, **arguments: Any) -> dict[str, Any]:
        """Ask the broker for a report or an operation, such as `await client.ask("statistics")`."""
        self._engine.check()
        words = {name: str(value) for name, value in arguments.items() if value is not None}
        return report_of(topic, await self._engine.answer(self._engine.session.requests.ask(topic, words)))

    # Closing.

    async def close(self, timeout_s: float | None = CLOSE_TIMEOUT_S) -> None:
        """Wait until what was published has arrived, at most `timeout_s` seconds, and leave.

        May be called any number of times.
        """
        limit_s = checked_timeout(timeout_s)
        if self._engine.closing:
            return
        self._engine.closing = True
        outbox = self._engine.session.outbox
        if self._engine.failure is None:
            self._engine.driver.flush()
            try:
                async with asyncio.timeout(limit_s):
                    await self._engine.wait_arrived()
            except TimeoutError:
                unknown = outbox.last_sequence - outbox.received
                _log.warning("closed without knowing whether the last publications arrived (%d)", unknown)
            except BraidError as error:
                _log.warning("closed after the connection was lost: %s", error)
        await self._engine.stop(BusClosedError("the client was closed"))

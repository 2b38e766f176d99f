"""How does a program take part in the network?

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
import random
import secrets
from copy import copy
from typing import TYPE_CHECKING, Any

from braid.embedded.arguments import checked_choice, checked_filter, checked_timeout, require_size
from braid.errors import (
    BraidError,
    BusClosedError,
    ConfigurationError,
)
from braid.protocol.client_effects import (
    Answered,
    Arrived,
    ClientEffect,
    ClientSettings,
    Connected,
    Disconnected,
    Ended,
    Lost,
    Progressed,
    PublicationsDiscarded,
    PublicationsRefused,
    SettledApart,
)
from braid.protocol.client_outbox import BATCH_BYTES
from braid.protocol.client_session import ClientSession
from braid.runtime.client_arguments import (
    CLOSE_TIMEOUT_S,
    QUEUE_SIZE,
    client_addresses,
    client_identity,
    manner_of,
    microseconds,
    publication_record,
    report_of,
    waiting_for_links,
    warn_if_exposed,
)
from braid.runtime.client_connector import ClientConnector
from braid.runtime.client_driver import ClientDriver
from braid.runtime.client_receipts import Receipt, ReceiptBook
from braid.runtime.client_secrets import DurableSecrets
from braid.runtime.client_subscription import Advertisement, Replay, Subscription

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable, Mapping

    from braid.language import Filter, Publication
    from braid.protocol.client_inbox import Interest
    from braid.runtime.tls import Address, TlsSettings

__all__ = ["Client", "ClientConnector", "connect"]


_log = logging.getLogger("braid.client")


def connect(
    url: str,
    *,
    name: str | None = None,
    token: str | None = None,
    tls: TlsSettings | ssl.SSLContext | None = None,
    publisher: str | None = None,
    epoch: str | None = None,
    first_sequence: int = 1,
    secret: str | None = None,
    timeout_s: float = 10.0,
    reconnect_for_s: float = 300.0,
    request_timeout_s: float = 30.0,
    outgoing_bytes_max: int = 16 * 1024 * 1024,
) -> ClientConnector:
    """Connect to a broker: `async with connect(...) as client`, or `client = await connect(...)`.

    Args:
        url: `braid://host:port`, `braids://host:port` (with TLS) or `host:port`; several, separated by
            commas, are tried in turn.
        name: what the broker calls this client; unique among its clients.
        token: says who we are, where the broker wants to know.
        tls: whom to believe and which certificate to show; also makes `host:port` mean TLS.
        publisher: the name in the ids of what is published, beginning with `name`; made up if left out. Where
            clients have to say who they are, the broker's name for us and a slash come before it, so that
            nobody else can use it.
        epoch: which run of that publisher this is; by default a new one. A job that is tried again after it
            broke off gives the same name, epoch and numbers: what was published before is recognised, and its
            receipts say `discarded`.
        first_sequence: the number of the first publication.
        secret: keeps the name of an anonymous client's publisher from others; made up if left out. Give the
            same one to go on with a former epoch. Who fixes the epoch and gives no secret shares the name
            with every anonymous client.
        timeout_s: how long the first connection is tried for.
        reconnect_for_s: how long a lost connection is tried for again; 0: not at all.
        request_timeout_s: how long the answer to `subscribe`, `advertise`, `ask` and the like may take.
        outgoing_bytes_max: what may wait to be sent, or to be received; `publish` waits beyond it.
    """
    require_size("outgoing_bytes_max", outgoing_bytes_max)
    require_size("first_sequence", first_sequence)
    identity = client_identity(name, publisher, epoch, secret)
    addresses = client_addresses(url, tls)
    if token is not None:
        warn_if_exposed("the token", addresses)
    settings = ClientSettings(
        addresses=tuple(addresses),
        name=identity.name,
        publisher=identity.publisher,
        incarnation=secrets.token_hex(8),
        token=token,
        epoch=identity.epoch,
        secret=identity.secret,
        first_sequence=first_sequence,
        connect_for_us=microseconds(timeout_s),
        reconnect_for_us=microseconds(reconnect_for_s),
        outgoing_bytes_max=outgoing_bytes_max,
    )
    return ClientConnector(lambda: Client(settings, addresses, request_timeout_s))


class Client:
    """A connection to the network; made by `connect`. Belongs to one event loop."""

    def __init__(
        self,
        settings: ClientSettings,
        addresses: Mapping[str, tuple[Address, ssl.SSLContext | None]],
        request_timeout_s: float,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self._request_timeout_s = request_timeout_s
        self._session = ClientSession(settings, random.Random(settings.incarnation))
        self._driver = ClientDriver(self._session, addresses, self._concern, self._after_turn)
        self.receipts = ReceiptBook(
            self._loop, lambda: self._session.outbox.publisher, settings.first_sequence, self._hurry
        )
        """How far what was published has come."""
        self._secrets = DurableSecrets()
        self._answers: dict[int, asyncio.Future[str]] = {}
        self._readers: dict[int, Subscription | Replay] = {}
        self._rooms: list[asyncio.Future[None]] = []
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._failure: BraidError | None = None
        self._closing = False
        self._stopped = False

    # What a program may know.

    @property
    def connected(self) -> bool:
        """Whether a broker listens at this moment."""
        return self._session.live

    @property
    def broker(self) -> str:
        """The name of the broker, or of the last one."""
        return self._session.broker

    @property
    def name(self) -> str:
        """What the broker calls this client."""
        return self._settings.name

    @property
    def publisher(self) -> str:
        """The name in the ids of what this client publishes."""
        return self.receipts.publisher

    @property
    def epoch(self) -> str:
        """The epoch in the ids of what this client publishes."""
        return self.receipts.epoch

    @property
    def secret(self) -> str:
        """What an anonymous client needs, with its name and epoch, to be taken for the same publisher."""
        return self._settings.secret

    @property
    def discards(self) -> int:
        """How many publications the broker took for repetitions; their receipts say so."""
        return self.receipts.discards

    @property
    def refusals(self) -> tuple[int, BraidError | None]:
        """How many publications the broker did not take, and why it did not take the last of them."""
        return self.receipts.refusals

    @property
    def first_sequence(self) -> int:
        """The number of its first publication."""
        return self._settings.first_sequence

    @property
    def has_room(self) -> bool:
        """Whether a publication can be made without waiting."""
        return self._session.has_room and self._failure is None and not self._closing

    def check_size(self, record: bytes) -> None:
        """Raise a `PublicationError` if the broker takes no publication that is so large."""
        self._session.check_size(record)

    def __repr__(self) -> str:
        state = "closed" if self._closing else "connected" if self.connected else "not connected"
        return f"<Client {self.name!r} {state}>"

    # Publishing.

    async def publish(
        self,
        attributes: Mapping[str, Any] | Publication,
        body: bytes = b"",
        content_type: str = "",
        *,
        delivery: str = "fast",
        ordered: bool = False,
    ) -> Receipt:
        """Send a publication on its way; publications of a client never overtake each other on their way out.

        It leaves at the end of this turn of the event loop. This waits only while too much is on its way
        already. Awaiting the receipt waits for the arrival.

        Args:
            delivery: `fast`, or `acknowledged`: kept by every broker until everybody downstream has it.
            ordered: arrives in the order of publishing with everybody; others may take faster ways.
        """
        if not self.has_room:
            await self.wait_room()
        manner = manner_of(delivery, ordered)
        sequence = self._session.publish(publication_record(attributes, body, content_type), manner)
        self._driver.flush_soon()
        if self._session.outbox.pending_bytes >= BATCH_BYTES:
            # A publisher that never waits for anything else would keep the loop from reading.
            await asyncio.sleep(0)
        return Receipt(self.receipts, sequence, delivery == "acknowledged")

    def publish_records(self, records: Iterable[tuple[bytes, int]]) -> None:
        """Send what another thread has made of publications: their bytes, and how each is to travel."""
        for record, manner in records:
            self._session.outbox.add(record, manner)
        self._driver.flush()

    async def wait_room(self) -> None:
        """Return when another publication may be made.

        Raises BusClosedError or ConnectionLostError: there never will be one.
        """
        while True:
            self._check()
            if self._session.has_room:
                return
            self._driver.flush()
            if self._session.has_room:
                return
            self._hurry()
            room = self._loop.create_future()
            self._rooms.append(room)
            await room

    async def flush(self, timeout_s: float | None = None) -> None:
        """Return when everything published so far has arrived, and is settled where that was asked for.

        What the broker refused counts as dealt with; its receipts say so.

        Raises:
            TimeoutError: that took longer than `timeout_s`.
        """
        self._check_closed()
        outbox = self._session.outbox
        async with asyncio.timeout(checked_timeout(timeout_s)):
            await self.receipts.wait_through(outbox.last_sequence, outbox.last_acknowledged_sequence)

    def _hurry(self) -> None:
        """Somebody waits for receipts: have the broker acknowledge what leaves next at once."""
        self._session.outbox.receipt_wanted = True

    # Subscribing.

    async def subscribe(
        self,
        filter: Filter | str | None,
        callback: Callable[[Any], object] | None = None,
        *,
        when_full: str | None = None,
        queue_size: int = QUEUE_SIZE,
        durable: str | None = None,
        partial: bool = False,
        secret: str | None = None,
    ) -> Subscription:
        """Receive what satisfies `filter`, beginning with what is published anywhere after this returns.

        Args:
            filter: what to receive; None goes on with the filter that a durable subscription has.
            callback: is called with each publication, one at a time; may be a coroutine function. Without
                one, read from the subscription that is returned.
            when_full: what happens when `queue_size` publications wait here: `block` (the default) holds up
                publishers, `drop_oldest` loses the oldest, `disconnect` ends the subscription. For a durable
                one it is about the log, and `drop_oldest` is the default.
            durable: the name of a log at the broker that collects publications also while nobody reads it.
            partial: do not wait for links that are down; `subscription.missing` names what is not covered.
            secret: opens it, where this client is anonymous; made from a key of this user if left out.

        Raises:
            UnreachedError: links were down for too long; it names them.
            FilterSyntaxError: the filter cannot be read.
            AccessDeniedError, RequestRefusedError: the broker did not agree.
        """
        self._check()
        wanted = None
        if durable is None or filter is not None:
            wanted = checked_filter(filter)  # type: ignore[arg-type] # which says what is wrong with None
        require_size("queue_size", queue_size)
        if callback is not None and not callable(callback):
            raise ConfigurationError(f"a callback must be callable, not {type(callback).__name__}")
        waiting = waiting_for_links(partial, self._request_timeout_s)
        if durable is None and wanted is not None:
            choice = checked_choice(when_full or "block").value
            interest = self._session.desk.subscribe(wanted, choice, queue_size, **waiting)
        else:
            if not isinstance(durable, str) or not durable:
                raise ConfigurationError(f"a durable subscription needs a name, not {durable!r}")
            if self._session.inbox.durable(durable) is not None:
                raise ConfigurationError(f"this client already reads the durable subscription {durable!r}")
            choice = checked_choice(when_full or "drop_oldest").value
            interest = self._session.desk.subscribe_durable(
                durable, wanted, choice, queue_size, self._secrets.of(durable, secret), **waiting
            )
        subscription = Subscription(self, interest)
        self._readers[interest.number] = subscription
        try:
            await self._answer(interest.request)
        except BaseException:
            self._abandon(interest)
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
    ) -> Replay:
        """The publications of a durable subscription from offset `first` to `last` (included; None: the end).

        Read it with `async for`; it ends after the last one. `secret` is as in `subscribe`.
        """
        self._check()
        require_size("queue_size", queue_size)
        if first < 0 or (last is not None and last < first):
            raise ConfigurationError(
                f"a replay runs from an offset of at least 0 upwards, not {first} to {last}"
            )
        interest = self._session.desk.replay(name, first, last, queue_size, self._secrets.of(name, secret))
        replay = Replay(self, interest)
        self._readers[interest.number] = replay
        self._driver.act()
        return replay

    async def drop_durable(self, name: str, *, secret: str | None = None) -> None:
        """End a durable subscription and forget its log, whether or not it is being read.

        `secret` is as in `subscribe`.
        """
        self._check()
        await self._answer(self._session.desk.drop_durable(name, self._secrets.of(name, secret)))

    async def advertise(self, filter: Filter | str) -> Advertisement:
        """Announce that what satisfies `filter` will be published here, and wait until that is known.

        A broker announces everything for a client that publishes without having announced anything.
        """
        self._check()
        wanted = checked_filter(filter)
        number, request = self._session.desk.advertise(wanted)
        try:
            await self._answer(request)
        except BaseException:
            self._session.desk.unadvertise(number)
            self._driver.act()
            raise
        return Advertisement(self, wanted, number)

    async def ask(self, topic: str, /, **arguments: Any) -> dict[str, Any]:
        """Ask the broker for a report or an operation, such as `await client.ask("statistics")`."""
        self._check()
        words = {name: str(value) for name, value in arguments.items() if value is not None}
        return report_of(topic, await self._answer(self._session.desk.ask(topic, words)))

    # Closing.

    async def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Wait until what was published has arrived, at most `timeout_s` seconds, and leave.

        May be called any number of times.
        """
        if self._closing:
            return
        self._closing = True
        outbox = self._session.outbox
        if self._failure is None:
            self._driver.flush()
            try:
                async with asyncio.timeout(timeout_s):
                    await self.receipts.wait_through(outbox.last_sequence, outbox.last_acknowledged_sequence)
            except TimeoutError:
                unknown = outbox.last_sequence - outbox.received
                _log.warning("closed without knowing whether the last publications arrived (%d)", unknown)
            except BraidError as error:
                _log.warning("closed after the connection was lost: %s", error)
        await self._stop(BusClosedError("the client was closed"))

    async def _stop(self, error: BraidError) -> None:
        if self._stopped:
            return
        self._stopped = True
        self._session.close("the client was closed")
        self._driver.act()
        self._fail(error)
        readers = list(self._readers.values())
        for reader in readers:
            reader._end(None, closed=True)
        subscriptions = [reader for reader in readers if isinstance(reader, Subscription)]
        await asyncio.gather(*(subscription._finish() for subscription in subscriptions))
        self._readers.clear()
        await self._driver.stop()

    # For subscriptions, replays and advertisements.

    def _made_room(self, interest: Interest) -> None:
        self._session.made_room(interest)
        self._driver.act()

    def _acknowledge(self, interest: Interest, offset: int, epoch: str) -> None:
        self._check()
        self._session.desk.acknowledge(interest, offset, epoch)
        self._driver.act()

    async def _unsubscribe(self, reader: Subscription | Replay, interest: Interest) -> None:
        if self._readers.pop(interest.number, None) is not reader or self._stopped:
            return
        request = self._session.unsubscribe(interest)
        if request:
            await self._answer(request)
        else:
            self._driver.act()

    async def _unadvertise(self, number: int) -> None:
        if not self._stopped and (request := self._session.desk.unadvertise(number)):
            await self._answer(request)

    def _abandon(self, interest: Interest) -> None:
        """A subscription that was never handed out."""
        self._readers.pop(interest.number, None)
        if not self._stopped:
            self._session.desk.forget(self._session.unsubscribe(interest))
            self._driver.act()

    # Answers.

    async def _open(self) -> None:
        self._driver.start()
        await self._opened

    async def _answer(self, request: int) -> str:
        answer: asyncio.Future[str] = self._loop.create_future()
        self._answers[request] = answer
        self._driver.act()
        try:
            async with asyncio.timeout(self._request_timeout_s):
                return await answer
        except TimeoutError as error:
            if isinstance(error, BraidError):  # the broker's own answer
                raise
            raise TimeoutError(f"the broker did not answer within {self._request_timeout_s:g} s") from None
        finally:
            self._answers.pop(request, None)
            self._session.desk.forget(request)

    def _check(self) -> None:
        self._check_closed()
        if self._failure is not None:
            raise copy(self._failure)  # each raiser adds its own traceback

    def _check_closed(self) -> None:
        if self._closing:
            raise BusClosedError("the client was closed")

    # What the session has to say.

    def _concern(self, effect: ClientEffect) -> None:
        if isinstance(effect, Arrived):
            reader = self._readers.get(effect.interest.number)
            if reader is not None:
                reader._wake()
        elif isinstance(effect, Progressed):
            self.receipts.progressed(effect.received, effect.settled)
        elif isinstance(effect, SettledApart):
            self.receipts.settled_apart(effect.sequences)
        elif isinstance(effect, Answered):
            self._answered(effect)
        elif isinstance(effect, Ended):
            ended = self._readers.get(effect.interest.number)
            if ended is not None:
                ended._end(None)
        elif isinstance(effect, PublicationsRefused):
            _log.warning("%d publications were refused: %s", len(effect.sequences), effect.error)
            self.receipts.refused(effect.sequences, effect.error)
        elif isinstance(effect, PublicationsDiscarded):
            _log.warning("%d publications were discarded: %s", len(effect.sequences), effect.reason)
            self.receipts.discarded(effect.sequences)
        elif isinstance(effect, Connected):
            _log.info("connected to the broker %s", effect.broker)
            if not self._opened.done():
                self._opened.set_result(None)
        elif isinstance(effect, Disconnected):
            _log.warning("the connection was lost and is tried again: %s", effect.reason)
        elif isinstance(effect, Lost):
            self._fail(effect.error)

    def _answered(self, answered: Answered) -> None:
        answer = self._answers.pop(answered.request, None)
        if answer is None or answer.done():
            return
        if answered.error is None:
            answer.set_result(answered.text)
        else:
            answer.set_exception(answered.error)

    def _fail(self, error: BraidError) -> None:
        """Nothing more will happen: tell everybody who waits."""
        if self._failure is None:
            self._failure = error
        if not self._opened.done():
            self._opened.set_exception(error)
            self._opened.exception()  # whoever connects raises it; nobody else needs to hear of it
        self.receipts.fail(error)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(copy(error))
        for reader in self._readers.values():
            reader._end(error)
        self._after_turn()

    def _after_turn(self) -> None:
        """Let publishers go on when there is room, or when there never will be."""
        if self._rooms and (self._session.has_room or self._failure is not None):
            rooms, self._rooms = self._rooms, []
            for room in rooms:
                if not room.done():
                    room.set_result(None)

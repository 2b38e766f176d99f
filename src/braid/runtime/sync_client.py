"""The synchronous client: how a program without an event loop takes part in the network.

    with braid.connect_sync("braid://127.0.0.1:7000") as client:
        quotes = client.subscribe("symbol = 'ACME' AND price > 10")
        client.publish({"symbol": "ACME", "price": 12.5})
        print(quotes.get()["price"])

The same client, with plain methods: an event loop runs in a thread of its own, and everything may be called
from any thread. Publications cross over in batches, so that a call costs microseconds and not a change of
threads.
"""

from __future__ import annotations

import concurrent.futures
import threading
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, overload

from braid.embedded.arguments import QUEUE_SIZE, checked_handler, checked_timeout, is_coroutine_callback
from braid.embedded.farewell import CLOSE_TIMEOUT_S
from braid.errors import BusClosedError, ConfigurationError
from braid.runtime.client import PIN_LIFETIME_S, RECORDS_QUEUE_SIZE
from braid.runtime.client_arguments import manner_of, publication_record, publication_records
from braid.runtime.client_receipts import ReceiptView
from braid.runtime.client_subscription import DurableSubscription
from braid.runtime.client_sync_subscription import (
    SyncDurableSubscription,
    SyncRecordReplay,
    SyncReplay,
    SyncSubscription,
)
from braid.runtime.loop_thread import LoopThread

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
    from types import TracebackType

    from braid.client.stored import StoredPublication
    from braid.embedded import WhenFull
    from braid.errors import BraidError
    from braid.language import Filter, Publication
    from braid.runtime.client_connector import ClientConnector
    from braid.runtime.client_events import ErrorHandler
    from braid.runtime.client_logs import DurableStatus
    from braid.runtime.client_subscription import Advertisement, Subscription

__all__ = ["SyncAdvertisement", "SyncClient", "SyncReceipt"]

# Publications that may wait to cross over to the loop's thread before a publisher waits for that.
CROSSING_BYTES_MAX: Final = 256 * 1024
# How often a thread that waits for the loop makes sure that the loop is still there.
WATCH_S: Final = 1.0

# What to use where this client would wait for its own thread.
_INSTEAD: Final = "the asyncio client"

Answer = TypeVar("Answer")


class SyncReceipt(ReceiptView):
    """The promise that a publication arrives; `wait` returns when it has. See `Receipt`."""

    __slots__ = ("_client",)

    def __init__(self, client: SyncClient, sequence: int, acknowledged: bool, published: int = 1) -> None:
        super().__init__(client._engine.receipts, sequence, acknowledged, published)
        self._client = client

    def wait(self, timeout_s: float | None = None) -> None:
        """Return when the publication has arrived (or, with acknowledged delivery, is with everybody).

        Raises what awaiting a `Receipt` raises, and a `TimeoutError` after `timeout_s` seconds.
        """
        self._client._run(self._client._wait_receipt(self._sequences, self._acknowledged), timeout_s)


class SyncAdvertisement:
    """What a client has announced that it publishes."""

    def __init__(self, client: SyncClient, advertisement: Advertisement) -> None:
        self._client = client
        self._advertisement = advertisement
        self.filter = advertisement.filter

    def close(self) -> None:
        """Take it back. May be called any number of times."""
        self._client._run(self._advertisement.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()


class SyncClient:
    """A connection to the network for ordinary threads; made by `connect_sync`."""

    def __init__(self, connector: ClientConnector) -> None:
        self._crossing_lock = threading.Lock()
        self._crossing: list[tuple[bytes, int]] = []
        self._crossing_bytes = 0
        self._crossing_scheduled = False
        self._closed = False
        self._subscriptions: set[SyncSubscription | SyncDurableSubscription] = set()
        self._life = LoopThread("braid-client", connector)
        self._client = self._life.lives
        self._engine = self._client._engine
        self._sequence = self._client.first_sequence - 1

    # What a program may know.

    @property
    def connected(self) -> bool:
        """Whether a broker listens at this moment."""
        return not self._closed and self._client.connected

    @property
    def closed(self) -> bool:
        """True once nothing can be published any more."""
        return self._closed or self._client.closed

    @property
    def broker(self) -> str:
        """The name of the broker, or of the last one."""
        return self._client.broker

    @property
    def name(self) -> str:
        """What the broker calls this client."""
        return self._client.name

    @property
    def publisher(self) -> str:
        """The name in the ids of what this client publishes."""
        return self._client.publisher

    @property
    def epoch(self) -> str:
        """The epoch in the ids of what this client publishes."""
        return self._client.epoch

    @property
    def secret(self) -> str:
        """What an anonymous client needs, with its name and epoch, to be taken for the same publisher."""
        return self._client.secret

    @property
    def first_sequence(self) -> int:
        """The number of its first publication."""
        return self._client.first_sequence

    @property
    def overtaken(self) -> tuple[int, int]:
        """How many of `discards` are only too old to be told from repetitions. See `Client.overtaken`."""
        return self._client.overtaken

    @property
    def discards(self) -> int:
        """How many publications the broker took for repetitions; their receipts say so."""
        return self._client.discards

    @property
    def refusals(self) -> tuple[int, BraidError | None]:
        """How many publications the broker did not take, and why it did not take the last of them."""
        return self._client.refusals

    # Publishing.

    def publish(
        self,
        attributes: Mapping[str, Any] | Publication,
        body: bytes = b"",
        content_type: str = "",
        *,
        timeout_s: float | None = None,
        delivery: str = "fast",
        ordered: bool = False,
    ) -> SyncReceipt:
        """Send a publication on its way; waits only while too much is on its way. See `Client.publish`."""
        manner = manner_of(delivery, ordered, peers=self._client.peers)
        record = publication_record(attributes, body, content_type)
        sequence = self._hand_over((record,), manner, checked_timeout(timeout_s))
        return SyncReceipt(self, sequence, delivery == "acknowledged")

    def publish_batch(
        self,
        batch: Iterable[Mapping[str, Any] | Publication],
        *,
        timeout_s: float | None = None,
        delivery: str = "fast",
        ordered: bool = False,
    ) -> SyncReceipt:
        """Send many publications on their way in their order. See `Client.publish_batch`."""
        manner = manner_of(delivery, ordered, peers=self._client.peers)
        records = publication_records(batch)
        sequence = self._hand_over(records, manner, checked_timeout(timeout_s))
        return SyncReceipt(self, sequence, delivery == "acknowledged", len(records))

    def _hand_over(self, records: Sequence[bytes], manner: int, timeout_s: float | None) -> int:
        """Have the loop's thread send these; the number of the first."""
        if self._closed or self._crossing_bytes >= CROSSING_BYTES_MAX or not self._engine.has_room:
            self._run(self._make_way(timeout_s))
        for record in records:
            self._engine.session.check_size(record)
        with self._crossing_lock:
            first = self._sequence + 1
            self._sequence += len(records)
            self._crossing += [(record, manner) for record in records]
            self._crossing_bytes += sum(map(len, records))
            schedule = not self._crossing_scheduled
            self._crossing_scheduled = True
        if schedule:
            self._call_soon(self._cross)
        return first

    def _cross(self) -> None:
        """On the loop's thread: take over what other threads have published."""
        with self._crossing_lock:
            records, self._crossing = self._crossing, []
            self._crossing_bytes = 0
            self._crossing_scheduled = False
        self._engine.publish_records(records)

    async def _make_way(self, timeout_s: float | None) -> None:
        self._cross()
        await self._engine.wait_room_for(timeout_s)

    async def _wait_receipt(self, sequences: range, acknowledged: bool) -> None:
        self._cross()
        await self._engine.receipts.wait_for(sequences, acknowledged)

    def flush(self, timeout_s: float | None = None) -> None:
        """Return when everything published so far has arrived. See `Client.flush`."""

        async def flush() -> None:
            self._cross()
            await self._client.flush()

        self._run(flush(), timeout_s)

    # Subscribing.

    @overload
    def subscribe(
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
    ) -> SyncSubscription: ...

    @overload
    def subscribe(
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
    ) -> SyncDurableSubscription: ...

    def subscribe(
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
    ) -> SyncSubscription | SyncDurableSubscription:
        """Receive what satisfies `filter`. See `Client.subscribe`; a callback runs in a thread of its own."""
        if is_coroutine_callback(callback):
            raise ConfigurationError(
                "a callback here is a plain function; a coroutine would never be awaited"
            )
        handler = checked_handler(on_error)

        # Which of both it is shows in the answer.
        ask: Callable[..., Coroutine[Any, Any, Subscription | DurableSubscription]] = self._client.subscribe
        answered = self._run(
            ask(
                filter,
                name=name,
                when_full=when_full,
                queue_size=queue_size,
                durable=durable,
                takeover=takeover,
                secret=secret,
                copies=copies,
                partial=partial,
            )
        )
        handler = handler or self._engine.on_error
        subscription: SyncSubscription | SyncDurableSubscription
        if isinstance(answered, DurableSubscription):
            subscription = SyncDurableSubscription(self._run, answered, callback, handler)
        else:
            subscription = SyncSubscription(self._run, answered, callback, handler)
        self._subscriptions.add(subscription)
        subscription._on_close = self._subscriptions.discard
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
    ) -> SyncReplay:
        """The publications of a durable subscription's log, as an iterator. See `Client.replay`."""

        async def replay() -> Any:
            return self._client.replay(
                name,
                first,
                last,
                queue_size=queue_size,
                secret=secret,
                filter=filter,
                columns=columns,
                complete=complete,
                log=log,
            )

        return SyncReplay(self._run, self._run(replay()))

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
    ) -> SyncRecordReplay:
        """A complete replay as `StoredRecords`, many rows at a time. See `Client.replay_records`."""

        async def replay() -> Any:
            return self._client.replay_records(
                name,
                first,
                last,
                queue_size=queue_size,
                secret=secret,
                filter=filter,
                columns=columns,
                log=log,
                epoch=epoch,
            )

        return SyncRecordReplay(self._run, self._run(replay()))

    # Logs, whoever reads them.

    def create_durable(
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
        """Have a log, without reading it. See `Client.create_durable`."""
        return self._run(
            self._client.create_durable(
                name, filter, when_full=when_full, secret=secret, partial=partial, shard=shard, copies=copies
            )
        )

    def log_status(self, name: str, *, secret: str | None = None) -> DurableStatus:
        """Where a log stands. See `Client.log_status`."""
        return self._run(self._client.log_status(name, secret=secret))

    def acknowledge_log(
        self, name: str, offset: int, *, log: str | None = None, secret: str | None = None
    ) -> None:
        """Everything up to this offset is done with. See `Client.acknowledge_log`."""
        self._run(self._client.acknowledge_log(name, offset, log=log, secret=secret))

    def pin_log(
        self,
        name: str,
        consumer: str,
        offset: int | None,
        *,
        lifetime_s: float = PIN_LIFETIME_S,
        log: str | None = None,
        secret: str | None = None,
    ) -> None:
        """Keep a log's rows for a consumer that may go back to them. See `Client.pin_log`."""
        self._run(self._client.pin_log(name, consumer, offset, lifetime_s=lifetime_s, log=log, secret=secret))

    def drop_durable(self, name: str, *, secret: str | None = None) -> None:
        """End a durable subscription and forget its log, whether or not it is being read."""
        self._run(self._client.drop_durable(name, secret=secret))

    def advertise(self, filter: Filter | str) -> SyncAdvertisement:
        """Announce that what satisfies `filter` will be published here. See `Client.advertise`."""
        return SyncAdvertisement(self, self._run(self._client.advertise(filter)))

    def ask(self, topic: str, /, **arguments: Any) -> dict[str, Any]:
        """Ask the broker for a report or an operation. See `Client.ask`."""
        return self._run(self._client.ask(topic, **arguments))

    # Closing.

    def close(self, timeout_s: float | None = CLOSE_TIMEOUT_S) -> None:
        """Wait until what was published has arrived, at most `timeout_s` seconds, and leave.

        May be called any number of times, but not from a callback.
        """

        limit_s = checked_timeout(timeout_s)

        async def close() -> None:
            self._cross()
            await self._client.close(limit_s)

        with self._crossing_lock:
            if self._closed:
                return
            closing = self._life.submit(close(), _INSTEAD)
            self._closed = True
        try:
            self._result(closing, None)
        finally:
            self._life.leave()
        for subscription in list(self._subscriptions):
            subscription._join()
        self._life.join(CLOSE_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    # The loop's thread.

    def _call_soon(self, function: Callable[[], None]) -> None:
        try:
            self._life.call_soon(function)
        except RuntimeError:
            raise BusClosedError("the client was closed") from None

    def _run(self, work: Coroutine[Any, Any, Answer], timeout_s: float | None = None) -> Answer:
        """Have the loop do something and wait for it."""
        if self._closed:
            work.close()
            raise BusClosedError("the client was closed")
        try:
            future = self._life.submit(work, _INSTEAD)
        except RuntimeError:
            raise BusClosedError("the client was closed") from None
        return self._result(future, checked_timeout(timeout_s))

    def _result(self, future: concurrent.futures.Future[Answer], timeout_s: float | None) -> Answer:
        remaining_s = timeout_s
        try:
            while True:
                slice_s = WATCH_S if remaining_s is None else min(WATCH_S, remaining_s)
                done, _ = concurrent.futures.wait([future], slice_s)
                if done:
                    return future.result()
                if remaining_s is not None:
                    remaining_s -= slice_s
                    if remaining_s <= 0:
                        raise TimeoutError(f"that took longer than {timeout_s:g} s")
                if not self._life.alive:
                    raise BusClosedError("the client was closed")
        except concurrent.futures.CancelledError:
            raise BusClosedError("the client was closed") from None
        finally:
            future.cancel()

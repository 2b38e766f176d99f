"""What runs under a client: its session, the driver of that, and everybody who waits for something.

`Client` and its subscriptions are what a program holds; what they have in common is here.
"""

from __future__ import annotations

import asyncio
import logging
import random
from copy import copy
from typing import TYPE_CHECKING

from braid.client.effects import (
    Answered,
    Arrived,
    ClientEffect,
    ClientSettings,
    Connected,
    ConnectionRefused,
    Disconnected,
    Ended,
    Lost,
    Progressed,
    PublicationsDiscarded,
    PublicationsRefused,
    SettledApart,
)
from braid.client.session import ClientSession
from braid.embedded.farewell import CLOSE_TIMEOUT_S
from braid.errors import BraidError, BusClosedError, PublishTimeoutError
from braid.runtime.client_driver import ClientDriver
from braid.runtime.client_events import ConnectionEvent, tell
from braid.runtime.client_receipts import ReceiptBook

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable, Mapping

    from braid.client.inbox import Interest
    from braid.runtime.client_events import ConnectionHandler, ErrorHandler
    from braid.runtime.client_subscription import Reader
    from braid.runtime.tls import Address

__all__ = ["ClientEngine"]

_log = logging.getLogger("braid.client")


class ClientEngine:
    """A client's session on the running event loop."""

    def __init__(
        self,
        settings: ClientSettings,
        addresses: Mapping[str, tuple[Address, ssl.SSLContext | None]],
        request_timeout_s: float,
        on_error: ErrorHandler | None,
        on_connection: ConnectionHandler | None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.settings = settings
        self.request_timeout_s = request_timeout_s
        self.on_error = on_error
        self.session = ClientSession(settings, random.Random(settings.incarnation))
        self.driver = ClientDriver(self.session, addresses, self._concern, self._after_turn)
        self.receipts = ReceiptBook(
            self.loop, lambda: self.session.outbox.publisher, settings.first_sequence, self._hurry
        )
        """How far what was published has come."""
        self.readers: dict[int, Reader] = {}
        """By the numbers of what they are interested in: those who read."""
        self.failure: BraidError | None = None
        """Why nothing more will happen."""
        self.closing = False
        """Whether the program has closed the client."""
        self._on_connection = on_connection
        self._answers: dict[int, asyncio.Future[str]] = {}
        self._rooms: list[asyncio.Future[None]] = []
        self._opened: asyncio.Future[None] = self.loop.create_future()
        self._stopped = False

    async def open(self) -> None:
        """Return when a broker has welcomed us."""
        self.driver.start()
        await self._opened

    # Publishing.

    @property
    def has_room(self) -> bool:
        """Whether a publication can be made without waiting."""
        return self.session.has_room and self.failure is None and not self.closing

    def check_size(self, record: bytes) -> None:
        """Raise a `PublicationError` if the broker takes no publication that is so large."""
        self.session.check_size(record)

    def publish_records(self, records: Iterable[tuple[bytes, int]]) -> None:
        """Send what another thread has made of publications: their bytes, and how each is to travel."""
        for record, manner in records:
            self.session.outbox.add(record, manner)
        self.driver.flush()

    async def wait_room(self) -> None:
        """Return when another publication may be made.

        Raises BusClosedError or ConnectionLostError: there never will be one.
        """
        while True:
            self.check()
            if self.session.has_room:
                return
            self.driver.flush()
            if self.session.has_room:
                return
            self._hurry()
            room = self.loop.create_future()
            self._rooms.append(room)
            await room

    async def wait_room_for(self, timeout_s: float | None) -> None:
        """As `wait_room`, but no longer than this; then a `PublishTimeoutError`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.wait_room()
        except TimeoutError:
            raise PublishTimeoutError(timeout_s or 0.0, 0, 0, ()) from None

    def _hurry(self) -> None:
        """Somebody waits for receipts: have the broker acknowledge what leaves next at once."""
        self.session.outbox.receipt_wanted = True

    async def wait_arrived(self) -> None:
        """Return when everything published so far has arrived, and is settled where that was asked for."""
        outbox = self.session.outbox
        await self.receipts.wait_through(outbox.last_sequence, outbox.last_acknowledged_sequence)

    # Stopping.

    async def stop(self, error: BraidError) -> None:
        """Leave, and tell everybody who waits."""
        if self._stopped:
            return
        self._stopped = True
        self.session.close("the client was closed")
        self.driver.act()
        self._fail(error)
        readers = list(self.readers.values())
        for reader in readers:
            reader._end(None, closed=True)
        await asyncio.gather(*(reader._finish(CLOSE_TIMEOUT_S) for reader in readers))
        self.readers.clear()
        await self.driver.stop()

    # For subscriptions, replays and advertisements.

    def made_room(self, interest: Interest) -> None:
        """A reader has taken from a queue behind which rows wait."""
        self.session.made_room(interest)
        self.driver.act()

    def acknowledge(self, interest: Interest, offset: int, epoch: str) -> None:
        """A reader is done with a log's rows up to this offset."""
        self.check()
        self.session.requests.acknowledge(interest, offset, epoch)
        self.driver.act()

    async def unsubscribe(self, reader: object, interest: Interest) -> None:
        """A reader has gone."""
        if self.readers.pop(interest.number, None) is not reader or self._stopped:
            return
        request = self.session.unsubscribe(interest)
        if request:
            await self.answer(request)
        else:
            self.driver.act()

    async def unadvertise(self, number: int) -> None:
        """Take an advertisement back."""
        if not self._stopped and (request := self.session.requests.unadvertise(number)):
            await self.answer(request)

    def abandon(self, interest: Interest) -> None:
        """A subscription that was never handed out."""
        self.readers.pop(interest.number, None)
        if not self._stopped:
            self.session.requests.forget(self.session.unsubscribe(interest))
            self.driver.act()

    # Answers.

    async def answer(self, request: int) -> str:
        """What the broker says to a request that was made just now."""
        answer: asyncio.Future[str] = self.loop.create_future()
        self._answers[request] = answer
        self.driver.act()
        try:
            async with asyncio.timeout(self.request_timeout_s):
                return await answer
        except TimeoutError as error:
            if isinstance(error, BraidError):  # the broker's own answer
                raise
            raise TimeoutError(f"the broker did not answer within {self.request_timeout_s:g} s") from None
        finally:
            self._answers.pop(request, None)
            self.session.requests.forget(request)

    def check(self) -> None:
        """Raise where nothing more can be done."""
        self.check_closed()
        if self.failure is not None:
            raise copy(self.failure)  # each raiser adds its own traceback

    def check_closed(self) -> None:
        """Raise where the program has closed the client."""
        if self.closing:
            raise BusClosedError("the client was closed")

    # What the session has to say.

    def _concern(self, effect: ClientEffect) -> None:
        if isinstance(effect, Arrived):
            reader = self.readers.get(effect.interest.number)
            if reader is not None:
                reader._wake()
        elif isinstance(effect, Progressed):
            self.receipts.progressed(effect.received, effect.settled)
        elif isinstance(effect, SettledApart):
            self.receipts.settled_apart(effect.sequences)
        elif isinstance(effect, Answered):
            self._answered(effect)
        elif isinstance(effect, Ended):
            ended = self.readers.get(effect.interest.number)
            if ended is not None:
                ended._end(None)
        elif isinstance(effect, PublicationsRefused):
            _log.warning("%d publications were refused: %s", len(effect.sequences), effect.error)
            self.receipts.refused(effect.sequences, effect.error)
            tell("on_error", self.on_error, effect.error, None)
        elif isinstance(effect, PublicationsDiscarded):
            _log.warning("%d publications were discarded: %s", len(effect.sequences), effect.reason)
            self.receipts.discarded(effect.sequences, overtaken_by=0 if effect.known else effect.highest)
        elif isinstance(effect, Connected):
            _log.info("connected to the broker %s", effect.broker)
            if not self._opened.done():
                self._opened.set_result(None)
            self._tell(ConnectionEvent("moved" if effect.moved else "connected", effect.broker))
        elif isinstance(effect, ConnectionRefused):
            self._tell(ConnectionEvent("refused", self.session.broker, effect.reason, effect.final))
        elif isinstance(effect, Disconnected):
            _log.warning("the connection was lost and is tried again: %s", effect.reason)
            self._tell(ConnectionEvent("lost", self.session.broker, effect.reason))
        elif isinstance(effect, Lost):
            self._fail(effect.error)
            self._tell(ConnectionEvent("lost", self.session.broker, str(effect.error), final=True))

    def _tell(self, happened: ConnectionEvent) -> None:
        tell("on_connection", self._on_connection, happened)

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
        if self.failure is None:
            self.failure = error
        if not self._opened.done():
            self._opened.set_exception(error)
            self._opened.exception()  # whoever connects raises it; nobody else needs to hear of it
        self.receipts.fail(error)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(copy(error))
        for reader in self.readers.values():
            reader._end(error)
        self._after_turn()

    def _after_turn(self) -> None:
        """Let publishers go on when there is room, or when there never will be."""
        if self._rooms and (self.session.has_room or self.failure is not None):
            rooms, self._rooms = self._rooms, []
            for room in rooms:
                if not room.done():
                    room.set_result(None)

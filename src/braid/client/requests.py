"""The requests of a client: what it has asked of its broker, and what it has been answered.

They keep what the application wants over all connections: its subscriptions, advertisements, replays and
open requests. On a new connection all of that is asked for again. What may have been carried out already and
cannot be repeated without harm fails instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from braid.client.effects import Answered, ClientEffect, Ended
from braid.client.inbox import Inbox, Interest
from braid.errors import (
    AccessDeniedError,
    AuthenticationError,
    ConnectionLostError,
    FilterError,
    RemoteProtocolError,
    RequestRefusedError,
    SlowConsumerError,
    UnreachedError,
)
from braid.language.filters import Filter
from braid.protocol.effects import Note
from braid.protocol.limits import FRAME_BYTES_MAX, carried_bytes
from braid.protocol.messages import (
    Acknowledge,
    AcknowledgeDurable,
    Advertise,
    Ask,
    CreateDurable,
    DropDurable,
    LogReset,
    LogStatus,
    Message,
    PinLog,
    Replay,
    Separate,
    StopReading,
    Subscribe,
    SubscribeDurable,
    Unadvertise,
    Unsubscribe,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from braid.client.stored import ReplayWish

__all__ = ["Requests", "refusal"]

# What a request takes in a frame beside its filter, at most.
REQUEST_BYTES = 2_048


@dataclass(slots=True)
class _Advertised:
    """What was announced will be published from here."""

    number: int
    text: str
    request: int
    confirmed: bool = False


@dataclass(slots=True)
class _Request:
    """What was asked of the broker and is not answered."""

    message: Message
    subject: Interest | _Advertised | None
    """What it makes or made; such a request may be repeated on the next connection."""
    internal: bool
    """Asked by the session itself, to make again what a former connection had."""
    sent: bool


def refusal(code: str, reason: str) -> RequestRefusedError:
    """The exception for a code that a broker gave."""
    if code == "authentication":
        return AuthenticationError(reason)
    if code == "denied":
        return AccessDeniedError(reason)
    if code == "unreached":
        return UnreachedError(reason)
    return RequestRefusedError(reason, code)


def _incomplete(interest: Interest) -> RequestRefusedError | None:
    """Why a replay that was to be complete is not; None where it is."""
    if not interest.replay.complete:
        return None
    try:
        sent = msgspec.json.decode(interest.replayed, type=dict[str, Any]).get("rows")
    except msgspec.MsgspecError as error:
        raise RemoteProtocolError(f"the end of a replay that cannot be read: {error}") from None
    if sent == interest.replayed_rows:
        return None
    return RequestRefusedError(
        f"{sent} rows of {interest.durable!r} were sent, and {interest.replayed_rows} came",
        "incomplete",
    )


class Requests:
    """The requests of one client."""

    def __init__(
        self, inbox: Inbox, tell: Callable[[Message], bool], emit: Callable[[ClientEffect], None]
    ) -> None:
        """`tell` sends a message and says False where there is no connection; `emit` adds an effect."""
        self._inbox = inbox
        self._tell = tell
        self._emit = emit
        self._requests: dict[int, _Request] = {}
        self._request_last = 0
        self._number_last = 0
        self._leaving: dict[int, int] = {}
        """By the request that ends a subscription: the class that it had for itself."""
        self._advertisements: dict[int, _Advertised] = {}
        self.frame_bytes_max = carried_bytes(FRAME_BYTES_MAX)
        """The largest frame that the broker takes."""

    # What the application wants.

    def subscribe(
        self, filter: Filter, when_full: str, capacity: int, *, partial: bool = False, patience_us: int = 0
    ) -> Interest:
        """Ask for publications; `interest.request` will be `Answered`.

        Args:
            filter: what to receive.
            when_full: what happens when `capacity` publications wait.
            capacity: of the queue here.
            partial: whether an answer that does not cover links that are down is welcome.
            patience_us: how long the broker waits for such links; 0: without an end.
        """
        interest = self._interest(filter, when_full, capacity)
        interest.partial, interest.patience_us = partial, patience_us
        interest.request = request = self._next_request()
        self._inbox.add(interest)
        self._ask(request, self._subscribe_message(interest, request), interest)
        return interest

    def subscribe_durable(
        self,
        name: str,
        filter: Filter | None,
        when_full: str,
        capacity: int,
        secret: str = "",
        *,
        takeover: bool = False,
        copies: int = 0,
        partial: bool = False,
        patience_us: int = 0,
    ) -> Interest:
        """Create a log or go on reading it; `when_full` is about the log, the queue here always blocks.

        `takeover`: another client that reads it is to stop; without that, this one is refused.
        """
        interest = self._interest(filter, when_full, capacity)
        interest.partial, interest.patience_us = partial, patience_us
        interest.durable = name
        interest.secret = secret
        interest.takeover, interest.copies = takeover, copies
        interest.request = request = self._next_request()
        self._inbox.add(interest)
        self._ask(request, self._durable_message(interest, request), interest)
        return interest

    def replay(self, name: str, wish: ReplayWish, capacity: int, secret: str = "") -> Interest:
        """Ask for a range of a log again; `Ended` follows the last row."""
        interest = self._interest(None, "block", capacity)
        interest.durable = name
        interest.secret = secret
        interest.handed_offset = wish.first - 1
        interest.replay = wish
        interest.request = interest.replay_request = request = self._next_request()
        self._inbox.add(interest)
        self._ask(request, self._replay_message(interest), interest)
        return interest

    # What the owner of a log asks for. All of it may be asked again without harm.

    def create_log(
        self,
        name: str,
        filter: Filter,
        when_full: str,
        secret: str,
        shard: tuple[int, int],
        copies: int,
        *,
        partial: bool,
        patience_us: int,
    ) -> int:
        """Have a log without reading it; returns the request to wait for."""
        self._require_sendable(filter)
        request = self._next_request()
        waiting = (partial, patience_us)
        message = CreateDurable(request, name, filter.text, when_full, *waiting, secret, *shard, copies)
        self._ask(request, message)
        return request

    def log_status(self, name: str, secret: str) -> int:
        """Ask where a log stands; returns the request to wait for."""
        request = self._next_request()
        self._ask(request, LogStatus(request, name, secret))
        return request

    def acknowledge_log(self, name: str, offset: int, log_id: str, secret: str) -> int:
        """Rows of a log up to an offset are done with; returns the request to wait for."""
        request = self._next_request()
        self._ask(request, AcknowledgeDurable(request, name, offset, log_id, secret))
        return request

    def pin_log(
        self, name: str, consumer: str, offset: int, lifetime_us: int, log_id: str, secret: str
    ) -> int:
        """Keep rows of a log from an offset on; returns the request to wait for."""
        request = self._next_request()
        self._ask(request, PinLog(request, name, consumer, offset, lifetime_us, log_id, secret))
        return request

    def unsubscribe(self, interest: Interest) -> int:
        """Nothing more is queued for it; returns the request to wait for, 0 if there is none."""
        was_open = interest.open
        self._inbox.remove(interest)
        self._requests.pop(interest.request, None)
        if not was_open:
            return 0
        if interest.durable:
            # What still comes of it is not acknowledged, so nothing is lost.
            if not interest.replay_request:
                self._tell(StopReading(interest.durable))
            return 0
        request = self._next_request()
        if interest.stream:
            self._leaving[request] = interest.stream
        return self._undo(request, Unsubscribe(request, str(interest.number)))

    def separate(self, interest: Interest) -> None:
        """Ask for a class of its own for a subscription that others wait for, as long as there are some."""
        stream = self._inbox.take_stream()
        if stream:
            interest.separating = request = self._next_request()
            self._ask(request, Separate(request, str(interest.number), stream), internal=True)

    def revive(self, interest: Interest) -> None:
        """What had waited for a dormant subscription is read: ask the broker for more."""
        self._inbox.wake(interest)
        request = self._next_request()
        self._ask(request, self._subscribe_message(interest, request), interest, internal=True)

    def acknowledge(self, interest: Interest, offset: int, epoch: str = "") -> None:
        """The application is done with a durable subscription's rows up to this offset.

        Nothing happens if the log has another row at this offset by now.
        """
        fits = not epoch or interest.epochs.has(epoch, offset, interest.handed_offset + 1)
        if fits and offset > interest.acknowledged_offset:
            interest.acknowledged_offset = offset
            # Without a connection, the next one begins by saying so.
            self._tell(Acknowledge(interest.durable, offset, epoch))

    def log_reset(self, reset: LogReset) -> None:
        """The broker's log no longer has all that came from it."""
        interest = self._inbox.reset(reset)
        if interest is not None:
            note = {"durable": reset.name, "goes_on_at": reset.next_offset}
            what = "the log of a durable subscription was reset, such as by a restore from backup"
            self._emit(Note("warning", what, note))

    def advertise(self, filter: Filter) -> tuple[int, int]:
        """Announce what will be published; returns its number, and the request to wait for."""
        self._require_sendable(filter)
        self._number_last += 1
        advertised = _Advertised(self._number_last, filter.text, self._next_request())
        self._advertisements[advertised.number] = advertised
        self._announce(advertised, advertised.request)
        return advertised.number, advertised.request

    def unadvertise(self, number: int) -> int:
        """Take an advertisement back; returns the request to wait for, 0 if there is none."""
        advertised = self._advertisements.pop(number, None)
        if advertised is None:
            return 0
        self._requests.pop(advertised.request, None)
        request = self._next_request()
        return self._undo(request, Unadvertise(request, str(number)))

    def ask(self, topic: str, arguments: Mapping[str, str]) -> int:
        """Ask for a report or an operation; returns the request to wait for."""
        request = self._next_request()
        self._ask(request, Ask(request, topic, dict(arguments)))
        return request

    def drop_durable(self, name: str, secret: str = "") -> int:
        """End a durable subscription and forget its log; returns the request to wait for."""
        interest = self._inbox.durable(name)
        if interest is not None:
            self._inbox.remove(interest)
            self._requests.pop(interest.request, None)
            self._emit(Ended(interest))
        request = self._next_request()
        self._ask(request, DropDurable(request, name, secret))
        return request

    def stands(self, interest: Interest) -> bool:
        """Whether the broker has answered for it on this connection, and nothing about it is asked."""
        if not interest.confirmed or not interest.open or interest.dormant:
            return False
        return not any(pending.subject is interest for pending in self._requests.values())

    def forget(self, request: int) -> None:
        """Nobody waits for this answer any more."""
        self._requests.pop(request, None)

    # Asking.

    def _interest(self, filter: Filter | None, when_full: str, capacity: int) -> Interest:
        if filter is not None:
            self._require_sendable(filter)
        self._number_last += 1
        return Interest(self._number_last, filter, when_full, capacity)

    def _require_sendable(self, filter: Filter) -> None:
        """Refuse what the broker would end every connection for."""
        size, size_max = len(filter.text.encode()), self.frame_bytes_max
        size_max = max(size_max - REQUEST_BYTES, size_max // 2)
        if size > size_max:
            raise RequestRefusedError(
                f"a filter of {size:,} bytes; this broker takes at most {size_max:,}: divide it into several",
                "limit",
            )

    def _next_request(self) -> int:
        self._request_last += 1
        return self._request_last

    def _ask(
        self,
        request: int,
        message: Message,
        subject: Interest | _Advertised | None = None,
        *,
        internal: bool = False,
    ) -> None:
        self._requests[request] = _Request(message, subject, internal, self._tell(message))

    def _undo(self, request: int, message: Message) -> int:
        """Without a connection there is nothing to undo: the next one does not know of it."""
        if not self._tell(message):
            return 0
        self._requests[request] = _Request(message, None, False, True)
        return request

    def _announce(self, advertised: _Advertised, request: int) -> None:
        message = Advertise(request, str(advertised.number), advertised.text)
        self._ask(request, message, advertised, internal=advertised.confirmed)

    def _durable_message(self, interest: Interest, request: int) -> SubscribeDurable:
        text = interest.filter.text if interest.filter is not None else ""
        interest.reader = request
        return SubscribeDurable(
            request,
            interest.durable,
            text,
            interest.when_full,
            interest.acknowledged_offset,
            interest.handed_offset,
            [*interest.epochs.entries],
            partial=interest.partial,
            patience_us=0 if interest.confirmed else interest.patience_us,
            secret=interest.secret,
            takeover=interest.takeover and not interest.confirmed,
            copies=interest.copies,
        )

    def _replay_message(self, interest: Interest) -> Replay:
        """A replay from where it stands; of an empty range only the answer is missing."""
        wish = interest.replay
        first = interest.handed_offset + 1
        # What has come already need not be there any more.
        done = 0 <= wish.last < first
        interest.replayed_rows = 0
        return Replay(
            interest.request,
            interest.durable,
            first,
            wish.last,
            interest.epochs.current or wish.epoch,
            interest.secret,
            wish.complete and not done,
            wish.id,
            wish.filter,
            None if wish.columns is None else list(wish.columns),
            packed=wish.records,
        )

    def _subscribe_message(self, interest: Interest, request: int) -> Subscribe:
        text = interest.filter.text if interest.filter is not None else ""
        return Subscribe(
            request,
            str(interest.number),
            text,
            interest.when_full,
            partial=interest.partial,
            # What was in force already is not given up because it takes long to be so again.
            patience_us=0 if interest.confirmed else interest.patience_us,
        )

    def introduce(self, *, durables: bool = True) -> None:
        """On a new connection: make again what the former one had, and ask again what was not answered.

        Without `durables`, durable subscriptions wait for another broker, which has their logs.
        """
        self._leaving.clear()
        former, self._requests = self._requests, {}
        for _, advertised in sorted(self._advertisements.items()):
            self._announce(advertised, self._next_request() if advertised.confirmed else advertised.request)
        for interest in self._inbox.interests():
            if interest.durable and not durables:
                waiting = former.get(interest.request)
                if waiting is not None:
                    self._requests[interest.request] = waiting
                continue
            if interest.replay_request:
                self._ask(interest.request, self._replay_message(interest), interest)
                continue
            if interest.blocks and interest.line and interest.confirmed:
                # Every connection would bring more of what is not read.
                self._inbox.sleep(interest)
                continue
            if interest.dormant:
                self._inbox.wake(interest)
            request = self._next_request() if interest.confirmed else interest.request
            if interest.durable:
                message: Message = self._durable_message(interest, request)
            else:
                message = self._subscribe_message(interest, request)
            self._ask(request, message, interest, internal=interest.confirmed)
        for request, pending in former.items():
            if pending.subject is None and not isinstance(pending.message, Separate):
                self._ask(request, pending.message)

    def answered(
        self, request: int, text: str, error: RequestRefusedError | None, missing: Sequence[str] = ()
    ) -> None:
        pending = self._requests.pop(request, None)
        stream = self._leaving.pop(request, 0)
        if stream:
            # Before this answer the broker sent whatever was under way in it.
            self._inbox.free_stream(stream)
        if pending is None:
            if error is not None:
                self._displaced(request, error)
            return  # nobody waits for it any more
        subject = pending.subject
        if isinstance(pending.message, Separate):
            self._answer_separate(pending.message, error)
        elif isinstance(subject, Interest):
            subject.missing = tuple(missing)
            self._answer_interest(subject, pending, text, error)
        elif isinstance(subject, _Advertised):
            subject.confirmed = True
            if error is not None:
                self._advertisements.pop(subject.number, None)
                if pending.internal:
                    note = {"filter": subject.text, "reason": str(error)}
                    self._emit(Note("warning", "an advertisement was not taken again", note))
        if not pending.internal:
            self._emit(Answered(request, text, error))

    def _answer_separate(self, message: Separate, error: RequestRefusedError | None) -> None:
        for interest in self._inbox.interests():
            if interest.separating == message.request and error is None:
                self._inbox.separated(interest, message.stream)
                return
            if interest.separating == message.request:
                interest.separating = 0
        # It was not separated, or has been ended meanwhile; then nothing more comes of it either.
        self._inbox.free_stream(message.stream)

    def _displaced(self, request: int, error: RequestRefusedError) -> None:
        """The broker takes back what it answered before.

        Somebody else reads the log now, or a subscription that is not read has held up others for too long.
        """
        for interest in self._inbox.interests():
            if interest.durable and interest.reader == request:
                interest.failure = error
                self._finish(interest)
            elif interest.stream and interest.separating == request:
                note = {"filter": str(interest.filter), "reason": str(error)}
                self._emit(Note("warning", "a subscription has to be read before it goes on", note))
                self._inbox.free_stream(interest.stream)
                self._inbox.sleep(interest)
                if not interest.line:
                    self.revive(interest)

    def _answer_interest(
        self, interest: Interest, pending: _Request, text: str, error: RequestRefusedError | None
    ) -> None:
        if error is not None:
            interest.failure = error
        if interest.replay_request and error is None:
            interest.replayed = text
            interest.failure = _incomplete(interest)
        if error is not None or interest.replay_request:
            self._finish(interest)
            return
        if text:
            try:
                interest.effective = Filter(text)
            except FilterError as problem:
                raise RemoteProtocolError(
                    f"the broker answered {pending.message} with a filter that cannot be read: {problem}"
                ) from None
        interest.confirmed = True
        self._inbox.narrowed(interest)

    def _finish(self, interest: Interest) -> None:
        """Nothing more comes for it, but what waits behind its queue is still to be read."""
        self._inbox.retire(interest)
        self._emit(Ended(interest))

    def disconnected(self, reason: str) -> None:
        """What may have been carried out is not asked for again; what was to be undone is undone."""
        for request, pending in list(self._requests.items()):
            if pending.subject is not None or not pending.sent:
                continue
            del self._requests[request]
            if pending.internal:
                continue
            error = None
            if not isinstance(pending.message, Unsubscribe | Unadvertise):
                error = ConnectionLostError(
                    f"the connection to the broker was lost before it answered: {reason}; "
                    "it may have done what it was asked for"
                )
            self._emit(Answered(request, "", error))

    def end_slow_consumers(self, reason: str) -> None:
        """So much waited at the broker for those who chose `disconnect` that it did just that."""
        for interest in self._inbox.interests():
            if interest.when_full == "disconnect" and not interest.durable:
                interest.failure = SlowConsumerError(f"the broker ended the subscription: {reason}")
                self._requests.pop(interest.request, None)
                self._finish(interest)

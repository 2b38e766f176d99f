"""What may the owner of a log do beside reading it?

From any of its connections, whichever client reads the log: make it, ask where it stands, acknowledge rows,
and pin rows that a consumer may come back for. So a program can spread the reading of one log over many
connections. A principal that may only replay a log of another one may also ask where it stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from braid.broker.confirmations import Installation
from braid.broker.parties import Client
from braid.broker.store_work import Answer
from braid.broker.waiters import Waiter, WaiterKind
from braid.errors import FilterError, RequestRefusedError
from braid.protocol.log import KeepSubscribed, Pin, PinRows
from braid.protocol.messages import Done

if TYPE_CHECKING:
    from typing import Any

    from braid.broker.durable_log import DurableLog
    from braid.broker.durable_logs import DurableLogs
    from braid.broker.events import Installed, NotInstalled
    from braid.broker.turn import Turn
    from braid.protocol.messages import AcknowledgeDurable, CreateDurable, LogStatus, PinLog

__all__ = ["LogOwners"]

# Consumers that may pin rows of one log; each is a row in the store and in every status.
PINS_MAX = 64
CONSUMER_LENGTH_MAX = 200
# No pin holds for longer, so that one which nobody takes away does not fill the disk for good.
PIN_LIFETIME_US_MAX = 400 * 24 * 3600 * 1_000_000


class LogOwners:
    """Answers the owners of logs."""

    def __init__(self, turn: Turn, logs: DurableLogs) -> None:
        self._turn = turn
        self._logs = logs

    def create(self, client: Client, message: CreateDurable) -> None:
        """Have a log, without reading it."""
        try:
            log = self._logs.making.had(client, message)
        except (FilterError, RequestRefusedError) as error:
            self._turn.fail(client, message.request, error)
            return
        self._logs.install(
            log,
            Installation(
                self._logs.subscription(log),
                None,
                Waiter(WaiterKind.LOG_CREATED, client, log.key, message.request),
                partial=message.partial,
                deadline_us=self._turn.now_us + message.patience_us if message.patience_us > 0 else None,
            ),
        )

    def installed(self, event: Installed) -> None:
        """A log collects from everywhere: the client that made it hears so when it is safe, too."""
        waiter = event.waiter
        log = self._logs.logs.get(waiter.key)
        if waiter.kind is WaiterKind.LOG_CREATED and isinstance(waiter.party, Client) and log is not None:
            done = Done(waiter.request, self._status(log), list(event.missing))
            self._logs.work.when_safe(Answer(waiter.party, done))

    def not_installed(self, event: NotInstalled) -> None:
        """The log is there, and collects what it can."""
        waiter = event.waiter
        if waiter.kind is WaiterKind.LOG_CREATED and isinstance(waiter.party, Client):
            self._turn.fail(waiter.party, waiter.request, event.error)

    def status(self, client: Client, message: LogStatus) -> None:
        """Say where a log stands."""
        try:
            log = self._logs.readable(client, message.name, message.secret)
        except RequestRefusedError as error:
            self._turn.fail(client, message.request, error)
            return
        self._turn.tell(client, Done(message.request, self._status(log)))

    def subscribed(self, log: DurableLog) -> None:
        """A client reads a log now, and goes on later after what it has acknowledged, whenever that is."""
        if not log.subscribed:
            log.subscribed = True
            self._logs.work.ask(KeepSubscribed(log.key))

    def acknowledge(self, client: Client, message: AcknowledgeDurable) -> None:
        """Rows are done with, where no subscriber has still to see them."""
        try:
            log = self._owned(client, message)
            if not -1 <= message.offset < log.safe_offset:
                raise RequestRefusedError(
                    f"offset {message.offset} of {message.name!r} cannot be acknowledged: the last that is "
                    f"safely stored is {log.safe_offset - 1}",
                    "argument",
                )
            if log.subscribed and message.offset > log.acknowledged:
                raise RequestRefusedError(
                    f"{message.name!r} has a subscriber, which goes on after what it acknowledged itself: "
                    f"offset {log.acknowledged} at present. No other acknowledges for it",
                    "subscribed",
                )
        except RequestRefusedError as error:
            self._turn.fail(client, message.request, error)
            return
        self._logs.done_with(log, message.offset)
        self._logs.work.when_safe(Answer(client, Done(message.request)))

    def pin(self, client: Client, message: PinLog) -> None:
        """Keep rows for a consumer that may go back, or let them go."""
        try:
            log = self._owned(client, message)
            if not 0 < len(message.consumer) <= CONSUMER_LENGTH_MAX:
                raise RequestRefusedError(
                    f"a consumer has a name of 1 to {CONSUMER_LENGTH_MAX} characters, and this one "
                    f"{len(message.consumer)}",
                    "argument",
                )
            if not 0 < message.lifetime_us <= PIN_LIFETIME_US_MAX:
                raise RequestRefusedError(
                    f"a pin holds for up to {PIN_LIFETIME_US_MAX // 86_400_000_000} days, not for "
                    f"{message.lifetime_us} microseconds",
                    "argument",
                )
            if message.offset > log.next_offset:
                raise RequestRefusedError(
                    f"offset {message.offset} of {message.name!r} is beyond its end, {log.next_offset}",
                    "argument",
                )
            self._forget_expired(log)
            if message.offset >= 0 and message.consumer not in log.pins and len(log.pins) >= PINS_MAX:
                raise RequestRefusedError(f"more than {PINS_MAX} consumers pin rows of this log", "limit")
        except RequestRefusedError as error:
            self._turn.fail(client, message.request, error)
            return
        expires_at_us = self._turn.now_us + message.lifetime_us
        log.pins.pop(message.consumer, None)
        if message.offset >= 0:
            log.pins[message.consumer] = Pin(message.consumer, message.offset, expires_at_us)
        self._logs.work.ask(PinRows(log.key, message.consumer, max(message.offset, -1), expires_at_us))
        self._logs.work.when_safe(Answer(client, Done(message.request)))
        self._logs.stored.review(log.owner)

    def _forget_expired(self, log: DurableLog) -> None:
        for consumer in [name for name, pin in log.pins.items() if pin.expires_at_us <= self._turn.now_us]:
            del log.pins[consumer]
            self._logs.work.ask(PinRows(log.key, consumer, -1, 0))

    def _owned(self, client: Client, message: AcknowledgeDurable | PinLog) -> DurableLog:
        """A log of the client's own, and the one that it means."""
        log = self._logs.readable(client, message.name, message.secret)
        if log.owner != client.principal.name:
            raise RequestRefusedError(f"only its owner decides what of {message.name!r} is kept", "denied")
        if message.id and message.id != log.id:
            raise RequestRefusedError(
                f"the log of {message.name!r} is another one than you mean: it was dropped and made anew",
                "reset",
            )
        return log

    def _status(self, log: DurableLog) -> str:
        answer: dict[str, Any] = {
            "name": log.name,
            "key": log.key,
            "id": log.id,
            "filter": log.filter.text,
            "when_full": log.when_full,
            "shard": log.shard,
            "shards": log.shards,
            "copies": log.copies,
            "keeper": log.copying.keeper if log.copying is not None else "",
            "first": log.first_offset,
            "safe": log.safe_offset,
            "next": log.next_offset,
            "acknowledged": log.acknowledged,
            "bytes": self._logs.stored.bytes_of(log),
            "read": log.reader is not None,
            "subscribed": log.subscribed,
            "epochs": log.epochs.entries,
            "pins": [
                {"consumer": pin.consumer, "offset": pin.offset, "expires_at_us": pin.expires_at_us}
                for _, pin in sorted(log.pins.items())
            ],
        }
        return msgspec.json.encode(answer).decode()

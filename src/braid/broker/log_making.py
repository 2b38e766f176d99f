"""May a client have the log that it asks for, and what is a new one like?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.broker.access import ANONYMOUS
from braid.broker.log_secrets import LogSecrets, digest_of
from braid.broker.parties import class_of
from braid.errors import RequestRefusedError
from braid.protocol.log import CreateLog
from braid.protocol.messages import CreateDurable, SubscribeDurable

if TYPE_CHECKING:
    from braid.broker.durable_log import DurableLog
    from braid.broker.durable_logs import DurableLogs
    from braid.broker.parties import Client
    from braid.broker.turn import Turn

__all__ = ["LogMaking", "unknown_durable"]

NAME_LENGTH_MAX = 200
SHARDS_MAX = 1024
COPIES_MAX = 1


class LogMaking:
    """Has the logs that clients ask for.

    Args:
        turn: what all handlers share.
        logs: those there are.
        secrets: of anonymous clients.
        kept: whether there is a store at all.
        epoch: the name of this start, unlike that of any other.
    """

    def __init__(self, turn: Turn, logs: DurableLogs, secrets: LogSecrets, *, kept: bool, epoch: str) -> None:
        self._turn = turn
        self._logs = logs
        self._secrets = secrets
        self._kept = kept
        self._epoch = epoch
        self._created_here = 0

    def had(self, client: Client, message: SubscribeDurable | CreateDurable) -> DurableLog:
        """The log that a client asks for, made if there is none.

        Raises:
            RequestRefusedError, FilterError: it cannot be had, and here is why.
        """
        if not self._kept:
            raise RequestRefusedError(
                "this broker keeps nothing on disk: start it with a data directory", "store"
            )
        self._logs.require_readable(client, message.name)
        log = self._logs.of(client, message.name)
        if log is None:
            return self._created(client, message)
        self._secrets.require(client, log, message.secret)
        if isinstance(message, SubscribeDurable):
            self._require_free(client, log, takeover=message.takeover)
        self._require_same(client, log, message)
        return log

    def _created(self, client: Client, message: SubscribeDurable | CreateDurable) -> DurableLog:
        if not 0 < len(message.name) <= NAME_LENGTH_MAX:
            raise RequestRefusedError(
                f"the name of a durable subscription has 1 to {NAME_LENGTH_MAX} characters, "
                f"not {len(message.name)}"
            )
        if class_of(message.when_full) is None:
            raise RequestRefusedError(f"when_full cannot be {message.when_full!r}")
        if not message.filter:
            raise unknown_durable(message.name)
        if not 0 <= message.copies <= COPIES_MAX:
            raise RequestRefusedError(
                f"copies can be 0 or {COPIES_MAX}, not {message.copies}: so many neighbours keep its rows"
            )
        self._turn.quotas.require_subscription(client.principal)
        filter = client.principal.permitted_subscription(client.principal.asked_filter(message.filter))
        self._logs.require_carried(filter)
        log = self._logs.empty(message.name, client.principal.name, filter, message.when_full)
        if log.owner == ANONYMOUS and message.secret:
            log.secret = digest_of(message.secret)
        if isinstance(message, CreateDurable):
            if not (1 <= message.shards <= SHARDS_MAX and 0 <= message.shard < message.shards):
                raise RequestRefusedError(
                    f"there are 1 to {SHARDS_MAX} shards, counted from 0: {message.shard} of {message.shards}"
                )
            log.shard, log.shards = message.shard, message.shards
        log.copies = message.copies
        self._logs.copies.require_keeper(log)
        self._created_here += 1
        log.id = f"{self._epoch}.{self._created_here}"
        self.keep(log)
        self._logs.copies.made(log)
        return log

    def keep(self, log: DurableLog) -> None:
        """There is a log from now on, here and in the store; it is empty, and begins where it says."""
        self._logs.enter(log)
        self._logs.work.ask(
            CreateLog(
                log.key,
                log.owner,
                log.filter.text,
                log.when_full,
                self._turn.now_us,
                log.secret,
                log.id,
                log.shard,
                log.shards,
                log.copies,
                first_offset=log.first_offset,
            )
        )

    def _require_free(self, client: Client, log: DurableLog, *, takeover: bool) -> None:
        """Refuse a second reader, unless it said that the first is to stop.

        The first may be a former connection of the same client, whose end has not been noticed here.
        """
        reader = log.reader
        if reader is None or reader is client or reader.is_again(client) or takeover:
            return
        raise RequestRefusedError(
            f"the durable subscription {log.name!r} is being read by another connection, of the client "
            f"{reader.name!r}; takeover=True ends that",
            "taken",
        )

    def _require_same(
        self, client: Client, log: DurableLog, message: SubscribeDurable | CreateDurable
    ) -> None:
        """Refuse a client that may not read the log, or takes it for another one."""
        permitted = self._logs.require_reader(client, log)
        log.permitted = permitted  # the grant may have changed since the log was made
        if isinstance(message, CreateDurable) and (message.shard, message.shards) != (log.shard, log.shards):
            raise RequestRefusedError(
                f"durable subscription {log.name!r} is shard {log.shard} of {log.shards}; drop it first",
                "conflict",
            )
        if message.copies > log.copies:
            raise RequestRefusedError(
                f"durable subscription {log.name!r} was made without copies, and copies={message.copies} is "
                "asked for; drop it first",
                "conflict",
            )
        if not message.filter:
            return
        asked = client.principal.asked_filter(message.filter)
        if asked != log.filter and client.principal.permitted_subscription(asked) != permitted:
            raise RequestRefusedError(
                f"durable subscription {log.name!r} has the filter {log.filter}; drop it first, or resume it "
                "without a filter",
                "conflict",
            )


def unknown_durable(name: str) -> RequestRefusedError:
    """The error for a log that is not there."""
    return RequestRefusedError(f"there is no durable subscription {name!r}", "unknown")

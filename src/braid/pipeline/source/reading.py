"""How does Spark read logs: a batch once, a stream for ever?

Partitions are ranges of offsets. A task replays its range over a connection of its own and makes Arrow
columns of it; a range that is not there as a whole is an error, never a shorter answer. Where a stream stands
is in Spark's checkpoint. The broker hears of it with a pin, one batch behind what is committed, and
acknowledges what no consumer of the log may go back to.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow

from braid.errors import RequestRefusedError
from braid.pipeline.source.connecting import connected, opened_secret
from braid.pipeline.source.decoding import Decoding
from braid.pipeline.source.errors import SourceError, UnknownLogError, as_sentences
from braid.pipeline.source.offsets import LogRange, cut, limited, place, require_same
from braid.pipeline.source.options import EARLIEST, LATEST
from braid.pipeline.source.pushdown import Pushed
from braid.pipeline.source.schema import attribute_fields
from braid.runtime.client_secrets import DurableSecrets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from braid.pipeline.source.options import SourceOptions
    from braid.runtime import DurableStatus, SyncClient

__all__ = ["LogReader", "LogStreamReader", "Logs", "PushingLogReader"]

logger = logging.getLogger(__name__)

# A pin is moved at the latest after this share of its life.
PIN_RENEWED_SHARE = 0.25


class Logs:
    """The logs of one query, and a client for each broker that has some of them."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.places = options.places()
        self._clients: dict[str, SyncClient] = {}
        self._secrets = DurableSecrets()

    def client(self, broker: str) -> SyncClient:
        """A connection to a broker, opened when it is first needed."""
        client = self._clients.get(broker)
        if client is None or client.closed:
            client = connected(broker, self.options.credentials, self.options.connect_timeout_s)
            self._clients[broker] = client
        return client

    def secret(self, name: str) -> str | None:
        """What tasks show to read a log of an anonymous owner, since they may run as another user."""
        credentials = self.options.credentials
        if credentials.token or credentials.token_file or credentials.token_env:
            return None
        return self._secrets.of(name, opened_secret(credentials))

    def range(
        self, broker: str, status: DurableStatus, epoch: str, first: int, last: int, log_id: str | None = None
    ) -> LogRange:
        """A range of a log, with what a task needs to read it."""
        key = status.key if self.options.task_credentials is not None else ""
        secret = self.secret(status.name)
        return LogRange(broker, status.name, log_id or status.id, epoch, first, last, secret, key)

    def create(self) -> dict[str, DurableStatus]:
        """Have the logs, made where they are not there, and say where they stand."""
        options = self.options
        if not options.filter:
            return self.statuses()
        found = {}
        for number, (broker, name) in enumerate(self.places):
            try:
                found[name] = self.client(broker).create_durable(
                    name,
                    options.filter,
                    when_full=options.when_full,
                    secret=self.secret(name),
                    shard=(number, options.shards),
                )
            except RequestRefusedError as error:
                if error.code == "conflict":
                    raise SourceError(
                        f"{error}. A stream's filter is fixed with its log: another filter is another log, "
                        "so give another name with the option 'log', or drop this log first"
                    ) from None
                raise
        return found

    def statuses(self) -> dict[str, DurableStatus]:
        """Where the logs stand."""
        found = {}
        for broker, name in self.places:
            try:
                found[name] = self.client(broker).log_status(name, secret=self.secret(name))
            except RequestRefusedError as error:
                if error.code == "unknown":
                    raise UnknownLogError(
                        f"{error} at {broker}; a stream with a schema makes it when the option 'filter' says "
                        "what for, and client.create_durable does"
                    ) from None
                raise
        return found

    def filters(self) -> list[str]:
        """What the logs are for; of logs that are still to be made, what they will be for."""
        try:
            return [status.filter for status in self.statuses().values()]
        except UnknownLogError:
            if not self.options.filter:
                raise
            return [self.options.filter]

    def sample(self) -> list[bytes]:
        """Records from the beginning and the end of the logs; none where they are still to be made."""
        records: list[bytes] = []
        try:
            statuses = self.statuses()
        except UnknownLogError:
            if not self.options.filter:
                raise
            return records
        for (broker, name), status in zip(self.places, statuses.values(), strict=True):
            half = max(1, self.options.sample_rows // 2)
            end = status.safe
            middle = min(end, status.first + half)
            for first, stop in ((status.first, middle), (max(middle, end - half), end)):
                if first < stop:
                    replay = self.client(broker).replay_records(
                        name, first, stop - 1, log=status.id, secret=self.secret(name)
                    )
                    records += [row[2] for piece in replay for row in piece.rows]
        return records

    def close(self) -> None:
        """Leave all brokers."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()


def _read(
    part: LogRange, options: SourceOptions, schema: StructType, pushed: Pushed, own_filter: str
) -> Iterator[pa.RecordBatch]:
    """The rows of one range, over a connection of its own."""
    decoding = Decoding(schema)
    asked = pushed.filter(own_filter) or None
    columns = None
    if (asked is not None or options.push_columns) and not {"_body", "_content_type"} & set(schema.names):
        columns = [field.name for field in attribute_fields(schema)]
    first, epoch = part.first, part.epoch
    credentials = options.task_credentials or options.credentials
    asked_name = part.key or part.name
    with connected(part.broker, credentials, options.connect_timeout_s) as client:
        while True:
            replay = client.replay_records(
                asked_name,
                first,
                part.last,
                filter=asked,
                columns=columns,
                log=part.log_id,
                epoch=epoch,
                secret=part.secret,
            )
            try:
                for piece in replay:
                    if asked is None:
                        _require_next(part.name, first, piece.offsets)
                    first = piece.offsets[-1] + 1
                    batch = pushed.apply(decoding.batch(part.name, piece))
                    if batch.num_rows:
                        yield batch
                if asked is None:
                    _require_next(part.name, first, range(part.last + 1, part.last + 1))
                break
            except RequestRefusedError as error:
                if error.code == "limit" and asked != (own_filter or None):
                    # This broker takes no filter as long as that; what was pushed is decided here as well.
                    logger.info("the log %r is read without what was pushed: %s", part.name, error)
                    asked = own_filter or None
                    continue
                if error.code != "trimmed" or options.fail_on_data_loss:
                    raise
                oldest = client.log_status(asked_name, secret=part.secret).first
                logger.warning(
                    "rows %d to %d of the log %r are lost, and the query goes on",
                    first,
                    oldest - 1,
                    part.name,
                )
                if oldest > part.last:
                    break
                first, epoch = max(first, oldest), ""
    if decoding.mistyped:
        logger.warning(
            "%d values of the log %r have another type than their column and are NULL",
            decoding.mistyped,
            part.name,
        )


def _require_next(name: str, first: int, offsets: Sequence[int]) -> None:
    """A `SourceError` where rows are left out before these, or among them."""
    begin = offsets.start if isinstance(offsets, range) else offsets[0]
    if begin != first or (offsets and offsets[-1] + 1 - begin != len(offsets)):
        raise SourceError(
            f"rows of the log {name!r} from offset {first} on are missing in the broker's answer, which is "
            "about all of them; nothing was left out in silence, and the query can be run again"
        )


class LogReader(DataSourceReader):
    """Reads logs once."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._pushed = Pushed()

    def partitions(self) -> Sequence[LogRange]:
        """Ranges of offsets, from the starting to the ending offset."""
        options = self._options
        with as_sentences():
            logs = Logs(options)
            try:
                ranges = []
                for (broker, name), status in zip(logs.places, logs.statuses().values(), strict=True):
                    first = _asked_offset(name, status, options.starting)
                    end = _asked_offset(name, status, options.ending)
                    if first < status.first:
                        at = {"id": status.id, "next": first}
                        first = require_same(name, status, at, fail_on_data_loss=options.fail_on_data_loss)
                    if first < end:
                        epoch = status.epoch_at(first - 1)
                        ranges.append(logs.range(broker, status, epoch, first, end - 1))
            finally:
                logs.close()
        # Without a partition Spark would ask for one that cannot be read.
        return cut(ranges, options.rows_per_partition, options.max_partitions) or [_NOTHING]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The rows of one range."""
        if partition != _NOTHING:
            with as_sentences():
                yield from _read(partition, self._options, self._schema, self._pushed, self._options.filter)


class PushingLogReader(LogReader):
    """Reads logs once, and lets the broker apply predicates."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Accept what can be applied exactly."""
        yield from self._pushed.accept(filters, self._schema, self._options.filter)


def _asked_offset(name: str, status: DurableStatus, wish: str | dict[str, int]) -> int:
    """The offset that an option means in a log, or a `SourceError`."""
    if wish == EARLIEST:
        return status.first
    if wish == LATEST or isinstance(wish, str):
        return status.safe
    if wish[name] > status.safe:
        raise SourceError(
            f"offset {wish[name]} of the log {name!r} is beyond its end: its next row gets the offset "
            f"{status.next}, and rows up to {status.safe - 1} are safely stored"
        )
    return wish[name]


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads logs as they grow. Everything but `read` runs in one process beside the driver."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._logs: Logs | None = None
        self._initial: dict[str, Any] | None = None
        self._bound: dict[str, int] | None = None
        """Where a query that takes what is available now ends."""
        self._committed: dict[str, Any] | None = None
        self._pinned: dict[str, tuple[int, float]] = {}
        """By log: where our pin is, and when it was set."""

    def _open(self) -> Logs:
        if self._logs is None:
            self._logs = Logs(self._options)
        return self._logs

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins. Spark asks twice, and gets the same answer."""
        with as_sentences():
            if self._initial is None:
                found = {}
                for name, status in self._open().create().items():
                    at = _asked_offset(name, status, self._options.starting)
                    if at < status.first:
                        wish = {"id": status.id, "next": at}
                        at = require_same(
                            name, status, wish, fail_on_data_loss=self._options.fail_on_data_loss
                        )
                    found[name] = place(status, at)
                self._initial = found
            return self._initial

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far the next batch goes: never beyond what is safely stored."""
        with as_sentences():
            statuses = self._open().statuses()
            starts = self._starts(statuses, start)
            self._hold(statuses, starts)
            ends = {name: status.safe for name, status in statuses.items()}
            if self._bound is not None:
                ends = {name: min(end, self._bound.get(name, end)) for name, end in ends.items()}
            ends = {name: max(end, starts[name]) for name, end in ends.items()}
            rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            ends = limited(starts, ends, rows_max)
            return {
                # Without new rows the offset is the same to the letter, so that Spark makes no batch of it.
                name: start[name] if ends[name] == start[name]["next"] else place(status, ends[name])
                for name, status in statuses.items()
            }

    def _starts(self, statuses: Mapping[str, DurableStatus], start: Mapping[str, Any]) -> dict[str, int]:
        if set(start) != set(statuses):
            raise SourceError(
                f"the checkpoint is about the logs {', '.join(sorted(start))}, and this query reads "
                f"{', '.join(sorted(statuses))}; a changed 'log' or 'shards' needs a new checkpoint"
            )
        lossy = not self._options.fail_on_data_loss
        return {
            name: require_same(name, status, start[name], fail_on_data_loss=not lossy)
            for name, status in statuses.items()
        }

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the option `maxRowsPerTrigger` says."""
        rows = self._options.max_rows_per_trigger
        return ReadMaxRows(rows) if rows else ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The end of what is safely stored, for the progress of the query."""
        with as_sentences():
            return {name: place(status, status.safe) for name, status in self._open().statuses().items()}

    def prepareForTriggerAvailableNow(self) -> None:
        """The query ends with what is here at this moment."""
        with as_sentences():
            self._bound = {name: status.safe for name, status in self._open().create().items()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[LogRange]:
        """Ranges of offsets."""
        with as_sentences():
            logs = self._open()
            ranges = []
            statuses = logs.statuses()
            for broker, name in logs.places:
                first, last = start[name]["next"], end[name]["next"] - 1
                epoch = start[name].get("epoch", "")
                status = statuses[name]
                if not self._options.fail_on_data_loss and status.first > first:
                    first, epoch = status.first, ""
                if first <= last:
                    ranges.append(logs.range(broker, status, epoch, first, last, end[name]["id"]))
            return cut(ranges, self._options.rows_per_partition, self._options.max_partitions)

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The rows of one range; this runs on an executor."""
        with as_sentences():
            yield from _read(partition, self._options, self._schema, Pushed(), "")

    def commit(self, end: dict[str, Any]) -> None:
        """Everything before `end` is in the sink.

        Spark says so when it plans the batch after; so the former end is the oldest it may go back to.
        """
        with as_sentences():
            former, self._committed = self._committed, end
            if former is not None:
                statuses = self._open().statuses()
                self._pin(statuses, {name: each["next"] for name, each in former.items()})
                self._acknowledge(statuses)

    def _hold(self, statuses: Mapping[str, DurableStatus], starts: Mapping[str, int]) -> None:
        """Have the rows kept that this query has not read, before anything is committed."""
        if self._committed is None:
            self._committed = {name: place(status, starts[name]) for name, status in statuses.items()}
            self._pin(statuses, starts)
            return
        due_s = time.monotonic() - self._options.pin_s * PIN_RENEWED_SHARE
        old = {name: at for name, (at, set_s) in self._pinned.items() if set_s < due_s}
        if old:
            self._pin(statuses, old)

    def _pin(self, statuses: Mapping[str, DurableStatus], offsets: Mapping[str, int]) -> None:
        logs = self._open()
        for broker, name in logs.places:
            if name in offsets:
                logs.client(broker).pin_log(
                    name,
                    self._options.consumer,
                    offsets[name],
                    lifetime_s=self._options.pin_s,
                    log=statuses[name].id,
                    secret=logs.secret(name),
                )
                self._pinned[name] = (offsets[name], time.monotonic())

    def _acknowledge(self, statuses: Mapping[str, DurableStatus]) -> None:
        """What no consumer may go back to is done with; it is not removed before the retention says so."""
        logs = self._open()
        for broker, name in logs.places:
            status = statuses[name]
            others = [pin.offset for pin in status.pins if pin.consumer != self._options.consumer]
            done = min([self._pinned[name][0], *others]) - 1
            # A subscriber goes on after what is acknowledged, so that only it may say what that is.
            if done > status.acknowledged and not status.subscribed:
                try:
                    logs.client(broker).acknowledge_log(name, done, log=status.id, secret=logs.secret(name))
                except RequestRefusedError as error:
                    if error.code != "subscribed":  # somebody has subscribed since
                        raise

    def stop(self) -> None:
        """The query has ended."""
        if self._logs is not None:
            self._logs.close()


_NOTHING = LogRange("", "", "", "", 0, -1)

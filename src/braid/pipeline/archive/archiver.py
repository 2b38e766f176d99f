"""How does what a log has come into an archive, each row once?

The archive itself says how far it is: where its last file ends. Rows from there on are pinned at the broker,
read, written and merged; only then does the pin move, and rows that no consumer of the log needs are
acknowledged, so that they may go when the broker's retention says so. A crash anywhere repeats some reading
and loses nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from braid.errors import ConfigurationError, RequestRefusedError
from braid.language import Range
from braid.pipeline.archive.segments import Segments, archive_schema
from braid.protocol.batch import decode_heads
from braid.protocol.publisher_names import publisher_and_epoch
from braid.runtime.store.lock import DirectoryLock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    from braid.client import StoredRecords
    from braid.runtime import DurableStatus, SyncClient

__all__ = ["Archiver"]

# How long the broker keeps rows for an archiver that does not come back.
PIN_LIFETIME_S = 30 * 86_400.0


class Archiver:
    """Keeps one log in a folder of Parquet files.

        with Archiver(client, "orders", "archive/orders") as archiver:
            archiver.run()

    Args:
        client: of the log's owner.
        log: the durable subscription.
        folder: the archive, which is made if it is not there. One archiver at a time uses it.
        rows_per_file: rows of a file before files are merged.
        consumer: what the pin is called.

    Raises:
        StoreError: another process uses the folder.
        ConfigurationError: the folder has another log, or something else.
    """

    def __init__(
        self,
        client: SyncClient,
        log: str,
        folder: Path | str,
        *,
        rows_per_file: int = 1_000_000,
        consumer: str = "archive",
    ) -> None:
        if rows_per_file < 1:
            raise ConfigurationError(f"rows_per_file is at least 1, not {rows_per_file}")
        self._client = client
        self._log = log
        self._rows_per_file = rows_per_file
        self._consumer = consumer
        self.segments = Segments(folder)
        self.segments.folder.mkdir(parents=True, exist_ok=True)
        self._lock = DirectoryLock(self.segments.folder)

    def run(self) -> int:
        """Archive what the log has safely stored by now; returns how many rows that were.

        Raises:
            ConfigurationError: it is another log than before, or rows are gone that were not archived.
        """
        status = self._client.log_status(self._log)
        first = self._next(status)
        self._pin(status, first)
        archived = 0
        while first < status.safe:
            end = min(first + self._rows_per_file, status.safe)
            self.segments.write(first, end, status.epoch_at(end - 1), self._rows(status, first, end))
            archived += end - first
            first = end
            self.segments.merge()
            self._pin(status, first)
        self._acknowledge(status, first)
        return archived

    def _next(self, status: DurableStatus) -> int:
        """Where the archive goes on."""
        head = self.segments.head()
        if head is None:
            self.segments.begin(self._log, status.id, status.filter)
            return status.first
        if head["id"] != status.id:
            raise ConfigurationError(
                f"the archive {self.segments.folder} is that of another log than {self._log!r} is now (its "
                f"id was {head['id']}, and is {status.id}); archive into another folder"
            )
        segments = self.segments.listed()
        if not segments:
            return status.first
        last = segments[-1]
        known, here = last.last_epoch(), status.epoch_at(last.end - 1)
        if last.end > status.next or (known and here and known != here):
            raise ConfigurationError(
                f"the log {self._log!r} lacks the rows that are archived up to offset {last.end - 1}: "
                "it was restored from a backup, or its broker lost its data; archive into another folder"
            )
        if last.end < status.first:
            raise ConfigurationError(
                f"rows {last.end} to {status.first - 1} of {self._log!r} are gone, and were not archived: "
                "the archiver was away for longer than its pin holds; archive into another folder"
            )
        return last.end

    def _rows(self, status: DurableStatus, first: int, end: int) -> Iterator[Any]:
        epoch = status.epoch_at(first - 1)
        replay = self._client.replay_records(self._log, first, end - 1, log=status.id, epoch=epoch)
        following = first
        for piece in replay:
            if piece.offsets[0] != following or piece.offsets[-1] + 1 - following != len(piece.offsets):
                raise ConfigurationError(
                    f"some rows of {self._log!r} from offset {following} on are not for its owner any more, "
                    "who may subscribe to less than before; so the log cannot be archived whole"
                )
            following = piece.offsets[-1] + 1
            yield _batch(piece)
        if following != end:
            raise ConfigurationError(
                f"some rows of {self._log!r} from offset {following} on are not for its owner any more"
            )

    def _pin(self, status: DurableStatus, offset: int) -> None:
        self._client.pin_log(self._log, self._consumer, offset, lifetime_s=PIN_LIFETIME_S, log=status.id)

    def _acknowledge(self, status: DurableStatus, archived: int) -> None:
        """What nobody else has still to read is done with."""
        if status.subscribed:
            return  # its subscriber says so, also when it is not here at the moment
        others = [pin.offset for pin in status.pins if pin.consumer != self._consumer]
        done = min([archived, *others]) - 1
        if done > status.acknowledged:
            try:
                self._client.acknowledge_log(self._log, done, log=status.id)
            except RequestRefusedError as error:
                if error.code != "subscribed":  # somebody has subscribed since
                    raise

    def close(self) -> None:
        """Give the folder free. The pin stays, so that nothing is lost until the next run."""
        self._lock.release()

    def __enter__(self) -> Archiver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _batch(piece: StoredRecords) -> Any:
    """Rows as the files have them."""
    import pyarrow as pa

    packed = piece.packed
    records = packed.record_list()
    heads = decode_heads(records)
    names = [publisher_and_epoch(name) for name in packed.publishers]
    places = pa.array(packed.publisher_places())
    columns = [
        pa.array([*piece.offsets], pa.int64()),
        pa.repeat(pa.scalar(piece.log_epoch), len(records)),
        pa.array([name for name, _ in names], pa.string()).take(places),
        pa.array([epoch for _, epoch in names], pa.string()).take(places),
        pa.array(packed.sequence_numbers()),
        pa.array([head.published_at_us for head in heads], pa.timestamp("us", tz="UTC")),
        pa.array([_as_json(head.attributes) for head in heads], pa.string()),
        pa.array(records, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=archive_schema())


_encode = msgspec.json.Encoder().encode


def _as_json(attributes: dict[str, Any]) -> str:
    if Range in map(type, attributes.values()):
        attributes = {
            name: [value.low, value.high] if type(value) is Range else value
            for name, value in attributes.items()
        }
    return _encode(attributes).decode()

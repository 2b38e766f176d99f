"""How is what happened written down, cheaply and so that a crash leaves nothing half-written?

`DIR/<kind>/<writer>-<serial>.parquet`: a file is written under a hidden name beside its place, brought to
disk and then renamed, so whatever has its proper name is complete. The same calls give the same bytes: no
clock and no chance is in a file.

Noting something only appends to a list. Rows are made of it when there are enough of them, or when the oldest
is old enough by the records' own time; with `background`, by a thread. What such a thread cannot keep up
with is dropped and counted: whoever is traced never waits for the trace.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self

from braid.errors import ConfigurationError, LocalProtocolError, TraceError
from braid.trace.columns import arrow_table
from braid.trace.records import (
    FILE_SUFFIX,
    KIND_KEY,
    KINDS,
    TABLES,
    TRACE_VERSION,
    VERSION_KEY,
    WRITER_KEY,
    require_pyarrow,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from braid.protocol import PublicationBatch

__all__ = ["TraceWriter", "parquet_writer"]

# Hidden names and those with an underscore in front are skipped by Spark and by our reader.
_WRITER_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_NEVER_US: Final = 2**63
_CLOSED_US: Final = -(2**63)
# Rows that may wait for the thread, as a multiple of `rows_max`. Each takes less than half a kilobyte.
_WAITING_MAX: Final = 4


class _Held:
    """What is noted of one table and in no file yet."""

    __slots__ = ("kind", "room", "values")

    def __init__(self, kind: str, rows_max: int) -> None:
        self.kind = kind
        self.room = rows_max
        """Rows until there are enough for a file."""
        self.values: list[Any] = []
        """Entries one behind the other, see `columns`."""


class TraceWriter:
    """Writes the trace of one simulation or broker. All calls come from one thread."""

    __slots__ = (
        "_age_us_max",
        "_delivery",
        "_done_with",
        "_dropped_behind",
        "_dropped_failed",
        "_due_us",
        "_handed_over",
        "_held",
        "_hop",
        "_publication",
        "_queue",
        "_rows_max",
        "_serials",
        "_thread",
        "directory",
        "problem",
        "writer",
    )

    def __init__(
        self,
        directory: Path,
        writer: str,
        *,
        rows_max: int = 200_000,
        age_us_max: int | None = None,
        background: bool = False,
    ) -> None:
        """
        Args:
            directory: where the trace is kept; several writers may share it.
            writer: the name in front of this writer's files, unlike those of all others there.
            rows_max: rows of one table that are held before they become a file.
            age_us_max: how long a record is held at most, by the times of the records that follow it.
            background: make files in a thread, and drop rows rather than wait for it.

        Raises:
            ConfigurationError: the name cannot be used, or nothing can be written there.
        """
        if not _WRITER_NAME.fullmatch(writer):
            raise ConfigurationError(
                "the name of a trace's writer has 1 to 100 letters, digits, dots, dashes and underscores "
                f"and begins with a letter or digit; {writer!r} does not fit"
            )
        if rows_max < 1:
            raise ConfigurationError(f"a trace holds at least 1 row per file, not {rows_max}")
        require_pyarrow()
        self.directory = directory
        self.writer = writer
        self.problem = ""
        """Why the thread has stopped writing; empty as long as it goes on."""
        self._rows_max = rows_max
        self._age_us_max = age_us_max
        self._due_us = _NEVER_US if age_us_max is None else _CLOSED_US + 1
        self._held = {kind: _Held(kind, rows_max) for kind in KINDS}
        self._publication = self._held["publication"]
        self._hop = self._held["hop"]
        self._delivery = self._held["delivery"]
        self._serials = _prepared(directory, writer)
        self._queue: SimpleQueue[tuple[str, list[Any], int] | None] = SimpleQueue()
        # Rows that were handed to the thread, and that it is done with: each is counted by one thread only.
        self._handed_over = 0
        self._done_with = 0
        self._dropped_behind = 0
        self._dropped_failed = 0
        self._thread: Thread | None = None
        if background:
            self._thread = Thread(target=self._work, name=f"trace of {writer}", daemon=True)
            self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def dropped_rows(self) -> int:
        """Rows that are in no file, because the thread was behind or could not write."""
        return self._dropped_behind + self._dropped_failed

    # Batches: each of their publications becomes a row.

    def publication(
        self, at_us: int, broker: str, batch: PublicationBatch, expected: int | None = None
    ) -> None:
        """Publications have entered the network at a broker."""
        count = len(batch)
        numbers = batch.first if count == 1 else (batch.base, batch.offsets)
        held = self._publication
        held.values.extend(
            (
                at_us,
                batch.publisher,
                numbers,
                broker,
                batch.size,
                expected,
                count,
            )
        )
        held.room -= count
        if held.room <= 0 or at_us >= self._due_us:
            self._full(held, at_us)

    def hop(
        self,
        at_us: int,
        sent_at_us: int | None,
        source: str,
        target: str,
        link: str,
        batch: PublicationBatch,
    ) -> None:
        """Publications have arrived at a broker from its neighbour."""
        count = len(batch)
        numbers = batch.first if count == 1 else (batch.base, batch.offsets)
        held = self._hop
        held.values.extend(
            (
                at_us,
                sent_at_us,
                batch.publisher,
                numbers,
                source,
                target,
                batch.hops,
                link,
                batch.size,
                count,
            )
        )
        held.room -= count
        if held.room <= 0 or at_us >= self._due_us:
            self._full(held, at_us)

    def delivery(self, at_us: int, broker: str, subscriber: str, batch: PublicationBatch) -> None:
        """Publications were handed to a client."""
        count = len(batch)
        numbers = batch.first if count == 1 else (batch.base, batch.offsets)
        held = self._delivery
        held.values.extend(
            (
                at_us,
                batch.publisher,
                numbers,
                broker,
                subscriber,
                batch.hops,
                count,
            )
        )
        held.room -= count
        if held.room <= 0 or at_us >= self._due_us:
            self._full(held, at_us)

    # Single rows, in the order of their columns.

    def subscription(
        self, at_us: int, broker: str, subscriber: str, key: str, filter: str, action: str
    ) -> None:
        """A client subscribes or unsubscribes."""
        self._row("subscription", at_us, broker, subscriber, key, filter, action)

    def link_sample(
        self,
        at_us: int,
        period_us: int,
        source: str,
        target: str,
        link: str,
        kind: str,
        messages: int,
        bytes: int,
        queue_bytes: int,
        round_trip_us: int | None = None,
    ) -> None:
        """What one broker sent to another within a period, of one kind of message."""
        self._row(
            "link_sample",
            at_us,
            period_us,
            source,
            target,
            link,
            kind,
            messages,
            bytes,
            queue_bytes,
            round_trip_us,
        )

    def broker_load(
        self,
        at_us: int,
        period_us: int,
        broker: str,
        received: int,
        published: int,
        forwarded: int,
        delivered: int,
        duplicates: int,
        dropped: int,
        queue_bytes: int,
        subscriptions: int,
        covering_set: int,
        cpu_us: int | None = None,
        utilisation: float | None = None,
        links: int | None = None,
    ) -> None:
        """What one broker did within a period, and how much it holds."""
        self._row(
            "broker_load",
            at_us,
            period_us,
            broker,
            received,
            published,
            forwarded,
            delivered,
            duplicates,
            dropped,
            queue_bytes,
            subscriptions,
            covering_set,
            cpu_us,
            utilisation,
            links,
        )

    def peer_state(self, at_us: int, peer: str, leaf: int, tree: int) -> None:
        """How many subscriptions a peer holds, and for what."""
        self._row("peer_state", at_us, peer, leaf, tree)

    def reconfiguration(
        self, at_us: int, operation: str, operation_id: str, phase: str, broker: str, detail: str
    ) -> None:
        """A change of the network has come to another phase."""
        self._row("reconfiguration", at_us, operation, operation_id, phase, broker, detail)

    def fault(self, at_us: int, fault: str, subject: str, detail: str) -> None:
        """Something went wrong, was made to, or is well again."""
        self._row("fault", at_us, fault, subject, detail)

    def _row(self, kind: str, at_us: int, *values: Any) -> None:
        held = self._held[kind]
        held.values.append(at_us)
        held.values.extend(values)
        held.room -= 1
        if held.room <= 0 or at_us >= self._due_us:
            self._full(held, at_us)

    # Making files.

    def flush(self) -> None:
        """Make files of everything noted so far; with `background`, have that done.

        Raises:
            TraceError: a file could not be written.
        """
        for held in self._held.values():
            self._take(held, last=False)

    def close(self) -> None:
        """Write what is left and end the thread, if there is one; whatever is noted later is an error.

        Raises:
            TraceError: a file could not be written.
        """
        if self._due_us == _CLOSED_US:
            return
        self._due_us = _CLOSED_US
        for held in self._held.values():
            self._take(held, last=True)
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()

    def _full(self, held: _Held, at_us: int) -> None:
        """A table has enough rows, or the oldest record of all is old enough."""
        if self._due_us == _CLOSED_US:
            raise LocalProtocolError(f"the trace of {self.writer!r} was closed; nothing more can be noted")
        if held.room <= 0:
            self._take(held, last=False)
        if at_us >= self._due_us and self._age_us_max is not None:
            if self._due_us > _CLOSED_US + 1:
                self.flush()
            self._due_us = at_us + self._age_us_max

    def _take(self, held: _Held, *, last: bool) -> None:
        """Have a file made of what is held of a table; the `last` time, whatever else waits."""
        values, rows = held.values, self._rows_max - held.room
        if not values:
            return
        held.values, held.room = [], self._rows_max
        if self._thread is None:
            self._write(held.kind, values, _nothing)
            return
        if not last and self._handed_over - self._done_with > _WAITING_MAX * self._rows_max:
            self._dropped_behind += rows
            return
        self._handed_over += rows
        self._queue.put((held.kind, values, rows))

    def _work(self) -> None:
        """In the thread: make files, until the first that cannot be made."""
        while (chunk := self._queue.get()) is not None:
            kind, values, rows = chunk
            if self.problem:
                self._dropped_failed += rows
            else:
                try:
                    self._write(kind, values, _yield)
                except TraceError as error:
                    self._dropped_failed += rows
                    self.problem = str(error)
            self._done_with += rows

    def _write(self, kind: str, values: list[Any], pause: Callable[[], None]) -> None:
        from pyarrow import ArrowException

        folder = self.directory / kind
        name = f"{self.writer}-{self._serials[kind]:06d}{FILE_SUFFIX}"
        hidden = folder / f".{name}.tmp"
        metadata = {VERSION_KEY: str(TRACE_VERSION), KIND_KEY: kind, WRITER_KEY: self.writer}
        try:
            table = arrow_table(kind, values, pause)
            folder.mkdir(exist_ok=True)
            _write_parquet(table, kind, metadata, hidden)
            os.replace(hidden, folder / name)
        except (OSError, ArrowException) as error:
            with suppress(OSError):
                hidden.unlink()
            raise TraceError(f"the trace {folder / name} cannot be written: {_words(error)}") from None
        self._serials[kind] += 1


def parquet_writer(kind: str, columns: Any, file: BinaryIO) -> Any:
    """What writes a table of a trace, with columns of a `pyarrow.Schema`, as all its files are written."""
    from pyarrow import parquet

    strings = [column.name for column in TABLES[kind] if column.type == "string"]
    # Times and sequence numbers mostly rise, so what they rise by is short.
    rising = ("at_us", "sent_at_us", "sequence")
    encodings = {column.name: "DELTA_BINARY_PACKED" for column in TABLES[kind] if column.name in rising}
    return parquet.ParquetWriter(
        file,
        columns,
        compression="zstd",
        compression_level=1,
        use_dictionary=strings,
        column_encoding=encodings,
        write_statistics=["at_us"],
        write_page_checksum=True,
        store_schema=False,  # readers see plain strings, whatever they were while being written
    )


def _write_parquet(table: Any, kind: str, metadata: dict[str, str], path: Path) -> None:
    """A whole file on disk, under whatever name."""
    with path.open("wb") as file:
        with parquet_writer(kind, table.schema, file) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata(metadata)
        file.flush()
        os.fsync(file.fileno())


def _prepared(directory: Path, writer: str) -> dict[str, int]:
    """The first free serial number of each table, when it is certain that files can be made."""
    # A merged file has the numbers of its first and its last part.
    mine = re.compile(rf"(\.)?{re.escape(writer)}-(?:\d{{6,}}\+)?(\d{{6,}}){re.escape(FILE_SUFFIX)}(\.tmp)?")
    serials = dict.fromkeys(KINDS, 0)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / f".{writer}.tmp"
        probe.write_bytes(b"")
        probe.unlink()
        for kind in KINDS:
            folder = directory / kind
            for path in sorted(folder.iterdir()) if folder.is_dir() else ():
                found = mine.fullmatch(path.name)
                if found is None:
                    continue
                if found[1] and found[3] and "+" not in path.name:
                    path.unlink()  # an earlier start of this writer was killed while it wrote this
                elif not found[1] and not found[3]:
                    serials[kind] = max(serials[kind], int(found[2]) + 1)
    except OSError as error:
        raise ConfigurationError(
            f"no trace can be written to {directory}: {_words(error)}; choose a folder that can be written to"
        ) from None
    return serials


def _words(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)


def _nothing() -> None:
    """Nobody waits."""


def _yield() -> None:
    """Let go of the interpreter, in case somebody waits for it."""
    time.sleep(0)

"""Where do the subscriptions and publications of a simulation come from?

From a workload's tables (made on the fly or stored), or from a `MemoryWorkload` written down row by row. All
of them are read the same way: subscriptions as rows, publications in chunks, so that only a chunk at a time
exists as Python values. What waits for its turn is kept as the bytes that will travel.

Time 0 of a workload is when publishing starts. A subscription at 0 or earlier is there before that.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from braid.errors import ConfigurationError
from braid.protocol import encode_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow

    from braid.workloads import StoredWorkload, Workload

__all__ = [
    "AnyWorkload",
    "ClientKey",
    "MemoryWorkload",
    "PublicationFeed",
    "PublicationRow",
    "SubscriptionRow",
    "publication_plan",
    "subscription_rows",
]

ClientKey: TypeAlias = tuple[str, str]
"""A broker, and the name of a client there."""

# Publications that are Python values at a time; enough for matching to be quick.
CHUNK_ROWS = 4_096


class SubscriptionRow(NamedTuple):
    """One subscription of a workload."""

    broker: str
    client: str
    key: str
    filter: str
    at_us: int = 0
    until_us: int | None = None
    """When it is taken back; None if it stays."""


class PublicationRow(NamedTuple):
    """One publication of a workload."""

    at_us: int
    broker: str
    client: str
    attributes: Mapping[str, Any]
    body_bytes: int = 0


@dataclass(frozen=True)
class MemoryWorkload:
    """A small workload, row by row."""

    subscriptions: Sequence[SubscriptionRow]
    publications: Sequence[PublicationRow]
    """In the order of their times."""
    name: str = "memory"

    def __post_init__(self) -> None:
        times = [row.at_us for row in self.publications]
        if times != sorted(times):
            raise ConfigurationError(
                f"workload {self.name}: publications must be in the order of their times"
            )


AnyWorkload: TypeAlias = "MemoryWorkload | Workload | StoredWorkload"


def subscription_rows(workload: AnyWorkload) -> Iterator[SubscriptionRow]:
    """All subscriptions, in the order of the workload."""
    if isinstance(workload, MemoryWorkload):
        yield from workload.subscriptions
        return
    for batch in _batches(workload, "subscriptions"):
        columns = [batch.column(name).to_pylist() for name in SubscriptionRow._fields]
        yield from map(SubscriptionRow._make, zip(*columns, strict=True))


def publication_plan(workload: AnyWorkload, publish_us: int | None) -> tuple[Counter[ClientKey], int]:
    """How many publications each client has within a time (None: all of it), and when the last of them is."""
    found: Counter[ClientKey] = Counter()
    last_us = 0
    if isinstance(workload, MemoryWorkload):
        for row in workload.publications:
            if publish_us is None or row.at_us < publish_us:
                found[row.broker, row.client] += 1
                last_us = row.at_us
        return found, last_us
    for batch in _batches(workload, "publications"):
        at_us = batch.column("at_us").to_numpy()
        rows = len(at_us) if publish_us is None else int(np.searchsorted(at_us, publish_us))
        names = (batch.column(name).slice(0, rows).to_pylist() for name in ("broker", "client"))
        found.update(zip(*names, strict=True))
        if rows:
            last_us = int(at_us[rows - 1])
        if rows < len(at_us):
            break
    return found, last_us


def _publication_chunks(workload: AnyWorkload) -> Iterator[list[PublicationRow]]:
    if isinstance(workload, MemoryWorkload):
        for start in range(0, len(workload.publications), CHUNK_ROWS):
            yield list(workload.publications[start : start + CHUNK_ROWS])
        return
    from braid.workloads import attribute_rows

    for batch in _batches(workload, "publications"):
        columns = [batch.column(name).to_pylist() for name in ("at_us", "broker", "client")]
        bodies = batch.column("body_bytes").to_pylist()
        yield list(map(PublicationRow._make, zip(*columns, attribute_rows(batch), bodies, strict=True)))


def _batches(workload: Workload | StoredWorkload, table: str) -> Iterator[pyarrow.RecordBatch]:
    from braid.workloads import Workload

    if not isinstance(workload, Workload):
        yield from workload.batches(table, CHUNK_ROWS)
        return
    made = workload.tables[table]
    for start in range(0, made.rows, CHUNK_ROWS):
        yield made.make(np.arange(start, min(start + CHUNK_ROWS, made.rows), dtype=np.int64))


class PublicationFeed:
    """Hands every client its publications, reading the workload only as far as somebody has come."""

    def __init__(
        self,
        workload: AnyWorkload,
        counts: Mapping[ClientKey, int],
        start_us: int,
        prepare: Callable[[list[bytes]], None] | None = None,
    ) -> None:
        """
        Args:
            workload: what to read.
            counts: how many publications each client will be asked for; without knowing that, whoever has
                none left would have to read to the end to find out.
            start_us: when time 0 of the workload is.
            prepare: told of the records of a chunk when it has been read, to match them all at once.
        """
        self._chunks = _publication_chunks(workload)
        self._start_us = start_us
        self._counts = counts
        self._prepare = prepare
        self._waiting: dict[ClientKey, deque[tuple[int, bytes]]] = {
            client: deque() for client, count in counts.items() if count
        }

    def of(self, client: ClientKey) -> Iterator[tuple[int, bytes]]:
        """One client's publications: when, and the record."""
        line = self._waiting.get(client)
        if line is None:
            return
        for _ in range(self._counts[client]):
            while not line:
                self._read()
            yield line.popleft()

    def prepare_waiting(self) -> None:
        """Match what has been read so far; before all subscriptions are there that would be in vain."""
        if self._prepare is not None:
            self._prepare([record for line in self._waiting.values() for _, record in line])

    def _read(self) -> None:
        records = []
        for row in next(self._chunks):
            line = self._waiting.get((row.broker, row.client))
            if line is not None:
                at_us = self._start_us + row.at_us
                record = encode_record(row.attributes, at_us, bytes(row.body_bytes))
                line.append((at_us, record))
                records.append(record)
        if self._prepare is not None:
            self._prepare(records)

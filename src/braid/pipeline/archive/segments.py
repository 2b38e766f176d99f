"""How does a log become files that stay few?

    FOLDER/archive.json                         which log this is
    FOLDER/day=2026-11-18/rows-0-5000.parquet   offsets 0 to 4999, archived on that day

A file gets its name when all of it is on disk, so whatever has a name is whole. Of two neighbours of one day,
the older is merged with the newer unless it is at least twice as large: a day then has about as many files as
its number of rows has binary digits, whatever the rate. A merged file takes its place beside those that it is
made of, which go when files are merged the next time, for readers that have just seen them; where both are
there, the larger range counts.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from braid.errors import ConfigurationError
from braid.trace.records import require_pyarrow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Segment", "Segments", "archive_schema"]

HEAD = "archive.json"
VERSION = 1
EPOCH_KEY = b"braid.archive.last_epoch"
PERIOD_KEY = b"braid.archive.published"
# Rows that are in memory while files are merged.
MERGED_ROWS = 50_000

_NAME = re.compile(r"rows-(\d+)-(\d+)\.parquet")


def archive_schema() -> Any:
    """The columns of the files. `record` is what was published, to the byte; `attributes` is JSON of it."""
    import pyarrow as pa

    return pa.schema(
        {
            "offset": pa.int64(),
            "log_epoch": pa.string(),
            "publisher": pa.string(),
            "epoch": pa.string(),
            "sequence": pa.int64(),
            "published_at": pa.timestamp("us", tz="UTC"),
            "attributes": pa.string(),
            "record": pa.binary(),
        }
    )


@dataclass(frozen=True, slots=True)
class Segment:
    """One file: rows `first` to `end`, without the last."""

    path: Path
    first: int
    end: int

    @property
    def day(self) -> str:
        """When it was archived."""
        return self.path.parent.name

    @property
    def size(self) -> int:
        """In bytes."""
        return self.path.stat().st_size

    def metadata(self) -> dict[bytes, bytes]:
        """What the file says of itself."""
        from pyarrow import parquet

        return parquet.read_metadata(self.path).metadata or {}

    def published(self) -> tuple[int, int]:
        """The earliest and the latest time of a publication in it, in microseconds since 1970."""
        earliest, latest = json.loads(self.metadata()[PERIOD_KEY])
        return earliest, latest

    def last_epoch(self) -> str:
        """The epoch of its last row in the log."""
        epoch: bytes = self.metadata()[EPOCH_KEY]
        return epoch.decode()

    def batches(self, rows: int = MERGED_ROWS) -> Iterator[Any]:
        """Its rows as Arrow batches."""
        from pyarrow import parquet

        with parquet.ParquetFile(self.path) as file:
            yield from file.iter_batches(rows)


class Segments:
    """The files of one archive."""

    def __init__(self, folder: Path | str) -> None:
        """Raises `ConfigurationError` for what is no folder, and without pyarrow."""
        require_pyarrow("archives need")
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise ConfigurationError(f"{self.folder} is a file; an archive is a folder")

    def head(self) -> dict[str, Any] | None:
        """Which log this is; None where nothing is archived yet."""
        try:
            found = json.loads((self.folder / HEAD).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as problem:
            raise ConfigurationError(f"{self.folder / HEAD} cannot be read: {problem}") from None
        if not isinstance(found, dict) or found.get("version") != VERSION:
            raise ConfigurationError(
                f"{self.folder / HEAD} is not that of an archive of this version of Braid"
            )
        return found

    def begin(self, log: str, log_id: str, filter: str) -> None:
        """Say which log this is."""
        self.folder.mkdir(parents=True, exist_ok=True)
        head = {"version": VERSION, "log": log, "id": log_id, "filter": filter}
        hidden = self.folder / f".{HEAD}"
        hidden.write_text(json.dumps(head) + "\n", encoding="utf-8")
        _settled(hidden, self.folder / HEAD)

    def listed(self) -> list[Segment]:
        """The files in the order of their offsets, without those that a larger one has taken the place of.

        Raises:
            ConfigurationError: rows are missing between two files.
        """
        found = self._found()
        while (again := self._found()) != found:
            found = again  # a folder that changes while it is listed may show neither the old nor the new
        kept: list[Segment] = []
        for each in sorted(found, key=lambda segment: (segment.first, -segment.end)):
            if kept and each.end <= kept[-1].end:
                continue
            if kept and each.first > kept[-1].end:
                raise ConfigurationError(
                    f"the archive {self.folder} lacks rows {kept[-1].end} to {each.first - 1}: a file is gone"
                )
            if kept and each.first < kept[-1].end:
                names = f"{kept[-1].path.name} and {each.path.name}"
                raise ConfigurationError(f"two files of the archive {self.folder} share rows: {names}")
            kept.append(each)
        return kept

    def _found(self) -> set[Segment]:
        found = set()
        for path in self.folder.glob("day=*/rows-*.parquet"):
            match = _NAME.fullmatch(path.name)
            if match is not None:
                found.add(Segment(path, int(match[1]), int(match[2])))
        return found

    def write(
        self, first: int, end: int, last_epoch: str, batches: Iterable[Any], day: str | None = None
    ) -> Segment:
        """Write rows `first` to `end`, without the last, as one file; they are on disk when this returns."""
        import pyarrow.compute as pc
        from pyarrow import parquet

        folder = self.folder / (day or f"day={datetime.now(UTC):%Y-%m-%d}")
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"rows-{first}-{end}.parquet"
        hidden = folder / f".{path.name}.tmp"
        earliest, latest, rows = None, None, 0
        with hidden.open("wb") as file:
            with parquet.ParquetWriter(
                file, archive_schema(), compression="zstd", compression_level=1
            ) as writer:
                for batch in batches:
                    writer.write_batch(batch)
                    rows += batch.num_rows
                    bounds = pc.min_max(batch.column("published_at").cast("int64")).as_py()
                    if bounds["min"] is not None:
                        earliest = min(bounds["min"], bounds["min"] if earliest is None else earliest)
                        latest = max(bounds["max"], bounds["max"] if latest is None else latest)
                writer.add_key_value_metadata(
                    {EPOCH_KEY: last_epoch.encode(), PERIOD_KEY: json.dumps([earliest, latest]).encode()}
                )
            file.flush()
            os.fsync(file.fileno())
        _settled(hidden, path)
        return Segment(path, first, end)

    def merge(self) -> int:
        """Merge files until there are few, and remove those merged before; returns how many were removed."""
        kept = self.listed()
        named = {segment.path for segment in kept}
        gone = 0
        for path in [*self.folder.glob("day=*/rows-*.parquet"), *self.folder.glob("day=*/.rows-*.tmp")]:
            if path not in named:
                path.unlink()
                gone += 1
        for place in range(len(kept) - 1, 0, -1):
            older, newer = kept[place - 1], kept[place]
            if older.day != newer.day or older.size >= 2 * newer.size:
                continue
            both = (batch for segment in (older, newer) for batch in segment.batches())
            merged = self.write(older.first, newer.end, newer.last_epoch(), both, older.day)
            kept[place - 1 :] = [merged, *kept[place + 1 :]]
        return gone


def _settled(hidden: Path, path: Path) -> None:
    """Give a file its name, for good."""
    hidden.replace(path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

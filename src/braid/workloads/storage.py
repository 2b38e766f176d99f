"""How does a workload get to disk and back, so that half a workload is never taken for a whole one?

    DIR/brokers/*.parquet  DIR/subscriptions/*.parquet  DIR/publications/*.parquet  DIR/workload.json

Spark writes the tables; the manifest `workload.json` comes last, by rename, and makes the rest valid. Reading
needs pyarrow only.
"""

from __future__ import annotations

import io
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from braid.workloads.tables import Table, Workload

__all__ = [
    "MANIFEST",
    "WORKLOAD_VERSION",
    "StoredWorkload",
    "data_frame",
    "estimated_bytes",
    "load",
    "require_place",
    "write",
    "write_elsewhere",
]

WORKLOAD_VERSION = 1
MANIFEST = "workload.json"
_FORMAT = "braid workload"

# A Python task costs tens of milliseconds to start, so it should have this many rows to make.
ROWS_PER_TASK = 200_000
SAMPLE_ROWS = 2_000
# Small files compress worse than the sample says, and Spark writes a table aside before it commits it.
ROOM_FACTOR = 1.5
ROOM_BYTES_MIN = 1 << 20


@dataclass(frozen=True)
class StoredWorkload:
    """A workload on disk, read without Spark."""

    directory: Path
    name: str
    seed: int
    parameters: Mapping[str, Any]
    rows: Mapping[str, int]
    """Rows of each table."""

    def local(self, table: str) -> pa.Table:
        """A whole table in memory, in the order of its rows."""
        files = self.files(table)
        # One schema for all pieces, without the notes that Spark leaves in it.
        schema = pq.read_schema(files[0]).remove_metadata()
        return pa.concat_tables([pq.read_table(file).cast(_plain(schema)) for file in files])

    def batches(self, table: str, rows_max: int = 50_000) -> Iterator[pa.RecordBatch]:
        """A table piece by piece, in the order of its rows."""
        for file in self.files(table):
            with pq.ParquetFile(file) as pieces:
                yield from pieces.iter_batches(batch_size=rows_max)

    def files(self, table: str) -> list[Path]:
        """The files of a table, in the order of its rows."""
        if table not in self.rows:
            raise ConfigurationError(f"no table {table!r}; a workload has {', '.join(self.rows)}")
        return _files(self.directory / table)


def write(
    spark: SparkSession,
    workload: Workload,
    directory: Path | str,
    *,
    partitions: int | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> StoredWorkload:
    """Write a workload's tables with Spark; a workload that is already there is left as it is.

    Args:
        spark: the session to use.
        workload: what to write.
        directory: where to; it may hold the same workload, whole or begun, and nothing else.
        partitions: pieces of every table; by default one for 200,000 rows. The rows are always the same.
        progress: called with the name and the rows of each table that is about to be written.

    Raises:
        ConfigurationError: the directory holds something else, or the disk has not enough room.
    """
    place = Path(directory)
    if require_place(workload, place):
        return load(place)
    place.mkdir(parents=True, exist_ok=True)
    for name, table in workload.tables.items():
        if progress is not None:
            progress(name, table.rows)
        frame = data_frame(spark, table, partitions=partitions)
        # The job marker that Hadoop leaves says less than the manifest does.
        frame.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").mode(
            "overwrite"
        ).parquet(str((place / name).resolve()))
    _commit(place, workload)
    return load(place)


def write_elsewhere(
    spark: SparkSession,
    workload: Workload,
    url: str,
    *,
    partitions: int | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> dict[str, int]:
    """Write a workload's tables where only Spark gets to, such as `s3a://bucket/dt1`; gives their rows.

    The table `manifest` comes last: one row with what `workload.json` says otherwise. What is there already
    is left, and refused.

    Raises:
        ConfigurationError: some table is there already.
    """
    place = url.rstrip("/")
    manifest = spark.createDataFrame([(json.dumps(_contents(workload)),)], "manifest string")
    frames = {
        name: data_frame(spark, table, partitions=partitions) for name, table in workload.tables.items()
    }
    for name, frame in {**frames, "manifest": manifest.coalesce(1)}.items():
        if progress is not None and name in workload.tables:
            progress(name, workload.tables[name].rows)
        try:
            frame.write.mode("errorifexists").parquet(f"{place}/{name}")
        except Exception as problem:
            if "PATH_ALREADY_EXISTS" not in str(problem):
                raise
            raise ConfigurationError(f"{place}/{name} is there already; choose another place") from None
    return {name: table.rows for name, table in workload.tables.items()}


def require_place(workload: Workload, directory: Path | str) -> bool:
    """True when the directory holds this workload already; False when it can be written there.

    Raises:
        ConfigurationError: the directory holds something else, or the disk has not enough room.
    """
    place = Path(directory)
    if (place / MANIFEST).exists():
        _require_same(load(place), workload)
        return True
    _require_empty_or_begun(place, workload)
    _require_room(place, workload)
    return False


def data_frame(spark: SparkSession, table: Table, *, partitions: int | None = None) -> DataFrame:
    """A table as a data frame; each task makes the rows of its own piece."""
    from pyspark.sql.pandas.types import from_arrow_schema

    make = table.make

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield make(batch.column(0).to_numpy())

    pieces = partitions if partitions is not None else max(1, -(-table.rows // ROWS_PER_TASK))
    return spark.range(0, table.rows, 1, pieces).mapInArrow(rows, from_arrow_schema(table.schema))


def estimated_bytes(workload: Workload) -> int:
    """About what the workload takes on disk, from a sample of each table."""
    total = 0.0
    for table in workload.tables.values():
        if table.rows == 0:
            continue
        # Spread over the whole table, because its rows need not be alike.
        count = min(SAMPLE_ROWS, table.rows)
        sample = table.make(np.linspace(0, table.rows - 1, count).astype(np.int64))
        sink = io.BytesIO()
        pq.write_table(pa.Table.from_batches([sample]), sink, compression="snappy")
        total += sink.tell() * table.rows / count
    return int(total)


def load(directory: Path | str) -> StoredWorkload:
    """Open a workload that `write` has written.

    Raises:
        ConfigurationError: there is no workload, or it is not whole, or of another version.
    """
    place = Path(directory)
    manifest = _manifest(place)
    rows = {name: int(table["rows"]) for name, table in manifest["tables"].items()}
    for name, expected in rows.items():
        found = sum(_row_count(file) for file in _files(place / name))
        if found != expected:
            raise ConfigurationError(
                f"{place / name} holds {found:,} rows where {MANIFEST} says {expected:,}; "
                "write the workload again"
            )
    return StoredWorkload(place, manifest["name"], manifest["seed"], manifest["parameters"], rows)


def _manifest(place: Path) -> dict[str, Any]:
    path = place / MANIFEST
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        reason = "it was begun and not finished" if place.is_dir() else "there is no such directory"
        raise ConfigurationError(
            f"{place} holds no workload: no {MANIFEST} ({reason}); "
            "make one with `braid pipeline workload NAME --out DIR`"
        ) from None
    except (OSError, ValueError) as problem:
        raise ConfigurationError(f"{path} cannot be read as JSON: {problem}") from None
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise ConfigurationError(f'{path} is not a workload of Braid: it does not say "format": "{_FORMAT}"')
    version = content.get("version")
    if version != WORKLOAD_VERSION:
        age = "an older" if isinstance(version, int) and version < WORKLOAD_VERSION else "another"
        raise ConfigurationError(
            f"{path} is of {age} version, {version!r}; this Braid reads version {WORKLOAD_VERSION}: "
            "write the workload again"
        )
    wanted = {"name": str, "seed": int, "parameters": dict, "tables": dict}
    for key, kind in wanted.items():
        if not isinstance(content.get(key), kind):
            raise ConfigurationError(f"{path}: {key!r} is missing or not what it should be; write it again")
    if not all(
        isinstance(table, dict) and isinstance(table.get("rows"), int) for table in content["tables"].values()
    ):
        raise ConfigurationError(f"{path}: 'tables' is missing or not what it should be; write it again")
    return content


def _require_same(stored: StoredWorkload, workload: Workload) -> None:
    ours = {"name": workload.name, "seed": workload.seed} | dict(workload.parameters)
    theirs = {"name": stored.name, "seed": stored.seed} | dict(stored.parameters)
    differing = [key for key in sorted({*ours, *theirs}) if ours.get(key) != theirs.get(key)]
    if differing:
        listed = ", ".join(f"{key} {theirs.get(key)!r} instead of {ours.get(key)!r}" for key in differing)
        raise ConfigurationError(
            f"{stored.directory} holds another workload already ({listed}); choose another directory"
        )


def _require_empty_or_begun(place: Path, workload: Workload) -> None:
    """Tables without a manifest are what an interrupted run left, and are written again."""
    if place.exists() and not place.is_dir():
        raise ConfigurationError(f"{place} is a file; a workload needs a directory")
    ours = {*workload.tables, f".{MANIFEST}.tmp"}
    foreign = sorted(each.name for each in place.iterdir() if each.name not in ours) if place.is_dir() else []
    if foreign:
        raise ConfigurationError(
            f"{place} holds other things ({', '.join(foreign[:3])}{', ...' if len(foreign) > 3 else ''}); "
            "choose an empty directory"
        )


def _require_room(place: Path, workload: Workload) -> None:
    needed = int(max(estimated_bytes(workload) * ROOM_FACTOR, ROOM_BYTES_MIN))
    existing = next(each for each in (place.absolute(), *place.absolute().parents) if each.exists())
    free = shutil.disk_usage(existing).free
    if needed > free:
        rows = ", ".join(f"{table.rows:,} {name}" for name, table in workload.tables.items())
        raise ConfigurationError(
            f"{workload.name} would not fit: its {rows} need about {_readable(needed)} "
            f"and {existing} has {_readable(free)} free; choose smaller parameters or another disk"
        )


def _readable(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1_000:
            return f"{count:.0f} {unit}"
        count /= 1_000
    return f"{count:,.1f} TB"


def _contents(workload: Workload) -> dict[str, Any]:
    """What the manifest says."""
    return {
        "format": _FORMAT,
        "version": WORKLOAD_VERSION,
        "name": workload.name,
        "seed": workload.seed,
        "parameters": dict(workload.parameters),
        "tables": {name: {"rows": table.rows} for name, table in workload.tables.items()},
    }


def _commit(place: Path, workload: Workload) -> None:
    """Put the manifest in place; from here on the workload is there."""
    temporary = place / f".{MANIFEST}.tmp"
    with temporary.open("w", encoding="utf-8") as sink:
        sink.write(json.dumps(_contents(workload), indent=2) + "\n")
        sink.flush()
        os.fsync(sink.fileno())
    temporary.replace(place / MANIFEST)


def _files(folder: Path) -> list[Path]:
    """In the order of Spark's partitions, which is that of the rows."""
    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise ConfigurationError(f"{folder} holds no Parquet files; write the workload again")
    return files


def _row_count(file: Path) -> int:
    try:
        return int(pq.read_metadata(file).num_rows)
    except (OSError, pa.ArrowInvalid) as problem:
        raise ConfigurationError(f"{file} cannot be read: {problem}") from None


def _plain(schema: pa.Schema) -> pa.Schema:
    """The schema with every column and field nullable, as workloads declare it."""
    return pa.schema([pa.field(field.name, _plain_type(field.type)) for field in schema])


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _plain_type(field.type)) for field in kind])
    return kind

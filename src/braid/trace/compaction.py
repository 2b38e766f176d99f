"""How do the many small files of a broker's trace become few?

A broker that traces for a day leaves 1,440 files of each table. Neighbouring files of one writer are merged
as the digits of a binary counter are: the older with the newer unless it is at least twice as large, so that
as many files are left as the number of rows has binary digits. A merged file says in its name which files it
stands for, `A-000000+000017.parquet`; those are left out by readers from then on, and removed when the
folder is compacted the next time, for readers that have just seen them. Whatever has a proper name is
complete, so a crash anywhere loses and doubles nothing. The broker goes on writing meanwhile.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from braid.errors import ConfigurationError, TraceError
from braid.trace.reader import inspect_file, standing_files
from braid.trace.records import (
    FILE_SUFFIX,
    KIND_KEY,
    TABLES,
    TRACE_VERSION,
    VERSION_KEY,
    WRITER_KEY,
    require_pyarrow,
    schema,
)
from braid.trace.writer import parquet_writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from braid.trace.reader import StandingFile

__all__ = ["Compacted", "compact"]

# Rows that are in memory while files are merged.
MERGED_ROWS = 100_000
# A merged file does not grow beyond this, so that Spark has tasks to share out and merging ends.
BYTES_MAX = 256 << 20
LOCK = ".compacting"


@dataclass(frozen=True, slots=True)
class Compacted:
    """What compacting a trace has come to."""

    before: int
    """Files that counted before."""
    after: int
    """Files that count now."""
    removed: int
    """Files that were merged by an earlier call, and are gone now."""


def compact(
    directory: Path | str, *, bytes_max: int = BYTES_MAX, report: Callable[[str], None] | None = None
) -> Compacted:
    """Merge the files of a trace, and remove those that were merged before.

    Args:
        directory: the folder of one trace, which brokers may be writing to.
        bytes_max: how large a merged file may become.
        report: told of every file that cannot be used, and so is left as it is.

    Raises:
        ConfigurationError: there is no such folder, or another process compacts it.
        TraceError: a merged file could not be written; nothing is lost.
    """
    root = Path(directory)
    if not root.is_dir():
        raise ConfigurationError(f"there is no trace at {root}: no such folder")
    require_pyarrow()
    before = after = removed = 0
    with _alone(root):
        for kind in TABLES:
            folder = root / kind
            if folder.is_dir():
                found = standing_files(folder)
                before += len(found.standing)
                removed += _removed([*found.merged, *folder.glob(f".*+*{FILE_SUFFIX}.tmp")])
                after += _merged_files(folder, found.standing, bytes_max, report or _nobody)
    return Compacted(before, after, removed)


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """One process at a time; the lock goes with its holder, however that ends."""
    with (root / LOCK).open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigurationError(f"the trace {root} is being compacted by another process") from None
        yield


def _nobody(_problem: str) -> None:
    """Nobody wants to hear of files that cannot be used."""


def _removed(paths: list[Path]) -> int:
    for path in paths:
        path.unlink(missing_ok=True)
    return len(paths)


def _merged_files(
    folder: Path, files: list[StandingFile], bytes_max: int, report: Callable[[str], None]
) -> int:
    """Merge what is to be merged in one folder; returns how many files count afterwards."""
    by_writer: dict[str, list[StandingFile]] = {}
    for each in files:
        if each.writer is not None:
            by_writer.setdefault(each.writer, []).append(each)
    left = sum(each.writer is None for each in files)
    for writer, own in sorted(by_writer.items()):
        left += _merged_run(folder, writer, sorted(own, key=lambda file: file.first), bytes_max, report)
    return left


def _merged_run(
    folder: Path, writer: str, run: list[StandingFile], bytes_max: int, report: Callable[[str], None]
) -> int:
    """Merge neighbours; returns how many files are left.

    What belongs together is decided by sizes first, so that each row is written once.
    """
    groups = [([each], each.path.stat().st_size) for each in run]
    place = len(groups) - 1
    while place > 0:
        (older, older_bytes), (newer, newer_bytes) = groups[place - 1], groups[place]
        if older_bytes >= 2 * newer_bytes or older_bytes + newer_bytes > bytes_max:
            place -= 1
            continue
        groups[place - 1 : place + 1] = [([*older, *newer], older_bytes + newer_bytes)]
        place = len(groups) - 1
    parts_of = [parts for parts, _ in groups if len(parts) > 1]
    for part in (part for parts in parts_of for part in parts):
        checked = inspect_file(part.path, verify=True)
        if not checked.ok:
            # It stays for people to look at, and nothing is joined over it.
            report(f"{part.path} {checked.problem}")
            at = run.index(part)
            before, behind = run[:at], run[at + 1 :]
            return (
                1
                + _merged_run(folder, writer, before, bytes_max, report)
                + _merged_run(folder, writer, behind, bytes_max, report)
            )
    for parts in parts_of:
        _merge(folder, writer, parts)
    return len(groups)


def _merge(folder: Path, writer: str, parts: list[StandingFile]) -> None:
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    kind = folder.name
    name = f"{writer}-{parts[0].first:06d}+{parts[-1].last:06d}{FILE_SUFFIX}"
    hidden = folder / f".{name}.tmp"
    metadata = {VERSION_KEY: str(TRACE_VERSION), KIND_KEY: kind, WRITER_KEY: writer}
    try:
        with hidden.open("wb") as file:
            with parquet_writer(kind, schema(kind), file) as target:
                for part in parts:
                    with ParquetFile(part.path, page_checksum_verification=True) as source:
                        for batch in source.iter_batches(MERGED_ROWS):
                            target.write_table(_complete(batch, kind))
                target.add_key_value_metadata(metadata)
            file.flush()
            os.fsync(file.fileno())
        os.replace(hidden, folder / name)
        # The parts may go only when the name of the whole is on disk, too.
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except (OSError, ArrowException) as error:
        with suppress(OSError):
            hidden.unlink()
        raise TraceError(f"{folder / name} cannot be written: {error}") from None


def _complete(batch: Any, kind: str) -> Any:
    """A batch as a table of today; columns that there were not yet when it was written hold nothing."""
    import pyarrow

    found = pyarrow.Table.from_batches([batch])
    arrays = [
        found.column(field.name).cast(field.type)
        if field.name in found.schema.names
        else pyarrow.nulls(len(found), field.type)
        for field in schema(kind)
    ]
    return pyarrow.Table.from_arrays(arrays, schema=schema(kind))

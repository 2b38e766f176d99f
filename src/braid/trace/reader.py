"""What does a folder of traces hold, and which of its files cannot be used?

One bad file never spoils the rest: each is looked at by itself, and what is wrong with it is said in a
sentence. Nothing here needs Spark.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from braid.errors import ConfigurationError
from braid.trace.records import (
    FILE_SUFFIX,
    KIND_KEY,
    TABLES,
    TRACE_VERSION,
    VERSION_KEY,
    WRITER_KEY,
    require_kind,
    require_pyarrow,
    schema,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = [
    "FileReport",
    "StandingFile",
    "StandingFiles",
    "inspect",
    "inspect_content",
    "inspect_file",
    "read_table",
    "standing_among",
    "standing_files",
]

_log = logging.getLogger("braid.trace")

# The file of one number, or one that was merged of the files of these numbers.
_NUMBERED = re.compile(rf"(.+)-(\d{{6,}})(?:\+(\d{{6,}}))?{re.escape(FILE_SUFFIX)}")


@dataclass(frozen=True, slots=True)
class FileReport:
    """What was found out about one file."""

    path: Path | str
    """A URL where Spark alone gets at it."""
    kind: str
    """The folder it lies in."""
    ok: bool
    problem: str = ""
    """A sentence; empty for a file that can be used."""
    writer: str = ""
    rows: int = 0


def inspect(directory: Path, *, verify: bool = False) -> list[FileReport]:
    """Look at every file of a trace, in the order of their names.

    Hidden files, which a writer that was killed may leave behind, do not count. `verify` decodes all data
    too, which finds damage inside of files; otherwise only their ends are read, as is enough for files
    that were cut off.

    Raises:
        ConfigurationError: there is no such folder.
    """
    require_pyarrow()
    return [inspect_file(path, verify=verify) for path in _files(_folder(directory))]


def inspect_file(path: Path, *, verify: bool = False) -> FileReport:
    """Look at one file of a trace; its kind is the name of its folder."""
    kind = path.parent.name
    if path.suffix != FILE_SUFFIX:
        return FileReport(path, kind, False, f"is no {FILE_SUFFIX} file")
    try:
        if path.stat().st_size == 0:
            return FileReport(path, kind, False, "is empty")
    except OSError as error:
        return FileReport(path, kind, False, f"is no complete Parquet file: {str(error).splitlines()[0]}")
    return _inspected(path, kind, path, verify)


def inspect_content(kind: str, content: bytes) -> FileReport:
    """The same for a file whose content is at hand; the report has no path."""
    import pyarrow

    if not content:
        return FileReport("", kind, False, "is empty")
    return _inspected("", kind, pyarrow.BufferReader(content), verify=False)


def _inspected(path: Path | str, kind: str, source: Any, verify: bool) -> FileReport:
    import pyarrow
    import pyarrow.parquet

    def bad(problem: str) -> FileReport:
        return FileReport(path, kind, False, problem)

    try:
        with pyarrow.parquet.ParquetFile(source, page_checksum_verification=True) as file:
            metadata = file.metadata.metadata or {}
            problem = _foreign(metadata, kind) or _misshapen(file.schema_arrow, kind)
            if problem:
                return bad(problem)
            if verify:
                file.read()
            writer = metadata.get(WRITER_KEY.encode(), b"").decode(errors="replace")
            return FileReport(path, kind, True, "", writer, file.metadata.num_rows)
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        return bad(f"is no complete Parquet file: {str(error).splitlines()[0]}")


def read_table(
    directory: Path,
    kind: str,
    *,
    columns: Sequence[str] | None = None,
    report: Callable[[FileReport], None] | None = None,
) -> Any:
    """One table of a trace as a `pyarrow.Table`, file after file in the order of their names.

    Args:
        directory: the folder of the trace.
        kind: which table; one that was never written is empty.
        columns: only these.
        report: told of every file that cannot be used; without one, they are logged as warnings.

    Raises:
        ConfigurationError: there is no such folder, table or column.
    """
    wanted = schema(require_kind(kind))
    if columns is not None:
        unknown = [name for name in columns if name not in wanted.names]
        if unknown:
            raise ConfigurationError(
                f"there is no column {unknown[0]!r} in {kind}; there are {', '.join(wanted.names)}"
            )
    import pyarrow
    import pyarrow.parquet

    names = list(columns) if columns is not None else wanted.names
    wanted = pyarrow.schema([wanted.field(name) for name in names])
    found = []
    for path in _files(_folder(directory), kind):
        checked = inspect_file(path)
        if checked.ok:
            try:
                with pyarrow.parquet.ParquetFile(path, page_checksum_verification=True) as file:
                    found.append(_complete(file.read(columns=names), wanted))
            except (OSError, ValueError, pyarrow.ArrowException) as error:
                checked = FileReport(path, kind, False, f"cannot be read: {str(error).splitlines()[0]}")
        if not checked.ok:
            (report or _complain)(checked)
    return pyarrow.concat_tables(found) if found else wanted.empty_table()


def _complete(table: Any, wanted: Any) -> Any:
    """A table with all columns; those that it was written without hold nothing."""
    import pyarrow

    for field in wanted:
        if field.name not in table.schema.names:
            table = table.append_column(field, pyarrow.nulls(len(table), field.type))
    return table.select(wanted.names).cast(wanted)


def _complain(report: FileReport) -> None:
    _log.warning("a file of a trace is left out: %s %s", report.path, report.problem)


def _folder(directory: Path) -> Path:
    directory = Path(directory)
    if not directory.is_dir():
        raise ConfigurationError(f"there is no trace at {directory}: no such folder")
    return directory


@dataclass(frozen=True, slots=True)
class StandingFile:
    """A file of one table that counts."""

    path: Path
    writer: str | None
    """Whose it is; None for a file with a name of another kind."""
    first: int
    """The numbers of the files that it stands for."""
    last: int


@dataclass(frozen=True, slots=True)
class StandingFiles:
    """The files of one table."""

    standing: list[StandingFile]
    """In the order of their names."""
    merged: list[Path]
    """Those that a merged file stands for, and that nobody should read."""


def standing_files(folder: Path) -> StandingFiles:
    """Which files of a folder count: all but those that were merged into another one that is there."""
    found = {
        str(path): _numbered(path) for path in folder.iterdir() if not _hidden(path) and not path.is_dir()
    }
    standing = [found.pop(path) for path in standing_among(found)]
    return StandingFiles(standing, [file.path for _, file in sorted(found.items())])


def standing_among(paths: Iterable[str]) -> list[str]:
    """Which of some files of any folders count, in the order of their names."""
    found: dict[tuple[str, str], list[tuple[int, int, str]]] = {}
    standing = []
    for path in paths:
        folder, _, name = path.rpartition("/")
        file = _numbered(Path(name))
        if file.writer is None:
            standing.append(path)
        else:
            found.setdefault((folder, file.writer), []).append((file.first, -file.last, path))
    for own in found.values():
        reached = -1
        for _, last, path in sorted(own):
            if -last > reached:
                standing.append(path)
                reached = -last
    return sorted(standing)


def _numbered(path: Path) -> StandingFile:
    named = _NUMBERED.fullmatch(path.name)
    if named is None:
        return StandingFile(path, None, 0, 0)
    first = int(named[2])
    return StandingFile(path, named[1], first, int(named[3]) if named[3] else first)


def _files(directory: Path, only: str | None = None) -> Iterator[Path]:
    """The files of known tables, and the Parquet files of folders that may be those of a newer version."""
    for folder in sorted(directory.iterdir()):
        if _hidden(folder) or not folder.is_dir() or only not in (None, folder.name):
            continue
        for file in standing_files(folder).standing:
            if folder.name in TABLES or file.path.suffix == FILE_SUFFIX:
                yield file.path


def _hidden(path: Path) -> bool:
    return path.name.startswith((".", "_"))


def _foreign(metadata: dict[bytes, bytes], kind: str) -> str:
    """Why a file is none of ours, or none that this version understands; empty if it is one."""
    version = metadata.get(VERSION_KEY.encode())
    if version is None:
        return f"is no trace: its metadata has no {VERSION_KEY}"
    if not version.isdigit():
        return f"is no trace: its {VERSION_KEY} is {version.decode(errors='replace')!r}, not a number"
    if int(version) != TRACE_VERSION:
        age = "a newer" if int(version) > TRACE_VERSION else "an older"
        return f"was written by {age} version, {int(version)}; this one understands {TRACE_VERSION}"
    stated = metadata.get(KIND_KEY.encode(), b"").decode(errors="replace")
    if kind not in TABLES:
        return f"lies in the folder {kind!r}; the tables of a trace are {', '.join(TABLES)}"
    if stated != kind:
        return f"holds the table {stated!r} and lies in the folder {kind!r}"
    return ""


def _misshapen(found: Any, kind: str) -> str:
    """Which column is missing or of another type; empty if all are as they should be."""
    for field in schema(kind):
        place = found.get_field_index(field.name)
        if place < 0 and field.nullable:
            continue  # it was written before there was such a column
        if place < 0:
            return f"has no column {field.name!r}"
        if found.field(place).type != field.type:
            return f"has {found.field(place).type} in column {field.name!r}, where {field.type} is expected"
    return ""

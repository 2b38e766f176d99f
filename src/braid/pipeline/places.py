"""Where do files lie that Spark reads: here, or where only Spark gets at them?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from braid.errors import ConfigurationError
from braid.trace.reader import FileReport, inspect_content, standing_among

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

__all__ = [
    "SERVER_PREFIX",
    "inspect_far_traces",
    "is_far",
    "is_remote",
    "is_url",
    "joined_path",
    "require_here",
]

SERVER_PREFIX = "sc://"
"""How the address of a Spark Connect server begins: paths are that server's."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
# A table of file names and what is wrong with each.
INSPECTED = "path string, problem string, writer string, rows long"


def is_url(path: object) -> bool:
    """Whether a path is a URL, such as `s3a://bucket/traces` or `file:///traces`."""
    return _URL.match(str(path)) is not None


def is_far(path: object, master: str | None = None) -> bool:
    """Whether a path means something to Spark only: a URL, or a path of a Spark Connect server."""
    return is_url(path) or (master is not None and master.startswith(SERVER_PREFIX))


def require_here(option: str, path: object, advice: str) -> None:
    """Refuse a URL where files of this machine are worked on without Spark."""
    if is_url(path):
        raise ConfigurationError(
            f"{option}: {path} is a URL, and these files are written without Spark, on this machine; {advice}"
        )


def is_remote(spark: SparkSession) -> bool:
    """Whether a session is that of a Spark Connect server, so that its paths are far."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def joined_path(folder: object, name: str) -> str:
    """A name in a folder, which may be a URL."""
    return f"{str(folder).rstrip('/')}/{name}"


def inspect_far_traces(spark: SparkSession, root: str) -> list[FileReport]:
    """Look at every file of a trace, or of all runs of a sweep, that only Spark gets at; its tasks do.

    Raises:
        ConfigurationError: there is no trace.
    """

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            rows = []
            for path, content in zip(batch["path"].to_pylist(), batch["content"].to_pylist(), strict=True):
                report = inspect_content(path.split("/")[-2], content)
                rows.append((path, report.problem, report.writer, report.rows))
            yield pa.RecordBatch.from_pylist(
                [dict(zip(("path", "problem", "writer", "rows"), row, strict=True)) for row in rows],
                schema=pa.schema(
                    {
                        "path": pa.string(),
                        "problem": pa.string(),
                        "writer": pa.string(),
                        "rows": pa.int64(),
                    }
                ),
            )

    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    try:
        found = reader.option("pathGlobFilter", "*.parquet").load(root).select("path", "content")
        rows = found.mapInArrow(look, INSPECTED).collect()
    except Exception as problem:
        if "PATH_NOT_FOUND" not in str(problem):
            raise
        raise ConfigurationError(f"there is no trace at {root}: no such folder") from None
    reports = {
        row["path"]: FileReport(row["path"], row["path"].split("/")[-2], not row["problem"], row["problem"],
                                row["writer"], row["rows"])
        for row in rows
        if not any(part.startswith(("_", ".")) for part in row["path"].split("/")[-2:])
    }  # fmt: skip
    if not reports:
        raise ConfigurationError(f"there is no trace at {root}: no Parquet file lies there")
    standing = standing_among(sorted(reports))
    return [reports[path] for path in standing]

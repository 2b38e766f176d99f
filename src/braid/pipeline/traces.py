"""How do traces become data frames?

One folder that a broker or a simulation wrote, `DIR/<kind>/*.parquet`, or the tree of a sweep,
`DIR/run=<key>/<kind>/*.parquet`. Every table has a column `run`, which is empty for a single folder. Files
that are foreign, cut off, or of another version are left out and reported one by one; the rest is read.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from braid.errors import ConfigurationError
from braid.pipeline.schemas import RUN, trace_schema
from braid.trace.reader import FileReport, inspect
from braid.trace.records import FILE_SUFFIX, KINDS, require_kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Traces", "bad_files", "inspect_traces", "read_traces"]

RUN_PREFIX = f"{RUN}="

# Looking at a file is mostly waiting for the disk and decoding outside the interpreter's lock.
INSPECTION_THREADS = 8

_log = logging.getLogger(__name__)


class Traces:
    """The tables of one trace or of all runs of a sweep, each read when it is first asked for.

        traces = Traces(spark, "out/traces")
        system_yield(traces.hop, traces.delivery).show()

    Args:
        root: the folder of a trace, or of a sweep.
        report: told once of every file that cannot be used; without one, they are logged as warnings.

    Raises:
        ConfigurationError: there is no such folder, or no trace in it.
    """

    def __init__(
        self, spark: SparkSession, root: Path | str, *, report: Callable[[FileReport], None] | None = None
    ) -> None:
        self._spark = spark
        self.root = Path(root)
        self._report = report or _complain
        self._tables: dict[str, DataFrame] = {}
        _folders(self.root)

    @cached_property
    def files(self) -> list[FileReport]:
        """What was found in the folder, file by file; bad files are reported when this is first asked for."""
        files = inspect_traces(self.root)
        for file in files:
            if not file.ok:
                self._report(file)
        return files

    def table(self, kind: str) -> DataFrame:
        """One table; it is empty, with the right columns, when there are no files of that kind."""
        if kind not in self._tables:
            self._tables[kind] = _read(self._spark, self.root, require_kind(kind), self.files)
        return self._tables[kind]

    @property
    def publication(self) -> DataFrame:
        return self.table("publication")

    @property
    def hop(self) -> DataFrame:
        return self.table("hop")

    @property
    def delivery(self) -> DataFrame:
        return self.table("delivery")

    @property
    def subscription(self) -> DataFrame:
        return self.table("subscription")

    @property
    def link_sample(self) -> DataFrame:
        return self.table("link_sample")

    @property
    def broker_load(self) -> DataFrame:
        return self.table("broker_load")

    @property
    def peer_state(self) -> DataFrame:
        return self.table("peer_state")

    @property
    def reconfiguration(self) -> DataFrame:
        return self.table("reconfiguration")

    @property
    def fault(self) -> DataFrame:
        return self.table("fault")


def read_traces(spark: SparkSession, root: Path | str, kind: str) -> DataFrame:
    """One table of a trace or of all runs of a sweep, with the column `run`; bad files are logged."""
    return Traces(spark, root).table(kind)


def bad_files(root: Path | str) -> list[FileReport]:
    """The files under a trace or a sweep that cannot be used, each with its reason."""
    return [report for report in inspect_traces(root) if not report.ok]


def inspect_traces(root: Path | str) -> list[FileReport]:
    """Look at every file of a trace or of all runs of a sweep, run after run.

    Raises:
        ConfigurationError: there is no such folder, or no trace in it.
    """
    folders = _folders(Path(root))
    with ThreadPoolExecutor(INSPECTION_THREADS) as pool:
        return [report for reports in pool.map(inspect, folders) for report in reports]


def _read(spark: SparkSession, root: Path, kind: str, files: Sequence[FileReport]) -> DataFrame:
    schema = trace_schema(kind)
    of_kind = [report for report in files if report.kind == kind]
    good = [str(report.path) for report in of_kind if report.ok]
    if not good:
        return spark.createDataFrame([], schema)
    sweep = _is_sweep(root)
    reader = spark.read.schema(schema if sweep else schema.__class__(schema.fields[:-1]))
    # Folders are listed faster than files are named, but a folder is all or nothing.
    if len(good) == len(of_kind):
        good = sorted({str(Path(path).parent) for path in good})
    table = reader.option("basePath", str(root)).option("pathGlobFilter", f"*{FILE_SUFFIX}").parquet(*good)
    if not sweep:
        table = table.withColumn(RUN, F.lit(""))
    return table.select(RUN, *(name for name in schema.names if name != RUN))


def _folders(root: Path) -> list[Path]:
    """The folders that each hold one trace."""
    if not root.is_dir():
        raise ConfigurationError(f"there is no trace at {root}: no such folder")
    if _is_sweep(root):
        return sorted(path for path in root.iterdir() if path.name.startswith(RUN_PREFIX) and path.is_dir())
    if not any((root / kind).is_dir() for kind in KINDS):
        raise ConfigurationError(
            f"there is no trace at {root}: expected folders such as {root}/hop (a trace) "
            f"or {root}/{RUN_PREFIX}.../hop (the runs of a sweep)"
        )
    return [root]


def _is_sweep(root: Path) -> bool:
    return any(path.name.startswith(RUN_PREFIX) and path.is_dir() for path in root.iterdir())


def _complain(report: FileReport) -> None:
    _log.warning("a file of a trace is left out: %s %s", report.path, report.problem)

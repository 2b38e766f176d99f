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
from braid.pipeline.metrics.frames import free_places, keep_places
from braid.pipeline.places import inspect_far_traces, is_remote, is_url
from braid.pipeline.schemas import RUN, trace_schema
from braid.trace.reader import FileReport, inspect, standing_files
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
        root: the folder of a trace, or of a sweep; also a URL that Spark reads, such as `s3a://bucket/traces`,
            and over Spark Connect a path of the server. Then Spark's tasks look at the files.
        report: told once of every file that cannot be used; without one, they are logged as warnings.
        files: what `inspect_traces` has found there, where that is known already.
        keep: keep what several metrics need (which broker delivered what), until `close`.

    Raises:
        ConfigurationError: there is no such folder, or no trace in it.
    """

    def __init__(
        self,
        spark: SparkSession,
        root: Path | str,
        *,
        report: Callable[[FileReport], None] | None = None,
        files: list[FileReport] | None = None,
        keep: bool = False,
    ) -> None:
        self._keep = keep
        self._spark = spark
        far = is_url(root) or is_remote(spark)
        self.root: Path | str = str(root).rstrip("/") if far else Path(root)
        self._report = report or _complain
        self._inspected = files
        self._tables: dict[str, DataFrame] = {}
        if isinstance(self.root, Path):
            _folders(self.root)

    @cached_property
    def files(self) -> list[FileReport]:
        """What was found in the folder, file by file; bad files are reported when this is first asked for."""
        if self._inspected is not None:
            files = self._inspected
        elif isinstance(self.root, Path):
            files = inspect_traces(self.root)
        else:
            files = inspect_far_traces(self._spark, self.root)
        for file in files:
            if not file.ok:
                self._report(file)
        return files

    def table(self, kind: str) -> DataFrame:
        """One table; it is empty, with the right columns, when there are no files of that kind."""
        if kind not in self._tables:
            self._tables[kind] = _read(self._spark, self.root, require_kind(kind), self.files)
            if kind == "delivery" and self._keep:
                keep_places(self._tables[kind])
        return self._tables[kind]

    def close(self) -> None:
        """Free what was kept; the tables can be read on."""
        if "delivery" in self._tables:
            free_places(self._tables["delivery"])

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


def _read(spark: SparkSession, root: Path | str, kind: str, files: Sequence[FileReport]) -> DataFrame:
    schema = trace_schema(kind)
    of_kind = [report for report in files if report.kind == kind]
    good = [str(report.path) for report in of_kind if report.ok]
    if not good:
        return spark.createDataFrame([], schema)
    near = isinstance(root, Path)
    # Spark writes URLs in full, so of far files only the last parts are known to be as they were asked for.
    sweep = _is_sweep(root) if isinstance(root, Path) else good[0].split("/")[-3].startswith(RUN_PREFIX)
    reader = spark.read.schema(schema if sweep else schema.__class__(schema.fields[:-1]))
    base = str(root) if near else good[0].rsplit("/", 3 if sweep else 2)[0]
    # Folders are listed faster than files are named, but a folder is all or nothing.
    if near:
        folders = {Path(path).parent for path in good}
        found = [standing_files(folder) for folder in folders]
        if not any(each.merged for each in found) and sum(len(each.standing) for each in found) == len(good):
            good = sorted(map(str, folders))
    table = reader.option("basePath", base).option("pathGlobFilter", f"*{FILE_SUFFIX}").parquet(*good)
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

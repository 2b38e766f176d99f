"""How does the table of what a network does now stay current?

A streaming query watches the traces' folders. A batch of it says which times the new files are about; the
periods from a little before them on are counted anew from the trace and replaced in the table. So a batch
that is repeated after a crash changes nothing, a row that comes late corrects the period it belongs to, and
the table is what the metrics would say about the whole trace, for everything that came in time.

The trace's files never change, so each is looked at once: which times it is about is remembered.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from braid.errors import ConfigurationError
from braid.pipeline.live.measures import measured_brokers, measured_links
from braid.pipeline.live.table import LiveTable
from braid.pipeline.schemas import RUN, trace_schema
from braid.pipeline.traces import Traces
from braid.trace.reader import inspect_file, standing_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["LiveMetrics", "LiveSettings"]

_log = logging.getLogger(__name__)

WATCHED = ("publication", "hop", "delivery", "broker_load", "link_sample")
# Files of each table that one batch takes, so that a job that was away does not take a day at once.
FILES_PER_BATCH = 1_000
ALWAYS_US = (-(2**63), 2**63 - 1)


@dataclass(frozen=True, kw_only=True)
class LiveSettings:
    """How the table is kept."""

    period_us: int = 10_000_000
    """What one row is about."""
    late_us: int = 120_000_000
    """How late a row may come. Brokers hold rows back for a minute."""
    keep_us: int = 3_600_000_000
    """How long rows stay in the table."""
    link_costs: DataFrame | None = None
    """`source, target, cost`; unit costs without it."""
    broker_costs: DataFrame | None = None
    """`broker, cost`; unit costs without it."""

    def __post_init__(self) -> None:
        for name in ("period_us", "late_us", "keep_us"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.keep_us < self.late_us + 2 * self.period_us:
            raise ConfigurationError("keep_us must be longer than late_us and two periods")


class LiveMetrics:
    """Keeps a table current from one trace that brokers write.

        query = LiveMetrics(spark, "traces", "live").start(every="5 seconds")

    Args:
        spark: the session.
        traces: the folder of the trace, which is made if it is not there yet.
        folder: the table.
        settings: how it is kept.
    """

    def __init__(
        self,
        spark: SparkSession,
        traces: Path | str,
        folder: Path | str,
        settings: LiveSettings | None = None,
    ) -> None:
        self._spark = spark
        self._traces = Path(traces)
        self.table = LiveTable(folder)
        self._settings = settings or LiveSettings()
        self._times: dict[Path, tuple[int, int] | None] = {}
        """By file: the first and last time in it; None where it cannot be used."""
        self._newest_us: int | None = None

    def start(self, every: str | None = None) -> StreamingQuery:
        """Start the query: so often (`5 seconds`), or, without that, once over what is there now."""
        for kind in WATCHED:
            # A stream of files wants a folder to watch.
            (self._traces / kind).mkdir(parents=True, exist_ok=True)
        news = reduce(lambda one, other: one.unionByName(other), (self._news(kind) for kind in WATCHED))
        writer = news.writeStream.foreachBatch(self._update).queryName("braid live metrics")
        writer = writer.option("checkpointLocation", str(self.table.folder / ".checkpoint"))
        trigger = writer.trigger(availableNow=True) if every is None else writer.trigger(processingTime=every)
        return trigger.start()

    def _news(self, kind: str) -> DataFrame:
        schema = trace_schema(kind)
        reader = self._spark.readStream.schema(schema.__class__([f for f in schema.fields if f.name != RUN]))
        # A file may be foreign or damaged, and may be merged with others and removed before it is read.
        reader = reader.option("ignoreCorruptFiles", "true").option("ignoreMissingFiles", "true")
        reader = reader.option("maxFilesPerTrigger", FILES_PER_BATCH).option("pathGlobFilter", "*.parquet")
        return reader.parquet(str(self._traces / kind)).select("at_us")

    def _update(self, news: DataFrame, _number: int) -> None:
        """Count anew what a batch of news may have changed."""
        chosen = self._settings
        # A clock that is far ahead must not make everything else old.
        horizon = time.time_ns() // 1_000 + chosen.late_us
        known = news.where(F.col("at_us") <= horizon)
        row = known.agg(F.min("at_us").alias("first"), F.max("at_us").alias("last")).first()
        if row is None or row["first"] is None:
            return
        self._newest_us = max(row["last"], self._newest_us if self._newest_us is not None else row["last"])
        oldest = self._newest_us - chosen.keep_us
        start = max(row["first"] - chosen.late_us, oldest)
        start -= start % chosen.period_us
        files = self._files(start - chosen.late_us)
        traces = Traces(self._spark, self._traces, files=files)
        # Some rows before the first period, so that what came first then is not taken for new.
        tables = {
            kind: traces.table(kind).where(F.col("at_us").between(start - chosen.late_us, horizon))
            for kind in WATCHED
        }
        brokers = measured_brokers(
            *(tables[kind] for kind in ("publication", "hop", "delivery", "broker_load")),
            period_us=chosen.period_us,
            broker_costs=chosen.broker_costs,
        )
        links = measured_links(
            tables["hop"], tables["link_sample"], period_us=chosen.period_us, link_costs=chosen.link_costs
        )
        for kind, rows in (("brokers", brokers), ("links", links)):
            self.table.replace(kind, start, rows.where(F.col("at_us") >= start).toArrow())
        self.table.forget(oldest)
        self._publish()

    def _files(self, from_us: int) -> list[Any]:
        """The files with rows from a time on, each looked at once in the life of this job."""
        chosen = []
        seen: dict[Path, tuple[int, int] | None] = {}
        for kind in WATCHED:
            for file in standing_files(self._traces / kind).standing:
                report = None
                if file.path not in self._times:
                    report = inspect_file(file.path)
                    self._times[file.path] = _times(file.path) if report.ok else None
                    if not report.ok:
                        _log.warning("a file of a trace is left out: %s %s", report.path, report.problem)
                times = seen[file.path] = self._times[file.path]
                if times is not None and times[1] >= from_us:
                    chosen.append(report or _known(file.path))
        self._times = seen
        return chosen

    def _publish(self) -> None:
        """The newest complete period of each broker and link.

        A period is complete when its broker has noted something after its end; of links, the receiver.
        """
        period_us = self._settings.period_us
        # What has been silent for longer is not current.
        oldest = self.table.newest_us() - self._settings.late_us - 2 * period_us
        brokers, links = self.table.rows("brokers", oldest), self.table.rows("links", oldest)
        newest = {row["broker"]: row["at_us"] for row in brokers}
        complete = {row["broker"]: row for row in brokers if row["at_us"] < newest[row["broker"]]}
        crossed = {
            (row["source"], row["target"], row["link"]): row
            for row in links
            if row["at_us"] < newest.get(row["target"], row["at_us"])
        }
        self.table.publish(
            period_us,
            [row for _, row in sorted(complete.items())],
            [row for _, row in sorted(crossed.items())],
            max((row["at_us"] + period_us for row in complete.values()), default=0),
        )


def _times(path: Path) -> tuple[int, int]:
    """The first and the last time in a file, from its end alone where the file says so."""
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        place = file.schema_arrow.get_field_index("at_us")
        found = [file.metadata.row_group(number).column(place) for number in range(file.num_row_groups)]
        statistics = [column.statistics for column in found]
        if not all(each is not None and each.has_min_max for each in statistics):
            return ALWAYS_US
        return min(each.min for each in statistics), max(each.max for each in statistics)


def _known(path: Path) -> Any:
    from braid.trace.reader import FileReport

    return FileReport(path, path.parent.name, True)

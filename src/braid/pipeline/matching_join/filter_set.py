"""How are filters read once and asked many times?

    with FilterSet.build(filters) as ready:
        match_join(monday, ready).write.parquet("monday")
        match_join(tuesday, ready).write.parquet("tuesday")

A set is what a join makes of its table of filters anyway, kept: the packed shards, and their broadcast,
which `close` takes from the workers. `save` and `FilterSet.load` keep it for other sessions, and `refresh`
brings it up to date, such as before each batch of a stream. A saved set is read with pickle: load only
your own.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from braid import __version__
from braid.errors import ConfigurationError
from braid.pipeline.matching_join.by_index import BuiltFilters, built_filters
from braid.pipeline.matching_join.problems import OnError, judge
from braid.pipeline.matching_join.shards import Shards
from braid.pipeline.matching_join.sharing import Shared
from braid.pipeline.matching_join.tables import KEY, TEXT, filter_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from pyspark.sql import DataFrame, SparkSession

    from braid.pipeline.matching_join.tables import FilterTable

__all__ = ["FilterSet"]

# What is remembered of the table with a set that is saved.
_COLUMNS = ("filter_column", "key_column", "destination_column")
SHARD_FILTERS = 100_000
"""Filters that one task parses and indexes."""


class FilterSet:
    """Filters that are read and indexed, ready for any number of joins by index."""

    def __init__(
        self, built: BuiltFilters, key_type: str, destination_type: str | None, fingerprint: tuple[int, int]
    ) -> None:
        """Not to be called: see `build` and `load`."""
        self.built = built
        self.key_type = key_type
        self.destination_type = destination_type
        self._fingerprint = fingerprint
        self._asked: dict[str, Any] = {}
        self._shared: Shared | None = None
        self._closed = False

    @classmethod
    def build(
        cls,
        filters: DataFrame,
        *,
        filter_column: str = "filter",
        key_column: str = "id",
        destination_column: str | None = None,
        on_error: OnError = "stop",
        report: Callable[[str], None] | None = None,
    ) -> FilterSet:
        """Read and index a table of filters; the arguments are those of `match_join`.

        Raises:
            ConfigurationError: a column is missing or of a wrong type.
            FilterError: a filter cannot be read.
        """
        asked = {
            "filter_column": filter_column,
            "key_column": key_column,
            "destination_column": destination_column,
            "on_error": on_error,
            "report": report,
        }
        table = _table(filters, asked)
        fingerprint = _fingerprint(table)
        built = built_filters(table, max(1, -(-fingerprint[0] // SHARD_FILTERS)))
        judge(built.problems, on_error, report)
        made = cls(built, table.key_type, table.destination_type, fingerprint)
        made._asked = asked
        return made

    @property
    def filters(self) -> int:
        """How many rows the table of filters has."""
        return self._fingerprint[0]

    @property
    def bytes(self) -> int:
        """Size of what every worker gets."""
        return self.built.bytes

    def refresh(self, filters: DataFrame) -> bool:
        """Take the filters of this table from now on, where they are others; returns whether they are.

        Joins that were made before keep the filters they were made with, but cannot run again: what was
        broadcast for them is freed.

        Raises:
            FilterError: a filter cannot be read; the set stays as it was.
        """
        self._require_open()
        table = _table(filters, self._asked)
        if _fingerprint(table) == self._fingerprint:
            return False
        other = FilterSet.build(filters, **self._asked)
        self.built, self._fingerprint = other.built, other._fingerprint
        self.key_type, self.destination_type = other.key_type, other.destination_type
        self._free()
        return True

    def save(self, path: str, spark: SparkSession) -> None:
        """Keep the set under a path or URL that Spark writes to; what is there is replaced."""
        self._require_open()
        head = {
            "version": __version__,
            "key_type": self.key_type,
            "destination_type": self.destination_type,
            "fingerprint": self._fingerprint,
            "names": sorted(self.built.names),
            "shards": len(self.built.packed),
            "columns": {name: self._asked[name] for name in _COLUMNS},
        }
        rows = [(place, "", shard) for place, shard in enumerate(self.built.packed)]
        rows.insert(0, (-1, json.dumps(head), b""))
        frame = spark.createDataFrame(rows, "place INT, head STRING, shard BINARY")
        frame.write.mode("overwrite").parquet(path)

    @classmethod
    def load(cls, path: str, spark: SparkSession) -> FilterSet:
        """A set that was saved. It is read with pickle, so that it has to come from who may run code here.

        Raises:
            ConfigurationError: there is no set, or another version of Braid has made it.
        """
        rows = spark.read.parquet(path)
        if rows.columns != ["place", "head", "shard"]:
            raise ConfigurationError(f"{path} is no saved set of filters; FilterSet.save makes one")
        found = sorted(rows.collect(), key=lambda row: int(row.place))
        head = json.loads(found[0].head) if found else {}
        if head.get("version") != __version__:
            raise ConfigurationError(
                f"{path} was saved by Braid {head.get('version')}, and this is {__version__}; build the set "
                "anew"
            )
        packed = [bytes(row.shard) for row in found[1:]]
        if len(packed) != head["shards"]:
            raise ConfigurationError(
                f"{path} has {len(packed)} of {head['shards']} parts; save the set again"
            )
        built = BuiltFilters(packed, set(head["names"]), [])
        rows_and_sum = head["fingerprint"]
        made = cls(built, head["key_type"], head["destination_type"], (rows_and_sum[0], rows_and_sum[1]))
        made._asked = head["columns"]
        return made

    def shards_for(self, frame: DataFrame) -> Shared:
        """The shards, sent to the workers once."""
        self._require_open()
        if self._shared is None:
            self._shared = Shared(frame, Shards([*self.built.packed]))
        return self._shared

    def close(self) -> None:
        """Take the filters from the workers' memory and disks. A second call does nothing."""
        self._free()
        self._closed = True

    def _free(self) -> None:
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.free()

    def _require_open(self) -> None:
        if self._closed:
            raise ConfigurationError("this set of filters has been closed; build it again")

    def __enter__(self) -> FilterSet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _table(filters: DataFrame, asked: dict[str, Any]) -> FilterTable:
    destination = asked["destination_column"]
    return filter_table(
        filters,
        key=asked["key_column"],
        text=asked["filter_column"],
        destination=destination,
        how="counts" if destination is None else "destinations",
    )


def _fingerprint(table: FilterTable) -> tuple[int, int]:
    """The number of filters, and a sum over all of them in any order."""
    from pyspark.sql import functions as F

    others = [name for name in table.rows.columns if name not in (KEY, TEXT)]
    each = F.xxhash64(*(F.col(name) for name in (KEY, TEXT, *others))).cast("decimal(38, 0)")
    row = table.rows.agg(F.count("*").alias("rows"), F.sum(each).alias("total")).first()
    return (0, 0) if row is None else (int(row.rows), int(row.total or 0))

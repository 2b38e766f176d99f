"""What happened?

Records of publications, hops, deliveries, subscriptions, links and brokers, in Parquet files that simulations
and real brokers write alike and that any tool for tables reads.

- `records`: which tables there are, and their columns. `columns`: how rows become columns.
- `writer`: `TraceWriter`. `reader`: `read_table` and `inspect`, without Spark.
- `compaction`: `compact` merges the many small files of a broker.
- `checks`: were deliveries lost, doubled, out of order or uninvited?
"""

from __future__ import annotations

from braid.trace.compaction import Compacted, compact
from braid.trace.reader import FileReport, inspect, read_table
from braid.trace.records import KINDS, TRACE_VERSION, schema
from braid.trace.writer import TraceWriter

__all__ = [
    "KINDS",
    "TRACE_VERSION",
    "Compacted",
    "FileReport",
    "TraceWriter",
    "compact",
    "inspect",
    "read_table",
    "schema",
]

"""Who asks for what, and who says what, when?

Workloads of the papers, synthetic mixes and real data, as tables of brokers, subscriptions and publications.
Every row is a function of the seed and its number, so Spark makes the same rows in any number of pieces, and
`Workload.local` makes them without Spark.
"""

from __future__ import annotations

from braid.workloads.registry import DEFINITIONS, definition, workload
from braid.workloads.storage import StoredWorkload, load, require_place, write, write_elsewhere
from braid.workloads.tables import Table, Workload, attribute_rows

__all__ = [
    "DEFINITIONS",
    "StoredWorkload",
    "Table",
    "Workload",
    "attribute_rows",
    "definition",
    "load",
    "require_place",
    "workload",
    "write",
    "write_elsewhere",
]

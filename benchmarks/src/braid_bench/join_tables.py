"""Which tables is the matching join measured on?

`wide`    W1 of `workloads`: 1 to 5 ranges over 10 integer attributes in [1, 256], about 5 % match
`narrow`  2 to 5 ranges of at most 16 values, of which about 1 in 7,000 matches: selective filters
`whole`   the filters of `wide`; a publication has all 10 attributes, where it has 1 to 10 of them otherwise

Filters are written twice: as SQL text, which Braid reads, and as a low and a high per attribute, which is the
form that is quickest for Spark's own join. An attribute that a filter leaves open has bounds that hold for
everything, and an absent attribute is below all of them, so that Spark compares without looking for NULL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from braid_bench.workloads import make_workload, random_stream

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["DESTINATIONS", "WHOLE", "WORKLOADS", "cross_join_condition", "write_tables"]

WORKLOADS = ("wide", "narrow")
WHOLE = "whole"
# As in W1.
ATTRIBUTES = 10
DOMAIN = 256
DESTINATIONS = 64
NARROW_MIN, NARROW_MAX = 2, 16
# Rows of one file, so that Spark has several tasks to give to its cores.
ROWS_PER_FILE = 25_000

_ABSENT = -1
_OPEN = 1 << 20


def write_tables(workload: str, publications: int, filters: int, seed: int, directory: Path) -> None:
    """Write `publications` and `filters` as Parquet below the directory."""
    import pyarrow as pa

    low, high, bounded = _bounds(workload, filters, seed)
    names = [f"a{column}" for column in range(ATTRIBUTES)]
    texts = [
        " AND ".join(
            f"{names[column]} BETWEEN {low[row, column]} AND {high[row, column]}" for column in columns
        )
        for row, columns in enumerate(map(np.flatnonzero, bounded))
    ]
    table: dict[str, Any] = {
        "id": np.arange(filters),
        "destination": np.arange(filters, dtype=np.int32) % DESTINATIONS,
        "filter": texts,
    }
    for column in range(ATTRIBUTES):
        table[f"l{column}"] = np.where(bounded[:, column], low[:, column], _ABSENT)
        table[f"h{column}"] = np.where(bounded[:, column], high[:, column], _OPEN)
    _write(pa.table(table), directory / "filters")
    random = random_stream(seed, f"join/{workload}/publications")
    rank = np.argsort(random.random((publications, ATTRIBUTES)), axis=1)
    present = rank < random.integers(1, ATTRIBUTES + 1, (publications, 1))
    if workload == WHOLE:
        present[:] = True
    values = random.integers(1, DOMAIN + 1, present.shape)
    attributes = {
        name: pa.array(values[:, column], mask=~present[:, column]) for column, name in enumerate(names)
    }
    _write(pa.table({"id": np.arange(publications), **attributes}), directory / "publications")


def _write(table: Any, directory: Path) -> None:
    import pyarrow.parquet as pq

    directory.mkdir(parents=True)
    for number, start in enumerate(range(0, max(1, len(table)), ROWS_PER_FILE)):
        pq.write_table(table.slice(start, ROWS_PER_FILE), directory / f"part-{number:04d}.parquet")


def _bounds(workload: str, filters: int, seed: int) -> tuple[Any, Any, Any]:
    """Lows, highs and which of them count, one line per filter."""
    shape = (filters, ATTRIBUTES)
    low, high = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    if workload in ("wide", WHOLE):
        conditions = make_workload("W1", filters, 1, seed).conditions
        bounded = np.zeros(shape, np.bool_)
        places = conditions.owner(), conditions.attribute
        low[places], high[places], bounded[places] = conditions.low, conditions.high, True
        return low, high, bounded
    random = random_stream(seed, "join/narrow/filters")
    rank = np.argsort(random.random(shape), axis=1)
    bounded = rank < random.integers(2, 6, (filters, 1))
    width = random.integers(NARROW_MIN, NARROW_MAX + 1, shape)
    low = 1 + np.floor(random.random(shape) * (DOMAIN - width + 1)).astype(np.int64)
    return low, low + width - 1, bounded


def cross_join_condition() -> str:
    """What Spark's own join compares, for tables `p` and `f`."""
    return " AND ".join(
        f"coalesce(p.a{column}, {_ABSENT}) >= f.l{column} AND coalesce(p.a{column}, {_ABSENT}) <= f.h{column}"
        for column in range(ATTRIBUTES)
    )

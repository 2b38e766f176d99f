"""Where does a query stand in its logs?

Spark keeps what these functions make in its checkpoint: by the name of each log its id, the next offset, and
the epoch of the row before that. So a log that was dropped and made anew, or restored from a backup, is not
taken for the one that the query knows.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from braid.pipeline.source.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from braid.runtime import DurableStatus

__all__ = ["LogRange", "cut", "limited", "place", "require_same"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LogRange(InputPartition):
    """A range of offsets of one log, for one task."""

    broker: str
    name: str
    log_id: str
    epoch: str
    """Of the row before the first."""
    first: int
    last: int
    secret: str | None = None
    key: str = ""
    """The whole name of the log, for tasks that are not its owner; empty where they are."""


def place(status: DurableStatus, next_offset: int) -> dict[str, Any]:
    """An offset of one log as Spark keeps it."""
    return {"id": status.id, "next": next_offset, "epoch": status.epoch_at(next_offset - 1)}


def require_same(name: str, status: DurableStatus, at: Mapping[str, Any], *, fail_on_data_loss: bool) -> int:
    """Where a query that stood at `at` goes on in a log.

    Raises:
        SourceError: it is another log, or rows that the query needs are not there.
    """
    if at["id"] != status.id:
        raise SourceError(
            f"the log {name!r} was dropped and made anew since the checkpoint was written (its id was "
            f"{at['id']}, and is {status.id}); its offsets mean other rows now: start the query with a new "
            "checkpoint"
        )
    next_offset: int = at["next"]
    known = status.epoch_at(next_offset - 1)
    if next_offset > status.next or (at.get("epoch") and known and known != at["epoch"]):
        raise SourceError(
            f"the log {name!r} does not have the rows that this query has read up to offset "
            f"{next_offset - 1}: it was restored from a backup, or its broker lost its data; start the query "
            "with a new checkpoint"
        )
    if next_offset < status.first:
        lost = (
            f"rows {next_offset} to {status.first - 1} of the log {name!r} are not kept any more, and this "
            "query has not read them"
        )
        if fail_on_data_loss:
            raise SourceError(
                f"{lost}; give failOnDataLoss=false to go on without them, or startingOffset with a new "
                "checkpoint"
            )
        logger.warning("%s: %d rows are lost, and the query goes on", lost, status.first - next_offset)
        return status.first
    return next_offset


def limited(starts: Mapping[str, int], ends: Mapping[str, int], rows_max: int | None) -> dict[str, int]:
    """How far to go in each log so that it is no more than so many rows, shared among the logs."""
    available = {name: max(0, ends[name] - starts[name]) for name in starts}
    total = sum(available.values())
    if rows_max is None or total <= rows_max:
        return {name: starts[name] + available[name] for name in starts}
    # In proportion to what there is; what rounding leaves goes to the first logs that have more.
    shares = {name: rows_max * count // total for name, count in available.items()}
    left = rows_max - sum(shares.values())
    for name in sorted(starts):
        more = min(left, available[name] - shares[name])
        shares[name] += more
        left -= more
    return {name: starts[name] + shares[name] for name in starts}


def cut(ranges: Sequence[LogRange], rows_per_partition: int, partitions_max: int) -> list[LogRange]:
    """Ranges in pieces for tasks; the pieces grow where there would be too many."""
    total = sum(each.last - each.first + 1 for each in ranges)
    size = max(rows_per_partition, -(-total // max(1, partitions_max)))
    pieces: list[LogRange] = []
    for each in ranges:
        for first in range(each.first, each.last + 1, size):
            last = min(first + size - 1, each.last)
            # Only the row before the first piece is known by its epoch.
            epoch = each.epoch if first == each.first else ""
            pieces.append(replace(each, epoch=epoch, first=first, last=last))
    return pieces

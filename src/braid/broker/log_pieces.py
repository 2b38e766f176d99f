"""Pieces of a log on their way between two brokers.

What the store is asked for, what a message can carry, and what of it is to be believed.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from braid.errors import RemoteProtocolError
from braid.protocol.epochs import EPOCHS_MAX
from braid.protocol.limits import carried_bytes
from braid.protocol.log import AppendRows, BeginEpoch, LogRow
from braid.protocol.packed_rows import PackedRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.broker.parties import Link
    from braid.protocol.copies import CopyHead
    from braid.protocol.duplicates import DuplicateFilter
    from braid.protocol.epochs import EpochHistory
    from braid.protocol.inputs import LogRead
    from braid.protocol.log import StoreOperation

__all__ = ["OFFSET_MAX", "appended", "checked_head", "checked_rows", "piece_of"]

# What a neighbour may say: offsets that do not reach their end, and names that somebody may have chosen.
OFFSET_MAX = 1 << 62
SHARDS_MAX = 1024
NAME_LENGTH_MAX = 4096

# What a row takes beside its record, and a publisher beside its name and its bits.
ROW_BYTES = 24
PUBLISHER_BYTES = 32


def checked_head(head: CopyHead) -> CopyHead:
    """What a neighbour says of a log, if there can be such a log.

    Raises:
        RemoteProtocolError: there cannot.
    """
    firsts = [first for _, first in head.epochs]
    possible = (
        head.copies == 1
        and 0 <= head.first <= head.next <= OFFSET_MAX
        and -1 <= head.acknowledged < max(head.next, 1)
        and 0 <= head.shard < head.shards <= SHARDS_MAX
        and len(firsts) <= EPOCHS_MAX
        and firsts == sorted(firsts)
        and all(0 <= first <= head.next for first in firsts)
        and 0 < len(head.key) <= NAME_LENGTH_MAX
        and 0 < len(head.id) <= NAME_LENGTH_MAX
    )
    if not possible:
        raise RemoteProtocolError(f"there can be no log like the copy of {head.key[:100]!r}")
    return head


def checked_rows(packed: PackedRows) -> list[tuple[str, int, bytes]]:
    """Rows that a neighbour has sent, if they can be such.

    Raises:
        RemoteProtocolError: they cannot.
    """
    rows = packed.checked().rows()
    if not rows or min(row[1] for row in rows) < 0:
        raise RemoteProtocolError("rows of a log that cannot be")
    return rows


def appended(
    name: str,
    first: int,
    epoch: str,
    rows: Sequence[tuple[str, int, bytes]],
    epochs: EpochHistory,
    seen: DuplicateFilter,
    now_us: int,
    tops: dict[str, int] | None = None,
) -> list[StoreOperation]:
    """What the store is to do with further rows of a log, all of one epoch; they are noted as seen.

    Args:
        name: of the log, as the store calls it.
        first: the offset of the first row.
        epoch: that of all rows.
        rows: the publisher, sequence and record of each.
        epochs: those of the log.
        seen: what is in the log.
        now_us: the time at which they are stored.
        tops: by publisher the highest sequence that the store has, where more than that is known as seen.
    """
    operations: list[StoreOperation] = []
    if epoch != epochs.current:
        epochs.begin(epoch, first)
        operations.append(BeginEpoch(name, epoch))
    sequences: dict[str, list[int]] = {}
    last_run: dict[str, int] = {}
    for place, (publisher, sequence, _) in enumerate(rows):
        sequences.setdefault(publisher, []).append(sequence)
        last_run[publisher] = place
    for publisher, numbers in sequences.items():
        seen.new_rows(publisher, np.array(numbers, np.int64))
        if tops is not None:
            tops[publisher] = max(*numbers, tops.get(publisher, numbers[0]))
    offset = first
    for publisher, run in groupby(rows, key=lambda row: row[0]):
        of_run = [LogRow(*row) for row in run]
        offset += len(of_run)
        # What is remembered of a publisher goes with its last rows only: it takes more room than they do.
        recent = b""
        if last_run[publisher] == offset - first - 1 and seen.highest(publisher) is not None:
            recent = seen.packed(publisher, None if tops is None else tops[publisher])[1]
        operations.append(AppendRows(name, offset - len(of_run), of_run, now_us, recent))
    return operations


def piece_of(
    answer: LogRead, first: int, epochs: EpochHistory, link: Link, *, publisher_bytes: int = 0
) -> tuple[str, PackedRows] | None:
    """Of what was read from an offset on as much as one message to a neighbour can carry, and its epoch.

    Args:
        answer: what the store has read.
        first: the offset from which on rows were asked for.
        epochs: those of the log.
        link: the neighbour.
        publisher_bytes: what is said of each publisher beside its name.

    Returns:
        None if the row at that offset was not read.
    """
    if answer.error is not None or answer.packed is None or answer.packed[0] != first:
        return None
    packed = answer.packed[1]
    epoch, _, count = epochs.split([*range(first, first + packed.count)])[0]
    room = carried_bytes(link.channel.frame_bytes_max)
    rows: list[tuple[str, int, bytes]] = []
    publishers: set[str] = set()
    for row in packed.rows()[:count]:
        room -= len(row[2]) + ROW_BYTES
        if row[0] not in publishers:
            publishers.add(row[0])
            room -= len(row[0].encode()) + PUBLISHER_BYTES + publisher_bytes
        if rows and room < 0:
            break
        rows.append(row)
    return epoch, PackedRows.of(rows)

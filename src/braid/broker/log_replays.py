"""How are rows of a log sent again?

A replay is a range of offsets, read piece by piece: the next piece is read when the client has taken the one
before in. It may ask for every row of the range or an error, for the rows that satisfy a filter, and for some
attributes only; rows that nobody asked for then never leave the broker. The answer says which range it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from braid.broker.settling import Pending, WaitingFor
from braid.errors import RequestRefusedError
from braid.matching import FilterIndex
from braid.protocol.batch import decode_heads, encode_record
from braid.protocol.log import LogRow
from braid.protocol.messages import Done

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from braid.broker.durable_log import DurableLog
    from braid.broker.log_reading import LogReading
    from braid.broker.parties import Client
    from braid.broker.turn import Turn
    from braid.language import Filter
    from braid.protocol.inputs import LogRead
    from braid.protocol.messages import Replay

__all__ = ["REPLAYS_MAX", "LogReplays", "Selection"]

# Each has a piece of a log under way, up to `durable_window_bytes`.
REPLAYS_MAX = 16
# Where rows are decoded, pieces are smaller by this, so that a turn stays short.
SELECTED_SHARE = 4


class Selection:
    """Which rows of a log are wanted, and what of each."""

    def __init__(self, filter: Filter | None, columns: Sequence[str] | None) -> None:
        """`columns` are the attributes of each row; None for rows as they are."""
        self._index: FilterIndex[str] | None = None if filter is None else FilterIndex([("chosen", filter)])
        self._columns = None if columns is None else frozenset(columns)

    def of(self, rows: list[tuple[int, LogRow]]) -> list[tuple[int, LogRow]]:
        """What is left of these rows."""
        heads = decode_heads([row.record for _, row in rows])
        if self._index is not None:
            counts = self._index.count_batch([head.attributes for head in heads]).tolist()
            chosen = [place for place, count in enumerate(counts) if count]
            rows = [rows[place] for place in chosen]
            heads = [heads[place] for place in chosen]
        if self._columns is None:
            return rows
        columns = self._columns
        return [
            (
                offset,
                LogRow(
                    row.publisher,
                    row.sequence,
                    encode_record(
                        {name: value for name, value in head.attributes.items() if name in columns},
                        head.published_at_us,
                    ),
                ),
            )
            for (offset, row), head in zip(rows, heads, strict=True)
        ]


@dataclass(slots=True, eq=False)
class _Replay:
    """A range of a log that a client has asked for, and how far it has come."""

    client: Client
    log: DurableLog
    request: int
    first: int
    last: int
    next: int
    complete: bool
    """Whether a row that is missing is an error."""
    selection: Selection | None
    packed: bool = False
    """Whether rows may go as columns."""
    rows: int = 0
    """Those that were sent."""


class LogReplays:
    """Sends ranges of logs again."""

    def __init__(
        self, turn: Turn, reading: LogReading, require_reader: Callable[[Client, DurableLog], object]
    ) -> None:
        """`require_reader` raises a `RequestRefusedError` where a client may not read a log at present."""
        self._turn = turn
        self._reading = reading
        self._require_reader = require_reader
        turn.settlement.resolve(WaitingFor.REPLAY, self._taken)

    def begin(self, client: Client, log: DurableLog, message: Replay) -> None:
        """Send a range of a log from now on, and answer the request at its end.

        Raises:
            RequestRefusedError: it cannot be had, and here is why.
            FilterError: the filter cannot be read.
        """
        if message.id and message.id != log.id:
            raise RequestRefusedError(
                f"the log of {message.name!r} is another one than this replay is about: it was dropped and "
                "made anew",
                "reset",
            )
        if message.epoch and not log.epochs.has(message.epoch, message.first - 1, log.next_offset):
            raise RequestRefusedError(
                f"the log of {message.name!r} is not the one that this replay began with; begin it anew",
                "reset",
            )
        if len(client.replays) >= REPLAYS_MAX and message.request not in client.replays:
            raise RequestRefusedError(f"more than {REPLAYS_MAX} replays at a time", "limit")
        first = max(message.first, 0)
        last = log.safe_offset - 1 if message.last < 0 else message.last
        if message.complete:
            if last >= log.safe_offset:
                raise RequestRefusedError(
                    f"not all rows of {message.name!r} up to offset {last} are stored yet: the first that is "
                    f"not is {log.safe_offset}; ask again later",
                    "unsafe",
                )
            if first <= last:
                _require_kept(log, first)
        selection = None
        if message.filter or message.columns is not None:
            wanted = client.principal.asked_filter(message.filter) if message.filter else None
            selection = Selection(wanted, message.columns)
        client.replays.add(message.request)
        last = min(last, log.safe_offset - 1)
        packed = message.packed and selection is None
        self._go_on(
            _Replay(client, log, message.request, first, last, first, message.complete, selection, packed)
        )

    def _taken(self, taken: Pending) -> None:
        """A client has taken in a piece of a replay."""
        self._go_on(taken.key)

    def _go_on(self, replay: _Replay) -> None:
        if replay.client.connection is None:
            return
        try:
            self._require_reader(replay.client, replay.log)  # the grant may have shrunk between two pieces
        except RequestRefusedError as error:
            self._fail(replay, error)
            return
        if replay.next > replay.last:
            self._answer(replay)
            return
        share = SELECTED_SHARE if replay.selection is not None else 1
        self._reading.read(
            replay.log.key,
            replay.next,
            replay.last,
            lambda answer: self._was_read(replay, answer),
            share,
            packed=replay.packed,
        )

    def _was_read(self, replay: _Replay, answer: LogRead) -> None:
        if answer.error is not None:
            self._fail(replay, RequestRefusedError(answer.error, "store"))
            return
        rows = answer.rows
        if replay.complete:
            found = rows[0][0] if rows else answer.packed[0] if answer.packed else replay.log.first_offset
            try:
                # The store gives whatever is left of a range; offsets of what it gives have no gaps.
                _require_kept(replay.log, replay.next, found)
            except RequestRefusedError as error:
                self._fail(replay, error)
                return
        if answer.packed is not None:
            first, packed = answer.packed
            message = self._reading.stored_packed(replay.log, replay.client, first, packed, replay.request)
            if message is not None:
                replay.next = first + packed.count
                replay.rows += packed.count
                self._turn.offer(replay.client, message, Pending(WaitingFor.REPLAY, replay.client, replay))
                return
            rows = [(offset, LogRow(*row)) for offset, row in enumerate(packed.rows(), first)]
        if not rows:
            self._answer(replay)
            return
        replay.next = rows[-1][0] + 1
        permitted = replay.log.permitted_rows(rows)
        if replay.complete and len(permitted) < len(rows):
            self._fail(replay, _withheld(replay.log, rows, permitted))
            return
        if replay.selection is not None and permitted:
            permitted = replay.selection.of(permitted)
        parts = self._reading.parts(replay.log, replay.client, permitted)
        sent = sum([len(part) for _, part in parts])
        if replay.complete and sent < len(permitted):
            self._fail(
                replay,
                RequestRefusedError("a row of the replay is too large for what this client reads", "limit"),
            )
            return
        replay.rows += sent
        for place, (epoch, part) in enumerate(parts, 1):
            # The next piece is read when the client has taken the last of these in.
            care = Pending(WaitingFor.REPLAY, replay.client, replay) if place == len(parts) else None
            self._turn.offer(
                replay.client, self._reading.stored(replay.log, part, epoch, replay=replay.request), care
            )
        if not parts:
            self._go_on(replay)

    def _fail(self, replay: _Replay, error: RequestRefusedError) -> None:
        replay.client.replays.discard(replay.request)
        self._turn.fail(replay.client, replay.request, error)

    def _answer(self, replay: _Replay) -> None:
        replay.client.replays.discard(replay.request)
        answer = {
            "id": replay.log.id,
            "first": replay.first,
            "last": replay.last,
            "next": replay.next,
            "rows": replay.rows,
        }
        self._turn.tell(replay.client, Done(replay.request, msgspec.json.encode(answer).decode()))


def _withheld(
    log: DurableLog, rows: Sequence[tuple[int, LogRow]], permitted: Sequence[tuple[int, LogRow]]
) -> RequestRefusedError:
    """Why a replay that is to be complete cannot be."""
    given = {offset for offset, _ in permitted}
    first = next(offset for offset, _ in rows if offset not in given)
    return RequestRefusedError(
        f"rows of {log.name!r} from offset {first} on are not for its owner any more, who may subscribe to "
        "less than when they were stored; grant that again, or begin behind them",
        "withheld",
    )


def _require_kept(log: DurableLog, first: int, found: int | None = None) -> None:
    """Refuse to leave rows out that are not there any more."""
    oldest = log.first_offset if found is None else found
    if oldest > first:
        raise RequestRefusedError(
            f"rows {first} to {oldest - 1} of {log.name!r} are not kept any more; its oldest row is {oldest}",
            "trimmed",
        )

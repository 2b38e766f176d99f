"""When the store is asked to remove the rows that need not be kept any more.

What may go is said by the settings of the store (`Retention`) and by what readers have acknowledged and
pinned; when to look is decided here, so that a simulated broker does it as a real one does. A sweep is a
bounded piece of work: where there is more, the next one follows after whatever else waits for the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.protocol.effects import SweepStore

if TYPE_CHECKING:
    from braid.broker.stored_rows import StoredRows
    from braid.broker.turn import Turn
    from braid.protocol.inputs import Swept

__all__ = ["Sweeps"]

SWEEP_US = 10_000_000
"""Between two looks at what may go. Rows stay so much longer than they have to."""


class Sweeps:
    """Asks for sweeps, one at a time.

    Args:
        turn: where effects go.
        stored: count what each principal has in the store.
    """

    def __init__(self, turn: Turn, stored: StoredRows) -> None:
        self._turn = turn
        self._stored = stored
        self._due_us: int | None = None
        """When the next one is due; None before the first review, and while one is under way."""
        self._under_way = False

    def review(self) -> None:
        """From time to time: ask for a sweep if one is due."""
        now_us = self._turn.now_us
        if self._due_us is None and not self._under_way:
            self._due_us = now_us + SWEEP_US
        elif self._due_us is not None and now_us >= self._due_us:
            self._ask()

    def _ask(self) -> None:
        self._due_us, self._under_way = None, True
        self._turn.effect(SweepStore())

    def swept(self, swept: Swept) -> None:
        """The store has removed rows, or could not."""
        self._under_way = False
        if swept.error:
            self._turn.note("error", "the store could not be swept", reason=swept.error)
        for log in swept.logs:
            self._stored.removed(log.name, log.first_offset)
            if log.unacknowledged:
                self._turn.note(
                    "warning", "rows were dropped that nobody had read", log=log.name, rows=log.unacknowledged
                )
        if swept.finished:
            self._due_us = self._turn.now_us + SWEEP_US
        else:
            self._ask()

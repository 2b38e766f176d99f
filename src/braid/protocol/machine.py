"""What do all machines have in common?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from braid.protocol.effects import Effect
    from braid.protocol.inputs import Input

__all__ = ["Machine"]


class Machine(Protocol):
    """Decides; a driver acts. Same inputs at the same times, same effects."""

    def handle(self, stimulus: Input, now_us: int) -> list[Effect]:
        """Take in what happened and say what is to be done, in order."""
        ...

    def next_deadline_us(self) -> int | None:
        """When a `Tick` is due at the latest, if at all."""
        ...

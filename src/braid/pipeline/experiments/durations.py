"""How long experiments take at the quick scale, as measured or estimated on one machine.

The seconds are those of two cores with nothing else to do, without starting Spark. An estimate takes one run
from the middle of the sweep for all of them, so it can be wrong by a factor of two or three.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["QUICK", "Duration"]


@dataclass(frozen=True, slots=True)
class Duration:
    """How long an experiment takes."""

    seconds: float
    measured: bool = False
    """Whether the whole experiment was run; otherwise it is an estimate."""

    def __str__(self) -> str:
        text = f"{self.seconds:.0f} s" if self.seconds < 100 else f"{self.seconds / 60:.0f} min"
        return text if self.measured else f"~ {text}"


QUICK: Final[Mapping[str, Duration]] = {
    "self-organising.adaptivity": Duration(330),
    "self-organising.change_rate": Duration(13),
    "self-organising.figure2": Duration(10),
    "self-organising.headroom": Duration(130),
}
"""By the full name of the experiment."""

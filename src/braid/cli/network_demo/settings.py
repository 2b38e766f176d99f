"""What a run of the demo is made of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from braid.errors import ConfigurationError

__all__ = ["DemoSettings"]

BROKERS_MIN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """One run."""

    directory: Path
    """Where configuration, logs, data, traces and the report go."""
    brokers: int = 12
    act_s: float = 7.0
    """How long quotes are published in each act that is measured."""
    learn_s: float = 12.0
    """How long brokers may learn soft links, or where the tree should change."""
    rate: float = 40.0
    """Quotes a second of each publisher."""
    replace: bool = True
    """Whether the broker that is killed is replaced. Without, the demo has to fail, and to say so."""
    dashboard: bool = True
    keep: bool = False
    """Leave everything running at the end, until Ctrl-C."""
    seed: int = 1
    patience_s: float = 60.0
    """How long receipts may take before the demo goes on without them."""

    def __post_init__(self) -> None:
        if self.brokers < BROKERS_MIN:
            raise ConfigurationError(f"the demo needs {BROKERS_MIN} brokers or more, not {self.brokers}")

"""Measure the simulator."""

from __future__ import annotations

from braid.errors import ConfigurationError

__all__ = ["EXAMPLES", "bench_simulator"]

EXAMPLES = ("braid --help",)


def bench_simulator() -> None:
    """Measure the simulator."""
    raise ConfigurationError("this command is not built yet")

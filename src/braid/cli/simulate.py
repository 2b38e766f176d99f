"""Run one simulation from a scenario file."""

from __future__ import annotations

from braid.errors import ConfigurationError

__all__ = ["EXAMPLES", "simulate"]

EXAMPLES = ("braid --help",)


def simulate() -> None:
    """Run one simulation from a scenario file."""
    raise ConfigurationError("this command is not built yet")

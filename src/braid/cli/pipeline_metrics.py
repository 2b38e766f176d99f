"""Compute metrics over traces."""

from __future__ import annotations

from braid.errors import ConfigurationError

__all__ = ["EXAMPLES", "metrics"]

EXAMPLES = ("braid --help",)


def metrics() -> None:
    """Compute metrics over traces."""
    raise ConfigurationError("this command is not built yet")

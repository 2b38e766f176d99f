"""Run an experiment of a paper."""

from __future__ import annotations

from braid.errors import ConfigurationError

__all__ = ["EXAMPLES", "reproduce"]

EXAMPLES = ("braid --help",)


def reproduce() -> None:
    """Run an experiment of a paper."""
    raise ConfigurationError("this command is not built yet")

"""Join publications with filters."""

from __future__ import annotations

from braid.errors import ConfigurationError

__all__ = ["EXAMPLES", "match_tables"]

EXAMPLES = ("braid --help",)


def match_tables() -> None:
    """Join publications with filters."""
    raise ConfigurationError("this command is not built yet")

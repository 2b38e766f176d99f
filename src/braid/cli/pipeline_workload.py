"""Make a workload as Parquet tables."""

from __future__ import annotations

from braid.errors import ConfigurationError

__all__ = ["EXAMPLES", "workload"]

EXAMPLES = ("braid --help",)


def workload() -> None:
    """Make a workload as Parquet tables."""
    raise ConfigurationError("this command is not built yet")

"""Measure the matching join."""

from __future__ import annotations

from braid.errors import ConfigurationError

__all__ = ["EXAMPLES", "bench_join"]

EXAMPLES = ("braid --help",)


def bench_join() -> None:
    """Measure the matching join."""
    raise ConfigurationError("this command is not built yet")

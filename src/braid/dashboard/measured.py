"""What traces say a network does now, where `braid pipeline live` keeps it current."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from braid.errors import ConfigurationError
from braid.pipeline.live.table import CURRENT, read_current

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Measured"]

_log = logging.getLogger("braid.dashboard")


class Measured:
    """Reads the table again whenever it was written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: tuple[int, int] | None = None
        self._found: dict[str, Any] | None = None

    def now(self) -> dict[str, Any] | None:
        """Brokers by name and links as lists, or None where nothing is known."""
        try:
            status = (self._folder / CURRENT).stat()
        except OSError:
            return None
        written = (status.st_mtime_ns, status.st_ino)
        if written != self._written:
            self._written = written
            try:
                found = read_current(self._folder)
            except ConfigurationError as problem:
                _log.warning("%s", problem)
                found = None
            self._found = found and {
                "period_s": found["period_us"] / 1e6,
                "until": found["until_us"] / 1e6,
                "brokers": {row["broker"]: row for row in found["brokers"]},
                "links": found["links"],
            }
        return self._found

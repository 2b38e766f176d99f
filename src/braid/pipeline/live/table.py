"""Where does what is known about a network now lie?

    FOLDER/brokers/<period>.parquet   a row for each broker
    FOLDER/links/<period>.parquet     a row for each direction of a link
    FOLDER/current.json               of each broker and link the newest period that is complete

A file is replaced as a whole, so a reader never sees half of it. Reading `current.json` needs nothing but
Python, since a dashboard may run where Spark and pyarrow are not.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["BROKER_COLUMNS", "COUNTS", "CURRENT", "LINK_COLUMNS", "LiveTable", "read_current"]

VERSION = 1
CURRENT = "current.json"
KINDS = ("brokers", "links")
CURRENT_BYTES_MAX = 64 << 20

COUNTS = (
    "sent",
    "deliveries",
    "pure_forwarders",
    "repeats",
    "local_deliveries",
    "links",
    "published",
    "dropped",
)
BROKER_COLUMNS = (
    "at_us",
    "broker",
    *COUNTS,
    "yield",
    "mean_hops",
    "mean_delay_us",
    "delay_us_max",
    "queue_bytes",
    "processing_cost",
)
LINK_COLUMNS = (
    "at_us",
    "source",
    "target",
    "link",
    "publications",
    "bytes",
    "messages",
    "message_bytes",
    "queue_bytes",
    "round_trip_us",
    "communication_cost",
)


class LiveTable:
    """The folder, for the one that writes it."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        for kind in KINDS:
            (self.folder / kind).mkdir(parents=True, exist_ok=True)
            for left in (self.folder / kind).glob(".*.tmp"):
                left.unlink()  # by a writer that was killed

    def replace(self, kind: str, from_us: int, rows: Any) -> None:
        """Have exactly these rows, an Arrow table in order of time, from a time on."""
        import pyarrow.compute as pc

        starts = set(pc.unique(rows.column("at_us")).to_pylist())
        for path, start in self._files(kind):
            if start >= from_us and start not in starts:
                path.unlink()
        for start in sorted(starts):
            self._write(kind, start, rows.filter(pc.equal(rows.column("at_us"), start)))

    def _write(self, kind: str, start: int, rows: Any) -> None:
        from pyarrow import parquet

        place = self.folder / kind / f"{start}.parquet"
        hidden = place.parent / f".{place.name}.tmp"
        parquet.write_table(rows, hidden)
        os.replace(hidden, place)

    def forget(self, before_us: int) -> None:
        """Remove what began before a time."""
        for kind in KINDS:
            for path, start in self._files(kind):
                if start < before_us:
                    path.unlink()

    def rows(self, kind: str, from_us: int | None = None) -> list[dict[str, Any]]:
        """All rows of a kind, or those from a time on, in order of time."""
        from pyarrow import parquet

        chosen = [path for path, start in self._files(kind) if from_us is None or start >= from_us]
        return [row for path in chosen for row in parquet.read_table(path).to_pylist()]

    def newest_us(self) -> int:
        """When the newest period began."""
        return max((start for kind in KINDS for _, start in self._files(kind)), default=0)

    def _files(self, kind: str) -> list[tuple[Path, int]]:
        found = [
            (path, int(path.stem))
            for path in (self.folder / kind).glob("*.parquet")
            if path.stem.removeprefix("-").isdigit()
        ]
        return sorted(found, key=lambda each: each[1])

    def publish(
        self,
        period_us: int,
        brokers: Sequence[dict[str, Any]],
        links: Sequence[dict[str, Any]],
        until_us: int,
    ) -> None:
        """Say what is current, for whoever looks."""
        found = {
            "version": VERSION,
            "period_us": period_us,
            "until_us": until_us,
            "brokers": brokers,
            "links": links,
        }
        hidden = self.folder / f".{CURRENT}.tmp"
        hidden.write_text(json.dumps(found) + "\n", encoding="utf-8")
        os.replace(hidden, self.folder / CURRENT)


def read_current(folder: Path | str) -> dict[str, Any] | None:
    """What is current: `period_us`, `until_us`, `brokers` and `links`; None where nothing is known yet.

    Raises:
        ConfigurationError: what lies there is something else.
    """
    path = Path(folder) / CURRENT
    try:
        if path.stat().st_size > CURRENT_BYTES_MAX:
            raise ConfigurationError(f"{path} is larger than {CURRENT_BYTES_MAX:,} bytes")
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as problem:
        raise ConfigurationError(f"{path} cannot be read: {problem}") from None
    if not isinstance(found, dict) or found.get("version") != VERSION:
        raise ConfigurationError(f"{path} is not what this version of `braid pipeline live` writes")
    return found

"""A broker with a log, for tests of the Spark source and sink."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import braid

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["running_broker"]


@contextmanager
def running_broker(folder: Path, **settings: Any) -> Iterator[tuple[str, braid.SyncClient]]:
    """The address of a broker that keeps its data in a folder, and a client of it."""
    chosen = {"broker_id": "A", "listen": "127.0.0.1:0", **settings}
    with (
        braid.serve_sync(braid.ServerSettings.of(data_dir=folder, **chosen)) as broker,
        braid.connect_sync(broker.address, name="tests") as client,
    ):
        yield broker.address, client

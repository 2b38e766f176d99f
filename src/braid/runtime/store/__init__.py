"""How do durable subscriptions survive a crash?

- `sqlite`: `SqliteStore`, logs and neighbours in one SQLite file of a data directory.
- `thread`: `StoreThread`, which keeps disk work off the event loop and commits in groups.
- `schema`, `changes`, `lock`: the tables and how they are opened, the work of one transaction, and the guard
  against two processes in one data directory.

The vocabulary of operations and the in-memory twin are in `braid.protocol.log`.
"""

from __future__ import annotations

from braid.runtime.store.sqlite import SqliteStore, Synchronous
from braid.runtime.store.thread import StoreThread

__all__ = ["SqliteStore", "StoreThread", "Synchronous"]

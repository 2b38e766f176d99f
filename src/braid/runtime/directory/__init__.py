"""Which brokers are there, and how are they reached?

`open_directory` gives a `Directory`; everything else here is what its methods take and return.

- `interface`: what can be asked; `urls`: which directory a URL means.
- `sessions`, `watching`: what all directories do alike; `stored`: how things are written down.
- `memory`, `sqlite`, `zookeeper`: the three that exist. kazoo is loaded with the last one only.
"""

from __future__ import annotations

from braid.runtime.directory.interface import (
    BrokerEntry,
    Directory,
    DirectorySettings,
    HeldLock,
    Unwatch,
    WatchCallback,
)
from braid.runtime.directory.urls import add_directory, open_directory

__all__ = [
    "BrokerEntry",
    "Directory",
    "DirectorySettings",
    "HeldLock",
    "Unwatch",
    "WatchCallback",
    "add_directory",
    "open_directory",
]

"""A broker as a whole: assembled from settings, with access, store, directory, HTTP and trace.

- `broker`: `braid.serve`, on the event loop of a program; `sync_broker`: `braid.serve_sync`, in a thread.
- `settings`: everything that can be chosen, and the configuration file. `access_file`: who may do what.
- `assembly`: opens what the settings name. `doorkeeping`: access file and certificates, read again on demand.
- `registration`: the broker's entry in the directory.

The command line calls this and nothing else.
"""

from __future__ import annotations

from braid.server.broker import Broker, serve
from braid.server.loops import loop_factory
from braid.server.settings import ServerSettings
from braid.server.sync_broker import SyncBroker, serve_sync

__all__ = ["Broker", "ServerSettings", "SyncBroker", "loop_factory", "serve", "serve_sync"]

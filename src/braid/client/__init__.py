"""The client as a machine: all that a client of a broker decides, without sockets, threads or time.

- `session`: `ClientSession`, the machine; connections come and go, the session stays.
- `requests`: what was asked of the broker. `inbox`: who gets what arrives. `outbox`: what was published.
- `machine`: `ClientMachine`, a session with an application above it, for drivers of any machine.
- `effects`: what it is told at its start, and what it tells the application.

Sockets (`runtime.client_driver`), the simulator and tests drive it alike.
"""

from __future__ import annotations

from braid.client.effects import ClientEffect, ClientSettings
from braid.client.inbox import Interest
from braid.client.machine import ClientMachine
from braid.client.session import ClientSession
from braid.client.stored import ReplayWish, StoredPublication, StoredRecords

__all__ = [
    "ClientEffect",
    "ClientMachine",
    "ClientSession",
    "ClientSettings",
    "Interest",
    "ReplayWish",
    "StoredPublication",
    "StoredRecords",
]

"""What a broker is like at one moment, as a value that can be compared, shown and sent.

Metrics, operators' reports, the HTTP pages and tests look at this and not into the handlers. It holds no
secrets: neither keys nor names of sessions, which would let others speak in a neighbour's name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from braid.broker.turn import Counters

__all__ = [
    "BrokerSnapshot",
    "ClientSnapshot",
    "LinkSnapshot",
    "LogSnapshot",
    "MeshSnapshot",
    "OperationSnapshot",
    "SoftLinkSnapshot",
    "StoreSnapshot",
    "WaitSnapshot",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSnapshot:
    """A neighbour."""

    name: str
    address: str
    stage: str
    """Where the link is in its life, as `docs/lives.md` draws it."""
    up: bool
    epoch: int
    """How often its name has gone to another process."""
    around: tuple[tuple[str, str], ...]
    """Its other neighbours and their addresses, as it said last."""
    known: bool
    """Whether the interest of everybody behind it is known."""
    withheld: tuple[str, ...]
    """Why it gets no further credit."""
    waiting_bytes: int
    unacknowledged_bytes: int
    unsettled_bytes: int
    sent_bytes: int
    """Publications sent to it since the session began."""
    behind: tuple[str, ...]
    """The brokers that are reached through it."""
    missing: tuple[str, ...]
    """The links behind it that are not there."""
    subscriptions_told: int = 0
    subscriptions_hidden: int = 0
    advertisements_told: int = 0
    advertisements_hidden: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftLinkSnapshot:
    """A shortcut to a broker that is no neighbour."""

    name: str
    stage: str
    opened_here: bool
    waiting_bytes: int
    sent_bytes: int
    """Publications sent over it since the session began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSnapshot:
    """A connected client."""

    name: str
    principal: str
    subscriptions: int
    waiting_bytes: int
    behind: bool
    """Whether it holds others up."""
    withheld: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSnapshot:
    """The log of a durable subscription."""

    key: str
    first_offset: int
    next_offset: int
    safe_offset: int
    acknowledged: int
    read: bool
    """Whether a client reads it at the moment."""
    pins: tuple[tuple[str, int, int], ...] = ()
    """Who may go back to which row, and until when: consumer, offset, microseconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSnapshot:
    """The logs, and how the store is doing."""

    logs: tuple[LogSnapshot, ...]
    logs_set_aside: int
    unsafe_bytes: int
    """Handed to the store and not yet safe."""
    failed: bool
    disk_low: bool
    memory_high: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshSnapshot:
    """How publications are forwarded, and over which shortcuts."""

    strategy: str
    delta: int
    brokers_in_sight: int
    soft_links: tuple[str, ...]
    soft_links_from: tuple[str, ...]
    links_in_all: int
    fanout: int
    candidates: tuple[str, ...]
    saving_uplink: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitSnapshot:
    """A client or neighbour that waits for an answer."""

    who: str
    """Who, and what for, in words."""
    waits_for: tuple[str, ...]
    """The neighbours, or the missing links, that it waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationSnapshot:
    """The operation that changes links of this broker."""

    id: str
    kind: str
    path: tuple[str, ...]
    epoch: int
    stage: str
    """Where it is in its life, as `docs/lives.md` draws it."""
    paused: bool
    """Whether publications are held at the door."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSnapshot:
    """One broker."""

    broker: str
    address: str
    incarnation: str
    ready: bool
    counters: Counters
    subscriptions: int
    advertisements: int
    links: tuple[LinkSnapshot, ...]
    """By name."""
    unreached: tuple[str, ...]
    """The addresses of neighbours that have not been met since the start."""
    soft_links: tuple[SoftLinkSnapshot, ...]
    clients: tuple[ClientSnapshot, ...]
    """In the order in which they came."""
    mesh: MeshSnapshot
    store: StoreSnapshot
    waiting: tuple[WaitSnapshot, ...]
    """Who waits for the network to know something."""
    operation: OperationSnapshot | None = None
    """What is being changed; None if nothing is."""
    leaving: tuple[str, ...] = ()
    """Links that others have taken the place of, and that are not settled yet."""

"""Who waits for the network to know something, as records.

An answer to a client or a neighbour may have to wait until neighbours have confirmed what they were told. Who
waits is written down here, and not kept in a closure: so it can be counted, shown, compared and moved. When
the waiting is over an event names the waiter (`Installed`, `NotInstalled`, `Announced`), and the handler that
knows its kind gives the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from braid.broker.events import Announced

if TYPE_CHECKING:
    from braid.broker.events import Events
    from braid.broker.parties import Client, Link

__all__ = ["Announcement", "Waiter", "WaiterKind"]


class WaiterKind(Enum):
    """What a waiter waits for."""

    CLIENT_SUBSCRIPTION = "a client's subscription is to be known everywhere"
    LOG_SUBSCRIPTION = "a durable subscription is to be known everywhere, and its client waits for that"
    LOG_CREATED = "a durable subscription that is not read is to be known everywhere, and its maker waits"
    UNASKED_SUBSCRIPTION = "a durable subscription is to be known everywhere, and nobody waits for that"
    NEIGHBOUR_SUBSCRIPTION = "a neighbour's subscription is to be known behind all others"
    CLIENT_ADVERTISEMENT = "all neighbours are to know what a client says that it publishes"
    NEIGHBOUR_ADVERTISEMENT = "all other neighbours are to know a neighbour's advertisement"
    UNIVERSAL_ADVERTISEMENT = "all neighbours are to know that anything may be published here"
    OPEN_LINK = "a neighbour is to know all advertisements before publications cross to it"


@dataclass(frozen=True, slots=True)
class Waiter:
    """Who waits, and what is answered then."""

    kind: WaiterKind
    party: Client | Link | None = None
    key: str = ""
    """As the party calls what it has asked for; for a durable subscription the key of its log."""
    request: int = 0
    """The number of its request."""
    session: int = 0
    """The session of a neighbour: in another one nobody waits any more."""
    text: str = ""
    """The filter in force, which the answer names."""

    def __str__(self) -> str:
        who = f"{self.party.name}: " if self.party is not None else ""
        return f"{who}{self.kind.value}{f' ({self.key})' if self.key else ''}"


class Announcement:
    """A party waits until several neighbours have confirmed the advertisements they were told so far."""

    __slots__ = ("_events", "left", "waiter")

    def __init__(self, waiter: Waiter, events: Events) -> None:
        self.waiter = waiter
        # One is for its maker, until it has asked all of them.
        self.left = 1
        """How many have not confirmed yet."""
        self._events = events

    def confirm(self) -> None:
        """One of them has confirmed, or is waited for no more."""
        self.left -= 1
        if not self.left:
            self._events.tell(Announced(self.waiter))

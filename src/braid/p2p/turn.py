"""The present turn of a peer: what goes out at its end, to whom, and what comes back to the peer itself."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from braid.protocol.effects import Effect, Note, SendTo

if TYPE_CHECKING:
    import msgspec

    from braid.p2p.dht.identifiers import Address, Key

__all__ = ["Turn"]


class Turn:
    """Collects while a peer handles one input. The DHT and the application of a peer share one."""

    __slots__ = ("_notes", "_outgoing", "deliveries")

    def __init__(self) -> None:
        self._outgoing: dict[Address, list[msgspec.Struct]] = {}
        self._notes: list[Effect] = []
        self.deliveries: deque[tuple[Key, msgspec.Struct, Address]] = deque()
        """Routed messages that end here: key, message and the peer each came from."""

    def send(self, address: Address, message: msgspec.Struct) -> None:
        """Say something to a peer; all that is said to it in this turn goes as one datagram."""
        messages = self._outgoing.get(address)
        if messages is None:
            self._outgoing[address] = [message]
        else:
            messages.append(message)

    def deliver(self, key: Key, message: msgspec.Struct, sender: Address) -> None:
        """Have a routed message delivered to the application of this peer, later in this turn."""
        self.deliveries.append((key, message, sender))

    def note(self, level: str, what: str, **fields: object) -> None:
        """Leave a line for logs and traces."""
        self._notes.append(Note(level, what, fields))

    def emit(self, effect: Effect) -> None:
        """Have the driver do something else."""
        self._notes.append(effect)

    def effects(self) -> list[Effect]:
        """What the turn has led to; the next turn begins empty."""
        effects = self._notes
        if effects:
            self._notes = []
        else:
            effects = []
        if self._outgoing:
            effects += [SendTo(address, messages) for address, messages in self._outgoing.items()]
            self._outgoing = {}
        return effects

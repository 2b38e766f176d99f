"""Where may a client go if this broker is gone?

To one of its neighbours. Clients that want to hear so are told at the beginning, and whenever that changes.
Neighbours also know where another process has the name of a broker that was replaced, so a client that has
found refuge with one of them hears from it where its broker is now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.broker.parties import Client
from braid.protocol.messages import Reach

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from braid.broker.connections import Connections
    from braid.broker.events import Entered, ReachChanged
    from braid.broker.parties import Link
    from braid.broker.turn import Turn

__all__ = ["Refuges"]

# Neighbours that clients are told.
TOLD_MAX = 8


class Refuges:
    """Tells clients of other brokers.

    Args:
        turn: where messages go.
        connections: who is here.
        neighbours: the links by their names.
    """

    def __init__(self, turn: Turn, connections: Connections, neighbours: Mapping[str, Link]) -> None:
        self._turn = turn
        self._connections = connections
        self._neighbours = neighbours
        self._known: tuple[tuple[str, str], ...] = ()
        """The neighbours that are up, as clients were told last."""

    def entered(self, event: Entered) -> None:
        """Somebody has come."""
        if isinstance(event.party, Client) and self._known:
            self._tell([event.party])

    def changed(self, _: ReachChanged) -> None:
        """Other links may be up than before."""
        up = sorted(
            (link for link in self._neighbours.values() if link.connection is not None and link.address),
            # Where a name has gone to another process, its clients look for it.
            key=lambda link: (-link.epoch, link.name),
        )
        known = tuple([(link.name, link.address) for link in up[:TOLD_MAX]])
        if known != self._known:
            self._known = known
            if known:  # otherwise clients are better off with what they have heard
                self._tell(self._connections.clients)

    def _tell(self, clients: Iterable[Client]) -> None:
        for client in clients:
            if client.elsewhere and client.connection is not None:
                self._turn.tell(client, Reach([], [], list(self._known)))

"""How does a broker stop without losing what it has taken on?

From the moment it is asked to stop it takes on nothing new: nobody is let in, nobody gets further credit, and
what clients publish all the same is not accepted, so that they keep it for the next broker they meet. What it
has taken on it hands over: it waits until everybody has taken what is theirs, until what was published
before it was ready has been routed, and until the store is done; but only so long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.broker.parties import Client, Link, SoftLink
from braid.protocol import Frame, PublicationBatch
from braid.protocol.effects import Close, Drained, Send
from braid.protocol.messages import Goodbye

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from braid.broker.connections import Connections
    from braid.broker.events import Entered
    from braid.broker.handshake import Handshake
    from braid.broker.links import Links
    from braid.broker.parties import Party
    from braid.broker.soft_links import SoftLinks
    from braid.broker.turn import Turn

__all__ = ["DRAINING", "REVIEW_US", "Draining"]

# How soon it is looked again whether everything has been taken.
REVIEW_US = 20_000

DRAINING = "draining"
"""Why nobody gets credit from a broker that is to stop."""


class Draining:
    """Stops a broker in order."""

    def __init__(
        self,
        turn: Turn,
        connections: Connections,
        handshake: Handshake,
        neighbours: Mapping[str, Link],
        links: Links,
        soft: SoftLinks,
        idle: Callable[[], bool],
    ) -> None:
        """
        Args:
            turn: where effects go.
            connections: who is here.
            handshake: lets nobody in any more.
            neighbours: the links by their names.
            links: keeps them.
            soft: the soft links.
            idle: whether nothing waits to be routed or stored.
        """
        self.begun = False
        self.done = False
        self._until_us = 0
        self._turn = turn
        self._connections = connections
        self._handshake = handshake
        self._links = links
        self._soft = soft
        self._neighbours = neighbours
        self._idle = idle

    def begin(self) -> None:
        """Take on nothing new from now on."""
        if self.begun:
            return
        self.begun = True
        self._until_us = self._turn.now_us + self._turn.settings.drain_us_max
        self._handshake.close()
        parties: list[Party] = [
            *self._connections.clients,
            *self._neighbours.values(),
            *self._soft.all(),
        ]
        for party in parties:
            party.channel.hold_credit(DRAINING)
        self._turn.note("info", "draining")

    def entered(self, event: Entered) -> None:
        """Peers that still come, such as a neighbour that was being dialled, get no further credit either."""
        if self.begun:
            event.party.channel.hold_credit(DRAINING)

    def admitted(self, client: Client, frames: Sequence[Frame]) -> Sequence[Frame]:
        """Those frames of a client that are still accepted: all before its next publication.

        What follows that cannot be taken without it. It is not acknowledged either, so that the client says
        it again to the next broker.
        """
        admitted: list[Frame] = []
        for frame in frames:
            if isinstance(frame.body, PublicationBatch):
                client.published_late()
            if not frame.sequence or not client.turned_away:
                admitted.append(frame)
        return admitted

    def review(self, now_us: int) -> None:
        """Say goodbye to everybody once everything has been handed over, or time is up."""
        if not self.begun or self.done:
            return
        busy = self._busy()
        if busy and now_us < self._until_us:
            return
        for connection, party in list(self._connections.parties.items()):
            self._turn.effect(Send(connection, [Frame(0, Goodbye("this broker is shutting down"))]))
            self._turn.effect(Close(connection, "shutting down"))
            if isinstance(party, Client):
                party.send_away()
            elif isinstance(party, Link):
                self._links.retire(party)
            elif isinstance(party, SoftLink):
                self._soft.leave(party)
        self._turn.note("info", "drained", everything_taken=not busy)
        self.done = True
        self._turn.effect(Drained())

    def _busy(self) -> bool:
        return (
            not self._idle()
            or any(client.unrouted for client in self._connections.clients)
            or any(not party.channel.idle for party in self._connections.parties.values())
        )

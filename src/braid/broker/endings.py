"""How connections end: by the peer, by its mistakes, or by ours.

Handlers that end a connection say so here, once. What that means for links, clients and soft links is told as
an event, and decided by those who keep them.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from braid.broker.events import ClientLeft, ConnectionEnded, Detached, DialFailed, LinkLost, SoftLinkEnded
from braid.broker.parties import Client, Link, Party, SoftLink
from braid.errors import RemoteProtocolError, RequestRefusedError, UnknownStepError
from braid.protocol.effects import Close

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from braid.broker.connections import Connections
    from braid.broker.events import Events
    from braid.broker.turn import Turn
    from braid.protocol.messages import Goodbye, Refused

__all__ = ["Endings"]

# Of our own mistakes, so many are remembered.
STRAYED_MAX = 8


class Endings:
    """Ends connections.

    Args:
        turn: where effects go.
        connections: who is here.
        events: tells the owners.
    """

    def __init__(
        self,
        turn: Turn,
        connections: Connections,
        events: Events,
    ) -> None:
        self._turn = turn
        self._connections = connections
        self._events = events
        self.strayed: list[str] = []
        """The latest mistakes of ours that cost a connection."""

    def guarded(self, connection: int, action: Callable[..., object], *arguments: Any) -> None:
        """Do what a peer's mistake may end, which then ends its connection."""
        try:
            action(*arguments)
        except (RemoteProtocolError, RequestRefusedError) as error:
            self.wrong(connection, error)

    def wrong(self, connection: int, error: RemoteProtocolError | RequestRefusedError) -> None:
        """A peer has made a mistake, or is refused."""
        code = error.code if isinstance(error, RequestRefusedError) else "protocol"
        self.broken(connection, code, str(error))

    def broken(self, connection: int, code: str, reason: str) -> None:
        """A peer broke the rules or is not let in: tell it, and end its connection."""
        party = self._connections.parties.get(connection)
        visitor = self._connections.visitors.pop(connection, None)
        if party is None and visitor is None:
            return
        who = party.name if party is not None else visitor.opened.remote if visitor is not None else ""
        self._turn.audit("warning", "connection refused", party=who, code=code, reason=reason)
        self._turn.refuse(connection, code, reason)
        self.end(connection)
        if visitor is not None:
            self.not_made(visitor.opened.dialled, visitor.opened.soft)

    def stray(self, error: UnknownStepError, story: Sequence[str]) -> None:
        """By a mistake of ours we have lost our way with a party: its connection ends, all others go on."""
        party = error.who
        self.strayed = [*self.strayed, str(error)][-STRAYED_MAX:]
        name = party.name if isinstance(party, Party) else repr(party)
        self._turn.note(
            "error",
            "a mistake in this broker ends a connection; please report it with this story",
            party=name,
            mistake=str(error),
            story=list(story),
        )
        connection = party.connection if isinstance(party, Party) else None
        if connection is not None:
            self._turn.refuse(connection, "internal", "this broker has lost its way with this connection")
        if isinstance(party, Link):
            if connection is not None:
                self._events.tell(ConnectionEnded(connection))
                self._connections.leave(connection)
            self._events.tell(LinkLost(party, strayed=True))
        elif connection is not None:
            with suppress(UnknownStepError):  # it may be at the end of its life already
                self.end(connection)

    def refused(self, party: Party, message: Refused) -> None:
        """A peer says why it is about to end the connection."""
        self._turn.note(
            "error", "a peer ends the connection", party=party.name, code=message.code, reason=message.reason
        )
        if party.connection is not None:
            self._turn.effect(Close(party.connection, message.reason))

    def goodbye(self, party: Party, message: Goodbye) -> None:
        """A peer ends the connection, or even the link."""
        connection = party.connection
        if connection is None:
            return
        self._turn.effect(Close(connection, message.reason or "goodbye"))
        self.end(connection, there=True)
        if isinstance(party, Link) and message.detach:
            self._events.tell(Detached(party))

    def closed(self, connection: int) -> None:
        """The driver says that a connection has ended."""
        visitor = self._connections.visitors.pop(connection, None)
        if visitor is not None:
            self.not_made(visitor.opened.dialled, visitor.opened.soft)
        self.end(connection, there=True)

    def not_made(self, address: str | None, soft: bool) -> None:
        """A connection, which we may have dialled, is not to be."""
        if address is not None:
            self._events.tell(DialFailed(address, soft))

    def end(self, connection: int, *, there: bool = False) -> None:
        """A connection is over; a link waits for the next one, a client is gone.

        `there`: the other end has closed it.
        """
        self._events.tell(ConnectionEnded(connection))
        party = self._connections.leave(connection)
        if isinstance(party, Link):
            self._events.tell(LinkLost(party, there=there))
        elif isinstance(party, SoftLink):
            self._events.tell(SoftLinkEnded(party))
        elif isinstance(party, Client):
            party.left()
            self._events.tell(ClientLeft(party))

"""The connections of a broker: who is at the other end of each, and how they were let in.

This is what all handlers share about who is here. The handler that ends a greeting enters a party, and the
one that ends a connection lets it go; what that means for the party is decided by the owner of its life.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.broker.events import Entered
from braid.broker.parties import Client, SoftLink
from braid.protocol.effects import Granted, Greeted
from braid.protocol.limits import FRAME_BYTES_MAX, carried_bytes, readable_bytes

if TYPE_CHECKING:
    from braid.broker.access import Principal
    from braid.broker.access_review import Admission
    from braid.broker.events import Events
    from braid.broker.handshake import Visitor
    from braid.broker.parties import Link, Party
    from braid.broker.turn import Turn

__all__ = ["Connections", "kind_of_party", "replaces"]


class Connections:
    """Everybody who is here."""

    def __init__(self, turn: Turn, events: Events) -> None:
        self.visitors: dict[int, Visitor] = {}
        """Connections that have not been greeted yet, by their numbers."""
        self.parties: dict[int, Party] = {}
        """Those that have, with who is there."""
        self.clients: dict[Client, None] = {}
        """Those of them that are clients."""
        self.admissions: dict[int, Admission] = {}
        """How they were let in, by connection."""
        self._turn = turn
        self._events = events
        self._settings = turn.settings

    def __len__(self) -> int:
        return len(self.visitors) + len(self.parties)

    def enter(self, connection: int, party: Party, frame_bytes_max: int, admission: Admission) -> None:
        """A connection has become that of a party that reads frames of so many bytes; 0: it does not say."""
        self.visitors.pop(connection, None)
        self.admissions[connection] = admission
        self.parties[connection] = party
        taken_bytes = self._settings.frame_bytes_max
        if isinstance(party, Client):
            self.clients[party] = None
            taken_bytes = self.taken_from(party)
        self._turn.effect(Greeted(connection, taken_bytes, kind_of_party(party), party.name))
        if isinstance(party, Client):
            self.granted(connection, party)
        silent = readable_bytes(taken_bytes) if isinstance(party, Client) else FRAME_BYTES_MAX
        party.channel.frame_bytes_max = frame_bytes_max if frame_bytes_max > 0 else silent
        party.connection = connection
        party.heard(self._turn.now_us)
        party.outside.clear()
        self._events.tell(Entered(party))

    def granted(self, connection: int, client: Client, former: Principal | None = None) -> None:
        """Tell the driver what a client's filters are held against, unless that is as it was."""
        effect = _granted(connection, client.principal)
        before = None if former is None else _granted(connection, former)
        if effect != before and (before is not None or effect.subscribe or effect.advertise):
            self._turn.effect(effect)

    def taken_from(self, client: Client) -> int:
        """The largest frame that is read from a client: one that can be passed on to everybody."""
        return min(carried_bytes(self._settings.frame_bytes_max), client.principal.limits.frame_bytes_max)

    def leave(self, connection: int) -> Party | None:
        """A connection is over, or no news any more; returns whose it was."""
        self.admissions.pop(connection, None)
        party = self.parties.pop(connection, None)
        if isinstance(party, Client):
            self.clients.pop(party, None)
        return party


def replaces(link: Link, broker_id: str, *, dialled: bool) -> bool:
    """Two connections to one neighbour: whether the new one replaces the one that is there.

    A second one from the same side means that the first is dead and we have not noticed. If both sides
    dialled, the one from the broker with the smaller id stays.
    """
    return link.dialled == dialled or dialled == (broker_id < link.name)


def kind_of_party(party: Party) -> str:
    """What others call it: `client`, `soft` for the other end of a soft link, otherwise `broker`."""
    if isinstance(party, Client):
        return "client"
    return "soft" if isinstance(party, SoftLink) else "broker"


def _granted(connection: int, principal: Principal) -> Granted:
    grant = principal.grant
    texts = ["" if each is None else each.text for each in (grant.subscribe, grant.publish)]
    subscribe, advertise = ("" if text == "TRUE" else text for text in texts)
    return Granted(connection, subscribe, advertise, grant.narrow)

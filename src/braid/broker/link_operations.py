"""What operators do to links: append a broker to the network, detach it, and forget a neighbour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from braid.errors import RequestRefusedError
from braid.protocol.codec import Frame
from braid.protocol.effects import Close, Send
from braid.protocol.messages import Goodbye

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from braid.broker.dialling import Dialling
    from braid.broker.links import Links
    from braid.broker.parties import Link
    from braid.broker.reachability import Reachability
    from braid.broker.turn import Turn

__all__ = ["LinkOperations"]


class LinkOperations:
    """Changes the network on demand.

    Args:
        turn: where effects go.
        neighbours: the links by their names.
        links: keeps them.
        dialling: the attempts at neighbours.
        reachability: knows who has not been met.
        has_subscribers: whether anybody here has asked for publications.
    """

    def __init__(
        self,
        turn: Turn,
        neighbours: Mapping[str, Link],
        links: Links,
        dialling: Dialling,
        reachability: Reachability,
        has_subscribers: Callable[[], bool],
    ) -> None:
        self._broker_id = turn.settings.broker_id
        self._turn = turn
        self._neighbours = neighbours
        self._links = links
        self._dialling = dialling
        self._reachability = reachability
        self._has_subscribers = has_subscribers

    def append(self, arguments: Mapping[str, str]) -> dict[str, Any]:
        """APPEND: hang this broker, which has no link yet, on another one."""
        address = arguments.get("to", "")
        if not address:
            raise RequestRefusedError("append needs the address of the broker to link to", "argument")
        if self._neighbours or self._dialling.neighbours:
            raise RequestRefusedError(
                "only a broker without links can be appended: a second link could close a loop", "linked"
            )
        self._dialling.remember(address)
        self._links.tell_reach()
        return {"broker": self._broker_id, "appended_to": address}

    def forget(self, arguments: Mapping[str, str]) -> dict[str, Any]:
        """Give up a neighbour that will not come back, and with it what is kept for those behind it."""
        name = arguments.get("neighbour", "")
        link = self._neighbours.get(name)
        unmet = self._reachability.unmet()
        if link is None and name in unmet:
            self._dialling.forget(name)
            self._links.tell_reach()
            return {"broker": self._broker_id, "forgotten": name, "dropped_bytes": 0}
        if link is None:
            known = ", ".join([*sorted(self._neighbours), *unmet]) or "none"
            raise RequestRefusedError(f"there is no neighbour {name!r}; there are: {known}", "unknown")
        if link.connection is not None:
            raise RequestRefusedError(
                f"the link to {name} is up; only a neighbour that is gone can be forgotten", "up"
            )
        lost_bytes = link.channel.backlog_bytes
        self._links.detach(link)
        return {"broker": self._broker_id, "forgotten": name, "dropped_bytes": lost_bytes}

    def detach(self, arguments: Mapping[str, str]) -> dict[str, Any]:
        """DETACH: take this broker, which is an outer one without clients of its own, off the network."""
        links = list(self._neighbours.values())
        if len(links) > 1:
            names = ", ".join(sorted(link.name for link in links))
            raise RequestRefusedError(
                f"only an outer broker can be detached, and this one lies between {names}", "inner"
            )
        if self._has_subscribers():
            raise RequestRefusedError(
                "this broker has subscribers of its own, who would be cut off; move them first", "clients"
            )
        for link in links:
            if link.connection is not None:
                goodbye = Goodbye("detached", detach=True)
                self._turn.effect(Send(link.connection, [Frame(0, goodbye)]))
                self._turn.effect(Close(link.connection, "detached"))
            self._links.detach(link)
        for address in list(self._dialling.neighbours):
            self._dialling.forget(address)
        self._links.tell_reach()
        return {"broker": self._broker_id, "detached_from": [link.name for link in links]}

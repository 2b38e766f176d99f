"""What operators and metrics are shown of a broker: reports, made from what its handlers know."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from braid.broker.connections import Connections
    from braid.broker.dialling import Dialling
    from braid.broker.parties import Link
    from braid.broker.postroom import Postroom
    from braid.broker.questions import Readiness
    from braid.broker.soft_links import SoftLinks
    from braid.routing import RoutingTables

__all__ = ["Reports"]

# Reasons to withhold credit that are shown.
REASONS_MAX = 16


class Reports:
    """Sums up what there is.

    Args:
        incarnation: of this broker.
        postroom: counts what happens.
        connections: who is here.
        links: the neighbours by their names.
        dialling: knows the neighbours that are to be met.
        readiness: whether publications are accepted.
        tables: what was subscribed and advertised.
        soft: the soft links.
        mesh: what the planning of soft links reports.
        durables: what durable logs report.
    """

    def __init__(
        self,
        incarnation: str,
        postroom: Postroom,
        connections: Connections,
        links: Mapping[str, Link],
        dialling: Dialling,
        readiness: Readiness,
        tables: RoutingTables,
        soft: SoftLinks,
        mesh: Callable[[], dict[str, Any]],
        durables: Callable[[], dict[str, Any]],
    ) -> None:
        self._settings = postroom.settings
        self._incarnation = incarnation
        self._counters = postroom.counters
        self._connections = connections
        self._links = links
        self._dialling = dialling
        self._readiness = readiness
        self._tables = tables
        self._soft = soft
        self._mesh = mesh
        self._durables = durables

    def overlay(self) -> dict[str, Any]:
        """This broker and its neighbours."""
        return {
            "broker": self._settings.broker_id,
            "address": self._settings.address,
            "incarnation": self._incarnation,
            "ready": self._readiness.ready,
            "clients": len(self._connections.clients),
            "mesh": self._mesh(),
            "links": [
                {
                    "neighbour": link.name,
                    "address": link.address,
                    "stage": link.stage.name.lower(),
                    "up": link.connection is not None,
                    "known": not link.unknown,
                    "withheld": sorted(map(str, link.channel.credit_holds)),
                    "waiting_bytes": link.channel.waiting_bytes,
                    "unsettled_bytes": link.channel.unacknowledged_bytes + link.channel.unsettled_bytes,
                }
                for _, link in sorted(self._links.items())
            ],
            "withheld": self._withheld(),
            "unreached": sorted(neighbour.address for neighbour in self._dialling.strangers()),
        }

    def _withheld(self) -> dict[str, int]:
        """The reasons for which peers get no further credit, with how many do; the most frequent ones."""
        reasons = Counter(
            str(reason)
            for party in self._connections.parties.values()
            for reason in party.channel.credit_holds
        )
        return dict(sorted(reasons.most_common(REASONS_MAX)))

    def statistics(self) -> dict[str, Any]:
        """Numbers for metrics: counters, and how much there is of everything now."""
        tables = self._tables.statistics()
        links = self._links.values()
        clients = self._connections.clients
        return {
            "broker": self._settings.broker_id,
            "counters": asdict(self._counters),
            "routing": {
                "subscriptions": tables.subscriptions,
                "advertisements": tables.advertisements,
                "links": {name: link._asdict() for name, link in tables.links.items()},
            },
            "clients": len(clients),
            "mesh": self._mesh(),
            "links": len(links),
            "links_up": sum(link.connection is not None for link in links),
            "ready": self._readiness.ready,
            "link_waiting_bytes": {link.name: link.channel.waiting_bytes for link in links},
            "link_unacknowledged_bytes": {link.name: link.channel.unacknowledged_bytes for link in links},
            "link_unsettled_bytes": {link.name: link.channel.unsettled_bytes for link in links},
            "soft_link_waiting_bytes": {soft.name: soft.channel.waiting_bytes for soft in self._soft.all()},
            "client_waiting_bytes": sum(client.channel.waiting_bytes for client in clients),
            "clients_behind": sum(bool(client.behind) for client in clients),
            **self._durables(),
        }

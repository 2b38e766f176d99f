"""What operators and metrics are shown of a broker: a snapshot, and reports made from it."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from braid.broker.snapshot import BrokerSnapshot, ClientSnapshot, LinkSnapshot, SoftLinkSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from braid.broker.connections import Connections
    from braid.broker.dialling import Dialling
    from braid.broker.parties import Link, Party
    from braid.broker.questions import Readiness
    from braid.broker.snapshot import MeshSnapshot, OperationSnapshot, StoreSnapshot, WaitSnapshot
    from braid.broker.soft_links import SoftLinks
    from braid.broker.turn import Turn
    from braid.routing import RoutingTables

__all__ = ["Reports", "overlay_of", "statistics_of"]

# Reasons to withhold credit that are shown.
REASONS_MAX = 16


class Reports:
    """Sums up what there is.

    Args:
        incarnation: of this broker.
        turn: counts what happens.
        connections: who is here.
        links: the neighbours by their names.
        dialling: knows the neighbours that are to be met.
        readiness: whether publications are accepted.
        tables: what was subscribed and advertised.
        soft: the soft links.
        mesh: what the planning of soft links reports.
        store: what durable logs report.
        waiting: who waits for the network to know something.
        operation: what is being changed, and the links that are leaving.
    """

    def __init__(
        self,
        incarnation: str,
        turn: Turn,
        connections: Connections,
        links: Mapping[str, Link],
        dialling: Dialling,
        readiness: Readiness,
        tables: RoutingTables,
        soft: SoftLinks,
        mesh: Callable[[], MeshSnapshot],
        store: Callable[[], StoreSnapshot],
        waiting: Callable[[], Iterator[WaitSnapshot]],
        operation: Callable[[], tuple[OperationSnapshot | None, tuple[str, ...]]],
    ) -> None:
        self._settings = turn.settings
        self._incarnation = incarnation
        self._counters = turn.counters
        self._connections = connections
        self._links = links
        self._dialling = dialling
        self._readiness = readiness
        self._tables = tables
        self._soft = soft
        self._mesh = mesh
        self._store = store
        self._waiting = waiting
        self._operation = operation

    def snapshot(self) -> BrokerSnapshot:
        """What there is now."""
        tables = self._tables.statistics()
        operation, leaving = self._operation()
        links = []
        for name, link in sorted(self._links.items()):
            numbers = tables.links.get(name)
            links.append(
                LinkSnapshot(
                    name=name,
                    address=link.address,
                    stage=link.stage.name.lower(),
                    up=link.connection is not None,
                    epoch=link.epoch,
                    around=link.around,
                    known=not link.unknown,
                    withheld=_reasons(link),
                    waiting_bytes=link.channel.waiting_bytes,
                    unacknowledged_bytes=link.channel.unacknowledged_bytes,
                    unsettled_bytes=link.channel.unsettled_bytes,
                    sent_bytes=link.channel.sent_bytes,
                    behind=tuple(sorted(link.behind)),
                    missing=link.missing,
                    **(numbers._asdict() if numbers is not None else {}),
                )
            )
        return BrokerSnapshot(
            broker=self._settings.broker_id,
            address=self._settings.address,
            incarnation=self._incarnation,
            ready=self._readiness.ready,
            counters=replace(self._counters),
            subscriptions=tables.subscriptions,
            advertisements=tables.advertisements,
            links=tuple(links),
            unreached=tuple(sorted(neighbour.address for neighbour in self._dialling.strangers())),
            soft_links=tuple(
                SoftLinkSnapshot(
                    name=soft.name,
                    stage=soft.stage.name.lower(),
                    opened_here=soft.outgoing,
                    waiting_bytes=soft.channel.waiting_bytes,
                    sent_bytes=soft.channel.sent_bytes,
                )
                for soft in self._soft.all()
            ),
            clients=tuple(
                ClientSnapshot(
                    name=client.name,
                    principal=client.principal.name,
                    subscriptions=len(client.subscriptions),
                    waiting_bytes=client.channel.waiting_bytes,
                    behind=bool(client.behind),
                    withheld=_reasons(client),
                )
                for client in self._connections.clients
            ),
            mesh=self._mesh(),
            store=self._store(),
            waiting=tuple(self._waiting()),
            operation=operation,
            leaving=leaving,
        )


def _reasons(party: Party) -> tuple[str, ...]:
    return tuple(sorted(map(str, party.channel.credit_holds)))


def overlay_of(broker: BrokerSnapshot) -> dict[str, Any]:
    """A broker and its neighbours, as `braid overlay show` has it."""
    reasons = Counter(reason for link in broker.links for reason in link.withheld)
    reasons.update(reason for client in broker.clients for reason in client.withheld)
    return {
        "broker": broker.broker,
        "address": broker.address,
        "incarnation": broker.incarnation,
        "ready": broker.ready,
        "clients": len(broker.clients),
        "mesh": asdict(broker.mesh),
        "links": [
            {
                "neighbour": link.name,
                "address": link.address,
                "epoch": link.epoch,
                "around": dict(link.around),
                "stage": link.stage,
                "up": link.up,
                "known": link.known,
                "withheld": list(link.withheld),
                "waiting_bytes": link.waiting_bytes,
                "unsettled_bytes": link.unacknowledged_bytes + link.unsettled_bytes,
            }
            for link in broker.links
        ],
        "withheld": dict(sorted(reasons.most_common(REASONS_MAX))),
        "waiting": [asdict(wait) for wait in broker.waiting],
        "unreached": list(broker.unreached),
        "operation": asdict(broker.operation) if broker.operation is not None else None,
        "leaving": list(broker.leaving),
    }


def statistics_of(broker: BrokerSnapshot) -> dict[str, Any]:
    """Numbers for metrics: counters, and how much there is of everything now."""
    links = broker.links
    told = ("subscriptions_told", "subscriptions_hidden", "advertisements_told", "advertisements_hidden")
    return {
        "broker": broker.broker,
        "counters": asdict(broker.counters),
        "routing": {
            "subscriptions": broker.subscriptions,
            "advertisements": broker.advertisements,
            "links": {link.name: {name: getattr(link, name) for name in told} for link in links},
        },
        "clients": len(broker.clients),
        "mesh": asdict(broker.mesh),
        "links": len(links),
        "links_up": sum(link.up for link in links),
        "ready": broker.ready,
        "link_waiting_bytes": {link.name: link.waiting_bytes for link in links},
        "link_unacknowledged_bytes": {link.name: link.unacknowledged_bytes for link in links},
        "link_unsettled_bytes": {link.name: link.unsettled_bytes for link in links},
        "link_sent_bytes": {link.name: link.sent_bytes for link in links},
        "soft_link_waiting_bytes": {soft.name: soft.waiting_bytes for soft in broker.soft_links},
        "soft_link_sent_bytes": _soft_sent_bytes(broker),
        "client_waiting_bytes": sum(client.waiting_bytes for client in broker.clients),
        "clients_behind": sum(client.behind for client in broker.clients),
        "durable_logs": {
            log.key: {
                "next_offset": log.next_offset,
                "acknowledged": log.acknowledged,
                "read": log.read,
                "pins": {name: {"offset": at, "expires_at_us": ends} for name, at, ends in log.pins},
            }
            for log in broker.store.logs
        },
        "durable_logs_set_aside": broker.store.logs_set_aside,
        "store_unsafe_bytes": broker.store.unsafe_bytes,
        "store_failed": broker.store.failed,
        "disk_low": broker.store.disk_low,
        "memory_high": broker.store.memory_high,
    }


def _soft_sent_bytes(broker: BrokerSnapshot) -> dict[str, int]:
    """By the other end, to which there may be one in each direction."""
    sent: Counter[str] = Counter()
    for soft in broker.soft_links:
        sent[soft.name] += soft.sent_bytes
    return dict(sent)

"""What do operators ask for?

Reports and small operations, asked by a client whose grant lets it operate; the answer is JSON.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec

from braid.errors import RequestRefusedError
from braid.protocol.codec import Frame
from braid.protocol.effects import Close, Send
from braid.protocol.messages import Done, Goodbye

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from braid.broker.connections import Connections
    from braid.broker.on_durable import DurableDesk
    from braid.broker.on_link import LinkDesk
    from braid.broker.on_mesh import MeshDesk
    from braid.broker.on_subscribe import SubscriptionDesk
    from braid.broker.parties import Client, Link
    from braid.broker.postroom import Postroom
    from braid.protocol.messages import Ask

__all__ = ["OperatorDesk"]

# What only looks, and is not worth a line in the audit log.
_REPORTS = frozenset({"overlay", "statistics"})
# Answered later than the others: files have to be read.
_RELOAD = "reload"
# What an answer takes in a frame beside its text.
ANSWER_BYTES = 64


class OperatorDesk:
    """Answers operators."""

    def __init__(
        self,
        incarnation: str,
        postroom: Postroom,
        links: LinkDesk,
        subscriptions: SubscriptionDesk,
        durables: DurableDesk,
        connections: Connections,
        mesh: MeshDesk,
        detached: Callable[[Link], None],
        reload: Callable[[Client, Ask], None],
    ) -> None:
        self._settings = postroom.settings
        self._incarnation = incarnation
        self._postroom = postroom
        self._links = links
        self._subscriptions = subscriptions
        self._durables = durables
        self._connections = connections
        self._mesh = mesh
        self._detached = detached
        self._reload = reload
        self._topics: dict[str, Callable[[Mapping[str, str]], Any]] = {
            "overlay": lambda arguments: self.overlay(),
            "statistics": lambda arguments: self.statistics(),
            "append": self._append,
            "detach": self._detach,
            "forget": self._forget,
            "strategy": self._strategy,
        }

    def ask(self, client: Client, message: Ask) -> None:
        """Answer one question."""
        topic = message.topic
        try:
            answer = self._topics.get(topic)
            if answer is None and topic != _RELOAD:
                known = ", ".join(sorted((*self._topics, _RELOAD)))
                raise RequestRefusedError(f"there is no topic {topic!r}; there are {known}", "unknown")
            client.principal.require_operate(topic)
            if topic not in _REPORTS:
                self._audit(client, message, "asked for")
            if answer is None:
                self._reload(client, message)
                return
            text = msgspec.json.encode(answer(message.arguments)).decode()
            size, size_max = len(text.encode()) + ANSWER_BYTES, client.channel.frame_bytes_max
            if size > size_max:
                raise RequestRefusedError(
                    f"the answer has {size:,} bytes, and this connection reads at most {size_max:,}", "limit"
                )
        except RequestRefusedError as error:
            self._audit(client, message, str(error))
            self._subscriptions.fail(client, message.request, error)
            return
        self._postroom.tell(client, Done(message.request, text))

    def _audit(self, client: Client, message: Ask, outcome: str) -> None:
        self._postroom.audit(
            "info",
            "operator command",
            client=client.name,
            principal=client.principal.name,
            topic=message.topic,
            arguments=dict(message.arguments),
            outcome=outcome,
        )

    # Reports.

    def overlay(self) -> dict[str, Any]:
        """This broker and its neighbours."""
        return {
            "broker": self._settings.broker_id,
            "address": self._settings.address,
            "incarnation": self._incarnation,
            "ready": self._links.ready,
            "clients": len(self._connections.clients),
            "mesh": self._mesh.overlay(),
            "links": [
                {
                    "neighbour": link.name,
                    "address": link.address,
                    "stage": link.stage.name.lower(),
                    "up": link.connection is not None,
                    "known": not link.unknown,
                    "waiting_bytes": link.channel.waiting_bytes,
                    "unsettled_bytes": link.channel.unacknowledged_bytes + link.channel.unsettled_bytes,
                }
                for _, link in sorted(self._links.links.items())
            ],
            "unreached": sorted(
                neighbour.address
                for neighbour in self._links.dialling.neighbours.values()
                if neighbour.broker_id not in self._links.links
            ),
        }

    def statistics(self) -> dict[str, Any]:
        """Numbers for metrics: counters, and how much there is of everything now."""
        tables = self._subscriptions.tables.statistics()
        links = self._links.links.values()
        clients = self._connections.clients
        return {
            "broker": self._settings.broker_id,
            "counters": asdict(self._postroom.counters),
            "routing": {
                "subscriptions": tables.subscriptions,
                "advertisements": tables.advertisements,
                "links": {name: link._asdict() for name, link in tables.links.items()},
            },
            "clients": len(clients),
            "mesh": self._mesh.overlay(),
            "links": len(links),
            "links_up": sum(link.connection is not None for link in links),
            "ready": self._links.ready,
            "link_waiting_bytes": {link.name: link.channel.waiting_bytes for link in links},
            "link_unacknowledged_bytes": {link.name: link.channel.unacknowledged_bytes for link in links},
            "link_unsettled_bytes": {link.name: link.channel.unsettled_bytes for link in links},
            "soft_link_waiting_bytes": {
                soft.name: soft.channel.waiting_bytes for soft in self._mesh.soft.all()
            },
            "client_waiting_bytes": sum(client.channel.waiting_bytes for client in clients),
            "clients_behind": sum(bool(client.behind) for client in clients),
            "durable_logs": {
                log.key: {
                    "next_offset": log.next_offset,
                    "acknowledged": log.acknowledged,
                    "read": log.reader is not None,
                }
                for log in self._durables.logs.values()
            },
            "durable_logs_set_aside": len(self._durables.set_aside),
            "store_unsafe_bytes": self._durables.unsafe_bytes,
            "store_failed": self._durables.work.failed,
            "disk_low": self._durables.pressure.disk_low,
            "memory_high": self._durables.pressure.memory_high,
        }

    # Operations.

    def _strategy(self, arguments: Mapping[str, str]) -> dict[str, Any]:
        """Forward by another strategy from now on; without one, say which is in force."""
        if "strategy" in arguments:
            self._mesh.use_strategy(arguments["strategy"])
        return {"broker": self._settings.broker_id, **self._mesh.overlay()}

    def _append(self, arguments: Mapping[str, str]) -> dict[str, Any]:
        """APPEND: hang this broker, which has no link yet, on another one."""
        address = arguments.get("to", "")
        if not address:
            raise RequestRefusedError("append needs the address of the broker to link to", "argument")
        if self._links.links or self._links.dialling.neighbours:
            raise RequestRefusedError(
                "only a broker without links can be appended: a second link could close a loop", "linked"
            )
        self._links.append(address)
        return {"broker": self._settings.broker_id, "appended_to": address}

    def _forget(self, arguments: Mapping[str, str]) -> dict[str, Any]:
        """Give up a neighbour that will not come back, and with it what is kept for those behind it."""
        name = arguments.get("neighbour", "")
        link = self._links.links.get(name)
        if link is None and self._links.forget_address(name):
            return {"broker": self._settings.broker_id, "forgotten": name, "dropped_bytes": 0}
        if link is None:
            known = ", ".join([*sorted(self._links.links), *self._links.reachability.unmet()]) or "none"
            raise RequestRefusedError(f"there is no neighbour {name!r}; there are: {known}", "unknown")
        if link.connection is not None:
            raise RequestRefusedError(
                f"the link to {name} is up; only a neighbour that is gone can be forgotten", "up"
            )
        lost_bytes = link.channel.backlog_bytes
        self._detached(link)
        return {"broker": self._settings.broker_id, "forgotten": name, "dropped_bytes": lost_bytes}

    def _detach(self, arguments: Mapping[str, str]) -> dict[str, Any]:
        """DETACH: take this broker, which is an outer one without clients of its own, off the network."""
        links = list(self._links.links.values())
        if len(links) > 1:
            names = ", ".join(sorted(link.name for link in links))
            raise RequestRefusedError(
                f"only an outer broker can be detached, and this one lies between {names}", "inner"
            )
        if self._durables.logs or any(client.subscriptions for client in self._connections.clients):
            raise RequestRefusedError(
                "this broker has subscribers of its own, who would be cut off; move them first", "clients"
            )
        for link in links:
            if link.connection is not None:
                goodbye = Goodbye("detached", detach=True)
                self._postroom.effect(Send(link.connection, [Frame(0, goodbye)]))
                self._postroom.effect(Close(link.connection, "detached"))
            self._detached(link)
        self._links.forget_neighbours()
        return {"broker": self._settings.broker_id, "detached_from": [link.name for link in links]}

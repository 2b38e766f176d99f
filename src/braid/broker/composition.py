"""How the handlers of one broker are put together, and who hears of what.

The tables can be read here: which handler gets which message from a client, a link or anybody, and which
handlers hear of which internal event, in which order. They are made once, when all handlers are there; nobody
is attached later.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from braid.broker import events as told
from braid.broker.access import AccessPolicy
from braid.broker.access_review import AccessReview
from braid.broker.completeness import Completeness
from braid.broker.connections import Connections
from braid.broker.delegated_copies import DelegatedCopies
from braid.broker.dialling import Dialling
from braid.broker.discards import Discards
from braid.broker.draining import Draining
from braid.broker.durable_logs import DurableLogs
from braid.broker.endings import Endings
from braid.broker.fair_queue import FairQueue
from braid.broker.handshake import Handshake
from braid.broker.identities import Acquaintances, Identities
from braid.broker.invariants import Invariants
from braid.broker.link_operations import LinkOperations
from braid.broker.link_states import LinkStates
from braid.broker.links import Links
from braid.broker.liveness import Liveness, require_answers_taken
from braid.broker.loads import LoadReports
from braid.broker.maps import Maps
from braid.broker.mesh import Mesh
from braid.broker.operator import Operator
from braid.broker.parties import Client, SoftLink
from braid.broker.publications import Publications
from braid.broker.reachability import Reachability
from braid.broker.reports import Reports, overlay_of, statistics_of
from braid.broker.settling import Unsettled
from braid.broker.soft_links import SoftLinks
from braid.broker.soft_words import SoftWords
from braid.broker.streams import Streams
from braid.broker.subscriptions import Subscriptions
from braid.broker.turn import Turn
from braid.errors import RemoteProtocolError
from braid.protocol.duplicates import DuplicateFilter
from braid.protocol.messages import (
    Acknowledge,
    AcknowledgeDurable,
    Acknowledgement,
    Advertise,
    Ask,
    CreateDurable,
    Done,
    DropDurable,
    Failed,
    Goodbye,
    Introduction,
    LinkState,
    Loads,
    LogStatus,
    Nearby,
    Ping,
    PinLog,
    Pong,
    PublishDiscarded,
    PublishRefused,
    Reach,
    Refused,
    Replay,
    Separate,
    Settled,
    SoftWord,
    StopReading,
    Subscribe,
    SubscribeDurable,
    SyncBegin,
    TablesComplete,
    TablesIncomplete,
    Unadvertise,
    Unsubscribe,
)
from braid.routing import RoutingTables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TypeAlias

    from braid.broker.parties import Link, Party
    from braid.broker.settings import BrokerSettings
    from braid.matching import Matcher
    from braid.protocol.log import StoreState

    Handler: TypeAlias = Callable[[Any, Any], None]
    Handlers: TypeAlias = Mapping[type, Handler]

__all__ = ["Composition"]


class Composition:
    """The handlers of one broker."""

    def __init__(
        self,
        settings: BrokerSettings,
        incarnation: str,
        seed: int,
        access: AccessPolicy | None,
        store: StoreState | None,
        stopwatch: Callable[[], int] | None,
        matcher: Matcher | None,
    ) -> None:
        """The arguments are those of `BrokerCore`."""
        self.settings = settings
        self.incarnation = incarnation
        # What all of them share.
        self.events = told.Events()
        self.turn = Turn(settings, self.events)
        self.connections = Connections(self.turn, self.events)
        self.neighbours: dict[str, Link] = {}
        """The links by their names."""
        self.identities = Identities(settings.broker_id, incarnation, seed, store)
        self.unsettled = Unsettled()
        """What was routed along the tree and is waited for."""
        self.endings = Endings(self.turn, self.connections, self.events)

        self._make_links(seed, matcher)
        self._make_soft_links()
        self._make_doors(access or AccessPolicy.open())
        self._make_publications(store is not None, stopwatch)
        self._make_operations()
        self.events.use(hearers(self))

    def _make_links(self, seed: int, matcher: Matcher | None) -> None:
        """The network around, and what was subscribed and advertised in it."""
        settings, turn, events, neighbours = self.settings, self.turn, self.events, self.neighbours
        self.dialling = Dialling(settings, turn, random.Random(seed), neighbours)
        self.reachability = Reachability(turn, neighbours, self.dialling)
        self.maps = Maps(turn, neighbours, self.reachability, events)
        self.tables = RoutingTables(matcher, self.maps.anchor_for)
        self.subscriptions = Subscriptions(
            settings.broker_id, turn, neighbours, self.tables, events, self.reachability.missing
        )
        self.completeness = Completeness(turn, neighbours, self.tables, self.reachability, events)
        self.links = Links(
            self.incarnation,
            turn,
            self.connections,
            neighbours,
            self.dialling,
            self.reachability,
            self.subscriptions,
            self.tables,
            self.completeness,
            self.endings,
            events,
            self.identities.new_session,
            lambda batch: self.maps.directions_of(
                self.unsettled.sources(batch.publisher, batch.sequences.tolist())
            ),
        )

    def _make_soft_links(self) -> None:
        """Shortcuts, and what they are chosen by."""
        settings, turn, neighbours = self.settings, self.turn, self.neighbours
        self.soft = SoftLinks(settings.broker_id, settings.soft_links.fanout, neighbours.keys())
        self.loads = LoadReports(turn, neighbours, self.maps.surroundings)
        self.link_states = LinkStates(
            turn,
            neighbours,
            self.soft,
            self.maps.surroundings,
            self.maps.addressable,
            self.maps.toward,
        )
        words = SoftWords(turn, neighbours, self.reachability, self.identities.new_session)
        self.mesh = Mesh(
            self.incarnation,
            turn,
            self.connections,
            neighbours,
            self.dialling.neighbours,
            self.soft,
            self.maps,
            self.loads,
            self.link_states,
            words,
            self.events,
            lambda: self.completeness.ready,
        )

    def _make_doors(self, access: AccessPolicy) -> None:
        """Who comes, and whether they are still there."""
        self.handshake = Handshake(
            self.incarnation,
            self.identities,
            access,
            self.turn,
            self.connections,
            self.neighbours,
            self.links,
            self.mesh,
            self.dialling,
            self.endings.guarded,
        )
        self.liveness = Liveness(self.turn)

    def _make_publications(self, kept: bool, stopwatch: Callable[[], int] | None) -> None:
        """What happens to publications."""
        settings, turn, unsettled = self.settings, self.turn, self.unsettled
        from_sets = Unsettled()
        seen = DuplicateFilter(window=settings.overtaking_max)
        self.discards = Discards(turn, seen, unsettled, from_sets)
        self.streams = Streams(turn, self.subscriptions, self.tables)
        self.durables = DurableLogs(
            settings,
            turn,
            self.subscriptions,
            self.discards,
            principal_of=self.handshake.principal,
            epoch=self.incarnation,
            kept=kept,
        )
        self.acquaintances = Acquaintances(self.identities, self.dialling, self.durables.keep)
        self.delegated = DelegatedCopies(turn, self.links, self.mesh, self.discards, seen)
        self.publish = Publications(
            settings.hops_max,
            turn,
            self.subscriptions,
            self.durables,
            self.links,
            self.mesh,
            self.delegated,
            seen,
            unsettled,
            from_sets,
            self.discards,
            stopwatch,
        )

    def _make_operations(self) -> None:
        """What operators ask for, turns, and the end."""
        turn, connections, neighbours = self.turn, self.connections, self.neighbours
        self.admission = AccessReview(
            turn,
            connections,
            self.handshake,
            self.subscriptions,
            self.durables,
            send_away=self.endings.broken,
            end=self.endings.end,
        )
        self.reports = Reports(
            self.incarnation,
            turn,
            connections,
            neighbours,
            self.dialling,
            self.links,
            self.tables,
            self.soft,
            self.mesh.snapshot,
            self.durables.snapshot,
            self.subscriptions.installations.waiting,
        )
        operations = LinkOperations(
            turn, neighbours, self.links, self.dialling, self.reachability, self._has_subscribers
        )
        self.operator = Operator(turn, topics(self.reports, operations, self.mesh), self.admission.reload)
        self.draining = Draining(
            turn,
            connections,
            self.handshake,
            neighbours,
            self.links,
            self.soft,
            lambda: not self.publish.unrouted and self.durables.work.idle,
        )
        self.turns = FairQueue(
            turn,
            handler=Messages(self).handler,
            batches=self.publish.arrived,
            subscribe_link=self.subscriptions.subscribe_link,
            changing=self.publish.ways.forget,
            check=require_answers_taken,
            busy=lambda link: self.tables.telling(link.name),
            guard=self.endings.guarded,
        )
        self.invariants = Invariants(
            turn,
            connections,
            self.links,
            self.subscriptions,
            self.durables,
            self.soft,
            self.turns,
            self.draining,
        )

    def _has_subscribers(self) -> bool:
        return bool(self.durables.logs) or any(client.subscriptions for client in self.connections.clients)


def topics(
    reports: Reports, operations: LinkOperations, mesh: Mesh
) -> Mapping[str, Callable[[Mapping[str, str]], Any]]:
    """Who answers which question of an operator."""
    return {
        "overlay": lambda arguments: overlay_of(reports.snapshot()),
        "statistics": lambda arguments: statistics_of(reports.snapshot()),
        "append": operations.append,
        "detach": operations.detach,
        "forget": operations.forget,
        "strategy": mesh.choose_strategy,
    }


def hearers(broker: Composition) -> Mapping[type[told.Event], Sequence[Callable[[Any], None]]]:
    """Who hears of which event, in which order."""
    return {
        # Connections.
        told.Entered: (broker.draining.entered,),
        told.ConnectionEnded: (
            lambda event: broker.publish.ways.forget(),
            lambda event: broker.turns.forget(event.connection),
        ),
        told.LinkLost: (broker.links.lost,),
        told.SoftLinkEnded: (broker.mesh.ended,),
        told.ClientLeft: (
            broker.durables.client_left,
            broker.subscriptions.client_left,
            broker.handshake.left,
            broker.turn.client_left,
            broker.publish.client_left,  # what it published goes its way
        ),
        told.Detached: (broker.links.left,),
        told.DialFailed: (broker.dialling.failed, broker.mesh.dial_failed),
        # Links.
        told.LinkBegun: (
            broker.maps.meet,
            broker.loads.begin_anew,
            broker.mesh.make_room,  # by the loads, before the map shows whose place it takes
            broker.link_states.begin_anew,
            broker.maps.changed,
            broker.link_states.tell_neighbour,
            broker.subscriptions.synchronise,
        ),
        told.LinkOpening: (broker.subscriptions.drop_stale, broker.maps.complete),
        told.InterestKnown: (broker.acquaintances.known,),
        told.CaughtUp: (broker.links.tell_reach,),
        told.TrackLost: (broker.links.track_lost,),
        told.LinkRemoved: (
            broker.subscriptions.remove_link,
            broker.maps.lose,
            broker.link_states.changed,
        ),
        told.NeighbourGone: (broker.acquaintances.gone,),
        told.CopyStranded: (broker.delegated.stranded,),
        told.ReachChanged: (
            broker.subscriptions.links_changed,
            broker.link_states.look_again,
            broker.delegated.look_again,
        ),
        told.Ready: (
            broker.delegated.look_again,
            lambda event: broker.publish.release_all(broker.connections.clients),
        ),
        # Publications and subscriptions.
        told.LeftOut: (broker.discards.left_out,),
        told.Advertised: (lambda event: broker.publish.release(event.client),),
        told.Installed: (broker.subscriptions.installed, broker.durables.installed),
        told.NotInstalled: (broker.subscriptions.not_installed, broker.durables.not_installed),
        told.Announced: (broker.subscriptions.announced, broker.links.announced),
        told.AnythingExpected: (broker.publish.expected,),
        told.NeighboursTold: (broker.completeness.tell,),
        # Maps and soft links.
        told.MapChanged: (
            broker.link_states.name_again,
            broker.loads.keep_those_in_sight,
            broker.maps.tell_neighbours,
            broker.mesh.map_changed,
            broker.mesh.rebuild,  # when it is known which soft links stay
            broker.delegated.look_again,
        ),
        told.SoftLinksChanged: (broker.mesh.rebuild, broker.link_states.changed),
        told.SoftLinkLost: (broker.publish.back_to_the_tree,),
    }


class Messages:
    """Who handles which message."""

    def __init__(self, broker: Composition) -> None:
        self._of_anybody: Handlers = {
            Ping: broker.liveness.pinged,
            Pong: _each_of(broker.liveness.answered, broker.loads.answered),
            LinkState: broker.link_states.hear,
            Settled: broker.turn.settled_apart,
            Acknowledgement: broker.turn.acknowledged,
            Goodbye: broker.endings.goodbye,
            Refused: broker.endings.refused,
        }
        self._of_clients: Handlers = {
            Subscribe: broker.subscriptions.subscribe_client,
            Unsubscribe: broker.streams.unsubscribe,
            Separate: broker.streams.separate,
            Advertise: broker.subscriptions.advertise_client,
            Unadvertise: broker.subscriptions.unadvertise_client,
            SubscribeDurable: broker.durables.subscribe,
            Acknowledge: broker.durables.acknowledge,
            Replay: broker.durables.replay,
            DropDurable: broker.durables.drop,
            CreateDurable: broker.durables.owners.create,
            LogStatus: broker.durables.owners.status,
            AcknowledgeDurable: broker.durables.owners.acknowledge,
            PinLog: broker.durables.owners.pin,
            StopReading: broker.durables.stop,
            Ask: broker.operator.ask,
        }
        self._of_soft_links: Handlers = {
            PublishDiscarded: broker.discards.further_on,
            PublishRefused: broker.discards.further_on,
        }
        self._of_links: Handlers = {
            Unsubscribe: broker.subscriptions.unsubscribe_link,
            Advertise: broker.subscriptions.advertise_link,
            Unadvertise: broker.subscriptions.unadvertise_link,
            Done: broker.subscriptions.done,
            Failed: broker.subscriptions.failed,
            SyncBegin: broker.links.sync_begins,
            TablesComplete: broker.links.tables_complete,
            TablesIncomplete: broker.links.tables_incomplete,
            Reach: broker.links.reaches,
            Nearby: broker.maps.hear_nearby,
            Loads: broker.loads.hear,
            Introduction: broker.acquaintances.introduced,
            SoftWord: broker.handshake.heard_word,
            **self._of_soft_links,
        }

    def handler(self, party: Party, kind: type) -> Handler:
        """Who handles this kind of message from a party.

        Raises:
            RemoteProtocolError: it makes no sense there.
        """
        special = {Client: self._of_clients, SoftLink: self._of_soft_links}.get(type(party), self._of_links)
        handler = self._of_anybody.get(kind) or special.get(kind)
        if handler is None:
            raise RemoteProtocolError(f"a {kind.__name__} makes no sense here")
        return handler


def _each_of(*handlers: Handler) -> Handler:
    """Several who handle the same message, in this order."""

    def handle(party: Any, message: Any) -> None:
        for handler in handlers:
            handler(party, message)

    return handle

"""How the handlers of one broker are put together, and who hears of what.

The table can be read here: which handlers hear of which internal event, in which order. All brokers have the
same; nobody is attached later. `message_table.py` says which handler gets which message.
"""

from __future__ import annotations

from functools import partial
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
from braid.broker.link_changes import MovableLinks
from braid.broker.link_operations import LinkOperations
from braid.broker.link_states import LinkStates
from braid.broker.liveness import Liveness, require_answers_taken
from braid.broker.loads import LoadReports
from braid.broker.maps import Maps
from braid.broker.mesh import Mesh
from braid.broker.message_table import handler_of
from braid.broker.operations import Changing
from braid.broker.operator import Operator
from braid.broker.organising import Organising
from braid.broker.publications import Publications
from braid.broker.reachability import Reachability
from braid.broker.reconfigurations import Reconfigurations
from braid.broker.reports import Reports, overlay_of, statistics_of
from braid.broker.settings import OVERTAKING_MAX
from braid.broker.settling import Unsettled
from braid.broker.shortcut_limits import ShortcutLimits
from braid.broker.soft_links import SoftLinks
from braid.broker.soft_words import SoftWords
from braid.broker.streams import Streams
from braid.broker.subscriptions import Subscriptions
from braid.broker.table_moves import TableMoves
from braid.broker.turn import Turn
from braid.protocol.duplicates import DuplicateFilter
from braid.routing import RoutingTables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from braid.broker.parties import Link
    from braid.broker.settings import BrokerSettings
    from braid.broker.snapshot import OperationSnapshot
    from braid.matching import Matcher
    from braid.protocol.log import StoreState

__all__ = ["HEARERS", "Composition"]


class Composition:
    """The handlers of one broker."""

    __slots__ = (
        "acquaintances",
        "admission",
        "changing",
        "completeness",
        "connections",
        "delegated",
        "dialling",
        "discards",
        "draining",
        "durables",
        "endings",
        "events",
        "handshake",
        "identities",
        "incarnation",
        "invariants",
        "limits",
        "link_states",
        "links",
        "liveness",
        "loads",
        "maps",
        "mesh",
        "moves",
        "neighbours",
        "operator",
        "organising",
        "publish",
        "reachability",
        "reconfigurations",
        "reports",
        "settings",
        "soft",
        "streams",
        "subscriptions",
        "tables",
        "turn",
        "turns",
        "unsettled",
    )

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
        self.changing = Changing(settings.broker_id)

        self._make_links(seed, matcher)
        self._make_soft_links()
        self._make_doors(access or AccessPolicy.open())
        self._make_publications(store is not None, stopwatch)
        self._make_operations(seed)
        self.events.use(HEARERS, self)

    def _make_links(self, seed: int, matcher: Matcher | None) -> None:
        """The network around, and what was subscribed and advertised in it."""
        settings, turn, events, neighbours = self.settings, self.turn, self.events, self.neighbours
        self.dialling = Dialling(settings, turn, seed, neighbours)
        self.reachability = Reachability(turn, neighbours, self.dialling)
        self.maps = Maps(turn, neighbours, self.reachability, events)
        self.tables = RoutingTables(matcher, self.maps.anchor_for)
        self.subscriptions = Subscriptions(
            settings.broker_id, turn, neighbours, self.tables, events, self.reachability.missing
        )
        self.completeness = Completeness(turn, neighbours, self.tables, self.reachability, events)
        self.links = MovableLinks(
            self.changing,
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
        self.limits = ShortcutLimits(
            turn,
            neighbours,
            self.soft,
            self.maps.surroundings,
            self.events,
            lambda link: self.subscriptions.inform(self.tables.reanchor(link)),
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
            self.limits.avoided,
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
        seen = DuplicateFilter(window=OVERTAKING_MAX)
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

    def _make_operations(self, seed: int) -> None:
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
            self._operation,
        )
        operations = LinkOperations(
            turn, neighbours, self.links, self.dialling, self.reachability, self._has_subscribers
        )
        self.organising: Organising | None = None
        answers = dict(topics(self.reports, operations, self.mesh))
        if self.settings.topology.policy != "static":
            self.organising = Organising(turn, connections.parties, neighbours, seed)
            answers["topology"] = self.organising.report
        self.draining = Draining(
            turn,
            connections,
            self.handshake,
            neighbours,
            self.links,
            self.soft,
            lambda: not self.publish.unrouted and self.durables.work.idle,
        )
        self.moves = TableMoves(
            self.tables, self.subscriptions.inform, self.subscriptions.installations.cancel
        )
        self.reconfigurations = Reconfigurations(
            turn,
            self.changing,
            self.links,
            self.tables,
            self.moves,
            self.limits,
            self.events,
            inform=self.subscriptions.inform,
            unsubscribe=self.subscriptions.unsubscribe_link,
            unadvertise=self.subscriptions.unadvertise_link,
            drop_stale=self.subscriptions.drop_stale,
            new_id=self.identities.new_session,
            refusing=lambda: self.draining.begun,
        )
        later = {"reload": self.admission.reload, "reconfigure": self.reconfigurations.requests.ask}
        self.operator = Operator(turn, answers, later)
        self.turns = FairQueue(
            turn,
            handler=partial(handler_of, self),
            batches=self.publish.arrived,
            subscribe_link=self.subscriptions.subscribe_link,
            changing=self.publish.ways.forget,
            check=require_answers_taken,
            busy=lambda link: self.tables.telling(link.name),
            held=self.changing.held,
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
            self.changing,
        )

    def _operation(self) -> tuple[OperationSnapshot | None, tuple[str, ...]]:
        operation = self.changing.current
        leaving = tuple(sorted(link.name for link in self.links.leaving))
        return (operation.snapshot() if operation is not None else None), leaving

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


HEARERS: Mapping[type[told.Event], Sequence[told.Hearer]] = {
    # Connections.
    told.Entered: (lambda broker, event: broker.draining.entered(event),),
    told.ConnectionEnded: (
        lambda broker, event: broker.publish.ways.forget(),
        lambda broker, event: broker.turns.forget(event.connection),
    ),
    told.LinkLost: (
        lambda broker, event: broker.links.lost(event),
        lambda broker, event: broker.reconfigurations.link_lost(event),
    ),
    told.SoftLinkEnded: (lambda broker, event: broker.mesh.ended(event),),
    told.ClientLeft: (
        lambda broker, event: broker.durables.client_left(event),
        lambda broker, event: broker.subscriptions.client_left(event),
        lambda broker, event: broker.handshake.left(event),
        lambda broker, event: broker.turn.client_left(event),
        lambda broker, event: broker.publish.client_left(event),  # what it published goes its way
    ),
    told.Detached: (lambda broker, event: broker.links.left(event),),
    told.DialFailed: (
        lambda broker, event: broker.dialling.failed(event),
        lambda broker, event: broker.mesh.dial_failed(event),
        lambda broker, event: broker.reconfigurations.dial_failed(event),
    ),
    # Links.
    told.LinkBegun: (
        lambda broker, event: broker.maps.meet(event),
        lambda broker, event: broker.loads.begin_anew(event),
        lambda broker, event: broker.mesh.make_room(
            event
        ),  # by the loads, before the map shows whose place it takes
        lambda broker, event: broker.link_states.begin_anew(event),
        lambda broker, event: broker.maps.changed(event),
        lambda broker, event: broker.link_states.tell_neighbour(event),
        lambda broker, event: broker.subscriptions.synchronise(event),
        lambda broker, event: broker.reconfigurations.link_begun(event),
    ),
    told.LinkOpening: (
        lambda broker, event: broker.subscriptions.drop_stale(event),
        lambda broker, event: broker.maps.complete(event),
    ),
    told.InterestKnown: (lambda broker, event: broker.acquaintances.known(event),),
    told.CaughtUp: (lambda broker, event: broker.links.tell_reach(event),),
    told.TrackLost: (lambda broker, event: broker.links.track_lost(event),),
    told.LinkRemoved: (
        lambda broker, event: broker.subscriptions.remove_link(event),
        lambda broker, event: broker.maps.lose(event),
        lambda broker, event: broker.link_states.changed(event),
    ),
    told.NeighbourGone: (lambda broker, event: broker.acquaintances.gone(event),),
    # Operations.
    told.Joined: (lambda broker, event: broker.reconfigurations.joined(event),),
    told.JoinLost: (lambda broker, event: broker.reconfigurations.join_lost(event),),
    told.PlaceChanged: (
        lambda broker, event: broker.maps.place_changed(event),
        lambda broker, event: broker.link_states.changed(event),
    ),
    told.PlaceEnded: (lambda broker, event: broker.acquaintances.ended(event),),
    told.PublicationsHeld: (lambda broker, event: broker.turns.hold(event),),
    told.PublicationsResumed: (
        lambda broker, event: broker.turns.resume(event),
        lambda broker, event: broker.publish.release_all(broker.connections.clients),
    ),
    told.CopyStranded: (lambda broker, event: broker.delegated.stranded(event),),
    told.ReachChanged: (
        lambda broker, event: broker.subscriptions.links_changed(event),
        lambda broker, event: broker.link_states.look_again(event),
        lambda broker, event: broker.delegated.look_again(event),
    ),
    told.Ready: (
        lambda broker, event: broker.delegated.look_again(event),
        lambda broker, event: broker.publish.release_all(broker.connections.clients),
    ),
    # Publications and subscriptions.
    told.LeftOut: (lambda broker, event: broker.discards.left_out(event),),
    told.Advertised: (lambda broker, event: broker.publish.release(event.client),),
    told.Installed: (
        lambda broker, event: broker.subscriptions.installed(event),
        lambda broker, event: broker.durables.installed(event),
    ),
    told.NotInstalled: (
        lambda broker, event: broker.subscriptions.not_installed(event),
        lambda broker, event: broker.durables.not_installed(event),
    ),
    told.Announced: (
        lambda broker, event: broker.subscriptions.announced(event),
        lambda broker, event: broker.links.announced(event),
    ),
    told.AnythingExpected: (lambda broker, event: broker.publish.expected(event),),
    told.NeighboursTold: (lambda broker, event: broker.completeness.tell(event),),
    # Maps and soft links.
    told.MapChanged: (
        lambda broker, event: broker.link_states.name_again(event),
        lambda broker, event: broker.loads.keep_those_in_sight(event),
        lambda broker, event: broker.maps.tell_neighbours(event),
        lambda broker, event: broker.mesh.map_changed(event),
        lambda broker, event: broker.mesh.rebuild(event),  # when it is known which soft links stay
        lambda broker, event: broker.delegated.look_again(event),
    ),
    told.SoftLinksChanged: (
        lambda broker, event: broker.mesh.rebuild(event),
        lambda broker, event: broker.link_states.changed(event),
    ),
    told.SoftLinkLost: (lambda broker, event: broker.publish.back_to_the_tree(event),),
}
"""Who hears of which event, in which order."""

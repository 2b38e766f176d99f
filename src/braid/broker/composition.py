"""How the handlers of one broker are put together.

`event_table.py` says who hears of what, and `message_table.py` which handler gets which message.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from braid.broker import events as told
from braid.broker.access import AccessPolicy
from braid.broker.access_review import AccessReview
from braid.broker.completeness import Completeness
from braid.broker.connections import Connections
from braid.broker.copying import Copying
from braid.broker.delegated_copies import DelegatedCopies
from braid.broker.detours import Detours
from braid.broker.dialling import Dialling
from braid.broker.discards import Discards
from braid.broker.draining import Draining
from braid.broker.durable_logs import DurableLogs
from braid.broker.endings import Endings
from braid.broker.event_table import HEARERS
from braid.broker.exchanges import Exchanges
from braid.broker.fair_queue import FairQueue
from braid.broker.handshake import Handshake
from braid.broker.identities import Acquaintances, Identities
from braid.broker.interest_report import InterestReport
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
from braid.broker.precopy import PreCopies
from braid.broker.publications import Publications
from braid.broker.reachability import Reachability
from braid.broker.refuges import Refuges
from braid.broker.replacements import Replacements
from braid.broker.replica_progress import ReplicaProgress
from braid.broker.reports import Reports, overlay_of, statistics_of
from braid.broker.resumptions import Resumptions
from braid.broker.settings import OVERTAKING_MAX
from braid.broker.settling import Unsettled
from braid.broker.shortcut_limits import ShortcutLimits
from braid.broker.soft_links import SoftLinks
from braid.broker.soft_words import SoftWords
from braid.broker.store_work import Answer
from braid.broker.streams import Streams
from braid.broker.subscriptions import Subscriptions
from braid.broker.table_moves import TableMoves
from braid.broker.topology_choice import TopologyChoice
from braid.broker.turn import Turn
from braid.broker.unknown_brokers import UnknownBrokers
from braid.protocol.duplicates import DuplicateFilter
from braid.routing import RoutingTables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from braid.broker.parties import Link
    from braid.broker.settings import BrokerSettings
    from braid.broker.snapshot import OperationSnapshot
    from braid.matching import Matcher
    from braid.protocol.log import KeepStanding, StoreState

__all__ = ["Composition"]


class Composition:
    """The handlers of one broker."""

    __slots__ = (
        "acquaintances",
        "admission",
        "changing",
        "completeness",
        "connections",
        "copying",
        "delegated",
        "detours",
        "dialling",
        "discards",
        "draining",
        "durables",
        "endings",
        "events",
        "exchanges",
        "from_sets",
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
        "publish",
        "reachability",
        "reconfigurations",
        "refuges",
        "replacements",
        "replica_progress",
        "reports",
        "resumptions",
        "settings",
        "soft",
        "standing",
        "streams",
        "subscriptions",
        "tables",
        "topology",
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
        standing: KeepStanding | None = None,
    ) -> None:
        """The arguments are those of `BrokerCore`."""
        if standing is None and store is not None:
            standing = store.standing
        self.standing = standing
        self.settings = settings
        self.incarnation = incarnation
        # What all of them share.
        self.events = told.Events()
        self.turn = Turn(settings, self.events, standing.epoch if standing is not None else 0)
        self.connections = Connections(self.turn, self.events)
        self.neighbours: dict[str, Link] = {}
        """The links by their names."""
        self.identities = Identities(settings.broker_id, incarnation, seed, store, standing)
        self.unsettled = Unsettled()
        """What was routed along the tree and is waited for."""
        self.endings = Endings(self.turn, self.connections, self.events)
        self.changing = Changing(settings.broker_id)

        self._make_links(seed, matcher)
        self._make_soft_links()
        self._make_doors(access or AccessPolicy.open())
        self._make_publications(store, stopwatch)
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
        self.completeness = Completeness(
            turn, neighbours, self.tables, self.reachability, events, lambda: self.durables.lost.awaiting
        )
        unknown_brokers = UnknownBrokers(
            settings,
            neighbours,
            lambda: [each.broker_id for each in self.dialling.neighbours.values()],
            lambda: self.handshake.access.is_open,
            turn.audit,
        )
        self.links = MovableLinks(
            self.changing,
            self.incarnation,
            turn,
            self.connections,
            neighbours,
            self.dialling,
            unknown_brokers,
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
            lambda *greeting: self.replacements.require_current(*greeting),
            lambda *greeting: self.replacements.granted(*greeting),
            lambda: self.resumptions.own,
        )
        self.liveness = Liveness(self.turn)
        self.refuges = Refuges(self.turn, self.connections, self.neighbours)

    def _make_publications(self, store: StoreState | None, stopwatch: Callable[[], int] | None) -> None:
        """What happens to publications."""
        settings, turn, unsettled = self.settings, self.turn, self.unsettled
        from_sets = self.from_sets = Unsettled()
        seen = DuplicateFilter(window=OVERTAKING_MAX)
        self.discards = Discards(turn, seen, unsettled, from_sets)
        self.streams = Streams(turn, self.subscriptions, self.tables)
        self.durables = DurableLogs(
            settings,
            turn,
            self.subscriptions,
            self.discards,
            neighbours=self.neighbours,
            principal_of=self.handshake.principal,
            epoch=self.incarnation,
            store=store,
            unmet=self.reachability.unmet,
            toward=self.reachability.toward,
            started_us=lambda: self.completeness.started_at_us,
            complete=self.completeness.tell,
        )
        self.acquaintances = Acquaintances(self.identities, self.dialling, self.durables.keep)
        self.replica_progress = ReplicaProgress(turn, self.standing)
        self.replacements = Replacements(
            turn,
            self.connections,
            self.neighbours,
            self.links,
            self.dialling,
            self.identities,
            self.acquaintances,
            incarnation=self.incarnation,
            started_us=lambda: self.completeness.started_at_us,
            when_safe=lambda client, answer: self.durables.work.when_safe(Answer(client, answer)),
            close=self.handshake.close,
            broken=self.endings.broken,
            given=self.replica_progress.granted,
        )
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
            self.durables.work.collect,
            lambda source, arrivals: self.resumptions.arrived(source, arrivals),
        )
        self.resumptions = Resumptions(
            self.standing.resumption if self.standing is not None else "",
            turn,
            self.neighbours,
            lambda: self.links.holding,
            lambda link, messages: self.copying.subscribed(link, messages),
            self.tables,
            self.publish.ways,
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
        interests = InterestReport(self.settings.broker_id, connections, self.tables, self.durables)
        self.draining = Draining(
            turn,
            connections,
            self.handshake,
            neighbours,
            self.links,
            self.soft,
            lambda: not (self.publish.unrouted or self.turns.routing) and self.durables.work.idle,
        )
        self.detours = self.publish.ways.detours = Detours(self.changing.leaving, neighbours)
        self.moves = TableMoves(
            self.tables,
            self.changing,
            self.subscriptions.inform,
            self.subscriptions.installations.cancel,
        )
        self.copying = Copying(
            turn,
            self.changing,
            neighbours,
            self.tables,
            self.moves,
            self.subscriptions.ahead,
            self.subscriptions,
            inform=self.subscriptions.inform,
            link_down=self.subscriptions.link_down,
            look_again=self.subscriptions.installations.look_again,
        )
        self.reconfigurations: PreCopies = PreCopies(
            turn,
            self.changing,
            self.links,
            self.tables,
            self.moves,
            self.copying,
            self.limits,
            self.events,
            inform=self.subscriptions.inform,
            drop_stale=self.subscriptions.drop_stale,
            new_id=self.identities.new_session,
            refusing=lambda: self.draining.begun,
            when_safe=self.durables.work.when_safe,
            reserved_from=lambda operation: (
                self.exchanges.reserved_from(operation)
                or ("the return of logs from their copies" if self.durables.lost.fetching else "")
            ),
            detours=self.detours,
        )
        self._make_organising(seed)
        answers = {
            **topics(self.reports, operations, self.mesh),
            "subscriptions": interests.report,
            "topology": self.topology.choose,
        }
        later = {
            "reload": self.admission.reload,
            "reconfigure": self.reconfigurations.requests.ask,
            "grant": self.replacements.grant,
        }
        self.operator = Operator(turn, answers, later)
        self.turns = FairQueue(
            turn,
            handler=partial(handler_of, self),
            batches=self.publish.arrived,
            divided=self.publish.divided,
            pieces=self.publish.take_pieces,
            subscribe_link=self.resumptions.subscribe_link,
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
            self.unsettled,
            self.from_sets,
            self.durables.lost,
            self.durables.copies,
            self.durables.kept_copies,
            self.resumptions,
            self.exchanges,
            self.delegated,
        )

    def _make_organising(self, seed: int) -> None:
        """Looking for a better tree, and what is agreed on."""
        self.exchanges = Exchanges(
            self.turn,
            self.neighbours,
            self.changing,
            shift=self.reconfigurations.requests.shift,
            new_token=self.reconfigurations.requests.new_token,
            new_id=self.identities.new_session,
            unwilling=lambda: "it is about to stop" if self.draining.begun else self.topology.unwilling(),
            carried_out=lambda: self.topology.carried_out(),
        )
        self.topology = TopologyChoice(
            self.settings.broker_id,
            self.settings.topology,
            lambda chosen, number: Organising(
                self.turn,
                self.connections.parties,
                self.neighbours,
                seed,
                chosen,
                number,
                busy=lambda: self.exchanges.active,
                agreed=self.exchanges.begin,
            ),
            lambda: (self.exchanges.done, self.exchanges.given_up),
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

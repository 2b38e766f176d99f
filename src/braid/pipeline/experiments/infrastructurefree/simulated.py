"""A workload of the infrastructure-free paper on simulated peers.

The peers are those that `braid peer` runs, on a transit-stub network as the paper's; they begin with the
tables that real joins lead to. What happens goes into a trace: publications with how many peers should get
them (found by an index that knows all subscriptions), deliveries, messages by peer and kind, and at the end
what each peer holds.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from braid.language import Publication, Range
from braid.matching import FilterIndex
from braid.p2p.dht.messages import Confirmed, Numbered, Routed
from braid.p2p.dht.pastry import Pastry
from braid.p2p.dht.pastry_settings import PastrySettings
from braid.p2p.dht.ring import Ring, RingSettings
from braid.p2p.dht.settled import settle
from braid.p2p.dmm import Dmm, DmmSettings, Interests
from braid.p2p.dmm.arrivals import Arrivals
from braid.p2p.dmm.messages import DMM_MESSAGES, Active, Arrived, Find, Gone, Idle, InUse, Multicast
from braid.p2p.hermes import HERMES_MESSAGES, Hermes, Rising, Sinking
from braid.p2p.peer import Peer
from braid.p2p.schema import NetworkSchema
from braid.p2p.turn import Turn
from braid.protocol import PublicationBatch
from braid.protocol.batch import encode_record
from braid.protocol.effects import Delivery
from braid.protocol.publisher_names import whole_name
from braid.sim.datagrams import DatagramWorld
from braid.sim.topologies.transit_stub import NumberedPlacement, TransitStub

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import msgspec

    from braid.language import Filter
    from braid.p2p.dht.interface import Dht
    from braid.protocol.effects import Effect
    from braid.trace.writer import TraceWriter
    from braid.workloads.tables import Workload

__all__ = ["ATTRIBUTES", "KINDS", "PeerNetwork", "SimulatedPeers", "message_kind"]

ATTRIBUTES: Final = {f"a{number}": {"kind": "integer", "low": 1, "high": 256} for number in range(1, 11)}

# Of Hermes, with which the paper compares DMM: all publications are events of one type.
EVENT_TYPE: Final = "quote"
# Peers watch their neighbours so often, where some come or go.
BEAT_US: Final = 5_000_000
# Peers join one by one, so long after each other.
JOIN_S: Final = 0.2
# After the last join, so long is waited until everybody knows everybody that matters.
JOINED_S: Final = 30.0
# After the last publication, so long is waited for deliveries.
REST_S: Final = 60.0
SECOND_US: Final = 1_000_000
# So many publications are read once for all peers; more than are on their way at the same time.
ARRIVALS_MAX: Final = 4_096
# Peers of a process share what they read of filters; a real peer keeps 20,000 and some thousand spaces.
FILTERS_MAX: Final = 1_000_000
SPACES_MAX: Final = 100_000
# Publications are answered by an index so many at a time.
ANSWERED_TOGETHER: Final = 500

_RECORD: Final = encode_record({}, 0)


class PublicationMessages:
    """Messages that carry a publication."""


class SubscriptionMessages:
    """Messages about subscriptions and the regions they are kept in, and beacons of both."""


class CacheMessages:
    """Messages about which regions are active: the paper's tree cache."""


class AcknowledgementMessages:
    """Messages that confirm others."""


class OverlayMessages:
    """Messages of the DHT itself."""


KINDS: Final[Mapping[type, str]] = {
    PublicationMessages: "publication",
    SubscriptionMessages: "subscription",
    CacheMessages: "cache",
    AcknowledgementMessages: "acknowledgement",
    OverlayMessages: "overlay",
}

_KIND_OF: Final[dict[type, type]] = {
    **dict.fromkeys(DMM_MESSAGES, SubscriptionMessages),
    **dict.fromkeys(HERMES_MESSAGES, SubscriptionMessages),
    **dict.fromkeys((Find, Multicast, Rising, Sinking), PublicationMessages),
    **dict.fromkeys((Active, Gone, Idle, InUse), CacheMessages),
    **dict.fromkeys((Arrived, Confirmed), AcknowledgementMessages),
}

_WRAPPERS: Final = (Numbered, Routed)


def message_kind(message: msgspec.Struct) -> type:
    """Which kind a message counts as, whatever it is wrapped in."""
    kind = _KIND_OF.get(type(message))
    while kind is None and type(message) in _WRAPPERS:
        message = message.message  # type: ignore[attr-defined]
        kind = _KIND_OF.get(type(message))
    return kind or OverlayMessages


class PeerNetwork:
    """Very many peers in virtual time."""

    def __init__(
        self,
        names: list[str],
        dmm: DmmSettings,
        pastry: PastrySettings,
        *,
        seed: int,
        loss: float,
        joins: bool = False,
        hermes: bool = False,
        ring: bool = False,
        schema: bool = True,
    ) -> None:
        """
        Args:
            names: of the peers.
            dmm: how they match.
            pastry: how they find each other.
            seed: of the network, of losses and of tables.
            loss: the share of datagrams that are lost.
            joins: whether the peers join one by one instead of beginning with their tables.
            hermes: whether they are those of Hermes, with one event type.
            ring: whether all know each other; then they join.
            schema: whether the network has one.
        """
        placement = NumberedPlacement(TransitStub.generate(seed=seed), len(names), seed)
        self.world = DatagramWorld(
            seed, placement.latency_us, loss=loss, kind_of=message_kind, on_effect=self._effect
        )
        self.on_delivery: Callable[[str, Publication], None] = lambda name, publication: None
        """Is told what is delivered to whom."""
        self.interests = interests = Interests(
            dmm,
            NetworkSchema(ATTRIBUTES if schema else None),
            Arrivals(ARRIVALS_MAX),
            kept_max=FILTERS_MAX,
            spaces_max=SPACES_MAX,
        )
        self.hermes = hermes
        tables: list[Pastry] = []
        peers: list[Peer] = []
        for number, name in enumerate(names):
            turn = Turn()
            dht: Dht = Ring(turn, name, RingSettings()) if ring else Pastry(turn, name, pastry)
            application: Dmm | Hermes = (
                Hermes(turn, dht, interests=interests) if hermes else Dmm(turn, dht, dmm, interests)
            )
            if joins or ring:
                # Each is told of some peer that is there already.
                bootstrap = [names[(number * 7919) % number]] if number else []
                self.world.add(name, Peer(turn, dht, application, bootstrap))
                self.world.run_for(JOIN_S)
            elif isinstance(dht, Pastry):
                tables.append(dht)
                peers.append(Peer.settled(turn, dht, application))
        if joins or ring:
            self.world.run_for(JOINED_S)
        else:
            settle(tables, placement.latencies_us, seed=seed, beat_us=pastry.beat_us)
            for name, peer in zip(names, peers, strict=True):
                self.world.add(name, peer)
        self.start_us = self.world.now_us

    def _effect(self, name: str, effect: Effect) -> None:
        if type(effect) is Delivery:
            self.on_delivery(name, effect.publication)

    def subscribe(self, name: str, key: str, wanted: Filter) -> None:
        """Have a peer subscribe now."""

        def act(peer: Peer, now_us: int) -> list[Effect]:
            application: Any = peer.application
            if self.hermes:
                application.subscribe(EVENT_TYPE, key, wanted, now_us)
            else:
                application.subscribe(key, wanted, now_us)
            return peer.complete(now_us)

        self.world.call(name, act)

    def publish(self, name: str, publication: Publication) -> None:
        """Have a peer publish now."""

        def act(peer: Peer, now_us: int) -> list[Effect]:
            application: Any = peer.application
            if self.hermes:
                application.advertise(EVENT_TYPE, now_us)
                application.publish(EVENT_TYPE, publication, now_us)
            else:
                application.publish(publication, now_us)
            return peer.complete(now_us)

        self.world.call(name, act)


class SimulatedPeers:
    """One run: a workload, the network it is played on, and the trace."""

    def __init__(self, settings: Mapping[str, Any], seed: int, writer: TraceWriter) -> None:
        """`settings` are those of a point; see `network`."""
        self._settings = settings
        self._seed = seed
        self._writer = writer
        self._batches: dict[tuple[str, int], PublicationBatch] = {}
        """By publisher and number, what the trace calls a publication."""
        self._seen: dict[int, set[tuple[str, int]]] = {}
        """By peer, the publications that have come to it or by it."""
        name = "infrastructurefree.zipf" if settings["zipf"] else "infrastructurefree.uniform"
        from braid.workloads import workload  # which needs Arrow; a list of experiments does not

        self.played: Workload = workload(
            name,
            seed=seed,
            peers=settings["peers"],
            subscriptions=settings["subscriptions"],
            publishers=settings["publishers"],
            publish_s=settings["publish_s"],
            body_bytes=0,
            **settings["workload"],
        )
        hermes = settings["algorithm"] == "Hermes"
        dmm = DmmSettings(
            algorithm="DMM" if hermes else settings["algorithm"],
            lookup=settings["lookup"],
            tree_cache=settings["cache_place"] if settings["tree_cache"] else None,
            primary=settings["primary"],
            attribute_root=settings["attribute_root"],
            split_threshold=settings["split_threshold"],
            acknowledged=settings["acknowledged"],
        )
        changing = settings["crash"] or settings["joins"]
        pastry = PastrySettings(
            acknowledged=settings["acknowledged"],
            beat_us=BEAT_US if changing else None,
            probes_per_beat=settings.get("probes_per_beat", 1),
        )
        self.names = [f"B{number:03d}" for number in range(settings["peers"])]
        self.network = PeerNetwork(
            self.names,
            dmm,
            pastry,
            seed=seed,
            loss=settings["loss"],
            joins=settings["joins"],
            hermes=hermes,
            ring=settings.get("dht") == "ring",
            schema=settings.get("schema", True),
        )

    def run(self) -> dict[str, Any]:
        """Play it; returns what is not in the trace."""
        world, start_us = self.network.world, self.network.start_us
        self.network.on_delivery = self._delivered
        subscriptions = self.played.local("subscriptions").to_pylist()
        publications = self.played.local("publications").to_pylist()
        of = self.network.interests.of
        filters = {row["key"]: (row["broker"], of(row["filter"]).filter) for row in subscriptions}
        crash_s = self._settings["crash_at_s"]
        crashed = self._crash(start_us + round(crash_s * SECOND_US)) if self._settings["crash"] else set()
        before = Counter(world.messages)
        world.count_by_machine()
        world.on_heard = self._heard if "run" in self._settings else None
        for row in subscriptions:
            world.schedule(start_us + row["at_us"], self._subscribe, (row["key"], *filters[row["key"]]))
        ready = [
            Publication(_attributes(row["attributes"]), publisher=row["client"], sequence=row["sequence"])
            for row in publications
        ]
        expected = self._expected(ready, publications, filters, crashed, start_us)
        matches = 0
        for row, publication, (peers, count) in zip(publications, ready, expected, strict=True):
            matches += count
            name = row["broker"]
            world.schedule(start_us + row["at_us"], self._publish, (name, publication, peers))
        last_us = max(row["at_us"] for row in publications)
        begin_us = min(row["at_us"] for row in publications)
        world.run_until(start_us + begin_us)
        at_begin = Counter(world.messages)
        world.run_until(start_us + last_us + round(REST_S * SECOND_US))
        self._write_peers()
        sent = Counter(world.messages)
        return {
            "matches": matches,
            "publications": len(ready),
            "begin_us": start_us + begin_us,
            "end_us": start_us + last_us,
            "crash_us": start_us + round(crash_s * SECOND_US),
            "messages": {name: (sent - before)[kind] for kind, name in KINDS.items()},
            "messages_before_publishing": {name: (at_begin - before)[kind] for kind, name in KINDS.items()},
            "occurrences": world.occurrences,
            "table": self._table() if "run" in self._settings else {},
            "regions_visited": sum(
                peer.application.statistics()["matched"]  # type: ignore[attr-defined]
                for peer in world.machines
                if isinstance(peer, Peer)
            ),
        }

    def _heard(self, number: int, messages: Sequence[msgspec.Struct]) -> None:
        """Which publications each peer sees on their way: for a few small runs."""
        for message in messages:
            while type(message) in _WRAPPERS:
                message = message.message  # type: ignore[attr-defined]
            if _KIND_OF.get(type(message)) is PublicationMessages:
                content = message.content  # type: ignore[attr-defined]
                self._seen.setdefault(number, set()).add((content.publisher, content.sequence))

    def _table(self) -> dict[str, int]:
        """How work, entries and publications are spread over the peers."""
        applications: list[Any] = [
            peer.application for peer in self.network.world.machines if isinstance(peer, Peer)
        ]
        states = [each.statistics() for each in applications]
        indexed = Counter(name for each in applications for name in each.indexed())
        found = {"indexed_at_max": max(indexed.values(), default=0)}
        for name, column in (("leaf", "leaf_entries"), ("matched", "matched")):
            found[name] = sum(state[column] for state in states)
            found[f"{name}_max"] = max(state[column] for state in states)
        found["seen_max"] = max(map(len, self._seen.values()), default=0)
        return found

    def _crash(self, at_us: int) -> set[str]:
        """Have peers crash at a time: some that publish nothing."""
        brokers = self.played.local("brokers").to_pylist()
        quiet = [row["broker"] for row in brokers if "publish" not in row["role"]]
        victims = set(quiet[:: max(1, len(quiet) // self._settings["crash"])][: self._settings["crash"]])
        self.network.world.schedule(at_us, self._end, sorted(victims))
        return victims

    def _end(self, victims: list[str]) -> None:
        self._writer.fault(self.network.world.now_us, "crash", f"{len(victims)} peers", "")
        self.network.world.crash(victims)

    def _subscribe(self, what: tuple[str, str, Filter]) -> None:
        key, name, wanted = what
        self.network.subscribe(name, key, wanted)

    def _publish(self, what: tuple[str, Publication, int]) -> None:
        name, publication, expected = what
        batch = self._batches[publication.publisher, publication.sequence] = _batch(publication)
        self._writer.publication(self.network.world.now_us, name, batch, expected)
        self.network.publish(name, publication)

    def _expected(
        self,
        ready: list[Publication],
        rows: list[dict[str, Any]],
        filters: Mapping[str, tuple[str, Filter]],
        crashed: set[str],
        start_us: int,
    ) -> list[tuple[int, int]]:
        """For each publication how many peers, and how many subscriptions, it is for."""
        index: FilterIndex[str] = FilterIndex()
        for key, (_, wanted) in filters.items():
            index.add(key, wanted)
        crash_us = round(self._settings["crash_at_s"] * SECOND_US)
        found: list[tuple[int, int]] = []
        for first in range(0, len(ready), ANSWERED_TOGETHER):
            some = ready[first : first + ANSWERED_TOGETHER]
            answers = index.match_batch([each.attributes for each in some])
            for row, keys in zip(rows[first : first + ANSWERED_TOGETHER], answers, strict=True):
                gone = crashed if row["at_us"] >= crash_us else set()
                places = [filters[key][0] for key in keys if filters[key][0] not in gone]
                found.append((len(set(places)), len(places)))
        return found

    def _delivered(self, name: str, publication: Publication) -> None:
        world = self.network.world
        batch = self._batches[publication.publisher, publication.sequence]
        batch.hops = world.depth
        self._writer.delivery(world.now_us, name, name, batch)

    def _write_peers(self) -> None:
        """What each peer has sent, by kind, and what it holds."""
        world, writer = self.network.world, self._writer
        now_us = world.now_us
        period_us = now_us - self.network.start_us
        for name, sent, peer in zip(self.names, world.sent or (), world.machines, strict=True):
            for kind, count in sent.items():
                writer.link_sample(now_us, period_us, name, "", "primary", KINDS[kind], count, 0, 0)
            if isinstance(peer, Peer):
                state = peer.application.statistics()  # type: ignore[attr-defined]
                writer.peer_state(now_us, name, state["leaf_entries"], state["tree_entries"])


def _batch(publication: Publication) -> PublicationBatch:
    name = whole_name(publication.publisher, publication.epoch)
    return PublicationBatch.of(name, [publication.sequence], [_RECORD])


def _attributes(row: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a publication; a range of one value is that value."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if value is not None:
            low, high = value["low"], value["high"]
            found[name] = low if low == high else Range(low, high)
    return found

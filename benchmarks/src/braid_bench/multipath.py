"""What does computing paths over soft links cost a broker?

One broker core is driven by hand: frames go in as bytes, frames come out as bytes, and only the processor
time in between counts. Its neighbours and the other ends of its soft links are stand-ins that speak the
protocol and acknowledge what they get.
"""

from __future__ import annotations

import random
import statistics
from collections import deque
from dataclasses import asdict, dataclass
from time import process_time_ns
from typing import TYPE_CHECKING, Any

from braid.adaptation import SoftLinkSettings
from braid.broker.core import BrokerCore
from braid.broker.settings import BrokerSettings
from braid.errors import ConfigurationError
from braid.protocol import Channel, ChannelSettings, Frame, FrameDecoder, PublicationBatch, encode_frames
from braid.protocol.batch import encode_record
from braid.protocol.effects import Dial, Send
from braid.protocol.inputs import Opened, Received, Tick
from braid.protocol.messages import (
    PROTOCOL_VERSION,
    Acknowledgement,
    Advertise,
    Done,
    Hello,
    Nearby,
    Reach,
    Subscribe,
    SyncBegin,
    TablesComplete,
    Welcome,
)
from braid.routing import PATHS, MultipathForwarding, OverlayMap, WorkingMap
from braid.routing.multipath import Anchored
from braid_bench.environment import describe_environment, on_one_core
from braid_bench.timing import settled_memory, significant

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from braid.matching.matcher import Reached
    from braid.protocol.codec import Body
    from braid.protocol.inputs import Input
    from braid.protocol.messages import Message
    from braid.routing import Forwarding

__all__ = ["MultipathCostSettings", "bench_multipath", "multipath_settings_for"]

_METHOD = (
    "One process on one core, CPU time. The broker has a few neighbours, behind each a tree with 2 more "
    "behind every broker, as far as it sees; subscriptions are spread evenly over all of these brokers. "
    "Batches come from one neighbour as bytes. The time runs from the bytes of a batch to the bytes of all "
    "its copies, and while acknowledgements of the copies are read. Cases take turns. A broker that sends "
    "a copy straight to each of several brokers sends more copies than one that leaves that to others, so a "
    "publication costs this broker more and others less. Path computation is what choosing next hops takes "
    "alone, less what it takes along the tree, and is compared with all that S0 spends on a publication."
)
_CENTRE = "X"
_CREDIT_BYTES = 1 << 40
# Far beyond everything that happens here: nobody is asked whether it is there.
_NEVER_US = 1 << 50
_REVIEW_US = 1_000_000
_CLASSES = 1_000
# Until all soft links are there.
_REVIEWS_MAX = 60
_GOALS = {"path": 0.25, "map_ms": 1.0, "table_ms": 17.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class MultipathCostSettings:
    """What is measured, and how often."""

    subscriptions: int = 10_000
    fanout: int = 35
    neighbours: int = 3
    delta: int = 4
    rows: int = 64
    """Publications in a batch."""
    batches: int = 20
    """Batches in a turn."""
    turns: int = 15
    table_subscriptions: int = 6_500
    """For the time to make the working table."""
    seed: int = 1


def multipath_settings_for(*, quick: bool = False, seed: int = 1) -> MultipathCostSettings:
    """Settings from what a person typed; `quick` takes some seconds."""
    if quick:
        return MultipathCostSettings(subscriptions=1_000, turns=5, batches=5, seed=seed)
    return MultipathCostSettings(seed=seed)


def bench_multipath(
    settings: MultipathCostSettings, progress: Callable[[str], None] = lambda title: None
) -> dict[str, Any]:
    """Measure all cases; the report is plain data, ready for JSON."""
    places = _places(settings)
    with on_one_core() as alone:
        desks = {}
        for name, strategy, delta in (
            ("S0, sees its neighbours", "S0", 1),
            ("S0, sees as far as S2", "S0", settings.delta),
            ("S1", "S1", settings.delta),
            ("S2", "S2", settings.delta),
        ):
            progress(f"{name}: {settings.subscriptions:,} subscriptions")
            desks[name] = _Desk(settings, places, strategy, delta)
        progress("publishing")
        cells = _measured(settings, desks)
        progress("maps and tables")
        working = _working(settings, places)
    return {
        "benchmark": "multipath",
        "method": _METHOD,
        "environment": {**describe_environment(), "pinned_to_one_core": alone},
        "settings": {**asdict(settings), "brokers_in_sight": len(places)},
        "goals": _goals(cells, working),
        "cells": cells,
        "working_map": working,
    }


def _goals(cells: list[dict[str, Any]], working: dict[str, Any]) -> list[dict[str, Any]]:
    two = next(cell for cell in cells if cell["case"] == "S2")
    rows = [
        ("S2: path computation, as a share of S0's CPU per publication", _GOALS["path"], two["path_share"]),
        ("making the working map, ms", _GOALS["map_ms"], working["working_map_ms"]),
        ("making the working table, ms", _GOALS["table_ms"], working["working_table_ms"]),
    ]
    return [
        {"goal": goal, "target": f"at most {target:g}", "measured": measured, "met": measured <= target}
        for goal, target, measured in rows
    ]


# The network around the broker.


def _places(settings: MultipathCostSettings) -> dict[str, str]:
    """Every broker in sight, with the one before it; nearer ones first."""
    before: dict[str, str] = {f"N{number}": _CENTRE for number in range(settings.neighbours)}
    edge = list(before)
    for _ in range(settings.delta - 1):
        edge = [
            f"{parent}{side}"
            for parent in edge
            for side in "ab"
            if before.setdefault(f"{parent}{side}", parent)
        ]
    if settings.fanout > len(before):
        raise ConfigurationError(f"there are {len(before)} brokers in sight, so fanout is at most that")
    return before


def _first(broker: str) -> str:
    """The neighbour in whose direction a broker lies."""
    return broker[:2]


class _Peer:
    """The other end of a link or a soft link of the broker."""

    def __init__(self, name: str, connection: int) -> None:
        self.name = name
        self.connection = connection
        self.channel: Channel[object] = Channel(ChannelSettings(window_bytes=_CREDIT_BYTES))
        self.copies = 0
        self.hello: Hello | None = None
        self._decoder = FrameDecoder()

    def hear(self, data: bytes) -> list[Frame]:
        """What it answers to bytes from the broker."""
        answers: list[Frame] = []
        for frame in self._decoder.feed(data):
            body = frame.body
            if frame.sequence:
                self.channel.accept(frame)
            if isinstance(body, Welcome):
                self.channel.restart(body.credit)
            elif isinstance(body, Hello):
                self.hello = body
                self.channel.restart(body.credit)
                answers.append(
                    Frame(0, Welcome(PROTOCOL_VERSION, self.name, f"{self.name}-1", credit=_CREDIT_BYTES))
                )
            elif isinstance(body, PublicationBatch):
                self.copies += len(body)
            elif isinstance(body, Subscribe | Advertise):
                self.channel.offer(Done(body.request))
            elif isinstance(body, Acknowledgement):
                self.channel.acknowledged(body)
        self.channel.settled = self.channel.received
        told = self.channel.acknowledgement() if self.channel.acknowledgement_due() else None
        if told is not None:
            answers.append(Frame(0, told))
        return [*answers, *self.channel.take()]

    def say(self, *bodies: Body) -> list[Frame]:
        """Sequenced messages, as they cross."""
        for body in bodies:
            self.channel.offer(body)
        return self.channel.take()


class _TimedForwarding:
    """Chooses next hops as another does, and counts the time it takes."""

    def __init__(self, forwarding: Forwarding) -> None:
        self._forwarding = forwarding
        self.version = forwarding.version
        self.spent_ns = 0

    def next_hops(self, reached: Reached, came_from: Hashable | None, ordered: bool, rows: int) -> Reached:
        """As the other says."""
        begun = process_time_ns()
        found = self._forwarding.next_hops(reached, came_from, ordered, rows)
        self.spent_ns += process_time_ns() - begun
        return found


class _Desk:
    """One broker with its neighbours and soft links."""

    def __init__(
        self, settings: MultipathCostSettings, places: dict[str, str], strategy: str, delta: int
    ) -> None:
        soft = SoftLinkSettings(fanout=settings.fanout, candidates_max=settings.fanout, review_us=_REVIEW_US)
        self._core = BrokerCore(
            BrokerSettings(
                broker_id=_CENTRE,
                address=_CENTRE,
                strategy=strategy,
                delta=delta,
                soft_links=soft,
                heartbeat_us=_NEVER_US,
                link=ChannelSettings(window_bytes=_CREDIT_BYTES),
            ),
            incarnation="1",
            seed=1,
        )
        self._settings = settings
        self._places = places
        self._peers: dict[int, _Peer] = {}
        self._now_us = 1_000_000
        self._sequence = 0
        self._connections = 0
        self._under_way: deque[tuple[int, bytes]] = deque()
        self.spent_ns = 0
        self.forwarding = _TimedForwarding(self._core._publish.ways.forwarding)
        self._core._publish.ways.forwarding = self.forwarding
        self._handle(Tick())
        for number in range(settings.neighbours):
            self._link(f"N{number}", delta)
        self.soft_links = self._mesh(settings.fanout - settings.neighbours) if strategy != "S0" else 0

    # Building.

    def _link(self, name: str, delta: int) -> None:
        """A neighbour comes, and says who is behind it and what they want."""
        peer = self._peer(name, None)
        behind = {broker: before for broker, before in self._places.items() if _first(broker) == name}
        farther = [(broker, before, broker) for broker, before in behind.items() if broker != name]
        hello = Hello(
            PROTOCOL_VERSION, "broker", name, f"{name}-1", credit=_CREDIT_BYTES, address=name,
            brokers=sorted(behind.keys() - {name}), delta=delta,
        )  # fmt: skip
        self._give(peer, [Frame(0, hello)])
        self._settle()
        wanted = self._subscriptions(sorted(behind), delta)
        messages: list[Message] = [SyncBegin(), Advertise(1, f"{name}/*", "TRUE")]
        if delta > 1:
            messages.append(Nearby(farther, []))
        self._give(peer, peer.say(*messages, *wanted, Reach(sorted(behind)), TablesComplete()))
        self._settle()

    def _subscriptions(self, brokers: list[str], delta: int) -> list[Subscribe]:
        chance = random.Random(f"{self._settings.seed}/subscriptions")
        everybody = sorted(self._places)
        found = []
        for number in range(self._settings.subscriptions):
            home = everybody[number % len(everybody)]
            price = round(chance.uniform(0, 100), 1)
            wanted = f"class = {chance.randrange(_CLASSES)} AND price > {price}"
            if home in brokers:
                anchor = home if delta > 1 else ""
                key = f"{home}/1.{number}"
                found.append(Subscribe(number + 10, key, wanted, anchor=anchor, exact=bool(anchor)))
        return found

    def _mesh(self, wanted: int) -> int:
        """Let it find soft links, until it has so many."""
        up = 0
        for _ in range(_REVIEWS_MAX):
            self.publish(1)
            self._now_us += _REVIEW_US
            self._handle(Tick())
            self._settle()
            up = len(self._core.statistics()["mesh"]["soft_links"])
            if up >= wanted:
                return up
        raise ConfigurationError(f"only {up} of {wanted} soft links were made")

    # Driving.

    def _peer(self, name: str, dial: Dial | None) -> _Peer:
        self._connections += 1
        peer = self._peers[self._connections] = _Peer(name, self._connections)
        dialled, soft = (dial.address, dial.soft) if dial is not None else (None, False)
        self._handle(Opened(peer.connection, name, dialled, soft=soft))
        return peer

    def _give(self, peer: _Peer, frames: list[Frame]) -> None:
        """Frames of a peer reach the broker as bytes."""
        if not frames:
            return
        data = encode_frames(frames)
        begun = process_time_ns()
        decoded = FrameDecoder().feed(data)
        self.spent_ns += process_time_ns() - begun
        self._handle(Received(peer.connection, decoded))

    def _handle(self, stimulus: Input) -> None:
        begun = process_time_ns()
        effects = self._core.handle(stimulus, self._now_us)
        sent = [
            (effect.connection, encode_frames(effect.frames))
            for effect in effects
            if isinstance(effect, Send)
        ]
        self.spent_ns += process_time_ns() - begun
        self._under_way.extend(sent)
        for effect in effects:
            if isinstance(effect, Dial):
                self._peer(effect.address, effect)

    def _settle(self) -> None:
        """Let everybody hear what is under way, and what that leads to."""
        while True:
            while self._under_way:
                connection, data = self._under_way.popleft()
                peer = self._peers[connection]
                self._give(peer, peer.hear(data))
            # What takes long is done in steps, each with a tick.
            due_us = self._core.next_deadline_us()
            if due_us is None or due_us > self._now_us:
                return
            self._handle(Tick())

    def publish(self, batches: int) -> None:
        """Batches come from the first neighbour."""
        peer = self._peers[1]
        for _ in range(batches):
            first = self._sequence + 1
            chance = random.Random(f"{self._settings.seed}/{first}")
            self._sequence += self._settings.rows
            records = [
                encode_record({"class": chance.randrange(_CLASSES), "price": chance.uniform(0, 100)}, 100)
                for _ in range(self._settings.rows)
            ]
            numbers = range(first, self._sequence + 1)
            batch = PublicationBatch.of("p", numbers, records).readdressed(further=True)
            self._now_us += 1_000
            self._give(peer, peer.say(batch))
            self._settle()

    @property
    def copies(self) -> int:
        """Publications that it has sent to others."""
        return sum(peer.copies for peer in self._peers.values())


def _measured(settings: MultipathCostSettings, desks: dict[str, _Desk]) -> list[dict[str, Any]]:
    whole: dict[str, list[float]] = {name: [] for name in desks}
    paths: dict[str, list[float]] = {name: [] for name in desks}
    copies: dict[str, list[float]] = {name: [] for name in desks}
    publications = settings.batches * settings.rows
    with settled_memory():
        for turn in range(settings.turns + 1):
            for name, desk in desks.items():
                before = desk.spent_ns, desk.forwarding.spent_ns, desk.copies
                desk.publish(settings.batches)
                if turn:  # the first is for getting warm
                    whole[name].append((desk.spent_ns - before[0]) / publications / 1000)
                    paths[name].append((desk.forwarding.spent_ns - before[1]) / publications / 1000)
                    copies[name].append((desk.copies - before[2]) / publications)
    base = next(iter(desks))

    def share(name: str, of: dict[str, list[float]], per: dict[str, list[float]]) -> float:
        """The median over turns: what disturbed one case in a turn disturbed the others, too."""
        return statistics.median(above / below for above, below in zip(of[name], per[base], strict=True))

    more = {name: [a - b for a, b in zip(paths[name], paths[base], strict=True)] for name in desks}
    sent = {name: statistics.fmean(copies[name]) for name in desks}
    if not all(sent.values()):
        raise ConfigurationError("nobody wants anything; more subscriptions or publications would help")
    each = {name: [spent / sent[name] for spent in whole[name]] for name in desks}
    return [
        {
            "case": name,
            "soft_links": desk.soft_links,
            "copies_per_publication": significant(sent[name]),
            "cpu_us_per_publication": significant(statistics.median(whole[name])),
            "cpu_us_per_copy": significant(statistics.median(each[name])),
            "next_hops_us_per_publication": significant(statistics.median(paths[name])),
            "path_share": significant(max(0.0, share(name, more, whole))),
            "cpu_per_publication_of_s0": significant(share(name, whole, whole)),
            "cpu_per_copy_of_s0": significant(share(name, each, each)),
        }
        for name, desk in desks.items()
    ]


def _working(settings: MultipathCostSettings, places: dict[str, str]) -> dict[str, Any]:
    """How long a change of links takes: the working map, and what stands in for the working table."""
    overlay = OverlayMap(_CENTRE, places)
    links = [broker for broker in overlay.brokers if broker in overlay.neighbours]
    farther = [broker for broker in overlay.brokers if broker not in overlay.neighbours]
    links += random.Random(f"{settings.seed}/links").sample(farther, settings.fanout - len(links))
    anchors: Reached = [(Anchored(_first(broker), broker), None) for broker in overlay.brokers]
    neighbours = set(overlay.neighbours)
    maps, tables = [], []
    for _ in range(200):
        begun = process_time_ns()
        working = WorkingMap(overlay, links)
        maps.append(process_time_ns() - begun)
        forwarding = MultipathForwarding(neighbours, lambda broker, publications: None)
        begun = process_time_ns()
        # Afterwards every anchor of the master table has its link.
        forwarding.use(working, PATHS["S2"])
        forwarding.next_hops(anchors, None, False, 1)
        tables.append(process_time_ns() - begun)
    return {
        "links": len(links),
        "brokers": len(overlay),
        "subscriptions": settings.table_subscriptions,
        "remark": "the working table is made of anchors, so its time does not grow with subscriptions",
        "working_map_ms": significant(statistics.median(maps) / 1e6),
        "working_table_ms": significant(statistics.median(tables) / 1e6),
    }

"""Worlds in which brokers change places while publications flow.

A `ShiftWorld` is a tree of brokers with subscribers whose filters cover each other, publishers of all kinds,
and operators. It knows everything: who is owed what (the checkers of the world), which tree there has to be,
and what each broker's tables have to say of each neighbour.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from braid.language import Filter
from braid.reconfiguration import OverlayTree, Shift
from braid.sim import LinkModel, NodeModel, Station, World
from tests.sim.brokers import broker
from tests.sim.operator_station import OperatorStation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from braid.broker.core import BrokerCore

__all__ = ["ShiftWorld", "tree_of"]

PROBES = [{"price": price, "kind": kind} for price in range(0, 100, 7) for kind in "xyz"]
# Shorter than in a real network, so that what takes too long is over soon.
OPERATION_US_MAX = 2_000_000


def tree_of(world: World, names: Sequence[str]) -> OverlayTree:
    """The tree that brokers believe in.

    Raises:
        AssertionError: the two ends of a link do not agree.
        ConfigurationError: it is no tree.
    """
    ends = [(name, other) for name in names for other in links_of(world, name)]
    for name, other in ends:
        assert (other, name) in ends, f"{name} has a link to {other}, and {other} has none to {name}"
    return OverlayTree({(min(pair), max(pair)) for pair in ends}, names)


def links_of(world: World, name: str) -> list[str]:
    """The neighbours of a broker, as its snapshot has them."""
    core: BrokerCore = world.machine(name)
    return [link.name for link in core.snapshot().links]


class ShiftWorld:
    """One world, made by its seed. Between the two brokers named in `slow` all takes ten times as long."""

    def __init__(
        self,
        seed: int,
        *,
        links: Sequence[tuple[str, str]] | None = None,
        strategy: str = "S0",
        codec: bool = False,
        latency_us: int | None = None,
        slow: str = "",
        until_us: int = 12_000_000,
        period_us: Sequence[int] = (300, 2_000, 9_000),
        how: str = "",
        node: NodeModel | None = None,
        directory: bool = False,
        **settings: Any,
    ) -> None:
        self.how = how
        """How operations are done; as brokers like it if it is empty."""
        self.chance = chance = random.Random(f"shift world/{seed}")
        latency_us = latency_us or chance.choice([100, 1_000, 20_000])
        self.world = World(
            seed,
            codec=codec,
            link=LinkModel(latency_us),
            latency_us=lambda *ends: latency_us * (10 if slow and set(ends) == set(slow) else 1),
            validate_us=19_997,
        )
        if directory:
            self.world.add_directory()
        self.world.checkers.ordered = strategy == "S0"
        self._until_us = until_us
        self._period_us = period_us
        if links is None:
            names = "ABCDEFGHI"[: chance.randrange(5, 10)]
            links = [(name, chance.choice(names[:place])) for place, name in enumerate(names) if place]
        self.tree = OverlayTree(links)
        self.names = list(self.tree.brokers)
        settings = {"strategy": strategy, "operation_us_max": OPERATION_US_MAX, **settings}
        dialled = {name: [other for each, other in links if each == name] for name in self.names}
        for name in self.names:
            self.world.add(
                name, broker(name, dialled[name], **settings), store=True, node=node or NodeModel()
            )
        self.world.run_for(seconds=2)
        self.stations: list[Station] = []
        self.publishers: set[str] = set()
        self.operators = {
            name: self.world.attach(OperatorStation(f"operator at {name}", name)) for name in self.names
        }
        self.world.run_for(seconds=0.1)

    # Who is there.

    def populate(self, *, acknowledged: bool = False) -> None:
        """Let subscribers and publishers come, who publish in all ways, or with acknowledgements alone."""
        chance = self.chance
        for name in self.names:
            for number in range(chance.randrange(3)):
                filters = [(str(key), self._filter()) for key in range(chance.randrange(1, 4))]
                self.subscribe(f"reader {name}{number}", name, filters)
        for number in range(3):
            name = chance.choice(self.names)
            self.publish(
                f"writer {number}", name, acknowledged=acknowledged or number == 0, ordered=number == 1
            )
        self.world.run_for(seconds=1)

    def subscribe(self, name: str, place: str, filters: Sequence[tuple[str, str]]) -> Station:
        """A station that subscribes."""
        station = self.world.attach(Station(name, place, subscriptions=filters))
        self.stations.append(station)
        return station

    def publish(self, name: str, place: str, **manner: bool) -> Station:
        """A station that publishes until the end."""
        self.publishers.add(place)
        publications = self._publications(random.Random(f"{self.chance.random()}"))
        return self.world.attach(Station(name, place, publications=publications, **manner))

    def _filter(self) -> str:
        low = self.chance.randrange(100)
        return self.chance.choice(
            [
                f"price > {low}",
                f"price < {low}",
                f"price BETWEEN {low} AND {low + 20}",
                "kind IN ('x', 'y')",
                f"kind = 'x' AND price > {low}",
                "TRUE",
            ]
        )

    def _publications(self, chance: random.Random) -> Iterator[tuple[int, dict[str, Any]]]:
        at_us = self.world.now_us
        while at_us < self._until_us:
            at_us += chance.choice(self._period_us)
            yield at_us, {"price": chance.randrange(100), "kind": chance.choice("xyz")}

    # Operations.

    def possible(self) -> list[tuple[str, str, str]]:
        """All SHIFTs that the tree allows."""
        tree = self.tree
        return [
            (moving, old, new)
            for old in tree.brokers
            for moving in tree.neighbours(old)
            for new in tree.neighbours(old)
            if moving != new
        ]

    def shift(self, moving: str, old: str, new: str, **more: str) -> dict[str, Any]:
        """Have a broker moved, and wait for the answer."""
        operator = self.operators[moving]
        if self.how:
            more = {"by": self.how, **more}
        request = operator.shift(moving, old, new, **more)
        self.wait(lambda: request in operator.answers)
        answer = operator.answers.get(request, {})
        if answer.get("outcome") == "finished":
            self.tree = Shift(moving, old, new).apply(self.tree)
        return answer

    def wait(self, done: Callable[[], bool], seconds: float = 20.0) -> None:
        """Let time pass until something is so, or for that long."""
        until_us = self.world.now_us + round(seconds * 1_000_000)
        while not done() and self.world.now_us < until_us:
            self.world.run_for(us=5_000)

    # What must be so.

    def require(self) -> None:
        """Raise if a promise was broken, the tree is another one, or tables are wrong."""
        self.world.checkers.require()
        assert tree_of(self.world, self.names) == self.tree
        assert self.wrong_tables() == []
        for name in self.names:
            core: BrokerCore = self.world.machine(name)
            core.validate()
            shown = core.snapshot()
            assert shown.operation is None, f"{name} still takes part in {shown.operation}"
            assert shown.leaving == (), f"{name} still has the links {shown.leaving}"

    def wrong_tables(self) -> list[str]:
        """Where a broker's tables do not say of a neighbour exactly what those behind it want.

        Only those are asked who have a publisher behind them: subscriptions travel towards publishers.
        """
        wrong = []
        for name in self.names:
            found = self.world.machine(name)._subscriptions.tables.destinations(PROBES)
            for neighbour in self.tree.neighbours(name):
                behind = set(self.tree.behind(neighbour, name))
                if not self.publishers - behind:
                    continue
                filters = [
                    Filter(text)
                    for station in self.stations
                    if station.broker in behind
                    for text in station.subscriptions.values()
                ]
                columns = [
                    column
                    for column, group in enumerate(found.groups)
                    if group == neighbour or getattr(group, "origin", None) == neighbour
                ]
                for row, probe in enumerate(PROBES):
                    told = any(found.matrix[row, column] for column in columns)
                    wanted = any(filter.matches(probe) for filter in filters)
                    if told != wanted:
                        wrong.append(f"{name} on {neighbour}: {probe} is wanted: {wanted}, told: {told}")
        return wrong

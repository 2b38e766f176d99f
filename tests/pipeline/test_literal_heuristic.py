"""Does the shipped cost-and-interest heuristic decide as its equations do, read literally and by themselves?

The prototype here knows the tree, all costs and what each broker believes that it shares with others. It
shares no code with `adaptation`: paths, Eq. 6 to 10 and the choice are written down once more, as the paper
has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from braid.adaptation.topology import TopologySettings
from braid.pipeline.experiments.selforganising.demand import Demand
from braid.pipeline.experiments.selforganising.organised import OrganisedNetwork
from braid.sim.topologies import random_tree
from braid.workloads import workload
from braid.workloads.selforganising_costs import CostSchedule

if TYPE_CHECKING:
    from collections.abc import Sequence

ETA = 4
INTERVAL_US = 500_000


class Literal:
    """Who would get a direct link to the origin of some news, and instead of which link."""

    def __init__(self, network: OrganisedNetwork, links: np.ndarray, processing: np.ndarray) -> None:
        self.network, self.c, self.p = network, links, processing

    def shared(self, i: int, j: int) -> float | None:
        """I_ij, as B_i believes it."""
        return self.network._organisers[i].interest_in_common(self.network.names[j])

    def phi(self, i: int) -> float:
        """Eq. 6, with the neighbourhood of those B_i has heard of."""
        known = [self.shared(i, j) for j in range(len(self.p)) if j != i]
        heard = [each for each in known if each is not None]
        return sum(heard) / len(heard) if heard else 0.0

    def indirect(self, i: int, j: int, way: Sequence[int]) -> float:
        """Eq. 7: C_ij, where `way` leads from B_i to B_j."""
        if way[1] == j:
            return float(self.c[i, j])
        k = way[-2]
        shared, before = self.shared(i, j) or 0.0, self.shared(i, k) or 0.0
        three = min(self.phi(i), shared, before)
        fraction = (shared - three) / shared if shared > 0 else 1.0
        return fraction * (self.indirect(i, k, way[:-1]) + self.p[k]) + float(self.c[k, j])

    def paths(self, j: int) -> list[list[int]]:
        """From every broker that is two to eta links away, by trying all ways there are."""
        ways, found = [[j]], []
        while ways:
            way = ways.pop()
            if len(way) >= 3:
                found.append(way[::-1])
            if len(way) <= ETA:
                ways += [[*way, each] for each in self.network.beside[way[-1]] if each not in way]
        return found

    def decisions(self, origin: int) -> set[tuple[tuple[str, ...], int]]:
        """The exchanges that could come of the news of a broker: the path of each, and the link that goes."""
        return {found for path in self.paths(origin) if (found := self._decision(path)) is not None}

    def _decision(self, path: list[int]) -> tuple[tuple[str, ...], int] | None:
        i, j, count = path[0], path[-1], len(path)
        if any(self.shared(here, there) is None for here in path for there in path if here != there):
            return None
        if not self.shared(i, j) or self.c[i, j] >= self.indirect(i, j, path):
            return None
        # Eq. 8 and 9: for each link of the cycle, what all pairs cost on the line that is left without it.
        costs = []
        for removed in range(count):
            line = [path[(removed + 1 + step) % count] for step in range(count)]
            total = 0.0
            for at, here in enumerate(line):
                for to, there in enumerate(line):
                    if to != at:
                        way = line[at : to + 1] if to > at else line[to : at + 1][::-1]
                        total += (self.shared(here, there) or 0.0) * self.indirect(here, there, way)
            costs.append(total)
        best = min(range(count), key=costs.__getitem__)
        if costs[best] >= costs[-1] - 1e-9 * abs(costs[-1]):
            return None
        return tuple(self.network.names[each] for each in path), best


class Watched(OrganisedNetwork):
    """Compares every turn with what the prototype says of it."""

    literal: Literal
    compared = agreed = 0

    def _turn(self, number: int, now_us: int) -> None:
        before = len(self.exchanges)
        carried, self._agreed = self._exchange, []
        held: list[Any] = []
        self._exchange = lambda exchange, path: held.append((exchange, path))  # type: ignore[method-assign]
        super()._turn(number, now_us)
        self._exchange = carried  # type: ignore[method-assign]
        possible = self.literal.decisions(number)
        new = {(each.path, each.removed) for each in self.exchanges[before:]}
        assert new <= possible, (new, possible)
        assert bool(new) == bool(possible), (now_us, number, possible)
        self.compared += 1
        self.agreed += bool(new)
        for exchange, path in held:
            carried(exchange, path)


def _network(
    kind: type[OrganisedNetwork], seed: int, ticks: int, interval_us: int, **workload_size: int
) -> tuple[Any, np.ndarray, np.ndarray]:
    brokers = workload_size["brokers"]
    chance = np.random.default_rng(seed)
    upper = np.triu(chance.uniform(0, 10, (brokers, brokers)), 1)
    links, processing = upper + upper.T, chance.uniform(0, 10, brokers)
    played = workload(
        "selforganising",
        seed=seed,
        duration_ticks=ticks,
        subscription_ticks=1e9,
        loads_change_ticks=0,
        **workload_size,
    )
    tree = random_tree(brokers, None, seed, shape="uniform")
    network = kind(
        Demand(played),
        CostSchedule([(0, links)], [(0, processing)]),
        TopologySettings(policy="ci", interval_us=interval_us, eta=ETA),
        [(int(left[1:]), int(right[1:])) for left, right in tree.links],
    )
    return network, links, processing


SMALL = {"brokers": 12, "types": 8, "subscribers_per_type": 4}


@pytest.mark.parametrize("seed", range(4))
def test_every_decision_is_that_of_the_equations(seed: int) -> None:
    network, links, processing = _network(Watched, seed, 600, INTERVAL_US, **SMALL)
    network.literal = Literal(network, links, processing)
    network.run(600 * 10_000, 1_000_000)
    assert network.compared > 100
    assert network.agreed > 5


def test_every_decision_is_that_of_the_equations_at_the_papers_size() -> None:
    """100 brokers, 50 types with 9 subscribers each, an interval of 250 ticks, as in section 5."""
    paper = {"brokers": 100, "types": 50, "subscribers_per_type": 9}
    network, links, processing = _network(Watched, 1, 1_250, 2_500_000, **paper)
    network.literal = Literal(network, links, processing)
    network.run(1_250 * 10_000, 10_000_000)
    assert network.compared == 500
    assert network.agreed > 50

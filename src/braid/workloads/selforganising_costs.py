"""What do links and brokers cost in the self-organising paper's evaluation, and when does that change?

Section 5: link costs are normalised to [0, 10] by the underlying network, processing costs are drawn from
[0, 10]; at one time all link costs are new, at another all processing costs. Two models of link costs:

- `paths`: the shortest ways between the brokers' routers in a transit-stub network, scaled so that the
  nearest pair costs nothing and the farthest the most. A change puts the brokers elsewhere.
- `uniform`: each link draws its own cost. No link is then the sum of others, which the first model's are.

A schedule is a list of *epochs*, each with a time from which on it holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import pyarrow as pa

from braid.errors import ConfigurationError
from braid.sim.topologies import SELF_ORGANISING, TransitStub
from braid.workloads.draws import uniform
from braid.workloads.tables import broker_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.workloads.draws import Floats

__all__ = ["CostModel", "CostSchedule", "CostSettings", "broker_distances", "cost_schedule"]

CostModel = Literal["paths", "uniform"]

GRADUAL_STEPS = 10
"""A gradual change is made in so many steps, up to the next one."""


@dataclass(frozen=True, kw_only=True)
class CostSettings:
    """Which costs, and when they change; times in ticks."""

    brokers: int = 100
    model: CostModel = "paths"
    link_max: float = 10.0
    processing_max: float = 10.0
    link_changes: tuple[int, ...] = (25_000,)
    processing_changes: tuple[int, ...] = (50_000,)
    gradual: bool = False
    """Whether costs move from one epoch to the next in small steps instead of at once."""
    tick_us: int = 10_000

    def __post_init__(self) -> None:
        if self.model not in get_args(CostModel):
            raise ConfigurationError(
                f"a model of link costs is {' or '.join(get_args(CostModel))}, not {self.model!r}"
            )
        if self.brokers < 2 or self.link_max < 0 or self.processing_max < 0 or self.tick_us < 1:
            raise ConfigurationError(
                "costs are at least 0, of at least 2 brokers, with ticks of at least 1 us"
            )


@dataclass(frozen=True)
class CostSchedule:
    """Costs by epochs; `at_us` of the first is 0."""

    links: Sequence[tuple[int, Floats]]
    """From when on: what a message costs between any two brokers."""
    processing: Sequence[tuple[int, Floats]]
    """From when on: what one costs at each broker."""

    def link_table(self) -> pa.Table:
        """`source, target, cost, from_us`, each pair once."""
        parts = []
        for from_us, costs in self.links:
            left, right = np.triu_indices(len(costs), 1)
            names = np.array([broker_name(each) for each in range(len(costs))])
            parts.append(
                pa.table(
                    {
                        "source": pa.array(names[left]),
                        "target": pa.array(names[right]),
                        "cost": pa.array(costs[left, right]),
                        "from_us": pa.array(np.full(len(left), from_us, np.int64)),
                    }
                )
            )
        return pa.concat_tables(parts)

    def broker_table(self) -> pa.Table:
        """`broker, cost, from_us`."""
        parts = [
            pa.table(
                {
                    "broker": pa.array([broker_name(each) for each in range(len(costs))]),
                    "cost": pa.array(costs),
                    "from_us": pa.array(np.full(len(costs), from_us, np.int64)),
                }
            )
            for from_us, costs in self.processing
        ]
        return pa.concat_tables(parts)


def cost_schedule(seed: int, settings: CostSettings) -> CostSchedule:
    """All costs of a run; the same seed gives the same ones."""
    link_times = (0, *settings.link_changes)
    processing_times = (0, *settings.processing_changes)
    links = [_links(seed, epoch, settings) for epoch in range(len(link_times))]
    numbers = np.arange(settings.brokers)
    processing = [
        settings.processing_max * uniform(seed, f"processing cost {epoch}", numbers)
        for epoch in range(len(processing_times))
    ]
    return CostSchedule(_epochs(link_times, links, settings), _epochs(processing_times, processing, settings))


def _epochs(
    times: Sequence[int], costs: Sequence[Floats], settings: CostSettings
) -> list[tuple[int, Floats]]:
    """Costs with their times in microseconds; if they are to move gradually, with the steps between."""
    tick_us = settings.tick_us
    if not settings.gradual:
        return [(at * tick_us, each) for at, each in zip(times, costs, strict=True)]
    found = [(times[0] * tick_us, costs[0])]
    for number in range(1, len(times)):
        # A change begins when an abrupt one would happen and lasts as long as the pause before it did.
        length = times[number] - times[number - 1]
        for step in range(1, GRADUAL_STEPS + 1):
            share = step / GRADUAL_STEPS
            at_us = (times[number] + round(length * (step - 1) / GRADUAL_STEPS)) * tick_us
            found.append((at_us, (1 - share) * costs[number - 1] + share * costs[number]))
    return found


def _links(seed: int, epoch: int, settings: CostSettings) -> Floats:
    count = settings.brokers
    if settings.model == "paths":
        distances = broker_distances(seed, count, epoch)
        low, high = distances[np.triu_indices(count, 1)].min(), distances.max()
        scaled = (distances - low) / max(high - low, 1.0) * settings.link_max
    else:
        upper = np.zeros((count, count))
        pairs = np.triu_indices(count, 1)
        upper[pairs] = settings.link_max * uniform(seed, f"link cost {epoch}", np.arange(len(pairs[0])))
        scaled = upper + upper.T
    np.fill_diagonal(scaled, 0.0)
    return np.asarray(scaled, dtype=np.float64)


@lru_cache(maxsize=8)
def broker_distances(seed: int, brokers: int, epoch: int = 0) -> Floats:
    """Microseconds between the routers of any two brokers in the paper's physical network."""
    names = [broker_name(each) for each in range(brokers)]
    placement = TransitStub.generate(SELF_ORGANISING, seed).place(names, seed + 1_000_003 * epoch)
    distances = np.zeros((brokers, brokers))
    for left in range(brokers):
        for right in range(left):
            us = placement.latency_us(names[left], names[right])
            distances[left, right] = distances[right, left] = us
    return distances

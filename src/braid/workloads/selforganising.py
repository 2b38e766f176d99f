"""What does the self-organising paper's evaluation run on?

Section 5: 100 brokers; 50 types of notifications, each produced by one publisher and wanted by subscribers
at 9 different brokers. Clients sit at brokers with a probability that is drawn for each broker. A publisher
publishes with exponential gaps of 5 ticks on average. A subscription lasts exponentially long, 2,500 ticks
on average, and is then replaced by one of a new subscriber at another broker, so that there are always 9.
The probabilities change once, when the processing costs do (`selforganising_costs`).

On that workload the best tree hardly depends on who wants what. `selforganising.local` is a second one, in
which it does: each type has a home region of the physical network where most of its subscribers are, and
from time to time all homes move.

A tick has no length in the paper; `tick_us` gives it one.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from braid.errors import ConfigurationError
from braid.workloads.draws import Floats, Integers, choices, integers, uniform, weighted_samples
from braid.workloads.parameters import Definition, Parameter
from braid.workloads.schedule import arrival_times_us, numbered
from braid.workloads.selforganising_costs import broker_distances
from braid.workloads.tables import (
    PublicationColumns,
    Table,
    broker_name,
    brokers_table,
    publications_table,
    published_by,
    subscriptions_batch,
    subscriptions_table,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DEFINITIONS"]

ATTRIBUTES = {"type": pa.int64(), "value": pa.int64()}


@dataclass(frozen=True)
class _Stay:
    """One subscription: of which type, where, from when, and until when if it ends at all."""

    at_us: int
    type: int
    broker: int
    until_us: int | None


def _build(seed: int, settings: Mapping[str, Any]) -> dict[str, Table]:
    brokers, types, wanted = settings["brokers"], settings["types"], settings["subscribers_per_type"]
    if wanted > brokers:
        raise ConfigurationError(
            f"subscribers_per_type is at most the number of brokers, {brokers}, not {wanted}"
        )
    places = _Places(seed, settings)
    publishing = np.array(
        [choices(seed, "publisher", [each], places.shares(each, 0))[0] for each in range(types)], np.int64
    )
    stays = sorted(
        (stay for each in range(types) for stay in _stays(seed, each, places, settings)),
        key=lambda stay: (stay.at_us, stay.type, stay.broker),
    )
    count = round(types * settings["duration_ticks"] / settings["publication_gap_ticks"])
    return {
        "brokers": brokers_table(brokers, publishing.tolist(), [stay.broker for stay in stays]),
        "subscriptions": subscriptions_table(len(stays), partial(_subscriptions, stays)),
        "publications": publications_table(
            count,
            ATTRIBUTES,
            settings["body_bytes"],
            partial(_publications, seed, publishing, count, settings["duration_ticks"] * settings["tick_us"]),
        ),
    }


class _Places:
    """How likely clients of a type are to sit at each broker, at a given time."""

    def __init__(self, seed: int, settings: Mapping[str, Any]) -> None:
        brokers, tick_us = settings["brokers"], settings["tick_us"]
        # A broker that no client would choose at all could leave too few for a type.
        self._loads = [
            0.001 + uniform(seed, purpose, np.arange(brokers)) for purpose in ("load", "load later")
        ]
        self._change_us = settings["loads_change_ticks"] * tick_us
        self._locality = settings.get("locality", 0.0)
        self._regions = _regions(seed, brokers, settings["regions"]) if self._locality else None
        self._move_us = settings.get("move_ticks", 0) * tick_us
        self._seed = seed

    def shares(self, kind: int, at_us: int) -> Floats:
        """One share per broker; they need not add up to 1."""
        loads = self._loads[1 if self._change_us and at_us >= self._change_us else 0]
        if self._regions is None:
            return loads
        move = at_us // self._move_us if self._move_us else 0
        home = integers(self._seed, f"home {move}", [kind], 0, int(self._regions.max()) + 1)[0]
        inside = self._regions == home
        shares = np.where(inside, self._locality * loads / loads[inside].sum(), 0.0)
        outside = ~inside
        if outside.any():
            shares[outside] = (1 - self._locality) * loads[outside] / loads[outside].sum()
        return np.maximum(shares, 1e-9)


def _regions(seed: int, brokers: int, count: int) -> Integers:
    """The region of each broker: that of the nearest of some brokers which are far apart from each other."""
    distances = broker_distances(seed, brokers)
    centres = [int(integers(seed, "first region", [0], 0, brokers)[0])]
    while len(centres) < min(count, brokers):
        centres.append(int(distances[centres].min(axis=0).argmax()))
    return np.asarray(distances[centres].argmin(axis=0), dtype=np.int64)


def _stays(seed: int, kind: int, places: _Places, settings: Mapping[str, Any]) -> list[_Stay]:
    """All subscriptions to one type, from the first ones to the end of the run."""
    end_us = settings["duration_ticks"] * settings["tick_us"]
    mean_us = settings["subscription_ticks"] * settings["tick_us"]
    wanted = settings["subscribers_per_type"]
    first = weighted_samples(seed, "first subscribers", [kind], places.shares(kind, 0))[0][:wanted]
    # Draws are numbered through, so each type has a stream of its own.
    lifetime = _Lifetimes(seed, kind, mean_us)
    leaving = [(lifetime.next_us(), number, int(broker)) for number, broker in enumerate(first)]
    begun = dict.fromkeys((int(broker) for broker in first), 0)
    heapq.heapify(leaving)
    stays: list[_Stay] = []
    number = len(leaving)
    while leaving and leaving[0][0] < end_us:
        at_us, _, broker = heapq.heappop(leaving)
        stays.append(_Stay(begun.pop(broker), kind, broker, at_us))
        shares = places.shares(kind, at_us)
        order = weighted_samples(seed, f"next subscriber of {kind}", [number], shares)[0]
        chosen = next((int(each) for each in order if int(each) not in begun and int(each) != broker), broker)
        begun[chosen] = at_us
        heapq.heappush(leaving, (at_us + lifetime.next_us(), number, chosen))
        number += 1
    return stays + [_Stay(begun[broker], kind, broker, None) for broker in sorted(begun)]


class _Lifetimes:
    """Exponential lifetimes of the subscriptions to one type, one after the other."""

    def __init__(self, seed: int, kind: int, mean_us: float) -> None:
        self._seed = seed
        self._purpose = f"lifetimes of {kind}"
        self._mean_us = mean_us
        self._drawn = 0

    def next_us(self) -> int:
        """At least 1: a subscription that ends as it begins would be none."""
        drawn = uniform(self._seed, self._purpose, [self._drawn])[0]
        self._drawn += 1
        return max(1, int(-np.log1p(-drawn) * self._mean_us))


def _subscriptions(stays: list[_Stay], rows: Integers) -> pa.RecordBatch:
    numbers = rows.tolist()
    chosen = [stays[row] for row in numbers]
    return subscriptions_batch(
        [broker_name(stay.broker) for stay in chosen],
        [f"S{row}" for row in numbers],
        [f"s{row}" for row in numbers],
        [f"type = {stay.type}" for stay in chosen],
        at_us=np.array([stay.at_us for stay in chosen], dtype=np.int64),
        until_us=[stay.until_us for stay in chosen],
    )


def _publications(
    seed: int, publishing: Integers, count: int, within_us: int, rows: Integers
) -> PublicationColumns:
    kinds, sequences = _order(seed, len(publishing), count)
    kind = kinds[rows]
    return published_by(
        publishing,
        kind,
        at_us=arrival_times_us(seed, "poisson", rows, count, within_us),
        sequence=sequences[rows] + 1,
        attributes={"type": pa.array(kind), "value": pa.array(integers(seed, "value", rows, 0, 1_000))},
    )


@lru_cache(maxsize=2)
def _order(seed: int, types: int, count: int) -> tuple[Integers, Integers]:
    """Type and sequence number of all publications: equal Poisson processes, merged, are a fair draw."""
    kinds = integers(seed, "type", np.arange(count), 0, types)
    return kinds, numbered(kinds)


_PARAMETERS = (
    Parameter("brokers", 100, "brokers in the network", 1, 100_000),
    Parameter("types", 50, "types of notifications, with a publisher each", 1, 100_000),
    Parameter("subscribers_per_type", 9, "brokers with a subscriber, at any time", 1, 100_000),
    Parameter("duration_ticks", 75_000, "length of the run", 1, 1_000_000_000),
    Parameter("publication_gap_ticks", 5.0, "between two publications of a publisher, mean", 0.001, 1e9),
    Parameter("subscription_ticks", 2_500.0, "length of a subscription, mean", 1, 1e12),
    Parameter("loads_change_ticks", 50_000, "when brokers' loads are drawn anew; 0: never", 0, 1_000_000_000),
    Parameter("tick_us", 10_000, "microseconds of a tick", 1, 1_000_000_000),
    Parameter("body_bytes", 100, "size of a publication's body", 0, 1_000_000),
)

DEFINITIONS = (
    Definition(
        "selforganising",
        "50 types of notifications, 9 subscriber brokers each, which come and go",
        "self-organising paper, section 5",
        _PARAMETERS,
        _build,
    ),
    Definition(
        "selforganising.local",
        "the same, where most subscribers of a type are in its home region, and homes move",
        "self-organising paper, section 5, with locality as its section 7 suggests",
        (
            *_PARAMETERS,
            Parameter("regions", 8, "parts of the physical network", 2, 1_000),
            Parameter("locality", 0.9, "share of subscribers in the home region", 0.01, 1.0),
            Parameter("move_ticks", 25_000, "between two moves of all homes; 0: never", 0, 1_000_000_000),
        ),
        _build,
    ),
)

"""Who publishes row 17, and when?"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from braid.workloads.draws import Integers, permutation, uniform
from braid.workloads.parameters import Parameter
from braid.workloads.tables import require_brokers

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "SECOND_US",
    "arrival_times_us",
    "duration_us",
    "numbered",
    "placed",
    "publication_count",
    "schedule_parameters",
    "scheduled_us",
    "take_turns",
]

SECOND_US = 1_000_000


def schedule_parameters(
    rate_per_minute: float, duration_s: float, body_bytes: int = 100
) -> tuple[Parameter, ...]:
    """What can be chosen about the times of publications, with these defaults."""
    return (
        Parameter("rate_per_minute", rate_per_minute, "publications of all publishers together", 0, 1e9),
        Parameter("duration_s", duration_s, "how long they publish", 0, 1e6),
        Parameter("spread", "even", "times of publications", choices=("even", "poisson")),
        Parameter("body_bytes", body_bytes, "size of a publication's body", 0, 1_000_000),
    )


def publication_count(settings: Mapping[str, Any]) -> int:
    """How many publications rate and duration lead to."""
    count: int = round(settings["rate_per_minute"] * settings["duration_s"] / 60)
    return count


def duration_us(settings: Mapping[str, Any]) -> int:
    """How long publishers publish."""
    length_us: int = round(settings["duration_s"] * SECOND_US)
    return length_us


def arrival_times_us(seed: int, spread: str, rows: Integers, count: int, within_us: int) -> Integers:
    """When each of `count` publications leaves, in the order of the rows.

    `even` leaves equal gaps. `poisson` is a Poisson process, given that it has `count` arrivals: their times
    are then independent and uniform. Sorting them needs all rows, about a second for ten million.
    """
    if spread == "even":
        return np.asarray(rows, dtype=np.int64) * within_us // max(count, 1)
    return _poisson_times_us(seed, count, within_us)[rows]


@lru_cache(maxsize=4)
def _poisson_times_us(seed: int, count: int, within_us: int) -> Integers:
    return np.sort((uniform(seed, "arrival times", np.arange(count)) * within_us).astype(np.int64))


def scheduled_us(seed: int, settings: Mapping[str, Any], rows: Integers) -> Integers:
    """When the publications of these rows leave, where rate, duration and spread say so."""
    return arrival_times_us(
        seed, settings["spread"], rows, publication_count(settings), duration_us(settings)
    )


def placed(seed: int, settings: Mapping[str, Any]) -> tuple[Integers, Integers]:
    """The brokers of publishers and those of subscribers, none of them twice."""
    brokers, publishers, subscribers = (settings[key] for key in ("brokers", "publishers", "subscribers"))
    require_brokers(brokers, publishers, subscribers)
    order = permutation(seed, "placement", brokers)
    return order[:publishers], order[publishers : publishers + subscribers]


def take_turns(seed: int, rows: Integers, clients: int) -> tuple[Integers, Integers]:
    """The client of each row and how many it published before: all take turns in one random order."""
    turns = permutation(seed, "turns", clients)
    return turns[rows % clients], rows // clients


def numbered(clients: Integers) -> Integers:
    """For each entry how many equal ones came before it: sequence numbers from 0."""
    order = np.argsort(clients, kind="stable")
    ordered = clients[order]
    starts = (
        np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(clients) else np.zeros(0, np.int64)
    )
    lengths = np.diff(np.r_[starts, len(clients)])
    before = np.empty(len(clients), dtype=np.int64)
    before[order] = np.arange(len(clients)) - np.repeat(starts, lengths)
    return before

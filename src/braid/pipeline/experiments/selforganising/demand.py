"""Who wants what, when, as arrays?

A workload of the self-organising paper, cut into pieces of time in which neither a type's subscribers nor
the tree change: the *rows* of a step. Each is a set of brokers (publisher and subscribers of a type) and a
run of that type's publications.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from braid.adaptation.topology import publication_hashes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from braid.adaptation.topology.interest import Hashes
    from braid.workloads.tables import Workload

__all__ = ["Demand", "DemandRow", "members_matrix"]


class DemandRow(NamedTuple):
    """Publications that concern the same brokers."""

    members: tuple[int, ...]
    """The publisher's broker and those of the subscribers, in order."""
    publisher: int
    hashes: Hashes


@dataclass(slots=True)
class _Type:
    publisher: int
    at_us: NDArray[np.int64]
    hashes: Hashes
    changes: list[tuple[int, int, int]]
    """When, at which broker, +1 or -1."""
    held: dict[int, int]
    """Subscriptions of each broker now."""
    next_change: int = 0
    next_publication: int = 0
    members: tuple[int, ...] | None = None


class Demand:
    """A workload, played once from its beginning to its end."""

    def __init__(self, workload: Workload) -> None:
        numbers = {name: number for number, name in enumerate(_names(workload))}
        publications = workload.local("publications")
        kinds = publications.column("attributes").combine_chunks().field("type").to_numpy()
        at_us = publications.column("at_us").to_numpy()
        sequences = publications.column("sequence").to_numpy()
        first = {int(kind): int(row) for kind, row in zip(*np.unique(kinds, return_index=True), strict=True)}
        self._types: dict[int, _Type] = {}
        for kind, row in first.items():
            of_kind = kinds == kind
            name = publications.column("client")[row].as_py()
            self._types[kind] = _Type(
                numbers[publications.column("broker")[row].as_py()],
                at_us[of_kind],
                publication_hashes(name, sequences[of_kind]),
                [],
                {},
            )
        for row in workload.local("subscriptions").to_pylist():
            kind = int(row["filter"].rpartition(" ")[2])
            if kind in self._types:
                changes, broker = self._types[kind].changes, numbers[row["broker"]]
                changes.append((row["at_us"], broker, 1))
                if row["until_us"] is not None:
                    changes.append((row["until_us"], broker, -1))
        for each in self._types.values():
            each.changes.sort()
        self.brokers = len(numbers)

    def until(self, end_us: int) -> Iterator[DemandRow]:
        """Everything published before this time that has not been yet."""
        for each in self._types.values():
            while True:
                change = each.changes[each.next_change] if each.next_change < len(each.changes) else None
                stop_us = end_us if change is None else min(end_us, change[0])
                stop = int(np.searchsorted(each.at_us, stop_us, "left"))
                if stop > each.next_publication:
                    if each.members is None:
                        each.members = tuple(
                            sorted({each.publisher, *(b for b, n in each.held.items() if n)})
                        )
                    yield DemandRow(each.members, each.publisher, each.hashes[each.next_publication : stop])
                    each.next_publication = stop
                if change is None or change[0] >= end_us:
                    break
                each.held[change[1]] = each.held.get(change[1], 0) + change[2]
                each.next_change += 1
                each.members = None


def members_matrix(rows: list[tuple[int, ...]], brokers: int) -> NDArray[np.float32]:
    """The sets of brokers as rows of ones and zeros."""
    matrix = np.zeros((len(rows), brokers), np.float32)
    for number, members in enumerate(rows):
        matrix[number, list(members)] = 1
    return matrix


def _names(workload: Workload) -> list[str]:
    names: list[str] = workload.local("brokers").column("broker").to_pylist()
    return names

"""Do the rows of a run keep Properties 1 to 4 of the availability paper?

*Complete* (1, 3): every subscriber is handed every publication that its filter meets. The paper speaks of
gaps between two that came; here what is missing at the end counts as well. *Ordered* (2, 4): what one
publisher published is handed over in its order, each once. *Strong* (1, 2) is about all publications; *weak*
(3, 4) about those that have not been inside a broker that crashed, which is read off the hops: a publication
has been inside when it came there, from a client or a neighbour, before the crash, on its way to that
subscriber.

Nobody is let off because of a fault. Only a reader at a crashed broker has no claim: it has lost its
subscription with its connection.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from braid.language import Filter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from braid.pipeline.experiments.availability.held_rows import HeldRows

__all__ = ["PROPERTIES", "Violation", "violations"]

PROPERTIES = ("weak_complete", "weak_ordered", "strong_complete", "strong_ordered")

Place = tuple[str, int]
"""A publication: its publisher and number."""


@dataclass(frozen=True, slots=True)
class Violation:
    """What breaks a property."""

    property: str
    subscriber: str
    publisher: str
    sequence: int
    what: str
    before: int = 0
    """The number that came too early, if it is about order."""

    def __str__(self) -> str:
        return f"{self.property}: {self.subscriber} {self.what} {self.publisher}/{self.sequence}"


def violations(
    rows: HeldRows,
    attributes: Mapping[Place, Mapping[str, Any]],
    path: Callable[[str, str], Sequence[str]],
) -> list[Violation]:
    """What breaks a property in a run that is over; of each property and subscriber the first.

    Args:
        rows: what happened.
        attributes: what was published, by publisher and number.
        path: the machines from one broker to another.
    """
    inside = _inside(rows)
    broker_of = {(row.publisher, row.sequence): row.broker for row in rows.published}
    crashed = {name for _, name in rows.crashes}
    got: dict[str, list[Place]] = defaultdict(list)
    for each in rows.deliveries:
        got[each.subscriber].append((each.publisher, each.sequence))
    filters: dict[str, list[Filter]] = defaultdict(list)
    at: dict[str, str] = {}
    for subscribed in rows.subscriptions:
        filters[subscribed.subscriber].append(Filter(subscribed.filter))
        at[subscribed.subscriber] = subscribed.broker
    found: list[Violation] = []
    for subscriber, broker in at.items():
        if broker in crashed:
            continue
        everything = {
            place
            for place, values in attributes.items()
            if place in broker_of and any(each.matches(values) for each in filters[subscriber])
        }
        weak = {
            place
            for place in everything
            if inside.get(place, frozenset()).isdisjoint(path(broker_of[place], broker))
        }
        for strength, owed in (("weak", weak), ("strong", everything)):
            found += _missing(f"{strength}_complete", subscriber, got[subscriber], owed)
            found += _displaced(f"{strength}_ordered", subscriber, got[subscriber], owed)
    return found


def _inside(rows: HeldRows) -> dict[Place, frozenset[str]]:
    """By publication: the crashed brokers that it had come to before they crashed."""
    last: dict[str, int] = {}
    for at_us, name in rows.crashes:
        last[name] = max(at_us, last.get(name, 0))
    found: dict[Place, set[str]] = defaultdict(set)
    for row in rows.published:
        if row.at_us <= last.get(row.broker, -1):
            found[row.publisher, row.sequence].add(row.broker)
    for hop in rows.hops:
        if hop.at_us <= last.get(hop.target, -1):
            found[hop.publisher, hop.sequence].add(hop.target)
    return {place: frozenset(brokers) for place, brokers in found.items()}


def _missing(name: str, subscriber: str, got: Sequence[Place], owed: set[Place]) -> list[Violation]:
    missing = sorted(owed - set(got))
    return [Violation(name, subscriber, *missing[0], f"lacks {len(missing)}, first")] if missing else []


def _displaced(name: str, subscriber: str, got: Sequence[Place], owed: set[Place]) -> list[Violation]:
    last: dict[str, int] = {}
    for publisher, number in got:
        if (publisher, number) in owed:
            if number <= last.get(publisher, 0):
                early = last[publisher]
                return [Violation(name, subscriber, publisher, number, f"got after {early}:", early)]
            last[publisher] = number
    return []

"""Did everybody get what they were promised, and nothing else?

The checkers see everything that stations publish, ask for and receive. What is promised:

- *complete*: a subscription that stands when something that it matches is published, and that stands until
  the end, gets it. It stands from the moment its broker answers, whatever is wrong in the network then.
  Acknowledged publications survive every fault that leaves stores intact; others may be lost within reach
  of a fault: near it in time, and with what it struck on their way (see `reach`).
- *once*: nobody gets a publication twice within one session.
- *in order*: publications of one publisher that were promised come in the order of their numbers.
- *invited*: nobody gets what matches none of its subscriptions.
- *bounded*: no queue of a machine exceeds the bound that it was added with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from braid.errors import InvariantViolated
from braid.language import Filter
from braid.sim.reach import Reach

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from braid.protocol import PublicationBatch
    from braid.sim.loop import Loop
    from braid.sim.samples import Load

__all__ = ["Checkers", "Watched"]

# Violations that are kept word by word; a run with more is not understood by reading them all.
VIOLATIONS_MAX = 1_000
# Of these, a failure shows so many.
SHOWN_MAX = 20
# What was under way when a subscription ended may still come for so long.
LATE_US = 20_000_000

_Id: TypeAlias = "tuple[str, int]"


class Watched(Protocol):
    """A client, or one subscription of a client, that publishes and receives before the checkers' eyes."""

    name: str
    loop: Loop
    subscriptions: dict[str, str]

    @property
    def endpoint(self) -> str:
        """The name by which faults know it."""

    @property
    def broker(self) -> str:
        """The broker that it is connected to."""

    @property
    def owes(self) -> bool:
        """Whether something that it published may not have left it."""


class _Watch:
    """What is known of one session of one station."""

    __slots__ = ("broker", "early", "ended", "last", "missing", "seen", "standing", "station")

    def __init__(self, station: Watched) -> None:
        self.station = station
        self.broker = station.broker
        self.standing: dict[str, Filter] = {}
        """Filters by key."""
        self.ended: dict[str, int] = {}
        """Filters that it took back, and when."""
        self.missing: dict[_Id, tuple[int, PublicationBatch]] = {}
        """What it must still get, and when that was published."""
        self.early: dict[_Id, PublicationBatch] = {}
        """What it got before it was looked up whom that concerns."""
        self.last: dict[str, int] = {}
        self.seen: dict[str, bytearray] = {}
        """By publisher, one bit per number that came."""

    def see(self, publisher: str, sequence: int) -> bool:
        """Whether this publication has not come before."""
        seen = self.seen.get(publisher)
        if seen is None:
            seen = self.seen[publisher] = bytearray()
        place, bit = sequence >> 3, 1 << (sequence & 7)
        if place >= len(seen):
            seen.extend(bytes(place + 1 + len(seen)))  # twice as long at least
        new = not seen[place] & bit
        seen[place] |= bit
        return new


class Checkers:
    """Watches one run. `report` says what went wrong; an empty list is a good run."""

    def __init__(self) -> None:
        self.repeat_command = ""
        """What to type to see the same run again; named in every failure."""
        self.ordered = True
        """Whether order is promised for everything, as on a tree; otherwise for ordered publications only."""
        self.look_up: Callable[[], None] = _nothing
        """Finds out whom the last publications concern; the oracle's."""
        self._watches: dict[str, _Watch] = {}
        self._publishers: dict[str, Watched] = {}
        self._early: dict[str, _Watch] = {}
        self._looked_up: dict[str, int] = {}
        self._violations: list[str] = []
        self._unlisted = 0
        self.reach = Reach()
        """What faults can have touched."""
        self._filters: dict[str, Filter] = {}

    # What the oracle and the world say.

    def standing(self, station: Watched, key: str, filter: Filter) -> None:
        """A subscription stands from now on."""
        self._watch(station).standing[key] = filter

    def ended(self, station: Watched, key: str, text: str) -> None:
        """A subscription was taken back: what only it wanted need not come any more."""
        watch = self._watch(station)
        watch.ended[text] = station.loop.now_us
        if watch.standing.pop(key, None) is None:
            return
        remaining = list(watch.standing.values())
        for publication, (_, batch) in list(watch.missing.items()):
            if not any(filter.matches(_attributes(batch)) for filter in remaining):
                del watch.missing[publication]

    def disconnected(self, station: Watched) -> None:
        """Its session is over, and with it everything that it was promised."""
        self._watches.pop(station.name, None)
        self._early.pop(station.name, None)

    def refused(self, station: Watched, sequences: Iterable[int]) -> None:
        """Its publications were not accepted: nobody waits for them."""
        self.look_up()
        for sequence in sequences:
            for watch in self._watches.values():
                watch.missing.pop((station.name, sequence), None)

    def concern(
        self,
        published: Sequence[tuple[int, Watched, PublicationBatch]],
        found: Sequence[set[tuple[str, str]]],
    ) -> list[int]:
        """It was looked up which subscriptions publications match; returns at how many brokers they are."""
        brokers: list[int] = []
        for (at_us, station, batch), places in zip(published, found, strict=True):
            publication = (batch.publisher, batch.first)
            self._publishers[batch.publisher] = station
            self._looked_up[batch.publisher] = batch.last
            reached = set()
            for name in {name for name, _ in places}:
                watch = self._watches[name]
                reached.add(watch.broker)
                if watch.early.pop(publication, None) is None:
                    watch.missing[publication] = (at_us, batch)
            brokers.append(len(reached))
        for watch in self._early.values():
            for batch in watch.early.values():
                self._require_invited(watch, batch)
            watch.early.clear()
        self._early.clear()
        return brokers

    # What stations receive.

    def delivered(self, station: Watched, batch: PublicationBatch) -> None:
        """A station got publications."""
        watch = self._watch(station)
        publisher = batch.publisher
        if len(batch) == 1:
            self._came(watch, publisher, batch.first, batch)
            return
        for row, sequence in enumerate(batch.sequences.tolist()):
            self._came(watch, publisher, sequence, batch.select(np.array([row])))

    def _came(self, watch: _Watch, publisher: str, sequence: int, batch: PublicationBatch) -> None:
        station = watch.station
        last = watch.last.get(publisher, 0)
        if not watch.see(publisher, sequence):
            self.violated(
                station.loop.now_us,
                f"{station.name} at {station.broker} got {publisher}/{sequence} twice",
            )
            return
        if sequence > last:
            watch.last[publisher] = sequence
        elif (self.ordered or batch.ordered) and self._promised(watch, publisher, sequence):
            self.violated(
                station.loop.now_us,
                f"{station.name} at {station.broker} got {publisher}/{sequence} after {publisher}/{last}",
            )
        publication = (publisher, sequence)
        if watch.missing.pop(publication, None) is not None:
            return
        if sequence > self._looked_up.get(publisher, 0):
            watch.early[publication] = batch
            self._early[station.name] = watch
        else:
            self._require_invited(watch, batch)

    def _promised(self, watch: _Watch, publisher: str, sequence: int) -> bool:
        """Whether its subscriptions stood when this was published. What is older may come by the way, when
        it is sent again after a crash."""
        self.look_up()
        return (publisher, sequence) in watch.missing

    def _require_invited(self, watch: _Watch, batch: PublicationBatch) -> None:
        station = watch.station
        now_us = station.loop.now_us
        attributes = _attributes(batch)
        texts = [*station.subscriptions.values()]
        texts += [text for text, at_us in watch.ended.items() if now_us - at_us <= LATE_US]
        if not any(self._filter(text).matches(attributes) for text in texts):
            self.violated(
                now_us,
                f"{station.name} at {station.broker} got {batch.publisher}/{batch.first} uninvited: "
                f"{attributes} matches none of its {len(station.subscriptions)} subscriptions",
            )

    def _filter(self, text: str) -> Filter:
        found = self._filters.get(text)
        if found is None:
            found = self._filters[text] = Filter(text)
        return found

    def _watch(self, station: Watched) -> _Watch:
        watch = self._watches.get(station.name)
        if watch is None:
            watch = self._watches[station.name] = _Watch(station)
        return watch

    # Machines.

    def bounded(self, at_us: int, name: str, load: Load, bytes_max: int) -> None:
        """A machine says how much waits in it."""
        for neighbour, size in load.queues.items():
            if size > bytes_max:
                whom = neighbour or "its clients"
                self.violated(at_us, f"{size:,} bytes wait in {name} for {whom}; at most {bytes_max:,} may")

    # The verdict.

    def violated(self, at_us: int, what: str) -> None:
        """Something is not as it must be."""
        if len(self._violations) < VIOLATIONS_MAX:
            self._violations.append(f"at {at_us / 1e6:.6f} s: {what}")
        else:
            self._unlisted += 1

    def report(self, *, published_before_us: int | None = None) -> list[str]:
        """Everything that went wrong, in order; empty for a good run.

        What is still on its way counts as lost: let the world come to rest first, or say up to which
        time of publication everything must have arrived.
        """
        self.look_up()
        lost: list[tuple[int, str, int, str]] = []
        for watch in self._watches.values():
            for (publisher, sequence), (at_us, batch) in watch.missing.items():
                if published_before_us is not None and at_us >= published_before_us:
                    continue
                if not self._excused(watch, publisher, at_us, batch):
                    name = f"{watch.station.name} at {watch.broker}"
                    lost.append((at_us, publisher, sequence, name))
        sentences = [
            f"at {at_us / 1e6:.6f} s: {publisher}/{sequence} was published, and {name} never got it"
            for at_us, publisher, sequence, name in sorted(lost)
        ]
        unlisted = [f"and {self._unlisted:,} more"] if self._unlisted else []
        return [*self._violations, *unlisted, *sentences]

    def require(self) -> None:
        """Raise `InvariantViolated` with the whole report, and with how to repeat the run."""
        problems = self.report()
        if problems:
            story = problems[:SHOWN_MAX]
            if len(problems) > SHOWN_MAX:
                story.append(f"and {len(problems) - SHOWN_MAX:,} more")
            if self.repeat_command:
                story.append(f"repeat with: {self.repeat_command}")
            raise InvariantViolated(f"the run broke {len(problems):,} promises", tuple(story))

    def _excused(self, watch: _Watch, publisher: str, at_us: int, batch: PublicationBatch) -> bool:
        station = self._publishers[publisher]
        if station.owes:
            return True  # it may not have left its publisher
        ends = (station.endpoint, station.broker, watch.broker, watch.station.endpoint)
        return self.reach.excuses(at_us, ends, acknowledged=batch.acknowledged)


def _attributes(batch: PublicationBatch) -> Mapping[str, Any]:
    return batch.attributes()[0]


def _nothing() -> None:
    """Nobody looks anything up."""

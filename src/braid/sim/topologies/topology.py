"""What does a simulation need to know about a network of brokers?

Who the brokers are, which of them are linked (the primary network, always a tree), and how long a message
takes between any two of them, linked or not: a soft link may join any pair.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["LATENCY_US", "FlatLatency", "Latencies", "Topology", "broker_names"]

LATENCY_US = 1_000


class Latencies(Protocol):
    """How far apart brokers are."""

    def latency_us(self, source: str, target: str) -> int:
        """One way; the same in both directions, and 0 from a broker to itself."""
        ...


@dataclass(frozen=True, slots=True)
class FlatLatency:
    """Every broker is equally far from every other, as in one data centre."""

    us: int = LATENCY_US

    def __post_init__(self) -> None:
        if self.us < 0:
            raise ConfigurationError(f"a latency is at least 0 us, not {self.us}")

    def latency_us(self, source: str, target: str) -> int:
        """The same for all, and 0 from a broker to itself."""
        return 0 if source == target else self.us


def broker_names(count: int) -> tuple[str, ...]:
    """`B000`, `B001`, ...: as many digits as the last of them needs, and at least three."""
    digits = max(3, len(str(count - 1)))
    return tuple(f"B{number:0{digits}d}" for number in range(count))


@dataclass(frozen=True)
class Topology:
    """Brokers, the tree of their primary links, and their distances."""

    name: str
    brokers: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    """Each link once, the ends in the order of `brokers`, sorted."""
    latencies: Latencies = FlatLatency()
    labels: tuple[str, ...] = ()
    """What each broker is called in the real network, if it stands for a place in one."""

    def __post_init__(self) -> None:
        if not self.brokers:
            raise ConfigurationError(f"topology {self.name}: it has no brokers")
        if len(set(self.brokers)) != len(self.brokers):
            raise ConfigurationError(f"topology {self.name}: two brokers have the same name")
        if self.labels and len(self.labels) != len(self.brokers):
            raise ConfigurationError(f"topology {self.name}: {len(self.labels)} labels for all brokers")
        if len(self.links) != len(self.brokers) - 1:
            raise ConfigurationError(
                f"topology {self.name}: a tree of {len(self.brokers)} brokers has {len(self.brokers) - 1} "
                f"links, not {len(self.links)}"
            )
        for ends in self.links:
            for end in ends:
                if end not in self._places:
                    raise ConfigurationError(
                        f"topology {self.name}: a link names {end!r}, which is no broker"
                    )
        if len(self.hops_from(self.brokers[0])) != len(self.brokers):
            raise ConfigurationError(
                f"topology {self.name}: its links form a loop, so some brokers are cut off"
            )

    @classmethod
    def of(
        cls,
        name: str,
        brokers: Sequence[str],
        links: Iterable[tuple[str, str]],
        latencies: Latencies | None = None,
        labels: Sequence[str] = (),
    ) -> Topology:
        """A topology with its links put in order, however they were found."""
        place = {broker: number for number, broker in enumerate(brokers)}
        # A broker that is not there is reported by the checks, so sorting must survive it.
        ordered = sorted(
            (tuple(sorted(ends, key=lambda end: place.get(end, -1))) for ends in links),
            key=lambda ends: [place.get(end, -1) for end in ends],
        )
        return cls(
            name,
            tuple(brokers),
            tuple((ends[0], ends[1]) for ends in ordered),
            latencies if latencies is not None else FlatLatency(),
            tuple(labels),
        )

    def latency_us(self, source: str, target: str) -> int:
        """One way between any two brokers; the same in both directions."""
        return self.latencies.latency_us(source, target)

    def with_flat_latency(self, us: int) -> Topology:
        """The same tree with every broker equally far from every other."""
        return replace(self, latencies=FlatLatency(us))

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {broker: number for number, broker in enumerate(self.brokers)}

    @cached_property
    def neighbours(self) -> Mapping[str, tuple[str, ...]]:
        """Who each broker is linked to, in the order of `brokers`."""
        found: dict[str, list[str]] = {broker: [] for broker in self.brokers}
        for left, right in self.links:
            found[left].append(right)
            found[right].append(left)
        return {
            broker: tuple(sorted(linked, key=self._places.__getitem__)) for broker, linked in found.items()
        }

    def hops_from(self, source: str) -> dict[str, int]:
        """How many links lie between a broker and each other one, nearest first."""
        hops = {source: 0}
        waiting = deque([source])
        while waiting:
            broker = waiting.popleft()
            for neighbour in self.neighbours[broker]:
                if neighbour not in hops:
                    hops[neighbour] = hops[broker] + 1
                    waiting.append(neighbour)
        return hops

    def path(self, source: str, target: str) -> tuple[str, ...]:
        """The brokers from one to another along the tree, both included."""
        before = {source: source}
        waiting = deque([source])
        while target not in before:
            if not waiting:
                raise ConfigurationError(f"topology {self.name}: {target!r} is no broker")
            broker = waiting.popleft()
            for neighbour in self.neighbours[broker]:
                if neighbour not in before:
                    before[neighbour] = broker
                    waiting.append(neighbour)
        steps = [target]
        while steps[-1] != source:
            steps.append(before[steps[-1]])
        return tuple(reversed(steps))

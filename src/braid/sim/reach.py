"""What can a fault have touched?

A publication that is not acknowledged may be lost near a fault: not long before or after it, and only if what
the fault struck lies on its way. `Reach` remembers the faults of a run and every connection that machines
ever had, and says whether one excuses the other. An acknowledged publication is excused only where somebody
on its way lost its memory, the stored one included.

*On its way* are all machines that a path without repetition from publisher to reader can lead through. In a
tree these are the machines of the one path; where shortcuts close circles, also those of the circles that it
touches.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

__all__ = ["DISTURBANCE_US", "Reach"]

# What is not acknowledged may be lost if a fault on its way is as near as this.
DISTURBANCE_US = 20_000_000

_Ends: TypeAlias = "tuple[str, str, str, str]"


class _Strike(NamedTuple):
    at_us: int
    lasts: bool
    amnesia: bool


class Reach:
    """The faults of a run, and who was ever connected to whom."""

    def __init__(self) -> None:
        self._strikes: dict[tuple[str, ...], list[_Strike]] = {}
        self._beside: dict[str, set[str]] = {}
        self._ways: dict[tuple[str, str], frozenset[str]] = {}

    def linked(self, left: str, right: str) -> None:
        """Two machines are connected; publications may cross from now on."""
        if right not in self._beside.setdefault(left, set()):
            self._beside[left].add(right)
            self._beside.setdefault(right, set()).add(left)
            self._ways.clear()

    def struck(self, at_us: int, whom: tuple[str, ...], *, lasts: bool, amnesia: bool = False) -> None:
        """A fault struck one endpoint, or the way between two; if it lasts, until the next word of them."""
        self._strikes.setdefault(tuple(sorted(whom)), []).append(_Strike(at_us, lasts, amnesia))

    def excuses(self, at_us: int, ends: _Ends, *, acknowledged: bool) -> bool:
        """Whether what was published at a time may have been lost.

        Args:
            at_us: when it was published.
            ends: the publisher, its broker, the reader's broker, the reader.
            acknowledged: whether it was to be kept by everybody on its way.
        """
        publisher, source, target, reader = ends
        way: frozenset[str] | None = None
        for whom, strikes in self._strikes.items():
            if not _near(strikes, at_us, amnesia=acknowledged):
                continue
            if way is None:
                way = self.way(source, target) | {publisher, reader}
            if way.issuperset(whom):
                return True
        return False

    def way(self, source: str, target: str) -> frozenset[str]:
        """All machines that a path without repetition between two of them can lead through."""
        pair = (source, target) if source <= target else (target, source)
        found = self._ways.get(pair)
        if found is None:
            # A machine is on no such path if one other stands between it and both ends (Menger).
            between = set(self._beside) | {source, target}
            for other in list(between):
                between &= self._reached(pair, other) | {other}
            found = self._ways[pair] = frozenset(between | {source, target})
        return found

    def _reached(self, ends: tuple[str, str], without: str) -> set[str]:
        """The machines that can be reached from one of two without passing another."""
        waiting = [end for end in ends if end != without]
        reached = set(waiting)
        while waiting:
            for other in self._beside.get(waiting.pop(), ()):
                if other != without and other not in reached:
                    reached.add(other)
                    waiting.append(other)
        return reached


def _near(strikes: list[_Strike], at_us: int, *, amnesia: bool) -> bool:
    """Whether one of the strikes, in the order of time, is near, or lasts until then."""
    begun_us: int | None = None
    for strike in strikes:
        if amnesia and not strike.amnesia:
            continue
        if abs(strike.at_us - at_us) <= DISTURBANCE_US:
            return True
        if strike.at_us > at_us:
            return begun_us is not None
        begun_us = strike.at_us if strike.lasts else None
    return begun_us is not None

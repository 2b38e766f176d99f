"""Is there always a plan in which no broker has more than three links, or as many as it begins with?

There is: a tree becomes a line by hanging, at a fork beyond which there are none, one branch on the end of
another; a line becomes any other line by neighbours that change places; and the goal is reached as it would
become a line, backwards. On the way a broker has three links at most, unless it begins or ends with more.
Such a way is long. It is for limits that leave a search without one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.reconfiguration.slides import shifted

if TYPE_CHECKING:
    from braid.reconfiguration.slides import Beside, NumberedShift

__all__ = ["LINKS_NEEDED", "way_by_lines"]

# What a broker in the middle of a line needs while others pass.
LINKS_NEEDED = 3


def way_by_lines(start: Beside, goal: Beside) -> tuple[NumberedShift, ...]:
    """SHIFTs from one tree to another, over lines."""
    out, line = _straightened(start)
    back, wanted = _straightened(goal)
    way = [*out, *min((_sorted(each, wanted) for each in (line, line[::-1])), key=len)]
    way += [(moving, new, old) for moving, old, new in reversed(back)]
    return tuple(_without_detours(start, way))


def _straightened(beside: Beside) -> tuple[list[NumberedShift], list[int]]:
    """The SHIFTs that make a tree a line, and that line."""
    way: list[NumberedShift] = []
    while True:
        fork = _outer_fork(beside)
        if fork is None:
            break
        at, (moving, *_), along = fork
        for after in along:
            way.append((moving, at, after))
            beside = shifted(beside, way[-1])
            at = after
    ends = [broker for broker, others in enumerate(beside) if len(others) < 2]
    return way, _branch(beside, -1, ends[0])


def _outer_fork(beside: Beside) -> tuple[int, list[int], list[int]] | None:
    """A broker with two branches that do not fork, and those branches; None if the tree is a line."""
    root = next(broker for broker, others in enumerate(beside) if len(others) < 2)
    parents, order = {root: -1}, [root]
    for broker in order:
        for other in beside[broker]:
            if other != parents[broker]:
                parents[other] = broker
                order.append(other)
    for broker in reversed(order):  # those furthest out first: behind them nothing forks
        below = [other for other in beside[broker] if other != parents[broker]]
        if len(below) > 1:
            return broker, _branch(beside, broker, below[0]), _branch(beside, broker, below[1])
    return None


def _branch(beside: Beside, before: int, first: int) -> list[int]:
    """The brokers of a branch that does not fork, from where it begins."""
    found = [first]
    while True:
        further = [other for other in beside[found[-1]] if other != before]
        if not further:
            return found
        before = found[-1]
        found.append(further[0])


def _sorted(line: list[int], wanted: list[int]) -> list[NumberedShift]:
    """The SHIFTs that bring the brokers of a line into another order."""
    line = list(line)
    place = {broker: number for number, broker in enumerate(wanted)}
    way: list[NumberedShift] = []
    for last in range(len(line) - 1, 0, -1):
        for at in range(last):
            left, right = line[at], line[at + 1]
            if place[left] > place[right]:
                if at > 0:
                    way.append((line[at - 1], left, right))
                if at + 2 < len(line):
                    way.append((line[at + 2], right, left))
                line[at], line[at + 1] = right, left
    return way


def _without_detours(start: Beside, way: list[NumberedShift]) -> list[NumberedShift]:
    """The way without the parts between two visits of one tree."""
    beside = start
    seen = {_key(start): 0}
    kept: list[NumberedShift] = []
    for shift in way:
        beside = shifted(beside, shift)
        key = _key(beside)
        kept.append(shift)
        if key in seen:
            del kept[seen[key] :]
            seen = {each: number for each, number in seen.items() if number <= len(kept)}
        else:
            seen[key] = len(kept)
    return kept


def _key(beside: Beside) -> frozenset[tuple[int, int]]:
    return frozenset((one, other) for one, others in enumerate(beside) for other in others if one < other)

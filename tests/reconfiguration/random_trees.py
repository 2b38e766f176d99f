"""Trees by chance, for the tests of this room."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from braid.reconfiguration import OverlayTree

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["all_trees", "named", "random_tree", "trees"]


def named(count: int, first: int = 0) -> list[str]:
    return [f"B{number:02d}" for number in range(first, first + count)]


def random_tree(random: Random, brokers: list[str]) -> OverlayTree:
    """Any tree with these brokers, each as likely as the others."""
    code = [random.randrange(len(brokers)) for _ in range(len(brokers) - 2)]
    return _of_pruefer(code, brokers)


def _of_pruefer(code: list[int], brokers: list[str]) -> OverlayTree:
    count = len(brokers)
    if count < 3:
        return OverlayTree([(brokers[0], brokers[1])] if count == 2 else [], brokers)
    degrees = [1 + code.count(number) for number in range(count)]
    links = []
    for number in code:
        leaf = degrees.index(1)
        links.append((brokers[leaf], brokers[number]))
        degrees[leaf] -= 1
        degrees[number] -= 1
    left, right = (number for number in range(count) if degrees[number] == 1)
    return OverlayTree([*links, (brokers[left], brokers[right])])


def all_trees(brokers: list[str]) -> Iterator[OverlayTree]:
    """Every tree with these brokers, once."""
    for code in product(range(len(brokers)), repeat=max(0, len(brokers) - 2)):
        yield _of_pruefer(list(code), brokers)


@st.composite
def trees(draw: st.DrawFn, least: int = 1, most: int = 12, first: int = 0) -> OverlayTree:
    return random_tree(Random(draw(st.integers(0, 2**32))), named(draw(st.integers(least, most)), first))

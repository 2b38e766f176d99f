"""Fill the tables of a whole Pastry network as if all had joined long ago: a start for large simulations.

It needs to know everybody, so no peer could do it. Leaf sets follow from the sorted identifiers. A slot of
a routing table may hold any peer with the right prefix; of some of them, drawn by chance, the nearest is
taken, as joins lead to. `tests/p2p/test_settled.py` compares with real joins.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

import numpy as np

from braid.p2p.dht.identifiers import CIRCLE, number_of
from braid.p2p.dht.routing_table import UNMEASURED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from braid.p2p.dht.identifiers import Contact
    from braid.p2p.dht.pastry import Pastry

    Integers = NDArray[np.int64]

__all__ = ["settle"]

# So many digits of an identifier are looked at here. No two of a few million peers have that many in common.
_BITS_SEEN: Final = 64


def settle(
    peers: Sequence[Pastry],
    latencies_us: Callable[[Integers, Integers], Integers] | None = None,
    *,
    seed: int = 1,
    candidates: int = 8,
    now_us: int = 0,
    beat_us: int | None = None,
) -> None:
    """Give all these peers their place, leaf sets and routing tables.

    Args:
        peers: all of the network. latencies_us: latencies between peers by their numbers in `peers`;
        without it slots are filled by chance. seed: which candidates are drawn, and when beats begin.
        candidates: of how many peers the nearest is taken for each slot. now_us: the time at the start.
        beat_us: the time between beats, over which their beginnings are spread; None if there are none.
    """
    chance = np.random.default_rng([seed, len(peers)])
    numbers = [number_of(peer.own.id) for peer in peers]
    order = sorted(range(len(peers)), key=numbers.__getitem__)
    _fill_leaf_sets(peers, numbers, order)
    _fill_tables(peers, numbers, order, latencies_us, candidates, chance)
    phases = chance.integers(0, max(1, beat_us or 1), len(peers)).tolist()
    for peer, phase_us in zip(peers, phases, strict=True):
        peer.settle(now_us, phase_us)


def _fill_leaf_sets(peers: Sequence[Pastry], numbers: list[int], order: list[int]) -> None:
    size = len(order)
    for place, index in enumerate(order):
        leaves = peers[index].leaves
        count = min(leaves.half, size - 1)
        after = [order[(place + step) % size] for step in range(1, count + 1)]
        before = [order[place - step] for step in range(1, count + 1)]
        own = numbers[index]
        leaves.fill(
            [peers[each].own for each in before],
            [(own - numbers[each]) % CIRCLE for each in before],
            [peers[each].own for each in after],
            [(numbers[each] - own) % CIRCLE for each in after],
        )


def _fill_tables(
    peers: Sequence[Pastry],
    numbers: list[int],
    order: list[int],
    latencies_us: Callable[[Integers, Integers], Integers] | None,
    candidates: int,
    chance: np.random.Generator,
) -> None:
    bits = peers[0].table.digit_bits
    width = 1 << bits
    heads = np.array([numbers[index] >> (128 - _BITS_SEEN) for index in order], np.uint64)
    indices = np.array(order, np.int64)
    # One slot more than there are peers: an index of -1 is an empty slot.
    contacts: NDArray[np.object_] = np.array([None] * (len(order) + 1), object)
    for index, peer in enumerate(peers):
        contacts[index] = peer.own
    rows: list[list[list[Contact | None]]] = [[] for _ in order]
    times: list[list[array[int]]] = [[] for _ in order]
    waiting = np.arange(len(order))
    """The places of peers that have this many digits in common with some other."""
    for row in range(_BITS_SEEN // bits):
        low, high = _slots(heads, waiting, row, bits)
        shared = (high - low).sum(axis=1) > 1
        waiting, low, high = waiting[shared], low[shared], high[shared]
        if not len(waiting):
            break
        chosen, chosen_us = _nearest(indices, waiting, low, high, latencies_us, candidates, chance)
        own = (heads[waiting] >> np.uint64(_BITS_SEEN - bits * (row + 1))) & np.uint64(width - 1)
        empty = (high == low) | (np.arange(width) == own[:, np.newaxis].astype(np.int64))
        chosen[empty] = -1
        chosen_us[empty] = UNMEASURED
        for place, entries, entry_times in zip(
            waiting.tolist(), contacts[chosen].tolist(), chosen_us.astype(np.uint32), strict=True
        ):
            rows[place].append(entries)
            times[place].append(array("I", entry_times.tobytes()))
    for place, index in enumerate(order):
        peers[index].table.fill(rows[place], times[place])


def _slots(
    heads: NDArray[np.uint64], places: NDArray[np.int64], row: int, bits: int
) -> tuple[Integers, Integers]:
    """For each peer and digit where, among the sorted peers, those of the slot begin and where they end."""
    rest = _BITS_SEEN - bits * (row + 1)
    prefix = (heads[places] >> np.uint64(rest)) & ~np.uint64((1 << bits) - 1)
    starts = (prefix[:, np.newaxis] | np.arange(1 << bits, dtype=np.uint64)) << np.uint64(rest)
    ends = starts | np.uint64((1 << rest) - 1)
    return np.searchsorted(heads, starts, "left"), np.searchsorted(heads, ends, "right")


def _nearest(
    indices: Integers,
    places: Integers,
    low: Integers,
    high: Integers,
    latencies_us: Callable[[Integers, Integers], Integers] | None,
    candidates: int,
    chance: np.random.Generator,
) -> tuple[Integers, Integers]:
    """For each slot the nearest of some peers that belong there, and the round trip time to it."""
    sources = np.broadcast_to(indices[places][:, np.newaxis], low.shape)
    best = np.full(low.shape, -1, np.int64)
    best_us = np.full(low.shape, UNMEASURED, np.int64)
    for _ in range(candidates if latencies_us is not None else 1):
        drawn = low + (chance.random(low.shape) * (high - low)).astype(np.int64)
        targets = indices[np.minimum(drawn, len(indices) - 1)]
        if latencies_us is None:
            return targets.copy(), best_us
        drawn_us = 2 * latencies_us(sources, targets)
        nearer = drawn_us < best_us
        best[nearer] = targets[nearer]
        best_us[nearer] = drawn_us[nearer]
    return best, best_us

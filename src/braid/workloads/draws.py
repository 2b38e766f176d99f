"""Which random number belongs to row 17?

A draw is a pure function of (seed, purpose, row): row 17 gets the same number whether it is made alone, by
the first of seven Spark partitions, or without Spark. The function is the output step of SplitMix64 (Steele,
Lea and Flood, 2014) over a key that BLAKE2b makes of seed and purpose, so two purposes never share a stream.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = [
    "Floats",
    "Integers",
    "choices",
    "integers",
    "permutation",
    "permutations",
    "uniform",
    "uniform_columns",
    "weighted_samples",
    "zipf_shares",
]

Integers: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_MIX_SECOND = np.uint64(0x94D049BB133111EB)


def uniform(seed: int, purpose: str, rows: ArrayLike) -> Floats:
    """One number in [0, 1) per row, with all 53 bits of a double."""
    bits = _bits(seed, purpose, rows) >> np.uint64(11)
    return np.asarray(bits * (1.0 / (1 << 53)), dtype=np.float64)


def uniform_columns(seed: int, purpose: str, rows: ArrayLike, columns: int) -> Floats:
    """Several independent numbers in [0, 1) per row, shape (rows, columns)."""
    places = np.asarray(rows, dtype=np.int64)[:, np.newaxis] * columns + np.arange(columns)
    return uniform(seed, purpose, places)


def integers(seed: int, purpose: str, rows: ArrayLike, low: int, high: int) -> Integers:
    """One integer with low <= integer < high per row."""
    if high <= low:
        raise ConfigurationError(f"no integer is at least {low} and below {high}")
    return low + (uniform(seed, purpose, rows) * (high - low)).astype(np.int64)


def choices(seed: int, purpose: str, rows: ArrayLike, shares: ArrayLike) -> Integers:
    """One index per row, drawn with the given shares (which need not add up to 1)."""
    edges = np.cumsum(np.asarray(shares, dtype=np.float64))
    drawn = np.searchsorted(edges, uniform(seed, purpose, rows) * edges[-1], side="right")
    return np.asarray(np.minimum(drawn, len(edges) - 1), dtype=np.int64)


def permutation(seed: int, purpose: str, count: int) -> Integers:
    """The numbers 0 to count - 1 in random order."""
    return np.argsort(uniform(seed, purpose, np.arange(count)), kind="stable").astype(np.int64)


def permutations(seed: int, purpose: str, rows: ArrayLike, count: int) -> Integers:
    """The numbers 0 to count - 1 in an order of its own for each row, shape (rows, count)."""
    return np.argsort(uniform_columns(seed, purpose, rows, count), axis=1, kind="stable").astype(np.int64)


def weighted_samples(seed: int, purpose: str, rows: ArrayLike, shares: ArrayLike) -> Integers:
    """All indices in random order for each row, where a larger share tends to come first.

    The first k are a sample of size k without replacement: each next one is drawn with the shares of those
    that are left (Efraimidis and Spirakis, 2006).
    """
    weights = np.asarray(shares, dtype=np.float64)
    # Of exponential waiting times with these rates the shortest belongs to an index with its share.
    waiting = -np.log1p(-uniform_columns(seed, purpose, rows, len(weights))) / weights
    return np.argsort(waiting, axis=1, kind="stable").astype(np.int64)


def zipf_shares(count: int, exponent: float) -> Floats:
    """Shares that fall with the rank r as r ** -exponent and add up to 1."""
    weights = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    return np.asarray(weights / weights.sum(), dtype=np.float64)


@lru_cache(maxsize=1024)
def _key(seed: int, purpose: str) -> np.uint64:
    digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))


def _bits(seed: int, purpose: str, rows: ArrayLike) -> NDArray[Any]:
    """64 random bits per row; the arithmetic wraps around on purpose."""
    with np.errstate(over="ignore"):
        state = _key(seed, purpose) + (np.asarray(rows).astype(np.uint64) + np.uint64(1)) * _GAMMA
        state = (state ^ (state >> np.uint64(30))) * _MIX_FIRST
        state = (state ^ (state >> np.uint64(27))) * _MIX_SECOND
        return np.asarray(state ^ (state >> np.uint64(31)))

"""Which filters and publications is matching measured on?

W1  1 to 5 BETWEEN conditions over 10 integer attributes in [1, 256]; publications with 1 to 10 of them
W2  symbol = X AND price > v AND volume < w, symbols by Zipf's law
W3  W1 with real-valued bounds and values
W4  real stock quotes, filters from the quotes' own quantiles (see `quotes`)

Every workload is made from its seed alone. Beside the filter texts it holds the same conditions as
plain arrays, so that rivals (and the check of Braid's answers) never pass through Braid's parser.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = [
    "WORKLOADS",
    "Conditions",
    "FloatArray",
    "Workload",
    "make_workload",
    "random_stream",
    "require_data",
]

Publications: TypeAlias = list[dict[str, Any]]
FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]

ATTRIBUTES = 10
DOMAIN = 256
# Widths with a mean of 88.5 of 256: together with the numbers of attributes, about 5 % of the
# filters match a publication.
WIDTH_MIN, WIDTH_MAX = 16, 161

SYMBOLS = 500
PRICE_MAX = 1000.0
VOLUME_MAX = 1_000_000
# Filters look for the rare quotes: the last 18 % of prices, the first 18 % of volumes, half of that
# on average. Two Zipf laws meet in 3.6 % of the cases, so about 0.03 % of the filters match.
TAIL = 0.18


@dataclass(frozen=True, slots=True)
class Conditions:
    """Filters as arrays: filter i asks `low <= attribute <= high` for its rows start[i]:start[i + 1].

    Strings take part as codes: `words` maps each to its number.
    """

    names: tuple[str, ...]
    start: IntArray
    attribute: IntArray
    low: FloatArray
    high: FloatArray
    words: Mapping[str, int]
    text_attribute: str = ""

    def __len__(self) -> int:
        return len(self.start) - 1

    def owner(self) -> IntArray:
        """The filter of each row."""
        return np.repeat(np.arange(len(self)), np.diff(self.start))

    def tuples(self) -> list[tuple[tuple[str, Any, Any], ...]]:
        """Filters as plain tuples (name, low, high): strings as strings, whole numbers as integers."""
        word_of = list(self.words)
        start = self.start.tolist()
        rows: list[tuple[str, Any, Any]] = []
        for column, low, high in zip(
            self.attribute.tolist(), self.low.tolist(), self.high.tolist(), strict=True
        ):
            name = self.names[column]
            if name == self.text_attribute:
                rows.append((name, word_of[int(low)], word_of[int(high)]))
            else:
                rows.append(
                    (name, int(low) if low.is_integer() else low, int(high) if high.is_integer() else high)
                )
        return [tuple(rows[begin:end]) for begin, end in itertools.pairwise(start)]

    def matrix(self, publications: Sequence[Mapping[str, Any]]) -> FloatArray:
        """Publications as rows of numbers, NaN where an attribute is absent."""
        columns = []
        for name in self.names:
            if name == self.text_attribute:
                # An unknown word gets a code that no filter asks for.
                column = [self.words.get(each[name], -1) if name in each else np.nan for each in publications]
            else:
                column = [each.get(name, np.nan) for each in publications]
            columns.append(np.array(column, dtype=np.float64))
        return np.stack(columns, axis=1)


@dataclass(frozen=True, slots=True)
class Workload:
    """Filter texts, the same as `conditions`, and publications to match."""

    name: str
    texts: list[str]
    conditions: Conditions
    publications: Publications


def random_stream(seed: int, purpose: str) -> np.random.Generator:
    """A stream of its own per purpose, so that a new draw for one never moves another."""
    return np.random.default_rng([seed, crc32(purpose.encode())])


def make_workload(name: str, filters: int, publications: int, seed: int) -> Workload:
    """A workload of that size; the same arguments give the same workload."""
    if name not in WORKLOADS:
        raise ConfigurationError(f"there is no workload {name!r}; choose from {', '.join(WORKLOADS)}")
    return WORKLOADS[name](name, filters, publications, seed)


def require_data(name: str) -> None:
    """A `ConfigurationError` when the workload needs data that this machine lacks."""
    if name == "W4":
        from braid.workloads.datasets import QUOTES, dataset

        dataset(QUOTES)


def _ranges(name: str, filters: int, publications: int, seed: int) -> Workload:
    """W1 and W3."""
    real = name == "W3"
    random = random_stream(seed, f"{name}/filters")
    wanted = _chosen(random, filters, most=5)
    width: NDArray[Any]
    if real:
        width = random.uniform(WIDTH_MIN, WIDTH_MAX, wanted.shape)
        low = 1 + random.random(wanted.shape) * (DOMAIN - 1 - width)
        high = low + width
    else:
        width = random.integers(WIDTH_MIN, WIDTH_MAX + 1, wanted.shape)
        low = 1 + np.floor(random.random(wanted.shape) * (DOMAIN - width + 1))
        high = low + width - 1
    owner, attribute = np.nonzero(wanted)
    names = tuple(f"a{column}" for column in range(ATTRIBUTES))
    conditions = Conditions(
        names=names,
        start=np.concatenate([[0], np.cumsum(wanted.sum(axis=1))]).astype(np.int64),
        attribute=attribute.astype(np.int64),
        low=low[owner, attribute].astype(np.float64),
        high=high[owner, attribute].astype(np.float64),
        words={},
    )
    number: Callable[[float], str] = repr if real else lambda value: str(int(value))
    texts = [
        " AND ".join(f"{each} BETWEEN {number(low)} AND {number(high)}" for each, low, high in ranges)
        for ranges in conditions.tuples()
    ]
    random = random_stream(seed, f"{name}/publications")
    present = _chosen(random, publications, most=ATTRIBUTES)
    if real:
        values: list[list[Any]] = random.uniform(1, DOMAIN, present.shape).tolist()
    else:
        values = random.integers(1, DOMAIN + 1, present.shape).tolist()
    rows = [
        {names[column]: row[column] for column in np.flatnonzero(has).tolist()}
        for row, has in zip(values, present, strict=True)
    ]
    return Workload(name, texts, conditions, rows)


def _chosen(random: np.random.Generator, rows: int, most: int) -> NDArray[np.bool_]:
    """For each row between one and `most` of the attributes, every choice equally likely."""
    rank = np.argsort(random.random((rows, ATTRIBUTES)), axis=1)
    return rank < random.integers(1, most + 1, (rows, 1))


def _quotes_by_zipf(name: str, filters: int, publications: int, seed: int) -> Workload:
    """W2."""
    share = 1 / np.arange(1, SYMBOLS + 1)
    share /= share.sum()
    words = {f"S{rank:03d}": rank for rank in range(SYMBOLS)}
    word_of = list(words)
    random = random_stream(seed, f"{name}/filters")
    symbol = random.choice(SYMBOLS, filters, p=share)
    price = np.round(PRICE_MAX * (1 - TAIL * random.random(filters)), 2)
    volume = np.ceil(VOLUME_MAX * TAIL * random.random(filters))
    texts = [
        f"symbol = '{word_of[code]}' AND price > {above!r} AND volume < {int(below)}"
        for code, above, below in zip(symbol.tolist(), price.tolist(), volume.tolist(), strict=True)
    ]
    low = np.stack([symbol, np.nextafter(price, np.inf), np.full(filters, -np.inf)], axis=1)
    high = np.stack([symbol, np.full(filters, np.inf), np.nextafter(volume, -np.inf)], axis=1)
    conditions = Conditions(
        names=("symbol", "price", "volume"),
        start=np.arange(filters + 1, dtype=np.int64) * 3,
        attribute=np.tile(np.arange(3), filters),
        low=low.ravel().astype(np.float64),
        high=high.ravel().astype(np.float64),
        words=words,
        text_attribute="symbol",
    )
    random = random_stream(seed, f"{name}/publications")
    rows = [
        {"symbol": word_of[code], "price": paid, "volume": traded}
        for code, paid, traded in zip(
            random.choice(SYMBOLS, publications, p=share).tolist(),
            np.round(random.uniform(0, PRICE_MAX, publications), 2).tolist(),
            random.integers(0, VOLUME_MAX, publications).tolist(),
            strict=True,
        )
    ]
    return Workload(name, texts, conditions, rows)


def _real_quotes(name: str, filters: int, publications: int, seed: int) -> Workload:
    """W4, imported late: the other workloads do not need the data."""
    from braid_bench.quotes import quotes_workload

    return quotes_workload(name, filters, publications, seed)


WORKLOADS: dict[str, Callable[[str, int, int, int], Workload]] = {
    "W1": _ranges,
    "W2": _quotes_by_zipf,
    "W3": _ranges,
    "W4": _real_quotes,
}

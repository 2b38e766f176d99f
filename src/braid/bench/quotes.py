"""What do real stock quotes ask of matching?

W4 matches daily quotes of 100 symbols (`stockquotes.tar.gz` in the directory named by the
environment variable BRAID_DATA) against filters whose bounds are quantiles of the quotes themselves:
    40 %  symbol = X AND close BETWEEN ... AND ...                   a band of that symbol's prices
    40 %  symbol = X AND close BETWEEN ... AND ... AND volume > ...  and its busy days only
    20 %  close BETWEEN ... AND ... AND volume > ...                 any symbol, a narrow band
"""

from __future__ import annotations

import os
import re
import tarfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from braid.bench.workloads import Conditions, Workload, random_stream
from braid.errors import ConfigurationError

__all__ = ["quotes_workload"]

_ARCHIVE = "stockquotes.tar.gz"
_PAIR = re.compile(r"\[(\w+),(?:'([^']*)'|([-0-9.eE+]+))\]")
_INTEGERS = frozenset({"volume"})

OF_ONE_SYMBOL = 0.8
WITH_VOLUME = 0.5
# Mass of the quotes within a price band: of its own symbol, and of all symbols.
BAND_OF_SYMBOL = (0.02, 0.3)
BAND_OF_ALL = (0.0005, 0.01)


def quotes_workload(name: str, filters: int, publications: int, seed: int) -> Workload:
    """Filters over the quotes, and quotes in random order as publications."""
    quotes = _read_quotes(str(_archive_path()))
    words: dict[str, int] = {}
    for quote in quotes:
        words.setdefault(quote["symbol"], len(words))
    symbol = np.array([words[quote["symbol"]] for quote in quotes])
    close = np.array([quote["close"] for quote in quotes])
    volume = np.array([quote["volume"] for quote in quotes])
    # A symbol is asked for as often as it is quoted, which drawing a random quote gives directly.
    random = random_stream(seed, f"{name}/filters")
    drawn = symbol[random.integers(0, len(quotes), filters)]
    of_one_symbol = random.random(filters) < OF_ONE_SYMBOL
    with_volume = ~of_one_symbol | (random.random(filters) < WITH_VOLUME)
    place, mass, busy = random.random(filters), random.random(filters), random.random(filters)

    low, high, above = np.zeros(filters), np.zeros(filters), np.zeros(filters)
    groups = [(of_one_symbol & (drawn == code), symbol == code, BAND_OF_SYMBOL) for code in range(len(words))]
    groups.append((~of_one_symbol, np.ones(len(quotes), dtype=bool), BAND_OF_ALL))
    for rows, among, (mass_min, mass_max) in groups:
        width = mass_min + mass[rows] * (mass_max - mass_min)
        begin = place[rows] * (1 - width)
        low[rows] = np.quantile(close[among], begin, method="nearest")
        high[rows] = np.quantile(close[among], begin + width, method="nearest")
        above[rows] = np.quantile(volume[among], busy[rows], method="nearest")

    word_of = list(words)
    texts: list[str] = []
    attribute: list[int] = []
    bounds: list[tuple[float, float]] = []
    start = [0]
    rows_of_filters = zip(
        drawn.tolist(),
        of_one_symbol.tolist(),
        low.tolist(),
        high.tolist(),
        with_volume.tolist(),
        above.tolist(),
        np.nextafter(above, np.inf).tolist(),
        strict=True,
    )
    for code, one_symbol, cheapest, dearest, busy_days, sold, sold_more in rows_of_filters:
        parts = []
        if one_symbol:
            parts.append(f"symbol = '{word_of[code]}'")
            attribute.append(0)
            bounds.append((code, code))
        parts.append(f"close BETWEEN {cheapest!r} AND {dearest!r}")
        attribute.append(1)
        bounds.append((cheapest, dearest))
        if busy_days:
            parts.append(f"volume > {int(sold)}")
            attribute.append(2)
            bounds.append((sold_more, np.inf))
        texts.append(" AND ".join(parts))
        start.append(len(attribute))
    ends = np.array(bounds, dtype=np.float64).reshape(-1, 2)
    conditions = Conditions(
        names=("symbol", "close", "volume"),
        start=np.array(start, dtype=np.int64),
        attribute=np.array(attribute, dtype=np.int64),
        low=np.ascontiguousarray(ends[:, 0]),
        high=np.ascontiguousarray(ends[:, 1]),
        words=words,
        text_attribute="symbol",
    )
    order = random_stream(seed, f"{name}/publications").integers(0, len(quotes), publications)
    return Workload(name, texts, conditions, [quotes[position] for position in order.tolist()])


def _archive_path() -> Path:
    directory = os.environ.get("BRAID_DATA")
    if directory is not None:
        path = Path(directory) / _ARCHIVE
    else:
        # Beside the project, where `src/braid/bench/quotes.py` lies three levels down.
        path = Path(__file__).resolve().parents[3].parent / "shared" / "data" / _ARCHIVE
    if not path.is_file():
        raise ConfigurationError(
            f"W4 needs {_ARCHIVE}, the stock quotes of the PADRES distribution; "
            "set BRAID_DATA to the directory that holds it"
        )
    return path


@lru_cache(maxsize=1)
def _read_quotes(path: str) -> list[dict[str, Any]]:
    """Every quote of the archive as attributes."""
    quotes = []
    with tarfile.open(path) as archive:
        members = sorted((each for each in archive if each.isfile()), key=lambda each: each.name)
        for member in members:
            content = archive.extractfile(member)
            if content is None:
                continue
            for line in content.read().decode("ascii", errors="replace").splitlines():
                quote: dict[str, Any] = {}
                for key, text, number in _PAIR.findall(line):
                    quote[key] = (
                        text if not number else int(float(number)) if key in _INTEGERS else float(number)
                    )
                if {"symbol", "close", "volume"} <= quote.keys():
                    quotes.append(quote)
    if not quotes:
        raise ConfigurationError(f"{path} holds no stock quotes")
    return quotes

"""What do real stock quotes ask of matching?

W4 matches daily quotes of 100 symbols (`stockquotes.tar.gz` in the directory named by the
environment variable BRAID_DATA) against filters whose bounds are quantiles of the quotes themselves:
    40 %  symbol = X AND close BETWEEN ... AND ...                   a band of that symbol's prices
    40 %  symbol = X AND close BETWEEN ... AND ... AND volume > ...  and its busy days only
    20 %  close BETWEEN ... AND ... AND volume > ...                 any symbol, a narrow band
"""

from __future__ import annotations

import numpy as np

from braid.workloads.datasets import QUOTES, dataset, quote_attributes, read_quotes
from braid_bench.workloads import Conditions, Workload, random_stream

__all__ = ["quotes_workload"]

OF_ONE_SYMBOL = 0.8
WITH_VOLUME = 0.5
# Mass of the quotes within a price band: of its own symbol, and of all symbols.
BAND_OF_SYMBOL = (0.02, 0.3)
BAND_OF_ALL = (0.0005, 0.01)


def quotes_workload(name: str, filters: int, publications: int, seed: int) -> Workload:
    """Filters over the quotes, and quotes in random order as publications."""
    lines, symbols, close, volume = read_quotes(dataset(QUOTES))
    words: dict[str, int] = {}
    symbol = np.array([words.setdefault(each, len(words)) for each in symbols])
    # A symbol is asked for as often as it is quoted, which drawing a random quote gives directly.
    random = random_stream(seed, f"{name}/filters")
    drawn = symbol[random.integers(0, len(lines), filters)]
    of_one_symbol = random.random(filters) < OF_ONE_SYMBOL
    with_volume = ~of_one_symbol | (random.random(filters) < WITH_VOLUME)
    place, mass, busy = random.random(filters), random.random(filters), random.random(filters)

    low, high, above = np.zeros(filters), np.zeros(filters), np.zeros(filters)
    groups = [(of_one_symbol & (drawn == code), symbol == code, BAND_OF_SYMBOL) for code in range(len(words))]
    groups.append((~of_one_symbol, np.ones(len(lines), dtype=bool), BAND_OF_ALL))
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
    order = random_stream(seed, f"{name}/publications").integers(0, len(lines), publications)
    return Workload(
        name, texts, conditions, [quote_attributes(lines[position]) for position in order.tolist()]
    )

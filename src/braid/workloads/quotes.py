"""What do real stock quotes and their readers look like?

Publications are 245,190 daily quotes of 100 symbols in the order of their days. A symbol belongs to one
publisher. Subscriptions ask for symbols as often as they are quoted, with bounds that are quantiles of the
quotes themselves, so that every share of the market is asked for:

    40 %  symbol = X AND close BETWEEN ... AND ...                   a band of that symbol's prices
    40 %  symbol = X AND close BETWEEN ... AND ... AND volume > ...  and its busy days only
    20 %  close BETWEEN ... AND ... AND volume > ...                 any symbol, a narrow band
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from braid.workloads.datasets import QUOTES, dataset, quote_attributes, read_quotes
from braid.workloads.draws import Floats, Integers, choices, integers, uniform
from braid.workloads.parameters import Definition, Parameter
from braid.workloads.schedule import (
    arrival_times_us,
    duration_us,
    numbered,
    placed,
    publication_count,
    schedule_parameters,
)
from braid.workloads.tables import (
    PublicationColumns,
    Table,
    broker_name,
    brokers_table,
    publications_table,
    published_by,
    subscriptions_batch,
    subscriptions_table,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["DEFINITIONS"]

ATTRIBUTES = {
    "class": pa.string(),
    "symbol": pa.string(),
    "open": pa.float64(),
    "high": pa.float64(),
    "low": pa.float64(),
    "close": pa.float64(),
    "volume": pa.int64(),
    "date": pa.string(),
}
_DATE = re.compile(r"\[date,'([^']*)'\]")
# A band of one symbol, such a band on busy days, a narrow band of any symbol.
FORMS = (40, 40, 20)
# Share of the quotes within a price band: of its own symbol, and of all symbols.
BAND_OF_SYMBOL = (0.02, 0.3)
BAND_OF_ALL = (0.0005, 0.01)


@dataclass(frozen=True)
class _Market:
    """Sorted prices and volumes of each symbol, one after the other, and of all together at the end."""

    symbols: list[str]
    starts: Integers
    close: Floats
    volume: Floats

    def quantile(self, column: Floats, group: Integers, place: Floats) -> Floats:
        """The value below which that share of a group's quotes lies; always one that was quoted."""
        start, end = self.starts[group], self.starts[group + 1]
        offset = np.minimum((place * (end - start)).astype(np.int64), end - start - 1)
        return np.asarray(column[start + offset], dtype=np.float64)


def _build(seed: int, settings: Mapping[str, Any]) -> dict[str, Table]:
    lines, market, codes = _read(dataset(QUOTES))
    publishing, subscribing = placed(seed, settings)
    count = min(publication_count(settings), len(codes))
    # What was cut off at the end of the quotes shortens the run instead of slowing it down.
    within_us = duration_us(settings) * count // max(publication_count(settings), 1)
    publisher = codes[:count] % settings["publishers"]
    return {
        "brokers": brokers_table(settings["brokers"], publishing.tolist(), subscribing.tolist()),
        "subscriptions": subscriptions_table(
            settings["subscriptions"], partial(_subscriptions, seed, subscribing, market)
        ),
        "publications": publications_table(
            count,
            ATTRIBUTES,
            settings["body_bytes"],
            partial(
                _publications,
                (seed, settings["spread"], within_us),
                publishing,
                _batch(lines[:count]),
                np.stack([publisher, numbered(publisher) + 1]),
            ),
        ),
    }


@lru_cache(maxsize=1)
def _read(path: Path) -> tuple[list[str], _Market, Integers]:
    """All quotes in the order of their days, what they amount to, and the number of each one's symbol."""
    quotes = read_quotes(path)
    dates = [_DATE.findall(line)[-1] for line in quotes.lines]
    days = {date: datetime.strptime(date, "%d-%b-%y").toordinal() for date in set(dates)}
    order = np.argsort([days[date] for date in dates], kind="stable")
    symbols, codes = np.unique(quotes.symbols, return_inverse=True)
    sizes = np.bincount(codes, minlength=len(symbols))
    by_symbol = np.concatenate([np.sort(quotes.close[codes == each]) for each in range(len(symbols))])
    volumes = np.concatenate([np.sort(quotes.volume[codes == each]) for each in range(len(symbols))])
    market = _Market(
        symbols.tolist(),
        np.r_[0, np.cumsum(sizes), 2 * len(dates)].astype(np.int64),
        np.r_[by_symbol, np.sort(quotes.close)],
        np.r_[volumes, np.sort(quotes.volume)],
    )
    return [quotes.lines[each] for each in order], market, codes[order].astype(np.int64)


def _batch(lines: list[str]) -> pa.RecordBatch:
    """Quotes as columns."""
    rows = [quote_attributes(line) for line in lines]
    columns = [pa.array([row.get(name) for row in rows], kind) for name, kind in ATTRIBUTES.items()]
    return pa.RecordBatch.from_arrays(columns, names=list(ATTRIBUTES))


def _subscriptions(seed: int, subscribing: Integers, market: _Market, rows: Integers) -> pa.RecordBatch:
    form = choices(seed, "form", rows, FORMS)
    symbol = choices(seed, "symbol", rows, np.diff(market.starts[:-1]))
    group = np.where(form < 2, symbol, len(market.symbols))
    smallest, largest = np.where(form[:, np.newaxis] < 2, BAND_OF_SYMBOL, BAND_OF_ALL).T
    width = smallest + uniform(seed, "width", rows) * (largest - smallest)
    begin = uniform(seed, "place", rows) * (1 - width)
    low = market.quantile(market.close, group, begin).tolist()
    high = market.quantile(market.close, group, begin + width).tolist()
    volume = market.quantile(market.volume, group, uniform(seed, "busy", rows)).astype(np.int64).tolist()
    subscriber = integers(seed, "subscriber", rows, 0, len(subscribing)).tolist()
    filters = []
    for place, kind in enumerate(form.tolist()):
        parts = [f"symbol = '{market.symbols[symbol[place]]}'"] if kind < 2 else []
        parts.append(f"close BETWEEN {low[place]!r} AND {high[place]!r}")
        if kind > 0:
            parts.append(f"volume > {volume[place]}")
        filters.append(" AND ".join(parts))
    return subscriptions_batch(
        [broker_name(int(subscribing[each])) for each in subscriber],
        [f"S{each:03d}" for each in subscriber],
        [f"s{row}" for row in rows.tolist()],
        filters,
    )


def _publications(
    timing: tuple[int, str, int],
    publishing: Integers,
    quotes: pa.RecordBatch,
    publisher_and_sequence: Integers,
    rows: Integers,
) -> PublicationColumns:
    seed, spread, within_us = timing
    publisher, sequence = publisher_and_sequence[:, rows]
    chosen = quotes.take(pa.array(rows))
    return published_by(
        publishing,
        publisher,
        at_us=arrival_times_us(seed, spread, rows, quotes.num_rows, within_us),
        sequence=sequence,
        attributes={name: chosen.column(name) for name in ATTRIBUTES},
    )


DEFINITIONS = (
    Definition(
        "quotes",
        "real stock quotes, subscriptions over symbols, prices and volumes",
        "stockquotes.tar.gz of the PADRES distribution",
        (
            Parameter("brokers", 120, "brokers in the network", 2, 100_000),
            Parameter("publishers", 60, "brokers that host a publisher", 1, 100_000),
            Parameter("subscribers", 60, "other brokers, that host a subscriber", 1, 100_000),
            Parameter("subscriptions", 6_000, "of all subscribers together", 1, 10_000_000),
            *schedule_parameters(3_600.0, 600.0),
        ),
        _build,
    ),
)

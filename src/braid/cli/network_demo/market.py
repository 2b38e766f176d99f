"""Who quotes what, and who wants which of it?

Quotes are those of real stocks where `BRAID_DATA` names a folder that has them, and otherwise made up in
the same shape. Readers at each broker want a few groups of symbols, some of them only on busy days; so
brokers share interests with some and not with others, as readers of a market do.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from braid.errors import BraidError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Market", "open_market"]

GROUPS: Final = 6
SYMBOLS_MAX: Final = 48
# Groups of symbols that are wanted at one broker.
WANTED: Final = 2
QUOTES_MAX: Final = 40_000
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Market:
    """Quotes in the order of their days, and the symbols in their groups."""

    origin: str
    """Where the quotes come from, for people."""
    quotes: Sequence[dict[str, Any]]
    groups: tuple[tuple[str, ...], ...]

    def filters(self, brokers: Sequence[str], seed: int) -> dict[str, str]:
        """What the reader at each broker wants."""
        chance = random.Random(f"{seed}/demo readers")
        volumes = sorted(quote["volume"] for quote in self.quotes)
        found = {}
        for broker in brokers:
            wanted = sorted(chance.sample(range(len(self.groups)), WANTED))
            symbols = [symbol for group in wanted for symbol in self.groups[group]]
            text = "symbol IN ({})".format(", ".join(f"'{symbol}'" for symbol in symbols))
            if chance.random() < 0.5:
                text += f" AND volume > {volumes[len(volumes) // 4]}"
            found[broker] = text
        return found


def open_market(seed: int) -> Market:
    """Real quotes if they are at hand, made-up ones otherwise."""
    try:
        return _real()
    except (BraidError, OSError):
        return _made_up(seed)


def _real() -> Market:
    from braid.workloads.datasets import QUOTES, dataset, quote_attributes, read_quotes

    found = read_quotes(dataset(QUOTES))
    symbols = tuple(sorted(set(found.symbols)))[:SYMBOLS_MAX]
    known = set(symbols)
    lines = [line for line, symbol in zip(found.lines, found.symbols, strict=True) if symbol in known]
    # The archive has one symbol after the other; a market quotes all of them every day.
    random.Random("demo quotes").shuffle(lines)
    return Market(
        "the real stock quotes in BRAID_DATA",
        [quote_attributes(line) for line in lines[:QUOTES_MAX]],
        _grouped(symbols),
    )


def _made_up(seed: int) -> Market:
    """Random walks with the attributes of the real quotes."""
    chance = random.Random(f"{seed}/demo quotes")
    symbols = tuple(
        sorted({"".join(chance.choices(_LETTERS, k=4)) for _ in range(2 * SYMBOLS_MAX)})[:SYMBOLS_MAX]
    )
    prices = {symbol: chance.uniform(5.0, 150.0) for symbol in symbols}
    quotes: list[dict[str, Any]] = []
    for number in range(QUOTES_MAX // 2):
        symbol = chance.choice(symbols)
        opened = prices[symbol]
        closed = max(0.5, opened * math.exp(chance.gauss(0.0, 0.02)))
        prices[symbol] = closed
        quotes.append(
            {
                "class": "STOCK",
                "symbol": symbol,
                "open": round(opened, 2),
                "high": round(max(opened, closed) * 1.01, 2),
                "low": round(min(opened, closed) * 0.99, 2),
                "close": round(closed, 2),
                "volume": round(chance.lognormvariate(12.0, 1.2)),
                "date": f"day {1 + number // len(symbols)}",
            }
        )
    return Market("made-up stock quotes (real ones, if BRAID_DATA has them)", quotes, _grouped(symbols))


def _grouped(symbols: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(symbols[place::GROUPS]) for place in range(GROUPS))

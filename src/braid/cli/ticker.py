"""What would a stock ticker say, if there were one at hand?

A made-up market: every quote is a step of its symbol's random walk, so prices move plausibly, and
the same seed gives the same quotes in the same order whatever the clock does.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from itertools import accumulate

__all__ = ["Quote", "Ticker"]

Quote = dict[str, str | float | int | bool]

# Symbol, exchange, sector, opening price, volatility per quote, how often it is quoted.
LISTINGS = (
    ("ACME", "NORTH", "machines", 104.50, 0.0012, 9),
    ("ALDR", "NORTH", "timber", 18.20, 0.0020, 3),
    ("BOLT", "NORTH", "machines", 46.75, 0.0018, 6),
    ("BRIG", "HARBOUR", "shipping", 71.10, 0.0011, 5),
    ("COBL", "SOUTH", "metals", 33.40, 0.0026, 6),
    ("DUNE", "SOUTH", "energy", 9.85, 0.0035, 4),
    ("FJRD", "HARBOUR", "shipping", 128.00, 0.0010, 4),
    ("GALE", "NORTH", "energy", 57.30, 0.0022, 7),
    ("KELP", "HARBOUR", "foods", 24.60, 0.0009, 3),
    ("MOSS", "SOUTH", "foods", 12.15, 0.0013, 2),
    ("QRTZ", "SOUTH", "metals", 212.90, 0.0024, 8),
    ("ZEPH", "NORTH", "energy", 88.05, 0.0016, 6),
)

# A symbol that has moved this far since it last began to trade is halted for a while.
HALT_AT = 0.04
HALT_QUOTES = 12


@dataclass(slots=True)
class _Walk:
    """Where one symbol stands."""

    symbol: str
    exchange: str
    sector: str
    opened: float
    volatility: float
    price: float
    resumed: float
    halted_for: int = 0


class Ticker:
    """An endless stream of quotes, determined by its seed.

    Each quote has `symbol`, `exchange`, `sector`, `price`, `change` (percent since the opening),
    `volume` (shares in this trade, 0 during a halt) and `halted`.
    """

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(f"{seed}/ticker")
        self._walks = [
            _Walk(symbol, exchange, sector, price, volatility, price, price)
            for symbol, exchange, sector, price, volatility, _ in LISTINGS
        ]
        self._cumulative_weights = list(accumulate(weight for *_, weight in LISTINGS))

    def quotes(self, count: int) -> list[Quote]:
        """The next `count` quotes; asking for them in other portions gives the same ones."""
        return [
            self._step(self._random.choices(self._walks, cum_weights=self._cumulative_weights)[0])
            for _ in range(count)
        ]

    def _step(self, walk: _Walk) -> Quote:
        volume = 0
        if walk.halted_for:
            walk.halted_for -= 1
            walk.resumed = walk.price
        else:
            self._trade(walk)
            volume = 100 * max(1, round(self._random.lognormvariate(2.0, 1.1)))
        return {
            "symbol": walk.symbol,
            "exchange": walk.exchange,
            "sector": walk.sector,
            "price": walk.price,
            "change": round(100 * (walk.price / walk.opened - 1), 2),
            "volume": volume,
            "halted": walk.halted_for > 0,
        }

    def _trade(self, walk: _Walk) -> None:
        # A faint pull towards the opening price keeps a long run from drifting out of the picture.
        pull = 0.002 * math.log(walk.opened / walk.price)
        move = self._random.gauss(pull, walk.volatility)
        if self._random.random() < 0.002:
            move += self._random.choice((-1, 1)) * self._random.uniform(0.01, 0.03)  # news
        walk.price = max(0.05, round(walk.price * math.exp(move), 2))
        if abs(walk.price / walk.resumed - 1) > HALT_AT:
            walk.halted_for = HALT_QUOTES

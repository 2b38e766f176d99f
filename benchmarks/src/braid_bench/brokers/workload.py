"""What is published, who asks for what, and who must get it?

A publication is a quote: a symbol (50 of them), a price in [0, 100) and a volume in [0, 1000), all drawn
uniformly, with a body of 200 bytes. A subscription asks for one symbol and

- two predicates: `symbol = 's17' AND price > p` with p uniform in [50, 100), so price matches 1 in 4, or
- three: `symbol = 's17' AND price > p AND volume < v` with p and v uniform over the whole range, 1 in 2 each,

half of the subscriptions each, so that on average 1/50 * 1/4 = 0.5 % of them match a publication. RabbitMQ's
headers exchange knows equality only; it gets the same shape from bands of the same quotes:
`symbol = 's17' AND quarter = 'q3'` and `symbol = 's17' AND half = 'h1' AND size = 'v0'`, again 0.5 %.
There are only 400 such conditions, and to RabbitMQ equal bindings of one queue are one binding: with 20
queues, 50,000 subscriptions are at most 8,000 bindings. That is in its favour, and left so: made different by
their routing keys, 5,000 bindings cost it two to three times as much.

The counts that a run has to reach are computed here, by NumPy over all subscriptions; the tests compare them
with a plain loop.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from braid_bench.brokers.contender import DeliveryUnit, FilterForm

__all__ = [
    "BODY_BYTES",
    "MARKER",
    "Interest",
    "Message",
    "Quote",
    "expected_deliveries",
    "make_interests",
    "make_messages",
]

BODY_BYTES = 200
MARKER = b"~!*body*!~"
"""Opens every body and occurs nowhere else, so deliveries are counted by counting it."""
SYMBOLS = 50
PRICE_MAX = 100.0
VOLUME_MAX = 1000


@dataclass(frozen=True, slots=True)
class Quote:
    """The attributes of a message that is filtered by content."""

    symbol: str
    price: float
    volume: int

    def values(self) -> dict[str, str | float | int]:
        """The attributes by name."""
        return {"symbol": self.symbol, "price": self.price, "volume": self.volume}

    def bands(self) -> dict[str, str]:
        """The same quote as words, for those who can only compare for equality."""
        return {
            "symbol": self.symbol,
            "quarter": f"q{int(4 * self.price / PRICE_MAX)}",
            "half": f"h{int(2 * self.price / PRICE_MAX)}",
            "size": f"v{2 * self.volume // VOLUME_MAX}",
        }


@dataclass(frozen=True, slots=True)
class Message:
    """What is published: a body, and a quote where somebody filters."""

    body: bytes
    quote: Quote | None = None


@dataclass(frozen=True, slots=True)
class Interest:
    """One subscription, in both forms."""

    symbol: str
    price_above: float
    volume_below: int | None
    """None: only two predicates."""
    equal: tuple[tuple[str, str], ...]
    """The form with equality only."""

    def sql(self) -> str:
        """As an SQL condition, which JMS selectors and Braid's filters both are."""
        text = f"symbol = '{self.symbol}' AND price > {self.price_above}"
        return text if self.volume_below is None else f"{text} AND volume < {self.volume_below}"

    def matches(self, quote: Quote) -> bool:
        """The meaning of `sql`, said once more and plainly."""
        return (
            quote.symbol == self.symbol
            and quote.price > self.price_above
            and (self.volume_below is None or quote.volume < self.volume_below)
        )

    def equals(self, quote: Quote) -> bool:
        """The meaning of `equal`."""
        bands = quote.bands()
        return all(bands[name] == value for name, value in self.equal)


def make_messages(count: int, seed: int, *, quotes: bool) -> list[Message]:
    """Messages to publish, all with the same body."""
    draw = random.Random(f"{seed}/messages")
    filler = bytes(draw.choices(b"abcdefghijklmnopqrstuvwxyz0123456789", k=BODY_BYTES - len(MARKER)))
    body = MARKER + filler
    if not quotes:
        return [Message(body)] * count
    return [Message(body, _quote(draw)) for _ in range(count)]


def _quote(draw: random.Random) -> Quote:
    # Quarters are exact in binary and in every server's text form.
    price = draw.randrange(int(PRICE_MAX) * 4) / 4
    return Quote(f"s{draw.randrange(SYMBOLS):02}", price, draw.randrange(VOLUME_MAX))


def make_interests(count: int, seed: int) -> list[Interest]:
    """Subscriptions, alternately of two and three predicates."""
    draw = random.Random(f"{seed}/interests")
    return [_interest(draw, three=bool(number % 2)) for number in range(count)]


def _interest(draw: random.Random, *, three: bool) -> Interest:
    symbol = f"s{draw.randrange(SYMBOLS):02}"
    if not three:
        price_above = PRICE_MAX / 2 + draw.randrange(int(PRICE_MAX) * 2) / 4
        return Interest(symbol, price_above, None, (("symbol", symbol), ("quarter", f"q{draw.randrange(4)}")))
    price_above = draw.randrange(int(PRICE_MAX) * 4) / 4
    half, size = f"h{draw.randrange(2)}", f"v{draw.randrange(2)}"
    return Interest(
        symbol,
        price_above,
        draw.randrange(VOLUME_MAX),
        (("symbol", symbol), ("half", half), ("size", size)),
    )


def expected_deliveries(
    quotes: Sequence[Quote],
    interests: Sequence[Interest],
    connections: int,
    form: FilterForm,
    once_per: DeliveryUnit,
) -> NDArray[np.int64]:
    """How often each quote must arrive at each connection, shape (quotes, connections).

    Interest number i belongs to connection i modulo `connections`.
    """
    owners = np.arange(len(interests)) % connections
    answers = _SqlForm(interests) if form == "sql" else _EqualityForm(interests)
    counts = np.zeros((len(quotes), connections), dtype=np.int64)
    for row, quote in enumerate(quotes):
        counts[row] = np.bincount(owners[answers.matching(quote)], minlength=connections)
    return np.minimum(counts, 1) if once_per == "connection" else counts


class _SqlForm:
    def __init__(self, interests: Sequence[Interest]) -> None:
        self.symbols = np.array([each.symbol for each in interests])
        self.prices = np.array([each.price_above for each in interests])
        # A bound above every volume says nothing.
        self.volumes = np.array(
            [VOLUME_MAX if each.volume_below is None else each.volume_below for each in interests]
        )

    def matching(self, quote: Quote) -> NDArray[np.bool_]:
        answer: NDArray[np.bool_] = self.symbols == quote.symbol
        return answer & (self.prices < quote.price) & (self.volumes > quote.volume)


class _EqualityForm:
    def __init__(self, interests: Sequence[Interest]) -> None:
        names = ("symbol", "quarter", "half", "size")
        # An empty word: this interest does not ask about that band.
        self.wanted = {
            name: np.array([dict(each.equal).get(name, "") for each in interests]) for name in names
        }

    def matching(self, quote: Quote) -> NDArray[np.bool_]:
        bands = quote.bands()
        answer = np.ones(len(self.wanted["symbol"]), dtype=np.bool_)
        for name, words in self.wanted.items():
            answer &= (words == "") | (words == bands[name])
        return answer

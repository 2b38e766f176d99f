"""Which texts are nothing but ranges of numbers, and which ranges?

Most filters of a large table look like `price > 10 AND volume BETWEEN 5 AND 20`. Such a text is taken apart
by two regular expressions, several times quicker than by the parser and the normal form. Every other text,
and every text that is wrong in any way, is left to them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from braid.language.lexer import KEYWORDS
from braid.language.value_sets import FLOAT_LINE
from braid.matching.columns import ordinals_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.matching.columns import BoolArray, IntArray

__all__ = ["NumberBoxes", "read_plain_texts"]

_NAME = rf"(?!(?i:{'|'.join(sorted(KEYWORDS))})\b)[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
# So few digits that every bound is below 2^53 in size, where the nearest double decides for integers too.
_NUMBER = r"-?\d{1,15}(?:\.\d{1,15})?"
_CONDITION = rf"{_NAME}(?: ?(?:<=|>=|=|<|>) ?{_NUMBER}| BETWEEN {_NUMBER} AND {_NUMBER})"
_PLAIN = re.compile(rf"{_CONDITION}(?: AND {_CONDITION})*", re.ASCII)
# Takes apart what is known to be plain.
_PIECES = re.compile(
    r"([A-Za-z_][\w.]*) ?(<=|>=|=|<|>|BETWEEN) ?(-?\d[\d.]*)(?: AND (-?\d[\d.]*))?", re.ASCII
)
_OPERATORS = {"=": 0, "<": 1, "<=": 2, ">": 3, ">=": 4, "BETWEEN": 5}
_LENGTH_MAX = 10_000


@dataclass(frozen=True, slots=True)
class NumberBoxes:
    """Filters that are one interval of numbers for each attribute that they bound, as columns.

    A filter that contradicts itself has no bounds here, because nothing satisfies it.
    """

    names: tuple[str, ...]
    plain: BoolArray
    """Which of the texts are of that kind."""
    texts: IntArray
    """The text of each bound, ascending."""
    attributes: IntArray
    """Its attribute, by its place among `names`; ascending within a text, and none twice."""
    lows: npt.NDArray[np.int64]
    """The ordinal (see `float_to_ordinal`) of the least number inside."""
    highs: npt.NDArray[np.int64]
    """The ordinal behind the greatest."""

    def of_texts(self, chosen: BoolArray) -> NumberBoxes:
        """The same for some of the texts, numbered anew."""
        kept = np.flatnonzero(chosen[self.texts])
        texts = (np.cumsum(chosen) - 1)[self.texts[kept]]
        attributes, lows, highs = self.attributes[kept], self.lows[kept], self.highs[kept]
        return NumberBoxes(self.names, self.plain[chosen], texts, attributes, lows, highs)


def read_plain_texts(texts: Sequence[str | None]) -> NumberBoxes:
    """The ranges of all texts that are nothing but ranges of numbers."""
    whole, pieces_of = _PLAIN.fullmatch, _PIECES.findall
    found = [
        pieces_of(text) if text is not None and len(text) <= _LENGTH_MAX and whole(text) is not None else ()
        for text in texts
    ]
    counts = np.fromiter(map(len, found), np.int64, len(found))
    plain = counts > 0
    if not plain.any():
        none = np.empty(0, np.int64)
        return NumberBoxes((), plain, none, none, none, none)
    attributes, operators, firsts, seconds = zip(*chain.from_iterable(found), strict=True)
    names = tuple(sorted(set(attributes)))
    place_of = {name: place for place, name in enumerate(names)}
    size = len(attributes)
    bounded = np.fromiter(map(place_of.__getitem__, attributes), np.int64, size)
    operator = np.fromiter(map(_OPERATORS.__getitem__, operators), np.int64, size)
    first = ordinals_of(np.fromiter(map(float, firsts), np.float64, size))
    last = first.copy()
    between = np.flatnonzero(operator == _OPERATORS["BETWEEN"])
    ends = (float(seconds[place]) for place in between.tolist())
    last[between] = ordinals_of(np.fromiter(ends, np.float64, len(between)))
    lows = np.select([operator <= 2, operator == 3], [FLOAT_LINE[0], first + 1], first)
    lows[operator == 0] = first[operator == 0]
    highs = np.select([operator == 1, (operator == 3) | (operator == 4)], [first, FLOAT_LINE[1]], last + 1)
    return _narrowed(names, plain, np.repeat(np.arange(len(found)), counts), bounded, lows, highs)


def _narrowed(
    names: tuple[str, ...],
    plain: BoolArray,
    texts: IntArray,
    attributes: IntArray,
    lows: npt.NDArray[np.int64],
    highs: npt.NDArray[np.int64],
) -> NumberBoxes:
    """In order, several bounds of a text on one attribute as one, and nothing for contradictions."""
    places = texts * len(names) + attributes
    order = np.argsort(places, kind="stable")
    places = places[order]
    starts = np.flatnonzero(np.concatenate([[True], np.diff(places) != 0]))
    texts, attributes = np.divmod(places[starts], len(names))
    lows = np.maximum.reduceat(lows[order], starts)
    highs = np.minimum.reduceat(highs[order], starts)
    contradictory = np.zeros(len(plain), np.bool_)
    contradictory[texts[lows >= highs]] = True
    kept = ~contradictory[texts]
    return NumberBoxes(names, plain, texts[kept], attributes[kept], lows[kept], highs[kept])

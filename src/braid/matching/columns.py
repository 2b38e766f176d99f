"""What does a batch of publications look like as arrays?

A `Batch` takes publications as mappings and yields one `Column` per attribute that the index asks
for, made once and shared by everything that looks at it. Columns of one type (all integers, all
floats, all strings, absent values among them) are converted without a Python loop; publications of
nothing but numbers are converted all at once and then divided into columns.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import chain
from operator import methodcaller
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from braid.language.publication import checked_attributes
from braid.language.value_sets import EXACT_MAX
from braid.language.values import INT_MAX, INT_MIN, Range, Value, float_to_ordinal

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "ABSENT",
    "FALSE",
    "LARGE",
    "NUMBER",
    "RANGE",
    "STRING",
    "TRUE",
    "Batch",
    "BoolArray",
    "Checked",
    "Column",
    "Columnar",
    "IntArray",
    "Numbers",
    "WordArray",
    "check_integers",
    "checked_publications",
    "ordinals_of",
    "point_key",
]

IntArray: TypeAlias = npt.NDArray[np.integer[Any]]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
WordArray: TypeAlias = npt.NDArray[np.uint64]

# Kinds of values, as stored in a column. LARGE integers are those that share a double with others.
ABSENT, FALSE, TRUE, NUMBER, STRING, LARGE, RANGE = range(7)

# So many publications are worth the few steps more that it takes to convert them all at once.
TOGETHER_MIN = 48

_NONE = type(None)
_NUMBERS = {int, float}
_NUMERIC = {int, float, _NONE}
_PLAIN = {int, float, str, bool, _NONE, Range}
_MAGNITUDE = np.int64(INT_MAX)
_NAN = np.int64(float_to_ordinal(float("nan")))


class Numbers(NamedTuple):
    """The values of a column that has nothing but numbers, without the places where there is none."""

    rows: npt.NDArray[np.intp]
    """Which publications have one."""
    doubles: npt.NDArray[np.float64]
    ordinals: npt.NDArray[np.int64]
    whole: bool
    """Whether all of them are integers."""


class Column:
    """One attribute over a batch: the values, and as arrays their kinds and places on the number line."""

    __slots__ = ("_arrays", "_publications", "_types", "_values", "name", "numbers")

    def __init__(
        self, name: str, publications: Sequence[Mapping[str, Value | None]], numbers: Numbers | None = None
    ) -> None:
        """
        Args:
            name: the attribute.
            publications: where it comes from.
            numbers: its values, if they are known and nothing but numbers.
        """
        self.name = name
        self.numbers = numbers
        self._publications = publications
        self._values: list[Any] | None = None
        self._types: set[type] | None = None
        self._arrays: _Arrays | None = None

    def __len__(self) -> int:
        return len(self._publications)

    @property
    def values(self) -> list[Any]:
        """The values as they came."""
        if self._values is None:
            name = self.name
            self._values = [publication.get(name) for publication in self._publications]
        return self._values

    @property
    def types(self) -> set[type]:
        """The types of the values."""
        if self._types is None:
            self._types = set(map(type, self.values))
        return self._types

    @property
    def kinds(self) -> npt.NDArray[np.uint8]:
        """The kind of each value."""
        return self._made().kinds

    @property
    def ordinals(self) -> npt.NDArray[np.int64]:
        """Ordinals of the doubles nearest to the numbers; anything where there is no number."""
        return self._made().ordinals

    @property
    def uniform(self) -> bool:
        """Whether the only kinds are ABSENT and NUMBER."""
        return self._made().uniform

    def _made(self) -> _Arrays:
        if self._arrays is None:
            if self.numbers is None:
                self._arrays = _arrays(self.name, self.values, self.types)
            else:
                kinds, ordinals = np.zeros(len(self), np.uint8), np.zeros(len(self), np.int64)
                kinds[self.numbers.rows] = NUMBER
                ordinals[self.numbers.rows] = self.numbers.ordinals
                self._arrays = _Arrays(kinds, ordinals, True)
        return self._arrays


class Columnar(Sequence["Mapping[str, Value | None]"]):
    """Publications that are columns already, such as those of an Arrow table (see `from_arrow`).

    Their values are of the language's own types, without ranges; slices are `Columnar` too.
    """

    @abstractmethod
    def column(self, name: str) -> Column:
        """The column of an attribute, also of one that no publication has."""

    @abstractmethod
    def names(self) -> set[str]:
        """The attributes that some publication may have."""


class _Arrays(NamedTuple):
    kinds: npt.NDArray[np.uint8]
    ordinals: npt.NDArray[np.int64]
    uniform: bool


class Batch:
    """Publications, with their columns made on demand."""

    __slots__ = ("_columns", "_divided", "_types", "publications")

    def __init__(
        self, publications: Sequence[Mapping[str, Value | None]], types: set[type] | None = None
    ) -> None:
        """
        Args:
            publications: what the columns are made of.
            types: the types of their values, where known.
        """
        self.publications = publications
        self._columns: dict[str, Column] = {}
        self._types = types if len(publications) >= TOGETHER_MIN else None
        self._divided: _Divided | None = None

    def __len__(self) -> int:
        return len(self.publications)

    def column(self, name: str) -> Column:
        """The column of an attribute."""
        column = self._columns.get(name)
        if column is None and isinstance(self.publications, Columnar):
            column = self._columns[name] = self.publications.column(name)
        if column is None:
            if self._types is not None:
                self._divided, self._types = _divided(self.publications, self._types), None
            numbers = None if self._divided is None else self._divided.numbers(name)
            column = self._columns[name] = Column(name, self.publications, numbers)
        return column

    def names(self) -> set[str]:
        """The attributes that some publication has."""
        if isinstance(self.publications, Columnar):
            return self.publications.names()
        return set(chain.from_iterable(self.publications))


class _Divided(NamedTuple):
    """The numbers of a batch by attribute."""

    place_of: Mapping[str, int]
    ends: list[int]
    """Where the numbers of each attribute end; the first entry is where they all begin."""
    all: Numbers

    def numbers(self, name: str) -> Numbers:
        place = self.place_of.get(name)
        part = slice(0, 0) if place is None else slice(self.ends[place], self.ends[place + 1])
        rows, doubles, ordinals, whole = self.all
        return Numbers(rows[part], doubles[part], ordinals[part], whole)


class _Places(dict[str, int]):
    """Numbers names as they come up."""

    def __missing__(self, name: str) -> int:
        place = self[name] = len(self)
        return place


def _divided(publications: Sequence[Mapping[str, Value | None]], types: set[type]) -> _Divided | None:
    """None unless all values are numbers for which doubles will do; also where there are too many names."""
    if not types <= _NUMBERS:
        return None
    places = _Places()
    try:
        doubles = np.fromiter(chain.from_iterable(map(_values, publications)), np.float64)
        # Small numbers for names, because sorting these takes a single pass.
        place = np.fromiter(map(places.__getitem__, chain.from_iterable(publications)), np.uint16)
    except OverflowError:
        return None
    if int in types and (np.abs(doubles) >= EXACT_MAX).any():
        return None
    order = np.argsort(place, kind="stable")
    sizes = np.fromiter(map(len, publications), np.intp, len(publications))
    doubles = doubles[order]
    ends = np.cumsum(np.bincount(place, minlength=len(places)))
    rows = np.repeat(np.arange(len(publications)), sizes)[order]
    return _Divided(
        places, [0, *ends.tolist()], Numbers(rows, doubles, ordinals_of(doubles), float not in types)
    )


class Checked(NamedTuple):
    """Publications whose values are of the language's own types."""

    publications: Sequence[Mapping[str, Value | None]]
    ranged: list[int]
    """Which of them hold ranges."""
    types: set[type]
    """The types that the values came in."""


def checked_publications(publications: Sequence[Mapping[str, Value | None]]) -> Checked:
    """The publications with values of the language's own types only.

    Other types that mean the same (NumPy's numbers, say) are converted; a value that cannot be
    matched raises a `PublicationError` that names the attribute.
    """
    if type(publications) is not list and isinstance(publications, Columnar):
        return Checked(publications, [], set())
    try:
        types = set(map(type, chain.from_iterable(map(_values, publications))))
    except AttributeError:
        for each in publications:
            checked_attributes(each)  # which says what is wrong with the one that is no mapping
        raise
    if not types <= _PLAIN:
        publications = [
            each if _PLAIN.issuperset(map(type, each.values())) else checked_attributes(each)
            for each in publications
        ]
    if Range not in types:
        return Checked(publications, [], types)
    ranged = [row for row, each in enumerate(publications) if Range in map(type, each.values())]
    return Checked(publications, ranged, types)


def check_integers(publications: Sequence[Mapping[str, Value | None]]) -> None:
    """Refuse integers beyond 64 bits, which columns find by themselves."""
    for publication in publications:
        for name, value in publication.items():
            if type(value) is int and not INT_MIN <= value <= INT_MAX:
                checked_attributes({name: value})


_values = methodcaller("values")


def _arrays(name: str, values: list[Any], types: set[type]) -> _Arrays:
    if types <= _NUMERIC:
        arrays = _numbers(values, types)
        if arrays is not None:
            return arrays
    elif types <= {str, _NONE}:
        kinds = np.full(len(values), STRING, np.uint8)
        if _NONE in types:
            kinds[[value is None for value in values]] = ABSENT
        return _Arrays(kinds, np.zeros(len(values), np.int64), False)
    return _mixed(name, values)


def _numbers(values: list[Any], types: set[type]) -> _Arrays | None:
    """Fast conversion; None when some integer is so large that a double would not do."""
    try:
        doubles = np.array(values, dtype=np.float64)  # None becomes NaN
    except OverflowError:
        return None
    if int in types and (np.abs(doubles) >= EXACT_MAX).any():
        return None
    kinds = np.full(len(values), NUMBER, np.uint8)
    blank = np.isnan(doubles)
    absent = blank
    if _NONE in types and np.count_nonzero(blank) > list(map(type, values)).count(_NONE):
        absent = np.fromiter((value is None for value in values), np.bool_, len(values))  # NaN is a value
    if _NONE in types:
        kinds[absent] = ABSENT
    return _Arrays(kinds, ordinals_of(doubles), True)


def ordinals_of(doubles: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """`float_to_ordinal` for an array."""
    bits = (doubles + 0.0).view(np.int64)
    ordinals = bits ^ ((bits >> np.int64(63)) & _MAGNITUDE)
    ordinals[np.isnan(doubles)] = _NAN
    return ordinals


def _mixed(name: str, values: list[Any]) -> _Arrays:
    kinds = np.zeros(len(values), np.uint8)
    doubles = np.zeros(len(values), np.float64)
    for row, value in enumerate(values):
        kinds[row] = kind = _kind(name, value)
        if kind in (NUMBER, LARGE):
            doubles[row] = float(value)
    return _Arrays(kinds, ordinals_of(doubles), False)


def _kind(name: str, value: Any) -> int:
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        return TRUE if value else FALSE
    if isinstance(value, int):
        if not INT_MIN <= value <= INT_MAX:
            checked_attributes({name: value})
        return LARGE if abs(value) >= EXACT_MAX else NUMBER
    if isinstance(value, float):
        return NUMBER
    return STRING if isinstance(value, str) else RANGE


def point_key(value: Any) -> Any:
    """What equality looks a value up by; None for values that are found another way.

    An integer and the double equal to it share a key, except beyond 2^53: there a double stands for
    several integers and has a key of its own.
    """
    kind = type(value)
    if kind is str or kind is int:
        return value
    if kind is float:
        return value if abs(value) < EXACT_MAX else ("double", value)
    return None

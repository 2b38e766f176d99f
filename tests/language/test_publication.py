"""Which attributes can be published, and what is said about the others?"""

from __future__ import annotations

import math
import pickle
from decimal import Decimal
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from braid.errors import PublicationError
from braid.language import Filter, Publication, Range, checked_attributes, flatten


class Side(IntEnum):
    BUY = 1


class Venue(str, Enum):  # noqa: UP042 - the kind whose str() is not its value
    PARIS = "paris"


class Name(str):
    """A subclass of str."""

    __slots__ = ()


PLAIN = [
    (1, 1), (1.5, 1.5), ("x", "x"), (True, True), (-(2**63), -(2**63)), (2**63 - 1, 2**63 - 1),
    (math.inf, math.inf), (Range(1, 2), Range(1, 2)), ("é😀", "é😀"), ("", ""),
    (np.int64(5), 5), (np.uint8(5), 5), (np.float32(0.5), 0.5), (np.float64(0.5), 0.5),
    (np.bool_(True), True),
    (np.str_("x"), "x"), (np.array(3), 3), (Side.BUY, 1), (Venue.PARIS, "paris"), (Name("x"), "x"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "kept"), PLAIN)
def test_values_become_plain(given: Any, kept: Any) -> None:
    checked = checked_attributes({"a": given})["a"]
    assert checked == kept
    assert type(checked) is type(kept)


REFUSED = [
    (2**63, "the integer 9223372036854775808 does not fit into 64 bits"),
    (-(2**63) - 1, "does not fit into 64 bits"),
    (np.uint64(2**63), "does not fit into 64 bits"),
    ([1], "a list is not a value that can be matched"),
    ({"b": 1}, "an object is not a value"),
    (b"x", "a value of type bytes"),
    (Decimal(1), "a value of type Decimal"),
    (1j, "a value of type complex"),
    (np.array([1]), "a value of type ndarray"),
    (np.datetime64("2026-01-01T00:00:00", "ns"), "a value of type datetime64"),
    (np.timedelta64(5, "ns"), "a value of type timedelta64"),
    ("a\ud800", "character 1 is half of a surrogate pair"),
    (Name("\ud800"), "half of a surrogate pair"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "message"), REFUSED)
def test_a_refused_value_is_named(value: Any, message: str) -> None:
    with pytest.raises(PublicationError) as caught:
        checked_attributes({"fine": 1, "price": value})
    assert str(caught.value).startswith("attribute 'price': ")
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["", 5, None, b"x", Name("x")])
def test_a_refused_name_is_shown(name: Any) -> None:
    with pytest.raises(PublicationError, match=r"name must be a non-empty string, not "):
        checked_attributes({name: 1})


def test_a_name_is_text() -> None:
    with pytest.raises(PublicationError, match=r"attribute '\\ud800': character 0 is half"):
        checked_attributes({"\ud800": 1})


def test_none_is_absent_and_the_copy_is_private() -> None:
    given = {"a": 1, "b": None}
    checked = checked_attributes(given)
    assert checked == {"a": 1}
    checked["a"] = 2
    assert given["a"] == 1
    assert checked_attributes(MappingProxyType({"a": 1})) == {"a": 1}


def test_attributes_are_a_mapping() -> None:
    with pytest.raises(PublicationError, match="must be a mapping of names to values, not list"):
        checked_attributes([("a", 1)])  # type: ignore[arg-type]


def test_flatten_gives_dotted_names() -> None:
    document = {"a": {"b": 1, "c": {"d": "x"}, "e": None}, "f": True, "g.h": 2.5, "empty": {}}
    assert flatten(document) == {"a.b": 1, "a.c.d": "x", "f": True, "g.h": 2.5}


def test_flatten_reads_ranges() -> None:
    assert flatten({"box": {"height": {"$range": {"low": 1, "high": 2.5}}}}) == {"box.height": Range(1, 2.5)}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([1], "must be a JSON object, not a list"),
        ("x", "must be a JSON object, not a string"),
        (None, "must be a JSON object, not null"),
        ({"a": {"b": [1]}}, "attribute 'a.b': a list is not a value"),
        ({"a": {"b": 1}, "a.b": 2}, "attribute 'a.b' is given twice"),
        ({"a.b": 2, "a": {"b": 1}}, "attribute 'a.b' is given twice"),
        ({"a": {"$range": 5}}, "attribute 'a': a range is"),
        ({"a": {"$range": {"low": 1}}}, "attribute 'a': a range is"),
        ({"a": {"$range": {"low": 2, "high": 1}}}, "attribute 'a': a Range runs from low to high"),
        (
            {"a": {"$range": {"low": "x", "high": 1}}},
            "attribute 'a': the low end of a Range must be a number",
        ),
        ({"a": {5: 1}}, "not 5 inside 'a'"),
        ({"a": {"": 1}}, "not '' inside 'a'"),
        ({"": 1}, "must be a non-empty string, not ''"),
    ],
)
def test_what_cannot_be_flattened_is_named(document: Any, message: str) -> None:
    with pytest.raises(PublicationError) as caught:
        flatten(document)
    assert message in str(caught.value)


def test_nesting_is_bounded() -> None:
    circle: dict[str, Any] = {}
    circle["a"] = circle
    with pytest.raises(PublicationError, match="nested deeper than 64 levels"):
        flatten(circle)


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        (2, 1, "not from 2 to 1"),
        (math.nan, 1, "low end of a Range cannot be NaN"),
        (1, "x", "high end of a Range must be a number, not str"),
        (True, 1, "low end of a Range must be a number, not bool"),
        (0, 2**63, "high end of a Range does not fit into 64 bits"),
    ],
)
def test_what_is_not_a_range(low: Any, high: Any, message: str) -> None:
    with pytest.raises(PublicationError, match=message):
        Range(low, high)


def test_ranges_are_values() -> None:
    assert Range(np.int64(1), np.float32(2.5)) == Range(1, 2.5)
    assert type(Range(np.int64(1), 2).low) is int
    assert len({Range(1, 2), Range(1, 2)}) == 1
    assert pickle.loads(pickle.dumps(Range(1, math.inf))) == Range(1, math.inf)


def test_a_publication_reads_like_a_mapping() -> None:
    publication = Publication({"price": 12.5}, body=b"x", publisher="p", sequence=3)
    assert publication["price"] == 12.5
    assert publication.get("gone") is None
    assert publication.get("gone", 0) == 0
    with pytest.raises(KeyError):
        publication["gone"]


def test_a_filter_takes_the_values_that_an_index_takes() -> None:
    wanted = Filter("a > 1")
    assert wanted.matches({"a": np.int64(5)})
    assert wanted.matches({"a": np.float32(2.5)})
    for value in (2**63, [1], b"x"):
        with pytest.raises(PublicationError, match="'a'"):
            wanted.matches({"a": value})
        with pytest.raises(PublicationError, match="'a'"):
            wanted.explain({"a": value})
    with pytest.raises(PublicationError, match="mapping"):
        wanted.matches(None)  # type: ignore[arg-type]


def test_filters_are_compared_with_filters() -> None:
    with pytest.raises(TypeError, match="not with str"):
        Filter("a > 1").covers("a > 2")  # type: ignore[arg-type]

"""z-codes: the paper's figures and examples, and domains whose places keep the order of values."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.errors import ConfigurationError, RemoteProtocolError
from braid.language import Range
from braid.p2p import NetworkSchema, attribute_zcode, encloses, interleave
from braid.p2p.schema import kind_of
from braid.p2p.space import Spaces, box_within, boxes_meet
from braid.p2p.zcode import (
    BooleanDomain,
    FloatDomain,
    IntegerDomain,
    OrdinalDomain,
    StringDomain,
    common_zcode,
    overlap,
    place_zcode,
)
from tests.language.strategies import BIG_INTEGERS, SPECIAL_FLOATS, STRINGS, WILD_FLOATS

NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.sampled_from([*BIG_INTEGERS, *WILD_FLOATS, *SPECIAL_FLOATS]),
)
TEXTS = st.one_of(st.text(max_size=12), st.sampled_from(STRINGS))


def literal_figure_2(lval: int, uval: int, lbnd: int, ubnd: int) -> str:
    """Figure 2 as printed, but for a domain of one value."""
    low, high, code, last = lbnd, ubnd, "", lbnd == ubnd
    while not last:
        middle = (low + high) / 2
        if lval <= middle and uval <= middle:
            high, code = math.floor(middle), code + "0"
        elif lval > middle and uval > middle:
            low, code = math.ceil(middle), code + "1"
        else:
            break
        last = low == high
    return code


def test_the_examples_of_the_paper() -> None:
    """Region 0010 of Figure 1: price has the code 01, weight 00, both from 0 to 100."""
    price, weight = attribute_zcode(26, 50, 0, 100), attribute_zcode(0, 25, 0, 100)
    assert (price, weight) == ("01", "00")
    assert interleave([price, weight]) == "0010"
    assert attribute_zcode(51, 100, 0, 100) == "1"
    # The upper left region has the code 01: the left half by price, then the upper half by weight.
    assert interleave([attribute_zcode(0, 50, 0, 100), attribute_zcode(51, 100, 0, 100)]) == "01"
    # Node 00 delegates to 000 and 001, node 01 to 010 and 011.
    assert encloses("01", "010")
    assert encloses("01", "011")
    assert not encloses("01", "001")
    assert overlap("0100", "01")
    assert overlap("01", "0100")
    assert not overlap("0100", "00")


def test_codes_of_single_values_are_equally_long() -> None:
    assert {len(attribute_zcode(value, value, 0, 100)) for value in range(101)} == {7}
    assert {len(attribute_zcode(value, value, 1, 256)) for value in range(1, 257)} == {8}
    assert attribute_zcode(5, 5, 5, 5) == ""
    assert attribute_zcode(1, 256, 1, 256) == ""


def test_interleaving_ends_with_the_shortest_code() -> None:
    assert interleave(["0101", "1"]) == "01"
    assert interleave(["", "1"]) == ""
    assert interleave([]) == ""
    assert interleave(["110"]) == "110"
    assert interleave(["11", "00", "10"]) == "101100"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((5, 3, 0, 100), "runs from low to high"),
        ((5, 7, 100, 0), "runs from low to high"),
        ((5, 101, 0, 100), "not within the domain"),
        ((-1, 3, 0, 100), "not within the domain"),
        ((0.5, 3, 0, 100), "whole numbers, not of 0.5"),
        (("3", 3, 0, 100), "whole numbers, not of '3'"),
    ],
)
def test_what_is_no_range_of_a_domain_is_refused(arguments: tuple[Any, ...], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        attribute_zcode(*arguments)


def test_what_is_no_code_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'02'"):
        interleave(["01", "02"])
    with pytest.raises(ConfigurationError, match="as a list"):
        interleave("01")  # type: ignore[arg-type]


@given(st.lists(st.integers(-300, 300), min_size=4, max_size=4))
def test_codes_are_those_of_figure_2(ends: list[int]) -> None:
    lower, low, high, upper = sorted(ends)
    assert attribute_zcode(low, high, lower, upper) == literal_figure_2(low, high, lower, upper)
    domain = IntegerDomain(lower, upper)
    assert common_zcode(domain.place(low), domain.place(high), domain.bits) == attribute_zcode(
        low, high, lower, upper
    )
    assert place_zcode(domain.place(low), domain.bits) == attribute_zcode(low, low, lower, upper)


@given(NUMBERS, NUMBERS)
def test_places_of_numbers_keep_their_order(one: float, other: float) -> None:
    def rank(value: float) -> tuple[bool, float]:
        return (value != value, 0 if value != value else value)

    low, high = sorted([one, other], key=rank)
    for domain in (OrdinalDomain(), IntegerDomain(-3, 90), FloatDomain(-2.5, 7.25, 0.1)):
        assert 0 <= domain.place(low) <= domain.place(high) < 1 << domain.bits


@given(TEXTS, TEXTS, st.sampled_from([1, 3, 8]))
def test_places_of_strings_keep_their_order(one: str, other: str, length_max: int) -> None:
    domain = StringDomain(length_max)
    low, high = sorted([one, other])
    assert 0 <= domain.place(low) <= domain.place(high) < 1 << domain.bits


def test_booleans_take_one_bit() -> None:
    assert (BooleanDomain().place(False), BooleanDomain().place(True), BooleanDomain().bits) == (0, 1, 1)


SCHEMA = NetworkSchema(
    {
        "amount": {"kind": "integer", "low": 0, "high": 11},
        "price": {"kind": "float", "low": 0, "high": 10, "granularity": 0.5},
        "symbol": {"kind": "string", "length_max": 1},
        "urgent": {"kind": "boolean"},
    }
)


@given(st.data())
def test_regions_divide_a_space_and_enclose_what_lies_in_them(data: st.DataObject) -> None:
    spaces = Spaces(SCHEMA)
    names = data.draw(st.lists(st.sampled_from(SCHEMA.dimensions), unique=True))
    space = spaces.of(names)
    assert spaces.named(space.name) is space
    assert space.depth == sum(SCHEMA.domain(*axis).bits for axis in names)
    box: list[int] = []
    for axis in space.axes:
        top = (1 << SCHEMA.domain(*axis).bits) - 1
        box += sorted(data.draw(st.integers(0, top)) for _ in range(2))
    code = space.enclosing(tuple(box))
    assert box_within(tuple(box), space.region(code))
    if len(code) < space.depth:
        halves = [space.region(code + bit) for bit in "01"]
        assert not boxes_meet(*halves)
        assert not any(box_within(tuple(box), half) for half in halves)
        assert all(boxes_meet(tuple(box), half) for half in halves)
        assert all(box_within(half, space.region(code)) for half in halves)
    else:
        assert space.region(code) == tuple(box)


def test_regions_of_equal_axes_are_those_of_the_paper() -> None:
    schema = NetworkSchema({name: {"kind": "integer", "low": 0, "high": 100} for name in ("price", "weight")})
    space = Spaces(schema).of(schema.dimensions)
    box = space.box_of({"price": Range(26, 50), "weight": Range(0, 25)})
    assert space.enclosing(box) == "0010"
    assert space.enclosing(space.box_of({"price": 3})) == "0"  # of any weight
    assert space.enclosing(space.box_of({"weight": 3})) == ""
    assert space.enclosing(space.box_of({"weight": "heavy"})) == ""


def test_keys_tell_spaces_and_regions_apart() -> None:
    spaces = Spaces(NetworkSchema())
    names = [
        [],
        [("a", "number")],
        [("a", "string")],
        [("a;b", "number")],
        [("a", "number"), ("b", "number")],
    ]
    made = [spaces.of(axes) for axes in names]
    assert [list(space.axes) for space in made] == names
    assert len({space.key(code) for space in made for code in ("", "0", "1")}) == 3 * len(names)
    with pytest.raises(RemoteProtocolError, match="'colour=a'"):
        spaces.named("colour=a")


def test_a_schema_says_what_it_cannot_use() -> None:
    for described, complaint in [
        ({"kind": "colour"}, "its kind is one of integer, float, string, boolean, not 'colour'"),
        ({"kind": "integer", "low": 3, "high": 1}, "not from 3 to 1"),
        ({"kind": "integer", "length_max": 3}, "'length_max' means nothing"),
        ({"kind": "float", "low": 0.5}, "all of low, high, granularity"),
        ({"kind": "float", "low": 0, "high": 1, "granularity": 0}, "granularity is positive"),
        ({"kind": "string", "length_max": 0}, "from 1 to 64 bytes, not 0"),
        ({"kind": "integer", "low": "0"}, "low is a number, not '0'"),
    ]:
        with pytest.raises(ConfigurationError, match=f"schema, attribute 'size': .*{complaint}"):
            NetworkSchema({"size": described})


def test_schemas_are_told_apart_by_their_digests() -> None:
    same = NetworkSchema({"b": {"kind": "boolean"}, "a": {"kind": "string", "length_max": 8}})
    again = NetworkSchema({"a": {"length_max": 8, "kind": "string"}, "b": {"kind": "boolean"}})
    other = NetworkSchema({"a": {"kind": "string", "length_max": 9}, "b": {"kind": "boolean"}})
    assert same.digest == again.digest
    assert len({same.digest, other.digest, NetworkSchema().digest}) == 3
    assert [kind_of(value) for value in (True, 1, 1.5, Range(1, 2), "x")] == [
        "boolean",
        "number",
        "number",
        "number",
        "string",
    ]

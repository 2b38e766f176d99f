"""Does every key of a file get the line it stands in?"""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.settings.lines import Place, key_lines

DOCUMENT = '''\
# A comment with [brackets] and = signs.
seed = 7
a.b = "x # no comment"

[topology]
name = 'line'   # [no table]
text = """
[not.a.table]
key = 1 \\""" still
"""
"quoted key" = [
    1,
    # between
    [2, 3], { p = 1, q = { r = 2 } },
]

[[faults]]
at = "1s"
[faults.inner]
deep = true

[[faults]]
at = "2s"
literal = \'\'\'
x = 1\'\'\'
empty = []
nothing = {}

[last]
number = -1.5e3
'''


def test_lines_of_a_document() -> None:
    lines = key_lines(DOCUMENT)
    assert lines[("seed",)] == 2
    assert lines[("a", "b")] == 3
    assert lines[("topology",)] == 5
    assert lines[("topology", "text")] == 7
    assert ("not", "a", "table") not in lines
    assert lines[("topology", "quoted key")] == 11
    assert lines[("topology", "quoted key", 0)] == 12
    assert lines[("topology", "quoted key", 1, 1)] == 14
    assert lines[("topology", "quoted key", 2, "q", "r")] == 14
    assert lines[("faults", 0)] == 17
    assert lines[("faults", 0, "inner", "deep")] == 20
    assert lines[("faults", 1, "at")] == 23
    assert lines[("faults", 1, "nothing")] == 27
    assert lines[("last", "number")] == 30
    assert set(places(tomllib.loads(DOCUMENT))) <= set(lines)


def places(value: Any, place: Place = ()) -> list[Place]:
    """Every key and element of a parsed document."""
    found: list[Place] = [place] if place else []
    if isinstance(value, dict):
        for key, each in value.items():
            found += places(each, (*place, key))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            found += places(each, (*place, number))
    return found


keys = st.sampled_from(["a", "b", "key_one", "key-2", "3"])
texts = st.sampled_from(["", "plain", "# [x] = {", "it's", "a, b]", "é"])
values = st.recursive(
    st.one_of(
        st.integers(-100, 100).map(str),
        st.booleans().map(lambda value: str(value).lower()),
        texts.map(lambda text: f'"{text}"'),
        texts.filter(lambda text: "'" not in text).map(lambda text: f"'{text}'"),
        texts.map(lambda text: f'"""\n{text}\n"""'),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[ " + ",\n  ".join(items) + " ]"),
        st.dictionaries(keys, inner.filter(lambda text: "\n" not in text), max_size=3).map(
            lambda items: "{ " + ", ".join(f"{key} = {value}" for key, value in items.items()) + " }"
        ),
    ),
    max_leaves=6,
)
tables = st.dictionaries(keys, values, max_size=4)


@given(
    top=tables,
    named=st.dictionaries(st.sampled_from(["t1", "t2"]), tables),
    many=st.lists(tables, max_size=3),
)
def test_every_place_is_found_in_a_line_that_names_it(
    top: dict[str, str], named: dict[str, dict[str, str]], many: list[dict[str, str]]
) -> None:
    def written(table: dict[str, str]) -> str:
        return "".join(f"{key} = {value}  # note\n" for key, value in table.items())

    text = written(top)
    text += "".join(f"\n[{name}]\n{written(table)}" for name, table in named.items())
    text += "".join(f"\n  [[many]]\n{written(table)}" for table in many)
    document = tomllib.loads(text)
    lines = key_lines(text)
    every = text.split("\n")
    for place in places(document):
        line = every[lines[place] - 1]
        if isinstance(place[-1], str):
            assert place[-1] in line
    assert set(lines) == set(places(document))


def test_what_is_not_toml_is_refused() -> None:
    with pytest.raises(ValueError, match="line 1"):
        key_lines("= 3")

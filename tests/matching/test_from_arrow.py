"""Does the index give the same answers for Arrow columns, and after a journey, as for mappings?"""

from __future__ import annotations

import random

import numpy as np
import pytest

from braid.errors import PublicationError
from braid.language import Filter
from braid.matching import FilterIndex
from braid.matching.from_arrow import ArrowPublications, listed_matches
from braid.matching.snapshot import pack, unpack
from tests.language.strategies import Maker

pa = pytest.importorskip("pyarrow")

TYPES = {
    "i": pa.int64(), "j": pa.int64(), "x": pa.float64(), "y": pa.float64(), "odd `name": pa.float64(),
    "s": pa.string(), "t": pa.string(), "p": pa.bool_(), "q": pa.bool_(),
    "d.e": pa.int64(), "d.f.g": pa.string(),
}  # fmt: skip


def table_of(rows: list[dict[str, object]]) -> ArrowPublications:
    columns = {name: pa.array([row.get(name) for row in rows], kind) for name, kind in TYPES.items()}
    return ArrowPublications(columns, len(rows))


@pytest.mark.parametrize(("part", "filters"), [(0, 20), (1, 400), (2, 900)])
def test_columns_and_mappings_give_the_same_answers(part: int, filters: int) -> None:
    maker = Maker(random.Random(f"from arrow/{part}"), typed=True, arithmetic=part, depth=2 + part)
    rows = [maker.publication() for _ in range(120)]
    items = [(place, Filter(maker.filter()), place % 5) for place in range(filters)]
    table = table_of(rows)
    plain: FilterIndex[int] = FilterIndex(items)
    travelled = unpack(pack(FilterIndex(items)))
    for index in (plain, travelled):
        assert index.match_batch(table) == plain.match_batch(rows)
        assert (index.count_batch(table) == plain.count_batch(rows)).all()
        assert (index.group_matrix(table).matrix == plain.group_matrix(rows).matrix).all()
        found = set()
        for listed in listed_matches(index, table):
            places = np.repeat(listed.rows, listed.counts).tolist()
            found |= set(zip(places, map(index.key_of, listed.slots.tolist()), strict=True))
        assert found == {(row, key) for row, keys in enumerate(plain.match_batch(rows)) for key in keys}


def test_lists_of_many_and_of_few_matches_agree() -> None:
    draw = random.Random("from arrow/lists")
    items = [
        (place, Filter(f"i BETWEEN {place % 50} AND {place % 50 + draw.randint(0, 20)}"))
        for place in range(3_000)
    ]
    index: FilterIndex[int] = FilterIndex(items)
    table = ArrowPublications({"i": pa.array([draw.randint(-5, 90) for _ in range(300)])}, 300)
    counts = np.zeros(300, np.int64)
    for listed in listed_matches(index, table):
        assert listed.counts.sum() == len(listed.slots)
        counts += np.bincount(listed.rows, weights=listed.counts, minlength=300).astype(np.int64)
    assert (counts == index.count_batch(table)).all()
    assert 0 in counts
    assert counts.max() > 500


def test_a_table_is_a_sequence_of_publications() -> None:
    table = ArrowPublications({"a": pa.array([1, None, 3]), "b": pa.array(["x", "y", None])}, 3)
    assert list(table) == [{"a": 1, "b": "x"}, {"b": "y"}, {"a": 3}]
    assert table[-1] == {"a": 3}
    assert list(table[1:]) == [{"b": "y"}, {"a": 3}]
    assert table.names() == {"a", "b"}
    with pytest.raises(ValueError, match="in a row"):
        table[::2]
    with pytest.raises(IndexError):
        table[3]


def test_types_that_mean_numbers_and_strings_are_converted() -> None:
    from decimal import Decimal

    arrays = {
        "small": pa.array([7], pa.int8()),
        "float": pa.array([0.5], pa.float32()),
        "decimal": pa.array([Decimal("1.50")]),
        "word": pa.array(["x"]).dictionary_encode(),
        "large": pa.array(["y"], pa.large_string()),
        "nothing": pa.nulls(1),
        "chunks": pa.chunked_array([[4]]),
    }
    text = "small = 7 AND float = 0.5 AND decimal = 1.5 AND word = 'x' AND large = 'y' AND chunks = 4"
    text += " AND nothing IS NULL"
    index: FilterIndex[str] = FilterIndex([("all", Filter(text)), ("other", Filter("missing IS NULL"))])
    assert index.match_batch(ArrowPublications(arrays, 1)) == [{"all", "other"}]


def test_a_type_that_cannot_be_matched_is_named() -> None:
    with pytest.raises(PublicationError, match="attribute 'day': a column of the type date32"):
        ArrowPublications({"day": pa.array([0], pa.date32())}, 1)


def test_a_packed_index_is_still_usable_and_parses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [(place, Filter(f"a > {place}")) for place in range(500)]
    index: FilterIndex[int] = FilterIndex(items)
    packed = pack(index)
    assert index[3] is items[3][1]
    monkeypatch.setattr("braid.matching.snapshot.parse", lambda text: pytest.fail(f"parsed {text}"))
    travelled = unpack(packed)
    assert travelled.match({"a": 3}) == {0, 1, 2}
    assert travelled[2].text == "a > 2"
    monkeypatch.undo()
    assert travelled[2] == Filter("a > 2")
    travelled.remove(1)
    travelled.add("new", Filter("a = 3"))
    assert travelled.match({"a": 3}) == {0, 2, "new"}

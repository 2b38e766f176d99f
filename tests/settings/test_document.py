"""Are values read as they were meant, and is every mistake named with its place and what would be right?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from braid.errors import ConfigurationError
from braid.settings import Document, Section, meanings_of, read_fields

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, kw_only=True)
class Group:
    """One of each kind."""

    count: int = 1
    """How many."""
    delta: int = 0
    """May be none,
    over two lines."""
    pause_us_max: int = 5
    """How long."""
    share: float = 0.5
    """How much."""
    quick: bool = False
    """Whether."""
    name: str = ""
    """Who."""
    others: tuple[str, ...] = ()
    """Who else."""
    place: Path | None = None
    """Where."""
    level: Literal["low", "high"] = "low"
    """Which."""


def section(text: str) -> Section:
    return Document.parse(text, "file", "mine.toml", Path("folder")).top()


def test_every_kind_of_field_is_read() -> None:
    top = section(
        'count = 3\ndelta = 0\npause_max = "2ms"\nshare = 1\nquick = true\nname = "x"\n'
        'others = ["a", "b"]\nplace = "data"\nlevel = "high"\n'
    )
    found = read_fields(top, Group)
    top.finish()
    assert Group(**found) == Group(
        count=3,
        pause_us_max=2_000,
        share=1.0,
        quick=True,
        name="x",
        others=("a", "b"),
        place=Path("folder/data"),
        level="high",
    )
    assert type(found["share"]) is float


def test_what_is_not_mentioned_is_left_out_and_an_empty_text_is_none() -> None:
    assert read_fields(section(""), Group) == {}
    assert read_fields(section('place = ""\nname = ""\n'), Group) == {"place": None, "name": ""}
    assert read_fields(section('place = "/data"\n'), Group) == {"place": Path("/data")}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("count = 0", "must be a whole number of at least 1, not 0"),
        ("count = true", "must be a whole number of at least 1, not True"),
        ("count = 1.0", "must be a whole number of at least 1, not 1.0"),
        ("delta = -1", "must be a whole number of at least 0, not -1"),
        ("pause_us_max = 0", "must be a whole number of at least 1, not 0"),
        ("pause_max = 5", 'must be a duration in quotes, such as "250ms", not 5'),
        ("pause_max = '0s'", "must be at least 1 us, not 0s"),
        ("share = 'half'", "must be a number, not 'half'"),
        ("share = true", "must be a number, not True"),
        ("quick = 1", "must be true or false, not 1"),
        ("name = 1", "must be text in quotes, not 1"),
        ("others = 'a'", "must be a list of strings, not 'a'"),
        ("others = [1]", "must be a list of strings, not [1]"),
        ("place = 1", "must be a path in quotes, not 1"),
        ("level = 'hihg'", "must be one of low, high, not 'hihg'; did you mean 'high'?"),
        ("level = 1", "must be one of low, high, not 1"),
    ],
)
def test_a_wrong_value_is_named_with_its_place_and_what_would_be_right(line: str, problem: str) -> None:
    table = section(f"[outer.inner]\n{line}\n").table("outer").table("inner")
    with pytest.raises(ConfigurationError) as caught:
        read_fields(table, Group)
    key = line.partition(" ")[0]
    assert str(caught.value) == f"file mine.toml, line 2, key {key!r} of [outer.inner]: {problem}"


def test_what_nobody_asked_for_is_not_known() -> None:
    top = section("count = 1\ncuont = 2\n")
    top.integer("count")
    with pytest.raises(ConfigurationError, match="line 2, key 'cuont': is not known; did you mean 'count'"):
        top.finish()
    with pytest.raises(ConfigurationError, match="is not known; it is elsewhere"):
        top.finish(lambda key: "it is elsewhere")
    both = section("pause_max = '1s'\npause_us_max = 1\n")
    with pytest.raises(ConfigurationError, match="line 2, key 'pause_us_max': 'pause_max' says the same"):
        read_fields(both, Group)


@pytest.mark.parametrize(
    ("text", "read", "problem"),
    [
        ("a = 1", lambda top: top.table("a"), r"key 'a': must be a table, \[a\], not 1"),
        ("a = 1", lambda top: top.tables("a"), r"key 'a': must be an array of tables, \[\[a\]\], not 1"),
        ("a = [1]", lambda top: top.tables("a"), "a number 1: must be a table, not 1"),
        (
            "[[a]]\n[[a]]\nx = 1",
            lambda top: top.tables("a")[1].text("x"),
            r"line 3, key 'x' of \[a nu.*2\]",
        ),
        ("b = 1", lambda top: top.text("a"), "'a' is missing; it must be text in quotes"),
        ("a = 2.5", lambda top: top.number("a", most=1), "must be a number from 0 to 1, not 2.5"),
        ("a = ['']", lambda top: top.texts("a"), "must be a list of non-empty strings"),
    ],
)
def test_tables_and_single_values(text: str, read: Callable[[Section], object], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        read(section(text))


def test_what_cannot_be_made_is_blamed_on_the_key_it_speaks_of() -> None:
    def make() -> None:
        raise ConfigurationError("count must be at most 9")

    with pytest.raises(ConfigurationError, match="line 2, key 'count': count must be at most 9"):
        section("name = 'x'\ncount = 10\n").attempt(make)
    with pytest.raises(ConfigurationError, match=r"^file mine\.toml: count must be at most 9"):
        section("name = 'x'\n").attempt(make)


def test_values_of_a_program_have_no_lines() -> None:
    top = Document({"outer": {"count": "many"}}, "the settings", Path()).top()
    with pytest.raises(ConfigurationError, match=r"^the settings, key 'count' of \[outer\]: must be a whole"):
        read_fields(top.table("outer"), Group)
    paths = Document({"place": Path("data")}, "the settings", Path()).top()
    assert read_fields(paths, Group) == {"place": Path("data")}


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"the file .*none\.toml cannot be read: No such file"):
        Document.read(tmp_path / "none.toml", "file")
    path = tmp_path / "broken.toml"
    for content in (b"a = = 1", b"\xff"):
        path.write_bytes(content)
        with pytest.raises(ConfigurationError, match=r"the file .*broken\.toml is not valid TOML"):
            Document.read(path, "file")
    path.write_bytes(b"a = 1\r\nb = 2\r\n")
    with pytest.raises(ConfigurationError, match="line 2, key 'b'"):
        Document.read(path, "file").top().text("b")


def test_meanings_come_from_the_source() -> None:
    assert meanings_of(Group)["delta"] == "May be none, over two lines."
    assert set(meanings_of(Group)) == set(Group.__dataclass_fields__)

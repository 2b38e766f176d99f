"""Does every name that the documents quote still exist?

A quoted word that looks like a name of ours (`FilterIndex`, `link_queue_bytes_max`, `broker/turn.py`,
`Channel.send`) has to occur in the sources, the tests, the benchmarks or the build files. Tables of old names
are left out: they are there to be looked up.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Pages of results are made from rows, whose metrics may have names that are put together.
DOCUMENTS = [
    ROOT / "README.md",
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if path.parent.name != "results"),
]
# They say what was called otherwise before.
OF_OLD_NAMES = ("0026-lives-and-events.md", "0030-one-api.md", "0033-plain-names.md")
# Names of other programs, and files that users make or that are made for them.
OF_OTHERS = ("TimeoutStopSec", "quotes.NYSE.ACME")
MADE = (
    "broker.toml",
    "access.toml",
    "settings.toml",
    "scenario.toml",
    "report.json",
    "workload.json",
    "current.json",
    "compiled.json",
)

_CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"[\w./-]+\.(?:py|md|txt|json|toml)")
# Words with an underscore, a dot or a capital inside; perhaps called, perhaps with a star for the rest.
_NAME = re.compile(r"_*[A-Za-z][\w.]*(?:\(\))?")
_LOOKS_LIKE_OURS = re.compile(r"_|[a-z][A-Z]|[A-Za-z]\.[A-Za-z]")


@cache
def words() -> frozenset[str]:
    found: set[str] = set()
    for pattern in ("src/**/*.py", "tests/**/*.py", "benchmarks/**/*.py", "examples/*", "Makefile", "*.toml"):
        for file in ROOT.glob(pattern):
            if file.is_file() and file.name != Path(__file__).name:
                found.update(re.findall(r"\w+", file.read_text()))
    return frozenset(found)


@cache
def files() -> frozenset[str]:
    below = frozenset(
        str(file.relative_to(ROOT))
        for folder in ("src", "tests", "docs", "benchmarks", "deploy", "examples", "newsfragments")
        for file in (ROOT / folder).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    )
    return below | {file.name for file in ROOT.glob("*.py")}


def missing(text: str) -> list[str]:
    """The quoted names of a document that are nowhere."""
    found = []
    for quoted in _QUOTED.findall(_CODE_BLOCK.sub("", text)):
        if _PATH.fullmatch(quoted):
            name = quoted.split("/")[-1]
            if name not in MADE and not any(file.endswith(quoted.removeprefix("./")) for file in files()):
                found.append(quoted)
        elif _NAME.fullmatch(quoted) and _LOOKS_LIKE_OURS.search(quoted):
            name = quoted.removesuffix("()")
            parts = name.split(".")
            if quoted.startswith("braid_"):
                # Metrics have the names of counters, or of a group and its members, with "braid" before them.
                name = name.removeprefix("braid_").removesuffix("_total")
                parts = [name] if name in words() else name.split("_")
            if name not in OF_OTHERS and any(part and part not in words() for part in parts):
                found.append(quoted)
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_every_quoted_name_exists(document: Path) -> None:
    if document.name not in OF_OLD_NAMES:
        assert missing(document.read_text()) == []


def test_a_name_that_is_gone_is_found() -> None:
    text = "See `FilterIndex`, `Postroom_of_old`, `broker/no_such_file.py` and `Channel.no_such_method`."
    assert missing(text) == ["Postroom_of_old", "broker/no_such_file.py", "Channel.no_such_method"]


@pytest.mark.parametrize("page", ["glossary.md", "glossary-internal.md"])
def test_a_word_stands_once_in_a_section_of_a_glossary(page: str) -> None:
    """The bus and the network may each have theirs; what is explained twice in one place is two things."""
    for section in (ROOT / "docs" / page).read_text(encoding="utf-8").split("\n## ")[1:]:
        rows = re.findall(r"^\| \*\*([^*]+)\*\*", section, re.MULTILINE)
        words = [word.strip() for row in rows for word in row.split(",")]
        assert words, section
        assert sorted({word for word in words if words.count(word) > 1}) == [], section.splitlines()[0]

"""Does every test exist that the document of guarantees names?"""

from __future__ import annotations

import ast
import itertools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = sorted(
    set(re.findall(r"`(tests/[\w/]+\.py)::(\w+|\*)`", (ROOT / "docs" / "guarantees.md").read_text("utf-8")))
)


def test_the_document_names_tests() -> None:
    assert len(NAMED) > 20


@pytest.mark.parametrize(("file", "test"), NAMED, ids="::".join)
def test_a_named_test_exists(file: str, test: str) -> None:
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    functions = {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    tests = {name for name in functions if name.startswith("test_")}
    assert tests
    assert test == "*" or test in tests


def test_every_row_names_a_test() -> None:
    """A promise that nothing shows is none; a cell may refer to another one of its row."""
    lines = (ROOT / "docs" / "guarantees.md").read_text("utf-8").splitlines()
    rows = [line for before, line in itertools.pairwise(lines) if line.startswith("| ") and before]
    headings = {line for line, after in itertools.pairwise(lines) if after.startswith("|---")}
    unshown = [row for row in rows if row not in headings and "`tests/" not in row]
    assert unshown == ["| others | in order | may overtake each other |"]

"""Does the document list the tables as they are?"""

from __future__ import annotations

import re
from pathlib import Path

from braid.trace.records import TABLES

DOCUMENT = Path(__file__).parents[2] / "docs" / "traces.md"


def test_the_document_lists_every_column() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", text, re.MULTILINE | re.DOTALL))
    assert list(sections) == list(TABLES)
    for kind, columns in TABLES.items():
        rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| (.+) \|$", sections[kind], re.MULTILINE)
        assert rows == [
            (column.name, column.type + (", nullable" if column.nullable else ""), column.meaning)
            for column in columns
        ]

"""Do the messages that documents quote exist?

In the page about troubleshooting, words between backquotes that are neither a command nor a setting are a
message, or the end of one, as people meet it; `...` stands for what differs. Each has to be in a text of the
source.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from typer.main import get_command

from braid.cli.app import app

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "troubleshooting.md"
# Stands for a value in a text of the source.
VALUE = "\0"
NO_MESSAGE = re.compile(r"--|=|^braid [A-Z]|[{}()]")


def quoted(text: str) -> list[str]:
    """The messages of a page: more than one word, and none of those that are typed."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose)]
    commands = {"braid " + each.partition(" ")[0] for each in command_names()}
    return [
        span
        for span in spans
        if " " in span and not NO_MESSAGE.search(span) and " ".join(span.split()[:2]) not in commands
    ]


@cache
def command_names() -> list[str]:
    """What may be typed after `braid`."""
    return list(get_command(app).commands)  # type: ignore[attr-defined]


@cache
def said() -> str:
    """Every text of the source, one per line, with `VALUE` for what is put in."""
    texts = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                pieces = [part.value if isinstance(part, ast.Constant) else VALUE for part in node.values]
                texts.append("".join(map(str, pieces)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return "\n".join(text.replace("\n", " ") for text in texts)


def exists(message: str) -> bool:
    """A number or a name in the message may be a value in the source."""
    words = [re.escape(part) for part in message.strip(". ").split("...")]
    pattern = r"[^\n]*".join(re.sub(r"\b\d+\b", rf"(?:\\g<0>|{VALUE})", part) for part in words)
    pattern = re.sub(r"\\g<0>", r"\\d+", pattern)
    return re.search(pattern, said()) is not None


@pytest.mark.parametrize("message", quoted(PAGE.read_text(encoding="utf-8")))
def test_a_quoted_message_is_one_that_people_meet(message: str) -> None:
    assert exists(message), f"no text of the source says {message!r}"


def test_messages_that_nobody_says_are_noticed() -> None:
    page = (
        "`Java was not found`, `braid is not here`, `data directory ... is in use`, `--ship`, "
        "`braid overlay show`, `x = 1`, `slow peer`"
    )
    assert quoted(page) == [
        "Java was not found",
        "braid is not here",
        "data directory ... is in use",
        "slow peer",
    ]
    assert [exists(each) for each in quoted(page)] == [False, False, True, False]
    assert not exists("Spark needs Python 17 or newer")
    assert exists("Spark needs Java 17 or newer, and none was found")

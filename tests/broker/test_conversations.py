"""Do the brokers say what the conversations expect, word for word?

`BRAID_REWRITE=1 pytest tests/broker/test_conversations.py` writes what they say now into the files; the
difference is then to be reviewed like code.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.broker.conversation import DASHES, Conversation, parsed

FOLDER = Path(__file__).parents[1] / "conversations"
REWRITE = os.environ.get("BRAID_REWRITE", "") not in ("", "0")


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.txt")), ids=lambda file: file.stem)
def test_conversation(file: Path) -> None:
    text = file.read_text()
    conversation = Conversation()
    written: list[str] = []
    for comments, command, _ in parsed(text):
        written += comments
        if command is not None:
            written += [command, DASHES, *conversation.say(command)]
    answer = "\n".join(written) + "\n"
    if REWRITE:
        file.write_text(answer)
        return
    assert answer == text


def test_every_conversation_begins_with_what_it_shows() -> None:
    files = sorted(FOLDER.glob("*.txt"))
    assert files
    for file in files:
        assert file.read_text().startswith("# "), f"{file.name} opens with a comment"

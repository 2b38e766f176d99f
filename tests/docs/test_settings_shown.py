"""Are tables of settings that documents show understood by the reader of settings?

Blocks that are written to a file are run by the examples after them; the other ones in TOML are pieces of a
broker's configuration, and are read here as the whole of it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from braid.errors import ConfigurationError
from braid.server.settings import ServerSettings
from tests.docs.runner import Block, blocks_of

ROOT = Path(__file__).parents[2]
SHOWN = [
    block
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for block in blocks_of(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)))
    if block.language == "toml" and block.file_name is None
]


def read(text: str, folder: Path) -> ServerSettings:
    path = folder / "broker.toml"
    path.write_text(text, encoding="utf-8")
    return ServerSettings.of(path, broker_id="A", listen="127.0.0.1:0")


@pytest.mark.parametrize("block", SHOWN, ids=lambda block: block.place)
def test_settings_are_those_that_brokers_read(block: Block, tmp_path: Path) -> None:
    read(block.text, tmp_path)


def test_a_setting_that_does_not_exist_is_noticed(tmp_path: Path) -> None:
    assert len(SHOWN) >= 3
    with pytest.raises(ConfigurationError, match="polcy"):
        read('[topology]\npolcy = "exact"\n', tmp_path)

"""What users notice is written where the changelog is made from."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KINDS = {
    kind["directory"]
    for kind in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]["type"]
}


@pytest.mark.parametrize("path", sorted((ROOT / "newsfragments").iterdir()), ids=lambda path: path.name)
def test_a_fragment_is_read(path: Path) -> None:
    topic, kind, suffix = path.name.split(".")
    assert topic
    assert kind in KINDS, f"towncrier passes over it: kinds are {sorted(KINDS)}"
    assert suffix == "md"
    assert path.read_text().strip()


def test_the_changelog_can_be_made() -> None:
    pytest.importorskip("towncrier")
    command = (sys.executable, "-m", "towncrier", "build", "--draft", "--version", "1.0")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "## 1.0" in done.stdout

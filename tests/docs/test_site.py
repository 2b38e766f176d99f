"""The site is made of all documents, without a warning, and loads nothing from other hosts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOORS = ("guide.html", "data-engineers.html", "operations.html", "experiments.html")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="the site needs mkdocs: pip install 'braid-pubsub[docs]'")
    place = tmp_path_factory.mktemp("site")
    command = (sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", "website/mkdocs.yml")
    done = subprocess.run(
        (*command, "--site-dir", str(place)),
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return place


@pytest.mark.soak
def test_every_reader_has_a_door(site: Path) -> None:
    start = (site / "index.html").read_text()
    for door in DOORS:
        assert f'href="{door}"' in start
        assert (site / door).is_file()


@pytest.mark.soak
def test_every_document_is_a_page(site: Path) -> None:
    pages = {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}
    documents = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    assert documents <= pages


@pytest.mark.soak
def test_nothing_is_loaded_from_other_hosts(site: Path) -> None:
    loaded = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=["']?(https?:)?//[^>]*>""")
    found = {
        match[0]
        for path in site.rglob("*.html")
        for match in loaded.finditer(path.read_text())
        if 'rel="canonical"' not in match[0]
    }
    assert found == set()


@pytest.mark.soak
def test_how_examples_are_run_is_not_shown(site: Path) -> None:
    assert "no-run" not in (site / "operations.html").read_text()
    assert "file=cut.toml" not in (site / "scenarios.html").read_text()

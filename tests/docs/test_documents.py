"""Does every example in the documents do what it says?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.runner import Block, ExampleFailed, blocks_of, run_blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks_in(path: Path) -> list[Block]:
    return blocks_of(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)))


WITH_SPARK = [path for path in DOCUMENTS if any(block.needs_spark for block in blocks_in(path))]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_the_examples_of_a_document(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_blocks([block for block in blocks_in(path) if not block.needs_spark], {"__name__": "example"})


@pytest.mark.parametrize("path", WITH_SPARK, ids=name_of)
def test_the_examples_that_need_spark(
    path: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = [block for block in blocks_in(path) if block.language == "python"]
    run_blocks(blocks, {"__name__": "example", "spark": spark})


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("```python\n>>> 1 + 1\n3\n```\n", "Expected:\n    3"),
        ("```python\nprint(5)\n```\n\n```text\n6\n```\n", "the program above"),
        ("```console\n$ braid nonsense\n```\n", "is not a command"),
        ("```console\n$ braid explain --nonsense 'a = 1' '{}'\n```\n", "has no option --nonsense"),
        ("```console\n$ braid explain 'a =' '{}'\n```\n", "failed: "),
        (
            "```console\n$ braid explain 'a = 1' '{\"a\": 1}'\ndoes not match\n```\n",
            "expected:\ndoes not match",
        ),
    ],
)
def test_a_wrong_example_is_noticed(document: str, message: str) -> None:
    with pytest.raises(ExampleFailed) as caught:
        run_blocks(blocks_of(document, "page.md"), {})
    assert message in str(caught.value)
    assert "page.md" in str(caught.value)


def test_right_examples_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    document = (
        '```json file=one.json\n{"a": 1}\n```\n'
        '```python\n>>> import pathlib\n>>> name = pathlib.Path("one.json").read_text()\n'
        '>>> name\n\'{"a"...\n```\n'
        "```python\nprint(len(name))\n```\n```text\n9\n```\n"
        "```console\n$ make tea\n$ braid explain 'a = 1' \\\n    \"$(cat one.json)\"\nmatches\n...\n```\n"
        "```python no-run\nraise SystemExit\n```\n"
    )
    run_blocks(blocks_of(document, "page.md"), {})

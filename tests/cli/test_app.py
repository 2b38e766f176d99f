"""Do the other commands parse, print and end with the right code?"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from braid.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable

FILTER = "symbol = 'ACME' AND price > 10"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ending:
            main(arguments)
        captured = capsys.readouterr()
        code = ending.value.code
        assert isinstance(code, int)
        return code, captured.out, captured.err

    return call


def test_explain_says_which_condition_failed(run) -> None:
    assert run("explain", FILTER, '{"symbol": "ACME", "price": 9.5}')[0] == 0
    code, output, errors = run("explain", "--exit-code", FILTER, '{"symbol": "ACME", "price": 9.5}')
    assert (code, errors) == (1, "")
    assert "price > 10" in output
    assert "9.5" in output


def test_explain_of_a_match(run) -> None:
    assert run("explain", "--exit-code", FILTER, '{"symbol": "ACME", "price": 12}')[0] == 0


def test_explain_as_json(run) -> None:
    code, output, _ = run("explain", "--json", "--exit-code", FILTER, '{"symbol": "ACME"}')
    assert code == 1
    assert isinstance(json.loads(output), dict)


def test_explain_reads_standard_input(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"box": {"height": 2}}\n')))
    assert run("explain", "box.height = 2", "-")[0] == 0


def test_explain_reads_a_pattern(run) -> None:
    pattern = '{"price": [{"numeric": [">", 10]}]}'
    assert run("explain", "--exit-code", "--pattern", pattern, '{"price": 12}')[0] == 0
    assert run("explain", "--exit-code", "--pattern", pattern, '{"price": 10}')[0] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("price >", "{}"), "line 1, column 8"),
        ((FILTER, "{"), "the publication is not JSON"),
        ((FILTER, "[]"), "must be a JSON object"),
        ((FILTER, '{"a": [1]}'), "attribute 'a'"),
        (("--pattern", '{"a": 1}', "{}"), "$.a: "),
    ],
)
def test_explain_says_what_it_cannot_read(run, arguments: tuple[str, ...], message: str) -> None:
    code, output, errors = run("explain", *arguments)
    assert (code, output) == (2, "")
    assert errors.startswith("braid: ")
    assert message in errors


def test_text_from_standard_input_that_is_not_unicode(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"a": "\xff"}')))
    code, _, errors = run("explain", "a = 1", "-")
    assert code == 2
    assert errors.startswith("braid: the publication is not UTF-8")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ["match", "explain", "bench", "demo"]),
        (("match",), ["--only-matching", "--on-error", "Examples:", "tail -f"]),
        (("explain",), ["--pattern", "Examples:", "symbol = 'ACME'"]),
        (("demo",), ["--seconds", "Examples:"]),
    ],
)
def test_help(run, arguments: tuple[str, ...], words: list[str]) -> None:
    code, output, _ = run(*arguments, "--help")
    assert code == 0
    assert [word for word in words if word not in output] == []


def test_version(run) -> None:
    code, output, _ = run("--version")
    assert code == 0
    assert output.startswith("braid ")
    assert "interpreted" in output or "modules compiled" in output


def test_paragraphs_of_help_are_filled(run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines end where the terminal does, and not where they end in the source."""
    for columns in ("80", "120"):
        monkeypatch.setenv("COLUMNS", columns)
        _, output, _ = run("broker", "--help")
        about = output.partition("Options")[0].partition("Without TLS")[2].partition("Exit code")[0]
        lines = [line.strip() for line in about.splitlines() if line.strip()]
        first_words = [line.split()[0] for line in lines]
        assert len(lines) > 2
        for line, following in zip(lines[1:], first_words[2:], strict=False):
            assert len(line) + 1 + len(following) > int(columns) - 2, line


def test_help_imports_nothing_heavy() -> None:
    command = (
        "import sys\nfrom braid.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print(sorted({'numpy', 'pyspark', 'numba', 'braid.matching'} & set(sys.modules)), file=sys.stderr)"
    )
    finished = subprocess.run([sys.executable, "-c", command], capture_output=True, check=True, text=True)
    assert finished.stderr.strip() == "[]"


@pytest.mark.parametrize("ending", [0, 1])
def test_demo_passes_its_options_on_and_ends_as_told(
    run, monkeypatch: pytest.MonkeyPatch, ending: int
) -> None:
    asked = {}

    def fake(**options: object) -> SimpleNamespace:
        asked.update(options)
        return SimpleNamespace(exit_code=ending)

    monkeypatch.setattr("braid.cli.demo.run_demo", fake)
    assert run("demo", "--embedded", "--seconds", "2.5", "--seed", "7", "--json")[0] == ending
    assert asked == {"seconds": 2.5, "seed": 7, "json_output": True}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_message() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-c", "from braid.cli import main; main()", "explain", "a = 1", '{"a": 1}']
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert done.returncode == 2
    assert done.stderr.startswith("braid: cannot read or write: ")
    assert "Traceback" not in done.stderr


def test_standard_input_is_not_overwritten(tmp_path: Path) -> None:
    publications, filters = tmp_path / "publications.jsonl", tmp_path / "filters.jsonl"
    publications.write_text('{"a": 1}\n')
    filters.write_text('"a = 1"\n')
    command = [sys.executable, "-c", "from braid.cli import main; main()", "match"]
    command += ["--filters", str(filters), "--publications", "-", "--output", str(publications)]
    with publications.open() as source:
        done = subprocess.run(command, stdin=source, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "while it is being read" in done.stderr
    assert publications.read_text() == '{"a": 1}\n'


def test_the_module_is_the_command() -> None:
    command = [
        sys.executable,
        "-m",
        "braid",
        "explain",
        "--exit-code",
        FILTER,
        '{"symbol": "ACME", "price": 12}',
    ]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0

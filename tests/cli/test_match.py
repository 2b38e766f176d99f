"""Does `braid match` answer line by line, and say clearly what it cannot read?"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from braid.cli import main
from braid.cli.json_lines import read_batches

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILTERS = """\
{"id": "dear", "filter": "price > 10"}
"symbol LIKE 'AC%'"
{"id": 7, "pattern": {"detail": {"state": ["open"]}}}

{"filter": "price IS NULL"}
"""
PUBLICATIONS = """\
{"symbol": "ACME", "price": 12}
{"symbol": "XY", "price": 3}

{"detail": {"state": "open"}}
"""
ANSWERS = [
    {"line": 1, "matches": ["dear", 2]},
    {"line": 2, "matches": []},
    {"line": 4, "matches": [7, 5]},
]


@pytest.fixture
def files(tmp_path: Path) -> Callable[[str, str], tuple[str, str]]:
    def write(filters: str, publications: str) -> tuple[str, str]:
        first, second = tmp_path / "filters.jsonl", tmp_path / "publications.jsonl"
        first.write_text(filters, encoding="utf-8")
        second.write_text(publications, encoding="utf-8")
        return str(first), str(second)

    return write


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., tuple[int, list[Any], str]]:
    def call(*arguments: str) -> tuple[int, list[Any], str]:
        with pytest.raises(SystemExit) as ending:
            main(["match", *arguments])
        captured = capfdbinary.readouterr()
        code = ending.value.code
        assert isinstance(code, int)
        return code, [json.loads(line) for line in captured.out.splitlines()], captured.err.decode()

    return call


def test_each_publication_gets_its_line(files, run) -> None:
    filters, publications = files(FILTERS, PUBLICATIONS)
    assert run("--filters", filters, "--publications", publications) == (0, ANSWERS, "")


def test_only_matching_leaves_out_the_rest(files, run) -> None:
    filters, publications = files(FILTERS, PUBLICATIONS)
    code, answers, _ = run("-f", filters, "-p", publications, "--only-matching")
    assert (code, answers) == (0, [ANSWERS[0], ANSWERS[2]])


def test_counts(files, run) -> None:
    filters, publications = files(FILTERS, PUBLICATIONS)
    code, answers, _ = run("-f", filters, "-p", publications, "--counts")
    assert (code, answers) == (
        0,
        [{"line": 1, "count": 2}, {"line": 2, "count": 0}, {"line": 4, "count": 2}],
    )
    _, answers, _ = run("-f", filters, "-p", publications, "--counts", "--only-matching")
    assert [answer["line"] for answer in answers] == [1, 4]


def test_output_goes_to_a_file(files, run, tmp_path: Path) -> None:
    filters, publications = files(FILTERS, PUBLICATIONS)
    output = tmp_path / "answers.jsonl"
    assert run("-f", filters, "-p", publications, "-o", str(output)) == (0, [], "")
    assert [json.loads(line) for line in output.read_text().splitlines()] == ANSWERS


def test_standard_input_for_either(files, run, monkeypatch: pytest.MonkeyPatch) -> None:
    filters, publications = files(FILTERS, PUBLICATIONS)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(PUBLICATIONS.encode())))
    assert run("-f", filters, "-p", "-")[1] == ANSWERS
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(FILTERS.encode())))
    assert run("-f", "-", "-p", publications)[1] == ANSWERS


def test_no_filters_and_no_publications(files, run) -> None:
    filters, publications = files("", PUBLICATIONS)
    assert [answer["matches"] for answer in run("-f", filters, "-p", publications)[1]] == [[], [], []]
    filters, publications = files(FILTERS, "")
    assert run("-f", filters, "-p", publications) == (0, [], "")


def test_more_publications_than_fit_into_a_batch(files, run) -> None:
    filters, publications = files('"a >= 5000"', "".join(f'{{"a": {value}}}\n' for value in range(10_000)))
    code, answers, _ = run("-f", filters, "-p", publications)
    assert code == 0
    assert answers == [{"line": n + 1, "matches": [1] if n >= 5000 else []} for n in range(10_000)]


def test_a_mark_at_the_start_and_windows_line_ends(files, run) -> None:
    filters, publications = files('\ufeff"a = 1"\r\n', '\ufeff{"a": 1}\r\n\r\n{"a": 2}\r\n')
    assert run("-f", filters, "-p", publications)[1] == [
        {"line": 1, "matches": [1]},
        {"line": 3, "matches": []},
    ]


BAD_PUBLICATIONS = [
    ('{"a": }', "not JSON: invalid character"),
    ('{"a": 1', "not JSON"),
    ("[1]", "a publication must be a JSON object, not a list"),
    ('{"a": [1]}', "attribute 'a': a list is not a value"),
    ('{"a": 99999999999999999999}', "64 bits"),
    ('{"a": {"b": 1}, "a.b": 2}', "given twice"),
    ("[" * 5000, "nested too deeply"),
]


@pytest.mark.parametrize(("line", "message"), BAD_PUBLICATIONS)
def test_a_bad_publication_stops_after_what_came_before(files, run, line: str, message: str) -> None:
    filters, publications = files('"a = 1"', '{"a": 1}\n{"a": 2}\n' + line + '\n{"a": 1}\n')
    code, answers, errors = run("-f", filters, "-p", publications)
    assert code == 2
    assert answers == [{"line": 1, "matches": [1]}, {"line": 2, "matches": []}]
    assert errors.startswith(f"braid: {publications}:3: ")
    assert message in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(("line", "message"), BAD_PUBLICATIONS)
def test_bad_publications_can_be_skipped(files, run, line: str, message: str) -> None:
    filters, publications = files('"a = 1"', f'{{"a": 1}}\n{line}\n{{"a": 1}}\n')
    code, answers, errors = run("-f", filters, "-p", publications, "--on-error", "skip")
    assert code == 0
    assert [answer["line"] for answer in answers] == [1, 3]
    first, last = errors.splitlines()
    assert first.startswith(f"braid: skipped {publications}:2: ")
    assert message in first
    assert last.endswith("1 lines skipped")


def test_text_that_is_not_unicode(tmp_path: Path, run) -> None:
    filters, publications = tmp_path / "f", tmp_path / "p"
    filters.write_text('"a = 1"')
    publications.write_bytes(b'{"a": "\xff"}\n')
    code, answers, errors = run("-f", str(filters), "-p", str(publications))
    assert (code, answers) == (2, [])
    assert errors.startswith(f"braid: {publications}:1: not UTF-8")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('"price >"', "expected"),
        ('{"id": 1, "filter": "price >"}', "line 1, column 8"),
        ('{"id": 1}', "expected either a filter or a pattern"),
        ('{"id": 1, "filter": "a = 1", "pattern": {"a": [1]}}', "expected either a filter or a pattern"),
        ('{"id": 1, "filter": 5}', "must be a string of SQL"),
        ('{"id": 1.5, "filter": "a = 1"}', "an id must be a string or an integer"),
        ('{"id": true, "filter": "a = 1"}', "an id must be a string or an integer"),
        ('{"id": "first", "filter": "a = 1"}', "the id 'first' is already that of line 1"),
        ('{"id": 1, "filters": "a = 1"}', "unknown key 'filters'"),
        ('{"id": 1, "pattern": {"a": [{"cidr": "10.0.0.0/8"}]}}', "$.a[0].cidr"),
        ('{"id": 1, "pattern": {"a": [1], "a": [2]}}', "occurs twice"),
        ("12", 'expected {"id"'),
        ("{", "not JSON"),
    ],
)
def test_a_bad_filter_is_named(files, run, line: str, message: str) -> None:
    filters, publications = files('{"id": "first", "filter": "a = 1"}\n' + line, '{"a": 1}')
    code, answers, errors = run("-f", filters, "-p", publications)
    assert (code, answers) == (2, [])
    assert errors.startswith(f"braid: {filters}:2: ")
    assert message in errors
    code, answers, errors = run("-f", filters, "-p", publications, "--on-error", "skip")
    assert (code, answers) == (0, [{"line": 1, "matches": ["first"]}])
    assert f"skipped {filters}:2: " in errors


def test_files_that_cannot_be_used(files, run, tmp_path: Path) -> None:
    filters, publications = files(FILTERS, PUBLICATIONS)
    missing = str(tmp_path / "missing")
    for arguments, message in [
        (("-f", missing, "-p", publications), f"{missing}: cannot be read"),
        (("-f", filters, "-p", missing), f"{missing}: cannot be read"),
        (("-f", filters, "-p", str(tmp_path)), "cannot be read"),
        (("-f", filters, "-p", publications, "-o", str(tmp_path)), "cannot be written"),
        (("-f", filters, "-p", publications, "-o", publications), "while it is being read"),
        (("-f", "-", "-p", "-"), "cannot both come from standard input"),
    ]:
        code, answers, errors = run(*arguments)
        assert (code, answers) == (2, [])
        assert message in errors
        assert "Traceback" not in errors


def test_options_are_checked(files, run) -> None:
    filters, publications = files(FILTERS, PUBLICATIONS)
    assert run("-f", filters)[0] == 2
    assert run("-f", filters, "-p", publications, "--on-error", "explode")[0] == 2


def test_a_reader_that_stops_early_is_no_error(files) -> None:
    filters, publications = files('"a >= 0"', "".join(f'{{"a": {value}}}\n' for value in range(50_000)))
    reader, writer = os.pipe()
    command = "from braid.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", command, "match", "-f", filters, "-p", publications],
        stdout=writer,
        stderr=subprocess.PIPE,
    ) as process:
        os.close(writer)
        assert os.read(reader, 10).startswith(b'{"line":1')
        os.close(reader)
        assert process.communicate(timeout=60)[1] == b""


def test_a_pipe_is_answered_before_it_ends(files) -> None:
    filters, _ = files('"a = 1"', "")
    command = "from braid.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", command, "match", "-f", filters, "-p", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(1, 4):
            process.stdin.write(b'{"a": 1}\n')
            process.stdin.flush()
            assert json.loads(process.stdout.readline()) == {"line": number, "matches": [1]}
        process.stdin.close()
        assert process.wait(timeout=60) == 0


def test_batches_keep_numbers_and_bounds() -> None:
    text = b"1\n\n  \n2\n3\n4"
    assert list(read_batches(io.BytesIO(text), 2)) == [[(1, b"1"), (4, b"2")], [(5, b"3")], [(6, b"4")]]
    assert list(read_batches(io.BytesIO(b""), 2)) == []

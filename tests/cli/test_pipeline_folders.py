"""What the pipeline's commands write without Spark, they write here, and not into a folder `s3a:`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from braid.cli import main
from braid.cli.terminal import spinner

if TYPE_CHECKING:
    from pathlib import Path

BUCKET = "s3a://bucket/folder"


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["live", BUCKET, "--to", "live"], "TRACE_DIR"),
        (["live", "traces", "--to", BUCKET], "--to"),
        (["compact", BUCKET], "TRACE_DIR"),
        (["archive", "--log", "orders", "--to", BUCKET], "--to"),
        (["plan", "--traces", "traces", "--out", BUCKET], "--out"),
    ],
)
def test_a_url_is_refused_where_spark_does_not_write(
    command: list[str],
    option: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", *command])
    assert ended.value.code
    said = " ".join(capsys.readouterr().err.split())
    assert f"{option}: {BUCKET} is a URL, and these files are written without Spark" in said
    assert not [*tmp_path.iterdir()]


def test_a_table_gets_no_more_than_a_few_hundred_files_a_day(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", "archive", "--log", "orders", "--to", "place", "--table", "orders", "--every", "1"])
    assert ended.value.code
    assert "86,400 files a day; give 300 seconds or more" in " ".join(capsys.readouterr().err.split())


def test_what_is_waited_for_is_said_once_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    with spinner("Spark starts, which takes some seconds") as status:
        assert status is None
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "Spark starts, which takes some seconds\n")

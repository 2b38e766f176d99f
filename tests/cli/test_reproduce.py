"""Does `braid reproduce` print what was asked for, and nothing else on standard output?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from braid.cli import main
from braid.pipeline.experiments import registry
from braid.pipeline.experiments.durations import QUICK, Duration
from tests.pipeline.test_reproduce import SMALL_EXPERIMENT

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ending:
        main(["reproduce", *arguments])
    captured = capsys.readouterr()
    assert isinstance(ending.value.code, int)
    return ending.value.code, captured.out, captured.err


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    code, output, errors = run(capsys, "list")
    assert (code, errors) == (0, "")
    assert "multipath.baseline" in output
    assert run(capsys)[1] == output
    code, output, errors = run(capsys, "list", "--json")
    assert (code, errors) == (0, "")
    assert {"multipath.baseline"} <= {each["name"] for each in json.loads(output)}
    listed = {each["name"]: each for each in json.loads(output)}
    assert listed["self-organising.adaptivity"]["quick_seconds"] > 0
    assert listed["self-organising.adaptivity"]["quick_seconds_measured"] is False


def test_durations_are_those_of_experiments_and_say_whether_they_were_measured() -> None:
    assert set(QUICK) <= set(registry.registered())
    assert str(Duration(75.4)) == "~ 75 s"
    assert str(Duration(600, measured=True)) == "10 min"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("multipath.basline",), "did you mean multipath.baseline"),
        (("multipath.baseline", "--scale", "huge"), "huge"),
        (("multipath.baseline", "--seeds", "0"), "seeds"),
    ],
)
def test_what_cannot_be_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    code, output, errors = run(capsys, *arguments)
    assert (code, output) == (2, "")
    assert message in errors


@pytest.mark.slow
def test_rows_as_json_and_as_a_table(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "experiments_named", lambda name: [SMALL_EXPERIMENT])
    out = tmp_path / "out"
    code, output, errors = run(capsys, "multipath.baseline", "--seeds", "2", "--json", "--out", str(out))
    assert code == 0
    assert errors == f"braid: the report is {out / 'report.html'}\n"
    rows = json.loads(output)
    assert {row["metric"] for row in rows} == {
        "pure_forwarders",
        "yield",
        "deliveries",
        "mean_hops",
        "messages",
        "duplicates",
        "second_arrivals",
    }
    for row in rows:
        assert list(row)[:7] == [
            "paper",
            "experiment",
            "metric",
            "labels",
            "paper_value",
            "measured",
            "ratio",
        ]
        assert (row["paper"], row["experiment"], row["seeds"]) == ("multipath", "baseline", 2)
        assert row["interval"][0] <= row["measured"] <= row["interval"][1]
    monkeypatch.setenv("COLUMNS", "160")
    code, output, errors = run(capsys, "multipath.baseline", "--seeds", "2", "--out", str(out))
    assert code == 0
    assert "pure_forwarders" in output
    assert "dataset DT4" in " ".join(output.split())

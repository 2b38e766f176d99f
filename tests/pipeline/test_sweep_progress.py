"""Does somebody who waits for a sweep hear how far it is?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.pipeline.experiments import sweep_progress
from braid.pipeline.experiments.sweep_progress import watching

if TYPE_CHECKING:
    import pytest


def test_a_watcher_hears_of_every_change_and_of_the_end() -> None:
    finished = 0
    heard: list[tuple[int, int]] = []
    with watching(lambda: finished, 3, "runs", lambda *news: heard.append(news)):
        finished = 3
    assert heard[-1] == (3, 3)
    assert len(set(heard)) == len(heard)


def test_a_log_gets_a_line_when_the_last_is_long_ago(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = 0
    with watching(lambda: finished, 3, "short"):
        finished = 1
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sweep_progress, "_LINE_SECONDS", 0.0)
    finished = 0
    with watching(lambda: finished, 3, "long"):
        finished = 2
    assert "long: 2 of 3 runs, 0:00 gone\n" in capsys.readouterr().err

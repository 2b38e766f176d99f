"""Every row through Spark once, although each kind of process is killed in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.reliability.spark_kills import BROKER, DRIVER, EXECUTOR, WORKER, Run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.net, pytest.mark.soak, pytest.mark.timeout(1200)]

ROWS = 20_000
BATCHES = 20


def test_an_executor_a_driver_a_broker_and_a_worker_are_killed(tmp_path: Path) -> None:
    kinds = [EXECUTOR, DRIVER, BROKER, WORKER]
    run = Run(tmp_path, ROWS, kinds, 1, "braid", "local-cluster[2,1,1024]", batches=BATCHES)
    counted = run.run(pause_s=1.0)
    assert (counted["rows"], counted["duplicates"], counted["lost"]) == (ROWS, 0, 0)
    assert counted["kills"] == dict.fromkeys(kinds, 1)
    assert counted["batches"] >= BATCHES

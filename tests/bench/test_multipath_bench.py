"""Does the benchmark of multipath forwarding measure what it says?"""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from braid.errors import ConfigurationError
from braid_bench.multipath import MultipathCostSettings, bench_multipath, multipath_settings_for
from braid_bench.multipath_tables import print_multipath_report

SMALL = MultipathCostSettings(subscriptions=2_000, fanout=8, delta=3, rows=32, batches=2, turns=2)


def test_a_small_run() -> None:
    titles: list[str] = []
    report = json.loads(json.dumps(bench_multipath(SMALL, titles.append)))
    assert titles[-1] == "maps and tables"
    cells = {cell["case"]: cell for cell in report["cells"]}
    assert list(cells) == ["S0, sees its neighbours", "S0, sees as far as S2", "S1", "S2"]
    assert [cell["soft_links"] for cell in cells.values()] == [0, 0, 5, 5]
    tree, far, *others = (cell["copies_per_publication"] for cell in cells.values())
    assert tree == far
    assert all(others)
    assert all(cell["cpu_us_per_publication"] > 0 for cell in cells.values())
    assert report["working_map"]["links"] == 8
    assert [row["goal"][:6] for row in report["goals"]] == ["S2: pa", "making", "making"]
    output = io.StringIO()
    print_multipath_report(report, Console(file=output, width=200))
    assert "S0, sees its neighbours" in output.getvalue()


def test_settings() -> None:
    assert multipath_settings_for(quick=True, seed=3).seed == 3
    assert multipath_settings_for().subscriptions == 10_000
    with pytest.raises(ConfigurationError, match="9 brokers in sight"):
        bench_multipath(MultipathCostSettings(delta=2, fanout=35))
    with pytest.raises(ConfigurationError, match="nobody wants anything"):
        bench_multipath(replace(SMALL, subscriptions=1))

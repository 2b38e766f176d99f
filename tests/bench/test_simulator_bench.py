"""Does the simulator's benchmark count what it says, and can its report be read?"""

from __future__ import annotations

import json
from io import StringIO

import pytest
from rich.console import Console

from braid.errors import LocalProtocolError
from braid_bench import simulator
from braid_bench.simulator import SimulatorBenchSettings, bench_simulator, simulator_settings_for
from braid_bench.simulator_tables import print_simulator_report

SMALL = SimulatorBenchSettings(
    brokers=6, subscribers=4, publishers=2, classes=3, matches=(2,), publications=12, windows=2, peers=10
)


@pytest.fixture(scope="module")
def report() -> dict[str, object]:
    return bench_simulator(SMALL)


def test_every_case_moves_the_same_messages(report: dict[str, list[dict[str, float]]]) -> None:
    cells = report["cells"]
    assert len({cell["case"] for cell in cells}) == len(cells) >= 6
    assert {cell["published"] for cell in cells} == {24}
    assert {cell["delivered"] for cell in cells} == {48}
    assert len({cell["messages"] for cell in cells}) == 1
    # A publication crosses at least a link for each broker that wants it and is not the publisher's own.
    assert 24 <= cells[0]["messages"] <= 24 * (SMALL.brokers - 1)


def test_the_report_is_json_and_can_be_printed(report: dict[str, object]) -> None:
    assert json.loads(json.dumps(report)) == report | {"settings": json.loads(json.dumps(report["settings"]))}
    text = StringIO()
    print_simulator_report(report, Console(file=text, width=160))
    for words in ("Messages per CPU second", "checkers", "linked broker", "Goals", "the least", "the goal"):
        assert words in text.getvalue()


def test_memory_is_measured(report: dict[str, dict[str, float]]) -> None:
    memory = report["memory"]
    assert 0 < memory["bytes_per_trivial_peer"] < memory["bytes_per_linked_broker"]
    assert memory["bytes_per_linked_broker"] < memory["bytes_per_broker_with_tables_and_stations"]


def test_a_wrong_count_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = simulator._Simulation._counted
    monkeypatch.setattr(simulator._Simulation, "_counted", lambda self: counted(self) | {"delivered": 0})
    with pytest.raises(LocalProtocolError, match="delivered"):
        bench_simulator(SMALL)


def test_quick_settings_are_smaller() -> None:
    quick, usual = simulator_settings_for(quick=True), simulator_settings_for(seed=3)
    assert quick.publications < usual.publications
    assert (quick.brokers, usual.brokers, usual.seed) == (120, 120, 3)

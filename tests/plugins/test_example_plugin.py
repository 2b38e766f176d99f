"""The example of a distribution with parts of its own, installed as users would and used by name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.broker_process import running_broker

if TYPE_CHECKING:
    from collections.abc import Mapping

PLUGIN = Path(__file__).parents[2] / "examples" / "plugin"

SCENARIO = """
seed = 1
strategy = "FEW"
duration = "2s"
drain = "2s"

[topology]
name = "line"
count = 7

[workload]
subscriptions = [
  { broker = "B000", client = "near", filter = "kind = 'a'" },
  { broker = "B006", client = "far", filter = "kind = 'a'" },
]
publications = [
  { broker = "B002", client = "source", attributes = { kind = "a" }, every = "100ms" },
]
"""

BROKERS = """
import asyncio, json
import braid

async def main():
    settings = {"directory": {"url": "textfile://here"}, "topology": {"policy": "reluctant"}}
    first = braid.ServerSettings.of(settings, broker_id="A", listen="127.0.0.1:0", strategy="FEW")
    async with braid.serve(first) as broker:
        second = braid.ServerSettings.of(
            settings, broker_id="B", listen="127.0.0.1:0", strategy="FEW", neighbours=[broker.address]
        )
        async with braid.serve(second) as neighbour, braid.connect(neighbour.address) as client:
            quotes = await client.subscribe("price > 10")
            async with braid.connect(broker.address) as publisher:
                await (await publisher.publish({"price": 12}, delivery="acknowledged"))
            links = broker.statistics()["links_up"]
            print(json.dumps({"price": (await quotes.get())["price"], "links": links}))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment of a process in which the plug-in is installed."""
    place = tmp_path_factory.mktemp("installed")
    offline = ("--no-index", "--no-deps", "--no-build-isolation")
    command = (
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        *offline,
        "--target",
        str(place),
        str(PLUGIN),
    )
    subprocess.run(command, check=True, timeout=120, capture_output=True)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(place), os.environ.get("PYTHONPATH", "")])}


def braid(*words: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "braid", *words)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def test_a_simulation_forwards_by_its_strategy(installed: Mapping[str, str], tmp_path: Path) -> None:
    scenario = tmp_path / "few.toml"
    scenario.write_text(SCENARIO)
    done = braid("simulate", str(scenario), "--json", environment=installed)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["deliveries"] == 2 * summary["publications"] > 0


def test_brokers_use_its_parts_by_name(installed: Mapping[str, str]) -> None:
    done = subprocess.run(
        (sys.executable, "-c", BROKERS), env=installed, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"price": 12, "links": 1}


def test_without_it_its_strategy_is_not_known(tmp_path: Path) -> None:
    scenario = tmp_path / "few.toml"
    scenario.write_text(SCENARIO)
    done = braid("simulate", str(scenario))
    assert done.returncode != 0
    assert "FEW" in done.stderr
    assert "S0, S1, S2, SH" in " ".join(done.stderr.split())


def test_a_policy_of_a_plugin_can_be_asked_about_and_chosen(
    installed: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", installed["PYTHONPATH"])
    with running_broker("A", "--topology-policy", "reluctant") as broker:
        said = braid("overlay", "topology", "--json", "--broker", broker.address)
        assert said.returncode == 0, said.stdout + said.stderr
        assert [each["policy"] for each in json.loads(said.stdout)] == ["reluctant"]
        for policy in ("static", "reluctant"):
            chosen = braid("overlay", "topology", policy, "--json", "--broker", broker.address)
            assert [each["policy"] for each in json.loads(chosen.stdout)] == [policy]
        refused = braid("overlay", "topology", "best", "--broker", broker.address)
        assert refused.returncode == 2
        assert "exact, reluctant; 'best' is none" in refused.stdout + refused.stderr

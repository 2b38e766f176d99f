"""Are servers started, watched and ended cleanly, and are rivals installed without becoming services?"""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from braid.errors import ConfigurationError
from braid_bench.brokers import install, rivals
from braid_bench.brokers.contest import BrokerBenchSettings, hold_scenario
from braid_bench.brokers.measure import Scenario
from braid_bench.brokers.processes import family, family_cpu_seconds, family_memory_bytes
from braid_bench.brokers.server import HOST, ServerProcess, find_program, free_ports

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.net

# Listens, and has a child that ends when its parent does.
LISTENER = """
import socket, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
while True:
    listener.accept()[0].close()
"""


class Listener(ServerProcess):
    program = sys.executable

    def launch(self, port: int) -> None:
        self.run(sys.executable, "-c", LISTENER, HOST, str(port))


class Failing(ServerProcess):
    program = sys.executable

    def launch(self, port: int) -> None:
        self.run(sys.executable, "-c", "raise SystemExit('no room')")


class Absent(ServerProcess):
    program = "braid-no-such-server"

    def launch(self, port: int) -> None:
        self.run(self.program)


def test_a_server_is_watched_with_its_children_and_leaves_nothing() -> None:
    server = Listener()
    try:
        assert len(family(server._processes[0].pid)) == 2
        assert server.cpu_seconds() > 0
        assert server.memory_bytes() > 1_000_000
        pid = server._processes[0].pid
    finally:
        server.stop()
    assert not server.directory.exists()
    assert family(pid) == []


def test_a_server_that_ends_while_starting_is_quoted() -> None:
    with pytest.raises(ConfigurationError, match="status 1 while starting: no room"):
        Failing()


def test_a_missing_server_says_how_to_get_it() -> None:
    reason = Absent.missing()
    assert reason is not None
    assert "apt-get install" in reason
    with pytest.raises(ConfigurationError, match="not installed"):
        Absent()


def test_this_process_has_spent_time_and_memory() -> None:
    mine = [os.getpid()]
    assert family(os.getpid())[0] == os.getpid()
    assert family_cpu_seconds(mine) > 0
    assert family_memory_bytes(mine) > 1_000_000


def test_free_ports_are_different() -> None:
    assert len(set(free_ports(5))) == 5
    assert find_program("braid-no-such-server") is None


def test_where_nothing_can_be_installed_the_way_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "installed_version", lambda package: None)
    monkeypatch.setattr(install.os, "geteuid", lambda: 1000)
    with pytest.raises(ConfigurationError, match="as root on Debian: apt-get install"):
        install.install_rivals()


class Machine:
    """Notes commands instead of running them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, policy: Path, present: set[str]) -> None:
        self.commands: list[list[str]] = []
        self.policy_seen: list[str] = []
        self._policy = policy
        monkeypatch.setattr(install, "_POLICY", policy)
        monkeypatch.setattr(install, "installed_version", lambda package: "1" if package in present else None)
        monkeypatch.setattr(install.os, "geteuid", lambda: 0)
        monkeypatch.setattr(install.shutil, "which", lambda name: f"/usr/bin/{name}")
        monkeypatch.setattr(install.subprocess, "run", self.run)

    def run(self, command: Any, **_: Any) -> SimpleNamespace:
        self.commands.append(list(command))
        if command[0] == "apt-get":
            self.policy_seen.append(self._policy.read_text())
        return SimpleNamespace(stdout="", returncode=0)


def test_only_missing_rivals_are_installed_and_only_theirs_disabled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine = Machine(monkeypatch, tmp_path / "policy", {"mosquitto", "rabbitmq-server"})
    assert install.install_rivals() == ["nats-server", "activemq"]
    assert machine.commands[0] == ["apt-get", "update"]
    assert machine.commands[1][-2:] == ["nats-server", "activemq"]
    disabled = {command[-1] for command in machine.commands[2:]}
    assert disabled == {"nats-server.service", "activemq.service"}
    # No service may start meanwhile, and the machine's policy is as before.
    assert all("exit 101" in text for text in machine.policy_seen)
    assert not (tmp_path / "policy").exists()


def test_a_policy_that_is_there_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    policy = tmp_path / "policy"
    policy.write_text("#!/bin/sh\nexit 104\n")
    machine = Machine(monkeypatch, policy, set())
    install.install_rivals()
    assert set(machine.policy_seen) == {"#!/bin/sh\nexit 104\n"}
    assert policy.exists()


def test_a_failing_installation_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    Machine(monkeypatch, tmp_path / "policy", set())

    def fails(command: Any, **_: Any) -> None:
        raise subprocess.CalledProcessError(100, command, stderr="E: no network")

    monkeypatch.setattr(install.subprocess, "run", fails)
    with pytest.raises(ConfigurationError, match="apt-get update failed: E: no network"):
        install.install_rivals()
    assert not (tmp_path / "policy").exists()


@pytest.mark.slow
@pytest.mark.parametrize("rival", rivals(), ids=lambda rival: rival.name)
def test_a_real_rival_delivers_exactly_what_it_should(rival) -> None:
    if rival.missing() is not None:
        pytest.skip(rival.missing())
    settings = BrokerBenchSettings(
        rounds=1, turn_seconds=0.1, warm_up_seconds=0.01, messages_max=500, latency_seconds=0.1
    )
    plain = Scenario(name="plain", title="", connections=1, outstanding=(50, 1), latency=True)
    filtering = Scenario(name="filtering", title="", connections=3, subscriptions=300)
    for scenario in (plain, filtering) if rival.filter_form else (plain,):
        cell = hold_scenario(scenario, [rival], settings, lambda line: None)
        assert cell["left_out"] == {}
        for row in cell["contenders"][rival.name]["closed_loop"].values():
            assert row["deliveries"] > 0

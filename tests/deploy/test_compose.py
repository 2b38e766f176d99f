"""What is under deploy/ works without Docker, too: its keys, configurations and commands on loopback."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import braid
from braid.runtime.tls import TlsSettings
from tests.runtime.zookeeper import zookeeper_server

if TYPE_CHECKING:
    from collections.abc import Iterator

yaml = pytest.importorskip("yaml", reason="compose files are read with PyYAML, which mkdocs brings")

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
BROKERS = ("a", "b", "c")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What make-keys.sh makes."""
    if shutil.which("openssl") is None:
        pytest.skip("make-keys.sh needs openssl, which is not installed")
    place = tmp_path_factory.mktemp("deploy") / "keys"
    command = ("sh", str(DEPLOY / "compose" / "make-keys.sh"), str(place))
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return place


def test_keys_are_for_their_owner_alone(keys: Path) -> None:
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys.iterdir()} == {0o600}


def test_keys_are_not_overwritten(keys: Path) -> None:
    before = (keys / "authority.key").read_bytes()
    command = ("sh", str(DEPLOY / "compose" / "make-keys.sh"), str(keys))
    again = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert again.returncode == 1
    assert "has keys already" in again.stderr
    assert (keys / "authority.key").read_bytes() == before


def test_every_file_that_a_container_mounts_is_there() -> None:
    mounts = [
        mount.split(":")[0]
        for service in COMPOSE["services"].values()
        for mount in service.get("volumes", [])
        if mount.startswith(".")
    ]
    missing = [each for each in mounts if each != "./keys" and not (DEPLOY / "compose" / each).exists()]
    assert mounts
    assert missing == []


def test_volumes_and_ports() -> None:
    named = {
        mount.split(":")[0]
        for service in COMPOSE["services"].values()
        for mount in service.get("volumes", [])
        if not mount.startswith(".")
    }
    assert named == set(COMPOSE["volumes"])
    published = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in published), "nothing is open to other hosts"
    assert len(published) == len({port.split(":")[1] for port in published})


def test_the_image_has_what_it_copies() -> None:
    text = (DEPLOY / "compose" / "Dockerfile").read_text()
    copied = [
        word
        for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE)
        for word in line.split()[:-1]
    ]
    assert copied
    assert [word for word in copied if not (ROOT / word).exists()] == []
    extras = re.findall(r"'\.\[([a-z,]+)\]'", text)[0].split(",")
    assert set(extras) <= set(
        re.findall(r"^([a-z]+) = \[$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    )


def test_prometheus_reads_its_configuration(keys: Path, tmp_path: Path) -> None:
    checker = shutil.which("promtool")
    if checker is None:
        pytest.skip("promtool is not installed (Debian's package prometheus)")
    text = (DEPLOY / "compose" / "prometheus.yaml").read_text().replace("/etc/braid/keys", str(keys))
    (tmp_path / "prometheus.yml").write_text(text)
    subprocess.run((checker, "check", "config", str(tmp_path / "prometheus.yml")), check=True, timeout=30)


def test_the_unit_of_systemd() -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(DEPLOY / "systemd" / "braid-broker@.service")
    words = unit["Service"]["ExecStart"].split()
    help_text = subprocess.run(
        (sys.executable, "-m", "braid", words[1], "--help"), capture_output=True, text=True, timeout=60
    ).stdout
    assert words[2] in help_text
    drain_s = braid.ServerSettings.of(broker_id="x").broker.drain_us_max / 1e6
    assert float(unit["Service"]["TimeoutStopSec"]) > drain_s


def test_systemd_accepts_the_unit() -> None:
    checker = shutil.which("systemd-analyze")
    if checker is None:
        pytest.skip("systemd-analyze is not installed")
    done = subprocess.run(
        (checker, "verify", "--man=no", str(DEPLOY / "systemd" / "braid-broker@.service")),
        capture_output=True,
        text=True,
        timeout=60,
    )
    wrong = [line for line in done.stderr.splitlines() if "braid" in line and "not executable" not in line]
    assert [line for line in wrong if "not-found" not in line and "No such file" not in line] == []


# The brokers of compose.yaml as processes.


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@pytest.fixture
def started(keys: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The addresses of the three brokers, each started with the words and the file of its service."""
    ports = _free_ports(6)
    listening = dict(zip(BROKERS, ports[:3], strict=True))
    http = dict(zip(BROKERS, ports[3:], strict=True))
    with zookeeper_server(tmp_path / "zookeeper") as zookeeper, ExitStack() as stack:
        for broker in BROKERS:
            mounts = COMPOSE["services"][broker]["volumes"]
            [mounted] = [mount for mount in mounts if mount.split(":")[1] == "/etc/braid/broker.toml"]
            text = (DEPLOY / "compose" / mounted.split(":")[0]).read_text()
            for name, port in listening.items():
                text = text.replace(f"{name}.example:7000", f"127.0.0.1:{port}")
            text = text.replace("0.0.0.0:7000", f"127.0.0.1:{listening[broker]}")
            text = text.replace("0.0.0.0:9000", f"127.0.0.1:{http[broker]}")
            text = text.replace("zookeeper.example:2181", zookeeper.host)
            text = text.replace("/etc/braid/keys", str(keys))
            text = text.replace("/var/lib/braid", str(tmp_path / broker))
            configuration = tmp_path / f"{broker}.toml"
            configuration.write_text(text)
            words = [
                str(configuration) if word == "/etc/braid/broker.toml" else word
                for word in COMPOSE["services"][broker]["command"]
            ]
            log = stack.enter_context((tmp_path / f"{broker}.log").open("wb"))
            command = (sys.executable, "-m", "braid", *words)
            process = stack.enter_context(subprocess.Popen(command, stderr=log, stdout=log))
            stack.callback(process.send_signal, signal.SIGTERM)
        yield {broker: f"braids://127.0.0.1:{port}" for broker, port in listening.items()}


@pytest.mark.net
@pytest.mark.soak
def test_the_three_brokers_are_a_network(started: dict[str, str], keys: Path) -> None:
    trust = TlsSettings(authority=keys / "authority.pem")
    token = (keys / "client.token").read_text()
    with (
        braid.connect_sync(started["a"], token=token, tls=trust, timeout_s=60) as reader,
        braid.connect_sync(started["c"], token=token, tls=trust, timeout_s=60) as writer,
    ):
        heard = reader.subscribe("shop = 7")
        writer.publish({"shop": 7}, delivery="acknowledged").wait(30)
        assert heard.get(timeout_s=30)["shop"] == 7
    environment = {**os.environ, "BRAID_TOKEN": (keys / "operator.token").read_text()}
    command = ("overlay", "show", "--broker", started["a"], "--ca", str(keys / "authority.pem"), "--json")
    done = subprocess.run(
        (sys.executable, "-m", "braid", *command),
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    shown: dict[str, Any] = json.loads(done.stdout)
    assert all(broker in json.dumps(shown) for broker in BROKERS)

"""Connections to a TLS port that say nothing: are they counted, bounded, and closed in time?"""

from __future__ import annotations

import socket
import urllib.request
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from braid.runtime.connecting import connect
from braid.runtime.tls import TlsSettings
from tests.cli.broker_process import BrokerProcess, running_broker
from tests.hostile.attackers import PATIENCE_S
from tests.runtime.certificates import Authority

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.net


def options(authority: Authority, folder: Path, **settings: int) -> tuple[str, ...]:
    files = authority.issue("listener")
    configuration = folder / "broker.toml"
    configuration.write_text("[broker]\n" + "".join(f"{key} = {value}\n" for key, value in settings.items()))
    return (
        *("--tls-certificate", str(files.certificate), "--tls-key", str(files.key)),
        *("--config", str(configuration), "--http", "127.0.0.1:0"),
    )


def silent(broker: BrokerProcess) -> socket.socket:
    host, port = broker.address.removeprefix("braids://").split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S / 4)


def ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def number(broker: BrokerProcess, name: str) -> float:
    with urllib.request.urlopen(f"{broker.http}/metrics", timeout=10) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(f"{name}{{"):
                return float(line.rpartition(" ")[2])
    raise AssertionError(f"there is no {name}")


def test_silent_connections_are_closed_in_time_and_counted(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with (
        running_broker("A", *options(authority, tmp_path, handshake_us_max=1_000_000)) as broker,
        ExitStack() as stack,
    ):
        connections = [stack.enter_context(silent(broker)) for _ in range(20)]
        assert all(map(ended, connections))
        assert number(broker, "braid_handshakes_failed_total") == 20
        assert number(broker, "braid_handshakes_under_way") == 0


async def test_silent_connections_count_from_the_first_moment(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with (
        running_broker("A", *options(authority, tmp_path, connections_max=5)) as broker,
        ExitStack() as stack,
    ):
        connections = [stack.enter_context(silent(broker)) for _ in range(5)]
        assert ended(stack.enter_context(silent(broker)))
        assert number(broker, "braid_handshakes_refused_total") == 1
        assert number(broker, "braid_handshakes_under_way") == 5
        for connection in connections:
            connection.close()
        tls = TlsSettings(authority=authority.certificate)
        async with connect(broker.address, tls=tls) as client:  # there is room again
            await client.subscribe("TRUE")

"""Does `braid broker` start, say so, serve, refuse what it must, and leave in good order?"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from braid.cli import main
from braid.errors import AuthenticationError, RequestRefusedError
from braid.runtime.connecting import connect
from braid.runtime.directory import open_directory
from braid.runtime.tls import TlsSettings
from braid.server.access_file import new_token
from tests.cli.broker_process import BrokerProcess, braid, running_broker
from tests.runtime.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.net


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def test_a_publication_crosses_two_processes_and_is_counted() -> None:
    with (
        running_broker("A", "--http", "127.0.0.1:0") as first,
        running_broker("B", "--neighbor", first.address) as second,
    ):
        second.wait_for(r"\bready\b")
        assert any("loopback only" in line for line in first.lines)
        async with connect(first.address) as reader, connect(second.address) as writer:
            prices = await reader.subscribe("price > 10")
            await writer.publish({"price": 12})
            assert (await prices.get())["price"] == 12
        assert get(f"{first.http}/health") == (200, "alive\n")
        assert get(f"{first.http}/ready") == (200, "ready\n")
        status, numbers = get(f"{first.http}/metrics")
        assert status == 200
        assert 'braid_delivered_total{broker="A"} 1.0' in numbers
        assert 'braid_links_up{broker="A"} 1.0' in numbers
        assert second.stop() == 0
        assert first.stop(signal.SIGINT) == 0
        assert any("drained" in line for line in first.lines)


async def test_a_broker_that_waits_for_a_neighbour_is_not_ready() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{silent.getsockname()[1]}"
        with running_broker("A", "--neighbor", nobody, "--http", "127.0.0.1:0") as broker:
            assert get(f"{broker.http}/ready") == (503, "waiting for the tables of the neighbours\n")
            assert get(f"{broker.http}/health")[0] == 200


async def test_durable_rows_outlive_the_process(tmp_path: Path) -> None:
    data = ("--data-dir", str(tmp_path / "data"))
    with running_broker("A", *data) as broker:
        async with connect(broker.address, name="reader") as client:
            await client.subscribe("price > 10", durable="prices")
            await (await client.publish({"price": 12}, delivery="acknowledged"))
        assert broker.stop() == 0
    with running_broker("A", *data) as broker:
        async with connect(broker.address, name="reader") as client:
            prices = await client.subscribe("price > 10", durable="prices")
            assert (await prices.get())["price"] == 12


async def test_a_second_signal_does_not_wait_for_a_client_that_does_not_read() -> None:
    with running_broker("A") as broker:
        async with connect(broker.address, reconnect_for_s=0) as reader, connect(broker.address) as writer:
            await reader.subscribe("price > 10", queue_size=1)
            for _ in range(3):
                await writer.publish({"price": 12}, delivery="acknowledged")
            while (await writer.ask("statistics"))["counters"]["delivered"] < 3:
                assert broker.process.poll() is None
            broker.process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(broker.wait_for, "draining")
            assert await asyncio.to_thread(broker.stop) == 0
    assert any("before everything was handed over" in line for line in broker.lines)


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
async def test_an_ipv6_listener() -> None:
    with running_broker("A", listen="[::1]:0") as broker:
        assert broker.address.startswith("braid://[::1]:")
        async with connect(broker.address) as client:
            assert (await client.ask("overlay"))["broker"] == "A"


async def test_without_a_data_directory_durable_subscriptions_are_refused() -> None:
    with running_broker("A") as broker:
        async with connect(broker.address) as client:
            with pytest.raises(RequestRefusedError):
                await client.subscribe("price > 10", durable="prices")


async def test_the_directory_knows_a_broker_while_it_lives_and_its_neighbours_after(tmp_path: Path) -> None:
    path = str(tmp_path / "directory.db")
    with running_broker("A", "--directory", path) as first:
        with running_broker("B", "--directory", path, "--neighbor", first.address) as second:
            second.wait_for("link up")
            async with open_directory(path) as directory:
                entry = await directory.get("B")
                assert entry is not None
                assert entry.addresses == (second.address,)
                async with asyncio.timeout(30):
                    while await directory.neighbours_of("B") != ("A",):
                        assert second.process.poll() is None
            assert second.stop() == 0
        async with open_directory(path) as directory:
            assert list(await directory.brokers()) == ["A"]
            assert await directory.neighbours_of("B") == ("A",)
        # Started again without being told of A, it waits for A, since the directory remembers it.
        with running_broker("B", "--directory", path) as again:
            async with connect(again.address) as client:
                links = (await client.ask("overlay"))["links"]
            assert [link["neighbour"] for link in links] == ["A"]


async def test_tls_tokens_and_grants(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("A")
    neighbour = authority.issue("B")
    secret, hashed = new_token()
    access = tmp_path / "access.toml"
    access.write_text(
        f'[principals.till]\npublish = "TRUE"\nsubscribe = "shop = 7"\ntokens = ["{hashed}"]\n'
        '[principals.B]\nlink = true\ncertificates = ["B"]\n'
    )
    access.chmod(0o600)

    def security(certificate: Path, key: Path) -> tuple[str, ...]:
        words = ("--tls-certificate", str(certificate), "--tls-key", str(key))
        return (*words, "--tls-authority", str(authority.certificate), "--access", str(access))

    with running_broker("A", *security(files.certificate, files.key)) as broker:
        assert broker.address.startswith("braids://127.0.0.1:")
        assert not any("no security" in line for line in broker.lines)
        tls = TlsSettings(authority=authority.certificate)
        with pytest.raises(AuthenticationError):
            await connect(broker.address, tls=tls)
        words = (*security(neighbour.certificate, neighbour.key), "--neighbor", broker.address)
        with running_broker("B", *words) as linked:
            linked.wait_for("link up")
            async with (
                connect(broker.address, tls=tls, token=secret) as reader,
                connect(linked.address, tls=tls, token=secret) as writer,
            ):
                sales = await reader.subscribe("shop = 7")
                await writer.publish({"shop": 7})
                assert (await sales.get())["shop"] == 7
                with pytest.raises(RequestRefusedError):
                    await reader.subscribe("shop = 8")


def test_the_log_as_json() -> None:
    with running_broker("A", "--log-format", "json", "--log-level", "warning") as broker:
        broker.wait_for('"ready"')
        assert broker.stop() == 0
    lines = [json.loads(line) for line in broker.lines]
    assert all({"time", "level", "broker", "message"} <= line.keys() for line in lines)
    assert [line["message"] for line in lines if line["level"] == "info"] == ["listening", "ready", "stopped"]


def test_options_come_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(
        '[broker]\nbroker_id = "A"\n[listener]\nlisten = "127.0.0.1:1"\n[store]\ndata_dir = "data"\n'
    )
    broker = BrokerProcess("--config", str(file), "--listen", "127.0.0.1:0")
    try:
        assert not broker.address.endswith(":1")
    finally:
        assert broker.stop() == 0
    assert (tmp_path / "data").is_dir()


# What cannot be started says so in one line.


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., str]]:
    """Runs the command in this process, where it starts quickly, and puts the log back afterwards."""
    log = logging.getLogger("braid")
    before = (log.handlers[:], log.level, log.propagate)

    def refused(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ending:
            main(("broker", *arguments))
        captured = capsys.readouterr()
        complaints = [line for line in captured.err.splitlines() if line.startswith("braid: ")]
        assert (ending.value.code, captured.out, len(complaints)) == (2, "", 1), captured.err
        assert "Traceback" not in captured.err
        return complaints[0]

    yield refused
    log.handlers[:], log.level, log.propagate = before


def test_a_refusal_of_the_whole_command() -> None:
    result = braid("broker", "--listen", "127.0.0.1:0")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("braid: the broker has no id")


def test_a_port_in_use(refusal: Callable[..., str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        complaint = refusal("--id", "A", "--listen", f"127.0.0.1:{port}")
    assert f"127.0.0.1:{port}" in complaint
    assert "in use" in complaint
    assert "--listen" in complaint


def test_a_data_directory_in_use(refusal: Callable[..., str], tmp_path: Path) -> None:
    with running_broker("A", "--data-dir", str(tmp_path)):
        assert str(tmp_path) in refusal("--id", "B", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path))


def test_a_damaged_data_directory(refusal: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "braid.sqlite3").write_bytes(b"not a database, and long enough to be seen as none" * 100)
    assert "braid.sqlite3" in refusal("--id", "A", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path))


def test_an_id_that_lives_elsewhere(refusal: Callable[..., str], tmp_path: Path) -> None:
    path = str(tmp_path / "directory.db")
    with running_broker("A", "--directory", path):
        assert "'A'" in refusal("--id", "A", "--listen", "127.0.0.1:0", "--directory", path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--id"),
        (("--id", "a b"), "letters, digits"),
        (("--id", "A", "--listen", "0.0.0.0:0"), "without TLS"),
        (("--id", "A", "--listen", "nowhere:port"), "nowhere:port"),
        (("--id", "A", "--neighbor", "ftp://x", "--listen", "127.0.0.1:0"), "ftp"),
        (("--id", "A", "--config", "missing.toml"), "missing.toml"),
        (("--id", "A", "--access", "missing.toml"), "missing.toml"),
        (("--id", "A", "--tls-certificate", "missing.pem"), "missing.pem"),
        (("--id", "A", "--tls-key", "missing.key"), "without a certificate"),
        (("--id", "A", "--listen", "127.0.0.1:0", "--directory", "ftp://x"), "ftp"),
    ],
)
def test_what_cannot_be_started(refusal: Callable[..., str], arguments: tuple[str, ...], words: str) -> None:
    assert words in refusal(*arguments)


def test_an_insecure_listener_is_allowed_and_said() -> None:
    with running_broker("A", "--insecure", listen="0.0.0.0:0") as broker:
        assert any("as explicitly allowed" in line for line in broker.lines)


# Strategies.


def _linked(report: dict[str, Any]) -> set[str]:
    """A soft link serves both ends, whoever has opened it."""
    return {*report["soft_links"], *report["soft_links_from"]}


async def test_brokers_learn_a_soft_link(tmp_path: Path) -> None:
    configuration = tmp_path / "mesh.toml"
    configuration.write_text("[soft_links]\nreview_us = 200_000\n")
    options = ("--config", str(configuration), "--strategy", "S2", "--fanout", "4")
    with (
        running_broker("A", *options, "--http", "127.0.0.1:0") as first,
        running_broker("B", *options, "--neighbor", first.address) as middle,
        running_broker("C", *options, "--neighbor", middle.address) as last,
    ):
        last.wait_for(r"\bready\b")
        async with connect(last.address) as reader, connect(first.address) as writer:
            prices = await reader.subscribe("price > 10")
            async with asyncio.timeout(60):
                while "C" not in _linked(await writer.ask("strategy")):
                    await (await writer.publish({"price": 12}, delivery="acknowledged"))
                    await prices.get()
            before = await _forwarded(middle)
            for price in range(20, 40):
                await writer.publish({"price": price})
            assert sorted([(await prices.get())["price"] for _ in range(20)]) == list(range(20, 40))
            # They went past the broker in the middle; those that ask for order do not.
            assert await _forwarded(middle) == before
            await writer.publish({"price": 50}, ordered=True)
            assert (await prices.get())["price"] == 50
            assert await _forwarded(middle) == before + 1
        _, numbers = get(f"{first.http}/metrics")
        assert 'braid_strategy{broker="A",strategy="S2"} 1.0' in numbers
        assert 'braid_brokers_in_sight{broker="A"} 2.0' in numbers
        assert 'braid_soft_links{broker="A"}' in numbers
        assert 'braid_duplicates_total{broker="A"} 0.0' in numbers


async def _forwarded(broker: BrokerProcess) -> int:
    async with connect(broker.address) as client:
        counters = (await client.ask("statistics"))["counters"]
        return int(counters["forwarded"])


def test_a_strategy_that_cannot_work() -> None:
    answer = braid("broker", "--id", "A", "--strategy", "S2", "--delta", "1")
    assert answer.returncode == 2
    assert "S2 needs to see further than its neighbours" in answer.stderr

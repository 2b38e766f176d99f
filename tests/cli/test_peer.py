"""Does `braid peer` run a peer, and does `braid peer status` say how it is?"""

from __future__ import annotations

import json
import re
import signal
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

from braid.trace import read_table
from tests.cli.broker_process import BRAID, BrokerProcess, braid

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.net


class PeerProcess(BrokerProcess):
    command = "peer"

    @property
    def address(self) -> str:
        return self.wait_for(r'listening.*?(braids?\+p2p://[^\s"]+)')[1]


@contextmanager
def running_peer(*arguments: str) -> Iterator[PeerProcess]:
    peer = PeerProcess("--listen", "127.0.0.1:0", *arguments)
    try:
        assert peer.address
        yield peer
    finally:
        peer.stop()


def test_peers_from_the_command_line() -> None:
    with running_peer("--id", "first") as first, running_peer("--bootstrap", first.address) as second:
        second.wait_for("ready|a place")
        status = braid("peer", "status", "--peer", second.address, "--json")
        assert status.returncode == 0, status.stderr
        report = json.loads(status.stdout)
        assert report["joined"] is True
        assert report["neighbours"] == [first.address.removeprefix("braid+p2p://")]
        shown = braid("peer", "status", "--peer", first.address.removeprefix("braid+p2p://"))
        assert re.search(r"^joined +yes$", shown.stdout, re.MULTILINE)
        reader = subprocess.Popen(
            [*BRAID, "subscribe", "price > 10", "--broker", first.address, "--count", "1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            for price in range(100):
                if reader.poll() is not None:
                    break
                line = json.dumps({"price": 11 + price})
                published = subprocess.run(
                    [*BRAID, "publish", "--broker", second.address],
                    input=line + "\n",
                    capture_output=True,
                    text=True,
                    timeout=60,
                    check=False,
                )
                assert published.returncode == 0, published.stderr
            out, _ = reader.communicate(timeout=60)
        finally:
            if reader.poll() is None:
                reader.kill()
                reader.wait()
        assert json.loads(out)["price"] > 10
        assert second.stop(signal.SIGTERM) == 0


def metrics_of(peer: PeerProcess) -> str:
    with urlopen(f"{peer.http}/metrics", timeout=30) as answer:
        return str(answer.read().decode())


def test_a_peer_writes_down_what_it_holds_and_sends(tmp_path: Path) -> None:
    traced = ("--trace", str(tmp_path), "--http", "127.0.0.1:0")
    with (
        running_peer("--id", "first", *traced) as first,
        running_peer("--bootstrap", first.address, "--id", "second", *traced) as second,
    ):
        for _ in range(10_000):
            if 'braid_peer_joined{broker="second"} 1.0' in metrics_of(second):
                break
        assert 'braid_peer_messages_sent_total{broker="second",kind="join"} ' in metrics_of(second)
        assert 'braid_peer_messages_sent_total{broker="first",kind="row"} 1.0' in metrics_of(first)
    assert {row["peer"] for row in read_table(tmp_path, "peer_state").to_pylist()} == {"first", "second"}
    sent = [row for row in read_table(tmp_path, "link_sample").to_pylist() if row["target"] == ""]
    assert {row["source"] for row in sent} == {"first", "second"}


def test_a_broker_that_is_asked_how_it_is_as_a_peer() -> None:
    broker = BrokerProcess("--id", "A", "--listen", "127.0.0.1:0")
    try:
        shown = braid("peer", "status", "--peer", broker.address)
        assert shown.returncode == 2
        assert "is a broker and no peer" in shown.stderr
    finally:
        broker.stop()


def test_a_peer_that_is_refused_says_why_and_ends(tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"price": {"kind": "integer", "low": 0, "high": 100}}')
    with running_peer() as first:
        refused = braid("peer", "--bootstrap", first.address, "--schema", str(schema))
        assert refused.returncode == 2
        assert "all peers of a network have the schema that it began with" in refused.stderr
        not_a_peer = braid("peer", "--bootstrap", first.address, "--algorithm", "DMM")
        assert not_a_peer.returncode == 2
        assert "DMM needs a schema" in not_a_peer.stderr

"""Each query of the Grafana dashboard asks for metrics that brokers have, and a Prometheus answers it."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import braid

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.net, pytest.mark.slow]

DASHBOARD = json.loads((Path(__file__).parents[2] / "deploy" / "grafana" / "braid.json").read_text())
QUERIES = sorted({target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]})
ANSWER_S_MAX = 60.0


@pytest.fixture(scope="module")
def brokers() -> Iterator[list[str]]:
    """The HTTP addresses of two brokers that have delivered publications to each other's clients."""
    pytest.importorskip("prometheus_client")
    first = braid.ServerSettings.of(broker_id="A", listen="127.0.0.1:0", http="127.0.0.1:0")
    with braid.serve_sync(first) as a:
        second = braid.ServerSettings.of(
            broker_id="B", listen="127.0.0.1:0", http="127.0.0.1:0", neighbours=[a.address], strategy="S2"
        )
        with (
            braid.serve_sync(second) as b,
            braid.connect_sync(a.address) as reader,
            braid.connect_sync(b.address) as writer,
        ):
            heard = reader.subscribe("n >= 0")
            writer.publish_batch([{"n": n} for n in range(10)])
            assert len(heard.get_many(10, timeout_s=10)) > 0
            yield [a.http, b.http]


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def names_in(query: str) -> set[str]:
    return set(re.findall(r"\bbraid_[a-z_]+", query))


@pytest.mark.parametrize("query", QUERIES)
def test_brokers_have_what_a_query_asks_for(query: str, brokers: list[str]) -> None:
    there = names_in(read(f"{brokers[0]}/metrics"))
    assert names_in(query)
    assert names_in(query) <= there


def test_panels_do_not_overlap() -> None:
    cells = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for at in [panel["gridPos"]]
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


@pytest.fixture(scope="module")
def prometheus(brokers: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Prometheus that has looked at the brokers more than once."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("queries are run by Prometheus, which is not installed (Debian's package prometheus)")
    place = tmp_path_factory.mktemp("prometheus")
    targets = ", ".join(f'"{address.removeprefix("http://")}"' for address in brokers)
    (place / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
        f"scrape_configs: [{{job_name: braid, static_configs: [{{targets: [{targets}]}}]}}]\n"
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    options = (
        f"--config.file={place / 'prometheus.yml'}",
        f"--storage.tsdb.path={place / 'data'}",
        f"--web.listen-address={address}",
    )
    with (place / "log").open("wb") as log, subprocess.Popen((program, *options), stderr=log) as running:
        try:
            yield f"http://{address}"
        finally:
            running.terminate()
            running.wait(30)


def answer(prometheus: str, query: str) -> list[Any]:
    """What Prometheus says, as soon as it has looked often enough."""
    asked = urllib.parse.urlencode({"query": query.replace("$broker", ".*")})
    deadline = time.monotonic() + ANSWER_S_MAX
    while True:
        try:
            found: list[Any] = json.loads(read(f"{prometheus}/api/v1/query?{asked}"))["data"]["result"]
        except OSError as error:
            if isinstance(error, urllib.error.HTTPError):
                raise AssertionError(f"{query}: {error.read().decode()}") from error
            found = []
        if found or time.monotonic() > deadline:
            return found
        time.sleep(0.5)


@pytest.mark.parametrize("query", QUERIES)
def test_prometheus_answers_a_query(query: str, prometheus: str) -> None:
    assert answer(prometheus, query)

"""Does Braid run on real clusters, and does a cluster that cannot run it say so in a sentence?"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import braid
from braid.errors import ConfigurationError
from braid.pipeline.clusters import cause_of, require_master
from braid.protocol import PublicationBatch
from braid.trace import TraceWriter
from tests.pipeline.source_network import running_broker
from tests.pipeline.spark_clusters import connect_server, lean_python, standalone_cluster, unused_port

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = str(Path(braid.__file__).parents[1])


@pytest.mark.parametrize("kind", ["spark", "sc"])
def test_a_master_that_is_not_there_is_named_within_seconds(kind: str) -> None:
    port = unused_port()
    began_s = time.monotonic()
    with pytest.raises(ConfigurationError) as caught:
        require_master(f"{kind}://127.0.0.1:{port}")
    assert time.monotonic() - began_s < 5
    what = "Spark master" if kind == "spark" else "Spark Connect server"
    assert str(caught.value) == (
        f"there is no {what} at {kind}://127.0.0.1:{port} (127.0.0.1:{port}: Connection refused)"
    )


def test_one_of_several_masters_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as standby:
        require_master(f"spark://127.0.0.1:{unused_port()},127.0.0.1:{standby.getsockname()[1]}")


@pytest.mark.parametrize("master", ["local[*]", "yarn", "k8s://https://head:6443"])
def test_masters_without_an_address_of_ours_are_left_to_spark(master: str) -> None:
    require_master(master)


@pytest.mark.parametrize("master", ["spark://head:many", "spark://:7077", "sc://head:0"])
def test_an_address_that_is_none_is_named(master: str) -> None:
    with pytest.raises(ConfigurationError, match="is no address"):
        require_master(master)


@pytest.mark.parametrize(
    ("report", "cause"),
    [
        ("An error.\n\tat a.B\nCaused by: java.io.IOException: full\n\tat c", "IOException: full"),
        ("Traceback:\n  File x\nKeyError: 'braid'", "KeyError: 'braid'"),
        ("plain", "plain"),
        ("", "ValueError"),
    ],
)  # fmt: skip
def test_the_cause_of_a_long_report_is_one_line(report: str, cause: str) -> None:
    assert cause_of(ValueError(report)) == cause


def test_the_command_names_a_dead_master_in_its_first_line(tmp_path: Path) -> None:
    (tmp_path / "hop").mkdir()
    master = f"spark://127.0.0.1:{unused_port()}"
    began_s = time.monotonic()
    answer = subprocess.run(
        [sys.executable, "-m", "braid", "pipeline", "metrics", str(tmp_path), "--master", master],
        capture_output=True,
        text=True,
        check=False,
    )
    assert time.monotonic() - began_s < 20
    assert answer.returncode != 0
    assert f"there is no Spark master at {master}" in answer.stderr
    assert len(answer.stderr.splitlines()) <= 3
    assert "Traceback" not in answer.stderr


PROGRAM = """
import sys
from braid.errors import ConfigurationError
from braid.pipeline import spark_session

master, broker, python_path, ship = sys.argv[1:]
settings = {"spark.executorEnv.PYTHONPATH": python_path} if python_path else {}
settings |= {"spark.executor.memory": "512m", "spark.cores.max": "2"}
try:
    with spark_session("it", profile="testing", master=master, settings=settings, ship=bool(ship)) as spark:
        import braid.spark
        from braid.pipeline.matching_join import match_join

        braid.spark.register(spark)
        options = {"brokers": broker, "log": "numbers", "rowsPerPartition": "300"}
        rows = spark.read.format("braid").options(**options).schema("n bigint, _offset bigint").load()
        print(rows.count(), sorted(row.n for row in rows.where("n >= 997").collect()))
        publications = spark.createDataFrame([(1, 5.0), (2, 50.0)], "id int, price double")
        filters = spark.createDataFrame([(1, "price > 1"), (2, "price > 10")], "id int, filter string")
        print(sorted(tuple(row) for row in match_join(publications, filters).collect()))
except ConfigurationError as problem:
    print(problem)
"""
ANSWER = "1000 [997, 998, 999]\n[(1, 1), (2, 2)]\n"


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with a log of 1,000 rows."""
    with running_broker(tmp_path_factory.mktemp("broker")) as (address, client):
        client.create_durable("numbers", "n IS NOT NULL")
        client.publish_batch([{"n": n} for n in range(1000)], delivery="acknowledged").wait()
        yield address


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as master:
        yield master


def run(master: str, broker: str, python_path: str = "", ship: str = "", **variables: str) -> str:
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, master, broker, python_path, ship],
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"} | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert answer.returncode == 0, answer.stderr[-3000:]
    return answer.stdout


@pytest.mark.spark
@pytest.mark.net
@pytest.mark.soak
def test_a_standalone_cluster_reads_logs_and_joins(cluster: str, numbers: str) -> None:
    assert run(cluster, numbers, SOURCE) == ANSWER


@pytest.mark.spark
@pytest.mark.net
@pytest.mark.soak
def test_executors_without_braid_are_named_in_a_sentence_or_are_sent_it(
    cluster: str, numbers: str, tmp_path: Path
) -> None:
    lean = str(lean_python(tmp_path))
    complaint = run(cluster, numbers, PYSPARK_PYTHON=lean)
    assert complaint.startswith(f"the executors of {cluster} cannot import Braid (")
    assert "No module named 'braid'): install" in complaint
    assert complaint.count("\n") == 1
    assert run(cluster, numbers, ship="ship", PYSPARK_PYTHON=lean) == ANSWER


@pytest.mark.spark
@pytest.mark.net
@pytest.mark.soak
def test_a_spark_connect_server_reads_logs_and_joins(numbers: str, tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    with TraceWriter(traces, "A") as writer:
        for number in range(1, 20):
            batch = PublicationBatch.of("p", [number], [b"x"])
            writer.publication(number, "A", batch, 1)
            writer.delivery(number + 5, "A", "a", batch)
    with connect_server(tmp_path, PYTHONPATH=SOURCE) as server:
        assert run(server, numbers) == ANSWER
        # Paths are the server's, and its tasks look at the files.
        found = []
        for master in (("--master", server), ()):
            command = ["pipeline", "metrics", str(traces), "--metric", "delay", "--metric", "hops", "--json"]
            answer = subprocess.run(
                [sys.executable, "-m", "braid", *command, *master],
                capture_output=True,
                text=True,
                check=False,
            )
            assert answer.returncode == 0, answer.stderr[-3000:]
            found.append(json.loads(answer.stdout)["metrics"])
    assert found[0] == found[1]
    assert found[0]["delay"][0]["deliveries"] == 19

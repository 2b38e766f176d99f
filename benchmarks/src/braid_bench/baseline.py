"""Is it slower than an earlier commit, measured in the same minutes?

Figures of another day compare two days of the machine. Here the source of another commit is put into an
environment of its own, and both take turns at every case of a benchmark, each in a process of its own. What
is reported is the ratio of costs: 1 means as fast, 1.05 that it costs 5 % more now.

The environment is a virtual environment without packages of its own: the source of that commit comes first on
its path, the packages of the present environment behind it. That takes a second instead of minutes, and both
sides have the same NumPy. A commit that needs other packages cannot be compared this way.
"""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import braid
from braid.errors import ConfigurationError
from braid_bench.environment import describe_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = [
    "OLDER",
    "WORSE_FROM",
    "Case",
    "Contestant",
    "bench_against",
    "checkout",
    "figures_of",
    "installed",
]

# Where a commit has its benchmarks, and how they are run there; older ones have them in the package.
PLACE = Path("benchmarks", "src", "braid_bench")
OLDER = ("-m", "braid.cli", "bench")

# What differs by less is not told from the noise of a shared machine.
WORSE_FROM = 1.05

# An error of a benchmark is shown by its last lines.
ERROR_LINES_MAX = 5

_METHOD = (
    "Both sides take turns, case by case, each in a process of its own; the order changes with every turn. "
    "A ratio is the cost now over the cost at the baseline, of the medians of the turns: below 1 is better. "
    "The baseline has an environment of its own, with its source first and the packages of the present one "
    "behind. A case that the baseline cannot run, because it is newer, is left out and named."
)


class Case(NamedTuple):
    """A part of a benchmark that can be run by itself."""

    name: str
    arguments: Sequence[str]
    """Of `braid bench`, without those that both sides get anyway."""


@dataclass(frozen=True)
class Contestant:
    """One side: an interpreter, what its environment variables are, and how it is asked to measure."""

    name: str
    python: str
    variables: Mapping[str, str]
    command: Sequence[str] = ("-m", "braid_bench")

    def run(self, arguments: Sequence[str]) -> dict[str, Any]:
        """The report of `braid bench` with these arguments.

        Raises:
            ConfigurationError: it failed there; the message holds the last it said.
        """
        # -P: whatever lies in the working directory is not what is measured.
        command = [self.python, "-P", *self.command, *arguments, "--json"]
        done = subprocess.run(command, env=dict(self.variables), capture_output=True, text=True, check=False)
        try:
            if done.returncode == 0:
                report: dict[str, Any] = json.loads(done.stdout)
                return report
        except ValueError:
            pass
        said = " / ".join((done.stderr.strip() or "nothing").splitlines()[-ERROR_LINES_MAX:])
        raise ConfigurationError(
            f"`braid bench {' '.join(arguments)}` failed at {self.name} (exit code {done.returncode}): {said}"
        )


def present() -> Contestant:
    """What runs now."""
    return Contestant("the present", sys.executable, dict(os.environ))


def checkout() -> Path:
    """The git checkout that the running package, or else the working directory, belongs to.

    Raises:
        ConfigurationError: neither does.
    """
    for place in (Path(braid.__file__).resolve().parent, Path.cwd()):
        found = _git(place, "rev-parse", "--show-toplevel")
        top = Path(found.stdout.decode().strip())
        if found.returncode == 0 and _has_source(top):
            return top
    raise ConfigurationError(
        "a baseline needs a git checkout of Braid; neither the package nor the working directory is in one"
    )


def _has_source(top: Path) -> bool:
    return (top / "src" / "braid" / "__init__.py").is_file()


@contextmanager
def installed(reference: str, repository: Path) -> Iterator[Contestant]:
    """The commit that a reference names, in an environment that is gone afterwards.

    Raises:
        ConfigurationError: there is no such commit, or no Braid in it.
    """
    asked = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{reference}^{{commit}}")
    found = _git(repository, *asked)
    if found.returncode:
        raise ConfigurationError(f"{repository} has no commit {reference!r}")
    commit = found.stdout.decode().strip()
    if _git(repository, "cat-file", "-e", f"{commit}:src/braid/__init__.py").returncode:
        raise ConfigurationError(f"the commit {commit[:12]} has no src/braid")
    with tempfile.TemporaryDirectory(prefix="braid-baseline-") as temporary:
        folder = Path(temporary)
        archive = _git(repository, "archive", "--format=tar", commit)
        if archive.returncode:
            raise ConfigurationError(f"git cannot give out {reference!r}: {archive.stderr.decode().strip()}")
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(folder / "source", filter="data")
        python = str(_environment(folder))
        if (folder / "source" / PLACE).is_dir():
            yield Contestant(commit, python, _variables())
        else:
            yield Contestant(commit, python, _variables(), OLDER)


def _environment(folder: Path) -> Path:
    """Make a virtual environment with that source first, and the present packages behind: its interpreter."""
    place = folder / "environment"
    venv.EnvBuilder(with_pip=False, symlinks=os.name != "nt").create(place)
    paths = {"base": str(place), "platbase": str(place)}
    packages = Path(sysconfig.get_path("purelib", "venv", paths))
    # Lines of a path file are taken as they are: path files in those folders, such as that of an editable
    # installation of Braid, are not looked at.
    behind = [each for each in sys.path if Path(each).name in ("site-packages", "dist-packages")]
    source = folder / "source"
    first = [str(source / "src"), str(source / PLACE.parent)]
    (packages / "baseline.pth").write_text("\n".join([*first, *behind]) + "\n")
    return Path(sysconfig.get_path("scripts", "venv", paths)) / (
        "python.exe" if os.name == "nt" else "python"
    )


def _variables() -> dict[str, str]:
    """The present environment variables, without those that would bring the present source along."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


def _git(place: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["git", "-C", str(place), *arguments], capture_output=True, check=False)
    except OSError as error:
        raise ConfigurationError(f"a baseline needs git: {error.strerror or error}") from None


def bench_against(
    reference: str,
    cases: Sequence[Case],
    *,
    turns: int = 2,
    repository: Path | None = None,
    now: Contestant | None = None,
    progress: Callable[[str], None] = lambda line: None,
    store: Callable[[dict[str, Any]], None] = lambda report: None,
    goals: Callable[[Sequence[Mapping[str, Any]]], list[dict[str, Any]]] = lambda figures: [],
) -> dict[str, Any]:
    """Let the present and another commit take turns at the cases of a benchmark.

    Args:
        reference: what git knows the other commit by.
        cases: parts of a benchmark, each run by itself.
        turns: how often each side runs each case.
        repository: where the commit is; the checkout of the running package if nothing is said.
        now: the present side, if it is not this interpreter.
        progress: told what is going on.
        store: given the report so far after every case.
        goals: decides from the figures what was to be reached.

    A case that fails at the other commit is newer than it: it is left out, with what was said there.

    Raises:
        ConfigurationError: there is no such commit, the present side fails, or the other at every case.
    """
    repository = repository or checkout()
    now = now or present()
    with installed(reference, repository) as before:
        rows: list[dict[str, Any]] = []
        left_out: list[dict[str, str]] = []
        report = {
            "benchmark": "baseline",
            "method": _METHOD,
            "environment": describe_environment(),
            "baseline": {"reference": reference, "commit": before.name},
            "turns": turns,
            "figures": rows,
            "left_out": left_out,
            "summary": {},
            "goals": [],
        }
        for case in cases:
            try:
                # The other commit comes first: whether it has the case at all decides about the rest.
                progress(f"{case.name}, turn 1 of {turns}: {before.name[:12]}")
                measured = {before.name: [figures_of(before.run(case.arguments))], now.name: []}
            except ConfigurationError as error:
                left_out.append({"case": case.name, "reason": str(error)})
                progress(f"{case.name} is left out: {error}")
                continue
            for turn in range(turns):
                for side in (before, now)[turn == 0 :] if turn % 2 == 0 else (now, before):
                    progress(f"{case.name}, turn {turn + 1} of {turns}: {side.name[:12]}")
                    measured[side.name].append(figures_of(side.run(case.arguments)))
            rows += _compared(case.name, measured[before.name], measured[now.name])
            report["summary"] = _summary(rows)
            report["goals"] = goals(rows)
            store(report)
    if left_out and not rows:
        raise ConfigurationError(str(left_out[0]["reason"]))
    return report


def _compared(
    case: str, before: Sequence[Mapping[str, float]], now: Sequence[Mapping[str, float]]
) -> Iterator[dict[str, Any]]:
    """A row for each figure that both sides have."""
    for name in before[0]:
        if not all(name in turn for turn in (*before, *now)):
            continue
        costs_before, costs_now = [turn[name] for turn in before], [turn[name] for turn in now]
        ratio = median(costs_now) / median(costs_before)
        yield {
            "case": case,
            "figure": name,
            "baseline": costs_before,
            "now": costs_now,
            "ratio": float(f"{ratio:.4g}"),
        }


def _summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    ratios = [row["ratio"] for row in rows]
    if not ratios:
        return {"figures": 0}
    return {
        "figures": len(ratios),
        "geometric_mean": float(f"{math.exp(sum(map(math.log, ratios)) / len(ratios)):.4g}"),
        "best": min(ratios),
        "worst": max(ratios),
        f"more_than_{WORSE_FROM}": sum(ratio > WORSE_FROM for ratio in ratios),
    }


def figures_of(report: Mapping[str, Any]) -> dict[str, float]:
    """The costs that a benchmark's report holds, by name; of a rate, the time that one takes.

    Raises:
        ConfigurationError: it is of a benchmark that cannot be compared.
    """
    kind = str(report.get("benchmark"))
    if kind not in _FIGURES:
        raise ConfigurationError(
            f"reports of {kind!r} cannot be compared; those of {', '.join(_FIGURES)} can"
        )
    return {name: cost for name, cost in _FIGURES[kind](report) if cost > 0}


def _of_matching(report: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for cell in report["cells"]:
        where, braid_cell = f"{cell['workload']}, {cell['filters']:,} filters", cell["braid"]
        for answer, by_batch in braid_cell["rates"].items():
            for batch, rate in by_batch.items():
                yield f"{where}: {answer} by {batch}, us each", 1e6 / rate["median"]
        yield f"{where}: build, us per filter", braid_cell["build_us_per_filter"]
        yield f"{where}: memory, bytes per filter", braid_cell["memory"]["bytes_per_filter"]


def _of_brokers(report: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for cell in report["cells"]:
        found = cell["contenders"]["braid"]
        for outstanding, loop in found.get("closed_loop", {}).items():
            where = f"{cell['scenario']}: {outstanding} outstanding"
            yield f"{where}, server us per message", loop["server_us_per_message"]
        if found.get("latency"):
            yield f"{cell['scenario']}: latency, us at the median", found["latency"]["p50_us"]


def _of_simulator(report: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for cell in report["cells"]:
        where = f"{cell['case']}, {cell['matches']} want it"
        yield f"{where}: us per message", 1e6 / cell["messages_per_second"]["median"]
    yield from report["memory"].items()


def _of_multipath(report: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for cell in report["cells"]:
        yield f"{cell['case']}: us per publication", cell["cpu_us_per_publication"]
    for name in ("working_map_ms", "working_table_ms"):
        yield name, report["working_map"][name]


_FIGURES: Mapping[str, Callable[[Mapping[str, Any]], Iterator[tuple[str, float]]]] = {
    "matching": _of_matching,
    "broker": _of_brokers,
    "simulator": _of_simulator,
    "multipath": _of_multipath,
}

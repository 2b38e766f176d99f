"""Does the package work where it was installed, and not only where it is written?

The environments are bare but for the packages of the one that runs the tests, which they can see: nothing is
downloaded.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

import braid

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "compose" / "Dockerfile"

pytestmark = [pytest.mark.soak]


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def bare_environment(path: Path) -> Path:
    """An environment that has nothing of its own; its folder of programs."""
    venv.create(path, with_pip=False, symlinks=True)
    (site,) = path.glob("lib/python*/site-packages")
    # A plain path: editable installations of the other environment are not followed.
    (site / "seen.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return path / "bin"


def test_a_wheel_brings_all_that_the_command_needs(tmp_path: Path) -> None:
    build = ("-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--quiet")
    run(sys.executable, *build, "--wheel-dir", str(tmp_path / "dist"), str(ROOT), cwd=tmp_path)
    (wheel,) = (tmp_path / "dist").glob("braid_pubsub-*.whl")
    programs = bare_environment(tmp_path / "environment")
    python = str(programs / "python")
    run(python, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet", str(wheel), cwd=tmp_path)
    where = run(python, "-c", "import braid; print(braid.__file__)", cwd=tmp_path).stdout
    assert Path(where.strip()).is_relative_to(tmp_path), "it is the installed one"
    command = str(programs / "braid")
    assert braid.__version__ in run(command, "--version", cwd=tmp_path).stdout
    shown = run(command, "demo", "--embedded", "--seconds", "0.5", "--json", cwd=tmp_path).stdout
    assert "published" in shown


def test_the_line_that_makes_the_image_can_be_run(tmp_path: Path) -> None:
    """Its extras exist, and what they need is among the packages that tests are run with."""
    (line,) = re.findall(r"^RUN .*?pip install (.*)$", DOCKERFILE.read_text(), re.MULTILINE)
    words = shlex.split(line)
    (wanted,) = [word for word in words if word.startswith(".")]
    # What COPY takes there must be enough to build it.
    source = tmp_path / "source"
    source.mkdir()
    for copied in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE.read_text(), re.MULTILINE):
        *names, target = copied.split()
        for name in names:
            link = source / target / name if target == "./" else source / target
            link.symlink_to(ROOT / name)
    programs = bare_environment(tmp_path / "environment")
    python = str(programs / "python")
    here = ("--no-index", "--no-build-isolation", "--quiet", "--ignore-installed", "--no-deps")
    run(python, "-m", "pip", "install", *words[:-1], *here, wanted, cwd=source)
    run(python, "-m", "pip", "check", cwd=source)
    assert braid.__version__ in run(str(programs / "braid"), "--version", cwd=tmp_path).stdout
    run(python, "-c", "import braid, kazoo, prometheus_client", cwd=tmp_path)

"""Every recipe of the Makefile is a program that the shell can read.

A comma inside the arguments of `call` ends an argument, so a list of extras once left half a recipe: nobody
noticed who had an environment already.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

__all__: list[str] = []

ROOT = Path(__file__).parents[2]
TARGETS = re.findall(r"^(\$\(\w+\)/\.stamp[\w-]*|[a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)


def _recipes(target: str, folder: Path) -> str:
    """What make would run for `target` where nothing is installed yet."""
    environments = {"VENV": folder / "environment", "COMPILED": folder / "compiled"}
    for name, place in environments.items():
        target = target.replace(f"$({name})", str(place))
    # A run of the tests is itself started by make, whose flags and variables are not for this one.
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "--dry-run", *(f"{name}={place}" for name, place in environments.items()), target]
    answer = subprocess.run(
        command, cwd=ROOT, env=plain, capture_output=True, text=True, check=False, timeout=60
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


@pytest.mark.parametrize("target", TARGETS)
def test_the_shell_can_read_each_recipe(target: str, tmp_path: Path) -> None:
    recipes = _recipes(target, tmp_path)
    assert recipes
    answer = subprocess.run(
        ["/bin/sh", "-n"], input=recipes, capture_output=True, text=True, check=False, timeout=60
    )
    assert answer.returncode == 0, answer.stderr

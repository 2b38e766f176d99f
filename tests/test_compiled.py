"""Is it said which modules are compiled, and is an extension refused that was made from another source?"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
import zlib
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import braid
from braid.compiled import MANIFEST, compiled_modules, require_current

HERE = Path(__file__).parents[1]


def package_with(place: Path, *, source: str, compiled_from: str, extension: bool = True) -> Path:
    """A package of one module that was compiled from some source."""
    (place / "broker").mkdir(parents=True)
    (place / "broker" / "turn.py").write_text(source)
    if extension:
        (place / "broker" / f"turn{EXTENSION_SUFFIXES[0]}").write_bytes(b"")
    (place / MANIFEST).write_text(json.dumps({"broker/turn": zlib.crc32(compiled_from.encode())}))
    return place


def test_an_extension_beside_its_own_source_is_taken(tmp_path: Path) -> None:
    package = package_with(tmp_path, source="a = 1\n", compiled_from="a = 1\n")
    require_current(package)
    assert compiled_modules(package) == ["broker/turn"]


def test_an_extension_older_than_its_source_is_refused(tmp_path: Path) -> None:
    package = package_with(tmp_path, source="a = 2\n", compiled_from="a = 1\n")
    with pytest.raises(ImportError, match=r"broker/turn\.py is not the source .*`make compiled`"):
        require_current(package)


def test_without_its_extension_a_changed_source_runs(tmp_path: Path) -> None:
    package = package_with(tmp_path, source="a = 2\n", compiled_from="a = 1\n", extension=False)
    require_current(package)
    assert compiled_modules(package) == []


def test_the_package_itself_refuses_to_be_imported_then(tmp_path: Path) -> None:
    copy = tmp_path / "braid"
    shutil.copytree(
        Path(braid.__file__).parent,
        copy,
        ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.pyd", MANIFEST),
    )
    (copy / "broker" / f"turn{EXTENSION_SUFFIXES[0]}").write_bytes(b"")
    (copy / MANIFEST).write_text(json.dumps({"broker/turn": 0}))
    command = [sys.executable, "-c", "import braid"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "make compiled" in done.stderr


def test_what_is_compiled_exists() -> None:
    settings = tomllib.loads((HERE / "pyproject.toml").read_text())
    modules = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["modules"]
    assert modules == sorted(set(modules))
    assert [module for module in modules if not (HERE / "src" / "braid" / f"{module}.py").is_file()] == []


def test_this_build_says_what_it_is() -> None:
    from braid.broker import turn

    compiled = not str(turn.__file__).endswith(".py")
    assert bool(compiled_modules()) is compiled

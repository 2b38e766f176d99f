"""Compiles the hottest modules with mypyc while a wheel is built, where that is asked for.

`BRAID_COMPILED=1 pip install .` does it. The source stays beside each extension module, so that the same
files run as Python wherever there is no compiler; `braid --version` says which it is. What was compiled from
which source is kept in `compiled.json`: `braid.compiled` refuses an extension whose source has changed since.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

__all__ = ["CompiledModules"]

WANTED = "BRAID_COMPILED"
# One library holds them all, so that they call each other directly.
GROUP = "braid_compiled"


class CompiledModules(BuildHookInterface):
    """Adds extension modules to a wheel."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """What it takes beside hatchling: types are checked again, so packages with types must be there."""
        if not _wanted():
            return []
        return ["mypy>=1.15,<3", "setuptools>=65", *self.build_config.core_metadata.dependencies]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and have the wheel take in what came of it."""
        if not _wanted() or version == "editable":
            return
        modules: list[str] = self.config["modules"]
        self._place = Path(tempfile.mkdtemp(prefix="braid-compiled-"))
        try:
            extensions = _compiled(Path(self.root), modules, self._place)
        except _NoCompiler as error:
            self.app.display_warning(f"not compiled, so everything runs as Python: {error}")
            return
        manifest = self._place / "compiled.json"
        manifest.write_text(json.dumps(_checksums(Path(self.root), modules), indent=1) + "\n")
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"][str(manifest)] = "braid/compiled.json"
        for path in extensions:
            build_data["force_include"][str(path)] = str(path.relative_to(self._place / "lib"))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Leave nothing behind."""
        if _wanted() and version != "editable":
            shutil.rmtree(self._place, ignore_errors=True)


class _NoCompiler(Exception):
    pass


def _wanted() -> bool:
    return os.environ.get(WANTED, "") not in ("", "0")


def _checksums(root: Path, modules: list[str]) -> dict[str, int]:
    """Which source each module was compiled from, as `braid.compiled` looks at it."""
    return {module: zlib.crc32((root / "src" / "braid" / f"{module}.py").read_bytes()) for module in modules}


def _compiled(root: Path, modules: list[str], place: Path) -> list[Path]:
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.errors import CCompilerError, ExecError, PlatformError

    before = Path.cwd()
    arguments = sys.argv
    os.chdir(root)
    sys.argv = sys.argv[:1]
    try:
        paths = [f"src/braid/{module}.py" for module in modules]
        extensions = mypycify(
            ["--config-file", "pyproject.toml", *paths],
            opt_level=os.environ.get("BRAID_OPTIMISE", "3"),
            debug_level="0",
            group_name=GROUP,
            target_dir=str(place / "c"),
        )
        command = Distribution({"name": GROUP, "ext_modules": extensions}).get_command_obj("build_ext")
        command.build_lib, command.build_temp = str(place / "lib"), str(place / "temp")
        command.parallel = os.cpu_count() or 1
        command.ensure_finalized()
        command.run()
        return [Path(path) for path in command.get_outputs()]
    except (CCompilerError, ExecError, PlatformError) as error:
        raise _NoCompiler(str(error)) from error
    finally:
        os.chdir(before)
        sys.argv = arguments

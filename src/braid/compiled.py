"""Which modules of this build are compiled, and whether from the source that lies beside them.

A wheel may hold extension modules for the hottest modules (`hatch_build.py` makes them). Python takes an
extension where there is one and the source otherwise, so that a change of the source would change nothing,
and nobody would notice. Hence an extension is refused unless it was made from the source beside it.
"""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

__all__ = ["MANIFEST", "compiled_modules", "require_current"]

MANIFEST = "compiled.json"
"""Beside the package's own modules: what was compiled, each with a checksum of its source."""


def compiled_modules(package: Path | None = None) -> list[str]:
    """The modules of a package (this one if none is given) that are compiled for this interpreter."""
    package = package or Path(__file__).parent
    return [module for module in _manifest(package) if _is_compiled(package / module)]


def require_current(package: Path | None = None) -> None:
    """Refuse extensions that were made from another source.

    Raises:
        ImportError: names the first of them, and what to do.
    """
    package = package or Path(__file__).parent
    for module, checksum in _manifest(package).items():
        if _is_compiled(package / module) and _checksum(package / f"{module}.py") != checksum:
            raise ImportError(
                f"{package / module}.py is not the source that its compiled extension was made from; "
                f"install again (in a clone: `make compiled`), or remove the extension to run the source",
                name=f"{package.name}.{module.replace('/', '.')}",
            )


def _manifest(package: Path) -> dict[str, int]:
    try:
        text = (package / MANIFEST).read_bytes()
    except FileNotFoundError:
        return {}
    import json  # nobody else needs it, nor the next one, where nothing is compiled

    manifest: dict[str, int] = json.loads(text)
    return manifest


def _is_compiled(module: Path) -> bool:
    return any(module.with_name(module.name + suffix).exists() for suffix in EXTENSION_SUFFIXES)


def _checksum(source: Path) -> int:
    import zlib

    try:
        return zlib.crc32(source.read_bytes())
    except FileNotFoundError:
        return -1

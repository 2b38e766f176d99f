"""How much disk and memory is there?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from braid.protocol.inputs import Resources

__all__ = ["resources_of"]

_STATM: Final = Path("/proc/self/statm")


def resources_of(directory: str | os.PathLike[str] | None) -> Resources:
    """What the disk of a directory has left, and what this process takes; None where the system is silent."""
    return Resources(None if directory is None else _free_bytes(directory), _memory_bytes())


def _free_bytes(directory: str | os.PathLike[str]) -> int | None:
    try:
        found = os.statvfs(directory)
    except (OSError, AttributeError):  # not every system has it
        return None
    return found.f_bavail * found.f_frsize


def _memory_bytes() -> int | None:
    try:
        return int(_STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return None

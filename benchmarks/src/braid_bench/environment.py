"""On which machine, and how, was something measured?"""

from __future__ import annotations

import os
import platform
import sys
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["describe_environment", "on_one_core"]


@contextmanager
def on_one_core() -> Iterator[bool]:
    """Keep this process on one core for a while; yields whether the system allowed it."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    if not hasattr(os, "sched_setaffinity"):
        yield False
        return
    allowed = os.sched_getaffinity(0)
    try:
        # The highest number: the system's own work tends to sit on the first core.
        os.sched_setaffinity(0, {max(allowed)})
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        os.sched_setaffinity(0, allowed)


def describe_environment() -> dict[str, object]:
    """Machine and versions, for whoever compares two reports."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {sys.version.split()[0]}",
        "versions": {name: _version(name) for name in ("braid-pubsub", "numpy", "numba", "pyroaring")},
    }


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor() or "unknown"

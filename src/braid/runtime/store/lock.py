"""Who is using this data directory?

The kernel's lock on one small file answers; it is released however its holder ends, so no stale lock is ever
left behind. The file stays and holds the process id of its last holder, for people and for the error message.
"""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

from braid.errors import StoreError
from braid.runtime.private_files import make_private_file

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LOCK_NAME", "DirectoryLock"]

LOCK_NAME = "braid.lock"
# A process id has at most some ten digits; a longer file was written by somebody else.
PROCESS_ID_BYTES_MAX = 32


class DirectoryLock:
    """The right to use a data directory, from construction until `release`."""

    def __init__(self, directory: Path) -> None:
        """Raises StoreError when another process has it, or this one already."""
        path = directory / LOCK_NAME
        make_private_file(path)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as problem:
            raise StoreError(
                f"cannot open {path}: {problem.strerror}; the data directory must be writable"
            ) from problem
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError as problem:
            holder = _holder(descriptor)
            os.close(descriptor)
            raise StoreError(
                f"data directory {directory} is in use by {holder}; "
                "stop that process or give this one a data directory of its own"
            ) from problem
        except OSError as problem:
            os.close(descriptor)
            raise StoreError(f"cannot lock {path}: {problem.strerror}") from problem
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Give the directory free; a second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _holder(descriptor: int) -> str:
    """The holder by its process id, unless it is just writing that down."""
    text = os.pread(descriptor, PROCESS_ID_BYTES_MAX, 0).strip()
    if not text.isdigit():
        return "another process"
    return "this process already" if int(text) == os.getpid() else f"process {int(text)}"

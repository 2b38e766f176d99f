"""How does a disk get full without harm to anybody else's?

A small file system in memory (tmpfs) is mounted for one run and holds one broker's data directory. A ballast
file takes all the room that is left. Only a file system that was mounted here is unmounted, whatever happens.
"""

from __future__ import annotations

import errno
import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["MountError", "SmallDisk", "small_disk"]

# Several times what a broker keeps in half a minute; it takes that much memory only while it is full.
DISK_BYTES = 128 * 1024 * 1024
BLOCK = bytes(64 * 1024)
MOUNT_S_MAX = 30.0


class MountError(Exception):
    """There can be no small disk here; the text says why."""


class SmallDisk:
    """A disk that can be filled up."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._ballast = directory / "ballast"

    @property
    def full(self) -> bool:
        """Whether its room is taken at the moment."""
        return self._ballast.exists()

    @property
    def free_bytes(self) -> int:
        found = os.statvfs(self.directory)
        return found.f_bavail * found.f_frsize

    def fill(self) -> None:
        """Take all the room there is, again and again if others give some back."""
        file = os.open(self._ballast, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            while True:
                os.write(file, BLOCK)
        except OSError as problem:
            if problem.errno != errno.ENOSPC:
                raise
        finally:
            os.close(file)

    def make_room(self) -> None:
        """Give everything back."""
        self._ballast.unlink(missing_ok=True)


@contextmanager
def small_disk(directory: Path, size: int = DISK_BYTES) -> Iterator[SmallDisk]:
    """Mount a small disk at a new directory, for as long as the context lasts.

    Raises:
        MountError: this user or this system cannot.
    """
    if os.geteuid() != 0:
        raise MountError("only root may mount a small disk")
    directory.mkdir()
    options = f"size={size},mode=0700,nosuid,nodev,noexec"
    try:
        _call("mount", "-t", "tmpfs", "-o", options, "braid-reliability", str(directory))
    except MountError:
        directory.rmdir()
        raise
    try:
        yield SmallDisk(directory)
    finally:
        try:
            _call("umount", str(directory))
        except MountError:
            # Somebody still has a file open there: it vanishes when they have closed it.
            _call("umount", "--lazy", str(directory))
        directory.rmdir()


def _call(*words: str) -> None:
    try:
        subprocess.run(words, check=True, capture_output=True, text=True, timeout=MOUNT_S_MAX)
    except subprocess.CalledProcessError as problem:
        raise MountError(problem.stderr.strip() or f"{words[0]} failed") from problem
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise MountError(str(problem)) from problem

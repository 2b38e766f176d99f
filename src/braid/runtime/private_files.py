"""How do files stay with their owner?

What brokers keep holds everybody's publications, and names of clients and neighbours: nobody but the user
the broker runs as may read it. Files are made so, and those of an earlier version are made so when they are
opened. SQLite gives the files beside a database the mode of the database.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["make_private_file", "make_private_folder"]

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
_OTHERS: Final = 0o077
# What SQLite puts beside a database.
_BESIDE: Final = ("-wal", "-shm", "-journal")


def make_private_folder(folder: Path) -> None:
    """Make a folder that only its owner may look into, or make one that is there so.

    Raises:
        OSError: that cannot be done.
    """
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    _close_to_others(folder, FOLDER_MODE)


def make_private_file(path: Path) -> None:
    """Make an empty file that only its owner may read, or make one that is there so, with what is beside it.

    Where that cannot be done nothing happens: whoever opens the file next finds out why.
    """
    with suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
    for name in (path.name, *(f"{path.name}{ending}" for ending in _BESIDE)):
        with suppress(OSError):
            _close_to_others(path.with_name(name), FILE_MODE)


def _close_to_others(path: Path, mode: int) -> None:
    found = path.stat()
    # What belongs to somebody else is theirs to decide about.
    if stat.S_IMODE(found.st_mode) & _OTHERS and found.st_uid == os.geteuid():
        path.chmod(mode)

"""Is the small disk of a run full when it should be, and gone afterwards?"""

from __future__ import annotations

import errno
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.reliability.disk import MountError, SmallDisk, small_disk

if TYPE_CHECKING:
    from pathlib import Path

SIZE = 1024 * 1024


@pytest.fixture(name="place")
def make_place(tmp_path: Path) -> Path:
    """Where a small disk can be, if this user and this system can mount one."""
    place = tmp_path / "disk"
    try:
        with small_disk(place, SIZE):
            pass
    except MountError as problem:
        pytest.skip(str(problem))
    return place


def test_a_disk_that_was_filled_takes_nothing_until_there_is_room(place: Path) -> None:
    with small_disk(place, SIZE) as disk:
        (place / "file").write_bytes(bytes(SIZE // 4))
        assert not disk.full
        disk.fill()
        assert disk.full
        assert disk.free_bytes == 0
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            (place / "other").write_bytes(bytes(SIZE // 4))
        (place / "file").unlink()
        disk.fill()
        assert disk.free_bytes == 0
        disk.make_room()
        assert not disk.full
        (place / "other").write_bytes(bytes(SIZE // 4))


@pytest.mark.parametrize("still_open", [False, True])
def test_whatever_happens_nothing_stays_mounted(place: Path, still_open: bool) -> None:
    def interrupted(files: ExitStack) -> None:
        with small_disk(place, SIZE) as disk:
            assert os.path.ismount(place)
            disk.fill()
            if still_open:
                files.enter_context((place / "file").open("wb"))
            raise KeyboardInterrupt

    with ExitStack() as files:
        with pytest.raises(KeyboardInterrupt):
            interrupted(files)
        assert not place.exists()


def test_who_is_not_root_is_told_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(MountError, match="only root"), small_disk(tmp_path / "disk"):
        pass
    assert not (tmp_path / "disk").exists()


def test_who_cannot_mount_is_told_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MountError, match="mount"), small_disk(tmp_path / "disk"):
        pass
    assert not (tmp_path / "disk").exists()


def test_there_is_room_where_nothing_was_filled(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path)
    disk.make_room()
    assert not disk.full

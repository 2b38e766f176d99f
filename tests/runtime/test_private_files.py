"""Can anybody but its owner read what a broker keeps?"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from braid.protocol.log import Retention
from braid.runtime.directory import open_directory
from braid.runtime.store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _careless() -> Iterator[None]:
    """As most systems have it: everybody may read new files."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


def test_a_store_and_the_files_beside_it_are_private(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "data", retention=Retention())
    found = modes(tmp_path / "data")
    assert len(found) >= 4  # the database, its log and index, the lock
    assert set(found.values()) == {0o600}
    assert modes(tmp_path) == {"data": 0o700}
    store.close()


def test_a_store_of_an_earlier_version_becomes_private(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "data", retention=Retention()).close()
    (tmp_path / "data").chmod(0o755)
    for path in (tmp_path / "data").iterdir():
        path.chmod(0o644)
    store = SqliteStore(tmp_path / "data", retention=Retention())
    assert set(modes(tmp_path / "data").values()) == {0o600}
    assert modes(tmp_path) == {"data": 0o700}
    store.close()


async def test_a_directory_of_brokers_is_private(tmp_path: Path) -> None:
    async with open_directory(str(tmp_path / "brokers.db")) as directory:
        await directory.brokers()
        found = modes(tmp_path)
        assert found
        assert set(found.values()) == {0o600}

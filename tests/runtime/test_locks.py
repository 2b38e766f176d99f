"""Locks for a machine, from real directories: granted, refused, lost, given back, and held across nothing."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from braid.errors import DirectoryError
from braid.protocol.effects import Lock, Unlock
from braid.protocol.inputs import Locked, LockLost, LockRefused, Tick
from braid.runtime.directory import DirectorySettings, open_directory
from braid.runtime.locks import DirectoryLocks
from braid.runtime.node import Node
from tests.runtime.zookeeper import zookeeper_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from braid.protocol.effects import Effect
    from braid.protocol.inputs import Input
    from braid.runtime.directory import Directory
    from tests.runtime.zookeeper import ZookeeperServer

DEADLINE_S = 60.0
SETTINGS = DirectorySettings(lease_s=2.0, poll_s=0.02)


class Holder:
    """What a machine hears of its locks."""

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self.heard: list[Input] = []
        self._news = asyncio.Event()
        self.locks = DirectoryLocks(directory, self._hear)

    def _hear(self, stimulus: Input) -> None:
        self.heard.append(stimulus)
        self._news.set()

    def lock(self, token: int, brokers: str, wait_s: float = 20) -> None:
        self.locks(Lock(token, tuple(brokers), round(wait_s * 1e6)))

    def unlock(self, token: int) -> None:
        self.locks(Unlock(token))

    async def next(self) -> Input:
        """What it hears next; what was heard before is forgotten."""
        async with asyncio.timeout(DEADLINE_S):
            while not self.heard:
                self._news.clear()
                await self._news.wait()
        return self.heard.pop(0)

    async def locked(self) -> Locked:
        found = await self.next()
        assert isinstance(found, Locked), found
        return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZookeeperServer]:
    with zookeeper_server(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture(params=["memory", "sqlite", "zookeeper"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "memory":
        return f"memory:{uuid.uuid4().hex}"
    if request.param == "sqlite":
        return str(request.getfixturevalue("tmp_path") / "brokers.db")
    server: ZookeeperServer = request.getfixturevalue("server")
    return f"zk://{server.host}/locks/{uuid.uuid4().hex}"


@pytest.fixture
async def holder(url: str) -> AsyncIterator[Callable[[], Holder]]:
    """Makes holders, each with a session of its own."""
    async with AsyncExitStack() as stack:

        def make() -> Holder:
            directory = open_directory(url, SETTINGS)
            stack.push_async_callback(directory.close)
            found = Holder(directory)
            stack.push_async_callback(found.locks.close)
            return found

        yield make


async def test_locks_are_granted_sorted_and_the_next_holder_has_a_larger_epoch(
    holder: Callable[[], Holder],
) -> None:
    one, two = holder(), holder()
    one.lock(1, "CAB")
    first = await one.locked()
    assert (first.token, first.brokers) == (1, ("A", "B", "C"))
    two.lock(1, "CD")
    await two.directory.brokers()  # it has had the time to ask
    assert two.heard == []
    one.unlock(1)
    second = await two.locked()
    assert second.epoch > first.epoch > 0
    one.lock(2, "A")
    two.unlock(1)
    third = await one.locked()
    assert third.epoch > first.epoch
    assert one.heard == []


async def test_whoever_waits_too_long_is_refused_and_keeps_nothing(holder: Callable[[], Holder]) -> None:
    one, two = holder(), holder()
    one.lock(1, "B")
    await one.locked()
    two.lock(1, "AB", wait_s=0.2)
    refused = await two.next()
    assert isinstance(refused, LockRefused)
    assert refused.temporary
    assert "no lock on broker 'B'" in refused.reason
    one.lock(2, "A")
    assert (await one.locked()).token == 2


async def test_a_wish_that_was_taken_back_is_not_granted(holder: Callable[[], Holder]) -> None:
    one, two = holder(), holder()
    one.lock(1, "A")
    await one.locked()
    two.lock(1, "A")
    await two.directory.brokers()
    two.unlock(1)
    two.unlock(99)  # of which nobody has heard
    one.unlock(1)
    one.lock(2, "A")
    await one.locked()
    assert two.heard == []


async def test_closing_gives_everything_back(holder: Callable[[], Holder]) -> None:
    one, two = holder(), holder()
    one.lock(1, "A")
    await one.locked()
    two.lock(1, "A")
    await one.locks.close()
    await two.locked()
    assert one.heard == []


@pytest.mark.parametrize("lost", [True, False])
async def test_locks_that_are_no_longer_ours_are_reported(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """The directory says that others have them, or it cannot be asked for longer than the lease."""
    async with open_directory(str(tmp_path / "brokers.db"), SETTINGS) as directory:
        one = Holder(directory)
        one.lock(1, "A")
        await one.locked()

        async def renewed(*_: object) -> int | None:
            if lost:
                return None
            raise DirectoryError("it cannot be reached")

        monkeypatch.setattr(directory, "_lock_epoch", renewed)
        found = await one.next()
        assert isinstance(found, LockLost)
        assert found.token == 1
        assert ("given them to others" if lost else "it cannot be reached") in found.reason or (
            not lost and "renewed for 2 s" in found.reason
        )
        one.unlock(1)  # there is nothing left to unlock
        await one.locks.close()
        assert one.heard == []


async def test_a_held_lock_outlives_its_lease_while_it_is_renewed(tmp_path: Any) -> None:
    settings = DirectorySettings(lease_s=0.4, poll_s=0.02)
    url = str(tmp_path / "brokers.db")
    async with open_directory(url, settings) as mine, open_directory(url, settings) as other:
        one = Holder(mine)
        one.lock(1, "A")
        await one.locked()
        with pytest.raises(DirectoryError, match="no lock on broker 'A'"):
            async with other.lock(["A"], timeout_s=1.2):
                pytest.fail("two holders")
        assert one.heard == []
        await one.locks.close()


class _Wishing:
    """Wants a lock in its first turn."""

    def __init__(self) -> None:
        self.heard: list[Input] = []

    def handle(self, stimulus: Input, now_us: int) -> list[Effect]:
        if isinstance(stimulus, Tick):
            return [Lock(5, ("A",), 1_000_000), Unlock(6)]
        self.heard.append(stimulus)
        return []

    def next_deadline_us(self) -> int | None:
        return None


async def test_a_machine_without_a_directory_is_refused_for_good() -> None:
    machine = _Wishing()
    node = Node(machine, name="alone")
    node.report(Tick())
    await node.stop()
    [refused] = machine.heard
    assert isinstance(refused, LockRefused)
    assert (refused.token, refused.temporary) == (5, False)
    assert "start the brokers with one" in refused.reason

"""What happens when ZooKeeper itself goes, comes back, or was never there? With a real one."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from braid.errors import DirectoryError
from braid.runtime.directory import BrokerEntry, DirectorySettings, open_directory
from tests.runtime.zookeeper import ZookeeperServer, zookeeper_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path

    from braid.runtime.directory.zookeeper import ZookeeperDirectory

pytestmark = [pytest.mark.net, pytest.mark.slow, pytest.mark.xdist_group("zookeeper")]

SETTINGS = DirectorySettings(lease_s=4.0, operation_timeout_s=30.0)
# Outlasts the restart of a server on a busy machine.
PATIENT = DirectorySettings(lease_s=50.0, operation_timeout_s=50.0)
DEADLINE_S = 60.0
A = BrokerEntry("A", ("127.0.0.1:7000",), ("B",), "first", 0)
B = BrokerEntry("B", ("127.0.0.1:7001",), ("A",), "first", 0)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ZookeeperServer]:
    with zookeeper_server(tmp_path) as running:
        yield running


@pytest.fixture
async def pair(server: ZookeeperServer) -> AsyncIterator[tuple[ZookeeperDirectory, ZookeeperDirectory]]:
    """Two sessions with one directory."""
    from braid.runtime.directory.zookeeper import ZookeeperDirectory

    one, two = (ZookeeperDirectory((server.host,), "/braid", SETTINGS) for _ in range(2))
    async with one, two:
        yield one, two


async def eventually(condition: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not await condition():  # noqa: ASYNC110  what is waited for has no event to offer
            await asyncio.sleep(0.02)


async def expire(directory: ZookeeperDirectory, server: ZookeeperServer) -> None:
    """End its session behind its back: whoever knows a session's id and password may close it."""
    from kazoo.client import KazooClient

    client = KazooClient(hosts=server.host, client_id=directory._zookeeper.client.client_id)
    await asyncio.to_thread(client.start)
    await asyncio.to_thread(client.stop)
    client.close()


async def test_a_server_that_is_not_there_is_named_with_advice() -> None:
    pytest.importorskip("kazoo")
    with socket.socket() as reserved:  # bound, but nobody listens
        reserved.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{reserved.getsockname()[1]}"
        url = f"zk://{host}/braid"
        async with open_directory(url, DirectorySettings(operation_timeout_s=0.5)) as directory:
            for _ in range(2):
                with pytest.raises(
                    DirectoryError,
                    match=rf"ZooKeeper at {host} did not answer within 0\.5 s; check that a server",
                ):
                    await directory.register(A)


async def test_a_first_connection_can_be_cancelled() -> None:
    pytest.importorskip("kazoo")
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        url = f"zk://127.0.0.1:{reserved.getsockname()[1]}/braid"
        async with open_directory(url, DirectorySettings(operation_timeout_s=2)) as directory:
            task = asyncio.create_task(directory.brokers())
            for _ in range(20):  # steps of the loop: enough to be waiting for the connection
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()


async def test_an_expired_session_is_begun_again(
    pair: tuple[ZookeeperDirectory, ZookeeperDirectory], server: ZookeeperServer
) -> None:
    one, two = pair
    await one.register(A)
    seen: list[dict[str, BrokerEntry]] = []
    two.watch(seen.append)
    async with one.lock(["B"], timeout_s=20) as held:
        await held.verify()
        await expire(one, server)

        message = ""

        async def is_lost() -> bool:
            nonlocal message
            try:
                await held.verify()
            except DirectoryError as problem:
                message = str(problem)
            return bool(message)

        await eventually(is_lost)
        assert "was lost and is now held by nobody" in message
        async with two.lock(["B"], timeout_s=20):
            pass

    async def is_back() -> bool:
        return await two.get("A") == A

    await eventually(is_back)
    await one.update(BrokerEntry("A", A.addresses, ("C",), "first", 0))
    assert await two.neighbours_of("A") == ("C",)

    async def was_told() -> bool:
        return bool(seen) and seen[-1] == await two.brokers()

    await eventually(was_told)


async def test_an_expired_session_does_not_push_out_the_next_start(
    pair: tuple[ZookeeperDirectory, ZookeeperDirectory],
    server: ZookeeperServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    old, new = pair
    await old.register(A)
    second = BrokerEntry("A", A.addresses, ("C",), "second", 0)
    await new.register(second)
    await expire(old, server)

    async def has_noticed() -> bool:
        return "incarnation 'first' is out" in caplog.text

    with caplog.at_level(logging.WARNING):
        await eventually(has_noticed)
    assert await old.get("A") == second


async def test_a_restart_of_the_server_is_survived(server: ZookeeperServer) -> None:
    url = f"zk://{server.host}/braid"
    seen: list[dict[str, BrokerEntry]] = []

    async def was_told() -> bool:
        return bool(seen) and seen[-1] == {"A": A, "B": B}

    async with open_directory(url, PATIENT) as one, open_directory(url, PATIENT) as two:
        await one.register(A)
        two.watch(seen.append)
        async with one.lock(["A"], timeout_s=20) as held:
            await asyncio.to_thread(server.stop)
            waiting = asyncio.create_task(two.register(B))
            await asyncio.to_thread(server.start)
            await waiting
            assert await one.brokers() == {"A": A, "B": B}
            await held.verify()
        async with two.lock(["A"], timeout_s=20):
            pass
        await eventually(was_told)
    # Nobody was reported as gone only because the server was.
    assert all("A" in entries for entries in seen)


async def test_a_session_that_ended_while_the_server_was_away_is_begun_again(
    pair: tuple[ZookeeperDirectory, ZookeeperDirectory], server: ZookeeperServer
) -> None:
    """Whether it ended depends on how long the restart takes; the entries are there in the end either way."""
    one, two = pair
    await one.register(A)
    await two.register(B)
    await asyncio.to_thread(server.stop)
    await asyncio.to_thread(server.start)

    async def both() -> bool:
        return await two.brokers() == {"A": A, "B": B}

    await eventually(both)
    await one.deregister("A")
    assert await two.brokers() == {"B": B}


async def test_what_an_operator_deleted_by_mistake_comes_back(
    pair: tuple[ZookeeperDirectory, ZookeeperDirectory],
) -> None:
    from kazoo.exceptions import NotEmptyError

    one, two = pair
    await one.register(A)
    await two.register(B)
    seen: list[dict[str, BrokerEntry]] = []
    two.watch(seen.append)
    with suppress(NotEmptyError):  # the brokers may be faster than the operator
        await asyncio.to_thread(one._zookeeper.client.delete, "/braid", recursive=True)
    async with one.lock(["A", "B"], timeout_s=20):
        pass

    async def both() -> bool:
        return await two.brokers() == {"A": A, "B": B} and bool(seen) and set(seen[-1]) == {"A", "B"}

    await eventually(both)
    assert await one.neighbours_of("A") == ("B",)


async def test_a_server_that_accepts_and_says_nothing_is_given_up_in_time() -> None:
    pytest.importorskip("kazoo")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"zk://127.0.0.1:{silent.getsockname()[1]}/braid"
        directory = open_directory(url, DirectorySettings(operation_timeout_s=0.2))
        with pytest.raises(DirectoryError, match=r"did not answer within 0\.2 s"):
            await directory.brokers()
        await directory.close()


async def test_while_the_server_is_away_operations_fail_in_time_and_closing_works(
    server: ZookeeperServer,
) -> None:
    url = f"zk://{server.host}/braid"
    # The first connection to a new server takes it a moment.
    async with open_directory(url, SETTINGS) as warm:
        await warm.brokers()
    async with open_directory(url, DirectorySettings(operation_timeout_s=2.0)) as directory:
        await directory.register(A)
        await asyncio.to_thread(server.stop)
        for attempt in (directory.brokers, lambda: directory.neighbours_of("A"), lambda: directory.update(A)):
            with pytest.raises(DirectoryError, match=f"ZooKeeper at {server.host} did not answer"):
                await attempt()
        with pytest.raises(DirectoryError, match="did not answer"):
            async with directory.lock(["A"], timeout_s=5):
                pytest.fail("no server, no lock")
        await asyncio.to_thread(server.start)

        async def works() -> bool:
            try:
                async with directory.lock(["A"], timeout_s=5):
                    return await directory.get("A") == A
            except DirectoryError:
                return False

        await eventually(works)
        await asyncio.to_thread(server.stop)

"""Do all directories keep the same promises? One suite, over memory, SQLite and a real ZooKeeper."""

from __future__ import annotations

import asyncio
import itertools
import signal
import subprocess
import sys
import uuid
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from braid.errors import ConfigurationError, DirectoryError
from braid.runtime.directory import BrokerEntry, Directory, DirectorySettings, open_directory
from tests.runtime.zookeeper import ZookeeperServer, zookeeper_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    OpenSession = Callable[[], Directory]

# One worker runs them all, so one ZooKeeper is enough.
pytestmark = [pytest.mark.net, pytest.mark.xdist_group("zookeeper")]

SETTINGS = DirectorySettings(lease_s=2.0, poll_s=0.02, operation_timeout_s=20.0)
DEADLINE_S = 60.0

ACROSS_PROCESSES = pytest.mark.parametrize("url", ["sqlite", "zookeeper"], indirect=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZookeeperServer]:
    with zookeeper_server(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture(params=["memory", "sqlite", "zookeeper"])
def url(request: pytest.FixtureRequest) -> str:
    """A directory that nobody has used yet."""
    if request.param == "memory":
        return f"memory:{uuid.uuid4().hex}"
    if request.param == "sqlite":
        return str(request.getfixturevalue("tmp_path") / "brokers.db")
    return f"zk://{request.getfixturevalue('server').host}/tests/{uuid.uuid4().hex}"


@pytest.fixture
async def open_session(url: str) -> AsyncIterator[OpenSession]:
    """Opens sessions with one directory; all are closed in the end."""
    async with AsyncExitStack() as stack:

        def open_one() -> Directory:
            directory = open_directory(url, SETTINGS)
            stack.push_async_callback(directory.close)
            return directory

        yield open_one


def entry(broker_id: str = "A", *, port: int = 7000, start: str = "first", near: str = "BC") -> BrokerEntry:
    return BrokerEntry(broker_id, (f"127.0.0.1:{port}",), tuple(near), start, 1_700_000_000_000_000)


async def eventually(condition: Callable[[], object]) -> None:
    """Wait until it is true; fail after a time that no healthy run needs."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  what is waited for has no event to offer
            await asyncio.sleep(0.01)


async def vanished(directory: Directory, broker_id: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while await directory.get(broker_id) is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_what_one_session_registers_another_sees(open_session: OpenSession) -> None:
    one, two = open_session(), open_session()
    await one.register(entry("B", port=7001))
    await one.register(entry("A"))
    assert await two.brokers() == {"A": entry("A"), "B": entry("B", port=7001)}
    assert list(await two.brokers()) == ["A", "B"]
    assert await two.get("A") == entry("A")
    assert await two.get("nobody") is None
    assert await two.neighbours_of("A") == ("B", "C")


async def test_an_update_changes_entry_and_neighbours(open_session: OpenSession) -> None:
    one, two = open_session(), open_session()
    await one.register(entry())
    changed = replace(entry(), neighbours=("D",), addresses=("127.0.0.1:7000", "[::1]:7000"))
    await one.update(changed)
    assert await two.get("A") == changed
    assert await two.neighbours_of("A") == ("D",)


async def test_only_what_is_registered_here_can_be_updated(open_session: OpenSession) -> None:
    one, two = open_session(), open_session()
    await one.register(entry())
    for attempt in (two.update(entry()), one.update(entry(start="other")), one.update(entry("B"))):
        with pytest.raises(DirectoryError, match="register it first"):
            await attempt


async def test_a_deregistered_broker_leaves_its_neighbours_behind(open_session: OpenSession) -> None:
    one, two = open_session(), open_session()
    await one.register(entry())
    await one.deregister("A")
    await one.deregister("A")
    assert await two.brokers() == {}
    assert await two.neighbours_of("A") == ("B", "C")
    with pytest.raises(DirectoryError, match="register it first"):
        await one.update(entry())


async def test_nobody_deregisters_the_broker_of_another(open_session: OpenSession) -> None:
    one, two = open_session(), open_session()
    await one.register(entry())
    with pytest.raises(DirectoryError, match=r"another process, at 127\.0\.0\.1:7000"):
        await two.deregister("A")
    assert await two.get("A") == entry()


async def test_closing_takes_everything_out_but_the_neighbours(open_session: OpenSession) -> None:
    one, two = open_session(), open_session()
    await one.register(entry())
    await one.close()
    await one.close()
    assert await two.brokers() == {}
    assert await two.neighbours_of("A") == ("B", "C")
    with pytest.raises(DirectoryError, match="was closed"):
        await one.brokers()
    with pytest.raises(DirectoryError, match="was closed"):
        one.watch(print)


async def test_a_directory_that_was_never_used_can_be_closed(open_session: OpenSession) -> None:
    await open_session().close()


async def test_only_the_dead_are_forgotten(open_session: OpenSession) -> None:
    directory = open_session()
    assert await directory.neighbours_of("A") == ()
    await directory.forget("A")
    await directory.register(entry())
    with pytest.raises(DirectoryError, match=r"alive at 127\.0\.0\.1:7000"):
        await directory.forget("A")
    await directory.deregister("A")
    await directory.forget("A")
    assert await directory.neighbours_of("A") == ()


async def test_a_second_living_broker_with_the_same_id_is_refused(open_session: OpenSession) -> None:
    one, two = open_session(), open_session()
    await one.register(entry())
    with pytest.raises(DirectoryError, match=r"'A' is taken .* listens at 127\.0\.0\.1:7000"):
        await two.register(entry(port=7001, start="second", near="X"))
    assert await two.get("A") == entry()
    assert await two.neighbours_of("A") == ("B", "C")
    await one.deregister("A")
    await two.register(entry(port=7001, start="second", near="X"))
    assert await one.get("A") == entry(port=7001, start="second", near="X")


async def test_a_restarted_broker_takes_over_its_old_entry(open_session: OpenSession) -> None:
    old, new = open_session(), open_session()
    await old.register(entry())
    restarted = entry(start="second", near="D")
    await new.register(restarted)
    assert await old.get("A") == restarted
    with pytest.raises(DirectoryError, match=r"took over|register it first"):
        await old.update(entry(near="E"))
    # What is left of the first start cannot harm the second.
    await old.close()
    assert await new.get("A") == restarted
    await new.update(replace(restarted, neighbours=("F",)))
    assert await new.neighbours_of("A") == ("F",)


async def test_the_old_start_notices_and_stays_out(open_session: OpenSession) -> None:
    old, new = open_session(), open_session()
    await old.register(entry())
    await new.register(entry(start="second"))
    # It asks the directory until maintenance has seen the other start; then it knows by itself.
    message = ""
    async with asyncio.timeout(DEADLINE_S):
        while "register it first" not in message:
            with pytest.raises(DirectoryError) as caught:
                await old.update(entry())
            message = str(caught.value)
            await asyncio.sleep(0.02)
    assert (await new.brokers())["A"].incarnation == "second"


async def test_a_cancelled_registration_can_be_taken_back(open_session: OpenSession) -> None:
    one, two = open_session(), open_session()
    await one.brokers()
    for steps in range(20):
        task = asyncio.create_task(one.register(entry()))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await one.deregister("A")
        assert await two.brokers() == {}
    await one.register(entry(start="second"))
    assert await two.get("A") == entry(start="second")


async def test_registering_twice_is_no_contradiction(open_session: OpenSession) -> None:
    directory = open_session()
    await directory.register(entry())
    await directory.register(entry(near="D"))
    assert await directory.brokers() == {"A": entry(near="D")}


@pytest.mark.parametrize("broker_id", ["a/b", ".", "..", "größe 1%", "%2E", "x" * 255])
async def test_any_short_text_is_an_id(open_session: OpenSession, broker_id: str) -> None:
    one, two = open_session(), open_session()
    await one.register(entry(broker_id))
    assert list(await two.brokers()) == [broker_id]
    assert await two.neighbours_of(broker_id) == ("B", "C")
    async with two.lock([broker_id], timeout_s=20) as held:
        await held.verify()


async def test_a_watch_tells_who_comes_changes_and_goes(open_session: OpenSession) -> None:
    one, two = open_session(), open_session()
    seen: list[dict[str, BrokerEntry]] = []
    unwatch = two.watch(seen.append)
    await eventually(lambda: seen == [{}])
    await one.register(entry())
    await eventually(lambda: seen[-1] == {"A": entry()})
    await one.update(entry(near="D"))
    await eventually(lambda: seen[-1] == {"A": entry(near="D")})
    await one.register(entry("B", port=7001))
    await eventually(lambda: set(seen[-1]) == {"A", "B"})
    await one.deregister("A")
    await eventually(lambda: set(seen[-1]) == {"B"})
    await one.close()
    await eventually(lambda: seen[-1] == {})
    assert all(earlier != later for earlier, later in itertools.pairwise(seen))
    unwatch()
    unwatch()


async def test_a_watch_misses_nothing_in_a_crowd(open_session: OpenSession) -> None:
    sessions = [open_session() for _ in range(3)]
    seen: list[dict[str, BrokerEntry]] = []
    sessions[0].watch(seen.append)

    async def live(directory: Directory, number: int) -> None:
        broker = entry(f"broker {number}", port=7000 + number)
        for turn in range(4):
            await directory.register(broker)
            await directory.update(replace(broker, neighbours=(f"turn {turn}",)))
            if turn < 3 or number % 2:
                await directory.deregister(broker.broker_id)

    async with asyncio.TaskGroup() as group:
        for number in range(12):
            group.create_task(live(sessions[number % 3], number))
    expected = await sessions[1].brokers()
    assert len(expected) == 6
    await eventually(lambda: seen and seen[-1] == expected)


async def test_an_ended_watch_is_silent_and_the_others_go_on(open_session: OpenSession) -> None:
    directory = open_session()
    ended: list[dict[str, BrokerEntry]] = []
    going: list[dict[str, BrokerEntry]] = []
    unwatch = directory.watch(ended.append)
    directory.watch(going.append)
    await eventually(lambda: ended and going)
    unwatch()
    await directory.register(entry())
    await eventually(lambda: "A" in going[-1])
    assert ended == [{}]
    late: list[dict[str, BrokerEntry]] = []
    directory.watch(late.append)
    await eventually(lambda: late == [{"A": entry()}])
    assert len(going) == 2


async def test_a_failing_watcher_harms_nobody(open_session: OpenSession) -> None:
    directory = open_session()
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context["exception"]))
    seen: list[dict[str, BrokerEntry]] = []

    def fail(_: object) -> None:
        raise RuntimeError("a mistake in the callback")

    directory.watch(fail)
    directory.watch(seen.append)
    await eventually(lambda: len(seen) == 1)
    await directory.register(entry())
    await eventually(lambda: len(seen) == 2)
    assert len(problems) == 2


async def test_a_lock_has_one_holder_and_names_it(open_session: OpenSession) -> None:
    one, two = open_session(), open_session()
    await one.register(entry("holder"))
    async with one.lock(["B", "A", "B"], timeout_s=20) as held:
        assert held.broker_ids == ("A", "B")
        await held.verify()
        with pytest.raises(DirectoryError, match=r"no lock on broker 'B' .*held by broker holder \(process"):
            async with two.lock(["B", "C"], timeout_s=0.2):
                pytest.fail("two holders")
        async with two.lock(["C"], timeout_s=20):
            pass
    async with two.lock(["A", "B"], timeout_s=20):
        pass


async def test_a_lock_is_released_after_an_error_and_with_its_session(open_session: OpenSession) -> None:
    one, two = open_session(), open_session()
    with pytest.raises(RuntimeError, match="inside"):
        async with one.lock(["A"], timeout_s=20):
            raise RuntimeError("inside")
    async with two.lock(["A"], timeout_s=20):
        pass
    async with one.lock(["A"], timeout_s=20):
        await one.close()
        async with two.lock(["A"], timeout_s=20):
            pass


async def test_overlapping_neighbourhoods_take_turns(open_session: OpenSession) -> None:
    """Each request overlaps with the next one, in a circle: taken in the order given, they would deadlock."""
    sessions = [open_session() for _ in range(3)]
    inside: set[str] = set()
    turns = 0

    async def change(directory: Directory, neighbourhood: str) -> None:
        nonlocal turns
        for _ in range(5):
            async with directory.lock(neighbourhood, timeout_s=DEADLINE_S):
                assert inside.isdisjoint(neighbourhood)
                inside.update(neighbourhood)
                await asyncio.sleep(0)
                inside.difference_update(neighbourhood)
                turns += 1

    async with asyncio.TaskGroup() as group:
        for position, neighbourhood in enumerate(("AB", "BC", "CA", "BA", "CB", "AC")):
            group.create_task(change(sessions[position % 3], neighbourhood))
    assert turns == 30


async def test_a_cancelled_request_leaves_no_lock_behind(open_session: OpenSession) -> None:
    one, two = open_session(), open_session()

    async def request() -> None:
        async with one.lock(["A", "B"], timeout_s=20):
            await asyncio.Event().wait()

    await one.brokers()
    # Cancelled after so many steps of the loop: in the first attempt, between the two locks, while held.
    for steps in range(40):
        task = asyncio.create_task(request())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
    async with two.lock(["A", "B"], timeout_s=DEADLINE_S):
        pass


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, float("inf"), float("nan")])
async def test_a_lock_is_never_awaited_for_ever(timeout_s: float) -> None:
    async with open_directory("memory:") as directory:
        with pytest.raises(ConfigurationError, match="timeout_s"):
            async with directory.lock(["A"], timeout_s):
                pass


# A process that registers A, holds the lock of B, says so, and says more for every line it is sent.
HOLDER = """
import asyncio, sys
from braid.errors import DirectoryError
from braid.runtime.directory import BrokerEntry, DirectorySettings, open_directory

async def main() -> None:
    directory = open_directory(sys.argv[1], DirectorySettings(lease_s=2.0, poll_s=0.02))
    await directory.register(BrokerEntry("A", ("127.0.0.1:7000",), ("B", "C"), "first", 0))
    async with directory.lock(["B"], timeout_s=30) as held:
        print("ready", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            try:
                await held.verify()
                print("held", flush=True)
            except DirectoryError as problem:
                print(problem, flush=True)

asyncio.run(main())
"""


@contextmanager
def holder_process(url: str) -> Iterator[subprocess.Popen[bytes]]:
    """A HOLDER that is ready; it is killed in the end, as by `kill -9`."""
    command = [sys.executable, "-c", HOLDER, url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            process.kill()


# A process that adds to a number in a file, reading and writing it in two steps.
ADDER = """
import asyncio, pathlib, sys
from braid.runtime.directory import DirectorySettings, open_directory

async def main() -> None:
    number = pathlib.Path(sys.argv[2])
    async with open_directory(sys.argv[1], DirectorySettings(poll_s=0.01)) as directory:
        for _ in range(10):
            async with directory.lock(["A", "B"], timeout_s=120) as held:
                value = int(number.read_text())
                await held.verify()
                number.write_text(str(value + 1))

asyncio.run(main())
"""


@ACROSS_PROCESSES
async def test_a_killed_process_loses_entry_and_locks_but_not_its_neighbours(
    open_session: OpenSession, url: str
) -> None:
    directory = open_session()
    seen: list[dict[str, BrokerEntry]] = []
    directory.watch(seen.append)
    with holder_process(url) as process:
        await eventually(lambda: seen and "A" in seen[-1])
        with pytest.raises(DirectoryError, match=rf"held by broker A \(process {process.pid} on"):
            async with directory.lock(["B"], timeout_s=0.1):
                pytest.fail("the other process holds it")
    await eventually(lambda: seen[-1] == {})
    assert await directory.brokers() == {}
    assert await directory.neighbours_of("A") == ("B", "C")
    async with directory.lock(["B"], timeout_s=DEADLINE_S):
        pass


@ACROSS_PROCESSES
@pytest.mark.parametrize("port", [7000, 7001])
async def test_a_dead_brokers_id_can_be_used_again(open_session: OpenSession, url: str, port: int) -> None:
    """At once from the same address, and from another one when the lease has run out."""
    directory = open_session()
    with holder_process(url), pytest.raises(DirectoryError, match=r"127\.0\.0\.1:7000"):
        await directory.register(entry(port=7001, start="second"))
    attempts_max = 1 if port == 7000 else 10_000
    async with asyncio.timeout(DEADLINE_S):
        for attempt in range(attempts_max):
            try:
                await directory.register(entry(port=port, start="second"))
                break
            except DirectoryError:
                assert attempt < attempts_max - 1
                await asyncio.sleep(0.02)
    assert await directory.get("A") == entry(port=port, start="second")


@ACROSS_PROCESSES
async def test_a_process_that_stalled_comes_back_without_its_locks(
    open_session: OpenSession, url: str
) -> None:
    directory = open_session()
    with holder_process(url) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.send_signal(signal.SIGSTOP)
        await vanished(directory, "A")
        async with directory.lock(["B"], timeout_s=DEADLINE_S):
            process.send_signal(signal.SIGCONT)
            async with asyncio.timeout(DEADLINE_S):
                while await directory.get("A") is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            process.stdin.write(b"verify\n")
            process.stdin.flush()
            assert b"was lost and is now held by process" in await asyncio.to_thread(process.stdout.readline)


@ACROSS_PROCESSES
def test_processes_take_turns(url: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    number = tmp_path_factory.mktemp("number") / "number.txt"
    number.write_text("0")
    command = [sys.executable, "-c", ADDER, url, str(number)]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(3)]
    try:
        for process in processes:
            _, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors.decode()
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert number.read_text() == "30"

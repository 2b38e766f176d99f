"""Does the store thread answer everybody, in order, with few commits, and within its bounds?"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.errors import ConfigurationError, StoreError
from braid.protocol.log import (
    SWEEP_ROWS_MAX,
    AcknowledgeLog,
    AppendRows,
    CreateLog,
    DeleteLog,
    DropRows,
    LogRow,
    Retention,
    StoreOperation,
    StoreState,
    Sweep,
    SweptLog,
)
from braid.protocol.memory_store import MemoryStore
from braid.runtime.store import SqliteStore, StoreThread

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CREATE = CreateLog("orders", "alice", "TRUE", "drop_oldest", 0)
# Far more than any of this takes; only a test that hangs gets there.
DEADLINE_S = 60.0


class GatedStore(MemoryStore):
    """A store whose disk waits until it is told to go on; it remembers its calls."""

    def __init__(self, retention: Retention | None = None) -> None:
        super().__init__(retention=retention)
        self.gate = threading.Event()
        self.busy = threading.Event()
        self.calls: list[str] = []

    def _wait(self, call: str) -> None:
        self.calls.append(call)
        self.busy.set()
        assert self.gate.wait(DEADLINE_S)

    def apply(self, operations: Sequence[StoreOperation]) -> None:
        self._wait(f"apply {len(operations)}")
        super().apply(operations)

    def read(
        self, name: str, first_offset: int, last_offset: int | None, bytes_max: int
    ) -> list[tuple[int, LogRow]]:
        self._wait("read")
        return super().read(name, first_offset, last_offset, bytes_max)

    def sweep(self, now_us: int, rows_max: int = SWEEP_ROWS_MAX) -> Sweep:
        self._wait("sweep")
        return super().sweep(now_us, rows_max)


class Answers:
    """Collects what callbacks are given, and on which thread."""

    def __init__(self) -> None:
        self.given: list[tuple[str, Any]] = []
        self.threads: set[str] = set()

    def to(self, name: str) -> Any:
        def done(answer: Any) -> None:
            self.given.append((name, answer))
            self.threads.add(threading.current_thread().name)

        return done


def append(offset: int, count: int = 1, size: int = 10) -> AppendRows:
    return AppendRows("orders", offset, [LogRow("p", offset + n, bytes(size)) for n in range(count)], 0)


def held_up(store: GatedStore, **limits: int) -> StoreThread:
    """A thread whose first piece of work, the creation of the log, is under way and stays so."""
    thread = StoreThread(store, **limits)
    thread.submit([CREATE], lambda problem: None)
    assert store.busy.wait(DEADLINE_S)
    return thread


def test_what_queued_up_is_one_transaction_and_is_answered_in_order() -> None:
    store, answers = GatedStore(), Answers()
    thread = held_up(store)
    for offset in range(50):
        thread.submit([append(offset), AcknowledgeLog("orders", offset)], answers.to(str(offset)))
    store.gate.set()
    thread.close()
    assert store.calls == ["apply 1", "apply 100"]
    assert answers.given == [(str(offset), None) for offset in range(50)]
    assert answers.threads == {"braid store"}


def test_one_bad_submission_harms_no_other() -> None:
    store, answers = GatedStore(), Answers()
    thread = held_up(store)
    thread.submit([append(0)], answers.to("good"))
    thread.submit([append(7)], answers.to("bad"))
    thread.submit([append(1)], answers.to("good too"))
    store.gate.set()
    thread.close()
    good, bad, good_too = answers.given
    assert (good, good_too) == (("good", None), ("good too", None))
    assert bad[0] == "bad"
    assert isinstance(bad[1], StoreError)
    assert "offset 7" in str(bad[1])
    assert store.state().logs[0].next_offset == 2


def test_readings_do_not_cut_a_group_but_come_before_later_removals() -> None:
    store, answers = GatedStore(), Answers()
    thread = held_up(store)
    thread.submit([append(0, 3)], answers.to("append"))
    thread.read("orders", 0, None, 1000, answers.to("read"))
    thread.submit([append(3)], answers.to("append more"))
    thread.submit([DropRows("orders", 2)], answers.to("drop"))
    thread.read("orders", 0, None, 1000, answers.to("read again"))
    thread.submit([DeleteLog("orders")], answers.to("delete"))
    thread.read("orders", 0, None, 1000, answers.to("read what is gone"))
    store.gate.set()
    thread.close()
    assert store.calls == ["apply 1", "apply 2", "read", "apply 1", "read", "apply 1", "read"]
    names = [name for name, _ in answers.given]
    assert names == ["append", "append more", "read", "drop", "read again", "delete", "read what is gone"]
    found = dict(answers.given)
    assert [offset for offset, _ in found["read"]] == [0, 1, 2, 3]
    assert [offset for offset, _ in found["read again"]] == [2, 3]
    assert isinstance(found["read what is gone"], StoreError)


def test_a_sweep_keeps_its_place() -> None:
    store, answers = GatedStore(Retention(bytes_max=10)), Answers()
    thread = held_up(store)
    thread.submit([append(0, 2)], answers.to("append"))
    thread.sweep(0, answers.to("sweep"))
    thread.submit([append(2)], answers.to("append more"))
    store.gate.set()
    thread.close()
    assert store.calls == ["apply 1", "apply 1", "sweep", "apply 1"]
    assert answers.given == [
        ("append", None),
        ("sweep", Sweep((SweptLog("orders", 1, 0, 1),), True)),
        ("append more", None),
    ]


def test_too_many_requests_are_refused_and_nothing_is_lost() -> None:
    store, answers = GatedStore(), Answers()
    thread = held_up(store, count_max=3)
    for offset in range(3):
        assert thread.has_room
        thread.submit([append(offset)], answers.to(str(offset)))
    assert not thread.has_room
    with pytest.raises(StoreError, match="3 requests with 30 bytes are waiting, and at most 3"):
        thread.submit([append(3)], answers.to("refused"))
    with pytest.raises(StoreError, match="the store is behind"):
        thread.read("orders", 0, None, 10, answers.to("refused"))
    store.gate.set()
    thread.close()
    assert [name for name, _ in answers.given] == ["0", "1", "2"]


def test_too_many_bytes_are_refused_but_one_large_request_is_not() -> None:
    store, answers = GatedStore(), Answers()
    thread = held_up(store, bytes_max=100)
    thread.submit([append(0, size=1000)], answers.to("large"))
    assert not thread.has_room
    with pytest.raises(StoreError, match="1 requests with 1000 bytes"):
        thread.submit([append(1)], answers.to("refused"))
    read = threading.Event()
    thread.read("orders", 0, None, 10, lambda rows: read.set())
    store.gate.set()
    assert read.wait(DEADLINE_S)
    assert thread.has_room
    thread.submit([append(1, size=100)], answers.to("later"))
    thread.close()
    assert answers.given == [("large", None), ("later", None)]


def test_what_goes_along_with_rows_counts_as_they_do() -> None:
    store, answers = GatedStore(), Answers()
    thread = held_up(store, bytes_max=100)
    thread.submit([AppendRows("orders", 0, [LogRow("p", 1, b"x")], 0, recent=bytes(99))], answers.to("large"))
    assert not thread.has_room
    store.gate.set()
    thread.close()
    assert answers.given == [("large", None)]


def test_a_closed_thread_refuses_and_closes_again() -> None:
    thread = StoreThread(MemoryStore())
    thread.close()
    thread.close()
    with pytest.raises(StoreError, match="closed"):
        thread.submit([CREATE], lambda problem: None)


def test_a_callback_that_raises_is_reported_and_the_others_are_called() -> None:
    store, answers = GatedStore(), Answers()

    def broken(answer: Any) -> None:
        raise RuntimeError("this callback is broken")

    thread = held_up(store)
    thread.submit([append(0)], broken)
    thread.submit([append(1)], answers.to("next"))
    thread.read("orders", 0, None, 10, broken)
    store.gate.set()
    with pytest.raises(RuntimeError, match="this callback is broken"):
        thread.close()
    assert answers.given == [("next", None)]
    thread.close()


def test_a_mistake_in_the_store_is_an_answer_too() -> None:
    class BrokenStore(MemoryStore):
        def apply(self, operations: Sequence[StoreOperation]) -> None:
            raise ZeroDivisionError("a mistake")

        def read(self, *arguments: object) -> list[tuple[int, LogRow]]:
            raise ZeroDivisionError("a mistake")

        def sweep(self, *arguments: object) -> Sweep:
            raise ZeroDivisionError("a mistake")

    answers = Answers()
    thread = StoreThread(BrokenStore())
    thread.submit([CREATE], answers.to("submit"))
    thread.read("orders", 0, None, 10, answers.to("read"))
    thread.sweep(0, answers.to("sweep"))
    thread.close()
    assert [name for name, _ in answers.given] == ["submit", "read", "sweep"]
    for _, problem in answers.given:
        assert isinstance(problem, StoreError)
        assert problem.__cause__ is not None


@pytest.mark.parametrize("limits", [{"count_max": 0}, {"bytes_max": 0}])
def test_impossible_bounds_are_refused(limits: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match="at least 1"):
        StoreThread(MemoryStore(), **limits)


@given(
    st.lists(
        st.sampled_from([CREATE, DeleteLog("orders"), append(0, 2), append(2), DropRows("orders", 1)]),
        max_size=12,
    )
)
def test_grouping_changes_no_outcome(operations: list[StoreOperation]) -> None:
    """Each on its own, and whatever groups came about: same answers, same state."""
    plain, expected = MemoryStore(), list[str | None]()
    for operation in operations:
        try:
            plain.apply([operation])
            expected.append(None)
        except StoreError as problem:
            expected.append(str(problem))
    store, answers = MemoryStore(), Answers()
    thread = StoreThread(store)
    for operation in operations:
        thread.submit([operation], answers.to(""))
    thread.close()
    assert [answer and str(answer) for _, answer in answers.given] == expected
    assert store.state() == plain.state()


def test_with_the_store_on_disk_and_several_askers(tmp_path: Path) -> None:
    askers, each = 4, 50
    answers = Answers()
    with SqliteStore(tmp_path, retention=Retention()) as store:
        thread = StoreThread(store)

        def ask(number: int) -> None:
            name = f"log {number}"
            thread.submit([CreateLog(name, "o", "TRUE", "drop_oldest", 0)], answers.to(name))
            for offset in range(each):
                row = LogRow("p", offset, b"x" * 100)
                thread.submit([AppendRows(name, offset, [row], 0)], answers.to(name))

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(askers)]
        for asker in threads:
            asker.start()
        for asker in threads:
            asker.join()
        thread.close()
        assert [answer for _, answer in answers.given] == [None] * askers * (each + 1)
        state: StoreState = store.state()
    assert [(log.next_offset, log.bytes) for log in state.logs] == [(each, each * 100)] * askers

"""Does a log keep its offsets, its acknowledgements and its memory of sequence numbers?"""

from __future__ import annotations

import pytest

from braid.errors import ConfigurationError, StoreError
from braid.protocol.log import (
    NOTHING_ACKNOWLEDGED,
    AcknowledgeLog,
    AppendRows,
    CreateLog,
    DeleteLog,
    DropRows,
    ForgetNeighbour,
    KeepNeighbour,
    LogRow,
    LogState,
    Retention,
    StoreOperation,
    StoreState,
    Sweep,
    SweptLog,
)
from braid.protocol.memory_store import MemoryStore

CREATE = CreateLog("orders", "alice", "price > 10", "drop_oldest", 5)
SECOND_US = 1_000_000


def rows(*sequences: int, publisher: str = "p", size: int = 10) -> tuple[LogRow, ...]:
    return tuple(LogRow(publisher, sequence, bytes(size)) for sequence in sequences)


def store_of(*operations: StoreOperation, retention: Retention | None = None) -> MemoryStore:
    store = MemoryStore(retention=retention)
    store.apply([CREATE, *operations])
    return store


def log_of(store: MemoryStore) -> LogState:
    (log,) = store.state().logs
    return log


def test_a_new_log_is_empty() -> None:
    assert log_of(store_of()) == LogState(
        "orders", "alice", "price > 10", "drop_oldest", 0, 0, NOTHING_ACKNOWLEDGED, {}, 0, 5
    )


def test_rows_get_consecutive_offsets_and_the_highest_sequence_is_kept() -> None:
    store = store_of(
        AppendRows("orders", 0, rows(7, 8), 0),
        AppendRows("orders", 2, [*rows(3), *rows(-4, publisher="q")], 0),
    )
    log = log_of(store)
    assert (log.first_offset, log.next_offset, log.bytes) == (0, 4, 40)
    assert log.highest == {"p": 8, "q": -4}
    assert [(offset, row.sequence) for offset, row in store.read("orders", 0, None, 1000)] == [
        (0, 7),
        (1, 8),
        (2, 3),
        (3, -4),
    ]


def test_an_append_at_the_wrong_offset_names_both() -> None:
    store = store_of(AppendRows("orders", 0, rows(1, 2), 0))
    with pytest.raises(StoreError, match=r"'orders'.* at offset 5, but its next offset is 2"):
        store.apply([AppendRows("orders", 5, rows(3), 0)])


@pytest.mark.parametrize(
    "wrong",
    [
        CREATE,
        CreateLog("orders", "bob", "TRUE", "block", 9),
        DeleteLog("other"),
        AppendRows("other", 0, (), 0),
        AppendRows("orders", 3, rows(9), 0),
        AcknowledgeLog("orders", 2),
        AcknowledgeLog("orders", -2),
        AcknowledgeLog("other", 0),
        DropRows("orders", 3),
        DropRows("orders", -1),
        DropRows("other", 0),
    ],
)
def test_all_operations_of_a_call_or_none(wrong: StoreOperation) -> None:
    store = store_of(AppendRows("orders", 0, rows(1), 0))
    before = store.state()
    with pytest.raises(StoreError, match=r"'orders'|'other'"):
        store.apply([KeepNeighbour("B", "host:1"), AppendRows("orders", 1, rows(2), 0), wrong])
    assert store.state() == before


def test_a_log_can_be_replaced_within_one_call() -> None:
    store = store_of(AppendRows("orders", 0, rows(1, 2), 0))
    store.apply([DeleteLog("orders"), CREATE, AppendRows("orders", 0, rows(1), 0)])
    log = log_of(store)
    assert (log.next_offset, log.highest) == (1, {"p": 1})


def test_acknowledgements_are_cumulative_and_never_go_back() -> None:
    store = store_of(AppendRows("orders", 0, rows(1, 2, 3), 0), AcknowledgeLog("orders", 1))
    store.apply([AcknowledgeLog("orders", 0), AcknowledgeLog("orders", NOTHING_ACKNOWLEDGED)])
    assert log_of(store).acknowledged_offset == 1


def test_dropping_moves_the_first_offset_and_nothing_else() -> None:
    store = store_of(AppendRows("orders", 0, rows(1, 2, 3), 0), AcknowledgeLog("orders", 0))
    store.apply([DropRows("orders", 2), DropRows("orders", 1)])
    log = log_of(store)
    assert (log.first_offset, log.next_offset, log.acknowledged_offset, log.bytes) == (2, 3, 0, 10)
    assert log.highest == {"p": 3}
    assert [offset for offset, _ in store.read("orders", 0, None, 1000)] == [2]
    store.apply([DropRows("orders", 3), AppendRows("orders", 3, rows(4), 0)])
    assert [offset for offset, _ in store.read("orders", 0, None, 1000)] == [3]


@pytest.mark.parametrize(
    ("first", "last", "bytes_max", "offsets"),
    [
        (0, None, 1000, [0, 1, 2, 3, 4]),
        (1, 3, 1000, [1, 2, 3]),
        (3, 99, 1000, [3, 4]),
        (2, 1, 1000, []),
        (5, None, 1000, []),
        (99, None, 1000, []),
        (0, None, 30, [0, 1, 2]),
        (0, None, 29, [0, 1]),
        (1, None, 1, [1]),
    ],
)
def test_ranges(first: int, last: int | None, bytes_max: int, offsets: list[int]) -> None:
    store = store_of(AppendRows("orders", 0, rows(1, 2, 3, 4, 5), 0))
    assert [offset for offset, _ in store.read("orders", first, last, bytes_max)] == offsets


def test_impossible_ranges_and_unknown_logs_are_refused() -> None:
    store = store_of()
    with pytest.raises(StoreError, match="offset -1"):
        store.read("orders", -1, None, 10)
    with pytest.raises(StoreError, match="at most 0 bytes"):
        store.read("orders", 0, None, 0)
    with pytest.raises(StoreError, match="no log 'other'"):
        store.read("other", 0, None, 10)


def test_neighbours_are_kept_changed_and_forgotten() -> None:
    store = MemoryStore()
    store.apply([KeepNeighbour("C", "c:1"), KeepNeighbour("B", "b:1"), KeepNeighbour("B", "b:2")])
    assert store.state() == StoreState((), (("B", "b:2"), ("C", "c:1")))
    store.apply([ForgetNeighbour("C"), ForgetNeighbour("D")])
    assert store.state().neighbours == (("B", "b:2"),)


def test_a_sweep_takes_old_rows_only_when_they_are_acknowledged() -> None:
    retention = Retention(bytes_max=1000, age_s_max=10)
    store = store_of(
        AppendRows("orders", 0, rows(1, 2, 3), 0),
        AppendRows("orders", 3, rows(4, 5), 5 * SECOND_US),
        AcknowledgeLog("orders", 1),
        retention=retention,
    )
    assert store.sweep(10 * SECOND_US) == Sweep((), True)
    assert store.sweep(11 * SECOND_US) == Sweep((SweptLog("orders", 2, 2, 0),), True)
    assert store.sweep(1000 * SECOND_US) == Sweep((), True)
    store.apply([AcknowledgeLog("orders", 4)])
    assert store.sweep(12 * SECOND_US) == Sweep((SweptLog("orders", 3, 1, 0),), True)
    assert store.sweep(1000 * SECOND_US) == Sweep((SweptLog("orders", 5, 2, 0),), True)


def test_a_sweep_for_room_takes_acknowledged_rows_and_then_the_others() -> None:
    store = store_of(
        AppendRows("orders", 0, rows(*range(10)), 0),
        AcknowledgeLog("orders", 3),
        retention=Retention(bytes_max=40, age_s_max=None),
    )
    assert store.sweep(0) == Sweep((SweptLog("orders", 6, 4, 2),), True)
    log = log_of(store)
    assert (log.first_offset, log.acknowledged_offset, log.bytes) == (6, 3, 40)


def test_a_sweep_stops_after_so_many_rows_and_says_so() -> None:
    store = store_of(
        AppendRows("orders", 0, rows(*range(10)), 0), retention=Retention(bytes_max=40, age_s_max=None)
    )
    assert store.sweep(0, 4) == Sweep((SweptLog("orders", 4, 0, 4),), False)
    assert store.sweep(0, 0) == Sweep((), False)
    assert store.sweep(0, 4) == Sweep((SweptLog("orders", 6, 0, 2),), True)


@pytest.mark.parametrize("wrong", [{"bytes_max": 0}, {"age_s_max": -1.0}, {"age_s_max": float("nan")}])
def test_an_impossible_retention_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        Retention(**wrong)  # type: ignore[arg-type]


def test_an_endless_age_is_no_limit() -> None:
    assert Retention(age_s_max=float("inf")).oldest_at_us(0) is None

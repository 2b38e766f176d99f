"""Does the store on disk behave like the plain one in memory, also after being closed and opened again?"""

from __future__ import annotations

import re
import tempfile
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from braid.errors import StoreError
from braid.protocol.log import (
    AcknowledgeLog,
    AppendRows,
    BeginEpoch,
    CreateLog,
    DeleteLog,
    DropRows,
    ForgetNeighbour,
    ForgetPublishers,
    KeepNeighbour,
    KeepSecret,
    KeepStanding,
    KeepSubscribed,
    LogRow,
    PinRows,
    Retention,
    StoreOperation,
)
from braid.protocol.memory_store import MemoryStore
from braid.runtime.store import SqliteStore

# Appends and acknowledgements come more often than the rest, or logs would stay empty.
KINDS = (
    "append",
    "append",
    "append",
    "acknowledge",
    "acknowledge",
    "drop",
    "delete",
    "keep",
    "standing",
    "forget",
    "epoch",
    "pin",
    "pin",
    "secret",
    "subscribed",
    "forget publishers",
)
# Few names, so that operations meet; among them what text columns might get wrong.
names = st.sampled_from(["a", "a\x00b", "größe \U0001f600"])
misfits = st.builds(DeleteLog, st.just("unknown")) | st.builds(DropRows, names, st.just(10**6))
publishers = st.sampled_from(["p", "q", "broker/client"])
sequences = st.integers(-5, 20) | st.sampled_from([2**63 - 1, -(2**63)])
rows = st.lists(
    st.builds(
        LogRow, publishers, sequences, st.sampled_from([b"", b"0123456789", bytes(range(20)), bytes(9000)])
    ),
    max_size=6,
)
times = st.sampled_from([0, 5, 10, 15, 20]).map(lambda seconds: seconds * 1_000_000)
retentions = st.builds(
    Retention,
    bytes_max=st.sampled_from([1, 40, 200, 10**9, 10**9]),
    age_s_max=st.sampled_from([None, 0.0, 5.0, 10.0]),
)


class TwinStores(RuleBasedStateMachine):
    """Every step is done with both; answers and refusals must be the same."""

    @initialize(retention=retentions)
    def start(self, retention: Retention) -> None:
        self.retention = retention
        self.directory = tempfile.TemporaryDirectory()
        self.memory = MemoryStore(retention=retention)
        self.disk = self.opened()

    def opened(self) -> SqliteStore:
        # A waiting disk would only slow this down: no power fails here.
        return SqliteStore(self.directory.name, retention=self.retention, synchronous="NORMAL")

    def teardown(self) -> None:
        if hasattr(self, "disk"):
            self.disk.close()
            self.directory.cleanup()

    @rule(data=st.data(), count=st.integers(1, 6), mistake=st.sampled_from([False] * 9 + [True]))
    def apply(self, data: st.DataObject, count: int, mistake: bool) -> None:
        """Operations that fit together, so that interesting things happen, and seldom one that does not."""
        ends = {log.name: log.next_offset for log in self.memory.state().logs}
        operations = [self.fitting(data, ends) for _ in range(count)]
        if mistake:
            operations.append(data.draw(misfits))
        assert refusal(self.disk, operations) == refusal(self.memory, operations)

    def fitting(self, data: st.DataObject, ends: dict[str, int]) -> StoreOperation:
        """An operation that can be done when the logs end at `ends`, which it moves."""
        name = data.draw(names)
        if name not in ends:
            ends[name] = 0
            when_full = data.draw(st.sampled_from(["block", "drop_oldest"]))
            secret = data.draw(st.sampled_from(["", "sha256:1"]))
            return CreateLog(name, "owner", "x > 1", when_full, 7, secret, f"A-1.{len(ends)}")
        end = ends[name]
        match data.draw(st.sampled_from(KINDS)):
            case "delete":
                del ends[name]
                return DeleteLog(name)
            case "acknowledge":
                return AcknowledgeLog(name, data.draw(st.integers(-1, end - 1)))
            case "drop":
                return DropRows(name, data.draw(st.integers(0, end)))
            case "forget publishers":
                return ForgetPublishers(name, data.draw(st.lists(publishers, max_size=3)))
            case "secret":
                return KeepSecret(name, "sha256:2")
            case "subscribed":
                return KeepSubscribed(name)
            case "pin":
                consumer = data.draw(st.sampled_from(["job", "größe"]))
                return PinRows(name, consumer, data.draw(st.integers(-1, end)), data.draw(times))
            case "epoch":
                return BeginEpoch(name, data.draw(st.sampled_from(["A-1", "A-2", "A-3"])))
            case "keep":
                return KeepNeighbour(
                    name,
                    *data.draw(
                        st.sampled_from(
                            [
                                ("h:1",),
                                ("h:2", "key"),
                                ("", "other", "h:3"),
                                ("h:4", "", "", 2, ("h:1", "h:2")),
                            ]
                        )
                    ),
                )
            case "standing":
                neighbours = data.draw(st.sampled_from([(), (("B", "h:1"),), (("B", "h:1"), ("C", "h:2"))]))
                return KeepStanding(name, data.draw(st.integers(1, 3)), "key", neighbours)
            case "forget":
                return ForgetNeighbour(name)
        some = data.draw(rows)
        ends[name] += len(some)
        return AppendRows(name, end, some, data.draw(times))

    @rule(
        name=names,
        first=st.integers(-1, 20),
        last=st.none() | st.integers(-1, 20) | st.just(2**70),
        bytes_max=st.sampled_from([0, 1, 20, 30, 40, 10**6]),
    )
    def read(self, name: str, first: int, last: int | None, bytes_max: int) -> None:
        assert answer(self.disk, name, first, last, bytes_max) == answer(
            self.memory, name, first, last, bytes_max
        )

    @rule(
        name=names,
        first=st.integers(-1, 20),
        last=st.none() | st.integers(-1, 20) | st.just(2**70),
        bytes_max=st.sampled_from([0, 1, 20, 30, 40, 10**6]),
    )
    def read_packed(self, name: str, first: int, last: int | None, bytes_max: int) -> None:
        expected = answer(self.memory, name, first, last, bytes_max)
        if isinstance(expected, str):
            with pytest.raises(StoreError, match=re.escape(expected)):
                self.disk.read_packed(name, first, last, bytes_max)
            return
        found = self.disk.read_packed(name, first, last, bytes_max)
        rows = [] if found is None else [*enumerate(found[1].checked().rows(), found[0])]
        wanted = [(offset, (row.publisher, row.sequence, row.record)) for offset, row in expected]
        # It may stop earlier, but not before the first.
        assert rows == wanted[: len(rows)]
        assert bool(rows) == bool(wanted)

    @rule(now_us=times, rows_max=st.integers(0, 5) | st.just(1000))
    def sweep(self, now_us: int, rows_max: int) -> None:
        on_disk, in_memory = self.disk.sweep(now_us, rows_max), self.memory.sweep(now_us, rows_max)
        assert on_disk.logs == in_memory.logs
        # On disk there may be more to do: rows of deleted logs.
        assert in_memory.finished or not on_disk.finished

    @rule()
    def reopen(self) -> None:
        self.disk.close()
        self.disk = self.opened()

    @invariant()
    def same_state(self) -> None:
        if hasattr(self, "disk"):
            # The one on disk has a secret of its own.
            assert replace(self.disk.state(), secret="") == self.memory.state()


def refusal(store: SqliteStore | MemoryStore, operations: list[StoreOperation]) -> str | None:
    try:
        store.apply(operations)
    except StoreError as problem:
        return str(problem)
    return None


def answer(
    store: SqliteStore | MemoryStore, name: str, first: int, last: int | None, bytes_max: int
) -> list[tuple[int, LogRow]] | str:
    try:
        return store.read(name, first, last, bytes_max)
    except StoreError as problem:
        return str(problem)


TestTwinStores = pytest.mark.timeout(1200)(TwinStores.TestCase)  # a minute or two of disk work
# Each run opens files and waits for the disk, so half as many as usual.
TestTwinStores.settings = settings(stateful_step_count=30, max_examples=max(1, settings().max_examples // 2))

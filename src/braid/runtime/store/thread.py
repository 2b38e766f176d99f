"""How does an event loop use a disk without waiting for it?

One thread does the store's work, in the order in which it was asked for. Whatever has queued up while the
disk was busy becomes one transaction (group commit): the slower the disk, the larger the groups, so the wait
for the disk is shared and not multiplied.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from braid.errors import ConfigurationError, StoreError
from braid.protocol.log import AppendRows, DeleteLog, DropRows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from braid.protocol.log import LogRow, Store, StoreOperation, Sweep
    from braid.protocol.packed_rows import PackedRows

__all__ = ["StoreThread"]

# Enough for every link and client of a busy broker to have something under way at once.
WORK_COUNT_MAX = 4096
# One group is at most what may wait; this much is written in well under a second by an ordinary disk.
WORK_BYTES_MAX = 32 << 20


@dataclass(frozen=True, slots=True)
class _Submission:
    operations: Sequence[StoreOperation]
    done: Callable[[StoreError | None], None]
    bytes: int

    def removes_rows(self) -> bool:
        return any(isinstance(operation, DeleteLog | DropRows) for operation in self.operations)


@dataclass(frozen=True, slots=True)
class _Reading:
    name: str
    first_offset: int
    last_offset: int | None
    bytes_max: int
    done: Callable[[Any], None]
    bytes: int = 0
    packed: bool = False


@dataclass(frozen=True, slots=True)
class _Sweep:
    now_us: int
    done: Callable[[Sweep | StoreError], None]
    bytes: int = 0


_Answer = TypeVar("_Answer")
_Work: TypeAlias = _Submission | _Reading | _Sweep


class StoreThread:
    """A store at work on a thread of its own.

    Each `done` is called exactly once, on that thread; an event loop is told with `call_soon_threadsafe`.
    A `done` must not raise. If one does, the others are still called, and `close` raises what it raised.

    A read sees at least everything that was submitted before it, and no removal that was submitted later.
    The store itself stays its owner's, who closes it after this thread.
    """

    def __init__(
        self, store: Store, *, count_max: int = WORK_COUNT_MAX, bytes_max: int = WORK_BYTES_MAX
    ) -> None:
        """Start the thread.

        Args:
            store: used by this thread alone from now until `close` has returned.
            count_max: requests that may wait. Higher: larger groups, longer waits, more memory.
            bytes_max: bytes of waiting records, and of what goes along with them, from which on no more are
                taken; the request that passes this mark is the last. Requests without rows (readings,
                acknowledgements) are still taken.
        """
        if count_max < 1 or bytes_max < 1:
            raise ConfigurationError(
                f"a store thread needs room to wait: count_max {count_max} and bytes_max {bytes_max} "
                "must be at least 1"
            )
        self._store = store
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._changed = threading.Condition()
        self._waiting: deque[_Work] = deque()
        self._waiting_bytes = 0
        self._closing = False
        self._callback_problem: BaseException | None = None
        # A daemon, so that a program that ends without `close` is not held up: what was not reported was
        # not promised.
        self._thread = threading.Thread(target=self._run, name="braid store", daemon=True)
        self._thread.start()

    @property
    def has_room(self) -> bool:
        """False when rows would be refused; then stop taking in what needs the store."""
        with self._changed:
            return len(self._waiting) < self._count_max and self._waiting_bytes < self._bytes_max

    def submit(self, operations: Sequence[StoreOperation], done: Callable[[StoreError | None], None]) -> None:
        """Have all operations done, or none; `done` gets None once they are committed, or the error.

        Raises:
            StoreError: too much is waiting, or the thread is closed. Then `done` is not called.
        """
        size = sum(
            len(operation.recent) + sum(len(row.record) for row in operation.rows)
            for operation in operations
            if isinstance(operation, AppendRows)
        )
        self._ask(_Submission(operations, done, size))

    def read(
        self,
        name: str,
        first_offset: int,
        last_offset: int | None,
        bytes_max: int,
        done: Callable[[list[tuple[int, LogRow]] | StoreError], None],
    ) -> None:
        """Have rows read as `Store.read` does; `done` gets them or the error. Raises as `submit` does."""
        self._ask(_Reading(name, first_offset, last_offset, bytes_max, done))

    def read_packed(
        self,
        name: str,
        first_offset: int,
        last_offset: int | None,
        bytes_max: int,
        done: Callable[[tuple[int, PackedRows] | StoreError | None], None],
    ) -> None:
        """Have rows read as `Store.read_packed` does; `done` gets them, None, or the error."""
        self._ask(_Reading(name, first_offset, last_offset, bytes_max, done, packed=True))

    def sweep(self, now_us: int, done: Callable[[Sweep | StoreError], None]) -> None:
        """Have the store swept; `done` gets what was removed or the error. Raises as `submit` does.

        One sweep is short. If it was not `finished`, ask again: other work then has its turn between them.
        """
        self._ask(_Sweep(now_us, done))

    def close(self) -> None:
        """Finish what was asked for, and end the thread. Not from within a `done`.

        Raises:
            BaseException: the first one that a `done` raised, if any did.
        """
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()
        problem, self._callback_problem = self._callback_problem, None
        if problem is not None:
            raise problem

    def _ask(self, work: _Work) -> None:
        with self._changed:
            if self._closing:
                raise StoreError("the store thread is closed; nothing more can be asked of it")
            count, size = len(self._waiting), self._waiting_bytes
            if count >= self._count_max or (work.bytes and size >= self._bytes_max):
                error = StoreError(
                    f"the store is behind: {count} requests with {size} bytes are waiting, and at most "
                    f"{self._count_max} with {self._bytes_max} may; try again when some have been answered"
                )
                error.temporary = True
                raise error
            self._waiting.append(work)
            self._waiting_bytes += work.bytes
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closing:
                    self._changed.wait()
                if not self._waiting:
                    return
                sweep, submissions, readings = self._take_group()
            if sweep is not None:
                self._sweep(sweep)
            self._commit(submissions)
            for reading in readings:
                self._read(reading)

    def _take_group(self) -> tuple[_Sweep | None, list[_Submission], list[_Reading]]:
        """Take from the queue what can be done together: a sweep, or submissions and then readings.

        Readings wait for submissions that came after them, so that they do not cut a group in two, except
        for submissions that remove rows.
        """
        submissions: list[_Submission] = []
        readings: list[_Reading] = []
        while self._waiting:
            work = self._waiting[0]
            if isinstance(work, _Sweep):
                if submissions or readings:
                    break
                self._waiting.popleft()
                return work, [], []
            if isinstance(work, _Reading):
                readings.append(work)
            elif readings and work.removes_rows():
                break
            else:
                submissions.append(work)
            self._waiting.popleft()
            self._waiting_bytes -= work.bytes
        return None, submissions, readings

    def _commit(self, submissions: list[_Submission]) -> None:
        """One transaction for all; if that fails, one for each, so that a bad one harms no other."""
        if len(submissions) > 1:
            together = [operation for submission in submissions for operation in submission.operations]
            if self._attempt(together) is None:
                for submission in submissions:
                    self._call(submission.done, None)
                return
        for submission in submissions:
            self._call(submission.done, self._attempt(submission.operations))

    def _attempt(self, operations: Sequence[StoreOperation]) -> StoreError | None:
        try:
            self._store.apply(operations)
        except Exception as problem:
            return _as_store_error(problem)
        return None

    def _read(self, work: _Reading) -> None:
        answer: list[tuple[int, LogRow]] | tuple[int, PackedRows] | StoreError | None
        try:
            read = self._store.read_packed if work.packed else self._store.read
            answer = read(work.name, work.first_offset, work.last_offset, work.bytes_max)
        except Exception as problem:
            answer = _as_store_error(problem)
        self._call(work.done, answer)

    def _sweep(self, work: _Sweep) -> None:
        answer: Sweep | StoreError
        try:
            answer = self._store.sweep(work.now_us)
        except Exception as problem:
            answer = _as_store_error(problem)
        self._call(work.done, answer)

    def _call(self, done: Callable[[_Answer], None], answer: _Answer) -> None:
        """A callback that raises must not keep the others from being called; `close` tells of it."""
        try:
            done(answer)
        except BaseException as problem:
            if self._callback_problem is None:
                self._callback_problem = problem


def _as_store_error(problem: Exception) -> StoreError:
    """Whoever waits for an answer gets one, also after a mistake in the store."""
    if isinstance(problem, StoreError):
        return problem
    error = StoreError(f"the store failed unexpectedly: {type(problem).__name__}: {problem}")
    error.__cause__ = problem
    return error

"""Small tools that the tests of the embedded bus share."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["PATIENCE_S", "Background", "no_threads_left", "until", "until_async"]

# Far longer than anything here takes: it only turns a hang into a failure.
PATIENCE_S = 30.0


def until(condition: Callable[[], bool]) -> None:
    """Return as soon as the condition holds; fail instead of hanging when it never does."""
    deadline_s = time.monotonic() + PATIENCE_S
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline_s, "the expected state was never reached"
        pause.wait(0.001)


async def until_async(condition: Callable[[], bool]) -> None:
    """As `until`, while the other tasks of the loop run."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, "the expected state was never reached"
        await asyncio.sleep(0)


class Background:
    """A function in a thread of its own, whose result or exception is asked for later."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._result: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._function()
        except BaseException as error:
            self._error = error

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> Any:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the thread hangs"
        if self._error is not None:
            raise self._error
        return self._result


@contextmanager
def no_threads_left() -> Iterator[None]:
    """Fail when a thread that was started inside still runs at the end."""
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before

"""What becomes of a bus that nobody closed before the program ends?

Callback threads are daemons: the interpreter would end in the middle of what is queued for them. So
the first callback subscription asks to be called at the end of the program; then every bus that
still owes deliveries makes them, within the time that closing waits anyhow.
"""

from __future__ import annotations

import atexit
import os
import time
import warnings
from functools import cache
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from braid.embedded.engine import remaining

if TYPE_CHECKING:
    from braid.embedded.engine import Engine

__all__ = ["CLOSE_TIMEOUT_S", "await_the_end"]

CLOSE_TIMEOUT_S = 5.0
"""How long closing waits for callbacks unless told otherwise: patient, and never for ever."""

# With the process it belongs to: a fork has a copy of the engine but not its threads.
_engines: WeakKeyDictionary[Engine, int] = WeakKeyDictionary()


def await_the_end(engine: Engine) -> None:
    """See to it that what is queued for callbacks is delivered even when the bus is never closed."""
    _ask_once()
    _engines[engine] = os.getpid()


@cache
def _ask_once() -> None:
    atexit.register(_finish)


def _finish() -> None:
    # A list at one stroke, since callbacks may still be subscribing.
    engines = [engine for reference in _engines.keyrefs() if (engine := reference()) is not None]
    owing = [engine for engine in engines if _engines.get(engine) == os.getpid() and engine.owing]
    unclosed = [engine.name for engine in owing if not engine.closed]
    try:
        for name in unclosed:
            warnings.warn(
                f"the bus {name!r} was not closed before the program ended", ResourceWarning, stacklevel=2
            )
    finally:
        # Even when warnings are errors.
        deadline_s = time.monotonic() + CLOSE_TIMEOUT_S
        for engine in owing:
            engine.close(True, remaining(deadline_s))

"""How does every worker get the same value once?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

__all__ = ["Shared"]


class Shared:
    """A value that workers get when they first need it.

    A broadcast where there is a Spark context; with Spark Connect, which has none, the value travels inside
    the function that needs it.
    """

    def __init__(self, frame: DataFrame, value: Any) -> None:
        self._value = value
        self._broadcast: Any = None
        self.freed = False
        try:
            context = frame.sparkSession.sparkContext
        except Exception:  # Connect raises its own kind of error, from a module that may not be installed
            return
        self._broadcast = context.broadcast(value)

    def reader(self) -> Callable[[], Any]:
        """A function for workers that gives the value."""
        broadcast, value = self._broadcast, self._value
        if broadcast is None:
            return lambda: value
        return lambda: broadcast.value

    def free(self) -> None:
        """Take it from the memory and disks of all workers and the driver; nothing can read it after that."""
        if self._broadcast is not None and not self.freed:
            self._broadcast.destroy()
        self.freed = True

"""How does an error reach the user of a query as a sentence?

Spark shows what a Python worker raises with its whole traceback inside one of its own. For mistakes of the
user and for what brokers refuse, the sentence is all there is to know, so the traceback is left out. A worker
that raises ends, so nobody else in it is affected.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from braid.errors import BraidError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SourceError", "UnknownLogError", "as_sentences"]

# What PySpark asks when it reports an exception of a worker.
HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"


class SourceError(ConfigurationError):
    """A query that cannot go on, and what to do about it."""


class UnknownLogError(SourceError):
    """There is no such log."""


@contextmanager
def as_sentences() -> Iterator[None]:
    """Raise what Braid raises without the way that led there."""
    try:
        yield
    except (BraidError, TimeoutError) as error:
        os.environ[HIDE_TRACEBACK] = "1"
        raise SourceError(str(error)) from None

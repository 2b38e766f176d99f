"""Filters that are read once, however often their texts come again.

The same filters come again after a reconnection, from many programs, and at every broker of a simulation. And
reading a long one takes far longer than a turn may: a driver has it read beforehand, elsewhere than in
the turn (`prepare`), and the turn finds it here.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from braid.errors import FilterError
from braid.language.filters import Filter
from braid.language.memory import Memory

__all__ = ["LONG_TEXT", "prepare", "read_filter"]

LONG_TEXT: Final = 2_048
"""A filter with more characters is worth reading beforehand: it takes milliseconds."""


def _read(text: str) -> Filter | FilterError:
    try:
        return Filter(text)
    except FilterError as error:
        # A mistake may stand at the end, and is as much work to find.
        return error.with_traceback(None)


# A filter that was taken apart takes up to some hundred bytes for a character of its text. One of 64 KB, the
# longest that brokers take if nothing else is said, still has room.
_filters = Memory(_read, characters_max=8 * (65_536 + 128))


def read_filter(text: str) -> Filter:
    """The filter of a text, remembered.

    Raises:
        FilterError: it is none; that is remembered, too.
    """
    found = _filters(text)
    if isinstance(found, Filter):
        return found
    raise found.with_traceback(None)


def prepare(text: str) -> None:
    """Read a filter, or find the mistake in it, so that it need not be done later."""
    with suppress(FilterError):
        _ = read_filter(text).terms

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
from braid.language.parser import TEXT_LENGTH_MAX

__all__ = ["LONG_TEXT", "common_part", "is_within", "prepare", "read_filter"]

LONG_TEXT: Final = 2_048
"""A filter with more characters is worth reading beforehand: it takes milliseconds."""


def _read(text: str) -> Filter | FilterError:
    try:
        return Filter(text)
    except FilterError as error:
        # A mistake may stand at the end, and is as much work to find.
        return error.with_traceback(None)


# The longest filter that brokers take of clients if nothing else is said.
_USUAL_MAX: Final = 65_536
# A filter that was taken apart takes up to some hundred bytes for a character of its text. One of the usual
# ones still has room.
_filters = Memory(_read, characters_max=8 * (_USUAL_MAX + 128))
# Only neighbours send longer ones: filters that were narrowed, or of brokers that take longer ones. Of the
# very longest there is room for one or two.
_longer_filters = Memory(_read, characters_max=2 * (TEXT_LENGTH_MAX + 128), part=2)


def read_filter(text: str) -> Filter:
    """The filter of a text, remembered.

    Raises:
        FilterError: it is none; that is remembered, too.
    """
    found = _filters(text) if len(text) <= _USUAL_MAX else _longer_filters(text)
    if isinstance(found, Filter):
        return found
    raise found.with_traceback(None)


def _covered(asked: str, granted: str) -> bool | str:
    return read_filter(granted).covers(read_filter(asked)) or "no"


def _common(asked: Filter, granted: Filter) -> Filter | FilterError:
    if is_within(asked, granted):
        return asked
    if asked.covers(granted):
        return granted
    try:
        # As both were written: what is in force is then hardly longer than what was asked for and granted.
        narrowed = read_filter(f"({asked.text}) AND ({granted.text})")
    except FilterError as error:
        return error
    _ = narrowed.terms
    is_within(narrowed, granted)  # asked when a durable subscription is resumed
    return narrowed


def _common_of_texts(asked: str, granted: str) -> Filter | FilterError:
    return _common(read_filter(asked), read_filter(granted))


# An answer takes no more than its texts; what two filters have in common is as large as a filter.
_answers = Memory(_covered, characters_max=4 * (TEXT_LENGTH_MAX + 128), part=2)
_commons = Memory(_common_of_texts, characters_max=8 * (_USUAL_MAX + 128), part=2)


def is_within(asked: Filter, granted: Filter) -> bool:
    """Whether all that a filter accepts is granted by another one; of long ones the answer is remembered."""
    if len(asked.text) <= LONG_TEXT:
        return granted.covers(asked)
    return _answers(asked.text, granted.text) is True


def common_part(asked: Filter, granted: Filter) -> Filter | None:
    """What two filters have in common; the asked one itself where all of it is granted, None for nothing.

    Of a long one it is remembered.

    Raises:
        FilterError: both together are too large a filter.
    """
    is_long = len(asked.text) > LONG_TEXT
    found = _commons(asked.text, granted.text) if is_long else _common(asked, granted)
    if isinstance(found, FilterError):
        raise found.with_traceback(None)
    for each in (asked, granted):
        if found.text == each.text:
            return each
    return found if found.satisfiable else None


def prepare(text: str, granted: str = "", *, narrow: bool = False) -> None:
    """Read a filter, or find the mistake in it, so that it need not be done later.

    Args:
        text: of the filter.
        granted: what it is held against: whether that covers it is found, too.
        narrow: whether what both have in common is wanted if it does not.
    """
    with suppress(FilterError):
        filter = read_filter(text)
        _ = filter.terms
        if granted and narrow:
            common_part(filter, read_filter(granted))
        elif granted:
            is_within(filter, read_filter(granted))

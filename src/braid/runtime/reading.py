"""Long filters are read beside the event loop, before the machine sees the messages that they are in.

A turn never waits, and to read a filter of 64 KB takes many times as long as a turn may. So a connection
holds back such a message, and what is behind it, until a thread has read the filter; the turn then finds it
read (`braid.language.reading`). What its asker may have is known by then, so the thread also holds the filter
against that, and narrows it where the turn would. All connections of a node share one thread, and each has
one filter there at a time.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from braid.language.reading import LONG_TEXT, prepare
from braid.protocol.inputs import Received
from braid.protocol.messages import Advertise, CreateDurable, Replay, Subscribe, SubscribeDurable

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from braid.protocol import Frame
    from braid.protocol.effects import Granted
    from braid.protocol.inputs import Input

__all__ = ["FilterReader", "held_against", "long_filter", "without_long_filters"]

_WITH_FILTERS = frozenset({Advertise, CreateDurable, Replay, Subscribe, SubscribeDurable})


class FilterReader:
    """Reads filters in a thread of its own, one after the other."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread: ThreadPoolExecutor | None = None
        self._closed = False

    def read(self, text: str, granted: str, narrow: bool, then: Callable[[], None]) -> None:
        """Have a filter read, and call this on the loop afterwards.

        Args:
            text: of the filter.
            granted: what it is held against; empty for nothing.
            narrow: whether what both have in common is wanted.
            then: what is called.
        """
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "braid-filters")

        def done(_: Future[None]) -> None:
            if not self._closed and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(then)

        self._thread.submit(prepare, text, granted, narrow=narrow).add_done_callback(done)

    def close(self) -> None:
        """Read nothing more."""
        self._closed = True
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)


def long_filter(frame: Frame) -> str | None:
    """The long filter in a frame, if there is one."""
    body = frame.body
    if type(body) not in _WITH_FILTERS:
        return None
    text: str = body.filter  # type: ignore[union-attr]
    return text if len(text) > LONG_TEXT else None


def without_long_filters(frames: Sequence[Frame]) -> list[tuple[Sequence[Frame], str | None]]:
    """The frames in their order, and what is to be read before each of these parts."""
    parts: list[tuple[Sequence[Frame], str | None]] = []
    first = 0
    for place, frame in enumerate(frames):
        text = long_filter(frame)
        if text is not None:
            if first < place:
                parts.append((frames[first:place], None))
            parts.append((frames[place : place + 1], text))
            first = place + 1
    if first < len(frames) or not frames:
        parts.append((frames[first:], None))
    return parts


def held_against(stimulus: Input, granted: Granted | None) -> tuple[str, bool]:
    """What the long filter in a part is held against, empty for nothing, and whether it is narrowed so."""
    if granted is None or not isinstance(stimulus, Received):
        return "", False
    advertised = any(type(frame.body) is Advertise for frame in stimulus.frames)
    return granted.advertise if advertised else granted.subscribe, granted.narrow

"""Hands pictures and news to viewers, each at its own pace.

A viewer that reads slowly is given fewer pictures, never old ones one after the other: there is one
picture for each, the latest, and so many sentences that wait. So what a viewer costs is bounded, and the
others do not notice it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from braid.errors import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Viewer", "Viewers"]

# Who watches at a time; more are told to come later.
VIEWERS_MAX: Final = 32
# Sentences that wait for one viewer; the oldest go first.
NEWS_MAX: Final = 100


class Viewer:
    """One who watches."""

    def __init__(self) -> None:
        self._picture: bytes | None = None
        self._news: deque[bytes] = deque(maxlen=NEWS_MAX)
        self._ready = asyncio.Event()
        self._gone = False
        self.skipped = 0
        """Pictures that were replaced before they were read."""

    def show(self, picture: bytes) -> None:
        """There is a later picture."""
        if self._picture is not None:
            self.skipped += 1
        self._picture = picture
        self._ready.set()

    def tell(self, news: bytes) -> None:
        """There is something to say."""
        self._news.append(news)
        self._ready.set()

    def end(self) -> None:
        """There will be nothing more."""
        self._gone = True
        self._ready.set()

    async def next(self, timeout_s: float) -> list[bytes] | None:
        """What there is to send, in order; empty if nothing has come for so long, None at the end."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._ready.wait()
        except TimeoutError:
            return []
        if self._gone:
            return None
        self._ready.clear()
        found = list(self._news)
        self._news.clear()
        if self._picture is not None:
            found.append(self._picture)
            self._picture = None
        return found


class Viewers:
    """All who watch."""

    def __init__(self, viewers_max: int = VIEWERS_MAX) -> None:
        self._viewers: set[Viewer] = set()
        self._viewers_max = viewers_max

    def __len__(self) -> int:
        return len(self._viewers)

    @contextmanager
    def viewer(self) -> Iterator[Viewer]:
        """One more.

        Raises:
            RequestRefusedError: there are too many.
        """
        if len(self._viewers) >= self._viewers_max:
            raise RequestRefusedError(
                f"{self._viewers_max} viewers are watching already; close another page first", "limit"
            )
        viewer = Viewer()
        self._viewers.add(viewer)
        try:
            yield viewer
        finally:
            self._viewers.discard(viewer)

    def show(self, picture: bytes) -> None:
        """A later picture for everybody."""
        for viewer in self._viewers:
            viewer.show(picture)

    def tell(self, news: bytes) -> None:
        """Something for everybody."""
        for viewer in self._viewers:
            viewer.tell(news)

    def end(self) -> None:
        """Nothing more for anybody."""
        for viewer in self._viewers:
            viewer.end()

    def statistics(self) -> dict[str, Any]:
        """How many there are, and what they did not see."""
        return {"viewers": len(self._viewers), "skipped": sum(viewer.skipped for viewer in self._viewers)}

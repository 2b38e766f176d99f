"""Which way did a publication take through this broker?

Operators name a publisher, and for a minute from then on it is remembered from whom each of its publications
came and to whom it went. Nothing is kept of anybody else's, and nothing is done at all while no publisher is
named. Each broker knows its own part of the way; whoever asks all of them has the whole.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from braid.errors import RequestRefusedError
from braid.protocol import PublicationBatch
from braid.protocol.effects import Send
from braid.protocol.inputs import Received
from braid.protocol.messages import StoredPublications
from braid.protocol.publisher_names import publisher_and_epoch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from braid.protocol.effects import Effect
    from braid.protocol.inputs import Input

__all__ = ["Watching"]

# Publishers that are watched at a time; the one that was named first goes for another one.
PUBLISHERS_MAX: Final = 16
# Publications of one publisher that are remembered, and receivers of one of them that are named.
PUBLICATIONS_MAX: Final = 64
RECEIVERS_MAX: Final = 100
# How long a publisher is watched after it was last named.
WATCH_US: Final = 60_000_000


@dataclass(slots=True)
class _Way:
    """What became of one publication here."""

    came_from: str
    came_by: str
    """`client`, `broker` or `soft`."""
    at_us: int
    hops: int
    went_to: list[tuple[str, str, int]] = field(default_factory=list)
    """Kind, name and time."""
    receivers: int = 0
    copies: int = 1
    """How often it has come."""


@dataclass(slots=True)
class _Watched:
    until_us: int
    ways: OrderedDict[int, _Way] = field(default_factory=OrderedDict)
    """By sequence number."""


class Watching:
    """Watches the publications of a few publishers in one broker.

    Args:
        who: kind and name of the party at the other end of a connection.
        now_us: the clock that turns are timed by.
        look: called with `turn` when there is something to watch, and with None when there is not.
    """

    def __init__(
        self,
        who: Callable[[int], tuple[str, str] | None],
        now_us: Callable[[], int],
        look: Callable[[Callable[[Input, Sequence[Effect], int], None] | None], None],
    ) -> None:
        self._who = who
        self._now_us = now_us
        self._look = look
        self._watched: OrderedDict[str, _Watched] = OrderedDict()

    # What operators ask.

    def watch(self, arguments: Mapping[str, str]) -> dict[str, Any]:
        """Begin to watch a publisher, or go on."""
        name = _publisher(arguments)
        now_us = self._now_us()
        self._forget(now_us)
        watched = self._watched.pop(name, None) or _Watched(0)
        watched.until_us = now_us + WATCH_US
        self._watched[name] = watched
        while len(self._watched) > PUBLISHERS_MAX:
            self._watched.popitem(last=False)
        self._look(self.turn)
        return {"watched": list(self._watched)}

    def way(self, arguments: Mapping[str, str]) -> dict[str, Any]:
        """What became of one publication here; nothing if it was not here, or not watched."""
        name = _publisher(arguments)
        number = arguments.get("sequence", "")
        if not (number.isascii() and number.isdigit() and len(number) < 20):
            raise RequestRefusedError(
                f"sequence is the publication's number, not {number[:40]!r}", "argument"
            )
        self._forget(self._now_us())
        watched = self._watched.get(name)
        way = watched.ways.get(int(number)) if watched is not None else None
        if way is None:
            return {"watched": watched is not None, "here": False}
        return {
            "watched": True,
            "here": True,
            "came_from": way.came_from,
            "came_by": way.came_by,
            "at_us": way.at_us,
            "hops": way.hops,
            "copies": way.copies,
            "went_to": [{"kind": kind, "name": to, "at_us": at_us} for kind, to, at_us in way.went_to],
            "receivers": way.receivers,
        }

    # What a node tells.

    def turn(self, stimulus: Input, effects: Sequence[Effect], at_us: int) -> None:
        """Take note of a turn that began at `at_us`."""
        if type(stimulus) is Received:
            for frame in stimulus.frames:
                if type(frame.body) is PublicationBatch:
                    self._came(stimulus.connection, frame.body, at_us)
        for effect in effects:
            if type(effect) is Send:
                for frame in effect.frames:
                    if type(frame.body) is PublicationBatch:
                        self._went(effect.connection, frame.body, at_us)
                    elif type(frame.body) is StoredPublications:
                        self._went_from_log(effect.connection, frame.body, at_us)
        if all(at_us > watched.until_us for watched in self._watched.values()):
            self._forget(at_us)

    def _came(self, connection: int, batch: PublicationBatch, at_us: int) -> None:
        watched = self._watched.get(publisher_and_epoch(batch.publisher)[0])
        party = self._who(connection)
        if watched is None or party is None:
            return
        kind, name = party
        for number in batch.sequences.tolist()[-PUBLICATIONS_MAX:]:
            way = watched.ways.get(number)
            if way is not None:
                way.copies += 1
                continue
            watched.ways[number] = _Way(name, kind, at_us, batch.hops)
            if len(watched.ways) > PUBLICATIONS_MAX:
                watched.ways.popitem(last=False)

    def _went(self, connection: int, batch: PublicationBatch, at_us: int) -> None:
        watched = self._watched.get(publisher_and_epoch(batch.publisher)[0])
        if watched is not None:
            for number in batch.sequences.tolist():
                self._passed_on(watched, number, connection, at_us)

    def _went_from_log(self, connection: int, rows: StoredPublications, at_us: int) -> None:
        for publisher, number, _ in rows.rows:
            watched = self._watched.get(publisher_and_epoch(publisher)[0])
            if watched is not None:
                self._passed_on(watched, number, connection, at_us)

    def _passed_on(self, watched: _Watched, number: int, connection: int, at_us: int) -> None:
        way = watched.ways.get(number)
        party = self._who(connection)
        if way is None or party is None:
            return
        way.receivers += 1
        if len(way.went_to) < RECEIVERS_MAX:
            way.went_to.append((*party, at_us))

    def _forget(self, now_us: int) -> None:
        for name in [name for name, watched in self._watched.items() if now_us > watched.until_us]:
            del self._watched[name]
        if not self._watched:
            self._look(None)


def _publisher(arguments: Mapping[str, str]) -> str:
    name = arguments.get("publisher", "")
    if not name:
        raise RequestRefusedError("publisher names whose publications are watched", "argument")
    return name

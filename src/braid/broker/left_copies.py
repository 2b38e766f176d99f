"""Copies of logs whose owners are no neighbours any more, as the tree has changed.

A log whose keeper is no neighbour any more finds another one, which gets all of it anew. Until it has, the
copy at the former keeper is the second one of what was confirmed, so it stays. The former keeper asks from
time to time whether it is needed: brokers pass the question on to the owner, and the answer back. So nobody
has to remember whom to tell, and a question that gets lost is asked again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from braid.errors import RemoteProtocolError
from braid.protocol.copies import CopyLeft, CopyNeedless

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from braid.broker.kept_copies import KeptCopies
    from braid.broker.parties import Link
    from braid.broker.turn import Turn

__all__ = ["LeftCopies"]

# The time between two questions.
ASK_US = 2_000_000
# Copies in one message, and about as many bytes of their names: little beside what else crosses a link.
ASKED_MAX = 100
ASKED_BYTES_MAX = 16_000
# An owner that cannot be reached for so long does not come back: no operator waits a day before looking.
UNREACHED_US_MAX = 24 * 3_600 * 1_000_000
# Copies with rows that an owner does not know, and that were noted; beyond it they are noted again.
NOTED_MAX = 1_000


class LeftCopies:
    """Asks whether they are needed, and answers.

    Args:
        turn: where messages go.
        neighbours: the links by their names.
        toward: the neighbour behind which a broker is.
        kept: the copies that are here.
        needless: whether a copy of a log of this broker is not needed at a broker, by key, id, the offset
            behind its last row, and the epoch of that; None if there is no such log, or no such row.
    """

    def __init__(
        self,
        turn: Turn,
        neighbours: Mapping[str, Link],
        toward: Callable[[str], str | None],
        kept: KeptCopies,
        needless: Callable[[str, str, int, str, str], bool | None],
    ) -> None:
        self._here = turn.settings.broker_id
        self._hops_max = turn.settings.hops_max
        self._turn = turn
        self._neighbours = neighbours
        self._toward = toward
        self._kept = kept
        self._needless = needless
        self._ask_at_us = 0
        self._asked: dict[str, int] = {}
        """By owner: how many of its copies have been asked about in this round."""
        self._unreached: dict[str, int] = {}
        """By owner: since when there has been no way to it."""
        self._noted: set[tuple[str, str]] = set()

    # At the former keeper.

    def review(self) -> None:
        """From time to time: ask the owners of some copies."""
        now_us = self._turn.now_us
        if now_us < self._ask_at_us:
            return
        self._ask_at_us = now_us + ASK_US
        owners = sorted(self._kept.origins() - self._neighbours.keys())
        for known in (self._asked, self._unreached):
            for owner in known.keys() - set(owners):
                del known[owner]
        for owner in owners:
            if self._toward(owner) is not None:
                self._unreached.pop(owner, None)
                self._ask(owner)
            elif now_us - self._unreached.setdefault(owner, now_us) >= UNREACHED_US_MAX:
                self._turn.note(
                    "warning", "copies of the logs of a broker that is gone are given up", of=owner
                )
                self._kept.forget(owner)

    def _ask(self, owner: str) -> None:
        copies = self._kept.kept_for(owner)
        first = self._asked.get(owner, 0)
        if first >= len(copies):
            first = 0
        some: list[tuple[str, str, int, str]] = []
        size = 0
        for copy in copies[first : first + ASKED_MAX]:
            key, id, _, epoch = copy
            size += len(key.encode()) + len(id) + len(epoch)
            if some and size > ASKED_BYTES_MAX:
                break
            some.append(copy)
        self._asked[owner] = first + len(some)
        self._pass_on(CopyLeft(owner, self._here, some), owner)

    def answered(self, link: Link, message: CopyNeedless) -> None:
        """Some are not needed.

        Raises:
            RemoteProtocolError: nobody asks about so many at once.
        """
        _require_sense(link, message)
        if message.keeper != self._here:
            self._pass_on(message, message.keeper, link)
        elif message.owner not in self._neighbours:  # a neighbour says so itself
            for key, id in message.copies:
                self._kept.release(message.owner, key, id)

    # At the owner.

    def asked(self, link: Link, message: CopyLeft) -> None:
        """A former keeper asks which copies are needed.

        Raises:
            RemoteProtocolError: it asks about too many at once.
        """
        _require_sense(link, message)
        if message.owner != self._here:
            self._pass_on(message, message.owner, link)
            return
        found = []
        for key, id, next_offset, epoch in message.copies:
            needless = self._needless(key, id, next_offset, epoch, message.keeper)
            if needless:
                found.append((key, id))
            elif needless is None:
                self._note_unknown(key, id, message.keeper)
        if found:
            self._pass_on(CopyNeedless(self._here, message.keeper, found), message.keeper)

    def _note_unknown(self, key: str, id: str, keeper: str) -> None:
        if (keeper, id) in self._noted:
            return
        if len(self._noted) >= NOTED_MAX:
            self._noted.clear()
        self._noted.add((keeper, id))
        self._turn.note(
            "warning",
            "a broker that is no neighbour keeps rows of a log that are not here",
            log=key,
            at=keeper,
        )

    # Between them.

    def _pass_on(self, message: CopyLeft | CopyNeedless, target: str, source: Link | None = None) -> None:
        name = self._toward(target)
        link = self._neighbours.get(name) if name is not None else None
        if link is None or link is source or not link.channel.connected or message.hops >= self._hops_max:
            return  # it is asked again
        self._turn.tell(link, replace(message, hops=message.hops + 1))


def _require_sense(link: Link, message: CopyLeft | CopyNeedless) -> None:
    if len(message.copies) > ASKED_MAX or not (message.keeper and message.owner and message.hops >= 0):
        raise RemoteProtocolError(
            f"{link.name!r} speaks of {len(message.copies)} copies of {message.owner!r} at {message.keeper!r}"
        )

"""Who still waits for an acknowledged publication to be safe?

A batch that asks for acknowledged delivery is *pending* here until every share of it is settled: each
link it went to, each client, each log. Its sender then hears of it, cumulatively: a frame counts as
settled when it and all before it are.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from braid.broker.parties import Party
    from braid.matching.columns import IntArray
    from braid.protocol import Channel, PublicationBatch

__all__ = ["Pending", "SettleLine", "Unsettled", "shared_care"]


def shared_care(care: Callable[[], None] | None, count: int) -> list[Callable[[], None] | None]:
    """As many cares as parts; the whole is settled when all parts are."""
    left = count

    def settle() -> None:
        nonlocal left
        left -= 1
        if not left and care is not None:
            care()

    return [settle if care is not None else None] * count


class Pending:
    """One acknowledged batch and the shares of it that are not settled yet."""

    __slots__ = ("_beside", "_followers", "_toward", "shares", "source")

    def __init__(self) -> None:
        self.source: Party | None = None
        """Where it came from, as far as that matters to anybody."""
        # The first share is the router's own, until it has found everybody concerned.
        self.shares = 1
        self._followers: list[Callable[[], None]] = []
        self._toward: dict[Party, int] = {}
        """Of the shares, those of links, by link."""
        self._beside: list[tuple[Party, Callable[[], None]]] = []
        """Who waits for all shares but those of a link."""

    @property
    def done(self) -> bool:
        """Nobody is waited for."""
        return self.shares == 0

    def share(self) -> Callable[[], None]:
        """One more to wait for; call what is returned when it is settled."""
        self.shares += 1
        return self.release

    def share_of(self, link: Party) -> Callable[[], None]:
        """As `share`, for a copy that a link gets."""
        self.shares += 1
        self._toward[link] = self._toward.get(link, 0) + 1
        return partial(self._release_of, link)

    def _release_of(self, link: Party) -> None:
        self._toward[link] -= 1
        self.release()

    def release(self) -> None:
        """One share is settled."""
        self.shares -= 1
        if self._beside:
            waiting, self._beside = self._beside, []
            for link, follower in waiting:
                self.follow_beside(link, follower)
        if self.shares == 0:
            followers, self._followers = self._followers, []
            for follower in followers:
                follower()

    def follow_beside(self, link: Party, follower: Callable[[], None]) -> None:
        """Call this when everything is settled but the copies that this link got.

        It is what a link wants to know that has sent the same: what is behind itself it knows best, and two
        that asked each other for that as well would wait for ever.
        """
        if self.shares == self._toward.get(link, 0):
            follower()
        else:
            self._beside.append((link, follower))

    def follow(self, follower: Callable[[], None]) -> None:
        """Call this when everything is settled."""
        if self.done:
            follower()
        else:
            self._followers.append(follower)


class SettleLine:
    """The pending batches from one sender, in the order of their frames."""

    __slots__ = ("_apart", "_changed", "_channel", "_first_before", "waiting")

    def __init__(self, channel: Channel[Callable[[], None]], changed: Callable[[], None]) -> None:
        self._channel = channel
        self._changed = changed
        self.waiting: OrderedDict[int, Pending] = OrderedDict()
        """What is pending of frames, by their numbers. What is done goes, also from behind what is not: the
        first may wait long for a broker that is down."""
        self._apart: list[int] = []
        """What is done behind what is not."""
        self._first_before = 0
        """What was waited for when somebody last asked what is done apart."""

    def __len__(self) -> int:
        return len(self.waiting)

    def enter(self, sequence: int) -> Pending:
        """A new pending batch; frames come in ascending order."""
        pending = self.waiting[sequence] = Pending()
        pending.follow(partial(self._done, sequence, pending))
        return pending

    def _done(self, sequence: int, pending: Pending) -> None:
        if self.waiting.get(sequence) is pending:  # otherwise it is of a session that has ended
            del self.waiting[sequence]
            if self.waiting and next(iter(self.waiting)) < sequence:
                self._apart.append(sequence)
            else:
                self.advance()

    def advance(self) -> None:
        """Tell the channel how far everything is settled."""
        settled = next(iter(self.waiting)) - 1 if self.waiting else self._channel.received
        if settled > self._channel.settled:
            self._channel.settled = settled
            self._changed()

    def done_apart(self) -> list[int]:
        """Frames that are done and were not told, because the one before them has been waited for since the
        last time this was asked. They need not wait for it: it may be long, such as for a disk that is full.
        """
        first = next(iter(self.waiting), 0)
        stuck = first > 0 and first == self._first_before
        self._first_before = first
        if not stuck or not self._apart:
            if not first:
                self._apart.clear()
            return []
        apart, self._apart = self._apart, []
        return [frame for frame in apart if frame > self._channel.settled]

    def violations(self) -> Iterator[str]:
        """What is wrong with it; nothing if all is well."""
        for sequence, pending in self.waiting.items():
            if pending.done:
                yield f"frame {sequence} is settled and still waited for"
            if not self._channel.settled < sequence <= self._channel.received:
                yield (
                    f"frame {sequence} is waited for, where {self._channel.settled} are settled "
                    f"of {self._channel.received} that came"
                )

    def clear(self) -> None:
        """The sender's session has ended: nobody waits for these any more."""
        self.waiting.clear()
        self._apart.clear()
        self._first_before = 0


class Unsettled:
    """The pending batches of each publisher, to find those that a repeated publication belongs to."""

    def __init__(self) -> None:
        self._by_publisher: dict[str, dict[int, Pending]] = {}

    def enter(self, batch: PublicationBatch, pending: Pending, source: Party | None = None) -> None:
        """Remember a batch, and where it came from, until it is settled."""
        pending.source = source
        sequences = batch.sequences.tolist()
        self._by_publisher.setdefault(batch.publisher, {}).update(dict.fromkeys(sequences, pending))
        pending.follow(lambda: self._forget(batch.publisher, sequences, pending))

    def _forget(self, publisher: str, sequences: list[int], pending: Pending) -> None:
        held = self._by_publisher.get(publisher, {})
        for sequence in sequences:
            if held.get(sequence) is pending:
                del held[sequence]
        if not held:
            self._by_publisher.pop(publisher, None)

    def sources(self, publisher: str, sequences: Sequence[int]) -> list[Party]:
        """Where those of these publications came from that are not settled."""
        held = self._by_publisher.get(publisher, {})
        found = (held[sequence].source for sequence in sequences if sequence in held)
        return list(dict.fromkeys(source for source in found if source is not None))

    def of(self, publisher: str, sequences: IntArray) -> list[Pending]:
        """The pending batches that hold any of these publications."""
        held = self._by_publisher.get(publisher)
        if held is None:
            return []
        found = {id(held[sequence]): held[sequence] for sequence in sequences.tolist() if sequence in held}
        return list(found.values())

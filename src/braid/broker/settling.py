"""Who still waits for an acknowledged publication to be safe?

A batch that asks for acknowledged delivery is *pending* here until every share of it is settled: each
link it went to, each client, each log. Its sender then hears of it, cumulatively: a frame counts as
settled when it and all before it are.

Who waits is a record, which says what kind of waiting it is, for whom and for what. What becomes of it when
its last share is settled is looked up by its kind (`Settlement`).
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from braid.broker.parties import Party
    from braid.matching.columns import IntArray
    from braid.protocol import PublicationBatch

__all__ = ["Pending", "SettleLine", "Settlement", "Unsettled", "WaitingFor", "divided_care"]


class WaitingFor(Enum):
    """What kind of thing is waited for."""

    FRAME = "a frame that a party has sent; the key is its number"
    PIECE = "some of the rows of such a frame, which waits for all its pieces"
    HERE = "what clients and logs of this broker have of such a frame"
    ROWS = "rows of a log that its reader takes in; the key is the log, the reader's request and their size"
    REPLAY = "the next piece of a replay, which is the key"
    DECISION = "the store, which writes down how an operation was decided; the key is the operation"


class Pending:
    """A party that waits, and how many shares of what is waited for are not settled yet."""

    __slots__ = (
        "apart",
        "beside",
        "followers",
        "here",
        "key",
        "kind",
        "party",
        "publisher",
        "sequences",
        "shares",
        "toward",
    )

    def __init__(self, kind: WaitingFor, party: Party | None = None, key: Any = None) -> None:
        self.kind = kind
        self.party = party
        """The party that waits, or that it came from."""
        self.key = key
        # The first share belongs to its maker, until all parties concerned are found.
        self.shares = 1
        self.toward: dict[Party, int] = {}
        """Of the shares, those of copies that brokers got, by broker."""
        self.followers: list[Pending] = []
        """Those who have a share that is settled with this."""
        self.beside: list[tuple[Party | None, Pending]] = []
        """Those who have a share that is settled when all of this is but the copies that a broker got; with
        none named, but the copies that any broker got."""
        self.here: Pending | None = None
        """What clients and logs of this broker have of it, where that is waited for by itself."""
        self.publisher = ""
        self.sequences: Sequence[int] = ()
        """The publications that are found by it (`Unsettled`)."""
        self.apart: int | None = None
        """The session in which its sender hears of it by itself, whatever is before it; None: it does not."""

    def __repr__(self) -> str:
        who = self.party.name if self.party is not None else "a party"
        return f"<{who} waits for {self.shares} shares of {self.kind.name.lower()} {self.key}>"

    @property
    def done(self) -> bool:
        """Nobody is waited for."""
        return self.shares == 0

    def share(self) -> Pending:
        """One more to wait for."""
        self.shares += 1
        return self

    def share_out(self, parties: Sequence[Party]) -> None:
        """Each of these gets a copy, and with it a share."""
        self.shares += len(parties)
        for party in parties:
            if party.is_broker:
                self.toward[party] = self.toward.get(party, 0) + 1

    def wait_for(self, other: Pending) -> None:
        """This is not settled before another one is."""
        if other.shares:
            self.shares += 1
            other.followers.append(self)

    def wait_beside(self, broker: Party, other: Pending) -> None:
        """This is not settled before another one is, but for the copies that this broker got.

        It is what a broker wants to know that has sent the same: what is behind itself it knows best, and two
        that asked each other for that as well would wait for ever.
        """
        self._wait_but_for(broker, other)

    def wait_local(self, other: Pending) -> None:
        """This is not settled before another one is, but for the copies that brokers got.

        What is left are clients and logs of this broker. Waiting for these goes in no circle, wherever either
        came from.
        """
        self._wait_but_for(None, other)

    def _wait_but_for(self, broker: Party | None, other: Pending) -> None:
        if other.left_without(broker):
            self.shares += 1
            other.beside.append((broker, self))

    def left_without(self, broker: Party | None) -> int:
        """How many shares there are without the copies that a broker got, or any."""
        if broker is None:
            return self.shares - sum(self.toward.values())
        behind = sum([shares for party, shares in self.toward.items() if party.lies_behind(broker)])
        return self.shares - behind


class Settlement:
    """What becomes of those who wait."""

    def __init__(self) -> None:
        self._table: dict[WaitingFor, Callable[[Pending], None]] = {}

    def resolve(self, kind: WaitingFor, handler: Callable[[Pending], None]) -> None:
        """Call this with everybody of a kind who need not wait any longer."""
        self._table[kind] = handler

    def settle(self, pending: Pending | None, party: Party | None = None) -> None:
        """One share is settled, that of a copy which this party had; nothing happens if nobody waits."""
        if pending is None:
            return
        pending.shares -= 1
        if party is not None and party in pending.toward:
            pending.toward[party] -= 1
        if pending.beside:
            waiting, pending.beside = pending.beside, []
            for broker, follower in waiting:
                if pending.left_without(broker):
                    pending.beside.append((broker, follower))
                else:
                    self.settle(follower)
        if not pending.shares:
            self._table[pending.kind](pending)
            followers, pending.followers = pending.followers, []
            for follower in followers:
                self.settle(follower)


def divided_care(party: Party, pending: Pending | None, count: int) -> list[Pending | None]:
    """As many shares as parts, of what was one share of a party; with no parts it stays one."""
    if pending is not None:
        pending.share_out([party] * (count - 1))
    return [pending] * count


class SettleLine:
    """The pending batches from one sender, in the order of their frames."""

    __slots__ = ("_apart", "_changed", "_channel", "_first_before", "_party", "waiting")

    def __init__(self, party: Party, changed: Callable[[Party], None]) -> None:
        self._party = party
        self._channel = party.channel
        self._changed = changed
        self.waiting: OrderedDict[int, Pending] = OrderedDict()
        """What is pending of frames, by their numbers. What is done goes, also from behind what is not: the
        first may wait long for a broker that is down."""
        self._apart: list[int] = []
        """What is done behind what is not."""
        self._first_before = 0
        """What was waited for when it was last asked what is done apart."""

    def __len__(self) -> int:
        return len(self.waiting)

    def enter(self, sequence: int) -> Pending:
        """A new pending batch; frames come in ascending order."""
        pending = self.waiting[sequence] = Pending(WaitingFor.FRAME, self._party, sequence)
        return pending

    def done(self, pending: Pending) -> None:
        """Everything of a frame is settled."""
        sequence = pending.key
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
            self._changed(self._party)

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
            if sum(pending.toward.values()) > pending.shares or min(pending.toward.values(), default=0) < 0:
                yield f"frame {sequence} has {pending.shares} shares, and brokers have {pending.toward}"
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

    def enter(self, batch: PublicationBatch, pending: Pending) -> None:
        """Remember a batch until it is settled."""
        pending.publisher = publisher = batch.publisher
        pending.sequences = sequences = batch.sequences.tolist()
        self._by_publisher.setdefault(publisher, {}).update(dict.fromkeys(sequences, pending))

    def forget(self, pending: Pending) -> None:
        """It is settled."""
        held = self._by_publisher.get(pending.publisher, {})
        for sequence in pending.sequences:
            if held.get(sequence) is pending:
                del held[sequence]
        if not held:
            self._by_publisher.pop(pending.publisher, None)

    def sources(self, publisher: str, sequences: Sequence[int]) -> list[Party]:
        """Where those of these publications came from that are not settled."""
        return list(self.given(publisher, sequences, None))

    def given(self, publisher: str, sequences: Sequence[int], broker: Party | None) -> dict[Party, list[int]]:
        """By where they came from, those of these publications that are not settled; with a broker named,
        only those that it was given a copy of."""
        held = self._by_publisher.get(publisher, {})
        found: dict[Party, list[int]] = {}
        for sequence in sequences:
            pending = held.get(sequence)
            if pending is None or pending.party is None:
                continue
            if broker is None or broker in pending.toward:
                found.setdefault(pending.party, []).append(sequence)
        return found

    def violations(self) -> Iterator[str]:
        """What is wrong with it; nothing if all is well."""
        for publisher, held in self._by_publisher.items():
            if not held:
                yield f"nothing of {publisher} is waited for, and it is remembered"
            for pending in {id(pending): pending for pending in held.values()}.values():
                if pending.done:
                    yield f"{pending} is settled, and is found by {publisher}'s publications"
                if pending.publisher != publisher:
                    yield f"{pending} is of {pending.publisher}, and is found by {publisher}"

    def of(self, publisher: str, sequences: IntArray) -> list[Pending]:
        """The pending batches that hold any of these publications."""
        held = self._by_publisher.get(publisher)
        if held is None:
            return []
        found = {id(held[sequence]): held[sequence] for sequence in sequences.tolist() if sequence in held}
        return list(found.values())

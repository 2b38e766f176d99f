"""Is a connected peer still there, and does it take what is for it?

- A peer that says nothing is asked, and given up if it does not answer.
- A client that holds others up and does not read is disconnected.
- A connection between brokers that has something to carry and has carried nothing for long is given up too,
  although its other end answers. The next one may do better; what waits on a soft link goes along the tree.

A neighbour may be held up itself, for hours if something beyond it is down. It says so with its
acknowledgements, and then another connection would change nothing. Operators hear of that now and then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from braid.broker.parties import Client, Link, SoftLink
from braid.errors import RemoteProtocolError
from braid.protocol.messages import Ping, Pong

if TYPE_CHECKING:
    from collections.abc import Collection

    from braid.broker.parties import Party
    from braid.broker.turn import Turn

__all__ = ["GivenUp", "Liveness", "require_answers_taken"]

STALLED = "stalled"

# Answers that a client has not acknowledged: as many as all its subscriptions lead to, twice over. Each takes
# some hundred bytes.
ANSWERS_MAX = 200_000


class GivenUp(NamedTuple):
    """A connection that is to be ended, and why."""

    party: Party
    code: str
    reason: str


class _Watch:
    """Since when nothing has moved on a connection between brokers."""

    __slots__ = ("arrived", "arrived_us", "moved", "moved_us", "noted_us", "told_us")

    def __init__(self, now_us: int) -> None:
        self.arrived = self.moved = 0
        self.arrived_us = self.moved_us = self.noted_us = now_us
        self.told_us = 0
        """When the other end last heard that more of a long frame is here."""

    def look(self, party: Party, now_us: int) -> None:
        """Note what has moved, and what has no need to."""
        channel = party.channel
        if channel.peer_received != self.arrived or not channel.under_way:
            self.arrived, self.arrived_us = channel.peer_received, now_us
        waits = channel.waiting_bytes and not channel.holding
        moved_bytes = channel.moved_bytes
        if moved_bytes != self.moved or not waits:
            self.moved, self.moved_us = moved_bytes, now_us


class Liveness:
    """Looks after connections."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._settings = turn.settings
        self._watches: dict[int, _Watch] = {}
        """Those of brokers, by connection."""

    def pinged(self, party: Party, message: Ping) -> None:
        """A peer asks whether we are there."""
        # One who takes nothing gets no answers that would only pile up.
        if party.channel.writable:
            self._turn.tell_connection(party, Pong(message.number))

    def review(self, parties: Collection[Party]) -> list[GivenUp]:
        """Ask those who are silent; returns whose connections are to be given up."""
        now_us = self._turn.now_us
        heartbeat_us = self._settings.heartbeat_us
        given_up: list[GivenUp] = []
        watches = self._watches
        watched = 0
        for party in parties:
            connection = party.connection
            if connection is None:
                continue
            watch = None
            if party.is_broker:
                watched += 1
                watch = watches.get(connection)
                if watch is None:
                    watch = watches[connection] = _Watch(now_us)
            silent_us = now_us - party.heard_at_us
            if silent_us > 3 * heartbeat_us:
                given_up.append(GivenUp(party, "silent", f"nothing was heard for {silent_us / 1e6:.1f} s"))
            elif (reason := self._stalled(party, watch, now_us)) is not None:
                given_up.append(GivenUp(party, *reason))
            elif silent_us > heartbeat_us and not party.pinged:
                party.pinged = True
                self._turn.tell_connection(party, Ping(now_us))
        if len(watches) > watched:  # some have ended
            connections = {party.connection for party in parties}
            self._watches = {each: watch for each, watch in watches.items() if each in connections}
        return given_up

    def comes_on(self, party: Party) -> None:
        """More of a long frame is here. The sender hears so, since what it asks is behind it."""
        self._moves(party)  # and so is what it would acknowledge
        now_us = self._turn.now_us
        watch = self._watches.get(party.connection or 0)
        # Where a line is full in both directions, few of them pile up, and they go past what waits.
        rarely = watch is not None and now_us - watch.told_us >= self._settings.heartbeat_us
        if party.channel.writable or rarely:
            self._turn.tell_connection(party, Pong(0))
            if watch is not None:
                watch.told_us = now_us

    def answered(self, party: Party, message: Pong) -> None:
        """A peer is there; perhaps it says that a long frame of ours moves."""
        if message.number == 0:
            self._moves(party)

    def _moves(self, party: Party) -> None:
        watch = self._watches.get(party.connection or 0)
        if watch is not None:
            watch.arrived_us = watch.moved_us = self._turn.now_us

    def _stalled(self, party: Party, watch: _Watch | None, now_us: int) -> tuple[str, str] | None:
        """The code and the reason for which a party that does not take what is theirs is given up."""
        oldest_us = now_us - self._settings.stall_us_max
        if watch is None:
            stalled = self._turn.stalled(party)
            if all(each.is_stream for each in stalled):
                return None  # if there are any, they are given up one by one
            return "slow", "the client holds up others and does not read"
        watch.look(party, now_us)
        unanswered = watch.arrived_us < oldest_us
        if not unanswered and watch.moved_us >= oldest_us:
            return None
        since_us = watch.arrived_us if unanswered else watch.moved_us
        about = {
            "neighbour": party.name,
            "seconds": round((now_us - since_us) / 1e6, 1),
            "waiting_bytes": party.channel.waiting_bytes,
            "soft": isinstance(party, SoftLink),
        }
        if party.channel.told_to_wait and not unanswered and isinstance(party, Link):
            if watch.noted_us < oldest_us:
                watch.noted_us = now_us
                self._turn.note("warning", "a neighbour keeps us waiting", **about)
            return None
        self._turn.counters.stalled += 1
        self._turn.note("warning", "nothing moves on a link", **about)
        return STALLED, f"nothing has moved on this connection for {(now_us - since_us) / 1e6:.1f} s"


def require_answers_taken(party: Party) -> None:
    """Complain about a client that asks and does not take the answers."""
    if isinstance(party, Client) and party.channel.unacknowledged_messages > ANSWERS_MAX:
        raise RemoteProtocolError(f"more than {ANSWERS_MAX:,} answers were not acknowledged")

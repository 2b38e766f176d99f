"""A peer as one machine: a DHT and an application that share a turn.

It is driven like every machine: `handle(input, now_us) -> effects` and `next_deadline_us()`. It is told to
begin by its first `Tick`, hears others by `Heard`, speaks by `SendTo`, and leaves politely on `Drain`: that
takes some turns, so the driver goes on with it until it says `Drained`.
"""

from __future__ import annotations

import functools
import operator
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from braid.errors import LocalProtocolError, RemoteProtocolError
from braid.p2p.dht.messages import Numbered, Routed, dht_messages
from braid.protocol.codec import Vocabulary
from braid.protocol.effects import Drained
from braid.protocol.inputs import Drain, Heard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.p2p.dht.identifiers import Address
    from braid.p2p.dht.interface import Application, Dht
    from braid.p2p.turn import Turn
    from braid.protocol.effects import Effect
    from braid.protocol.inputs import Input

__all__ = ["Peer", "inner_kind", "peer_vocabulary"]

# A message that ends here may lead to another one that does, such as on the way up a tree of regions: some
# hundred levels with some dozen entries. More than this is a circle.
DELIVERIES_MAX: Final = 100_000


_BEGINNING: Final = re.compile(r"(?<!^)(?=[A-Z])")

# What comes of values that fit the types of a message and mean nothing, such as a key that is too short.
NONSENSE: Final = (ValueError, LookupError, TypeError, ArithmeticError, AttributeError)


def inner_kind(message: msgspec.Struct) -> str:
    """What a message is about, as `multicast`: of one that is routed or confirmed, what is in it."""
    while isinstance(message, (Numbered, Routed)):
        message = message.message
    return _BEGINNING.sub("_", type(message).__name__).lower()


def peer_vocabulary(application_messages: Sequence[type[msgspec.Struct]]) -> Vocabulary:
    """All that peers with an application of these messages say to each other."""
    spoken: Any = functools.reduce(operator.or_, application_messages)
    return Vocabulary(functools.reduce(operator.or_, dht_messages(spoken)) | spoken, (msgspec.Struct,))


class Peer:
    """One member of a network without brokers."""

    __slots__ = ("_begun", "_bootstrap", "_leaving", "_said_goodbye", "_turn", "application", "dht")

    def __init__(
        self, turn: Turn, dht: Dht, application: Application, bootstrap: Sequence[Address] = ()
    ) -> None:
        """Put a peer together.

        Args:
            turn: the one that the DHT and the application were made with.
            dht: the substrate.
            application: what stands on it.
            bootstrap: addresses of peers to join; none to begin a network.
        """
        self._turn = turn
        self.dht = dht
        self.application = application
        self._bootstrap = tuple(bootstrap)
        self._begun = False
        self._leaving = False
        self._said_goodbye = False
        dht.start(application)

    @classmethod
    def settled(cls, turn: Turn, dht: Dht, application: Application) -> Peer:
        """A peer whose DHT has its place already, as a simulation may begin with."""
        peer = cls(turn, dht, application)
        peer._begun = True
        return peer

    def handle(self, stimulus: Input, now_us: int) -> list[Effect]:
        """Take in what happened and say what is to be done, in order."""
        dht = self.dht
        turn = self._turn
        if isinstance(stimulus, Heard):
            sender = stimulus.sender
            for message in stimulus.messages:
                try:
                    if not dht.heard(sender, message, now_us):
                        self.application.received(sender, message, now_us)
                except NONSENSE as error:
                    raise RemoteProtocolError(
                        f"a {type(message).__name__} of {sender} makes no sense: {error!r}"
                    ) from error
        elif isinstance(stimulus, Drain):
            self._leaving = True
        elif not self._begun:
            self._begun = True
            dht.join(self._bootstrap, now_us)
        else:
            dht.tick(now_us)
            self.application.tick(now_us)
        if turn.deliveries:
            self._deliver(now_us)
        if not self._leaving:
            return turn.effects()
        gone = self._leave(now_us)
        effects = turn.effects()
        if gone:
            effects.append(Drained())
        return effects

    def _leave(self, now_us: int) -> bool:
        """Go on leaving; whether this was the last turn."""
        application = self.application
        if not self._said_goodbye and application.leaving(now_us):
            self._said_goodbye = True
            self.dht.leave(now_us)
        gone = self._said_goodbye and application.parting(now_us)
        if self._turn.deliveries:
            self._deliver(now_us)
        return gone and self.dht.is_quiet

    def complete(self, now_us: int) -> list[Effect]:
        """What calls from outside, such as those of a user of the application, have led to."""
        if self._turn.deliveries:
            self._deliver(now_us)
        return self._turn.effects()

    def next_deadline_us(self) -> int | None:
        """When a `Tick` is due at the latest, if at all."""
        if not self._begun:
            return 0
        first = self.dht.next_deadline_us()
        second = self.application.next_deadline_us()
        if first is None:
            return second
        return first if second is None or first < second else second

    def _deliver(self, now_us: int) -> None:
        deliveries = self._turn.deliveries
        for _ in range(DELIVERIES_MAX):
            if not deliveries:
                return
            key, message, sender = deliveries.popleft()
            try:
                self.application.deliver(key, message, sender, now_us)
            except NONSENSE as error:
                # It may have come by others, who are not to blame.
                self._turn.note("warning", "message left out", sender=sender, error=repr(error))
        raise LocalProtocolError(f"{DELIVERIES_MAX:,} messages led to each other at {self.dht.own.address}")

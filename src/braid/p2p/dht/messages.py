"""What DHTs say to each other, whatever stands on them. Tags 100 to 199 are theirs."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

__all__ = [
    "Beat",
    "Confirmed",
    "Goodbye",
    "Hello",
    "Join",
    "Leaves",
    "Member",
    "Numbered",
    "Ping",
    "Pong",
    "RingJoin",
    "RingMembers",
    "RingPing",
    "RingPong",
    "Routed",
    "Row",
    "RowRequest",
    "Suspicion",
    "dht_messages",
]

M = TypeVar("M")


class Routed(msgspec.Struct, Generic[M], array_like=True, tag=100, gc=False):
    """A message on its way to the owner of a key."""

    key: bytes
    message: M
    hops: int = 1
    """How many datagrams it has taken, with this one."""


class Member(NamedTuple):
    """What one peer of a ring knows of another. Of two words on the same peer the later one counts."""

    address: str
    life: int
    """Rises when the peer starts again, and when it contradicts the news of its death."""
    alive: bool = True

    @property
    def rank(self) -> tuple[int, bool]:
        """Which of two words is the later one; in the same life, death is."""
        return (self.life, not self.alive)


class RingJoin(msgspec.Struct, array_like=True, tag=101, frozen=True):
    """The sender wants to be a member."""


class RingMembers(msgspec.Struct, array_like=True, tag=102, frozen=True):
    """What the sender knows of these members."""

    members: list[Member]
    whole: bool = False
    """Whether it is everything that the sender knows."""
    polite: bool = False
    """Whether those who are gone said so themselves."""


class RingPing(msgspec.Struct, array_like=True, tag=103, frozen=True):
    """Are you there, and do you know what I know?"""

    digest: bytes


class RingPong(msgspec.Struct, array_like=True, tag=104, frozen=True):
    """Yes."""

    digest: bytes


class Numbered(msgspec.Struct, Generic[M], array_like=True, tag=105, gc=False):
    """A message that is to be confirmed, and comes again if it is not."""

    number: int
    message: Routed[M] | M


class Confirmed(msgspec.Struct, array_like=True, tag=106, gc=False, frozen=True):
    """A numbered message has come."""

    number: int


class Join(msgspec.Struct, array_like=True, tag=110, frozen=True):
    """A peer looks for its place. It is passed on towards that place, and all on the way answer it."""

    address: str
    hops: int = 1


class Row(msgspec.Struct, array_like=True, tag=111, frozen=True):
    """Peers of the sender's routing table, as candidates for the receiver's own."""

    addresses: list[str]


class RowRequest(msgspec.Struct, array_like=True, tag=112, frozen=True):
    """Which peers are in this row of your routing table?"""

    row: int


class Leaves(msgspec.Struct, array_like=True, tag=113, frozen=True):
    """The sender's neighbours on the circle."""

    addresses: list[str]
    place: bool = False
    """Whether it answers a `Join`: the sender is the neighbour of the receiver's place."""
    wanted: bool = False
    """Whether the receiver's neighbours are asked for, too."""


class Hello(msgspec.Struct, array_like=True, tag=114, frozen=True):
    """The sender has its place now."""


class Ping(msgspec.Struct, array_like=True, tag=115, frozen=True):
    """Are you there, and how far away?"""

    sent_us: int
    """By the sender's clock; it comes back in the answer."""


class Pong(msgspec.Struct, array_like=True, tag=116, frozen=True):
    """Yes."""

    sent_us: int


class Beat(msgspec.Struct, array_like=True, tag=117, frozen=True):
    """The sender, a neighbour on the circle, is still there."""


class Goodbye(msgspec.Struct, array_like=True, tag=118, frozen=True):
    """The sender leaves; these are its neighbours."""

    addresses: list[str]


class Suspicion(msgspec.Struct, array_like=True, tag=119, frozen=True):
    """The sender's nearest neighbour, which the receiver may know too, does not answer."""

    address: str


def dht_messages(application_message: Any) -> tuple[Any, ...]:
    """The types of all these messages, for an application whose messages are of this type."""
    ring = (RingJoin, RingMembers, RingPing, RingPong)
    pastry = (Join, Row, RowRequest, Leaves, Hello, Ping, Pong, Beat, Goodbye, Suspicion)
    return (Routed[application_message], Numbered[application_message], Confirmed, *ring, *pastry)

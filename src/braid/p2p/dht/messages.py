"""What DHTs say to each other, whatever stands on them. Tags 100 to 199 are theirs."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

__all__ = ["Member", "RingJoin", "RingMembers", "RingPing", "RingPong", "Routed", "dht_messages"]

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


def dht_messages(application_message: Any) -> tuple[Any, ...]:
    """The types of all these messages, for an application whose messages are of this type."""
    return (Routed[application_message], RingJoin, RingMembers, RingPing, RingPong)

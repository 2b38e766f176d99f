"""Does a subscription that gets a class of its own still know what it has had?"""

from __future__ import annotations

import pytest

from braid.client.inbox import BLOCK, Inbox, Interest
from braid.language import Filter
from braid.protocol import PublicationBatch, encode_record
from braid.protocol.incoming import STREAM_FIRST


def batch(*sequences: int, target: int = BLOCK) -> PublicationBatch:
    records = [encode_record({"n": sequence}, 1) for sequence in sequences]
    return PublicationBatch.of("p", sequences, records).readdressed(target=target)


def taken(interest: Interest) -> list[int]:
    numbers = [row.sequence for row in interest.queue]
    interest.queue.clear()
    return numbers


@pytest.fixture
def both() -> tuple[Inbox, Interest, Interest]:
    """Two subscriptions that share their copies."""
    inbox = Inbox()
    interests = [Interest(number, Filter("n >= 0"), "block", 100) for number in (1, 2)]
    for interest in interests:
        inbox.add(interest)
    return inbox, *interests


def test_what_came_before_is_recognised_in_a_class_of_its_own(
    both: tuple[Inbox, Interest, Interest],
) -> None:
    """A broker that was killed, or another one, may send it again."""
    inbox, apart, other = both
    inbox.deliver(batch(1, 2, 3), 1)
    inbox.deliver(batch(7), 2)
    assert taken(apart) == taken(other) == [1, 2, 3, 7]
    inbox.separated(apart, STREAM_FIRST)
    inbox.deliver(batch(2, 3, 4, target=STREAM_FIRST), 3)
    inbox.deliver(batch(7, target=STREAM_FIRST), 4)
    inbox.deliver(batch(4), 5)
    assert taken(apart) == [4]
    assert taken(other) == [4]


def test_what_came_in_a_class_of_its_own_is_recognised_afterwards(
    both: tuple[Inbox, Interest, Interest],
) -> None:
    inbox, apart, other = both
    inbox.separated(apart, STREAM_FIRST)
    inbox.deliver(batch(1, 2, target=STREAM_FIRST), 1)
    inbox.deliver(batch(1), 2)
    assert (taken(apart), taken(other)) == ([1, 2], [1])
    inbox.restarted()
    inbox.deliver(batch(1, 2, 3), 1)
    assert (taken(apart), taken(other)) == ([3], [2, 3])
    inbox.separated(apart, STREAM_FIRST)
    inbox.deliver(batch(1, 3, 4, target=STREAM_FIRST), 2)
    assert taken(apart) == [4]

"""Do exactly the chosen rows pass a channel that holds the others, once each and in their order?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from braid.protocol import Channel, ChannelSettings, PublicationBatch, encode_record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from braid.matching.columns import IntArray

SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=8)
CHOICES = st.lists(st.sets(st.integers(1, 30), max_size=12), min_size=1, max_size=4)


def offered(channel: Channel[str], sizes: Sequence[int], first: int = 1, care: str | None = None) -> int:
    """Put batches of so many rows in line; returns the number after the last row."""
    for size in sizes:
        numbers = tuple(range(first, first + size))
        records = [encode_record({"x": number}, 0) for number in numbers]
        acknowledged = care is not None
        channel.offer(PublicationBatch.of("p", numbers, records, acknowledged=acknowledged), care)
        first += size
    return first


def wanting(numbers: set[int]) -> Callable[[Sequence[PublicationBatch]], Sequence[IntArray]]:
    def wanted(batches: Sequence[PublicationBatch]) -> Sequence[IntArray]:
        return [np.flatnonzero(np.isin(batch.sequences, sorted(numbers))) for batch in batches]

    return wanted


def taken(channel: Channel[str]) -> list[int]:
    found = [frame.body for frame in channel.take()]
    return [int(n) for body in found if isinstance(body, PublicationBatch) for n in body.sequences]


def held_channel() -> Channel[str]:
    channel: Channel[str] = Channel(ChannelSettings())
    channel.restart(1 << 20)
    channel.holding = channel.passing = channel.choosing = True
    return channel


@given(SIZES, CHOICES)
def test_chosen_rows_pass_once_and_the_rest_when_the_channel_opens(
    sizes: list[int], choices: list[set[int]]
) -> None:
    channel = held_channel()
    numbers = set(range(1, offered(channel, sizes)))
    assert taken(channel) == []
    passed: set[int] = set()
    for choice in choices:
        channel.choose(wanting(choice), 0)
        assert taken(channel) == sorted((choice & numbers) - passed)
        passed |= choice & numbers
    assert channel.waiting_bytes == sum(
        body.size for body, _ in channel.kept()[len(channel._unacknowledged) :]
    )
    channel.holding = channel.choosing = False
    assert taken(channel) == sorted(numbers - passed)
    assert channel.waiting_bytes == 0


def test_only_what_came_later_is_looked_at() -> None:
    channel = held_channel()
    offered(channel, [2])
    looked_at = channel.choose(wanting(set()), 0)
    offered(channel, [2], first=3)
    assert channel.choose(wanting({1, 2, 3}), looked_at) > looked_at
    assert taken(channel) == [3]


def test_what_somebody_waits_for_is_not_chosen_and_what_follows_it_stays_behind() -> None:
    channel = held_channel()
    following = offered(channel, [1])
    following = offered(channel, [1], following, care="c")
    offered(channel, [1], following)
    channel.choose(wanting({1, 2, 3}), 0)
    assert taken(channel) == [1], "the third must not overtake the second of its publisher"
    channel.holding = channel.choosing = False
    assert taken(channel) == [2, 3]

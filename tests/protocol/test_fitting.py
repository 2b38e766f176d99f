"""Is a batch divided so that every part fits, nothing is lost, and only what never fits is left out?"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from braid.protocol import Channel, ChannelSettings, PublicationBatch, encode_frames, encode_record
from braid.protocol.destinations import packed_destinations, unpacked_destinations
from braid.protocol.fitting import fitted


def batch_of(sizes: list[int], digests: set[int], publisher: str = "p") -> PublicationBatch:
    records = [encode_record({"n": row}, 0, b"x" * size) for row, size in enumerate(sizes)]
    batch = PublicationBatch.of(publisher, range(5, 5 + len(sizes)), records, acknowledged=True)
    return batch.readdressed(further=True, route=packed_destinations(digests)) if digests else batch


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=12),
    st.sets(st.integers(0, (1 << 24) - 1), max_size=60),
    st.integers(40, 600),
)
def test_every_part_fits_and_together_they_are_the_batch(
    sizes: list[int], digests: set[int], frame_bytes_max: int
) -> None:
    batch = batch_of(sizes, digests)
    parts, left_out = fitted(batch, frame_bytes_max)
    reached: dict[int, set[int]] = {}
    for part in parts:
        assert part.size <= frame_bytes_max
        assert sum(map(len, part.pieces(1))) == part.size
        assert (part.hops, part.flags, part.publisher) == (batch.hops, batch.flags, batch.publisher)
        for sequence in part.sequences.tolist():
            served = reached.setdefault(sequence, set())
            destinations = unpacked_destinations(part.route) if part.route else {-1}
            assert not served & destinations
            served |= destinations
    lost = left_out.sequences.tolist() if left_out is not None else []
    assert sorted([*reached, *lost]) == batch.sequences.tolist()
    assert all(served == (digests or {-1}) for served in reached.values())
    least = batch_of([0], {1} if digests else set()).size
    for row, size in enumerate(sizes):
        if least + size + 8 <= frame_bytes_max:
            assert 5 + row in reached
        if size > frame_bytes_max:
            assert 5 + row in lost


def test_a_batch_that_fits_is_left_as_it_is() -> None:
    batch = batch_of([10, 20], {7, 8})
    parts, left_out = fitted(batch, batch.size)
    assert [part.records() for part in parts] == [batch.records()]
    assert parts[0].route == batch.route
    assert left_out is None


def test_a_channel_sends_what_the_peer_reads_and_says_what_it_does_not() -> None:
    channel: Channel[str] = Channel(ChannelSettings())
    channel.restart(1 << 20)
    channel.frame_bytes_max = 200
    channel.offer(batch_of([50, 500, 60, 70], set()), "care")
    channel.offer(batch_of([500], set()), "lonely")
    channel.offer(batch_of([1], set()))
    frames = channel.take()
    assert [frame.sequence for frame in frames] == list(range(1, len(frames) + 1))
    assert all(len(encode_frames([frame])) <= 200 for frame in frames)
    rows = [frame.body.sequences.tolist() for frame in frames if isinstance(frame.body, PublicationBatch)]
    assert [number for some in rows for number in some] == [5, 7, 8, 5]
    assert [(batch.sequences.tolist(), care) for batch, care in channel.left_out] == [
        ([6], None),
        ([5], "lonely"),
    ]
    assert channel.waiting_bytes == 0
    assert channel.unacknowledged_bytes == sum(
        frame.body.size for frame in frames if isinstance(frame.body, PublicationBatch)
    )


def test_a_single_large_publication_is_not_sent_at_once() -> None:
    channel: Channel[str] = Channel(ChannelSettings())
    channel.restart(1 << 20)
    channel.frame_bytes_max = 200
    assert channel.send(batch_of([10], set()), None) is not None
    assert channel.send(batch_of([300], set()), None) is None

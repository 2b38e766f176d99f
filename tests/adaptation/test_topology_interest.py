"""Caches and filters of interest against plain sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.adaptation.topology.interest import InterestCache, InterestFilter, publication_hashes
from braid.errors import ConfigurationError, RemoteProtocolError


def test_a_publication_has_the_same_hash_alone_and_in_a_batch() -> None:
    batch = publication_hashes("alice#1", np.arange(1, 1_001))
    assert len(set(batch.tolist())) == 1_000
    for sequence in (1, 17, 1_000):
        assert publication_hashes("alice#1", [sequence])[0] == batch[sequence - 1]
    assert not set(batch.tolist()) & set(publication_hashes("alice#2", np.arange(1, 1_001)).tolist())


@given(
    mine=st.sets(st.integers(1, 3_000), max_size=400),
    theirs=st.sets(st.integers(1, 3_000), max_size=400),
)
def test_common_interest_is_the_size_of_the_intersection(mine: set[int], theirs: set[int]) -> None:
    left, right = InterestCache(), InterestCache()
    left.record(publication_hashes("p", sorted(mine)))
    right.record(publication_hashes("p", sorted(theirs)))
    heard = InterestFilter.decoded(right.next_filter().encoded())
    assert heard.false_positive_rate < 1e-8
    assert abs(left.in_common(heard) - len(mine & theirs)) <= 1e-3


def test_a_filter_holds_what_came_since_the_last_one_only() -> None:
    cache, other = InterestCache(entries=100), InterestCache(entries=1_000)
    other.record(publication_hashes("p", np.arange(200)))
    cache.record(publication_hashes("p", np.arange(0, 30)))
    assert round(other.in_common(cache.next_filter())) == 30
    cache.record(publication_hashes("p", np.arange(30, 40)))
    assert cache.fresh == 10
    assert round(other.in_common(cache.next_filter())) == 10
    assert other.in_common(cache.next_filter()) == 0.0


def test_the_ring_keeps_the_latest_entries() -> None:
    cache = InterestCache(entries=64)
    for start in range(0, 1_000, 7):
        cache.record(publication_hashes("p", np.arange(start, start + 7)))
    assert len(cache) == 64
    assert set(cache.entries.tolist()) == set(publication_hashes("p", np.arange(1_001 - 64, 1_001)).tolist())
    cache.record(publication_hashes("p", np.arange(5_000, 5_200)))
    assert set(cache.entries.tolist()) == set(publication_hashes("p", np.arange(5_136, 5_200)).tolist())
    assert cache.fresh == 64


def test_false_positives_are_taken_out_of_the_estimate() -> None:
    # A filter that is much too small says yes to a good part of all strangers.
    mine, theirs = InterestCache(8_192, 4_000, 5), InterestCache(8_192, 4_000, 5)
    mine.record(publication_hashes("p", np.arange(8_000)))
    theirs.record(publication_hashes("p", np.arange(7_500, 8_500)))
    heard = theirs.next_filter()
    rate = heard.false_positive_rate
    assert 0.1 < rate < 0.3
    raw = 500 + rate * 7_500
    assert raw > 1_200
    # Six standard deviations of the strangers that are taken for friends.
    allowed = 6 * (7_500 * rate * (1 - rate)) ** 0.5 / (1 - rate)
    assert abs(mine.in_common(heard) - 500) < allowed < 400


def test_brokers_with_other_filter_sizes_understand_each_other() -> None:
    mine, theirs = InterestCache(1_000, 50_000, 3), InterestCache(1_000, 100_000, 5)
    mine.record(publication_hashes("p", np.arange(300)))
    theirs.record(publication_hashes("p", np.arange(200, 600)))
    assert abs(mine.in_common(theirs.next_filter()) - 100) < 1
    assert abs(theirs.in_common(mine.next_filter()) - 100) < 1


@pytest.mark.parametrize(("entries", "form", "bytes_max"), [(1, 2, 40), (250, 1, 2_600), (8_000, 0, 12_520)])
def test_the_shortest_form_is_sent(entries: int, form: int, bytes_max: int) -> None:
    made = InterestFilter.of(publication_hashes("p", np.arange(entries)))
    data = made.encoded()
    # Gaps of a single entry may fit into 16 bits or not.
    assert data[0] == form or (entries == 1 and data[0] == 1)
    assert len(data) <= bytes_max
    again = InterestFilter.decoded(data)
    assert again.encoded() == data


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\x00\x05\x00\x00\x00\x00",
        b"\x00\x00\x10\x00\x00\x00\xff\xff",
        b"\x00\x05\xff\xff\xff\xff" + b"\x00" * 10,
        b"\x00\x05\x10\x00\x00\x00\xff",
        b"\x01\x05\x10\x00\x00\x00\x20\x00",
        b"\x02\x05\x10\x00\x00\x00\x10\x00\x00\x00",
        b"\x02\x05\x10\x00\x00\x00" + b"\x01\x00\x00\x00" * 90,
        b"\x03\x05\x10\x00\x00\x00\x10\x00",
    ],
)
def test_what_is_no_filter_is_the_senders_fault(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        InterestFilter.decoded(data)


@given(st.binary(max_size=200))
def test_no_bytes_do_harm(data: bytes) -> None:
    try:
        made = InterestFilter.decoded(data[:2] + b"\x10\x27\x00\x00" + data[2:])
    except RemoteProtocolError:
        return
    cache = InterestCache(100)
    cache.record(publication_hashes("p", np.arange(50)))
    assert 0 <= cache.in_common(made) <= 100


def test_a_filter_that_says_yes_to_everything_says_nothing() -> None:
    cache = InterestCache(100, 64, 2)
    cache.record(publication_hashes("p", np.arange(100)))
    assert cache.in_common(InterestFilter(np.ones(64, np.bool_), 2)) == 0.0


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="0 entries"):
        InterestCache(entries=0)


@pytest.mark.parametrize("publications", [1, 50, 500, 8_000])
def test_a_filter_with_the_size_it_needs_is_short_and_errs_by_a_publication_or_so(publications: int) -> None:
    errors = []
    for run in range(12):
        mine, theirs = InterestCache(8_192, 0), InterestCache(8_192, 0)
        mine.record(publication_hashes(f"p{run}", np.arange(8_192)))
        first = 8_192 - publications // 2
        theirs.record(publication_hashes(f"p{run}", np.arange(first, first + publications)))
        data = theirs.next_filter().encoded()
        # Four bytes for each publication, and a few for the header.
        assert len(data) <= 4 * publications + 10
        errors.append(mine.in_common(InterestFilter.decoded(data)) - publications // 2)
    # Half a stranger is expected among 8,192: one in 16,000.
    assert (sum(error**2 for error in errors) / len(errors)) ** 0.5 < 2


def test_filters_of_both_kinds_understand_each_other() -> None:
    paper, sized = InterestCache(1_000), InterestCache(1_000, 0)
    paper.record(publication_hashes("p", np.arange(300)))
    sized.record(publication_hashes("p", np.arange(200, 600)))
    assert abs(paper.in_common(sized.next_filter()) - 100) < 2
    assert abs(sized.in_common(paper.next_filter()) - 100) < 2
    # Of a cache in which nothing is new, too.
    assert sized.in_common(paper.next_filter()) == 0.0

"""A small network of Pastry peers is a ring where all know all, and changes over as it grows and shrinks."""

from __future__ import annotations

import pytest

from braid.errors import ConfigurationError
from braid.p2p.dht.pastry_settings import PastrySettings
from tests.p2p.test_pastry import KEYS, grown, route_everywhere
from tests.p2p.wire import Wire, owner_among

SETTINGS = PastrySettings(beat_us=1_000_000, timeout_us=300_000, leaf_set=6, full_up_to=20)


def known(wire: Wire) -> set[int]:
    return {len(list(peer.dht.leaves)) for peer in wire.peers.values()}


def require_right_ends(wire: Wire, label: str) -> float:
    ends, hops = route_everywhere(wire, label)
    for place, key in enumerate(KEYS):
        assert ends[f"{label} {place}"] == [owner_among(wire.peers, key)]
    return hops


def test_peers_change_over_as_the_network_grows_and_shrinks() -> None:
    wire = grown(16, SETTINGS)
    assert known(wire) == {15}
    assert require_right_ends(wire, "small") <= 1
    for number in range(16, 36):
        wire.add(f"p{number}", [f"p{number - 9}"])
        wire.run(0.4)
    wire.run(15)
    assert known(wire) == {6}
    assert require_right_ends(wire, "large") > 1
    for number in range(30):
        wire.leave(f"p{number}")
        wire.run(1)
    wire.run(15)
    assert known(wire) == {5}
    assert require_right_ends(wire, "small again") <= 1


def test_without_the_setting_leaf_sets_keep_their_width() -> None:
    wire = grown(16, PastrySettings(beat_us=1_000_000, timeout_us=300_000, leaf_set=6))
    assert known(wire) == {6}


def test_a_size_is_not_negative() -> None:
    with pytest.raises(ConfigurationError, match="full_up_to"):
        PastrySettings(full_up_to=-1)

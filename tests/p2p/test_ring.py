"""The ring keeps the promises of the interface, held against knowing everybody."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.errors import ConfigurationError
from braid.p2p.dht.identifiers import CIRCLE, closeness, contact_of, key_of, number_of
from braid.p2p.dht.ring import Ring, RingSettings
from braid.p2p.peer import Peer, peer_vocabulary
from braid.p2p.turn import Turn
from tests.p2p.wire import Recorder, Wire, Word, owner_among

KEYS = [key_of(f"key {number}") for number in range(200)]


def make(address: str, bootstrap: list[str]) -> Peer:
    turn = Turn()
    ring = Ring(turn, address)
    return Peer(turn, ring, Recorder(ring), bootstrap)


def grown(count: int, seed: int = 1, loss: float = 0.0) -> Wire:
    wire = Wire(make, seed, loss)
    wire.add("p0")
    for number in range(1, count):
        wire.add(f"p{number}", [f"p{wire.chance.randrange(number)}"])
        wire.run(0.5)
    wire.run(10)
    return wire


def require_agreement(wire: Wire) -> None:
    """Every peer names the owner that knowing everybody names, and exactly one holds itself for it."""
    for key in KEYS:
        owner = owner_among(wire.peers, key)
        assert {peer.dht.owner(key) for peer in wire.peers.values()} == {contact_of(owner)}
        assert [each for each, peer in wire.peers.items() if peer.dht.responsible(key)] == [owner]


def delivered(wire: Wire) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for address, peer in wire.peers.items():
        for _, text in peer.application.delivered:
            found.setdefault(text, []).append(address)
    return found


def route_everywhere(wire: Wire, label: str) -> None:
    for place, key in enumerate(KEYS):
        source = wire.chance.choice(sorted(wire.peers))
        wire.act(source, lambda peer, k=key, p=place: peer.dht.route(k, Word(f"{label} {p}"), wire.now_us))
    wire.run(2)


@given(st.integers(0, CIRCLE - 1), st.integers(0, CIRCLE - 1), st.integers(0, CIRCLE - 1))
def test_closeness_is_the_shorter_way_round_and_tells_any_two_apart(one: int, other: int, key: int) -> None:
    def way(number: int) -> int:
        return min((number - key) % CIRCLE, (key - number) % CIRCLE)

    if way(one) < way(other):
        assert closeness(one, key) < closeness(other, key)
    assert (closeness(one, key) == closeness(other, key)) == (one == other)


def test_messages_reach_the_owner_that_knowing_everybody_names() -> None:
    wire = grown(12)
    wire.vocabulary = peer_vocabulary([Word])
    require_agreement(wire)
    route_everywhere(wire, "a")
    found = delivered(wire)
    for place, key in enumerate(KEYS):
        assert found[f"a {place}"] == [owner_among(wire.peers, key)]


def test_neighbours_are_the_nearest_on_both_sides() -> None:
    wire = grown(9)
    circle = sorted(wire.peers, key=lambda each: number_of(contact_of(each).id))
    for place, address in enumerate(circle):
        around = [circle[(place + step) % 9] for step in (-1, 1, -2, 2)]
        assert [each.address for each in wire.peers[address].dht.neighbours(4)] == around
        assert len(wire.peers[address].dht.neighbours(100)) == 8


def test_the_dead_are_noticed_and_their_keys_have_new_owners() -> None:
    wire = grown(12)
    for address in ("p3", "p7", "p8"):
        wire.kill(address)
    wire.run(15)
    require_agreement(wire)
    for peer in wire.peers.values():
        assert set(peer.application.failed) == {"p3", "p7", "p8"}


def test_a_goodbye_is_heard_by_all_at_once() -> None:
    wire = grown(8)
    wire.leave("p5")
    wire.run(0.2)
    require_agreement(wire)
    assert all(peer.application.goodbyes == ["p5"] for peer in wire.peers.values())
    assert not any(peer.application.failed for peer in wire.peers.values())
    handed_over = [each for each, peer in wire.peers.items() if peer.application.direct]
    assert len(handed_over) == 2


def test_ownership_changes_are_told_to_exactly_those_whose_neighbours_change() -> None:
    wire = grown(10)
    before = {each: peer.dht.neighbours(2) for each, peer in wire.peers.items()}
    counts = {each: peer.application.ownership_changes for each, peer in wire.peers.items()}
    wire.add("new", ["p0"])
    wire.run(5)
    for each in before:
        peer = wire.peers[each]
        assert (peer.application.ownership_changes > counts[each]) == (peer.dht.neighbours(2) != before[each])


def test_lost_datagrams_are_made_good_by_digests() -> None:
    wire = grown(10, seed=3, loss=0.2)
    wire.loss = 0.0
    wire.run(20)
    require_agreement(wire)


def test_both_sides_of_a_partition_come_together_again() -> None:
    wire = grown(10)
    left = {f"p{number}" for number in range(5)}
    wire.cut = lambda source, target: (source in left) != (target in left)
    wire.run(20)
    assert all(len(peer.dht.members()) == 5 for peer in wire.peers.values())
    wire.cut = lambda source, target: False
    wire.run(30)
    require_agreement(wire)


def test_a_peer_that_starts_again_at_its_address_is_known_to_have_lost_everything() -> None:
    wire = grown(6)
    wire.kill("p2")
    wire.add("p2", ["p4"])
    wire.run(5)
    require_agreement(wire)
    assert all("p2" in peer.application.failed for each, peer in wire.peers.items() if each != "p2")


def test_what_is_routed_before_joining_goes_out_then_and_an_application_may_end_a_way() -> None:
    wire = grown(6)
    wire.add("late", ["nobody", "p1"])
    key = next(each for each in KEYS if owner_among([*wire.peers, "late"], each) != "late")
    wire.act("late", lambda peer: peer.dht.route(key, Word("early"), wire.now_us))
    assert not wire.peers["late"].dht.responsible(key)
    wire.run(5)
    assert delivered(wire)["early"] == [owner_among(wire.peers, key)]
    wire.peers["late"].application.stops.add("stopped")
    wire.act("late", lambda peer: peer.dht.route(key, Word("stopped"), wire.now_us))
    wire.run(2)
    assert "stopped" not in delivered(wire)


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="ping_us is at least 1"):
        RingSettings(ping_us=0)

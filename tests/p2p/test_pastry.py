"""Pastry keeps the promises of the interface, held against knowing everybody."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.errors import ConfigurationError
from braid.p2p.dht.identifiers import CIRCLE, Contact, closeness, contact_of, key_of, number_of
from braid.p2p.dht.leaf_set import LeafSet
from braid.p2p.dht.pastry import Pastry
from braid.p2p.dht.pastry_settings import PastrySettings
from braid.p2p.dht.routing_table import RoutingTable
from braid.p2p.peer import Peer, peer_vocabulary
from braid.p2p.turn import Turn
from tests.p2p.wire import Recorder, Wire, Word, owner_among

if TYPE_CHECKING:
    from collections.abc import Callable

KEYS = [key_of(f"key {number}") for number in range(300)]
QUICK = PastrySettings(beat_us=1_000_000, timeout_us=300_000)
SURE = PastrySettings(beat_us=1_000_000, timeout_us=300_000, acknowledged=True)


def maker(settings: PastrySettings) -> Callable[[str, list[str]], Peer]:
    def make(address: str, bootstrap: list[str]) -> Peer:
        turn = Turn()
        dht = Pastry(turn, address, settings)
        return Peer(turn, dht, Recorder(dht), bootstrap)

    return make


def grown(count: int, settings: PastrySettings = QUICK, seed: int = 1, gap_s: float = 0.4) -> Wire:
    wire = Wire(maker(settings), seed)
    wire.add("p0")
    wire.run(0.1)
    for number in range(1, count):
        wire.add(f"p{number}", [f"p{wire.chance.randrange(max(1, number - 5))}"])
        wire.run(gap_s)
    wire.run(15)
    return wire


def require_true_leaf_sets(wire: Wire) -> None:
    """Every leaf set is the one that knowing everybody gives, and so is everything it says of keys."""
    circle = sorted(wire.peers, key=lambda each: number_of(contact_of(each).id))
    size = len(circle)
    for place, address in enumerate(circle):
        dht = wire.peers[address].dht
        half = min(8, size - 1)
        assert [each.address for each in dht.leaves.after] == [
            circle[(place + step) % size] for step in range(1, half + 1)
        ], address
        assert [each.address for each in dht.leaves.before] == [
            circle[(place - step) % size] for step in range(1, half + 1)
        ], address
    for key in KEYS:
        owner = owner_among(wire.peers, key)
        assert [each for each, peer in wire.peers.items() if peer.dht.responsible(key)] == [owner]
        assert {peer.dht.owner(key) for peer in wire.peers.values()} <= {contact_of(owner), None}


def route_everywhere(wire: Wire, label: str, seconds: float = 5) -> tuple[dict[str, list[str]], float]:
    """Where each message ended, and the mean number of hops."""
    hops_before = sum(len(peer.application.forwarded) for peer in wire.peers.values())
    for place, key in enumerate(KEYS):
        source = wire.chance.choice(sorted(wire.peers))
        wire.act(source, lambda peer, k=key, p=place: peer.dht.route(k, Word(f"{label} {p}"), wire.now_us))
    wire.run(seconds)
    found: dict[str, list[str]] = {}
    for address, peer in wire.peers.items():
        for _, text in peer.application.delivered:
            if text.startswith(f"{label} "):
                found.setdefault(text, []).append(address)
    hops = sum(len(peer.application.forwarded) for peer in wire.peers.values()) - hops_before
    return found, hops / len(KEYS)


def expected(wire: Wire, label: str) -> dict[str, list[str]]:
    return {f"{label} {place}": [owner_among(wire.peers, key)] for place, key in enumerate(KEYS)}


numbers = st.integers(0, CIRCLE - 1) | st.integers(0, 40) | st.integers(CIRCLE - 40, CIRCLE - 1)


def contact_at(number: int) -> Contact:
    return Contact(number.to_bytes(16, "big"), f"at {number}")


@given(numbers, st.lists(numbers, unique=True, max_size=12), st.lists(numbers, min_size=1), st.data())
def test_a_leaf_set_says_what_knowing_everybody_says(
    own: int, others: list[int], keys: list[int], data: st.DataObject
) -> None:
    others = [each for each in others if each != own]
    leaves = LeafSet(contact_at(own), own, 3)
    for number in others:
        wanted = leaves.wants(number)
        assert leaves.add(contact_at(number), number) == wanted
        assert not leaves.add(contact_at(number), number)
    gone = set(data.draw(st.lists(st.sampled_from(others), unique=True))) if others else set()
    if len(others) <= 3:
        for number in gone:
            assert leaves.remove(contact_at(number).address)
        others = [each for each in others if each not in gone]
    after = sorted(others, key=lambda each: (each - own) % CIRCLE)[:3]
    before = sorted(others, key=lambda each: (own - each) % CIRCLE)[:3]
    assert [number_of(each.id) for each in leaves.after] == after
    assert [number_of(each.id) for each in leaves.before] == before
    for key in keys:
        owner = min([own, *others], key=lambda each: closeness(each, key))
        assert leaves.responsible(key) == (owner == own)
        assert leaves.owner(key) in (contact_at(owner), None)
        if len(others) <= 5 or owner == own:  # then the two sides meet
            assert leaves.owner(key) == contact_at(owner)


@given(st.lists(st.tuples(numbers, st.integers(1, 10_000_000)), max_size=40), numbers)
def test_a_slot_holds_the_nearest_peer_that_belongs_there(peers: list[tuple[int, int]], own: int) -> None:
    table = RoutingTable(own)
    best: dict[tuple[int, str], tuple[int, int]] = {}
    own_digits = f"{own:032x}"
    for number, time_us in peers:
        if number == own:
            continue
        digits = f"{number:032x}"
        row = next(place for place in range(32) if digits[place] != own_digits[place])
        slot = (row, digits[row])
        table.add(contact_at(number), number, time_us)
        if slot not in best or best[slot][1] == number or time_us < best[slot][0]:
            best[slot] = (time_us, number)
    assert {number_of(each.id) for each in table} == {number for _, number in best.values()}
    for time_us, number in best.values():
        assert table.get(number) == contact_at(number)
        assert table.time_us(contact_at(number)) == time_us
        assert table.remove(contact_at(number)) is not None
    assert list(table) == []


@pytest.mark.parametrize("count", [2, 9, 17, 60])
def test_joins_lead_to_the_leaf_sets_that_knowing_everybody_gives(count: int) -> None:
    wire = grown(count)
    require_true_leaf_sets(wire)
    wire.vocabulary = peer_vocabulary([Word])
    found, _ = route_everywhere(wire, "a")
    assert found == expected(wire, "a")


def test_a_lookup_takes_about_log16_n_hops_and_first_hops_are_near() -> None:
    wire = grown(250, gap_s=0.25)
    require_true_leaf_sets(wire)
    found, hops = route_everywhere(wire, "a")
    assert found == expected(wire, "a")
    assert hops <= math.log(250, 16) + 0.5
    # A slot of the first row may hold any of some fifteen peers. By chance they would be as far as any.
    rows = {address: peer.dht.table.row(0) for address, peer in wire.peers.items()}
    chosen = [wire.latency_us(address, each.address) for address, row in rows.items() for each in row]
    chance = random.Random(5)
    names = sorted(wire.peers)
    any_two = [wire.latency_us(*chance.sample(names, 2)) for _ in range(4_000)]
    assert sum(chosen) / len(chosen) < 0.8 * sum(any_two) / len(any_two)


def test_many_join_at_once_through_one_peer() -> None:
    wire = Wire(maker(QUICK))
    wire.add("p0")
    wire.run(0.1)
    for number in range(1, 40):
        wire.add(f"p{number}", ["p0"])
    wire.run(40)
    require_true_leaf_sets(wire)


@pytest.mark.parametrize("settings", [QUICK, SURE], ids=["plain", "acknowledged"])
def test_a_third_dies_at_once_and_the_rest_close_their_ranks(settings: PastrySettings) -> None:
    wire = grown(60, settings)
    for address in wire.chance.sample(sorted(wire.peers), 20):
        wire.kill(address)
    wire.run(25)
    require_true_leaf_sets(wire)
    wire.run(60)  # entries of routing tables are looked at one after the other
    found, _ = route_everywhere(wire, "a")
    assert found == expected(wire, "a")


def test_acknowledged_messages_go_round_the_dead_before_anybody_has_noticed_otherwise() -> None:
    wire = grown(60, SURE)
    for address in wire.chance.sample(sorted(wire.peers), 20):
        wire.kill(address)
    found, _ = route_everywhere(wire, "a", seconds=25)
    texts = {f"a {place}" for place in range(len(KEYS))}
    assert set(found) == texts
    owners = expected(wire, "a")
    assert all(owners[text][0] in found[text] for text in texts)


def test_acknowledged_messages_survive_loss_and_others_do_not() -> None:
    lost = {}
    for name, settings in (("plain", QUICK), ("sure", SURE)):
        wire = grown(40, settings)
        wire.loss = 0.05
        found, _ = route_everywhere(wire, "a", seconds=15)
        lost[name] = len(KEYS) - len(found)
        owners = expected(wire, "a")
        assert all(set(places) == set(owners[text]) for text, places in found.items())
    assert lost["sure"] == 0
    assert lost["plain"] > 5  # the check can fail


def test_a_goodbye_moves_keys_at_once_and_a_newcomer_is_told_to_the_neighbours_alone() -> None:
    wire = grown(40)
    neighbours = [each.address for each in wire.peers["p7"].dht.neighbours(16)]
    wire.leave("p7")
    wire.run(0.3)
    for address in neighbours:
        assert "p7" in wire.peers[address].application.goodbyes
    assert [each for each in neighbours if wire.peers[each].application.direct] == sorted(
        neighbours[:2], key=neighbours.index
    )
    wire.run(5)
    require_true_leaf_sets(wire)
    counts = {each: peer.application.ownership_changes for each, peer in wire.peers.items()}
    around = {each: peer.dht.neighbours(2) for each, peer in wire.peers.items()}
    wire.add("new", ["p1"])
    wire.run(5)
    for each in counts:
        changed = wire.peers[each].application.ownership_changes > counts[each]
        assert changed == (wire.peers[each].dht.neighbours(2) != around[each])


def test_peers_come_and_go_all_the_time_with_loss_and_in_the_end_all_is_true() -> None:
    wire = grown(40, SURE, seed=7)
    wire.loss = 0.01
    for number in range(60):
        names = sorted(wire.peers)
        if number % 3 == 0:
            wire.kill(wire.chance.choice(names))
        elif number % 3 == 1:
            wire.leave(wire.chance.choice(names))
        else:
            wire.add(f"new {number}", wire.chance.sample(names, 3))
            wire.add(f"newer {number}", wire.chance.sample(names, 3))
        wire.run(0.7)
    wire.run(40)
    require_true_leaf_sets(wire)
    found, _ = route_everywhere(wire, "a", seconds=10)
    assert {text: set(places) for text, places in found.items()} == {
        text: set(places) for text, places in expected(wire, "a").items()
    }


def test_a_peer_that_was_unreachable_is_known_again() -> None:
    wire = grown(30)
    wire.cut = lambda source, target: "p3" in (source, target)
    wire.run(10)
    assert all(contact_of("p3") not in peer.dht.leaves for each, peer in wire.peers.items() if each != "p3")
    wire.cut = lambda source, target: False
    wire.run(90)
    require_true_leaf_sets(wire)


def test_nothing_is_sent_for_peace_of_mind_where_nobody_fails() -> None:
    wire = grown(20, PastrySettings(beat_us=None, timeout_us=300_000))
    sent = wire.sent
    wire.run(100)
    assert wire.sent == sent
    assert all(peer.next_deadline_us() is None for peer in wire.peers.values())


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"leaf_set": 5}, "leaf_set is an even number"),
        ({"digit_bits": 3}, "digit_bits is 1, 2, 4 or 8"),
        ({"beat_us": 0}, "beat_us is at least 1"),
        ({"tries": 0}, "tries is at least 1"),
        ({"probes_per_beat": -1}, "probes_per_beat is at least 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, int], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        PastrySettings(**options)

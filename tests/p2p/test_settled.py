"""A settled start is what real joins lead to."""

from __future__ import annotations

import random
from typing import Any

import pytest

from braid.p2p.dht.identifiers import contact_of, key_of
from braid.p2p.dht.pastry import Pastry
from braid.p2p.dht.pastry_settings import PastrySettings
from braid.p2p.dht.settled import settle
from braid.p2p.peer import Peer
from braid.p2p.turn import Turn
from braid.sim.datagrams import DatagramWorld
from braid.sim.topologies.transit_stub import NumberedPlacement, TransitStub
from tests.p2p.wire import Recorder, Word, owner_among

COUNT = 500
NAMES = [f"p{number}" for number in range(COUNT)]


def bare(name: str, settings: PastrySettings, bootstrap: tuple[str, ...] = ()) -> Peer:
    turn = Turn()
    dht = Pastry(turn, name, settings)
    return Peer(turn, dht, Recorder(dht), bootstrap)


def joined_world(placement: NumberedPlacement) -> DatagramWorld:
    world = DatagramWorld(1, placement.latency_us)
    chance = random.Random(3)
    settings = PastrySettings(beat_us=20_000_000, probes_per_beat=0)
    for number, name in enumerate(NAMES):
        bootstrap = (NAMES[chance.randrange(max(1, number - 20))],) if number else ()
        world.add(name, bare(name, settings, bootstrap))
        world.run_for(2)
    world.run_for(100)
    return world


def settled_world(placement: NumberedPlacement) -> DatagramWorld:
    world = DatagramWorld(1, placement.latency_us)
    settings = PastrySettings(beat_us=None)
    turns = [Turn() for _ in NAMES]
    tables = [Pastry(turn, name, settings) for turn, name in zip(turns, NAMES, strict=True)]
    settle(tables, placement.latencies_us)
    for turn, dht in zip(turns, tables, strict=True):
        world.add(dht.own.address, Peer.settled(turn, dht, Recorder(dht)))
    return world


def dhts(world: DatagramWorld) -> dict[str, Any]:
    return {name: machine.dht for name, machine in zip(world.names, world.machines, strict=True)}


def lookups(world: DatagramWorld) -> tuple[float, float]:
    """The mean number of hops and the mean latency in milliseconds of lookups that end where they must."""
    chance = random.Random(9)
    hops, waited_us = 0, 0
    for number in range(400):
        key, source = key_of(f"lookup {number}"), chance.choice(NAMES)
        owner = owner_among(NAMES, key)
        here, way = source, 0
        while True:
            following = dhts_of(world, here)._following(int.from_bytes(key, "big"))
            if following is None:
                break
            waited_us += world._latency_us(world.numbers[here], world.numbers[following])
            here, way = following, way + 1
        assert here == owner
        hops += way
    return hops / 400, waited_us / 400 / 1000


def dhts_of(world: DatagramWorld, name: str) -> Any:
    return world.machines[world.numbers[name]].dht  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def worlds() -> tuple[DatagramWorld, DatagramWorld]:
    placement = NumberedPlacement(TransitStub.generate(), COUNT)
    return joined_world(placement), settled_world(placement)


def test_leaf_sets_are_the_same(worlds: tuple[DatagramWorld, DatagramWorld]) -> None:
    joined, settled = (dhts(world) for world in worlds)
    for name in NAMES:
        assert joined[name].leaves.after == settled[name].leaves.after
        assert joined[name].leaves.before == settled[name].leaves.before
        assert joined[name].leaves.distances_after == settled[name].leaves.distances_after
        assert joined[name].leaves.distances_before == settled[name].leaves.distances_before


def test_routing_tables_have_the_same_slots_filled_and_no_wrong_one(
    worlds: tuple[DatagramWorld, DatagramWorld],
) -> None:
    joined, settled = (dhts(world) for world in worlds)
    filled = 0
    for name in NAMES:
        for row in range(max(joined[name].table.depth, settled[name].table.depth)):
            slots = [
                {each.id.hex()[: row + 1] for each in tables[name].table.row(row)}
                for tables in (joined, settled)
            ]
            own = contact_of(name).id.hex()
            assert all(slot[:row] == own[:row] and slot != own[: row + 1] for each in slots for slot in each)
            assert slots[0] <= slots[1]
            filled += len(slots[0])
    assert filled >= 0.97 * sum(len(list(each.table)) for each in settled.values())


def test_lookups_take_as_many_hops_and_as_long(worlds: tuple[DatagramWorld, DatagramWorld]) -> None:
    joined, settled = (lookups(world) for world in worlds)
    assert settled[0] == pytest.approx(joined[0], rel=0.08)
    assert settled[1] == pytest.approx(joined[1], rel=0.2)


def test_a_settled_network_serves_and_grows() -> None:
    placement = NumberedPlacement(TransitStub.generate(), COUNT + 1)
    world = settled_world(placement)
    world.add("new", bare("new", PastrySettings(), ("p7",)))
    world.run_for(30)
    assert dhts_of(world, "new").neighbours(2)
    key = contact_of("new").id
    world.call(
        "p3", lambda peer, now_us: (peer.dht.route(key, Word("hello"), now_us), peer.complete(now_us))[1]
    )
    world.run_for(20)
    new: Any = world.machines[world.numbers["new"]]
    assert new.application.delivered == [(key, "hello")]

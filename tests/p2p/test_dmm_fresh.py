"""Is everything delivered in a network that has just begun, where nobody has anything to hand over?"""

from __future__ import annotations

import random

import pytest

from braid.language import Filter, Publication
from braid.p2p.dht.pastry import Pastry
from braid.p2p.dht.pastry_settings import PastrySettings
from braid.p2p.dht.ring import Ring, RingSettings
from braid.p2p.dmm import Dmm, DmmSettings
from braid.p2p.peer import Peer
from braid.p2p.turn import Turn
from braid.protocol.effects import Delivery, Effect
from braid.sim.datagrams import DatagramWorld


@pytest.mark.parametrize("kind", ["pastry", "ring"])
@pytest.mark.parametrize("seed", range(3))
def test_subscriptions_right_after_the_joins(kind: str, seed: int) -> None:
    chance = random.Random(seed)
    found: dict[str, list[int]] = {}

    def deliver(name: str, effect: Effect) -> None:
        if isinstance(effect, Delivery):
            found.setdefault(name, []).append(int(effect.publication["number"]))

    world = DatagramWorld(
        seed, lambda source, target: 1_000 + (source * 7 + target * 13) % 900, on_effect=deliver
    )
    names: list[str] = []
    for number in range(6):
        name = f"host-{chance.randrange(10**9)}:{number}"
        turn = Turn()
        dht = (
            Pastry(turn, name, PastrySettings(acknowledged=True))
            if kind == "pastry"
            else Ring(turn, name, RingSettings(acknowledged=True))
        )
        dmm = Dmm(turn, dht, DmmSettings(), epoch=str(number))
        world.add(name, Peer(turn, dht, dmm, names[:1]))
        names.append(name)
        world.run_for(0.5)
    world.run_for(1.0)
    filters = {name: Filter(f"price > {10 * place} AND symbol = 'A'") for place, name in enumerate(names)}
    for name, wanted in filters.items():
        world.call(
            name,
            lambda peer, now_us, wanted=wanted: (
                peer.application.subscribe("key", wanted, now_us),
                peer.complete(now_us),
            )[1],
        )
    world.run_for(0.5)
    published = [{"number": number, "price": chance.randrange(70), "symbol": "A"} for number in range(40)]
    for attributes in published:
        world.call(
            chance.choice(names),
            lambda peer, now_us, attributes=attributes: (
                peer.application.publish(Publication(attributes), now_us),
                peer.complete(now_us),
            )[1],
        )
        world.run_for(0.05)
    world.run_for(2.0)
    for name, wanted in filters.items():
        expected = [each["number"] for each in published if wanted.matches(each)]
        assert sorted(found.get(name, [])) == expected

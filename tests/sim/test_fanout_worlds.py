"""Does any broker ever have more links than `fanout` says, while the mesh is built and changes?"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from braid.adaptation import SoftLinkSettings
from braid.sim import LinkModel, Station, World
from tests.sim.brokers import broker

if TYPE_CHECKING:
    from collections.abc import Iterator

BROKERS = 44
SECONDS = 10
REVIEW_US = 500_000
BEGIN_US = 4_000_000


def publications(seed: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """What is wanted where changes in the middle, so that links are replaced."""
    chance = random.Random(f"fanout/publications/{seed}")
    for number in range(SECONDS * 25):
        low = 0 if number < SECONDS * 12 else 50
        yield BEGIN_US + number * 40_000, {"topic": low + chance.randrange(50)}


def network(strategy: str, fanout: int, seed: int) -> tuple[World, list[Station]]:
    chance = random.Random(f"fanout/{seed}")
    world = World(seed, link=LinkModel(1_000))
    names = [f"B{number:02d}" for number in range(BROKERS)]
    for place, name in enumerate(names):
        neighbours = [names[chance.randrange(max(0, place - 4), place)]] if place else []
        settings = SoftLinkSettings(
            fanout=fanout, candidates_max=fanout // 2, review_us=REVIEW_US, rest_reviews=1
        )
        world.add(name, broker(name, neighbours, strategy=strategy, delta=255, soft_links=settings))
    world.run_until(BEGIN_US - 2_000_000)
    stations = [
        world.attach(
            Station(
                f"reader{number}",
                name,
                subscriptions=[("1", f"topic IN ({', '.join(map(str, chance.sample(range(100), 12)))})")],
            )
        )
        for number, name in enumerate(names)
    ]
    stations += [
        world.attach(Station(f"writer{number}", name, publications=publications(number), acknowledged=True))
        for number, name in enumerate(chance.sample(names, 6))
    ]
    return world, stations


@pytest.mark.parametrize("fanout", [10, 35])
@pytest.mark.parametrize("strategy", ["S1", "S2", "SH", "SB"])
def test_no_broker_ever_has_more_links_than_its_fanout(strategy: str, fanout: int) -> None:
    world, stations = network(strategy, fanout, seed=1)
    most = primary_most = 0
    while world.now_us < BEGIN_US + SECONDS * 1_000_000:
        world.run_for(us=50_000)
        for name in (f"B{number:02d}" for number in range(BROKERS)):
            core = world.machine(name)
            mesh = core._soft
            primary = len(core._links.links)
            primary_most = max(primary_most, primary)
            links = primary + len(mesh.outgoing) + len(mesh.incoming) + len(mesh.retiring)
            assert links <= max(fanout, primary), f"{name} has {links} links at {world.now_us / 1e6:.2f} s"
            most = max(most, links)
    assert primary_most < fanout
    assert most == fanout, "somebody is full, so the bound has been tried"
    world.run_for(seconds=3)
    world.checkers.require()
    assert all(station.channel.idle for station in stations)

"""Whatever mixture of strategies brokers use, each matching broker gets each publication exactly once."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from braid.protocol.destinations import digest_of, packed_destinations, unpacked_destinations
from braid.routing.delegation import split_destinations
from braid.routing.overlay_map import OverlayMap
from braid.routing.paths import PATHS
from braid.routing.working_map import WorkingMap


@st.composite
def networks(draw: st.DrawFn) -> dict:
    count = draw(st.integers(2, 30))
    tree = [
        (f"B{draw(st.integers(max(0, child - 9), child - 1)):02d}", f"B{child:02d}")
        for child in range(1, count)
    ]
    names = [f"B{number:02d}" for number in range(count)]
    return {
        "tree": tree,
        "names": names,
        "delta": draw(st.integers(1, 6)),
        "strategies": {name: draw(st.sampled_from(["S0", "S1", "S2"])) for name in names},
        "wishes": {name: draw(st.sets(st.sampled_from(names), max_size=10)) for name in names},
        "candidates": {name: draw(st.sets(st.sampled_from(names), max_size=3)) for name in names},
        "matching": draw(st.sets(st.sampled_from(names))),
        "source": draw(st.sampled_from(names)),
    }


class _Broker:
    def __init__(self, name: str, network: dict) -> None:
        self.whole = OverlayMap.of_links(name, network["tree"])
        self.map = OverlayMap.of_links(name, network["tree"], network["delta"])
        soft = {broker for broker in network["wishes"][name] if broker in self.map and broker != name}
        candidates = {
            broker for broker in network["candidates"][name] if broker in self.map and broker != name
        }
        candidates -= set(self.map.neighbours) | soft
        self.working = WorkingMap(self.map, {*self.map.neighbours, *soft, *candidates}, candidates)
        self.strategy = network["strategies"][name]
        self.delta = network["delta"]

    def next_hops(self, matching: set[str], came_from: str | None) -> list[str]:
        downstream = [
            broker
            for broker in matching
            if broker != self.map.centre
            and (came_from is None or self.whole.toward(broker) != self.whole.toward(came_from))
        ]
        if self.strategy == "S0":
            return sorted({self.whole.toward(broker) for broker in downstream})
        anchors = 0
        for broker in downstream:
            path = self.whole.path(broker)
            anchors |= 1 << self.working.substitute(path[min(self.delta, len(path)) - 1])
        return self.working.names(self.working.funnelled(PATHS[self.strategy](self.working, anchors)))


@settings(max_examples=100)
@given(network=networks())
def test_a_mixture_of_strategies_delivers_exactly_once(network):
    brokers = {name: _Broker(name, network) for name in network["names"]}
    got: Counter[str] = Counter()
    under_way = [(network["source"], None)]
    while under_way:
        at, came_from = under_way.pop()
        got[at] += 1
        assert got[at] == 1, "a broker sees a publication once, so nothing loops"
        under_way += [(hop, at) for hop in brokers[at].next_hops(network["matching"], came_from)]
    assert network["matching"] <= got.keys() | {network["source"]}


@settings(max_examples=100)
@given(network=networks(), data=st.data())
def test_delegated_destinations_are_served_exactly_once(network, data):
    """Also when what brokers believe about each other's links is out of date."""
    whole = {name: OverlayMap.of_links(name, network["tree"]) for name in network["names"]}
    links = {
        name: (set(whole[name].neighbours) | network["wishes"][name]) - {name} for name in network["names"]
    }
    believed = {
        name: data.draw(st.sets(st.sampled_from(network["names"])))
        if data.draw(st.booleans())
        else links[name]
        for name in network["names"]
    }
    got: Counter[str] = Counter()
    under_way = [(network["source"], set(network["matching"]), 0)]
    steps = 0
    while under_way:
        at, destinations, hops = under_way.pop()
        steps += 1
        assert steps < 2000, "it must end"
        if at in destinations:
            got[at] += 1
            destinations = destinations - {at}
        shares = split_destinations(
            destinations,
            {link: believed[link] for link in links[at]},
            lambda broker, at=at: whole[at].toward(broker),
            hops,
        )
        assert sum(len(share) for share in shares.values()) == len(destinations)
        under_way += [(hop, share, hops + 1) for hop, share in shares.items()]
    assert got == Counter(network["matching"])


@given(st.sets(st.integers(0, (1 << 24) - 1), max_size=200))
def test_destinations_survive_packing(digests):
    assert unpacked_destinations(packed_destinations(digests)) == digests


def test_a_thousand_brokers_have_short_headers():
    names = [f"broker-{number}" for number in range(1000)]
    digests = {digest_of(name) for name in names}
    thirty = [digest_of(name) for name in names[:: 1000 // 30]]
    assert len(digests) > 960  # a few may collide; those are served along the tree
    assert len(packed_destinations(thirty)) <= 4 * len(thirty)


def test_destinations_are_asked_to_find_the_way_only_at_first():
    """Where links are few they know no better, and asking goes on until only the tree is left."""
    links = {"asked": {"elsewhere"}, "between": {"X", "Y"}}
    ways = [split_destinations({"asked", "X", "Y"}, links, lambda broker: "tree", hops) for hops in range(4)]
    finding, direct = {"asked": {"asked", "X", "Y"}}, {"asked": {"asked"}, "between": {"X", "Y"}}
    assert ways == [finding, finding, direct, direct]

"""Can a neighbour or a soft link that says anything about the network make a broker stumble?

What brokers tell each other about maps, loads, links and sets of destinations is as good as its sender.
The core never raises, and those who have nothing to do with the liar are served as before.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from braid.adaptation import SoftLinkSettings
from braid.protocol import PublicationBatch, encode_record
from braid.protocol.destinations import digest_of, packed_destinations
from braid.protocol.messages import (
    PROTOCOL_VERSION,
    Ask,
    Done,
    Hello,
    LinkState,
    Loads,
    Nearby,
    Settled,
    Subscribe,
    SyncBegin,
    TablesComplete,
    Unsubscribe,
)
from tests.broker.wire import Network
from tests.fuzz.strategies import INT64, TEXT, messages
from tests.fuzz.test_core_fuzz import Attacker

QUICK = SoftLinkSettings(fanout=6, review_us=100_000, rest_reviews=1)
BROKERS = st.sampled_from(["A", "B", "C", "X", "Y", "Z"])
NAMES = BROKERS | BROKERS | TEXT
NUMBERS = st.integers(-3, 30) | INT64
ROUTES = st.one_of(
    st.sets(BROKERS).map(lambda names: packed_destinations(map(digest_of, names))),
    st.binary(max_size=12),
)


@st.composite
def copies(draw: Any) -> PublicationBatch:
    """Copies for sets of brokers, or without one."""
    first = draw(st.integers(1, 5))
    count = draw(st.integers(1, 3))
    batch = PublicationBatch.of(
        draw(st.sampled_from(["Z.p", "Z.q"])),
        range(first, first + count),
        [encode_record({"n": number}, 0) for number in range(count)],
        acknowledged=draw(st.booleans()),
        ordered=draw(st.booleans()),
        again=draw(st.booleans()),
    )
    batch.hops = draw(st.integers(0, 7) | st.integers(0, 255))
    return batch.readdressed(route=draw(ROUTES))


SAID = st.one_of(
    st.builds(
        Nearby,
        st.lists(st.tuples(NAMES, NAMES, st.sampled_from(["", "A", "B", "C", "Z"])), max_size=4),
        st.lists(NAMES, max_size=2),
    ),
    st.builds(Loads, st.lists(st.tuples(NAMES, NUMBERS, NUMBERS, NUMBERS), max_size=4)),
    st.builds(LinkState, ROUTES, ROUTES),
    st.builds(Settled, st.lists(NUMBERS, max_size=3)),
    st.builds(
        Subscribe,
        st.integers(0, 9),
        st.sampled_from(["Z/1/1", "Z/1/2", "X/1/1"]),
        st.sampled_from(["TRUE", "honest > 0", "n >= 0", "n = 1"]),
        anchor=NAMES,
        exact=st.booleans(),
    ),
    st.builds(Unsubscribe, st.integers(0, 9), st.sampled_from(["Z/1/1", "Z/1/2"])),
    st.builds(Done, st.integers(0, 9)),
    st.builds(SyncBegin),
    st.builds(TablesComplete),
    copies(),
    copies(),
    messages(),
)


class MeshScene:
    """Three brokers in a row with shortcuts, an honest pair at the ends, and a liar in the middle."""

    def __init__(self, strategy: str) -> None:
        self.network = Network()
        neighbours: tuple[str, ...] = ()
        for name in "ABC":
            self.network.start(name, neighbours=neighbours, strategy=strategy, soft_links=QUICK)
            self.network.run(us=200_000)
            neighbours = (name,)
        self.reader = self.network.client("reader", "C")
        self.reader.ask(Subscribe(1, "1", "honest > 0"))
        self.network.run(us=50_000)
        self.writer = self.network.client("writer", "A")
        self.published = 0
        self.talk()

    def talk(self) -> None:
        for acknowledged in (False, True):
            self.published += 1
            self.writer.publish({"honest": self.published}, acknowledged=acknowledged)
            self.network.run(us=120_000)

    def check(self) -> None:
        """After an operator has given the liar up, the honest pair is served with everything."""
        operator = self.network.client("operator", "B")
        operator.ask(Ask(1, "forget", {"neighbour": "Z"}))
        self.network.run(us=100_000)
        self.talk()
        self.network.run(us=8_000_000)
        assert sorted(self.reader.values("honest")) == list(range(1, self.published + 1))
        assert self.writer.channel.idle


SLOW = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
STEPS = st.lists(st.tuples(SAID, st.booleans()), min_size=1, max_size=10)


@pytest.mark.parametrize("strategy", ["S0", "S2", "SB"])
@SLOW
@given(steps=STEPS, delta=st.sampled_from([1, 4, 255]) | NUMBERS)
def test_a_neighbour_that_says_anything_about_the_network(
    strategy: str, steps: list[tuple[Any, bool]], delta: int
) -> None:
    scene = MeshScene(strategy)
    liar = Attacker(scene.network, "B")
    liar.say(Hello(PROTOCOL_VERSION, "broker", "Z", "Z-1", credit=1 << 20, delta=delta))
    for body, pause in steps:
        liar.say(body)
        if pause:
            scene.network.run(us=60_000)
    scene.network.run(us=300_000)
    liar.leave()
    scene.network.run(us=100_000)
    scene.check()


@pytest.mark.parametrize("strategy", ["S2", "SB"])
@SLOW
@given(steps=STEPS)
def test_a_soft_link_that_says_anything(strategy: str, steps: list[tuple[Any, bool]]) -> None:
    scene = MeshScene(strategy)
    liar = Attacker(scene.network, "C")
    scene.network.cores["C"]._mesh._words._heard["A"] = "the word"
    liar.say(Hello(PROTOCOL_VERSION, "soft", "A", "A-1", credit=1 << 20, proofs={"C": "the word"}))
    for body, pause in steps:
        liar.say(body)
        if pause:
            scene.network.run(us=60_000)
    scene.network.run(us=300_000)
    liar.leave()
    scene.network.run(us=100_000)
    scene.check()

"""Can a neighbour, or a soft link, hurt more than itself by what it says about the network?

A peer that breaks the rules loses its connection. One that lies within the rules may spoil what concerns
itself. Everybody else is served as before, and what a peer can make a broker remember is bounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from braid.adaptation import SoftLinkSettings
from braid.broker import delegated_copies, delegations
from braid.protocol import PublicationBatch, encode_record
from braid.protocol.destinations import digest_of, packed_destinations
from braid.protocol.messages import (
    PROTOCOL_VERSION,
    Advertise,
    Ask,
    Done,
    Hello,
    LinkState,
    Loads,
    Message,
    Nearby,
    Reach,
    Refused,
    Settled,
    SoftWord,
    Subscribe,
    SyncBegin,
    TablesComplete,
    Unadvertise,
    Unsubscribe,
    Welcome,
)
from braid.routing import surroundings
from tests.broker.wire import Network, WireClient

if TYPE_CHECKING:
    from collections.abc import Iterable

    from braid.protocol import Frame

QUICK = SoftLinkSettings(fanout=6, review_us=100_000, rest_reviews=1)


class Stranger(WireClient):
    """Somebody who says that it is a broker."""

    def __init__(
        self, network: Network, name: str, broker: str, *, role: str = "broker", **hello: Any
    ) -> None:
        self._told = 0
        self._hello = {"role": role, "delta": 255, "credit": 1 << 22, **hello}
        super().__init__(network, name, broker)

    def _say(self, message: Message) -> None:
        if isinstance(message, Hello):
            role = self._hello.pop("role")
            message = Hello(PROTOCOL_VERSION, role, self.name, f"{self.name}-1", **self._hello)
        super()._say(message)

    def receive(self, frames: Iterable[Frame]) -> None:
        """Confirm whatever it is told, so that nobody waits for it."""
        super().receive(frames)
        told, self._told = self.heard[self._told :], len(self.heard)
        for message in told:
            if isinstance(message, Subscribe | Advertise | Unsubscribe | Unadvertise):
                self.channel.offer(Done(message.request))
        self.flush()


def trusted_soft_link(network: Network, name: str, broker: str, *, us: int = 10_000) -> Stranger:
    """A soft link in a broker's name that shows the word which that broker has sent ahead."""
    network.cores[broker]._mesh._words._heard[name] = "the word"
    stranger = Stranger(network, name, broker, role="soft", proofs={broker: "the word"})
    network.run(us=us)
    return stranger


class Scene:
    """Four brokers in a row that use shortcuts, an honest pair at the ends, and a stranger at B."""

    def __init__(self, strategy: str = "SB", **stranger: Any) -> None:
        self.network = Network()
        neighbours: tuple[str, ...] = ()
        for name in "ABCD":
            self.network.start(name, neighbours=neighbours, strategy=strategy, soft_links=QUICK, store=True)
            self.network.run(us=300_000)
            neighbours = (name,)
        self.reader = self.network.client("reader", "D")
        self.reader.ask(Subscribe(1, "1", "honest > 0"))
        self.writer = self.network.client("writer", "A")
        self.published = 0
        self.talk()
        self.stranger = Stranger(self.network, "Z", "B", **stranger)
        self.network.run(us=10_000)
        if stranger.get("role", "broker") == "broker" and self.stranger.open:
            self.stranger.ask(SyncBegin())
            self.stranger.ask(TablesComplete())
            self.network.run(us=300_000)

    def talk(self) -> None:
        """The honest pair talks; time passes, so that reviews take place."""
        for _ in range(5):
            self.published += 1
            self.writer.publish({"honest": self.published}, acknowledged=True)
            self.network.run(us=100_000)

    def check(self, *, closed: bool | None = None) -> None:
        """Whoever is honest is served; whether the stranger has lost its connection."""
        if not self.stranger.open:
            # What is for a neighbour that is away is kept until somebody gives it up.
            operator = self.network.client(f"operator{self.published}", "B")
            operator.ask(Ask(1, "forget", {"neighbour": "Z"}))
            self.network.run(us=100_000)
        self.talk()
        self.network.run(us=8_000_000)
        assert sorted(self.reader.values("honest")) == list(range(1, self.published + 1))
        assert self.writer.channel.idle
        for name in "ABCD":
            links = self.network.cores[name]._links.links.values()
            assert all(link.connection is not None for link in links if link.name != "Z")
        if closed is not None:
            assert self.stranger.open != closed
            if closed:
                assert [refused.code for refused in self.stranger.answers(Refused)] == ["protocol"]


@pytest.fixture(params=["S2", "SB"])
def scene(request: pytest.FixtureRequest) -> Scene:
    return Scene(request.param)


@pytest.mark.parametrize(
    "message",
    [
        LinkState(b"\xff\xff\xff\xff\xff"),
        LinkState(b"\x80"),
        LinkState(packed_destinations(range(20_000))),
        LinkState(b"", b"\x80"),
        Nearby([("a/b", "Z", "")], []),
        Nearby([("", "Z", "")], []),
        Nearby([("Y", "Z" * 65, "")], []),
        Nearby([("Y", "Z", "x" * 1000)], []),
        Nearby([(f"Y{number}", "Z", "") for number in range(20_000)], []),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_cannot_be_ends_the_connection(scene: Scene, message: Message) -> None:
    scene.stranger.ask(message)
    scene.network.run(us=100_000)
    scene.check(closed=True)


@pytest.mark.parametrize(
    "messages",
    [
        # Loops, orphans, and claims about ourselves, our neighbours and those behind them.
        [Nearby([("X", "Y", ""), ("Y", "X", ""), ("W", "W", "")], [])],
        [Nearby([("B", "Z", "Z"), ("Z", "B", "Q")], [])],
        [Nearby([("A", "Z", "Z"), ("C", "Z", "Z"), ("D", "Z", "Z")], [])],
        [Nearby([("D", "Z", "Z")], []), Nearby([], ["D", "D", "Z", "B", "nobody"])],
        [Nearby([], ["A", "B", "C", "D"])],
        # Loads that no broker has.
        [Loads([("Z", 5, -1, -100), ("A", 1, 1, 100), ("B", 2**62, -(2**62), -1), ("Y", 1, 0, 7)])],
        [Nearby([("Y", "Z", "")], []), Loads([("Y", -5, 0, -100), ("Z", -5, 0, 100)])],
        # Somebody who can reach everybody, and settles what it was never sent.
        [LinkState(packed_destinations(map(digest_of, "ABCDZ")))],
        [Settled([-1, 0, 1, 2, 2**62])],
        # Anchors that are nowhere, here, or elsewhere.
        [
            Subscribe(1, "Z/1/1", "honest > 0", anchor="nowhere", exact=True),
            Subscribe(2, "Z/1/2", "honest > 0", anchor="B", exact=True),
            Subscribe(3, "Z/1/3", "honest > 0", anchor="D", exact=True),
            Subscribe(4, "Z/1/4", "honest > 0", anchor="", exact=False),
        ],
    ],
)
def test_lies_hurt_nobody_else(scene: Scene, messages: list[Message]) -> None:
    for message in messages:
        scene.stranger.ask(message)
    scene.network.run(us=1_000_000)
    scene.check()


def test_a_broker_that_two_speak_of_is_out_of_sight_until_one_takes_it_back() -> None:
    scene = Scene("SB")
    mesh = scene.network.cores["B"]._mesh
    assert "D" in mesh._surroundings.map()
    scene.stranger.ask(Nearby([("D", "Z", "elsewhere"), ("A", "Z", "elsewhere")], []))
    scene.network.run(us=100_000)
    # A neighbour is where its link is, and has the address that it gave itself.
    assert mesh._surroundings.map().neighbours == ("A", "C", "Z")
    assert mesh._surroundings.address_of("A") == "A"
    assert "D" not in mesh._surroundings.map()
    scene.talk()
    scene.stranger.ask(Nearby([], ["D", "A"]))
    scene.network.run(us=100_000)
    assert mesh._surroundings.map().toward("D") == "C"
    scene.check()


def test_a_neighbour_that_speaks_of_ever_more_brokers_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surroundings, "BROKERS_MAX", 100)
    scene = Scene("S1")
    for number in range(50):
        scene.stranger.ask(Nearby([(f"Y{number}.{each}", "Z", "") for each in range(10)], []))
    scene.network.run(us=100_000)
    assert len(scene.network.cores["B"]._maps.surroundings.map()) <= 104
    scene.check(closed=True)


def test_a_neighbour_that_speaks_of_ever_more_links_is_stopped() -> None:
    scene = Scene("SB")
    for number in range(4):
        scene.stranger.ask(LinkState(packed_destinations(range(number * 8_000, (number + 1) * 8_000))))
    scene.network.run(us=100_000)
    scene.check(closed=True)


def test_loads_of_brokers_that_nobody_sees_are_not_remembered() -> None:
    scene = Scene("S1")
    for number in range(50):
        scene.stranger.ask(Loads([(f"Y{number}.{each}", 1, 1, 1) for each in range(100)]))
    scene.network.run(us=100_000)
    assert len(scene.network.cores["B"]._loads.known._rows) <= 5
    scene.check()


def batch(
    name: str, first: int, route: bytes, *, size: int = 0, acknowledged: bool = False
) -> PublicationBatch:
    one = PublicationBatch.of(
        name, [first], [encode_record({"n": first}, 0, b"x" * size)], acknowledged=acknowledged
    )
    return one.readdressed(route=route, further=True)


@pytest.mark.parametrize("acknowledged", [False, True])
@pytest.mark.parametrize("route", [b"\x80", b"\xff" * 6, packed_destinations(range(20_000))], ids=len)
def test_a_set_that_is_none_ends_the_connection(route: bytes, acknowledged: bool) -> None:
    scene = Scene("SB")
    scene.stranger.channel.offer(batch("Z.x", 1, route, acknowledged=acknowledged), None)
    scene.stranger.flush()
    scene.network.run(us=100_000)
    scene.check(closed=True)


@pytest.mark.parametrize("acknowledged", [False, True])
def test_a_record_that_is_none_ends_the_connection(acknowledged: bool) -> None:
    scene = Scene("SB")
    broken = PublicationBatch.of("Z.x", [1], [b"no record"], acknowledged=acknowledged)
    scene.stranger.channel.offer(broken.readdressed(further=True), None)
    scene.stranger.flush()
    scene.network.run(us=100_000)
    scene.check(closed=True)


@pytest.mark.parametrize("acknowledged", [False, True])
def test_a_copy_for_us_with_a_value_that_cannot_be_is_left_out(acknowledged: bool) -> None:
    scene = Scene("SB")
    other = scene.network.client("other", "D")
    other.ask(Subscribe(1, "1", "other > 0"))
    scene.network.run(us=100_000)
    records = [encode_record({"other": 2**64 - 1}, 0), encode_record({"other": 7}, 0)]
    broken = PublicationBatch.of("Z.x", [1, 2], records, acknowledged=acknowledged)
    for route in ("B", "D"):
        there = broken.readdressed(further=True, route=packed_destinations([digest_of(route)]))
        scene.stranger.channel.offer(there, "care" if acknowledged else None)
    scene.stranger.flush()
    scene.network.run(us=1_000_000)
    scene.check()
    assert other.values("other") == [7]


@pytest.mark.parametrize("before", ["A", "B", "C", "D", "Z", "X"])
@pytest.mark.parametrize("acknowledged", [False, True])
def test_a_copy_for_somebody_who_is_not_there(before: str, acknowledged: bool) -> None:
    """The stranger says that X is behind somebody, and then has something for it."""
    scene = Scene("SB")
    scene.stranger.ask(Nearby([("X", before, ""), ("Y", "X", "")], []))
    route = packed_destinations(map(digest_of, ["X", "Y", "D"]))
    one = batch("Z.x", 1, route, acknowledged=acknowledged)
    scene.stranger.channel.offer(one, "care" if acknowledged else None)
    scene.stranger.ask(Subscribe(1, "X/1/1", "honest > 0", anchor="X", exact=True))
    scene.network.run(us=100_000)
    scene.check()


def test_the_splits_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegations, "REMEMBERED_BYTES_MAX", 50_000)
    scene = Scene("SB")
    mesh = scene.network.cores["B"]._mesh
    for number in range(200):
        route = packed_destinations(range(number, number + 1000))
        scene.stranger.channel.offer(batch("Z.x", number + 1, route), None)
        scene.stranger.flush()
        scene.network.run()
        assert sum(len(known) for known, _ in mesh.delegations._remembered) <= 50_000
    scene.check()


@pytest.mark.parametrize("acknowledged", [False, True])
def test_what_is_out_of_sight_is_bounded(monkeypatch: pytest.MonkeyPatch, acknowledged: bool) -> None:
    monkeypatch.setattr(delegated_copies, "OUT_OF_SIGHT_BYTES_MAX", 100_000)
    scene = Scene("SB")
    nobody = packed_destinations([digest_of("nobody")])
    for number in range(300):
        one = batch("Z.x", number + 1, nobody, size=50_000, acknowledged=acknowledged)
        scene.stranger.channel.offer(one, "care" if acknowledged else None)
        scene.stranger.flush()
        scene.network.run()
    delegated = scene.network.cores["B"]._delegated
    # What it may send without further credit comes on top.
    window_bytes = scene.network.cores["B"].settings.link.window_bytes
    assert delegated._out_of_sight_bytes <= 100_000 + window_bytes + 60_000
    # After a while it is certain that there is no such broker, and it can go on.
    scene.network.run(us=60_000_000)
    assert not delegated._out_of_sight
    scene.check()


def test_a_client_has_no_say_in_the_ways_of_brokers() -> None:
    scene = Scene("SB")
    for message in (Nearby([("Y", "A", "")], []), Loads([("A", 1, 1, 1)]), Reach(["Y"])):
        eve = scene.network.client("eve", "A")
        eve.ask(message)
        scene.network.run(us=10_000)
        assert not eve.open
    eve = scene.network.client("eve", "A")
    eve.channel.offer(batch("eve", 1, packed_destinations([digest_of("D")])), None)
    eve.flush()
    scene.network.run(us=10_000)
    assert not eve.open
    # These mean nothing from a client.
    eve = scene.network.client("eve", "A")
    eve.ask(Settled([1, 2, 3]))
    eve.ask(LinkState(b"\xff"))
    scene.network.run(us=10_000)
    scene.check()


@pytest.mark.parametrize("name", ["stranger", "B", "a/b", ""])
def test_a_soft_link_from_out_of_sight_is_refused(name: str) -> None:
    scene = Scene("SB")
    stranger = Stranger(scene.network, name, "B", role="soft")
    scene.network.run(us=10_000)
    assert not stranger.open
    assert name not in scene.network.cores["B"]._mesh.incoming
    scene.check()


@pytest.mark.parametrize("strategy", ["S1", "S2", "SH", "SB"])
@pytest.mark.parametrize("word", ["", "guessed"])
def test_a_stranger_in_the_name_of_a_broker_far_away_gets_nothing(strategy: str, word: str) -> None:
    scene = Scene(strategy)
    thief = Stranger(scene.network, "D", "A", role="soft", proofs={"A": word} if word else {})
    scene.network.run(us=10_000)
    # A neighbour that D is not behind speaks for it.
    scene.stranger._say(SoftWord("D", "A", word))
    scene.network.run(us=10_000)
    assert not thief.answers(Welcome)
    scene.check()
    assert not thief.publications


def test_a_soft_link_may_come_before_its_word(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network()
    for name, neighbours in {"A": (), "B": ("A",), "C": ("B",)}.items():
        network.start(name, neighbours=neighbours, strategy="SB", soft_links=QUICK)
    network.run(us=1_000_000)
    late: list[SoftWord] = []
    monkeypatch.setattr(network.cores["B"]._mesh._words, "hear", lambda link, message: late.append(message))
    network.cores["A"]._mesh._follow(frozenset({"C"}))
    network.run(us=10_000)
    assert late
    assert "C" not in network.cores["A"]._mesh.outgoing
    monkeypatch.undo()
    words = network.cores["B"]._mesh._words
    words.hear(network.cores["B"]._links.links["A"], late[0])
    network.run(us=10_000)
    assert "C" in network.cores["A"]._mesh.outgoing
    assert "A" in network.cores["C"]._mesh.incoming


@pytest.mark.parametrize(
    "message",
    [
        Nearby([("Y", "D", "")], []),
        Loads([("D", 1, 1, 1)]),
        Subscribe(1, "D/9/9", "TRUE"),
        SyncBegin(),
        TablesComplete(),
        Reach(["Y"]),
        Done(1),
        Ask(1, "overlay"),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_soft_link_is_for_publications_only(message: Message) -> None:
    scene = Scene("SB")
    soft = trusted_soft_link(scene.network, "D", "A")
    assert soft.answers(Welcome)
    soft.ask(message)
    scene.network.run(us=10_000)
    assert not soft.open
    scene.check()


@pytest.mark.parametrize("delta", [-5, 0, 1, 2**62])
@pytest.mark.parametrize("credit", [-1, 0, 2**62])
def test_a_neighbour_may_wish_for_anything(delta: int, credit: int) -> None:
    scene = Scene("SB", delta=delta, credit=credit)
    scene.stranger.ask(Subscribe(1, "Z/1/1", "honest > 0"))
    scene.network.run(us=100_000)
    scene.network.leave(scene.stranger)
    scene.network.run(us=100_000)
    scene.check()

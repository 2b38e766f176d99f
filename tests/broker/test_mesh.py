"""Do soft links come, go and change without anything being lost, and do strategies do what they say?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from braid.adaptation import SoftLinkSettings
from braid.protocol import Frame, PublicationBatch
from braid.protocol.effects import Dial, Send
from braid.protocol.inputs import Closed, Opened, Received, Tick
from braid.protocol.messages import (
    PROTOCOL_VERSION,
    Advertise,
    Ask,
    Done,
    Hello,
    Refused,
    Subscribe,
    Welcome,
)
from tests.broker.wire import Network, WireClient

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Figure 2 of the multipath paper.
FIGURE_2: dict[str, tuple[str, ...]] = {
    "A": (),
    "N1": ("A",),
    "N2": ("N1",),
    "N3": ("N2",),
    "N4": ("N2",),
    "N5": ("N4",),
    "N6": ("N4",),
}


def mesh_of(
    tree: Mapping[str, tuple[str, ...]], *, review_us: int = 600_000_000, fanout: int = 16, **settings: Any
) -> Network:
    """A network that reviews its soft links so often; never, if nothing is said."""
    network = Network()
    soft_links = SoftLinkSettings(fanout=fanout, review_us=review_us, rest_reviews=1)
    for name, neighbours in tree.items():
        network.start(name, neighbours=neighbours, **{"soft_links": soft_links, "strategy": "S1", **settings})
        network.run(us=300_000)
    network.run(us=500_000)
    return network


def follow(network: Network, broker: str, *others: str) -> None:
    """Have soft links as if a review had chosen them."""
    network.cores[broker]._mesh._follow(frozenset(others))
    network.run(us=100_000)
    assert sorted(network.cores[broker]._mesh.outgoing) == sorted(others)


def subscribed(network: Network, name: str, broker: str, text: str) -> WireClient:
    client = network.client(name, broker)
    client.ask(Subscribe(1, "1", text))
    network.run(us=100_000)
    return client


class Copies:
    """Counts who sends publications to whom."""

    def __init__(self, network: Network) -> None:
        self.sent: list[tuple[str, str]] = []
        self._network = network
        network.on_frames = self._crossed

    def _crossed(self, source: str, target: str, frames: Sequence[Frame]) -> None:
        if target in self._network.settings:
            self.sent += [(source, target) for frame in frames if isinstance(frame.body, PublicationBatch)]

    def of(self, client: WireClient, *attributes: dict[str, Any], **how: Any) -> list[tuple[str, str]]:
        self.sent = []
        client.publish(*attributes, **how)
        self._network.run(us=50_000)
        return sorted(self.sent)


def figure_2(strategy: str, **settings: Any) -> tuple[Network, WireClient, list[WireClient]]:
    network = mesh_of(FIGURE_2, strategy=strategy, **settings)
    readers = [subscribed(network, f"s{number}", f"N{number}", "price > 0") for number in (3, 5, 6)]
    writer = network.client("writer", "A")
    writer.publish({"price": 0})
    network.run(us=200_000)
    return network, writer, readers


@pytest.mark.parametrize(
    ("strategy", "to"),
    [("S0", ["N1"]), ("S1", ["N2"]), ("S2", ["N3", "N5", "N6"]), ("SH", ["N3", "N5", "N6"])],
)
@pytest.mark.parametrize("acknowledged", [False, True])
@pytest.mark.parametrize("rows", [1, 3])
def test_copies_of_figure_2(strategy: str, to: list[str], acknowledged: bool, rows: int) -> None:
    network, writer, readers = figure_2(strategy, delta=4)
    if strategy != "S0":
        follow(network, "A", "N2", "N3", "N5", "N6")
    sent = Copies(network).of(writer, *[{"price": 1}] * rows, acknowledged=acknowledged)
    assert [target for source, target in sent if source == "A"] == to
    assert len(sent) == len(set(sent))
    assert [len(reader.publications) for reader in readers] == [rows] * 3
    assert writer.channel.idle


@pytest.mark.parametrize("strategy", ["S1", "S2", "SH", "SB"])
@pytest.mark.parametrize("acknowledged", [False, True])
def test_ordered_publications_keep_to_the_tree(strategy: str, acknowledged: bool) -> None:
    network, writer, readers = figure_2(strategy)
    follow(network, "A", "N2", "N3", "N5", "N6")
    sent = Copies(network).of(writer, {"price": 1}, ordered=True, acknowledged=acknowledged)
    assert sent == sorted((before[0], name) for name, before in FIGURE_2.items() if before)
    assert [len(reader.publications) for reader in readers] == [1] * 3


def test_the_hybrid_saves_copies_while_the_uplink_is_busy() -> None:
    network, writer, _ = figure_2("SH", uplink_messages_per_s=100.0, uplink_threshold=0.8)
    follow(network, "A", "N2", "N3", "N5", "N6")
    copies, uplink = Copies(network), network.cores["A"]._loads.uplink
    assert [target for source, target in copies.of(writer, {"price": 1}) if source == "A"] == [
        "N3",
        "N5",
        "N6",
    ]
    for _ in range(50):
        copies.of(writer, *[{"price": 1}] * 5)
    assert uplink.saving
    assert [target for source, target in copies.of(writer, {"price": 1}) if source == "A"] == ["N2"]
    # Between 0.7 and 0.8 of the uplink nothing changes, however often it is measured.
    switches = uplink.switches
    for _ in range(400):
        writer.publish({"price": 1})
        network.run(us=13_000)
    assert 70.0 < uplink.rate < 80.0
    assert uplink.saving
    assert uplink.switches == switches
    network.run(us=5_000_000)
    assert not uplink.saving
    assert [target for source, target in copies.of(writer, {"price": 1}) if source == "A"] == [
        "N3",
        "N5",
        "N6",
    ]


def test_a_strategy_changes_while_publications_flow() -> None:
    network, writer, readers = figure_2("S1", delta=255, review_us=150_000, fanout=5)
    operators = {name: network.client(f"operator-{name}", name) for name in FIGURE_2}
    count = 0
    for number, strategy in enumerate(["S2", "SB", "S0", "SH", "S1", "SB", "S2", "S0", "S1"]):
        for place, (_, operator) in enumerate(sorted(operators.items())):
            if (place + number) % 3:
                operator.ask(Ask(number + 1, "strategy", {"strategy": strategy}))
            for _ in range(3):
                count += 1
                writer.publish({"price": count}, acknowledged=count % 2 == 0)
            network.run(us=40_000)
    network.run(us=2_000_000)
    for reader in readers:
        assert sorted(reader.values("price")) == list(range(1, count + 1))
    assert writer.channel.idle


def test_a_change_between_like_strategies_keeps_the_soft_links() -> None:
    network, writer, _ = figure_2("S1", review_us=300_000, fanout=4)
    for number in range(20):
        writer.publish({"price": 1 + number})
        network.run(us=100_000)
    mesh = network.cores["A"]._mesh
    before = set(mesh.outgoing)
    assert before
    writer.ask(Ask(9, "strategy", {"strategy": "SH"}))
    for _ in range(5):
        writer.publish({"price": 1})
        network.run(us=100_000)
    assert before & set(mesh.outgoing)


@pytest.mark.parametrize("strategy", ["S1", "S2", "SH", "SB"])
@pytest.mark.parametrize("acknowledged", [False, True])
def test_a_soft_link_that_breaks_loses_nothing(strategy: str, acknowledged: bool) -> None:
    """Whatever is under way when it breaks."""
    network, writer, readers = figure_2(strategy)
    for number in range(1, 31):
        if number % 5 == 1:
            follow(network, "A", "N2", "N3", "N5", "N6")
        writer.publish({"price": number}, acknowledged=acknowledged)
        for _ in range(number % 4):
            if network._queue:
                network.step()
        if number % 5 == 0:
            for other in ("N2", "N3", "N5", "N6"):
                network.cut("A", other)
            network.run(us=10_000)
    network.run(us=3_000_000)
    for reader in readers:
        assert sorted(reader.values("price")) == list(range(1, 31))
    assert writer.channel.idle


@pytest.mark.parametrize("strategy", ["S0", "S1", "SB"])
def test_what_waits_for_a_neighbour_that_is_given_up_is_routed_without_it(strategy: str) -> None:
    """A publication that waits for a neighbour's confirmation is let go while the link is being dropped."""
    network = mesh_of({"A": (), "B": ("A",)}, strategy=strategy)
    subscribed(network, "reader", "B", "TRUE")
    here = subscribed(network, "here", "A", "TRUE")
    writer = network.client("writer", "A")
    writer.ask(Advertise(1, "1", "price > 5"))
    network.run(us=100_000)
    network.kill("B")
    network.run(us=100_000)
    writer.publish({"price": 1}, {"price": 7}, acknowledged=True)
    network.run(us=100_000)
    operator = network.client("operator", "A")
    operator.ask(Ask(1, "forget", {"neighbour": "B"}))
    network.run(us=100_000)
    assert operator.answers(Done)
    assert here.values("price") == [1, 7]
    assert writer.channel.idle


def test_a_candidate_becomes_a_neighbour() -> None:
    network = mesh_of({"A": (), "B": ("A",)}, review_us=2_000_000)
    network.start("X", strategy="S1")
    network.run(us=300_000)
    operator = network.client("operator", "X")
    operator.ask(Ask(1, "append", {"to": "B"}))
    network.run(us=100_000)
    mesh = network.cores["A"]._mesh
    while "X" not in mesh._candidates:
        network.run(us=50_000)
        assert network.now_us < 20_000_000
    operator.ask(Ask(2, "detach"))
    network.run(us=1_000)
    operator.ask(Ask(3, "append", {"to": "A"}))
    network.run(us=500_000)
    assert mesh._surroundings.map().neighbours == ("B", "X")
    reader = subscribed(network, "reader", "X", "price > 0")
    network.client("writer", "B").publish({"price": 1})
    network.run(us=500_000)
    assert reader.values("price") == [1]


def test_a_soft_link_whose_other_end_becomes_a_neighbour_is_given_up() -> None:
    network = mesh_of({"A": (), "B": ("A",)})
    network.start("X", strategy="S1")
    network.run(us=300_000)
    operator = network.client("operator", "X")
    operator.ask(Ask(1, "append", {"to": "B"}))
    network.run(us=300_000)
    follow(network, "A", "X")
    operator.ask(Ask(2, "detach"))
    operator.ask(Ask(3, "append", {"to": "A"}))
    network.run(us=500_000)
    assert not network.cores["A"]._mesh.outgoing
    reader = subscribed(network, "reader", "X", "price > 0")
    writer = network.client("writer", "B")
    writer.publish({"price": 1}, acknowledged=True)
    network.run(us=500_000)
    assert reader.values("price") == [1]
    assert writer.channel.idle


def test_what_was_dialled_as_a_soft_link_stays_one() -> None:
    """The attempt is given up before the connection is there; it must not become a primary link."""
    network = mesh_of({"A": (), "B": ("A",), "C": ("B",)})
    mesh = network.cores["A"]._mesh
    mesh._follow(frozenset({"C"}))
    hellos: list[str] = []

    def crossed(source: str, target: str, frames: Sequence[Frame]) -> None:
        for frame in frames:
            if isinstance(frame.body, Hello):
                hellos.append(frame.body.role)
                mesh.not_to_be("C")

    network.on_frames = crossed
    network.run(us=500_000)
    assert hellos == ["soft"]
    assert not mesh.outgoing
    assert set(network.cores["C"]._links.links) == {"B"}


def test_the_late_end_of_an_attempt_leaves_the_next_one_alone() -> None:
    """A connection that was refused ends when the same broker has been dialled again."""
    network = mesh_of({"A": (), "B": ("A",), "C": ("B",)})
    core = network.cores["A"]

    def dialled() -> list[Dial]:
        core._mesh._follow(frozenset({"C"}))
        effects = core.handle(Tick(), network.now_us)
        return [effect for effect in effects if isinstance(effect, Dial)]

    def hello_on(connection: int) -> Hello:
        (sent,) = core.handle(Opened(connection, "C", "C", soft=True), network.now_us)
        assert isinstance(sent, Send)
        (frame,) = sent.frames
        assert isinstance(frame.body, Hello)
        return frame.body

    assert dialled() == [Dial("C", soft=True)]
    assert hello_on(901).role == "soft"
    core.handle(Received(901, [Frame(0, Refused("sight", "A is not in sight from here"))]), network.now_us)
    assert dialled() == [Dial("C", soft=True)]
    core.handle(Closed(901, "closed", "C", soft=True), network.now_us)
    assert hello_on(902).role == "soft"
    welcome = Welcome(PROTOCOL_VERSION, "C", "life", credit=1 << 20)
    core.handle(Received(902, [Frame(0, welcome)]), network.now_us)
    assert set(core._mesh.outgoing) == {"C"}


def delayed(network: Network, source: str, target: str) -> list[tuple[str, Any, Any]]:
    """From now on keep what one broker sends to another by a primary link; let go with `deliver`."""
    kept: list[tuple[str, Any, Any]] = []
    perform = network._perform

    def slow(name: str, core: Any, effect: Any) -> None:
        if isinstance(effect, Send) and name == source:
            other = network._ends.get((name, effect.connection))
            if isinstance(other, tuple) and other[0] == target:
                kept.append((name, core, effect))
                return
        perform(name, core, effect)

    network._perform = slow  # type: ignore[method-assign]
    return kept


def deliver(network: Network, kept: list[tuple[str, Any, Any]]) -> None:
    del network.__dict__["_perform"]
    for name, core, effect in kept:
        network._perform(name, core, effect)


@pytest.mark.parametrize(
    "overtaken",
    [
        500,
        2_000,
    ],
)
def test_a_publication_that_many_others_overtake_arrives(overtaken: int) -> None:
    network = mesh_of({"A": (), "N1": ("A",), "N2": ("N1",), "N3": ("N2",), "N4": ("N2",)})
    reader = subscribed(network, "s3", "N3", "three > 0")
    subscribed(network, "s4", "N4", "four > 0")
    writer = network.client("writer", "A")
    writer.publish({"three": 0, "four": 0})
    network.run(us=100_000)
    follow(network, "A", "N2", "N3")
    # For both: to N2, and from there by a slow link. The others go straight to N3.
    kept = delayed(network, "N2", "N3")
    writer.publish({"three": 1, "four": 1}, acknowledged=True)
    network.run(us=10_000)
    for _ in range(overtaken // 100):
        writer.publish(*[{"three": 1, "four": 0}] * 100)
        network.run(us=1_000)
    assert len(reader.publications) == overtaken
    assert not writer.channel.idle
    deliver(network, kept)
    network.run(us=1_000_000)
    assert writer.channel.idle
    assert len(reader.publications) == overtaken + 1

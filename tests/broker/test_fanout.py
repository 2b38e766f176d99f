"""Is `fanout` a bound on all links of a broker, whoever opened them?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from braid.broker.access_review import NOBODY
from braid.protocol.effects import Dial
from braid.protocol.inputs import Tick
from braid.protocol.messages import (
    PROTOCOL_VERSION,
    Ask,
    Hello,
    Nearby,
    Refused,
    SyncBegin,
    TablesComplete,
    Welcome,
)
from tests.broker.test_mesh import Copies, follow, mesh_of, subscribed
from tests.broker.test_mesh_hostile import Stranger, trusted_soft_link

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.protocol import Frame
    from tests.broker.wire import Network

# Seven brokers around a hub, each with one primary link.
STAR: dict[str, tuple[str, ...]] = {"H": (), **{f"X{number}": ("H",) for number in range(1, 8)}}
LINE: dict[str, tuple[str, ...]] = {"A": (), "B": ("A",), "C": ("B",), "D": ("C",)}


def links_of(network: Network, broker: str) -> int:
    """All links that a broker has, as its operator sees them."""
    statistics = network.cores[broker].statistics()
    mesh = statistics["mesh"]
    return len(statistics["routing"]["links"]) + len(mesh["soft_links"]) + len(mesh["soft_links_from"])


def test_a_full_broker_refuses_the_links_of_others() -> None:
    network = mesh_of(STAR, fanout=3, strategy="SB")
    refused: list[tuple[str, str]] = []

    def crossed(source: str, target: str, frames: Sequence[Frame]) -> None:
        refused.extend((source, frame.body.code) for frame in frames if isinstance(frame.body, Refused))

    network.on_frames = crossed
    for number in range(2, 8):
        network.cores[f"X{number}"]._mesh._follow(frozenset({"X1"}))
        network.run(us=100_000)
    assert links_of(network, "X1") == 3
    assert refused == [("X1", "full")] * 4
    assert all(links_of(network, name) <= 3 for name in STAR if name != "H")


def test_whoever_is_refused_tries_its_next_candidate() -> None:
    network = mesh_of(STAR, fanout=3, strategy="SB")
    follow(network, "X2", "X1")
    follow(network, "X3", "X1")
    mesh = network.cores["X4"]._mesh
    for broker, publications in {"X1": 9, "X2": 5, "X3": 3}.items():
        mesh.sent(broker, publications)
    mesh.review_at_us = network.now_us
    network.run(us=1_000_000)
    assert sorted(mesh.outgoing) == ["X2", "X3"]
    # It is not asked again for a while.
    asked: list[str] = []
    network.on_frames = lambda source, target, frames: asked.extend(
        target for frame in frames if isinstance(frame.body, Hello)
    )
    mesh.sent("X1", 9)
    mesh.review_at_us = network.now_us
    network.run(us=1_000_000)
    assert "X1" not in asked


def test_a_refusal_never_makes_a_broker_ask_all_the_others_at_once() -> None:
    """With as many brokers as one likes, a review asks a bounded number of them."""
    crowd: dict[str, tuple[str, ...]] = {"H": (), **{f"X{number:02d}": ("H",) for number in range(40)}}
    network = mesh_of(crowd, fanout=2, strategy="SB")
    for number in range(2, 40, 2):
        follow(network, f"X{number:02d}", f"X{number + 1:02d}")
    asked: list[str] = []
    network.on_frames = lambda source, target, frames: asked.extend(
        target for frame in frames if isinstance(frame.body, Hello)
    )
    mesh = network.cores["X00"]._mesh
    for number in range(2, 40):
        mesh.sent(f"X{number:02d}", 5)
    mesh.review_at_us = network.now_us
    network.run(us=2_000_000)
    assert 0 < len(asked) <= 16
    assert not mesh.outgoing


def test_links_that_are_being_dialled_count() -> None:
    network = mesh_of(STAR, fanout=3, strategy="SB")
    core = network.cores["X1"]
    core._mesh._follow(frozenset({"X2", "X3", "X4", "X5"}))
    effects = core.handle(Tick(), network.now_us)
    assert [effect for effect in effects if isinstance(effect, Dial)] == [
        Dial("X2", soft=True),
        Dial("X3", soft=True),
    ]
    # Nor is there room for others meanwhile.
    stranger = trusted_soft_link(network, "X6", "X1", us=1)
    assert [refused.code for refused in stranger.answers(Refused)] == ["full"]


@pytest.mark.parametrize("strategy", ["S2", "SB"])
def test_a_primary_link_takes_the_place_of_a_soft_link(strategy: str) -> None:
    network = mesh_of(LINE, fanout=3, strategy=strategy, delta=4 if strategy == "S2" else 0)
    follow(network, "A", "C", "D")
    assert links_of(network, "A") == 3
    reader = subscribed(network, "reader", "D", "price > 0")
    writer = network.client("writer", "A")
    writer.publish({"price": 1}, acknowledged=True)
    network.run(us=200_000)
    mesh = network.cores["A"]._mesh
    mesh.sent("D", 50)
    counts: list[int] = []
    network.on_frames = lambda source, target, frames: counts.append(links_of(network, "A"))
    network.start("E", neighbours=("A",), strategy=strategy)
    network.run(us=500_000)
    assert max(counts) == 3
    # The one that was of use stays.
    assert sorted(network.cores["A"]._links.links) == ["B", "E"]
    assert sorted(mesh.outgoing) == ["D"]
    writer.publish({"price": 2}, acknowledged=True)
    network.run(us=500_000)
    assert reader.values("price") == [1, 2]
    assert writer.channel.idle


def test_primary_links_are_always_possible() -> None:
    network = mesh_of(STAR, fanout=2, strategy="SB")
    assert links_of(network, "H") == 7
    stranger = trusted_soft_link(network, "X1", "H", us=1)
    network.run(us=1)
    assert [refused.code for refused in stranger.answers(Refused)] == ["full"]


def test_two_that_dial_each_other_end_with_one_link() -> None:
    network = mesh_of(LINE, fanout=4, strategy="SB")
    network.cores["A"]._mesh._follow(frozenset({"D"}))
    network.cores["D"]._mesh._follow(frozenset({"A"}))
    network.run(us=500_000)
    assert links_of(network, "A") == links_of(network, "D") == 2
    assert sorted(network.cores["A"]._mesh.outgoing) == ["D"]
    assert sorted(network.cores["D"]._mesh.incoming) == ["A"]
    # It was no failure: neither end counts the other as one that cannot be asked.
    reader = subscribed(network, "reader", "A", "price > 0")
    copies = Copies(network)
    writer = network.client("writer", "D")
    writer.publish({"price": 0})
    network.run(us=200_000)
    assert copies.of(writer, {"price": 1}) == [("D", "A")]
    assert reader.values("price") == [1]


@pytest.mark.parametrize("strategy", ["S1", "S2", "SH", "SB"])
@pytest.mark.parametrize("acknowledged", [False, True])
def test_a_soft_link_serves_both_ends(strategy: str, acknowledged: bool) -> None:
    network = mesh_of(LINE, strategy=strategy)
    readers = {name: subscribed(network, f"reader-{name}", name, "price > 0") for name in "AD"}
    writers = {name: network.client(f"writer-{name}", name) for name in "AD"}
    for writer in writers.values():
        writer.publish({"price": 0})
    network.run(us=300_000)
    follow(network, "A", "D")
    network.run(us=1_000_000)
    copies = Copies(network)
    assert copies.of(writers["A"], {"price": 1}, acknowledged=acknowledged) == [("A", "D")]
    assert copies.of(writers["D"], {"price": 2}, acknowledged=acknowledged) == [("D", "A")]
    # When it breaks, nothing of either end is lost, and nothing comes twice.
    for number in range(3, 23):
        writers["AD"[number % 2]].publish({"price": number}, acknowledged=acknowledged)
        if number == 12:
            network.cut("A", "D")
    network.run(us=3_000_000)
    for reader in readers.values():
        assert sorted(reader.values("price")) == list(range(1, 23))
    assert all(writer.channel.idle for writer in writers.values())


def test_a_soft_link_that_its_owner_retires_loses_nothing_of_the_other_end() -> None:
    network = mesh_of(LINE, strategy="SB", heartbeat_us=200_000)
    reader = subscribed(network, "reader", "A", "price > 0")
    writer = network.client("writer", "D")
    writer.publish({"price": 0})
    network.run(us=150_000)
    owner = network.cores["A"]._mesh
    for number in range(1, 41):
        if number % 8 == 1:
            follow(network, "A", "D")
        writer.publish({"price": number}, acknowledged=number % 2 == 0)
        if number % 8 == 5:
            owner._follow(frozenset())
        network.run(us=30_000)
    network.run(us=3_000_000)
    assert sorted(reader.values("price")) == list(range(1, 41))
    assert writer.channel.idle


def test_the_operator_sees_how_many_links_there_may_be() -> None:
    network = mesh_of(LINE, fanout=3)
    follow(network, "A", "C")
    operator = network.client("operator", "C")
    operator.ask(Ask(1, "overlay"))
    network.run(us=100_000)
    mesh = network.cores["C"].statistics()["mesh"]
    assert (mesh["links_in_all"], mesh["fanout"]) == (3, 3)
    assert network.cores["A"].statistics()["mesh"]["links_in_all"] == 2


def test_a_welcome_that_comes_too_late_is_no_link() -> None:
    """A primary link has taken the place while the connection was being made."""
    network = mesh_of(LINE, fanout=2, strategy="SB")
    core = network.cores["A"]
    core._mesh._follow(frozenset({"D"}))
    counts: list[int] = []

    def crossed(source: str, target: str, frames: Sequence[Frame]) -> None:
        if any(isinstance(frame.body, Welcome) for frame in frames) and (source, target) == ("D", "A"):
            hello = Hello(PROTOCOL_VERSION, "broker", "E", "E-1", credit=1 << 20, delta=255)
            core._links.accept(1_000_000, hello, NOBODY, {})
        counts.append(links_of(network, "A"))

    network.on_frames = crossed
    network.run(us=500_000)
    assert max(counts) == 2
    assert sorted(core._links.links) == ["B", "E"]


def test_brokers_without_an_address_cost_no_more_than_others() -> None:
    """However many there are: one that cannot be dialled is followed by the next, within bounds."""
    network = mesh_of(LINE, fanout=4, strategy="SB")
    places = [(f"Y{number:04d}", "Z", "") for number in range(3_000)]
    stranger = Stranger(network, "Z", "A")
    network.run(us=10_000)
    stranger.ask(SyncBegin())
    stranger.ask(Nearby(places, []))
    stranger.ask(TablesComplete())
    network.run(us=500_000)
    mesh = network.cores["A"]._mesh
    assert "Y2999" in mesh._surroundings.map()
    for broker, *_ in places:
        mesh.sent(broker, 5)
    mesh.review_at_us = network.now_us
    network.run(us=500_000)
    assert stranger.open
    assert links_of(network, "A") <= 4


def test_a_link_that_takes_the_place_of_another_leaves_no_room_for_a_third() -> None:
    """Two brokers open one to each other: while one connection takes over, nothing else is dialled."""
    network = mesh_of(STAR, fanout=2, strategy="SB")
    follow(network, "X1", "X2")
    core = network.cores["X1"]
    core._mesh._wanted = frozenset({"X2", "X3"})
    trusted_soft_link(network, "X2", "X1")
    assert "X2" in core._mesh.incoming
    assert not core._soft.dialling
    assert core._soft.held == 2

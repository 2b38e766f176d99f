"""A connection between brokers on which nothing moves is made anew, although both ends are there.

What waited on a soft link goes another way, what waited on a link of the tree is kept, and nobody hears that
it is settled before it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from braid.adaptation import SoftLinkSettings
from braid.protocol import ChannelSettings
from braid.protocol.messages import Acknowledgement, Subscribe
from tests.broker.wire import Network

if TYPE_CHECKING:
    from collections.abc import Callable

    from braid.protocol import Frame
    from tests.broker.wire import WireClient

STALL_US = 4_000_000
LATER_US = STALL_US + 2_000_000
SMALL = ChannelSettings(window_bytes=4_000)


def scene(names: str = "AB", **settings: Any) -> tuple[Network, WireClient, WireClient]:
    """Brokers in a row, a writer at the first and a reader at the last."""
    network = Network()
    for place, name in enumerate(names):
        neighbours = (names[place - 1],) if place else ()
        network.start(name, neighbours=neighbours, stall_us_max=STALL_US, flooding=True, **settings)
        network.run(us=300_000)
    reader = network.client("reader", names[-1])
    reader.ask(Subscribe(1, "1", "n > 0"))
    writer = network.client("writer", names[0])
    writer.publish({"n": 1}, acknowledged=True)
    network.run(us=1_000_000)
    assert reader.values("n") == writer.cares == [1]
    return network, reader, writer


def without(source: str, target: str) -> Callable[[str, str, Frame], Frame | None]:
    """Acknowledgements from one broker to another are lost."""

    def changed(sender: str, receiver: str, frame: Frame) -> Frame | None:
        lost = (sender, receiver) == (source, target) and isinstance(frame.body, Acknowledgement)
        return None if lost else frame

    return changed


def stingy(source: str, target: str, credit: int) -> Callable[[str, str, Frame], Frame | None]:
    """One broker grants another no more credit than this, and does not say that it means to."""

    def changed(sender: str, receiver: str, frame: Frame) -> Frame | None:
        body = frame.body
        if (sender, receiver) == (source, target) and isinstance(body, Acknowledgement):
            return frame._replace(body=Acknowledgement(body.received, body.settled, credit))
        return frame

    return changed


def stalled(network: Network, name: str = "A") -> int:
    return int(network.cores[name].statistics()["counters"]["stalled"])


def notes(network: Network, what: str) -> list[dict[str, Any]]:
    return [note.fields for name, note in network.notes if name == "A" and note.what == what]


def test_a_neighbour_that_acknowledges_nothing_is_met_anew() -> None:
    network, reader, writer = scene()
    before = network.cores["A"]._links.links["B"].connection
    network.change = without("B", "A")
    for number in range(2, 6):
        writer.publish({"n": number}, acknowledged=True)
    network.run(us=STALL_US // 2)
    assert network.cores["A"]._links.links["B"].connection == before
    assert writer.cares == [1]
    network.run(us=LATER_US)
    after = network.cores["A"]._links.links["B"].connection
    assert after not in (None, before), "it was given up and dialled again"
    assert stalled(network) >= 1
    (first, *_) = notes(network, "nothing moves on a link")
    assert first["neighbour"] == "B"
    network.change = None
    network.run(us=LATER_US)
    assert reader.values("n") == [1, 2, 3, 4, 5]
    assert writer.cares == [1, 2, 3, 4, 5]
    given_up = stalled(network)
    network.run(us=3 * STALL_US)
    assert stalled(network) == given_up, "a link that moves, or has nothing to move, stays"


@pytest.mark.parametrize("acknowledged", [False, True], ids=["fast", "acknowledged"])
def test_a_neighbour_that_grants_no_credit_is_met_anew_and_nothing_is_lost(acknowledged: bool) -> None:
    network, reader, writer = scene(link=SMALL)
    link = network.cores["A"]._links.links["B"]
    before = link.connection
    network.change = stingy("B", "A", link.channel.credit)
    for number in range(2, 12):
        writer.publish({"n": number, "pad": "x" * 1_000}, acknowledged=acknowledged)
    network.run(us=STALL_US // 2)
    arrived = reader.values("n")
    assert link.channel.waiting_bytes
    network.run(us=LATER_US)
    assert link.connection not in (None, before)
    assert stalled(network) >= 1
    assert reader.values("n") == arrived
    assert writer.cares == (arrived if acknowledged else [1])
    network.change = None
    network.run(us=LATER_US)
    assert reader.values("n") == list(range(1, 12))
    assert writer.cares == (list(range(1, 12)) if acknowledged else [1])


def test_a_neighbour_that_is_held_up_itself_is_left_alone() -> None:
    """It says so; what is further on may be away for hours."""
    network, _, writer = scene("ABC", link=SMALL, link_queue_bytes_max=8_000)
    network.kill("C")
    link = network.cores["A"]._links.links["B"]
    before = link.connection
    for number in range(2, 40):
        writer.publish({"n": number, "pad": "x" * 1_000}, acknowledged=True)
    network.run(us=1_000_000)
    assert link.channel.waiting_bytes
    network.run(us=5 * STALL_US)
    assert link.connection == before
    assert stalled(network) == 0
    waits = notes(network, "a neighbour keeps us waiting")
    assert 2 <= len(waits) <= 6, "an operator hears of it now and then"
    assert waits[0]["neighbour"] == "B"
    assert waits[0]["waiting_bytes"]


def test_what_waits_on_a_soft_link_goes_along_the_tree() -> None:
    quiet = SoftLinkSettings(fanout=6, review_us=600_000_000, rest_reviews=1)
    network, reader, writer = scene("ABC", strategy="SB", soft_links=quiet, link=SMALL)
    network.cores["A"]._mesh._follow(frozenset({"C"}))
    network.run(us=1_000_000)
    soft = network.cores["A"]._mesh.outgoing["C"]
    network.change = without("C", "A")
    for number in range(2, 12):
        writer.publish({"n": number, "pad": "x" * 1_000}, acknowledged=True)
    network.run(us=STALL_US // 2)
    assert soft.channel.waiting_bytes
    assert len(reader.values("n")) < 11
    network.run(us=LATER_US)
    assert soft.connection is None
    assert stalled(network) == 1
    assert sorted(reader.values("n")) == list(range(1, 12)), "once each"
    assert sorted(writer.cares) == list(range(1, 12))


def test_copies_that_may_take_any_link_leave_a_link_of_the_tree_that_is_stuck() -> None:
    """C asks D to serve E as well, over a soft link. When nothing moves on C-D, what is for E goes by B."""
    quiet = SoftLinkSettings(fanout=6, review_us=600_000_000, rest_reviews=1)
    network = Network()
    for name, *neighbours in ("C", "BC", "EB", "DC"):
        network.start(
            name,
            neighbours=tuple(neighbours),
            strategy="SB",
            soft_links=quiet,
            link=SMALL,
            stall_us_max=STALL_US,
            flooding=True,
        )
        network.run(us=1_000_000)
    network.cores["D"]._mesh._follow(frozenset({"E"}))
    network.run(us=2_000_000)
    readers = {name: network.client(f"reader-{name}", name) for name in "DE"}
    for reader in readers.values():
        reader.ask(Subscribe(1, "1", "n > 0"))
    writer = network.client("writer", "C")
    network.run(us=1_000_000)
    network.change = without("D", "C")
    for number in range(1, 12):
        writer.publish({"n": number, "pad": "x" * 1_000}, acknowledged=True)
    network.run(us=STALL_US // 2)
    assert len(readers["E"].values("n")) == len(readers["D"].values("n")) < 11
    network.run(us=LATER_US)
    assert sorted(readers["E"].values("n")) == list(range(1, 12)), "there is another way to E"
    assert len(readers["D"].values("n")) < 11, "and none to D"
    assert len(writer.cares) < 11
    network.change = None
    network.run(us=LATER_US)
    assert sorted(readers["D"].values("n")) == list(range(1, 12))
    assert sorted(readers["E"].values("n")) == list(range(1, 12))
    assert sorted(writer.cares) == list(range(1, 12))

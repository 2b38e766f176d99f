"""Do both ends of a link agree which session they are in, whatever gets lost between them?"""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

from braid.protocol import Frame
from braid.protocol.inputs import Tick
from braid.protocol.messages import (
    PROTOCOL_VERSION,
    Advertise,
    Done,
    Goodbye,
    Hello,
    Subscribe,
    Unsubscribe,
    Welcome,
)
from tests.broker.wire import Network, WireClient

if TYPE_CHECKING:
    from collections.abc import Sequence


def two_brokers() -> tuple[Network, WireClient]:
    """A dials B, and somebody at A publishes for somebody at B. Few messages may wait for the link."""
    network = Network()
    network.start("B", link_messages_max=10)
    network.start("A", neighbours=("B",), link_messages_max=10)
    network.run(us=2_000_000)
    subscriber = network.client("s", "B")
    subscriber.ask(Subscribe(1, "1", "x > 0"))
    publisher = network.client("p", "A")
    publisher.publish({"x": 1}, acknowledged=True)
    network.run(us=1_000_000)
    assert subscriber.values("x") == [1]
    return network, subscriber


def fill_channel(network: Network, broker: str, count: int) -> None:
    """So many messages come to wait for a link that is down."""
    client = network.client(f"busy-{broker}", broker)
    for number in range(count):
        client.ask(Subscribe(2 * number, str(number), f"x > {number}"))
        client.ask(Unsubscribe(2 * number + 1, str(number)))
    network.run()


def require_working(network: Network, subscriber: WireClient) -> None:
    """The link comes up, and what is published crosses it."""
    network.on_frames = None
    network.run(us=20_000_000)
    link = network.cores["A"]._links.links["B"]
    assert link.channel.connected
    publisher = network.client("q", "A")
    publisher.publish({"x": 2}, acknowledged=True)
    network.run(us=1_000_000)
    assert subscriber.values("x") == [1, 2]
    assert publisher.cares == [1]


def test_a_session_given_up_between_hello_and_welcome_begins_anew() -> None:
    network, subscriber = two_brokers()

    def review_after_hello(sender: str, receiver: str, frames: Sequence[Frame]) -> None:
        if sender == "A" and isinstance(frames[0].body, Hello):
            network.on_frames = None
            fill_later.append(True)

    fill_later: list[bool] = []
    network.cut("A", "B")
    network.step()
    network.step()
    network.on_frames = review_after_hello
    fill_channel_of_link(network, 8)
    while not fill_later:
        if network._queue:
            network.step()
        else:
            network.now_us += 10_000
            network.tell("A", Tick())
            network.tell("B", Tick())
    # The greeting is under way: now too much comes together, and a review gives the session up.
    fill_channel_of_link(network, 20)
    network.now_us += 2_000_000
    network._queue.appendleft(("A", Tick()))
    network.step()
    require_working(network, subscriber)


def fill_channel_of_link(network: Network, count: int) -> None:
    """Messages that wait at A for B, put there as a handler would."""
    core = network.cores["A"]
    link = core._links.links["B"]
    for _ in range(count):
        core._turn.tell(link, Done(0))


def test_a_welcome_that_is_lost_leaves_no_session_behind() -> None:
    network, subscriber = two_brokers()
    network.hole("A", "B")
    network.cut("A", "B")
    network.run(us=1_000_000)
    fill_channel(network, "B", 20)
    network.run(us=2_000_000)
    network.holes.clear()

    def lose_the_welcome(sender: str, receiver: str, frames: Sequence[Frame]) -> None:
        if sender == "B" and receiver == "A" and isinstance(frames[0].body, Welcome):
            network.on_frames = None
            network.hole("A", "B")

    network.on_frames = lose_the_welcome
    network.run(us=8_000_000)
    assert network.holes, "a welcome was sent"
    network.mend("A", "B")
    require_working(network, subscriber)


def test_a_neighbour_that_flaps_multiplies_nothing() -> None:
    """It never confirms what it is told, and begins a new session again and again."""
    network = Network()
    network.start("A", expected=("N",))
    network.run(us=1_000_000)
    client = network.client("c", "A")
    neighbour = Neighbour(network)
    network.run(us=10_000)
    for number in range(4):
        client.ask(Advertise(2 * number, f"a{number}", f"x = {number}"))
        client.ask(Subscribe(2 * number + 1, f"s{number}", f"x = {number}"))
    network.run(us=10_000)
    tracemalloc.start()
    try:
        for start in range(2, 11):
            neighbour.leave()
            neighbour = Neighbour(network, start)
            network.run(us=10_000)
        held_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held_bytes < 2_000_000
    link = network.cores["A"]._links.links["N"]
    assert len(link.outstanding._line) <= 8
    assert not client.answers(Done)


class Neighbour(WireClient):
    """A neighbouring broker that says hello and nothing else."""

    def __init__(self, network: Network, start: int = 1) -> None:
        self._start = start
        super().__init__(network, "N", "A")

    def _say(self, message: object) -> None:
        if isinstance(message, Hello):
            message = Hello(PROTOCOL_VERSION, "broker", "N", f"N-{self._start}", credit=1 << 22)
        self._network.from_client(self, [Frame(0, message)])  # type: ignore[arg-type]

    def receive(self, frames: object) -> None:
        """It reads nothing."""

    def leave(self) -> None:
        self._say(Goodbye())
        self._network.run()

"""Can a broker that nobody has named stop others, and is one that an operator has just added waited for?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from braid.broker.settings import BrokerSettings
from braid.errors import ConfigurationError
from braid.protocol.messages import (
    Ask,
    Done,
    Failed,
    Goodbye,
    Hello,
    Introduction,
    Refused,
    Subscribe,
    SubscribeDurable,
    SyncBegin,
    Welcome,
)
from tests.broker.test_neighbour_identity import Stranger, hello_as
from tests.broker.wire import Network

if TYPE_CHECKING:
    from braid.protocol.messages import Message
    from tests.broker.wire import WireClient


def a_and_b(**settings: Any) -> Network:
    """A and B, which A expects; both have stores."""
    network = Network()
    network.start("A", expected=("B",), store=True, **settings)
    network.start("B", neighbours=("A",), store=True)
    network.run(us=3_000_000)
    return network


def neighbours(network: Network, broker: str = "A") -> list[str]:
    return sorted(network.cores[broker]._links.links)


def require_undisturbed(network: Network, number: int = 1) -> None:
    """Whoever subscribes now, at either broker, is answered, and publications have receipts."""
    subscribers = [network.client(f"s{number}", broker) for broker in "AB"]
    for subscriber in subscribers:
        subscriber.ask(Subscribe(1, "1", "x > 0", patience_us=2_000_000))
    network.run(us=3_000_000)
    assert [subscriber.answers(Failed) for subscriber in subscribers] == [[], []]
    publisher = network.client(f"p{number}", "B")
    publisher.publish({"x": number}, acknowledged=True)
    network.run(us=1_000_000)
    assert [subscriber.values("x") for subscriber in subscribers] == [[number], [number]]
    assert publisher.cares == [1]


def vanish(network: Network, stranger: Stranger) -> None:
    network.leave(stranger)
    network.run(us=1_000)


@pytest.mark.parametrize(
    "more",
    [
        (),
        (SyncBegin(), Introduction("k" * 64, "t" * 64)),
        (SyncBegin(), Subscribe(1, "X/1", "x > 0")),
        (Goodbye(detach=True),),
    ],
    ids=["hello alone", "gives a key", "subscribes", "leaves for good"],
)
def test_one_that_vanishes_before_it_has_said_everything_stops_nobody(more: tuple[Message, ...]) -> None:
    network = a_and_b()
    vanish(network, Stranger(network, "A", hello_as("X", address="nowhere"), *more))
    network.run(us=1_000_000)
    require_undisturbed(network)
    assert neighbours(network) == ["B"]
    assert network.neighbours["A"] == ("B",)
    assert [name for name, _ in network.stores["A"].state().neighbours] == ["B"]
    network.kill("A")
    network.start("A")
    network.run(us=10_000_000)
    require_undisturbed(network, 2)


def test_it_may_come_back_at_once_and_has_to_prove_nothing() -> None:
    network = a_and_b()
    for number in range(3):
        stranger = Stranger(network, "A", hello_as("X", incarnation=f"X-{number}"))
        assert stranger.answers(Welcome)
        network.leave(stranger)
        network.run()


def test_very_many_of_them_leave_nothing() -> None:
    network = a_and_b(unknown_brokers_max=10)
    for number in range(60):
        stranger = Stranger(network, "A", hello_as(f"X{number}"))
        assert not stranger.answers(Refused), "those that have gone make room"
        vanish(network, stranger)
    network.run(us=1_000_000)
    assert neighbours(network) == ["B"]
    require_undisturbed(network)


def test_there_is_a_limit_of_them_and_those_that_are_named_are_not_counted() -> None:
    network = a_and_b(unknown_brokers_max=3)
    strangers = [Stranger(network, "A", hello_as(f"X{number}")) for number in range(5)]
    refusals = [[each.code for each in stranger.answers(Refused)] for stranger in strangers]
    assert refusals == [[], [], [], ["limit"], ["limit"]]
    network.kill("B")
    network.start("B")
    network.run(us=3_000_000)
    assert network.cores["A"]._links.links["B"].current


def test_they_are_refused_where_that_is_wanted() -> None:
    network = Network()
    network.start("A", expected=("B",), unknown_brokers="refuse", neighbours=("C",), store=True)
    network.start("B", neighbours=("A",))
    network.start("C")
    network.run(us=3_000_000)
    (refused,) = Stranger(network, "A", hello_as("X")).answers(Refused)
    assert refused.code == "unknown_broker"
    assert "'expected'" in refused.reason
    assert neighbours(network) == ["B", "C"]
    assert all(link.current for link in network.cores["A"]._links.links.values())


def test_one_that_was_met_before_is_not_refused() -> None:
    network = Network()
    network.start("A", store=True)
    network.start("B", neighbours=("A",), store=True)
    network.run(us=3_000_000)
    network.kill("A")
    del network.settings["A"]
    kept = network.stores["A"]
    network.settings["A"] = BrokerSettings(broker_id="A", address="A", unknown_brokers="refuse")
    network._access["A"], network.stores["A"] = None, kept
    network.start("A")
    network.run(us=10_000_000)
    assert network.cores["A"]._links.links["B"].current


def test_the_setting_says_what_it_may_be() -> None:
    with pytest.raises(ConfigurationError, match="unknown_brokers"):
        BrokerSettings(broker_id="A", unknown_brokers="perhaps")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="unknown_brokers_max"):
        BrokerSettings(broker_id="A", unknown_brokers_max=0)


# One that an operator has just added.


def test_one_that_has_said_everything_is_waited_for() -> None:
    network = a_and_b()
    network.start("C", neighbours=("A",), store=True)
    network.run(us=3_000_000)
    reader = network.client("reader", "C")
    reader.ask(SubscribeDurable(1, "log", "x > 0"))
    network.run(us=1_000_000)
    assert reader.answers(Done)
    network.kill("C")
    network.run(us=60_000_000)
    publisher = network.client("p", "B")
    publisher.publish({"x": 1}, acknowledged=True)
    waiting = network.client("s", "A")
    waiting.ask(Subscribe(1, "1", "x > 0"))
    network.run(us=60_000_000)
    assert not waiting.answers(Done)
    assert publisher.cares == []
    network.start("C")
    network.run(us=10_000_000)
    reader = network.client("reader", "C")
    reader.ask(SubscribeDurable(1, "log", ""))
    network.run(us=1_000_000)
    assert [row.attributes["x"] for _, _, row in reader.stored] == [1]
    assert publisher.cares == [1]
    assert waiting.answers(Done)


def joining(network: Network) -> WireClient:
    """C links to A, and what it says after its greeting has not arrived; a client there subscribes."""
    network.start("C", neighbours=("A",), store=True)
    network.hold("C", "A")
    network.run(us=10_000)
    if network.held["C", "A"] and isinstance(network.held["C", "A"][0][1].body, Hello):
        network.deliver("C", "A", 1)
    network.run(us=10_000)
    subscriber = network.client("s", "C")
    subscriber.ask(SubscribeDurable(1, "log", "x > 0"))
    subscriber.ask(SubscribeDurable(2, "other", "x > 0", patience_us=100_000))
    network.run(us=200_000)
    return subscriber


def test_nobody_behind_it_is_answered_before_it_is_waited_for() -> None:
    """Otherwise it could be forgotten with a promise that was made."""
    network = a_and_b()
    subscriber = joining(network)
    assert network.cores["A"]._links.links["C"].provisional
    assert not subscriber.answers(Done)
    (failed,) = subscriber.answers(Failed)
    assert "A to C" in failed.reason
    # It is lost just now, and what is published meanwhile does not wait for it.
    network.cut("C", "A")
    network.release("C", "A")
    network.hole("A", "C")
    network.run(us=2_000_000)
    assert not subscriber.answers(Done)
    require_undisturbed(network)
    network.mend("A", "C")
    network.run(us=20_000_000)
    assert not network.cores["A"]._links.links["C"].provisional
    assert [done.request for done in subscriber.answers(Done)] == [1]
    publisher = network.client("q", "B")
    network.hole("A", "C")
    network.run(us=20_000_000)
    publisher.publish({"x": 5}, acknowledged=True)
    network.run(us=20_000_000)
    assert publisher.cares == []
    network.mend("A", "C")
    network.run(us=20_000_000)
    assert publisher.cares == [1]
    assert [row.attributes["x"] for _, _, row in subscriber.stored][-1] == 5


def test_an_operator_forgets_one_that_has_said_everything_and_is_gone() -> None:
    network = a_and_b()
    network.start("C", neighbours=("A",))
    network.run(us=3_000_000)
    network.kill("C")
    network.run(us=10_000_000)
    operator = network.client("o", "A")
    operator.ask(Ask(1, "forget", {"neighbour": "C"}))
    network.run(us=1_000_000)
    assert [name for name, _ in network.stores["A"].state().neighbours] == ["B"]
    require_undisturbed(network)

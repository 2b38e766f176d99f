"""Does an answered subscription get everything from its answer on, whatever was down when it was made?"""

from __future__ import annotations

from typing import Any

import pytest

from braid.protocol.messages import Ask, Done, Failed, Subscribe, SubscribeDurable
from tests.broker.wire import Network, WireClient

# One network for each: a line of brokers, each dialled by the one before it or dialling it.
DIALS = [pytest.param(True, id="dials"), pytest.param(False, id="is dialled")]
STRATEGIES = ["S0", "SB"]


def line(*names: str, first_dials: bool = True, **settings: Any) -> Network:
    """Brokers in a line, all linked."""
    network = Network()
    for place, name in enumerate(names):
        before, after = names[max(0, place - 1) : place], names[place + 1 : place + 2]
        neighbours = after if first_dials else before
        network.start(name, neighbours=tuple(neighbours), store=True, **settings)
    network.run(us=3_000_000)
    assert all(core.ready for core in network.cores.values())
    return network


def answered(client: WireClient) -> bool:
    assert not client.answers(Failed), client.answers(Failed)
    return bool(client.answers(Done))


def values_after(network: Network, publisher: WireClient, first: int, count: int = 20) -> list[int]:
    """Publish so many numbers, acknowledged, and let everything come to rest."""
    numbers = list(range(first, first + count))
    for number in numbers:
        publisher.publish({"x": number}, acknowledged=True)
        network.run(us=1000)
    return numbers


def wait_for_answer(network: Network, client: WireClient, *, us: int = 30_000_000) -> None:
    end_us = network.now_us + us
    while not answered(client):
        assert network.now_us < end_us, "no answer"
        network.run(us=10_000)


def received(client: WireClient) -> list[int]:
    return client.values("x") + [row.attributes["x"] for _, _, row in client.stored]


def ask_for(client: WireClient, *, durable: bool) -> None:
    client.ask(SubscribeDurable(1, "log", "x > 0") if durable else Subscribe(1, "1", "x > 0"))


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("first_dials", DIALS)
def test_a_broker_that_was_killed_answers_when_its_neighbours_know(
    first_dials: bool, strategy: str, durable: bool
) -> None:
    network = line("A", "B", first_dials=first_dials, strategy=strategy)
    publisher = network.client("p", "B")
    publisher.publish({"x": -1}, acknowledged=True)
    network.run(us=1_000_000)
    network.kill("A")
    network.run(us=4_000_000)
    network.start("A")
    subscriber = network.client("s", "A")
    ask_for(subscriber, durable=durable)
    network.run()
    wait_for_answer(network, subscriber)
    numbers = values_after(network, publisher, 1)
    network.run(us=10_000_000)
    assert received(subscriber) == numbers
    assert set(publisher.cares) >= set(range(2, 22))


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("first_dials", DIALS)
def test_a_link_that_is_a_hole_is_waited_for(first_dials: bool, strategy: str, durable: bool) -> None:
    network = line("A", "B", first_dials=first_dials, strategy=strategy)
    publisher = network.client("p", "B")
    publisher.publish({"x": -1}, acknowledged=True)
    network.run(us=1_000_000)
    subscriber = network.client("s", "A")
    network.hole("A", "B")
    ask_for(subscriber, durable=durable)
    network.run(us=60_000_000)
    assert not answered(subscriber)
    network.mend("A", "B")
    wait_for_answer(network, subscriber)
    numbers = values_after(network, publisher, 1)
    network.run(us=10_000_000)
    assert received(subscriber) == numbers


def test_the_link_that_is_down_may_be_far_away() -> None:
    network = line("A", "B", "C")
    publisher = network.client("p", "C")
    publisher.publish({"x": -1}, acknowledged=True)
    network.run(us=1_000_000)
    network.hole("B", "C")
    network.run(us=10_000_000)
    subscriber = network.client("s", "A")
    subscriber.ask(Subscribe(1, "1", "x > 0"))
    network.run(us=30_000_000)
    assert not answered(subscriber)
    network.mend("B", "C")
    wait_for_answer(network, subscriber)
    numbers = values_after(network, publisher, 1)
    network.run(us=10_000_000)
    assert received(subscriber) == numbers


def test_brokers_that_were_restarted_together_wait_for_each_other() -> None:
    network = line("A", "B", "C")
    network.client("p", "C").publish({"x": -1}, acknowledged=True)
    network.run(us=1_000_000)
    for name in "AB":
        network.kill(name)
    network.hole("B", "C")
    network.run(us=10_000_000)
    for name in "AB":
        network.start(name)
    subscriber = network.client("s", "A")
    subscriber.ask(Subscribe(1, "1", "x > 0"))
    network.run(us=30_000_000)
    assert not answered(subscriber), "B does not know what is published behind C"
    network.mend("B", "C")
    wait_for_answer(network, subscriber)
    publisher = network.client("q", "C")
    numbers = values_after(network, publisher, 1)
    network.run(us=10_000_000)
    assert received(subscriber) == numbers


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_a_dead_neighbour_has_not_asked_for_is_kept_for_it(strategy: str) -> None:
    """A broker without a store, which is dialled, cannot know whom to wait for. Its neighbour does."""
    network = Network()
    network.start("A", strategy=strategy)
    network.start("B", neighbours=("A",), strategy=strategy)
    network.run(us=2_000_000)
    publisher = network.client("p", "B")
    publisher.publish({"x": -1}, acknowledged=True)
    network.run(us=1_000_000)
    assert publisher.cares == [1]
    network.kill("A")
    network.run(us=4_000_000)
    numbers = values_after(network, publisher, 1)
    assert publisher.cares == [1], "nobody can say yet who wants these"
    network.start("A")
    subscriber = network.client("s", "A")
    subscriber.ask(Subscribe(1, "1", "x > 0"))
    network.run()
    wait_for_answer(network, subscriber)
    numbers += values_after(network, publisher, 100)
    network.run(us=20_000_000)
    assert received(subscriber) == numbers
    assert len(publisher.cares) == 41


def test_a_subscription_that_waits_receives_what_reaches_it() -> None:
    network = line("A", "B", "C")
    publisher = network.client("p", "B")
    publisher.publish({"x": -1}, acknowledged=True)
    network.hole("B", "C")
    network.run(us=10_000_000)
    subscriber = network.client("s", "A")
    subscriber.ask(Subscribe(1, "1", "x > 0"))
    network.run(us=1_000_000)
    publisher.publish({"x": 1})
    network.run(us=1_000_000)
    assert not answered(subscriber)
    assert received(subscriber) == [1]


def test_patience_ends_with_the_names_of_the_missing_links() -> None:
    network = line("A", "B", "C", "D")
    network.client("p", "D").publish({"x": -1}, acknowledged=True)
    network.run(us=1_000_000)
    network.hole("C", "D")
    network.run(us=10_000_000)
    subscriber = network.client("s", "A")
    subscriber.ask(Subscribe(1, "1", "x > 0", patience_us=5_000_000))
    subscriber.ask(SubscribeDurable(2, "log", "x > 0", patience_us=5_000_000))
    network.run(us=4_000_000)
    assert not subscriber.answers(Failed)
    network.run(us=2_000_000)
    failures = {answer.request: answer for answer in subscriber.answers(Failed)}
    assert set(failures) == {1, 2}
    assert {answer.code for answer in failures.values()} == {"unreached"}
    assert all("C to D" in answer.reason for answer in failures.values())
    network.client("q", "A").publish({"x": 5})
    network.run(us=1_000_000)
    assert subscriber.values("x") == [], "what was refused is not in force"


def test_partial_says_which_links_it_does_not_cover() -> None:
    network = line("A", "B", "C", "D")
    network.client("p", "D").publish({"x": -1}, acknowledged=True)
    network.run(us=1_000_000)
    network.hole("C", "D")
    network.run(us=10_000_000)
    subscriber = network.client("s", "A")
    subscriber.ask(Subscribe(1, "1", "x > 0", partial=True))
    subscriber.ask(SubscribeDurable(2, "log", "x > 0", partial=True))
    network.run(us=1_000_000)
    assert {answer.request: answer.missing for answer in subscriber.answers(Done)} == {
        1: ["C to D"],
        2: ["C to D"],
    }
    network.client("q", "C").publish({"x": 7})
    network.run(us=1_000_000)
    assert received(subscriber) == [7, 7], "it is in force on this side"
    network.mend("C", "D")
    network.run(us=20_000_000)
    network.client("r", "D").publish({"x": 8})
    network.run(us=1_000_000)
    assert received(subscriber).count(8) == 2, "and on the other as soon as there is a link"


def test_partial_with_everybody_there_misses_nothing() -> None:
    network = line("A", "B", "C")
    subscriber = network.client("s", "A")
    subscriber.ask(Subscribe(1, "1", "x > 0", partial=True))
    network.run(us=1_000_000)
    assert [answer.missing for answer in subscriber.answers(Done)] == [[]]


def test_forgetting_a_neighbour_ends_the_wait() -> None:
    network = line("A", "B", "C")
    network.kill("C")
    network.run(us=10_000_000)
    subscriber = network.client("s", "A")
    subscriber.ask(Subscribe(1, "1", "x > 0"))
    publisher = network.client("p", "B")
    publisher.publish({"x": 1}, acknowledged=True)
    network.run(us=10_000_000)
    assert not answered(subscriber)
    assert publisher.cares == []
    operator = network.client("o", "B")
    operator.ask(Ask(1, "forget", {"neighbour": "C"}))
    network.run(us=2_000_000)
    assert answered(subscriber)
    assert publisher.cares == [1]
    assert received(subscriber) == [1]


def test_a_neighbour_that_was_never_met_is_waited_for() -> None:
    network = Network()
    network.start("A", neighbours=("B",), store=True)
    network.run(us=20_000_000)
    subscriber = network.client("s", "A")
    subscriber.ask(Subscribe(1, "1", "x > 0", patience_us=3_000_000))
    network.run(us=10_000_000)
    (failure,) = subscriber.answers(Failed)
    assert (failure.code, "A to B" in failure.reason) == ("unreached", True)
    subscriber.ask(Subscribe(2, "2", "x > 0"))
    network.run(us=1_000_000)
    network.start("B", store=True)
    network.run(us=10_000_000)
    assert [answer.request for answer in subscriber.answers(Done)] == [2]


def test_what_is_kept_for_a_dead_neighbour_holds_publishers_back_and_drops_nothing() -> None:
    network = line("A", "B", link_queue_bytes_max=64_000)
    network.client("s", "A").ask(SubscribeDurable(1, "log", "x > 0"))
    network.run(us=1_000_000)
    network.kill("A")
    network.run(us=10_000_000)
    publisher = network.client("p", "B")
    for number in range(1, 201):
        publisher.publish({"x": number, "text": "y" * 50_000}, acknowledged=True)
        network.run(us=1000)
    network.run(us=10_000_000)
    link = network.cores["B"]._links.links["A"]
    window = network.cores["B"].settings.client.window_bytes
    assert link.channel.backlog_bytes <= 64_000 + window + 60_000
    assert publisher.cares == []
    network.start("A")
    subscriber = network.client("s", "A")
    subscriber.ask(SubscribeDurable(1, "log", "x > 0"))
    network.run(us=60_000_000)
    assert received(subscriber) == list(range(1, 201))
    assert publisher.cares == list(range(1, 201))

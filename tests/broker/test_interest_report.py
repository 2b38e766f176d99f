"""Does an operator find the subscriptions of a broker, whatever there are?"""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest

from braid.protocol.messages import Ask, Done, Failed, Subscribe, SubscribeDurable
from tests.broker.wire import Network

COUNT = count()


def network_with(*filters: str) -> Network:
    network = Network()
    network.start("A", store=True)
    network.run(us=100_000)
    reader = network.client("reader", "A")
    for number, text in enumerate(filters, 1):
        reader.ask(Subscribe(number, f"k{number}", text))
    network.run(us=100_000)
    return network


def asked(network: Network, **arguments: str) -> Done | Failed:
    operator = network.client("operator", "A", incarnation=f"operator-{next(COUNT)}")
    operator.ask(Ask(1, "subscriptions", arguments))
    network.run(us=100_000)
    answer: Done | Failed = operator.answers(Done | Failed)[-1]
    return answer


def report(network: Network, **arguments: str) -> dict[str, Any]:
    answer = asked(network, **arguments)
    assert isinstance(answer, Done), answer
    found: dict[str, Any] = json.loads(answer.text)
    return found


def test_subscriptions_are_listed_with_their_clients() -> None:
    found = report(network_with("price > 10", "symbol = 'ACME'"))
    assert found == {
        "broker": "A",
        "found": 2,
        "subscriptions": [
            {"client": "reader", "key": "k1", "filter": "price > 10", "cut": False, "durable": False},
            {"client": "reader", "key": "k2", "filter": "symbol = 'ACME'", "cut": False, "durable": False},
        ],
    }


def test_they_are_searched_by_client_and_filter() -> None:
    network = network_with("price > 10", "symbol = 'ACME'")
    assert [each["key"] for each in report(network, search="acme")["subscriptions"]] == ["k2"]
    assert report(network, search="READER")["found"] == 2
    assert report(network, search="nothing like it")["subscriptions"] == []


def test_an_answer_is_bounded_and_says_what_it_leaves_out() -> None:
    network = network_with(*(f"x = {number}" for number in range(30)), "symbol = '" + "z" * 2000 + "'")
    found = report(network, limit="5")
    assert (found["found"], len(found["subscriptions"])) == (31, 5)
    last = report(network, search="zzz")["subscriptions"][0]
    assert last["cut"]
    assert len(last["filter"]) == 400


@pytest.mark.parametrize("limit", ["0", "501", "-1", "many", "1e3", "9" * 5000, "٣"])
def test_a_limit_that_is_none_is_named(limit: str) -> None:
    answer = asked(network_with("x = 1"), limit=limit)
    assert isinstance(answer, Failed)
    assert "limit is a number from 1 to 500" in answer.reason


def test_a_durable_subscription_is_there_without_its_reader() -> None:
    network = network_with()
    owner = network.client("owner", "A")
    owner.ask(SubscribeDurable(1, "orders", "kind = 'order'"))
    network.run(us=100_000)
    network.leave(owner)
    network.run(us=100_000)
    assert [(each["key"], each["filter"], each["durable"]) for each in report(network)["subscriptions"]] == [
        ("orders", "kind = 'order'", True)
    ]

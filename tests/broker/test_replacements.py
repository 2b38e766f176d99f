"""Does another process get the name of a broker that is gone, and does the old one do no harm any more?"""

from __future__ import annotations

import json
from typing import Any

import pytest

from braid.broker.identities import granted_key
from braid.protocol.log import KeepStanding
from braid.protocol.messages import Ask, Done, Failed, Hello, Refused, Subscribe, SubscribeDurable
from tests.broker.test_neighbour_identity import Stranger, hello_as
from tests.broker.wire import Network, WireClient

STORES = [pytest.param(True, id="with a store"), pytest.param(False, id="without")]
KEY = "the secret of the replica"
# Longer than it takes until a broker that stood still must have noticed.
FENCED_US = 12_000_000


def line(*, store: bool = True) -> Network:
    """A, F and B in a line, with a subscriber at B and one at F."""
    network = Network()
    network.start("F", store=store)
    network.start("A", neighbours=("F",), store=store)
    network.start("B", neighbours=("F",), store=store)
    network.run(us=3_000_000)
    return network


def grant(network: Network, neighbour: str, address: str = "R", epoch: int = 1, name: str = "F") -> Any:
    """What a neighbour answers to the wish that a process get a name."""
    operator = network.client("o", neighbour)
    key = granted_key(f"{KEY} {epoch}", neighbour)
    arguments = {"name": name, "address": address, "epoch": str(epoch), "key": key}
    operator.ask(Ask(1, "grant", arguments))
    network.run(us=50_000)
    network.leave(operator)
    refused = operator.answers(Failed)
    return refused[0].code if refused else json.loads(operator.answers(Done)[0].text)


def replace(network: Network, address: str = "R", epoch: int = 1, *, store: bool = False) -> None:
    """Have both neighbours grant the name, and start the process that is to have it."""
    for neighbour in ("A", "B"):
        assert grant(network, neighbour, address, epoch)["granted"] == "F"
    standing = KeepStanding("F", epoch, f"{KEY} {epoch}", (("A", "A"), ("B", "B")))
    neighbours = ("A", "B")
    network.start(
        address, broker_id="F", neighbours=neighbours, expected=neighbours, standing=standing, store=store
    )
    network.run(us=1_000_000)


def subscribe(network: Network, broker: str, text: str = "x > 0") -> WireClient:
    reader = network.client(f"reader at {broker}", broker)
    reader.ask(Subscribe(1, "1", text))
    network.run(us=1_000_000)
    assert reader.answers(Done), "it is known everywhere"
    return reader


def link_is_up(network: Network, name: str, neighbour: str = "F") -> bool:
    return network.cores[name]._links.links[neighbour].current


# The old process, which stood still.


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("reachable", [True, False], ids=["reachable", "unreachable"])
def test_a_broker_that_wakes_settles_nothing_by_tables_from_before(reachable: bool, store: bool) -> None:
    """A client's publication is read before the news that its links are gone, or there is no such news."""
    network = line(store=store)
    publisher = network.client("p", "F")
    publisher.publish({"x": 0}, acknowledged=True)
    network.run(us=1_000_000)
    assert publisher.cares == [1]
    if not reachable:
        network.hole("F", "A")
        network.hole("F", "B")
    network.freeze("F")
    network.run(us=30_000_000)
    replace(network)
    reader = subscribe(network, "B")  # which the broker that stands still has not heard of
    publisher.publish({"x": 1}, acknowledged=True)
    network.thaw("F", first=publisher.connection)
    network.run(us=1_000)
    assert publisher.cares == [1], "a receipt for what nobody has got"
    network.run(us=10_000_000)
    assert publisher.cares == [1]
    if not reachable:
        network.mend("F", "A")
        network.mend("F", "B")
        network.run(us=20_000_000)
    assert "F" in network.replaced, "it knows that another process has its name"
    assert not publisher.open
    assert publisher.cares == [1]
    assert reader.values("x") == []
    again = network.client("p", "R")
    again.publish({"x": 0}, {"x": 1}, acknowledged=True)
    network.run(us=1_000_000)
    assert reader.values("x") == [1]
    assert len(again.cares) == 2


def test_a_broker_that_stood_still_and_was_not_replaced_goes_on() -> None:
    network = line()
    reader, publisher = subscribe(network, "B"), network.client("p", "A")
    publisher.publish({"x": 1}, acknowledged=True)
    network.run(us=1_000_000)
    network.freeze("F")
    publisher.publish({"x": 2}, acknowledged=True)
    network.run(us=4_000_000)  # late, and not yet given up by anybody
    network.thaw("F")
    network.run(us=5_000_000)
    publisher.publish({"x": 3}, acknowledged=True)
    network.run(us=5_000_000)
    assert reader.values("x") == [1, 2, 3]
    assert publisher.cares == [1, 2, 3]
    assert not network.replaced


def test_a_broker_that_comes_back_after_it_was_replaced_is_refused_and_stops() -> None:
    network = line()
    reader = subscribe(network, "B")
    network.kill("F")
    replace(network)
    network.start("F")
    network.run(us=20_000_000)
    assert "F" in network.replaced
    publisher = network.client("p", "A")
    publisher.publish({"x": 1}, acknowledged=True)
    network.run(us=1_000_000)
    assert (reader.values("x"), publisher.cares) == ([1], [1])


# The replica.


def test_one_that_keeps_nothing_and_comes_back_stops_when_all_that_it_dials_refuse_it() -> None:
    network = Network()
    network.start("A")
    network.start("B")
    network.start("F", neighbours=("A", "B"))
    network.run(us=3_000_000)
    network.kill("F")
    replace(network)
    network.start("F")
    network.run(us=20_000_000)
    assert "F" in network.replaced
    assert link_is_up(network, "A")
    assert link_is_up(network, "B")


@pytest.mark.parametrize("store", STORES)
def test_what_waits_for_a_broker_that_crashed_is_delivered_by_its_replica(store: bool) -> None:
    network = line(store=store)
    reader, publisher = subscribe(network, "B"), network.client("p", "A")
    for number in range(1, 11):
        publisher.publish({"x": number}, acknowledged=number % 2 == 0)
    network.run(us=1_000_000)
    network.kill("F")
    for number in range(11, 31):
        publisher.publish({"x": number}, acknowledged=number % 2 == 0)
    network.run(us=1_000_000)
    assert max(publisher.cares) == 10, "what is under way has not arrived"
    replace(network)
    for number in range(31, 41):
        publisher.publish({"x": number}, acknowledged=number % 2 == 0)
    network.run(us=1_000_000)
    assert reader.values("x") == list(range(1, 41))
    assert publisher.cares == list(range(2, 41, 2))


def test_neighbours_on_both_sides_hear_each_other_again() -> None:
    network = line()
    network.kill("F")
    replace(network)
    readers = {name: subscribe(network, name) for name in ("A", "B", "R")}
    for name in ("A", "B", "R"):
        network.client(f"p{name}", name).publish({"x": 1}, {"x": 2})
    network.run(us=1_000_000)
    for name, reader in readers.items():
        assert sorted(reader.values("x")) == [1, 1, 1, 2, 2, 2], name
    assert link_is_up(network, "A")
    assert link_is_up(network, "B")


def test_a_replica_of_a_replica() -> None:
    network = line()
    reader, publisher = subscribe(network, "B"), network.client("p", "A")
    network.kill("F")
    replace(network, "R", 1)
    network.kill("R")
    publisher.publish({"x": 1}, acknowledged=True)
    replace(network, "Q", 2)
    publisher.publish({"x": 2}, acknowledged=True)
    network.run(us=1_000_000)
    assert (reader.values("x"), publisher.cares) == ([1, 2], [1, 2])
    # The first replica comes back as it was.
    standing = KeepStanding("F", 1, f"{KEY} 1", (("A", "A"), ("B", "B")))
    network.start("R", standing=standing)
    network.run(us=20_000_000)
    assert network.replaced == {"R"}
    assert link_is_up(network, "A")
    assert link_is_up(network, "B")


def test_a_replica_with_a_store_that_is_started_again_has_its_place() -> None:
    network = line()
    reader, publisher = subscribe(network, "B"), network.client("p", "A")
    network.kill("F")
    for neighbour in ("A", "B"):
        grant(network, neighbour)
    standing = KeepStanding("F", 1, f"{KEY} 1", (("A", "A"), ("B", "B")))
    network.start("R", broker_id="F", neighbours=("A", "B"), expected=("A", "B"), store=True)
    network.kill("R")
    network.stores["R"].apply([standing])
    network.start("R")
    network.run(us=1_000_000)
    publisher.publish({"x": 1}, acknowledged=True)
    network.run(us=1_000_000)
    network.kill("R")
    publisher.publish({"x": 2}, acknowledged=True)
    network.start("R")
    network.run(us=10_000_000)
    assert (reader.values("x"), publisher.cares) == ([1, 2], [1, 2])


# Neighbours remember.


def test_a_neighbour_that_was_started_again_still_knows_who_has_the_name() -> None:
    network = line()
    reader = subscribe(network, "B")
    network.kill("F")
    replace(network)
    for name in ("A", "B"):
        network.kill(name)
        network.start(name)
    network.start("F")
    network.run(us=20_000_000)
    assert "F" in network.replaced
    assert link_is_up(network, "A")
    assert link_is_up(network, "B")
    reader = subscribe(network, "B")
    publisher = network.client("p", "A")
    publisher.publish({"x": 1}, acknowledged=True)
    network.run(us=1_000_000)
    assert (reader.values("x"), publisher.cares) == ([1], [1])


def test_a_neighbour_that_crashes_right_after_its_answer_has_not_forgotten_it() -> None:
    network = line()
    network.kill("F")
    assert grant(network, "A")["epoch"] == 1
    network.kill("A")
    network.start("A")
    network.start("F")
    network.run(us=20_000_000)
    assert not link_is_up(network, "A"), "the old process has the name no more"
    assert network.cores["B"]._links.links["F"].connection is not None, "B has granted nothing"


def test_an_answer_waits_for_the_store() -> None:
    network = line()
    network.kill("F")
    network.frozen_stores.add("A")
    operator = network.client("o", "A")
    arguments = {"name": "F", "address": "R", "epoch": "1", "key": granted_key(KEY, "A")}
    operator.ask(Ask(1, "grant", arguments))
    network.run(us=1_000_000)
    assert not operator.answers(Done)
    network.frozen_stores.clear()
    network.run(us=1_000_000)
    assert operator.answers(Done)


def test_what_was_kept_for_a_neighbour_since_a_restart_is_delivered_by_its_replica() -> None:
    """It has not been met since, and what waits for it waits under its address."""
    network = line()
    reader = network.client("reader", "B")
    reader.ask(SubscribeDurable(1, "log", "x > 0"))
    network.run(us=1_000_000)
    network.kill("F")
    network.kill("A")
    network.start("A")
    network.run(us=12_000_000)
    publisher = network.client("p", "A")
    publisher.publish({"x": 1}, acknowledged=True)
    network.run(us=12_000_000)
    assert publisher.cares == []
    replace(network)
    network.run(us=5_000_000)
    assert publisher.cares == [1]
    assert [row.attributes["x"] for _, _, row in reader.stored] == [1]


# What is refused.


def test_a_name_is_not_granted_while_its_broker_is_there() -> None:
    network = line()
    assert grant(network, "A") == "up"
    assert link_is_up(network, "A")


def test_a_name_is_not_granted_before_a_broker_that_stands_still_must_have_noticed() -> None:
    network = line()
    network.freeze("F")
    refusals = set()
    for _ in range(200):
        answer = grant(network, "A")
        if isinstance(answer, dict):
            break
        refusals.add(answer)
        network.run(us=200_000)
    assert refusals == {"up", "lease"}
    # It stood still for less than that: it can still say that it is there.
    assert network.now_us > FENCED_US


def test_one_whose_process_has_ended_is_granted_at_once() -> None:
    network = line()
    network.kill("F")
    assert grant(network, "A")["granted"] == "F"


def test_the_same_grant_again_is_no_other_one() -> None:
    network = line()
    network.kill("F")
    assert grant(network, "A") == grant(network, "A")
    replace(network)
    assert grant(network, "A")["epoch"] == 1
    assert link_is_up(network, "A")


@pytest.mark.parametrize("epoch", [1, 0])
def test_a_name_goes_to_one_process_per_epoch(epoch: int) -> None:
    network = line()
    network.kill("F")
    grant(network, "A", "R", 1)
    code = "epoch" if epoch else "argument"
    assert grant(network, "A", "Q", epoch) == code
    assert grant(network, "A", "Q", 2)["epoch"] == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "Z"},
        {"name": ""},
        {"address": ""},
        {"address": "x" * 301},
        {"key": "short"},
        {"epoch": "-1"},
        {"epoch": "²"},
        {"epoch": "9" * 50},
        {"epoch": ""},
    ],
    ids=str,
)
def test_a_grant_that_makes_no_sense_changes_nothing(wrong: dict[str, str]) -> None:
    network = line()
    network.kill("F")
    operator = network.client("o", "A")
    right = {"name": "F", "address": "R", "epoch": "1", "key": granted_key(KEY, "A")}
    operator.ask(Ask(1, "grant", right | wrong))
    network.run(us=50_000)
    assert [each.code for each in operator.answers(Failed)] == [
        "unknown" if wrong == {"name": "Z"} else "argument"
    ]
    network.start("F")
    network.run(us=5_000_000)
    assert link_is_up(network, "A")


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_a_stranger_does_not_get_a_name_that_was_granted(epoch: int) -> None:
    """It knows the epoch, and not the key."""
    network = line()
    reader, publisher = subscribe(network, "B"), network.client("p", "A")
    network.kill("F")
    grant(network, "A")
    publisher.publish({"x": 1}, acknowledged=True)
    hello = with_epoch(hello_as("F", address="R"), epoch)
    stranger = Stranger(network, "A", hello)
    expected = "identity" if epoch else "replaced"
    assert expected in [refused.code for refused in stranger.answers(Refused)]
    replace(network)
    assert (reader.values("x"), publisher.cares) == ([1], [1])


def with_epoch(hello: Hello, epoch: int) -> Hello:
    fields = {name: getattr(hello, name) for name in Hello.__struct_fields__}
    return Hello(**(fields | {"epoch": epoch}))


def test_one_neighbour_alone_does_not_stop_a_broker() -> None:
    """Whoever lies can end its own link, and no other."""
    network = line()
    reader, publisher = subscribe(network, "B"), network.client("p", "F")
    liar = Refused("replaced", "a lie", "A", address="nowhere", epoch=7)

    def lie(source: str, target: str, frame: Any) -> Any:
        hello = isinstance(frame.body, Hello) or type(frame.body).__name__ == "Welcome"
        return type(frame)(0, liar) if source == "A" and target == "F" and hello else frame

    network.change = lie
    network.cut("A", "F")
    network.run(us=20_000_000)
    assert not network.replaced
    publisher.publish({"x": 1})
    network.run(us=1_000_000)
    assert reader.values("x") == [1]
    network.change = None
    network.run(us=20_000_000)
    assert link_is_up(network, "A")


def test_neighbours_say_who_is_around_them() -> None:
    """So that it is known whom to ask when the broker between them is gone."""
    network = line()
    network.kill("F")
    operator = network.client("o", "A")
    operator.ask(Ask(1, "overlay", {}))
    network.run(us=50_000)
    shown = json.loads(operator.answers(Done)[0].text)
    assert [link["around"] for link in shown["links"]] == [{"B": "B"}]

"""Does a copy for a set of brokers reach all of them, once, while brokers come and go and see unlike far?"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from braid.adaptation import SoftLinkSettings
from braid.broker.settling import Pending, WaitingFor
from braid.protocol import PublicationBatch, encode_record
from braid.protocol.destinations import digest_of, packed_destinations
from braid.protocol.messages import Ask, Done
from tests.broker.fault_run import Reader
from tests.broker.test_mesh import delayed, deliver, follow, mesh_of, subscribed
from tests.broker.wire import Network

LINE = {"A": (), "B": ("A",), "C": ("B",), "D": ("C",)}

# Their digests are the same.
ONE, OTHER = "B5231", "B6684"


def test_a_new_broker_that_the_helper_has_not_heard_of_is_waited_for() -> None:
    """A knows Z already and asks D to serve it too; the news is still on its way to D."""
    network = mesh_of({**LINE, "Y": ("A",)}, strategy="SB")
    subscribed(network, "d", "D", "d > 0")
    writer = network.client("writer", "A")
    writer.publish({"d": 0})
    network.run(us=100_000)
    follow(network, "A", "D")
    network.run(us=1_000_000)
    kept = delayed(network, "B", "C")
    network.start("Z", neighbours=("Y",), strategy="SB")
    network.run(us=100_000)
    reader = subscribed(network, "z", "Z", "z > 0")
    assert reader.answers(Done)
    assert "Z" not in network.cores["D"]._maps.surroundings.map()
    # As it was before D's neighbours told A of Z: D is asked to find the way.
    network.cores["A"]._links.links["Y"].reaches = frozenset()
    network.cores["A"]._mesh.delegations.forget()
    writer.publish({"d": 1, "z": 1}, acknowledged=True)
    writer.publish({"d": 2, "z": 2})
    network.run(us=100_000)
    deliver(network, kept)
    network.run(us=1_000_000)
    assert sorted(reader.values("z")) == [1, 2]
    assert writer.channel.idle
    assert not network.cores["D"]._delegated._out_of_sight


def test_one_that_has_left_is_waited_for_no_longer_than_for_others() -> None:
    network = mesh_of(LINE, strategy="SB")
    writer = network.client("writer", "A")
    writer.publish({"n": 0})
    network.run(us=100_000)
    core = network.cores["B"]
    waits = Pending(WaitingFor.HERE)
    batch = PublicationBatch.of("writer", [7], [encode_record({"n": 7}, 0)])
    core._delegated.again(batch.readdressed(route=packed_destinations([digest_of("gone")])), waits)
    core._turn.settlement.settle(waits)  # whoever had it before
    network.run(us=core.settings.recovery_us_max - 1_000_000)
    assert not waits.done
    network.run(us=2_000_000)
    assert waits.done
    assert not core._delegated._out_of_sight


def test_a_copy_follows_a_neighbour_that_has_moved() -> None:
    """What waits at its old neighbour goes to where it is now, once operators have said that it moved."""
    network = mesh_of({"A": (), "B": ("A",)}, strategy="SB")
    network.start("C", neighbours=("B",), store=True, strategy="SB")
    network.run(us=500_000)
    reader = Reader(network, "reader", "C", "n > 0")
    reader.step()
    network.run(us=500_000)
    writer = network.client("writer", "A")
    writer.publish({"n": 0})
    network.run(us=500_000)
    network.kill("C")
    writer.publish({"n": 1}, acknowledged=True)
    network.run(us=100_000)
    assert not writer.channel.idle
    network.settings["C"] = replace(network.settings["C"], neighbours=("A",))
    network.start("C")
    network.run(us=500_000)
    assert set(network.cores["B"]._links.links) == {"A", "C"}, "that others say so is not enough"
    for broker, neighbour in (("C", "B"), ("B", "C")):
        network.client(f"operator-{broker}", broker).ask(Ask(1, "forget", {"neighbour": neighbour}))
    network.run(us=500_000)
    reader.step()
    network.run(us=10_000_000)
    reader.step()
    assert [values["n"] for values in reader.values] == [1]
    assert writer.channel.idle


def test_what_waits_for_a_dead_broker_makes_nothing_else_wait() -> None:
    """Copies for others that follow it on the same links are settled, and take no room any more."""
    network = Network()
    for name, neighbours in LINE.items():
        network.start(name, neighbours=neighbours, store=True, strategy="SB")
        network.run(us=300_000)
    readers = [Reader(network, name, name.upper(), f"{name} > 0") for name in ("c", "d")]
    for reader in readers:
        reader.step()
        network.run(us=500_000)
    first, second = network.client("first", "A"), network.client("second", "A")
    first.publish({"c": 0})
    network.run(us=500_000)
    network.kill("D")
    first.publish({"d": 1}, acknowledged=True)
    network.run(us=100_000)
    for number in range(1, 51):
        second.publish({"c": number}, acknowledged=True)
        network.run(us=10_000)
    assert second.channel.idle
    assert not first.channel.idle
    on_the_way = network.cores["A"]._links.links["B"].channel
    assert len(on_the_way._unsettled) + len(on_the_way._unacknowledged) == 1
    assert len(network.cores["B"]._links.links["A"].line) == 1
    network.start("D")
    network.run(us=10_000_000)
    for reader in readers:
        reader.step()
    network.run(us=1_000_000)
    for reader in readers:
        reader.collect()
    assert [values["d"] for values in readers[1].values] == [1]
    assert sorted(values["c"] for values in readers[0].values) == list(range(1, 51))
    assert first.channel.idle


def unlike(*deltas: int) -> Network:
    """Brokers in a row, all with sets of destinations, that see unlike far (0: everything)."""
    network = Network()
    neighbours: tuple[str, ...] = ()
    for number, delta in enumerate(deltas, 1):
        name = f"B{number}"
        network.start(
            name,
            neighbours=neighbours,
            strategy="SB" if delta in (0, 4) else "S1",
            delta=abs(delta),
            soft_links=SoftLinkSettings(review_us=600_000_000),
        )
        network.run(us=300_000)
        neighbours = (name,)
    network.run(us=500_000)
    return network


@pytest.mark.parametrize(
    "deltas",
    [
        (0, 0, 0, 0, 0, 0, 0, 0),
        # The helper itself does not see far.
        (4, 0, 0, 0, 0, 0, 0, 0),
        # Nor does its neighbour, which tells it of others only as far as it sees itself.
        (0, -4, 0, 0, 0, 0, 0, 0),
    ],
)
def test_only_those_who_can_see_a_broker_are_asked_to_find_it(deltas: tuple[int, ...]) -> None:
    network = unlike(*deltas)
    one = subscribed(network, "one", "B1", "one > 0")
    eight = subscribed(network, "eight", "B8", "eight > 0")
    writer = network.client("writer", "B4")
    writer.publish({"one": 0, "eight": 0})
    network.run(us=200_000)
    follow(network, "B4", "B1")
    network.run(us=1_000_000)
    writer.publish({"one": 1, "eight": 1}, acknowledged=True)
    network.run(us=20_000_000)
    assert one.values("one") == [1]
    assert eight.values("eight") == [1]
    assert writer.channel.idle


@pytest.mark.parametrize("acknowledged", [False, True])
def test_an_outer_broker_that_leaves_takes_nothing_with_it(acknowledged: bool) -> None:
    """D is asked to serve E as well, and leaves before the copy comes."""
    network = mesh_of({**LINE, "E": ("C",), "F": ("E",)}, strategy="SB")
    reader = subscribed(network, "f", "F", "f > 0")
    leaving = subscribed(network, "d", "D", "d > 0")
    writer = network.client("writer", "A")
    writer.publish({"d": 0, "f": 0})
    network.run(us=200_000)
    follow(network, "A", "D")
    network.run(us=1_000_000)
    operator = network.client("operator", "D")
    network.leave(leaving)
    network.run()
    # Nobody is told before the copies are under way.
    kept = delayed(network, "A", "D")
    for number in range(1, 6):
        writer.publish({"d": 1, "f": number}, acknowledged=acknowledged)
    network.run()
    operator.ask(Ask(1, "detach"))
    deliver(network, kept)
    network.run(us=10_000_000)
    assert operator.answers(Done)
    assert sorted(reader.values("f")) == [1, 2, 3, 4, 5]
    assert writer.channel.idle


def test_others_hear_of_new_primary_links() -> None:
    """Otherwise brokers ask one that cannot help, although they have a neighbour that can."""
    network = mesh_of({**LINE, "E": ("C",)}, strategy="SB")
    network.run(us=1_000_000)
    assert network.cores["B"]._links.links["C"].reaches == {"D", "E"}
    network.start("F", neighbours=("E",), strategy="SB")
    network.run(us=1_500_000)
    assert network.cores["C"]._links.links["E"].reaches == {"F"}


@pytest.mark.parametrize("acknowledged", [False, True])
@pytest.mark.parametrize(
    ("shape", "known"),
    [
        ({"A": (), "M": ("A",), ONE: ("M",), OTHER: ("M",)}, (ONE, OTHER)),
        ({"A": (), "M": ("A",), ONE: ("M",), OTHER: (ONE,)}, (ONE, OTHER)),
        ({"A": (), "M": ("A",), OTHER: ("M",), ONE: (OTHER,)}, (ONE, OTHER)),
        ({"A": (), "M": ("A",), OTHER: ("M",), ONE: (OTHER,)}, (OTHER,)),
    ],
)
def test_a_broker_gets_what_was_meant_for_it_though_another_has_its_digest(
    shape: dict[str, tuple[str, ...]], known: tuple[str, ...], acknowledged: bool
) -> None:
    """A has not heard of the other one, so that the digest seems unmistakable; M knows both, or the other."""
    assert digest_of(ONE) == digest_of(OTHER)
    network = mesh_of(shape, strategy="SB")
    reader = subscribed(network, "reader", ONE, "n > 0")
    writer = network.client("writer", "A")
    writer.publish({"n": 0})
    network.run(us=200_000)
    for broker, names in (("A", (ONE,)), ("M", known)):
        network.cores[broker]._mesh.delegations._known[digest_of(ONE)] = names
        network.cores[broker]._mesh.delegations.forget()
    writer.publish({"n": 1}, acknowledged=acknowledged)
    network.run(us=1_000_000)
    network.cores["A"]._maps.changed()
    writer.publish({"n": 2}, acknowledged=acknowledged)
    network.run(us=1_000_000)
    assert reader.values("n") == [1, 2]
    assert writer.channel.idle


def test_what_others_believe_of_links_is_what_there_is_after_many_changes() -> None:
    """Only changes are told; a connection that breaks is told everything anew."""
    network = mesh_of({**LINE, "E": ("D",), "F": ("E",)}, strategy="SB")
    chance = random.Random("link states")
    for _ in range(30):
        one, *others = chance.sample("ABCDEF", chance.choice([1, 2, 3, 4]))
        near = [name for name in others if abs(ord(name) - ord(one)) == 1]
        network.cores[one]._mesh._follow(frozenset(others) - frozenset(near))
        if not chance.randrange(3):
            network.cut(*chance.choice(["AB", "BC", "CD", "DE", "EF"]))
        network.run(us=chance.choice([1_000, 400_000, 3_000_000]))
    network.run(us=10_000_000)
    links = {
        name: {*core._links.links, *core._mesh.outgoing, *core._mesh.incoming}
        for name, core in network.cores.items()
    }
    assert any(len(reached) > 2 for reached in links.values()), "there are soft links"
    for name, core in network.cores.items():
        for party in (*core._links.links.values(), *core._soft.all()):
            assert party.reaches == links[party.name] - {name}

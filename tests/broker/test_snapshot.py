"""Is a snapshot a value that can be compared, shown and sent, and does it keep secrets?"""

from __future__ import annotations

import msgspec

from braid.broker.snapshot import BrokerSnapshot
from braid.protocol.messages import Subscribe
from tests.broker.test_invariants import busy_network
from tests.broker.wire import Network


def test_it_shows_who_is_there_and_who_waits() -> None:
    snapshot = busy_network().cores["A"].snapshot()
    assert [link.name for link in snapshot.links] == ["B"]
    assert snapshot.links[0].stage == "open"
    assert {client.name: client.behind for client in snapshot.clients}["slow"]
    assert any("slow" in reason for client in snapshot.clients for reason in client.withheld)
    assert [log.key for log in snapshot.store.logs] == ["anonymous/log"]
    assert snapshot.store.logs[0].safe_offset == snapshot.store.logs[0].next_offset == 3


def test_two_of_the_same_moment_are_equal_and_later_ones_are_not() -> None:
    network = Network()
    core = network.start("A")
    network.run(us=100_000)
    before = core.snapshot()
    assert before == core.snapshot()
    network.client("c", "A").publish({"x": 1})
    network.run(us=100_000)
    assert core.snapshot() != before
    assert before.counters.published == 0, "it does not change with the broker"


def test_it_can_be_sent() -> None:
    snapshot = busy_network().cores["A"].snapshot()
    sent = msgspec.json.encode(snapshot)
    assert msgspec.json.decode(sent)["links"][0]["name"] == "B"
    assert isinstance(snapshot, BrokerSnapshot)


def test_who_waits_for_a_missing_link_is_named_with_it() -> None:
    network = Network()
    network.start("A")
    network.start("B", neighbours=("A",))
    network.run(us=2_000_000)
    network.hole("A", "B")
    network.cut("A", "B")
    network.run(us=100_000)
    network.client("late", "A").ask(Subscribe(1, "1", "n > 0"))
    network.run(us=100_000)
    waiting = network.cores["A"].snapshot().waiting
    assert [wait.waits_for for wait in waiting] == [("A to B",)]
    assert waiting[0].who.startswith("late: a client's subscription")


def test_it_names_no_session() -> None:
    """Whoever knows the name of a session can go on with it."""
    network = busy_network()
    core = network.cores["A"]
    assert core._links.links["B"].agreed
    assert core._links.links["B"].agreed.encode() not in msgspec.json.encode(core.snapshot())

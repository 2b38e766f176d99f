"""Is a publication settled that its publisher has sent to two brokers, when the copies meet?

A publisher whose broker falls silent goes to another one and sends again what it has no receipt for. The
first broker may have it, too, and pass it on when it wakes. Each of the two then has a copy from the other, a
repetition of what it passed on itself.
"""

from __future__ import annotations

import pytest

from braid.protocol.messages import Subscribe, SubscribeDurable
from tests.broker.wire import Network


@pytest.mark.parametrize("names", ["AB", "ABC", "ABCD"])
@pytest.mark.parametrize("durable", [False, True])
def test_copies_that_cross_wait_for_each_other_in_no_circle(names: str, durable: bool) -> None:
    network = Network()
    for place, name in enumerate(names):
        network.start(name, neighbours=names[place - 1 : place] if place else (), store=True)
    network.run(us=1_000_000)
    readers = [network.client(f"reader{name}", name) for name in names]
    for reader in readers:
        reader.ask(SubscribeDurable(1, reader.name, "n >= 0") if durable else Subscribe(1, "1", "n >= 0"))
    network.run(us=1_000_000)
    former = network.client("p", names[0])
    latter = network.client("p", names[-1])
    for publisher in (former, latter):
        publisher.publish({"n": 1}, acknowledged=True)
        publisher.publish({"n": 2}, {"n": 3}, acknowledged=True)
    network.run(us=3_000_000)
    for reader in readers:
        rows = [row for _, _, row in reader.stored] if durable else reader.publications
        assert [row.attributes["n"] for row in rows] == [1, 2, 3]
    assert former.channel.idle
    assert latter.channel.idle


def test_who_asks_with_a_repetition_still_waits_for_everybody_behind() -> None:
    """The copy of the far broker is settled by those behind, not by the mere fact that it is known."""
    network = Network()
    for name, neighbours in (("A", ""), ("B", "A"), ("C", "B")):
        network.start(name, neighbours=neighbours, store=True)
    network.run(us=1_000_000)
    readers = {name: network.client(f"reader{name}", name) for name in "AC"}
    for reader in readers.values():
        reader.ask(Subscribe(1, "1", "n >= 0"))
    network.run(us=1_000_000)
    readers["C"].settles = False
    former, latter = network.client("p", "A"), network.client("p", "B")
    for publisher in (former, latter):
        publisher.publish({"n": 1}, acknowledged=True)
    network.run(us=3_000_000)
    assert not former.channel.idle
    assert not latter.channel.idle
    readers["C"].settles = True
    readers["C"].receive([])
    network.run(us=3_000_000)
    assert former.channel.idle
    assert latter.channel.idle


@pytest.mark.parametrize("names", ["AB", "ABCD"])
def test_a_job_that_is_tried_again_elsewhere_waits_for_what_its_first_run_is_not_safe_of(names: str) -> None:
    """The second run gives the same name and numbers, and knows nothing of what became of the first."""
    network = Network()
    for place, name in enumerate(names):
        network.start(name, neighbours=names[place - 1 : place] if place else (), store=True)
    network.run(us=1_000_000)
    network.client("reader", "A").ask(SubscribeDurable(1, "log", "n >= 0"))
    watcher = network.client("watcher", names[-1])
    watcher.ask(Subscribe(1, "1", "n >= 0"))
    network.run(us=1_000_000)
    network.frozen_stores.add("A")
    first = network.client("p", "A")
    first.publish({"n": 1}, {"n": 2}, acknowledged=True)
    network.run(us=1_000_000)
    network.leave(first)
    assert watcher.values("n") == [1, 2]
    second = network.client("p", names[-1])
    second.publish({"n": 1}, {"n": 2}, {"n": 3}, acknowledged=True)
    network.run(us=3_000_000)
    assert second.cares == [], "the log at A has nothing yet"
    network.kill("A")
    network.frozen_stores.clear()
    network.start("A")
    network.run(us=10_000_000)
    assert second.cares == [1, 2, 3]
    reader = network.client("reader", "A")
    reader.ask(SubscribeDurable(2, "log", ""))
    network.run(us=1_000_000)
    assert [row.attributes["n"] for _, _, row in reader.stored] == [1, 2, 3]
    assert watcher.values("n") == [1, 2, 3]

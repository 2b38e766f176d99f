"""Do the limits of a principal hold, however often it connects again?"""

from __future__ import annotations

from braid.broker.access import AccessPolicy, Grant, Limits, Principal, hashed_token
from braid.protocol.inputs import Reconfigured
from braid.protocol.log import Retention
from braid.protocol.memory_store import MemoryStore
from braid.protocol.messages import (
    Acknowledge,
    Done,
    DropDurable,
    Failed,
    PublishRefused,
    Refused,
    Replay,
    Subscribe,
    SubscribeDurable,
    Unsubscribe,
    Welcome,
)
from tests.broker.wire import Network, WireClient


def world(**limits: int) -> Network:
    """A broker that knows anna, who has these limits, and otto, who has the usual ones."""
    principals = {
        "anna": Principal("anna", Grant.everything(), Limits(**limits)),
        "otto": Principal("otto", Grant.everything()),
    }
    network = Network()
    access = AccessPolicy(principals=principals, tokens={hashed_token(name): name for name in principals})
    network.start("A", store=True, access=access)
    network.run(us=1_000_000)
    return network


def refusals(client: WireClient) -> list[str]:
    return [answer.code for answer in client.answers(Failed)]


def test_subscriptions_are_counted_over_all_connections_and_durable_ones_whether_read_or_not():
    network = world(subscriptions_max=5)
    made = 0
    for number in range(10):
        client = network.client(f"anna-{number}", "A", token="anna")
        client.ask(SubscribeDurable(1, f"log-{number}", "TRUE"))
        network.run(us=100_000)
        made += len(client.answers(Done))
        network.leave(client)
        network.run(us=100_000)
    assert made == 5
    first = network.client("anna", "A", token="anna")
    first.ask(DropDurable(1, "log-0"))
    first.ask(DropDurable(2, "log-1"))
    first.ask(Subscribe(3, "1", "TRUE"))
    second = network.client("anna again", "A", token="anna")
    second.ask(Subscribe(1, "1", "TRUE"))
    second.ask(Subscribe(2, "2", "TRUE"))
    network.run(us=100_000)
    assert refusals(first) == []
    assert refusals(second) == ["limit"]
    # What was taken back, or whose client has gone, counts no more.
    first.ask(Unsubscribe(4, "1"))
    network.run(us=100_000)
    second.ask(Subscribe(3, "3", "TRUE"))
    network.run(us=100_000)
    network.leave(second)
    network.run(us=100_000)
    third = network.client("anna once more", "A", token="anna")
    third.ask(Subscribe(1, "1", "TRUE"))
    third.ask(Subscribe(2, "2", "TRUE"))
    third.ask(Subscribe(3, "3", "TRUE"))
    network.run(us=100_000)
    assert refusals(third) == ["limit"]
    other = network.client("otto", "A", token="otto")
    other.ask(Subscribe(1, "1", "TRUE"))
    network.run(us=100_000)
    assert refusals(other) == []


def test_durable_subscriptions_count_after_a_restart():
    network = world(subscriptions_max=2)
    client = network.client("anna", "A", token="anna")
    client.ask(SubscribeDurable(1, "log-1", "TRUE"))
    client.ask(SubscribeDurable(2, "log-2", "TRUE"))
    network.run(us=100_000)
    network.kill("A")
    network.start("A")
    network.run(us=2_000_000)
    again = network.client("anna", "A", token="anna")
    again.ask(SubscribeDurable(1, "log-3", "TRUE"))
    again.ask(SubscribeDurable(2, "log-1", ""))
    network.run(us=100_000)
    assert refusals(again) == ["limit"]
    assert len(again.answers(Done)) == 1


def test_connections_come_at_a_bounded_rate():
    network = world(connections_per_second_max=3)
    welcomed = 0
    for number in range(10):
        client = network.client(f"anna-{number}", "A", token="anna")
        welcomed += len(client.answers(Welcome))
        if client.answers(Refused):
            assert client.answers(Refused)[0].code == "limit"
        network.leave(client)
        network.run()
    assert welcomed == 3
    assert network.client("otto", "A", token="otto").answers(Welcome)
    network.run(us=1_100_000)
    assert network.client("anna", "A", token="anna").answers(Welcome)


def test_one_principal_has_only_so_many_publishers_at_a_time():
    network = world(publishers_max=3)
    for number in range(3):
        client = network.client(f"anna-{number}", "A", token="anna")
        client.publish({"n": 1})
        network.run(us=10_000)
        assert client.answers(PublishRefused) == []
        network.leave(client)
        network.run(us=10_000)
    late = network.client("anna-late", "A", token="anna")
    late.publish({"n": 1}, acknowledged=True)
    network.run(us=10_000)
    (refusal,) = late.answers(PublishRefused)
    assert (refusal.code, refusal.sequences) == ("limit", [1])
    known = network.client("anna-1", "A", token="anna")
    known.sequence = 1
    known.publish({"n": 2})
    other = network.client("otto", "A", token="otto")
    other.publish({"n": 1})
    network.run(us=10_000)
    assert known.answers(PublishRefused) == other.answers(PublishRefused) == []
    # A name that has been silent for long gives its place away.
    network.run(us=700_000_000)
    later = network.client("anna-later", "A", token="anna")
    later.publish({"n": 1})
    network.run(us=10_000)
    assert later.answers(PublishRefused) == []


def fill(network: Network, first: int, count: int, size: int = 100) -> None:
    till = network.client("otto", "A", token="otto")
    till.sequence = first
    for n in range(first, first + count):
        till.publish({"n": n, "text": "x" * size}, acknowledged=True)
    network.run(us=1_000_000)
    network.leave(till)
    network.run(us=10_000)


def test_a_principal_stores_only_so_many_rows():
    network = world(stored_rows_max=10)
    anna = network.client("anna", "A", token="anna")
    anna.ask(SubscribeDurable(1, "log-1", "n >= 0"))
    anna.ask(SubscribeDurable(2, "log-2", "n >= 20"))
    network.run(us=10_000)
    network.leave(anna)
    fill(network, 0, 40)
    logs = network.stores["A"].state().logs
    assert sum(log.next_offset - log.first_offset for log in logs) <= 10
    # The newest rows are there, and a reader goes on with them.
    again = network.client("anna", "A", token="anna")
    again.ask(SubscribeDurable(1, "log-2", ""))
    network.run(us=100_000)
    assert again.stored[-1][2].attributes["n"] == 39
    assert any(note.what == "rows were dropped: their owner stores too much" for _, note in network.notes)


def test_a_principal_stores_only_so_many_bytes_also_after_a_restart():
    network = world(stored_bytes_max=5_000)
    anna = network.client("anna", "A", token="anna")
    anna.ask(SubscribeDurable(1, "log", "n >= 0"))
    network.run(us=10_000)
    network.leave(anna)
    fill(network, 0, 30)
    assert network.stores["A"].state().logs[0].bytes <= 5_000
    network.kill("A")
    network.start("A")
    network.run(us=2_000_000)
    fill(network, 30, 30)
    (log,) = network.stores["A"].state().logs
    assert log.bytes <= 5_000
    assert log.next_offset == 60
    reader = network.client("anna", "A", token="anna")
    reader.ask(Replay(1, "log", 0, -1))
    network.run(us=100_000)
    assert reader.stored[-1][1] == 59
    reader.ask(SubscribeDurable(2, "log", ""))
    network.run(us=100_000)
    reader.ask(Acknowledge("log", 59))
    network.run(us=100_000)
    assert network.stores["A"].state().logs[0].acknowledged_offset == 59


def test_what_a_sweep_removed_does_not_count():
    network = world(stored_rows_max=20)
    network.stores["A"] = store = MemoryStore(retention=Retention(bytes_max=1))
    network.kill("A")
    network.start("A")
    network.run(us=2_000_000)
    anna = network.client("anna", "A", token="anna")
    anna.ask(SubscribeDurable(1, "log", "n >= 0"))
    network.run(us=10_000)
    network.leave(anna)
    fill(network, 0, 15)
    network.sweep("A")
    assert store.state().logs[0].first_offset == 15
    fill(network, 15, 15)
    assert store.state().logs[0].first_offset == 15


def test_a_log_remembers_only_so_many_publishers_in_memory_and_in_the_store():
    network = Network()
    network.start("A", store=True, log_publishers_max=10)
    anna = network.client("anna", "A")
    anna.ask(SubscribeDurable(1, "log", "TRUE"))
    network.run(us=10_000)
    for number in range(30):
        client = network.client(f"client-{number}", "A")
        client.publish({"n": number}, acknowledged=True)
        network.run(us=10_000)
        network.leave(client)
    network.run(us=100_000)
    (log,) = network.stores["A"].state().logs
    assert len(log.highest) == 10
    assert set(log.recent) <= set(log.highest)
    assert len(anna.stored) == 30
    # The latest are those that are remembered, also after a restart.
    network.kill("A")
    network.start("A")
    network.run(us=2_000_000)
    for number in (29, 30):
        client = network.client(f"client-{number}", "A")
        client.publish({"n": number}, acknowledged=True)
        network.run(us=100_000)
        assert client.cares == [1]
    (log,) = network.stores["A"].state().logs
    assert log.next_offset == 31
    assert len(log.highest) == 10


def test_a_store_that_remembers_more_publishers_than_it_may_is_pruned_at_the_start():
    network = Network()
    network.start("A", store=True)
    anna = network.client("anna", "A")
    anna.ask(SubscribeDurable(1, "log", "TRUE"))
    network.run(us=10_000)
    for number in range(20):
        client = network.client(f"client-{number}", "A")
        client.publish({"n": number})
        network.run(us=10_000)
    network.kill("A")
    network.settings["A"] = type(network.settings["A"])(broker_id="A", address="A", log_publishers_max=5)
    network.start("A")
    network.run(us=2_000_000)
    (log,) = network.stores["A"].state().logs
    assert set(log.highest) == {f"client-{number}" for number in range(15, 20)}


def test_a_limit_that_is_lowered_while_the_broker_runs_counts_at_once():
    network = world()
    anna = network.client("anna", "A", token="anna")
    anna.ask(SubscribeDurable(1, "log", "n >= 0"))
    network.run(us=10_000)
    fill(network, 0, 40)
    principals = {
        "anna": Principal("anna", Grant.everything(), Limits(stored_rows_max=10)),
        "otto": Principal("otto", Grant.everything()),
    }
    access = AccessPolicy(principals=principals, tokens={hashed_token(name): name for name in principals})
    network.tell("A", Reconfigured(access=access))
    network.run(us=1_000_000)
    (log,) = network.stores["A"].state().logs
    assert (log.next_offset, log.next_offset - log.first_offset <= 10) == (40, True)

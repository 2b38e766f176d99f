"""Does a broker notice when its own state does not fit together?

Each test plants one inconsistency into a broker that has links, clients, logs and something that waits, and
expects `validate` to name it. What is never planted is shown elsewhere: every test that drives brokers by
`wire.Network` validates them after every turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from braid.broker.confirmations import Installation
from braid.broker.lost_logs import Peer, _Fetch
from braid.broker.settling import Pending, WaitingFor
from braid.broker.story import LENGTH_MAX
from braid.broker.waiters import Waiter, WaiterKind
from braid.errors import InvariantViolated
from braid.protocol.messages import Done, Subscribe, SubscribeDurable
from tests.broker.test_log_copies import head_of_nothing, keeper_of, publish, reading, star
from tests.broker.wire import Network, WireClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from braid.broker.core import BrokerCore


def busy_network() -> Network:
    """A and B are linked; at A somebody reads, somebody is slow, and somebody publishes."""
    network = Network()
    network.start("A", store=True, client_queue_bytes_max=2_000)
    network.start("B", neighbours=("A",))
    network.run(us=2_000_000)
    reader = network.client("reader", "A")
    reader.ask(Subscribe(1, "1", "n > 0"))
    reader.ask(SubscribeDurable(2, "log", "n > 5"))
    slow = network.client("slow", "A", credit=600)
    slow.ask(Subscribe(1, "1", "n > 0"))
    network.run(us=100_000)
    slow.reads = False
    writer = network.client("writer", "A")
    far = network.client("far", "B")
    far.ask(Subscribe(1, "1", "n > 0"))
    network.run(us=100_000)
    for number in range(1, 9):
        writer.publish({"n": number, "pad": "x" * 500}, acknowledged=True)
    network.run(us=100_000)
    # One neighbour has heard nothing of the last subscription yet, and so it is not answered.
    network.hold("A", "B")
    WireClient(network, "late", "B").ask(Subscribe(1, "1", "m > 0"))
    reader.ask(Subscribe(3, "3", "n < 0"))
    network.run()
    return network


def _first(clients: Any, name: str) -> Any:
    return next(client for client in clients if client.name == name)


def _client(core: BrokerCore, name: str) -> Any:
    return _first(core._connections.clients, name)


def _link(core: BrokerCore) -> Any:
    return core._links.links["B"]


def _break_sent(core: BrokerCore) -> None:
    _link(core).channel._sent += 1


def _break_waiting_bytes(core: BrokerCore) -> None:
    _client(core, "slow").channel.waiting_bytes -= 1


def _break_class_bytes(core: BrokerCore) -> None:
    channel = _client(core, "slow").channel
    next(each for each in channel._sending.values() if each.waiting).waiting_bytes += 7


def _break_unsettled_bytes(core: BrokerCore) -> None:
    _client(core, "slow").channel.unsettled_bytes += 1


def _break_unacknowledged(core: BrokerCore) -> None:
    _client(core, "slow").channel.unacknowledged_bytes += 1


def _break_order(core: BrokerCore) -> None:
    channel = _client(core, "slow").channel
    next(each for each in channel._sending.values() if len(each.waiting) > 1).waiting.rotate(1)


def _break_care(core: BrokerCore) -> None:
    _link(core).channel._cares[10_000] = lambda: None


def _break_window(core: BrokerCore) -> None:
    _client(core, "writer").channel._plain_receiving.granted += 1 << 30


def _break_connection(core: BrokerCore) -> None:
    _client(core, "reader").connection = 4711


def _break_hold(core: BrokerCore) -> None:
    """The credit of a held up publisher is returned behind the bottleneck's back."""
    writer = _client(core, "writer")
    for reason, number in writer.channel.holds():
        writer.channel.release_credit(reason, number)


def _break_release(core: BrokerCore) -> None:
    """A bottleneck forgets whom it holds up: credit that would never return."""
    slow = _client(core, "slow")
    next(each for each in slow.destinations.values() if each.bottleneck.held_up).bottleneck.held_up.clear()


def _break_behind(core: BrokerCore) -> None:
    slow = _client(core, "slow")
    next(each for each in slow.destinations.values() if each.bottleneck.held_up).behind_since_us = None


def _break_drain(core: BrokerCore) -> None:
    _link(core).channel.hold_credit("draining")


def _break_unknown_reason(core: BrokerCore) -> None:
    _link(core).channel.hold_credit("no such reason")


def _break_holding(core: BrokerCore) -> None:
    core._links.holding += 1


def _break_session(core: BrokerCore) -> None:
    """The session of a link is forgotten, and its stage is not."""
    _link(core).agreed = ""


def _break_openness(core: BrokerCore) -> None:
    """A channel holds publications back although the link is open."""
    _link(core).channel.holding = not _link(core).channel.holding


def _break_stage(core: BrokerCore) -> None:
    """A link is connected without a connection."""
    _link(core).connection = None


def _break_client(core: BrokerCore) -> None:
    """A client that was not sent away has no connection."""
    _client(core, "writer").connection = None


def _break_tables(core: BrokerCore) -> None:
    core._subscriptions.tables.remove_link("B")


def _break_confirmation(core: BrokerCore) -> None:
    """What a neighbour was told is forgotten, so that its confirmation means nothing."""
    _link(core).outstanding._keys.clear()
    _link(core).outstanding.told_subscription("A/x", 99)
    _link(core).outstanding._keys.clear()


def _break_installation(core: BrokerCore) -> None:
    """Somebody waits for an answer that nobody is going to give."""
    installations = core._subscriptions.installations
    waiting = Installation("A/x", None, Waiter(WaiterKind.UNASKED_SUBSCRIPTION))
    installations._by_key["A/x"] = [waiting]


def _break_parked(core: BrokerCore) -> None:
    installations = core._subscriptions.installations
    waiting = Installation("A/x", None, Waiter(WaiterKind.UNASKED_SUBSCRIPTION))
    installations._parked[waiting] = None


def _break_settlement(core: BrokerCore) -> None:
    """A frame is waited for that is settled already."""
    line = _client(core, "writer").line
    pending = Pending(WaitingFor.FRAME)
    pending.shares = 0
    line.waiting[line._channel.received] = pending


def _break_share(core: BrokerCore) -> None:
    """A neighbour has more copies than are waited for: its answers would settle those of others."""
    next(iter(_client(core, "writer").line.waiting.values())).toward[_link(core)] = 9


def _break_subscription(core: BrokerCore) -> None:
    """A client's subscription is not in the tables."""
    _client(core, "reader").subscriptions["lost"] = "A/nowhere/lost"


def _break_quota(core: BrokerCore) -> None:
    core._turn.quotas.subscribed(_client(core, "reader").principal)


def _break_log(core: BrokerCore) -> None:
    log = next(iter(core._durables.logs.values()))
    log.acknowledged = log.next_offset


def _break_reader(core: BrokerCore) -> None:
    _client(core, "reader").logs.clear()


def _break_unsafe(core: BrokerCore) -> None:
    core._durables.unsafe_bytes += 5


def _break_telling(core: BrokerCore) -> None:
    """Somebody is to be told later, and it is forgotten when."""
    core._turn.tell(_link(core), Done(0))
    core._turn.acknowledge_later(_link(core))
    core._turn.acknowledge_at_us = None


PLANTED: dict[str, tuple[Callable[[BrokerCore], None], str]] = {
    "frames sent": (_break_sent, "frames are kept where"),
    "bytes that wait": (_break_waiting_bytes, "bytes wait"),
    "bytes of a class": (_break_class_bytes, "bytes wait"),
    "bytes not settled": (_break_unsettled_bytes, "bytes are not settled"),
    "bytes under way": (_break_unacknowledged, "bytes are under way"),
    "order in a line": (_break_order, "does not stand first"),
    "waiting for what is not kept": (_break_care, "which is not kept"),
    "more credit than a window": (_break_window, "where the window has"),
    "a connection of nobody": (_break_connection, "connection 4711"),
    "credit returned too early": (_break_hold, "has credit"),
    "credit never returned": (_break_release, "which does not know it"),
    "holding up without being behind": (_break_behind, "is not behind"),
    "a drain that has not begun": (_break_drain, "drain that has not begun"),
    "credit held for no reason": (_break_unknown_reason, "nobody knows"),
    "links that hold": (_break_holding, "hold publications back"),
    "a link without its session": (_break_session, "in the session ''"),
    "a channel that knows better": (_break_openness, "its channel does the other"),
    "a stage without a connection": (_break_stage, "has the connection None"),
    "a client without a connection": (_break_client, "has the connection None"),
    "tables without a link": (_break_tables, "tables know"),
    "a confirmation forgotten": (_break_confirmation, "wait for the requests"),
    "an answer never given": (_break_installation, "waits for nobody"),
    "waiting for links that are there": (_break_parked, "none is missing"),
    "waiting for what is settled": (_break_settlement, "still waited for"),
    "more shares than there are": (_break_share, "brokers have"),
    "a subscription not installed": (_break_subscription, "tables do not know"),
    "quotas": (_break_quota, "are counted"),
    "offsets of a log": (_break_log, "goes on at"),
    "a reader unknown": (_break_reader, "does not know it"),
    "bytes lost on the way to the store": (_break_unsafe, "nothing to do"),
    "an acknowledgement without a time": (_break_telling, "nobody says when"),
}


def test_a_busy_broker_is_in_order() -> None:
    network = busy_network()
    core = network.cores["A"]
    core.validate()
    slow = _client(core, "slow")
    assert any(each.bottleneck.held_up for each in slow.destinations.values()), "somebody is held up"
    assert any(len(each.waiting) > 1 for each in slow.channel._sending.values()), "something waits"


@pytest.mark.parametrize("what", PLANTED)
def test_an_inconsistency_is_named(what: str) -> None:
    plant, named = PLANTED[what]
    core = busy_network().cores["A"]
    plant(core)
    with pytest.raises(InvariantViolated, match=named) as caught:
        core.validate()
    assert any("brings" in line for line in caught.value.story), "it tells what happened last"


# What neighbours keep, what is found by publications, and what waits while tables are rebuilt.


def copying_network() -> Network:
    """A in the middle of B, C and D; one of them keeps a log of A, and acknowledged publications wait."""
    network = star()
    reading(network)
    publish(network, "A", range(1, 6))
    network.run(us=2_000_000)
    network.hold("A", keeper_of(network))
    publish(network, "A", range(6, 8))
    network.run(us=100_000)
    return network


def _copying(core: BrokerCore) -> Any:
    return next(iter(core._durables.logs.values())).copying


def _break_keeper(core: BrokerCore) -> None:
    _copying(core).keeper = "Z"


def _break_copied(core: BrokerCore) -> None:
    _copying(core).copied = 8


def _break_copied_unnoticed(core: BrokerCore) -> None:
    """Somebody waits for rows that are copied: a receipt that never comes."""
    _copying(core).copied = 7


def _break_peer(core: BrokerCore) -> None:
    core._durables.lost.peers["Z"] = Peer()


def _break_fetch(core: BrokerCore) -> None:
    lost, (log,) = core._durables.lost, core._durables.logs.values()
    lost._fetches[log.key] = _Fetch(log, head_of_nothing(), "Z", 0)


def _break_unsettled(core: BrokerCore) -> None:
    """What is settled is found by its publications: repetitions of them would wait for ever."""
    held = next(iter(core._invariants._further[0]._by_publisher.values()))  # type: ignore[attr-defined]
    next(iter(held.values())).shares = 0


def _break_cache(core: BrokerCore) -> None:
    core._resumptions.cache._bytes = 5


def _break_watching(core: BrokerCore) -> None:
    core._ways.watched = True


def _break_exchange(core: BrokerCore) -> None:
    core._exchanges.next_us = 4711


def _break_out_of_sight(core: BrokerCore) -> None:
    core._invariants._further[-1]._out_of_sight_bytes = 9  # type: ignore[attr-defined]


FURTHER: dict[str, tuple[Callable[[BrokerCore], None], str]] = {
    "a keeper that is no neighbour": (_break_keeper, "is kept by Z"),
    "rows copied that are not there": (_break_copied, "is copied to 8"),
    "rows copied and waited for": (_break_copied_unnoticed, "somebody waits for less"),
    "a keeper that has gone": (_break_peer, "Z is no neighbour"),
    "a log fetched from nowhere": (_break_fetch, "is fetched from Z"),
    "found although it is settled": (_break_unsettled, "is settled, and is found"),
    "bytes kept for late subscriptions": (_break_cache, "late subscriptions"),
    "looking at publications for nothing": (_break_watching, "for no reason"),
    "an exchange that is not": (_break_exchange, "looked at again at 4711"),
    "bytes out of sight": (_break_out_of_sight, "are out of sight"),
}


@pytest.mark.parametrize("what", FURTHER)
def test_an_inconsistency_of_copies_and_rebuilt_tables_is_named(what: str) -> None:
    plant, named = FURTHER[what]
    core = copying_network().cores["A"]
    core.validate()
    plant(core)
    with pytest.raises(InvariantViolated, match=named):
        core.validate()


def test_a_copy_with_impossible_offsets_is_named() -> None:
    network = copying_network()
    core = network.cores[keeper_of(network)]
    core.validate()
    (copy,) = core._durables.kept_copies._copies.values()
    copy.first = copy.next + 1
    with pytest.raises(InvariantViolated, match="has rows from 6 to 5"):
        core.validate()


def test_a_story_is_bounded_and_keeps_nothing_alive() -> None:
    network = Network()
    core = network.start("A")
    client = network.client("c", "A")
    for number in range(3 * LENGTH_MAX):  # single publications that are passed on would not be in it
        client.ask(Subscribe(number, str(number), f"n > {number}"))
        network.run()
    lines = core._story.lines()
    assert len(lines) == LENGTH_MAX
    assert all(len(line) < 400 for line in lines)

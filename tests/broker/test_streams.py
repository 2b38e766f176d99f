"""Does a subscription that falls behind get a stream of its own, without losing its place?"""

from __future__ import annotations

from random import Random

import pytest

from braid.language import Filter
from braid.protocol.incoming import STREAM_FIRST, STREAMS_MAX
from braid.protocol.messages import Done, Failed, Separate, Subscribe
from tests.broker.session_client import SessionClient
from tests.broker.wire import Network

FILTERS = ("n >= 0", "n % 2 = 0", "n % 3 = 0", "n % 5 < 3")
WINDOW = 1_500


def wanted(number: int, count: int) -> list[int]:
    rule = Filter(FILTERS[number])
    return [n for n in range(count) if rule.matches({"n": n})]


@pytest.mark.parametrize("breaks", [False, True], ids=["", "with broken connections"])
@pytest.mark.parametrize("seed", range(12))
def test_each_gets_everything_once_and_in_order_however_slowly_it_reads(seed: int, breaks: bool) -> None:
    chance = Random(f"streams/{seed}/{breaks}")
    network = Network()
    network.start("A", client_queue_bytes_max=chance.choice([200, 3_000, 60_000]))
    network.run(us=1_000_000)
    reader = SessionClient(network, "reader", "A", WINDOW)
    interests = [
        reader.session.requests.subscribe(Filter(text), "block", chance.choice([1, 3, 10]))
        for text in FILTERS
    ]
    reader.act()
    network.run()
    publishers = [network.client(name, "A") for name in ("p", "q")]
    found: list[list[int]] = [[] for _ in interests]
    published = broken = 0
    speed = [chance.choice([0, 1, 2, 50]) for _ in interests]
    separated = 0
    for _ in range(120):
        step = chance.random()
        if step < 0.5:
            # One publisher only, so that there is one order for all.
            for _ in range(chance.choice([1, 1, 20])):
                rows = [{"n": published + row, "pad": "x" * chance.choice([1, 100])} for row in range(3)]
                publishers[0].publish(*rows, acknowledged=chance.random() < 0.5)
                published += 3
        elif step < 0.9:
            number = chance.randrange(len(interests))
            found[number] += reader.take(interests[number], speed[number])
            if chance.random() < 0.1:
                speed[number] = chance.choice([0, 1, 2, 50])
        elif breaks and step < 0.92 and reader.open:
            broken += 1
            network.leave(reader)
        network.run(us=chance.choice([0, 30_000]))
        separated += any(interest.stream for interest in interests)
        reader.tick()
        network.run()
    for _ in range(2_000):
        for number, interest in enumerate(interests):
            found[number] += reader.take(interest, 1_000)
        network.run(us=30_000)
        reader.tick()
        network.run()
        waiting = any(interest.queue or interest.dormant for interest in interests)
        if publishers[0].channel.idle and reader.session.live and not waiting:
            break
    assert publishers[0].channel.idle, "whoever publishes gets on when everything is read"
    for number, interest in enumerate(interests):
        assert found[number] == sorted(set(found[number])), f"{FILTERS[number]}: doubled or out of order"
        if broken:
            assert set(found[number]) <= set(wanted(number, published))
        else:
            assert found[number] == wanted(number, published)
        assert not interest.line
    if not broken:
        assert separated or published < 100, "nobody ever fell behind"
    # What is published now reaches all of them, also those that had to be read before they went on.
    publishers[1].publish({"n": 30 * published})
    network.run()
    assert [reader.take(interest, 9) for interest in interests] == [[30 * published]] * len(interests)


def test_a_stream_that_is_not_read_is_given_up_and_its_client_goes_on() -> None:
    network = Network()
    network.start("A", client_queue_bytes_max=64 * 300, stall_us_max=2_000_000)
    network.run(us=1_000_000)
    reader = SessionClient(network, "reader", "A", 2_000)
    unread = reader.session.requests.subscribe(Filter("topic = 'a'"), "block", 1)
    read = reader.session.requests.subscribe(Filter("topic = 'b'"), "block", 10)
    reader.act()
    network.run()
    flooding, other = network.client("flooding", "A"), network.client("other", "A")
    for number in range(60):
        flooding.publish({"topic": "a", "n": number, "pad": "x" * 100})
        network.run()
    (party,) = [each for each in network.cores["A"]._connections.clients if each.name == "flooding"]
    assert party.channel.withheld, "its publisher is held up"
    before = 0
    for number in range(10):
        other.publish({"topic": "b", "n": number}, acknowledged=True)
        network.run(us=500_000)
        reader.tick()
        network.run()
        before += len(reader.take(read, 10))
    assert before == 10
    assert reader.open, "the client goes on"
    assert other.channel.idle
    assert unread.dormant
    assert not party.channel.withheld
    dropped = network.cores["A"].statistics()["counters"]["dropped"]
    assert dropped > 0
    # When what has come is read, it is subscribed again.
    assert reader.take(unread, 1_000) == list(range(60 - dropped))
    network.run()
    flooding.publish({"topic": "a", "n": 1000})
    network.run()
    assert reader.take(unread, 1) == [1000]


def test_streams_that_cannot_be_are_refused() -> None:
    network = Network()
    network.start("A")
    network.run(us=1_000_000)
    client = network.client("eve", "A")
    client.ask(Subscribe(1, "1", "TRUE"))
    network.run()
    client.ask(Separate(2, "2", STREAM_FIRST))
    client.ask(Separate(3, "1", STREAM_FIRST - 1))
    client.ask(Separate(4, "1", STREAM_FIRST + STREAMS_MAX))
    client.ask(Separate(5, "1", STREAM_FIRST))
    client.ask(Separate(6, "1", STREAM_FIRST + 1))
    network.run()
    assert [message.request for message in client.answers(Failed)] == [2, 3, 4, 6]
    assert [message.request for message in client.answers(Done)] == [1, 5]


def test_what_waits_is_not_copied_without_bound() -> None:
    network = Network()
    network.start("A", client_queue_bytes_max=100_000)
    network.run(us=1_000_000)
    eve = network.client("eve", "A", credit=1_000)
    for number in range(STREAMS_MAX):
        eve.ask(Subscribe(number + 1, str(number), "TRUE"))
    network.run()
    eve.reads = False
    publisher = network.client("p", "A")
    for number in range(60):
        publisher.publish({"n": number, "pad": "x" * 1_500})
    network.run()
    for number in range(STREAMS_MAX):
        eve.ask(Separate(1_000 + number, str(number), STREAM_FIRST + number))
    network.run()
    (party,) = [each for each in network.cores["A"]._connections.clients if each.name == "eve"]
    assert party.channel.waiting_bytes <= 5 * 100_000

"""Can every filter that was accepted be read back by whoever is told of it, and does nobody else suffer?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from braid.broker.access import AccessPolicy, Grant, Limits, Principal, hashed_token
from braid.language import Filter
from braid.protocol import Frame
from braid.protocol.messages import (
    Advertise,
    Done,
    DropDurable,
    Failed,
    Replay,
    Subscribe,
    SubscribeDurable,
)
from tests.broker.wire import Network, WireClient

# Written in 2,665 characters; its canonical text once had 1,360,892.
MULTIPLIES = " AND ".join(f"({'n' * 123}{row} = 1 OR {'m' * 123}{row} = 1)" for row in range(10))
SATISFIES = {f"{'n' * 123}{row}": 1 for row in range(10)}
# Near the limit on the length of a filter; once 30 MB.
LARGE = " OR ".join(
    "(" + " AND ".join(f"(x{part}_{row} = 1 OR y{part}_{row} = 1)" for row in range(10)) + ")"
    for part in range(170)
)


def line(*names: str, **settings: Any) -> Network:
    network = Network()
    for name, before in zip(names, ("", *names), strict=False):
        network.start(name, neighbours=(before,) if before else (), **settings)
    network.run(us=1_000_000)
    return network


def subscribed(network: Network, name: str, broker: str, filter: str) -> WireClient:
    client = network.client(name, broker)
    client.ask(Subscribe(1, "1", filter))
    network.run(us=1_000_000)
    return client


@pytest.mark.parametrize("text", [MULTIPLIES, LARGE], ids=["multiplies", "large"])
def test_a_filter_is_told_as_it_was_written(text: str) -> None:
    network = line("A", "B", "C")
    publisher = network.client("p", "A")
    publisher.publish({"q": 1})
    told: list[Subscribe] = []
    network.on_frames = lambda sender, to, frames: told.extend(
        frame.body for frame in frames if isinstance(frame.body, Subscribe)
    )
    subscriber = subscribed(network, "s", "C", text)
    innocent = subscribed(network, "i", "C", "z = 1")
    assert [done.text for done in subscriber.answers(Done)] == [text]
    assert [message.filter for message in told if message.filter != "z = 1"] == [text] * 2
    network.cut("B", "C")
    network.run(us=5_000_000)
    publisher.publish({**SATISFIES, **{f"x7_{row}": 1 for row in range(10)}}, {"z": 1}, acknowledged=True)
    network.run(us=1_000_000)
    assert len(subscriber.publications) == len(innocent.publications) == 1
    assert sum("link up" in note.what for _, note in network.notes) <= 6


def test_an_advertisement_is_told_as_it_was_written() -> None:
    network = line("A", "B")
    subscriber = subscribed(network, "s", "B", "q = 1")
    publisher = network.client("p", "A")
    publisher.ask(Advertise(1, "1", MULTIPLIES))
    network.run(us=1_000_000)
    assert [done.text for done in publisher.answers(Done)] == [MULTIPLIES]
    publisher.publish({**SATISFIES, "q": 1})
    network.run(us=1_000_000)
    assert len(subscriber.publications) == 1


def test_a_durable_filter_is_stored_as_it_was_written() -> None:
    network = Network()
    network.start("A", store=True)
    network.run(us=1_000_000)
    reader = network.client("r", "A")
    reader.ask(SubscribeDurable(1, "log", MULTIPLIES))
    network.run(us=1_000_000)
    assert [done.text for done in reader.answers(Done)] == [MULTIPLIES]
    (log,) = network.stores["A"].state().logs
    assert log.filter_text == MULTIPLIES
    network.kill("A")
    network.start("A")
    network.run(us=1_000_000)
    network.client("p", "A").publish(SATISFIES, acknowledged=True)
    again = network.client("r", "A")
    again.ask(SubscribeDurable(1, "log", ""))
    network.run(us=1_000_000)
    assert [offset for _, offset, _ in again.stored] == [0]


def narrowed(asked: str, granted: str, **limits: int) -> tuple[Network, WireClient]:
    anna = Principal(
        "anna", Grant(None, Filter(granted), narrow=True), Limits(**limits) if limits else Limits()
    )
    network = Network()
    policy = AccessPolicy({"anna": anna}, {hashed_token("secret"): "anna"})
    network.start("A", access=policy)
    network.run(us=1_000_000)
    client = network.client("anna", "A", token="secret")
    client.ask(Subscribe(1, "1", asked))
    network.run(us=1_000_000)
    return network, client


def test_a_narrowed_filter_is_about_as_long_as_both_together() -> None:
    granted = MULTIPLIES.replace("n", "g").replace("m", "h")
    _, client = narrowed(MULTIPLIES, granted)
    (done,) = client.answers(Done)
    assert len(done.text) <= len(MULTIPLIES) + len(granted) + 20
    effective = Filter(done.text)
    assert effective.matches({**SATISFIES, **{f"{'g' * 123}{row}": 1 for row in range(10)}})
    assert not effective.matches(SATISFIES)


@pytest.mark.parametrize("kind", ["subscribe", "advertise", "durable"])
def test_what_cannot_be_carried_is_refused_when_it_is_asked_for(kind: str) -> None:
    # Three bytes for a character: longer on the wire than it looks.
    granted = Filter("s = '" + "\u20ac" * 150_000 + "'")
    anna = Principal("anna", Grant(granted, granted, narrow=True), Limits(filter_length_max=1_000_000))
    network = Network()
    policy = AccessPolicy({"anna": anna}, {hashed_token("secret"): "anna"})
    network.start("A", access=policy, store=True, frame_bytes_max=1 << 20)
    network.run(us=1_000_000)
    client = network.client("anna", "A", token="secret")
    for request, characters in enumerate((150_000, 250_000), 1):
        text = "t = '" + "\u20ac" * characters + "'"
        if kind == "subscribe":
            client.ask(Subscribe(request, str(request), text))
        elif kind == "advertise":
            client.ask(Advertise(request, str(request), text))
        else:
            client.ask(SubscribeDurable(request, f"log {request}", text))
    network.run(us=1_000_000)
    assert [done.request for done in client.answers(Done)] == [1]
    (failed,) = client.answers(Failed)
    assert (failed.request, failed.code) == (2, "limit")
    assert "1,200,021 bytes" in failed.reason


# What cannot be read.


def test_a_log_with_a_filter_that_cannot_be_read_is_set_aside() -> None:
    network = Network()
    network.start("A", store=True)
    network.run(us=1_000_000)
    maker = network.client("r", "A")
    for request, name in enumerate(("broken", "sound"), 1):
        maker.ask(SubscribeDurable(request, name, "a = 1"))
    network.client("p", "A").publish({"a": 1}, acknowledged=True)
    network.run(us=1_000_000)
    network.kill("A")
    store = network.stores["A"]
    key = next(log.name for log in store.state().logs if log.name.endswith("broken"))
    held = store._logs[key]
    held.created = replace(held.created, filter_text="a = 1 OR " * 120_000 + "a = 1")
    network.start("A")
    network.run(us=1_000_000)
    reader = network.client("r", "A")
    reader.ask(SubscribeDurable(1, "sound", ""))
    network.run(us=1_000_000)
    assert [name for name, _, _ in reader.stored] == ["sound"]
    for request, ask in enumerate((SubscribeDurable(2, "broken", ""), Replay(3, "broken", 0)), 2):
        reader.ask(ask)
        network.run(us=1_000_000)
        (failed,) = [each for each in reader.answers(Failed) if each.request == request]
        assert failed.code == "store"
        assert "1,080,005 characters" in failed.reason
        assert "set aside" in failed.reason
    (note,) = [note for _, note in network.notes if "set aside" in note.what]
    assert note.level == "error"
    assert note.fields["log"] == key
    assert network.cores["A"].statistics()["durable_logs_set_aside"] == 1
    # Its rows are kept, and dropping it removes them.
    assert store.read(key, 0, 10, 1 << 20)
    reader.ask(DropDurable(4, "broken"))
    network.run(us=1_000_000)
    assert 4 in [done.request for done in reader.answers(Done)]
    assert key not in [log.name for log in store.state().logs]
    assert network.cores["A"].statistics()["durable_logs_set_aside"] == 0


@pytest.mark.parametrize("verb", ["subscribe", "advertise"])
def test_a_neighbour_that_tells_of_an_unreadable_filter_keeps_its_link(verb: str) -> None:
    network = line("A", "B")
    subscriber = network.client("s", "B")
    publisher = network.client("p", "A")
    publisher.publish({"q": 1})
    network.run(us=1_000_000)

    def lie(sender: str, to: str, frames: list[Frame]) -> None:
        for place, (sequence, body) in enumerate(frames):
            if (
                sender == "B"
                and to == "A"
                and isinstance(body, Subscribe | Advertise)
                and "lie" in body.filter
            ):
                frames[place] = Frame(sequence, _relabelled(body))

    network.on_frames = lie  # type: ignore[assignment]
    if verb == "subscribe":
        subscriber.ask(Subscribe(1, "1", "lie = 1"))
    else:
        subscriber.ask(Advertise(1, "1", "lie = 1"))
    subscriber.ask(Subscribe(2, "2", "z = 1"))
    network.run(us=1_000_000)
    publisher.publish({"z": 1, "lie": 1}, acknowledged=True)
    network.run(us=1_000_000)
    assert subscriber.values("z") == [1]
    if verb == "subscribe":
        (failed,) = subscriber.answers(Failed)
        assert failed.request == 1
        assert "A" in failed.reason
    assert network.cores["A"].statistics()["counters"]["unreadable"] == 1
    assert any("cannot be read" in note.what for name, note in network.notes if name == "A")
    assert sum("link up" in note.what for _, note in network.notes) == 2


def _relabelled(body: Subscribe | Advertise) -> Subscribe | Advertise:
    return msgspec.structs.replace(body, filter="lie = = 1")

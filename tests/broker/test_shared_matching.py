"""Does a network say the same, frame by frame, whether its brokers share their matching or not?"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from braid.language import Range
from braid.matching import SharedMatching
from braid.protocol import PublicationBatch
from braid.protocol.messages import Advertise, Subscribe, SubscribeDurable, Unsubscribe
from tests.broker.wire import Network, WireClient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.protocol import Frame

TEXTS = [
    "price > 10",
    "price > 30",
    "NOT (price <= 30)",
    "price BETWEEN 5 AND 25 OR kind = 'a'",
    "kind LIKE '%b'",
    "price < size",
    "size IS NULL",
    "TRUE",
]


def described(frame: Frame) -> object:
    body = frame.body
    if not isinstance(body, PublicationBatch):
        return frame.sequence, body
    rows = list(zip(body.sequences.tolist(), body.records(), strict=True))
    return frame.sequence, body.publisher, rows, body.flags, body.hops, body.target


def publication(chance: random.Random) -> dict[str, Any]:
    values: dict[str, Any] = {"price": chance.randrange(50), "kind": chance.choice(["a", "b", "ab"])}
    if chance.random() < 0.5:
        values["size"] = chance.randrange(50)
    if chance.random() < 0.2:
        values["price"] = Range(values["price"], values["price"] + 5)
    return values


def everything_sent(seed: int, network: Network, prepare: SharedMatching | None = None) -> list[object]:
    """A random life of a network; the seed decides what happens, whatever the brokers match with."""
    chance = random.Random(f"shared/{seed}")
    sent: list[object] = []

    def remember(sender: str, receiver: str, frames: Sequence[Frame]) -> None:
        sent.extend((sender, receiver, described(frame)) for frame in frames)
        if prepare is not None and chance_of_preparing.random() < 0.3:
            prepare.prepare(frame.body for frame in frames if isinstance(frame.body, PublicationBatch))

    chance_of_preparing = random.Random(seed)
    network.on_frames = remember
    names = [f"B{number}" for number in range(chance.randrange(2, 7))]
    dials = {name: chance.choice(names[:place]) for place, name in enumerate(names) if place}
    for name in names:
        network.start(name, neighbours=(dials[name],) if name in dials else (), store=True)
        network.run(us=300_000)
    clients = [
        network.client(f"c{number}", chance.choice(names), credit=chance.choice([1 << 22, 600]))
        for number in range(4)
    ]
    dead: set[str] = set()
    for request in range(1, 70):
        client = chance.choice(clients)
        fate = chance.random()
        if not client.open:
            if client.broker in network.cores:
                clients[clients.index(client)] = returned(network, client)
        elif fate < 0.2:
            client.ask(Subscribe(request, f"k{chance.randrange(5)}", chance.choice(TEXTS)))
        elif fate < 0.25:
            client.ask(SubscribeDurable(request, f"d{chance.randrange(2)}", chance.choice(TEXTS)))
        elif fate < 0.3:
            client.ask(Unsubscribe(request, f"k{chance.randrange(5)}"))
        elif fate < 0.35:
            client.ask(Advertise(request, "a", chance.choice(TEXTS)))
        elif fate < 0.8:
            some = [publication(chance) for _ in range(chance.choice([1, 1, 1, 2, 5]))]
            client.publish(*some, acknowledged=chance.random() < 0.2)
        elif fate < 0.83 and len(dead) + 1 < len(names):
            victim = chance.choice(sorted(set(names) - dead))
            network.kill(victim)
            dead.add(victim)
        elif fate < 0.9 and dead:
            back = chance.choice(sorted(dead))
            dead.discard(back)
            network.start(back)
        elif fate < 0.94 and dials:
            left = chance.choice(sorted(dials))
            network.cut(left, dials[left])
        if chance.random() < 0.6:
            network.run(us=chance.choice([0, 1000, 50_000, 700_000]))
    network.run(us=10_000_000)
    return sent


def returned(network: Network, client: WireClient) -> WireClient:
    again = network.client(client.name, client.broker)
    again.sequence = client.sequence
    return again


@pytest.mark.parametrize("seed", range(12))
def test_the_same_is_sent_whatever_the_brokers_match_with(seed: int) -> None:
    alone = everything_sent(seed, Network())
    assert any(len(each[2]) > 2 for each in alone), "publications have crossed links"  # type: ignore[index]
    over_the_codec = SharedMatching()
    assert everything_sent(seed, Network(over_the_codec)) == alone
    as_objects = SharedMatching()
    assert everything_sent(seed, Network(as_objects, codec=False), as_objects) == alone

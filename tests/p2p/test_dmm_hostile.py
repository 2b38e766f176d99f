"""Whatever a peer says to another, the other goes on; what makes no sense is left out with a note."""

from __future__ import annotations

import random
from typing import Any, get_args

import msgspec
import pytest

from braid.language import Filter, Publication
from braid.p2p.dht.ring import Ring
from braid.p2p.dmm import DMM_MESSAGES, Dmm, DmmSettings, Interests
from braid.p2p.dmm.messages import Content, Entry, Find, Multicast, Update
from braid.p2p.peer import Peer
from braid.p2p.turn import Turn
from braid.protocol.effects import Delivery, Note
from braid.protocol.inputs import Heard, Tick
from tests.p2p.networks import SCHEMA

WORDS = (
    "",
    "0",
    "1",
    "01",
    "0" * 200,
    "number=i",
    "string=s",
    "number=i;string=s",
    "p1",
    "p2",
    "xyz",
    "i > 3",
    "=",
)
NUMBERS = (0, 1, -1, 2, 7, 2**40, -(2**60), 2**64 - 1)


def alone(**choices: Any) -> Peer:
    turn = Turn()
    dht = Ring(turn, "p0")
    settings = DmmSettings(**choices)
    peer = Peer(turn, dht, Dmm(turn, dht, settings, Interests(settings, SCHEMA)))
    peer.handle(Tick(), 0)
    return peer


def anything(chance: random.Random, kind: Any) -> Any:
    """A value of a type, of which nothing else can be relied on."""
    if kind is str:
        return chance.choice(WORDS)
    if kind is int:
        return chance.choice(NUMBERS)
    if kind is bool:
        return chance.random() < 0.5
    if kind is bytes:
        return b""
    if kind is Entry:
        text = chance.choice(("i > 3", "i = 3 AND s > 'a'", "TRUE", "nonsense (", ""))
        return Entry(chance.choice(WORDS), text, chance.choice((0, 1, -1, 99)), chance.choice((-1, 0, 1, 7)))
    if kind is Content:
        attributes = chance.choice(
            ({}, {"i": 4}, {"i": 2**64 - 1}, {"i": (5, 1)}, {"": 1}, {"s": "a", "i": 2.5})
        )
        return Content(chance.choice(WORDS), chance.choice(NUMBERS), attributes)
    name = getattr(kind, "__origin__", None)
    arguments = get_args(kind)
    if name is list:
        return [anything(chance, arguments[0]) for _ in range(chance.randrange(3))]
    if name is tuple:
        if arguments[-1] is Ellipsis:
            return tuple(anything(chance, arguments[0]) for _ in range(chance.randrange(3)))
        return tuple(anything(chance, each) for each in arguments)
    return chance.choice(arguments)  # a Literal


def message(chance: random.Random) -> msgspec.Struct:
    kind = chance.choice(DMM_MESSAGES)
    fields = msgspec.structs.fields(kind)
    return kind(**{field.name: anything(chance, field.type) for field in fields})


@pytest.mark.parametrize("algorithm", ["DMM", "DMM-AR"])
def test_a_peer_survives_any_words(algorithm: str) -> None:
    chance = random.Random(algorithm)
    peer = alone(algorithm=algorithm, split_threshold=3)
    dmm: Any = peer.application
    dmm.subscribe("mine", Filter("i BETWEEN 3 AND 5"), 0)
    peer.complete(0)
    now_us = 0
    for _ in range(4_000):
        now_us += chance.choice((1, 1_000, 1_000_000))
        said = [message(chance) for _ in range(chance.randrange(1, 3))]
        peer.handle(Heard(chance.choice(("p1", "p2", "p0")), said), now_us)
        if chance.random() < 0.2:
            peer.handle(Tick(), now_us)
        peer.next_deadline_us()
    assert dmm.subscriptions


def test_words_that_make_no_sense_are_left_out_with_a_note() -> None:
    peer = alone()
    for said in (
        Update("number=i", [Entry("p1/x#0", "nonsense (")], [], 0),
        Update("number=i", [Entry("p1/x#0", "s = 'a'")], [], 0),
        Update("number=i", [Entry("p1/x#0", "i = 1", 5)], [], 0),
        Update("no space", [], [], 0),
        Find("number=i", "01x", 0, 0, 3, Content("p1", 1, {"i": 1}), "p1"),
    ):
        effects = peer.handle(Heard("p1", [said]), 1)
        assert any(isinstance(each, Note) and each.what == "message left out" for each in effects), said


def test_nobody_gets_what_was_not_asked_for() -> None:
    """A liar may send a publication to anybody; whether it is wanted is decided by the subscriber's peer."""
    peer = alone()
    dmm: Any = peer.application
    dmm.subscribe("mine", Filter("i > 3"), 0)
    peer.complete(0)
    effects = peer.handle(Heard("p1", [Multicast("number=i", Content("p1", 1, {"i": 2}))]), 1)
    assert not [each for each in effects if isinstance(each, Delivery)]
    dmm.publish(Publication({"i": 4}), 2)
    assert [each.subscriptions for each in peer.complete(2) if isinstance(each, Delivery)] == [("mine",)]

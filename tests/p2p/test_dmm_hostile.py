"""Whatever a peer says to another, the other goes on; what makes no sense is left out with a note."""

from __future__ import annotations

import random
import sys
from typing import Any, get_args

import msgspec
import pytest

from braid.language import Filter, Publication
from braid.p2p.dht.messages import Goodbye, Leaves, Member, RingMembers, Row
from braid.p2p.dht.pastry import ADDRESSES_MAX, PINGS_MAX, Pastry
from braid.p2p.dht.pastry_settings import PastrySettings
from braid.p2p.dht.ring import MEMBERS_MAX, Ring
from braid.p2p.dmm import DMM_MESSAGES, Dmm, DmmSettings, Interests
from braid.p2p.dmm.messages import Beacon, Content, Entry, Find, Multicast, Update
from braid.p2p.dmm.tables import digest_of, seal_of
from braid.p2p.peer import Peer
from braid.p2p.space import SPACES_KEPT_MAX
from braid.p2p.turn import Turn
from braid.protocol.effects import Delivery, Note, SendTo
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


# What is large, or much.


def words_of(count: int, prefix: str = "number=a") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def test_invented_spaces_are_forgotten_the_oldest_first_and_cost_little() -> None:
    peer = alone()
    dmm: Any = peer.application
    dmm.subscribe("mine", Filter("i > 3"), 0)
    peer.complete(0)
    spaces = dmm.site.interests.spaces
    peer.handle(Heard("p1", [Beacon([(name, "0", 7) for name in words_of(2 * SPACES_KEPT_MAX)])]), 1)
    assert len(spaces._known) == SPACES_KEPT_MAX
    wide = ";".join(words_of(16))
    assert len(spaces.named(wide).axes) == 16
    # Nothing is made of a space before a region of it is looked at, and then some kilobytes.
    assert spaces.named(wide)._halvings is None
    assert sum(sys.getsizeof(each) for each in spaces.named(wide)._order) < 10_000
    # Filters and tables that were there before name their spaces as ever.
    dmm.publish(Publication({"i": 4}), 2)
    assert [each.subscriptions for each in peer.complete(2) if isinstance(each, Delivery)] == [("mine",)]
    entry = Entry("p1/x#0", "i = 1")
    update = Update("number=i", [entry], [], digest_of([entry]) ^ seal_of("p1"))
    assert not [each for each in peer.handle(Heard("p1", [update]), 3) if isinstance(each, Note)]


@pytest.mark.parametrize("name", [";".join(words_of(17)), "number=" + "a" * 100_000, ";".join(words_of(256))])
def test_a_space_of_too_many_axes_or_too_long_a_name_is_left_out(name: str) -> None:
    peer = alone()
    effects = peer.handle(Heard("p1", [Beacon([(name, "0", 7)])]), 1)
    assert any(isinstance(each, Note) and each.what == "message left out" for each in effects)


def test_a_name_too_long_for_an_axis_is_matched_all_the_same() -> None:
    peer = alone()
    dmm: Any = peer.application
    long = "a" * 2_000
    dmm.subscribe("mine", Filter(f"{long} > 3"), 0)
    peer.complete(0)
    dmm.publish(Publication({long: 4}), 2)
    assert [each.subscriptions for each in peer.complete(2) if isinstance(each, Delivery)] == [("mine",)]


def test_filters_that_are_read_are_bounded_and_none_in_use_is_lost() -> None:
    settings = DmmSettings()
    interests = Interests(settings, SCHEMA, kept_max=50)
    texts = [f"i = {number % 16 - 8} AND s > '{number:02d}'" for number in range(200)]
    for text in texts:
        interests.of(text)
    assert list(interests._known) == texts[-50:]
    assert interests.of(texts[0]).places  # read again


def pastry_peer() -> tuple[Peer, Pastry]:
    turn = Turn()
    dht = Pastry(turn, "p0", PastrySettings(beat_us=1_000_000))
    settings = DmmSettings()
    peer = Peer(turn, dht, Dmm(turn, dht, settings, Interests(settings, SCHEMA)))
    peer.handle(Tick(), 0)
    return peer, dht


@pytest.mark.parametrize("kind", [Row, Leaves, Goodbye])
def test_invented_addresses_are_pinged_up_to_a_bound(kind: type[msgspec.Struct]) -> None:
    peer, dht = pastry_peer()
    for number in range(8):
        invented = [f"10.{number}.{each // 250}.{each % 250}:1" for each in range(3_000)]
        effects = peer.handle(Heard(f"p{number + 1}", [kind(invented)]), number + 1)  # type: ignore[call-arg]
        assert len([each for each in effects if isinstance(each, SendTo)]) <= ADDRESSES_MAX + 8
    assert len(dht._pings) <= PINGS_MAX
    peer.handle(Heard("p9", [kind(["x" * 10_000])]), 9)  # type: ignore[call-arg]
    assert "x" * 10_000 not in dht._pings
    # They do not answer, and in the end nobody asks for them any more.
    due_us = 0
    for _ in range(2_000):
        due_us = max(due_us, peer.next_deadline_us() or 0)
        if due_us > 60_000_000:
            break
        peer.handle(Tick(), due_us)
    assert not len(dht._pings)


def test_a_ring_knows_a_bounded_number_of_members() -> None:
    peer = alone()
    dht: Any = peer.dht
    for number in range(3):
        invented = [Member(f"10.{number}.{each // 250}.{each % 250}:1", 1) for each in range(3_000)]
        peer.handle(Heard("p1", [RingMembers(invented)]), number + 1)
    peer.handle(Heard("p1", [RingMembers([Member("x" * 10_000, 1)])]), 9)
    assert len(dht._known) == MEMBERS_MAX

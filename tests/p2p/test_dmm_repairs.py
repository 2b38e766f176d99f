"""What is lost is found again, once and without a storm: late repeats, tables sent twice, lost regions."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

from braid.language import Filter
from braid.p2p.dht.identifiers import closeness, contact_of, number_of
from braid.p2p.dht.messages import Routed
from braid.p2p.dht.pastry import Pastry
from braid.p2p.dht.pastry_settings import PastrySettings
from braid.p2p.dht.ring import Ring
from braid.p2p.dmm import Dmm, DmmSettings, Interests
from braid.p2p.dmm.messages import Active, Beacon, Content, Enter, Entry, Gone, Multicast, Table, Taken
from braid.p2p.dmm.regions import State
from braid.p2p.dmm.repeats import Repeats
from braid.p2p.peer import Peer
from braid.p2p.schema import NetworkSchema
from braid.p2p.turn import Turn
from braid.protocol.effects import Delivery, SendTo
from braid.protocol.inputs import Heard, Tick
from tests.p2p.networks import SCHEMA, Network

if TYPE_CHECKING:
    import pytest

SECOND_US = 1_000_000


def alone(**choices: Any) -> Peer:
    turn = Turn()
    dht = Ring(turn, "p0")
    settings = DmmSettings(**choices)
    peer = Peer(turn, dht, Dmm(turn, dht, settings, Interests(settings, SCHEMA)))
    peer.handle(Tick(), 0)
    return peer


def given(effects: list[Any]) -> int:
    return sum(isinstance(each, Delivery) for each in effects)


# Late repeats.


def test_a_publication_that_is_sent_again_after_two_minutes_is_not_given_again() -> None:
    peer = alone()
    dmm: Any = peer.application
    dmm.subscribe("mine", Filter("i > 0"), 0)
    peer.complete(0)
    last_us = sum(dmm.site.settings.retry_us << tries for tries in range(dmm.site.settings.tries_max - 1))
    assert last_us == 120 * SECOND_US
    late = Multicast("number=i", Content("p1", 1, {"i": 1}))
    assert given(peer.handle(Heard("p1", [late]), 0)) == 1
    # More marks than are kept of what passes, at a rate that one peer can have.
    for number in range(2, 70_000):
        now_us = number * last_us // 70_000
        peer.handle(Heard("p1", [Multicast("number=i", Content("p1", number, {"i": 1}))]), now_us)
    again = Multicast("number=i", Content("p1", 1, {"i": 1}))
    assert given(peer.handle(Heard("p2", [again]), last_us + 2 * SECOND_US)) == 0


def test_marks_are_forgotten_by_time_and_by_number() -> None:
    repeats = Repeats(1_000, keep_us=100)
    for now_us in range(500):
        assert repeats.is_new(now_us, now_us)
    assert not repeats.is_new(450, 500)
    assert len(repeats._marks) <= 102
    for number in range(5_000):
        repeats.is_new(("much", number), 500)
    assert len(repeats._marks) == 1_000


# Tables.


def test_parts_of_two_sendings_make_no_whole_table() -> None:
    peer = alone()
    dmm: Any = peer.application

    def part(number: int, parts: int, sending: int, name: str) -> list[Any]:
        entry = Entry(f"p1/{name}#0", "i = 1")
        table = Table("number=i", "0", "", "p1", "split", number, parts, "p1", "p1", [entry], number=sending)
        effects = peer.handle(Heard("p1", [table]), 1)
        return [
            message
            for effect in effects
            if isinstance(effect, SendTo)
            for message in effect.messages
            if isinstance(message, Taken)
        ]

    region = ("number=i", "0")
    assert not part(0, 3, 5, "a")
    assert not part(1, 3, 5, "b")
    # It is sent again, and has fewer parts now; with those of before there would seem to be two of two.
    assert not part(1, 2, 6, "d")
    assert dmm.site.holding.regions[region].state is State.BUILDING
    assert not part(2, 3, 5, "c")  # late, of the sending before
    assert dmm.site.holding.regions[region].state is State.BUILDING
    assert part(0, 2, 6, "a")
    assert dmm.site.holding.regions[region].state is State.LEAF
    assert set(dmm.site.holding.regions[region].bundles["p1"].entries) == {f"p1/{each}#0" for each in "abcd"}


# Regions that are gone.


def test_an_entry_that_comes_back_from_one_half_does_not_go_to_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = alone()
    dmm: Any = peer.application
    moving = dmm.site.holding.moving
    space = dmm.site.interests.spaces.named("number=i")
    region = moving.begin(space, "", 0)
    moving._become_inner(region, 0)
    sent: list[tuple[str, Enter]] = []
    monkeypatch.setattr(Ring, "route", lambda dht, key, word, now_us: sent.append((word.code, word)))
    entries = [Entry("p1/x#0", "i > -100")]
    back = Enter("number=i", "", "p1", "p1", entries, True, half="0")
    dmm.site.holding.on_enter("p1", back, 1)
    assert [code for code, _ in sent] == ["0"]
    sent.clear()
    dmm.site.holding.on_enter("p1", Enter("number=i", "", "p1", "p1", entries), 1)
    assert sorted(code for code, _ in sent) == ["0", "1"]
    # What is not there sends it back, and says from where. Nobody has said that a guess is there.
    for guess in (False, True):
        sent.clear()
        dmm.site.holding.on_enter("p1", Enter("number=i", "01", "p1", "p1", entries, guess=guess), 1)
        ((code, bounced),) = sent
        assert (code, bounced.half, bounced.doubt, bounced.guess) == ("0", "01", not guess, guess)


def test_regions_that_are_lost_together_are_looked_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = alone()
    dmm: Any = peer.application
    dmm.subscribe("mine", Filter("i > -100"), 0)
    peer.complete(0)
    tree = dmm.site.multicasting.trees["number=i"]
    codes = ["000", "001", "010", "011", "1"]
    peer.handle(Heard("p1", [Active([("number=i", code) for code in codes], True)]), 1)
    assert set(tree.links) == set(codes)
    sent: list[str] = []
    monkeypatch.setattr(Ring, "route", lambda dht, key, word, now_us: sent.append(word.code))
    for number, code in enumerate(codes[1:4]):
        peer.handle(Heard("p1", [Gone([("number=i", code)])]), 2 + number)
    assert sent == []
    due_us = dmm.site.multicasting.due_us
    peer.handle(Tick(), due_us)
    assert sorted(sent) == ["001", "01"]  # as large as a gap can be, and nothing from the root


NUMBERS = NetworkSchema(
    {name: {"kind": "float", "low": 0, "high": 1_000, "granularity": 1} for name in "abcd"}
)
CRASHED = 8


def test_a_tree_that_loses_a_fifth_of_its_owners_recovers_without_a_storm() -> None:
    """Entries of wide ranges are in many regions, so whatever begins at the root goes everywhere."""
    chance = random.Random(3)
    network = Network(
        40, DmmSettings(algorithm="DMM", split_threshold=40), "pastry", NUMBERS, pastry=PastrySettings()
    )
    for number in range(120):
        terms = []
        for name in chance.sample("abcd", 2):
            low = chance.randrange(900)
            terms.append(f"{name} BETWEEN {low} AND {low + 100}")
        network.subscribe(f"p{number % 32}", f"k{number}", " AND ".join(terms))
    network.run(60)
    assert network.regions(State.INNER) > 3
    counted: Counter[int] = Counter()
    perform = network._perform

    def count(source: str, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, SendTo):
                for message in effect.messages:
                    inner = message.message if isinstance(message, Routed) else message
                    counted[network.now_us // SECOND_US] += isinstance(inner, Enter)
        perform(source, effects)

    network._perform = count  # type: ignore[method-assign]
    for number in range(CRASHED):
        network.kill(f"p{39 - number}")
    network.run(120)
    # With entries that go to both halves, and from the root for each region that is lost, it was 432.
    assert max(counted.values()) < 3 * len(network.peers)
    last = network.now_us // SECOND_US
    assert sum(counted[second] for second in range(last - 15, last)) < len(network.peers)
    network.taken()
    for _ in range(30):
        attributes = {name: float(chance.randrange(1_000)) for name in "abcd"}
        network.publish(f"p{chance.randrange(32)}", attributes)
        network.run(20)
        assert network.taken() == network.interested(attributes)


# An owner that dies while nobody publishes.


def test_a_beacon_that_should_have_gone_to_a_neighbour_has_it_looked_after() -> None:
    """Beats are too rare to tell; the one sign of the death is what a child sends elsewhere."""
    network = Network(
        12,
        DmmSettings(beacon_us=5 * SECOND_US, expiry_us=600 * SECOND_US),
        "pastry",
        SCHEMA,
        pastry=PastrySettings(leaf_set=4, beat_us=600 * SECOND_US),
    )
    space = network.dmm("p0").site.interests.spaces.named("number=i")
    number = number_of(space.root_key)
    nearest = sorted(network.peers, key=lambda each: closeness(number_of(contact_of(each).id), number))
    owner = nearest[0]
    children = nearest[2:]
    for child in children:
        network.subscribe(child, "mine", "i > 0")
    network.run(20)
    heirs = [each for each in network.peers if owner in network.dmm(each).site.replicas._of and each != owner]
    assert heirs
    told = network.dmm(heirs[0]).site.replicas._of[owner]
    assert told
    network.kill(owner)
    before = network.now_us
    child = next(iter(told))
    # One child has found out, and sends to the next peer on the way what it always sends.
    for heir in heirs:
        unexpected = Heard(child, [Beacon([("number=i", "", 7)])])
        network._perform(heir, network.peers[heir].handle(unexpected, network.now_us))
        network._rearm(heir)
    network.run(40)
    assert network.now_us - before < 600 * SECOND_US
    for heir in heirs:
        assert owner not in network.dmm(heir).site.replicas._of
    network.taken()
    publisher = next(each for each in network.peers if each != child)
    network.publish(publisher, {"i": 1})
    network.run(10)
    assert network.taken() == network.interested({"i": 1})


def test_what_passes_a_peer_on_its_usual_way_suspects_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    suspected: list[str] = []
    monkeypatch.setattr(Pastry, "suspect", lambda dht, address, now_us: suspected.append(address))
    network = Network(8, DmmSettings(), "pastry", SCHEMA, pastry=PastrySettings(leaf_set=4))
    for number in range(8):
        network.subscribe(f"p{number}", "mine", f"i > {number - 4}")
    network.run(100)
    assert suspected == []

"""The stories of `test_dmm_changes` find the defects that they are for: each is planted here."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from braid.language import Filter, Range
from braid.p2p.dht.messages import Routed
from braid.p2p.dht.pastry_settings import PastrySettings
from braid.p2p.dmm import DmmSettings
from braid.p2p.dmm.finding import Finding
from braid.p2p.dmm.holding import Holding
from braid.p2p.dmm.interests import Interests
from braid.p2p.dmm.messages import Find
from braid.p2p.dmm.moving import Moving
from braid.p2p.dmm.multicasting import Multicasting
from braid.p2p.dmm.parting import Parting
from braid.p2p.dmm.regions import State
from braid.p2p.dmm.repeats import Repeats
from braid.p2p.dmm.replicas import Replicas
from braid.p2p.dmm.tables import Tree
from braid.p2p.space import boxes_meet
from tests.language.strategies import Maker
from tests.p2p import test_dmm_changes, test_dmm_installed
from tests.p2p.networks import SCHEMA, Network
from tests.p2p.test_dmm_changes import NUMBERS, Story, network_of

if TYPE_CHECKING:
    from collections.abc import Callable

    Plant = Callable[[pytest.MonkeyPatch], None]


def splitting() -> None:
    network = network_of("pastry", "DMM-AR", split_threshold=20)
    story = Story(network)
    story.subscribe(15, "keep")
    network.run(5)
    for number in range(8):
        story.subscribe(6, f"keep{number}.", range(1, 80))
        story.publish(10, 0.004)
        network.run(0.02)
        # What was subscribed to while publications were under way may or may not get them.
        for mark in [*story.expected][-10:]:
            del story.expected[mark]
    network.run(3)
    assert network.regions(State.INNER)
    story.publish(100, 0.01)
    story.check()


def joining() -> None:
    network = network_of("ring", "DMM-AR", acknowledged=False, tree_cache=None)
    story = Story(network)
    story.subscribe(40)
    network.run(5)
    for number in range(6):
        network.add(f"x{number}", [f"p{number}"])
        story.publish(100, 0.002)
        network.run(12)
        story.publish(20, 0.01)
    story.check()


def ranging() -> None:
    network = network_of("pastry", "DMM-AR", split_threshold=10)
    for number in range(42):
        low = 6 * number
        network.subscribe(f"p{number % 10}", f"keep{number}", f"a BETWEEN {low} AND {low + 5}")
    network.run(5)
    assert network.regions(State.INNER)
    for number in range(10):
        attributes = {"a": Range(20 * number, 20 * number + 70)}
        network.publish(f"p{number}", attributes)
        network.run(3)
        assert network.taken() == network.interested(attributes)


def leaving() -> None:
    """Without confirmations: what was on its way to a peer that leaves is not sent again."""
    settings = DmmSettings(split_threshold=12)
    network = Network(10, settings, "pastry", NUMBERS, pastry=PastrySettings(leaf_set=4))
    for number in range(4):
        network.add(f"x{number}", [f"p{number}"])
        network.run(3)
    story = Story(network, 0)
    story.subscribe(30)
    network.run(5)
    for number in range(4):
        story.publish(10, 0.002)
        network.leave(f"x{number}")
        story.publish(60, 0.002)
        network.run(14)
        story.publish(10, 0.002)
    story.check()


def losing_publications() -> None:
    """Publications are lost on their way to a region, and nothing else is."""
    network = network_of("pastry", "DMM-AR")
    for address in network.peers:
        network.peers[address].dht._resender = None  # type: ignore[attr-defined]
    story = Story(network)
    story.subscribe(40)
    network.run(5)
    push = network._push

    def losing_finds(at_us: int, address: str, stimulus: Any) -> None:
        said = getattr(stimulus, "messages", ())
        finds = any(isinstance(each, Routed) and isinstance(each.message, Find) for each in said)
        if not finds or network.chance.random() >= 0.2:
            push(at_us, address, stimulus)

    network._push = losing_finds  # type: ignore[method-assign]
    story.publish(60, 0.02)
    network._push = push  # type: ignore[method-assign]
    network.run(40)
    story.check()


def merging() -> None:
    test_dmm_changes.test_during_splits_and_merges("pastry", "DMM-AR")


def idling() -> None:
    test_dmm_installed.test_while_nothing_changes_and_some_believe_that_spaces_are_idle("ring", "DMM-AR")


def crashing() -> None:
    network = network_of("ring", "DMM-AR")
    for number in range(5):
        network.add(f"x{number}", [f"p{number}"])
        network.run(3)
    story = Story(network)
    story.subscribe(40)
    network.run(20)
    for number in range(5):
        network.kill(f"x{number}")
    network.run(12)
    story.publish(60)
    story.check()


def losing() -> None:
    network = network_of("pastry", "DMM-AR")
    network.pastry = network.pastry.__class__(leaf_set=4)
    story = Story(network)
    network.cut = lambda source, target: network.chance.random() < 0.3
    for address in network.peers:
        network.peers[address].dht._resender = None  # type: ignore[attr-defined]
    story.subscribe(40)
    network.run(5)
    network.cut = lambda source, target: False
    network.run(70)
    story.publish(60)
    story.check()


def unsubscribing() -> None:
    network = network_of("pastry", "DMM-AR")
    story = Story(network)
    for number in range(10):
        network.subscribe(f"p{number}", "wide", "a >= 0")
        network.subscribe(f"p{number}", f"keep{number}", f"a >= {number}")
    network.run(5)
    for number in range(10):
        network.unsubscribe(f"p{number}", "wide")
    network.run(5)
    story.publish(30)
    story.check()


def placing() -> None:
    maker = Maker(random.Random(11))
    interests = Interests(DmmSettings(), SCHEMA)
    for _ in range(1_500):
        text, attributes = maker.filter(), maker.publication()
        if Filter(text).matches(attributes):
            places = interests.of(text).places
            assert any(boxes_meet(place.box, place.space.box_of(attributes)) for place in places)


def tables_are_not_sent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Moving, "ownership_changed", lambda *rest: None)


def the_dead_are_still_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Multicasting, "peer_failed", lambda *rest, polite: None)
    patch.setattr(Replicas, "peer_failed", lambda *rest, polite: None)


def differing_digests_do_not_matter(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Multicasting, "on_wanted", lambda *rest: None)


def what_was_covered_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    def take_back(self: Any, gone: Any, change: Any) -> None:
        self.sent.remove(gone.name)
        change.remove(gone.name)

    patch.setattr(Tree, "_take_back", take_back)


def everything_is_new(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Repeats, "is_new", lambda *rest: True)


def ends_do_not_belong(patch: pytest.MonkeyPatch) -> None:
    def extent(self: Any, name: str, kind: str, values: Any) -> tuple[int, int]:
        low, high = original(self, name, kind, values)
        return low, max(low, high - 1)

    original = Interests._extent
    patch.setattr(Interests, "_extent", extent)


def one_half_of_a_range(patch: pytest.MonkeyPatch) -> None:
    def go_down(self: Any, space: Any, find: Any, now_us: int) -> None:
        if find.length == len(find.target):
            box = self._site.arrive(find.content).box(space)
            find.target = space.enclosing(tuple(box[index // 2 * 2] for index in range(len(box))))
        original(self, space, find, now_us)

    original = Finding._go_down
    patch.setattr(Finding, "_go_down", go_down)


def entries_find_no_region(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Holding, "on_enter", lambda *rest: None)


def what_comes_while_a_table_is_under_way_stays_behind(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Moving, "pass_on", lambda *rest: None)


def nobody_hears_that_a_space_is_used(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Finding, "in_use", lambda *rest: None)


def what_has_not_arrived_is_not_sent_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Finding, "tick", lambda self, now_us: setattr(self, "due_us", None))


def halves_go_on_when_they_are_joined(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Moving, "on_retire", lambda *rest: None)


def nobody_says_how_full_regions_are(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Holding, "_report", lambda *rest: None)


def who_says_goodbye_is_gone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Parting, "part", lambda *rest: True)


@pytest.mark.parametrize(
    ("plant", "story"),
    [
        (what_comes_while_a_table_is_under_way_stays_behind, joining),
        (nobody_hears_that_a_space_is_used, idling),
        (what_has_not_arrived_is_not_sent_again, losing_publications),
        (halves_go_on_when_they_are_joined, merging),
        (nobody_says_how_full_regions_are, merging),
        (who_says_goodbye_is_gone, leaving),
        (everything_is_new, splitting),
        (one_half_of_a_range, ranging),
        (entries_find_no_region, splitting),
        (tables_are_not_sent, joining),
        (the_dead_are_still_asked, crashing),
        (differing_digests_do_not_matter, losing),
        (what_was_covered_is_forgotten, unsubscribing),
        (ends_do_not_belong, placing),
    ],
    ids=lambda each: each.__name__,
)
def test_a_planted_defect_is_found(
    plant: Plant, story: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        story()


@pytest.mark.parametrize(
    "story",
    [
        splitting,
        joining,
        leaving,
        ranging,
        crashing,
        losing,
        losing_publications,
        merging,
        idling,
        unsubscribing,
        placing,
    ],
    ids=lambda each: each.__name__,
)
def test_without_a_defect_nothing_is_found(story: Callable[[], None]) -> None:
    story()

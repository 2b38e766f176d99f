"""An answer means installed: what is published from then on, by whichever peer, comes to the subscriber."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from braid.p2p.dmm.messages import Installed
from braid.p2p.dmm.regions import State
from tests.language.strategies import Maker
from tests.p2p.test_dmm_changes import BOTH, DHTS, Story, network_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.p2p.networks import Network


def require_everything(
    network: Network, story: Story, rounds: int, label: str = "new", wait_s: float = 3
) -> None:
    """Subscribe, wait for the answer, and publish in the same moment from every peer."""
    for number in range(rounds):
        low = story.chance.randrange(200)
        names = story.chance.sample("abc", story.chance.randrange(1, 4))
        text = " AND ".join(f"{name} BETWEEN {low} AND {low + 60}" for name in sorted(names))
        address = story.chance.choice(story.lasting)
        key = f"{label}{number}"
        network.subscribe(address, key, text, confirm=True)
        network.run_until_installed(address, key)
        network.delivered.clear()
        published = []
        for each in sorted(network.peers):
            story.numbers[each] += 1
            published.append((each, story.numbers[each]))
            network.publish(each, {name: low + story.chance.randrange(60) for name in "abc"})
        network.run(wait_s)
        come = [
            (publisher.partition("/")[0], sequence)
            for at, name, publisher, sequence in network.delivered
            if (at, name) == (address, key)
        ]
        # What was published before the answer may come as well.
        late = [each for each in come if each not in published]
        assert sorted(set(come) - set(late)) == sorted(published), (key, text)
        assert len(come) == len(set(come)), (key, text)


@BOTH
@DHTS
def test_while_nothing_changes_and_some_believe_that_spaces_are_idle(dht: str, algorithm: str) -> None:
    network = network_of(dht, algorithm)
    story = Story(network)
    for address in sorted(network.peers):  # they are told that nobody wants anything, and remember it
        story.numbers[address] += 1
        network.publish(address, {"a": 1, "b": 2, "c": 3})
    network.run(3)
    require_everything(network, story, 8)


@BOTH
@DHTS
def test_while_regions_are_halved(dht: str, algorithm: str) -> None:
    network = network_of(dht, algorithm, split_threshold=8, covering=False)
    story = Story(network)
    for number in range(8):
        story.subscribe(6, f"more{number}.", range(1, 60))
        require_everything(network, story, 1, f"new{number}.")
    assert network.regions(State.INNER)


@BOTH
@DHTS
def test_while_peers_join_and_leave(dht: str, algorithm: str) -> None:
    network = network_of(dht, algorithm)
    story = Story(network)
    story.subscribe(30)
    for number in range(4):
        network.add(f"x{number}", [f"p{number}"])
        network.run(0.3 * number)
        require_everything(network, story, 2, f"join{number}.")
    for number in range(4):
        network.leave(f"x{number}")
        require_everything(network, story, 2, f"leave{number}.")


@DHTS
def test_while_datagrams_are_lost(dht: str) -> None:
    network = network_of(dht, "DMM-AR")
    network.loss = 0.1
    require_everything(network, Story(network), 6, wait_s=60)


@DHTS
def test_the_whole_language(dht: str) -> None:
    network = network_of(dht, "DMM-AR", split_threshold=4)
    maker = Maker(random.Random(4))
    for number in range(25):
        address = f"p{number % 10}"
        text = maker.filter()
        network.subscribe(address, f"s{number}", text, confirm=True)
        network.run_until_installed(address, f"s{number}")
        network.delivered.clear()
        attributes = dict(maker.publication())
        network.publish(f"p{(number + 3) % 10}", attributes)
        network.run(3)
        assert network.taken() == network.interested(attributes), (text, attributes)


def test_one_that_is_taken_back_is_never_installed() -> None:
    network = network_of("ring", "DMM-AR")
    network.subscribe("p1", "short", "a > 3", confirm=True)
    network.unsubscribe("p1", "short")
    network.run(20)
    assert network.dmm("p1").take_installed() == []


def nothing_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    from braid.p2p.dmm.confirming import Confirming

    def part(self: Confirming, request: object, now_us: int) -> int:
        return 0

    patch.setattr(Confirming, "part", part)


def who_believes_a_space_idle_is_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    from braid.p2p.dmm.finding import Finding

    original = Finding.in_use
    patch.setattr(
        Finding, "in_use", lambda self, name, now_us, request=None, former=None: original(self, name, now_us)
    )


def regions_ask_for_attributes_some_time(patch: pytest.MonkeyPatch) -> None:
    from braid.p2p.dmm.multicasting import Multicasting

    patch.setattr(Multicasting, "are_installed", lambda *rest: None)


def the_first_answer_is_enough(patch: pytest.MonkeyPatch) -> None:
    from braid.p2p.dmm.confirming import Confirming

    original = Confirming.on_installed

    def on_installed(self: Confirming, sender: str, message: Installed, now_us: int) -> None:
        original(self, sender, Installed(message.request), now_us)

    patch.setattr(Confirming, "on_installed", on_installed)


@pytest.mark.parametrize(
    ("plant", "story"),
    [
        (nothing_is_waited_for, test_while_nothing_changes_and_some_believe_that_spaces_are_idle),
        (
            who_believes_a_space_idle_is_not_waited_for,
            test_while_nothing_changes_and_some_believe_that_spaces_are_idle,
        ),
        (
            regions_ask_for_attributes_some_time,
            test_while_nothing_changes_and_some_believe_that_spaces_are_idle,
        ),
        (the_first_answer_is_enough, test_while_peers_join_and_leave),
    ],
    ids=lambda each: each.__name__,
)
def test_a_planted_defect_is_found(
    plant: Callable[[pytest.MonkeyPatch], None],
    story: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        story("ring", "DMM-AR")

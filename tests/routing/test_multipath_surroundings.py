"""Do maps come right again, whatever order things are said in, and can plans always be carried out?"""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.adaptation import DemandPlanner, LoadRow, NeighbourhoodLoad, ProfiledPlanner, SoftLinkSettings
from braid.errors import RemoteProtocolError
from braid.routing import surroundings as module
from braid.routing.overlay_map import OverlayMap
from braid.routing.surroundings import Place, Surroundings
from tests.routing.test_multipath_forwarding import trees


class Gossip:
    """Brokers with first in, first out links; sessions begin anew, brokers forget, join and leave."""

    def __init__(self, delta: int) -> None:
        self.delta = delta
        self.brokers: dict[str, Surroundings] = {}
        self.links: dict[tuple[str, str], deque[Any]] = {}
        """What is under way, by source and target."""

    def start(self, name: str) -> None:
        """A broker starts, or starts again and knows nothing."""
        self.brokers[name] = Surroundings(name, f"at-{name}", self.delta)

    def session(self, left: str, right: str) -> None:
        for one, other in ((left, right), (right, left)):
            self.links[one, other] = deque()
        for one, other in ((left, right), (right, left)):
            self.brokers[one].meet(other, f"at-{other}", self.delta)
            self.links[one, other].append(None)  # "that is everything", once it is
            self.tell(one)

    def unlink(self, left: str, right: str) -> None:
        for one, other in ((left, right), (right, left)):
            del self.links[one, other]
            self.brokers[one].lose(other)
        self.tell(left)
        self.tell(right)

    def restart(self, name: str) -> None:
        self.start(name)
        for source, target in list(self.links):
            if source == name:
                self.session(name, target)

    def tell(self, name: str) -> None:
        for source, target in self.links:
            if source == name:
                news = self.brokers[name].news_for(target)
                if news is not None:
                    self.links[source, target].append(news)

    def step(self, source: str, target: str) -> None:
        said = self.links[source, target].popleft()
        if said is None:
            # In the broker this waits until everybody behind has spoken; here, until nothing is under way.
            if any(any(each is not None for each in line) for line in self.links.values()):
                self.links[source, target].append(None)
                return
            self.brokers[target].complete(source)
        else:
            self.brokers[target].hear(source, said.added, said.removed)
        self.tell(target)

    def some_steps(self, chance: random.Random, most: int) -> None:
        """Let up to so many things happen, in any order that links allow for."""
        for _ in range(chance.randint(most // 2, most)):
            busy = self.busy()
            if not busy:
                return
            self.step(*chance.choice(busy))

    def busy(self) -> list[tuple[str, str]]:
        return sorted(link for link, line in self.links.items() if line)


@pytest.mark.parametrize("seeds", [range(start, start + 50) for start in range(0, 200, 50)])
def test_maps_come_right_after_joins_leaves_and_restarts(seeds: range) -> None:
    for seed in seeds:
        chance = random.Random(f"gossip/{seed}")
        delta = chance.choice([1, 2, 3, 4, 255])
        tree = [
            (f"B{chance.randrange(child):02d}", f"B{child:02d}")
            for child in range(1, chance.randrange(2, 15))
        ]
        names = sorted({"B00"} | {broker for link in tree for broker in link})
        gossip = Gossip(delta)
        for name in names:
            gossip.start(name)
        present: set[tuple[str, str]] = set()
        for link in tree:
            gossip.session(*link)
            present.add(link)
            gossip.some_steps(chance, 3)
        for _ in range(chance.randrange(6) if tree else 0):
            fate, link = chance.randrange(4), chance.choice(tree)
            if fate == 0 and link in present:
                gossip.unlink(*link)
                present.discard(link)
            elif fate == 1 and link not in present:
                gossip.session(*link)
                present.add(link)
            elif fate == 2 and link in present:
                gossip.session(*link)  # a session that begins anew
            else:
                gossip.restart(chance.choice(names))
            gossip.some_steps(chance, 4)
        gossip.some_steps(chance, 20_000)
        assert not gossip.busy(), f"they never come to rest: seed {seed}"
        for name in names:
            assert gossip.brokers[name].map() == OverlayMap.of_links(name, present, delta), f"seed {seed}"
            for broker in gossip.brokers[name].map():
                assert gossip.brokers[name].address_of(broker) == f"at-{broker}"


PLACES = st.builds(
    Place, st.sampled_from("ABCDXYZ"), st.sampled_from("ABCDXYZ"), st.sampled_from(["", "here", "there"])
)
SAID = st.lists(
    st.tuples(
        st.sampled_from("BCD"), st.lists(PLACES, max_size=4), st.lists(st.sampled_from("ABCDXYZ"), max_size=3)
    ),
    max_size=6,
)


@given(said=SAID, delta=st.sampled_from([1, 2, 4, 255]))
def test_whatever_neighbours_say_there_is_a_map_and_neighbours_are_on_it(said: Any, delta: int) -> None:
    around = Surroundings("A", "at-A", delta)
    for neighbour in "BCD":
        around.meet(neighbour, f"at-{neighbour}", 255)
    for neighbour, added, removed in said:
        around.hear(neighbour, added, removed)
        overlay = around.map()
        assert overlay.neighbours == ("B", "C", "D")
        assert [around.address_of(each) for each in "BCD"] == ["at-B", "at-C", "at-D"]
        for broker in overlay:
            path = overlay.path(broker)
            assert len(path) == overlay.distance(broker) <= delta
            assert path[0] == overlay.toward(broker)
            # Only who speaks of its first step leads there.
            assert len(path) == 1 or path[1] in around._heard[path[0]]
        for neighbour_told in "BCD":
            around.news_for(neighbour_told)
            assert around.news_for(neighbour_told) is None


def test_what_two_neighbours_claim_is_nowhere_until_one_takes_it_back() -> None:
    around = Surroundings("A", "at-A", 4)
    around.meet("B", "at-B", 4)
    around.meet("C", "at-C", 4)
    around.hear("B", [Place("X", "B", "x"), Place("Y", "X", "y")], [])
    assert around.map().brokers == ("B", "C", "X", "Y")
    around.hear("C", [Place("X", "C", "elsewhere")], [])
    assert around.map().brokers == ("B", "C")
    assert around.news_for("C") == ([Place("B", "A", "at-B")], [])
    around.hear("B", [], ["X", "Y"])
    assert around.map().toward("X") == "C"
    assert around.address_of("X") == "elsewhere"


def test_nobody_can_speak_of_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BROKERS_MAX", 5)
    around = Surroundings("A", "at-A", 255)
    around.meet("B", "at-B", 255)
    around.hear("B", [Place(f"X{number}", "B", "") for number in range(4)], [])
    around.hear("B", [Place("X0", "B", "moved")], [])
    with pytest.raises(RemoteProtocolError, match="more than 5 brokers"):
        around.hear("B", [Place("X4", "B", "")], [])
    assert len(around.map()) == 5
    around.hear("B", [], ["X0"])
    around.hear("B", [Place("X4", "B", "")], [])
    assert "X4" in around.map()


# Plans.


@pytest.mark.parametrize("kind", [ProfiledPlanner, DemandPlanner])
@settings(max_examples=40)
@given(tree=trees(20), data=st.data())
def test_a_plan_is_always_one_that_can_be_carried_out(kind: Any, tree: Any, data: st.DataObject) -> None:
    names = sorted({broker for link in tree for broker in link})
    centre = names[0]
    chosen = SoftLinkSettings(
        fanout=data.draw(st.integers(1, 8)),
        candidates_max=data.draw(st.integers(0, 4)),
        rest_reviews=data.draw(st.integers(0, 3)),
    )
    planners = [kind(chosen), kind(chosen)]
    load = NeighbourhoodLoad(centre)
    for _ in range(data.draw(st.integers(1, 8))):
        # Brokers come and go between two reviews.
        present = [link for link in tree if data.draw(st.integers(0, 9))]
        overlay = OverlayMap.of_links(centre, present, data.draw(st.sampled_from([2, 4, 255])))
        load.keep_only(overlay)
        rows = st.builds(LoadRow, st.sampled_from(names), *[st.integers(-5, 2**40)] * 3)
        for neighbour in overlay.neighbours:
            load.hear(neighbour, data.draw(st.integers(0, 100)), data.draw(st.lists(rows, max_size=3)))
        for broker, count in data.draw(st.dictionaries(st.sampled_from(names), st.integers(0, 99))).items():
            for planner in planners:
                planner.sent(broker, count)
        plans = [planner.review(overlay, load) for planner in planners]
        assert plans[0] == plans[1], "the same reviews lead to the same plans"
        soft, candidates = plans[0]
        assert len(soft) <= max(0, chosen.fanout - len(overlay.neighbours))
        assert len(candidates) <= chosen.candidates_max
        assert not soft & candidates
        for broker in soft | candidates:
            assert broker in overlay
            assert broker != centre
            assert broker not in overlay.neighbours
        if soft and data.draw(st.booleans()):
            failed = data.draw(st.sampled_from(sorted(soft)))
            for planner in planners:
                planner.failed(failed)
            if chosen.rest_reviews:
                plans = [planner.review(overlay, load) for planner in planners]
                assert failed not in plans[0].soft | plans[0].candidates

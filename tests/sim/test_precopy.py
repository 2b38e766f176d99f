"""A SHIFT whose tables travel ahead: everything once, in order, and a pause that does not grow with them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from braid.broker.copying import Copying
from braid.errors import BraidError
from braid.routing import RoutingTables
from braid.routing.anchored_entries import AnchoredEntries
from braid.routing.covering_set import Change
from braid.sim import NodeModel
from tests.sim.shift_crossings import PATH, Crossing
from tests.sim.shift_worlds import ShiftWorld

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.broker.core import BrokerCore
    from braid.broker.operations import Operation
    from braid.language import Filter
    from braid.routing import Anchor

LINKS = [("I", "J"), ("K", "J"), ("X", "I"), ("M", "J"), ("Y", "K")]


@pytest.mark.parametrize("strategy", ["S0", "S2"])
def test_nothing_is_lost_doubled_or_reordered(strategy: str) -> None:
    far = {"delta": 3} if strategy == "S2" else {}
    run = ShiftWorld(3, until_us=6_000_000, how="precopy", strategy=strategy, **far)
    run.populate()
    for _ in range(4):
        answer = run.shift(*run.chance.choice(run.possible()))
        assert answer.get("outcome") == "finished", answer
        run.world.run_for(us=run.chance.choice([0, 1_000, 100_000]))
    run.world.run_until_quiet()
    run.require()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_many_worlds(seed: int) -> None:
    run = ShiftWorld(seed, codec=seed % 3 == 0, until_us=7_000_000, how="precopy")
    run.populate()
    for _ in range(6):
        answer = run.shift(*run.chance.choice(run.possible()))
        assert answer.get("outcome") == "finished", answer
        run.world.run_for(us=run.chance.choice([0, 1_000, 100_000]))
    run.world.run_until_quiet()
    run.require()


@pytest.mark.parametrize("slow", ["", "IK", "IJ", "JK"])
def test_whichever_way_is_slow(slow: str) -> None:
    Crossing(slow=slow, acknowledged=slow == "", how="precopy").go()


@pytest.mark.parametrize("broker", ["I", "J", "K"])
def test_what_is_older_comes_first_also_after_a_crash(broker: str) -> None:
    run = Crossing(acknowledged=True, window_bytes=1_024, how="precopy")
    world = run.world
    undo = world.partition("I", "X")

    def strike(_: object) -> None:
        world.crash(broker)
        world.at(world.now_us + 300_000, lambda: world.restart(broker))
        world.at(world.now_us + 600_000, undo)

    run.when(broker, "committed", strike)
    run.go()


def test_two_that_wait_for_each_other_across_the_old_link_do_not() -> None:
    """The new neighbour crashes right at the decision. What it had not settled is sent to it again, and comes
    back to the broker that moved, which waits for it at the old link: that lies behind the new neighbour."""
    run = Crossing(acknowledged=True, how="precopy")
    world = run.world

    def strike(_: object) -> None:
        world.crash("K")
        world.at(world.now_us + 600_000, lambda: world.restart("K"))

    run.when("I", "committed", strike)
    run.go()


# The pause.


class _Felt:
    """A SHIFT of a broker, with so many subscriptions on either side, and what a reader behind it feels.

    To take in a subscription costs a broker time, so that what is told while publications wait is felt.
    """

    def __init__(self, entries: int, how: str) -> None:
        self.run = run = ShiftWorld(
            0,
            links=LINKS,
            latency_us=1_000,
            until_us=9_000_000,
            period_us=(1_000,),
            how=how,
            node=NodeModel(cost_us={"subscribe": 1_000}),
        )
        chosen = [(str(number), f"number = {number}") for number in range(entries)]
        run.subscribe("many", "X", chosen)
        run.subscribe("many others", "Y", [(key, f"number = {key} AND other = 1") for key, _ in chosen])
        self.moments: list[int] = []
        reader = run.subscribe("reader", "X", [("all", "price >= 0")])
        reader.on_delivery = lambda station, batch: self.moments.append(run.world.now_us)
        run.publish("writer", "M", ordered=True)
        run.wait(lambda: all(each.connected and not each.asking for each in run.stations))

    def go(self) -> int:
        """The longest time without anything, in microseconds."""
        self.moments[:] = [self.run.world.now_us]
        answer = self.run.shift(*PATH)
        assert answer.get("outcome") == "finished", answer
        self.run.world.run_for(seconds=0.5)
        self.moments.append(self.run.world.now_us)
        return max(after - before for before, after in pairwise(self.moments))

    def cores(self) -> list[BrokerCore]:
        return [self.run.world.machine(name) for name in "IJK"]


def test_the_pause_does_not_grow_with_the_tables() -> None:
    few, many = (_Felt(entries, "precopy").go() for entries in (20, 200))
    # Messages along the path and back, a decision and a write to the store; none of it once per entry.
    assert many <= 2 * few
    assert _Felt(200, "three-phase").go() > 5 * many  # each entry is felt in the protocol as printed


def test_no_turn_moves_more_than_a_few_entries() -> None:
    run = _Felt(200, "precopy")
    run.go()
    for core in run.cores():
        reconfigurations = core._reconfigurations
        assert reconfigurations._copying.turn_max <= 64
        assert reconfigurations._moves.turn_max <= 32
    assert all(core._reconfigurations._moves.moved >= 200 for core in run.cores()[1:])
    run.run.world.run_until_quiet()
    run.run.require()


# Planted defects.


def what_was_hidden_stays_hidden(patch: pytest.MonkeyPatch) -> None:
    """The old neighbour does not tell the new one what entries that move have hidden from it."""
    set_apart = AnchoredEntries.set_apart

    def set_apart_and_keep_quiet(
        self: AnchoredEntries, items: Sequence[tuple[str, Filter, Anchor]]
    ) -> Change:
        moving = {key for key, _, _ in items}
        return Change([key for key in set_apart(self, items).told if key in moving], [])

    patch.setattr(AnchoredEntries, "set_apart", set_apart_and_keep_quiet)


def nothing_is_claimed(patch: pytest.MonkeyPatch) -> None:
    """The new neighbour takes what moves for what the old one keeps."""
    patch.setattr(
        RoutingTables, "claim", lambda self, link, place, keys: self._places.update({link: place}) or []
    )


def claims_are_kept(patch: pytest.MonkeyPatch) -> None:
    """Publications for what moves go on to the old neighbour after the decision."""
    patch.setattr(RoutingTables, "take_claim", lambda self, link: None)


def what_was_heard_ahead_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The broker that moves drops what it has heard over the new link as if nobody had said it."""
    decided = Copying.decided

    def forget(self: Copying, operation: Operation, *more: object) -> None:
        self.heard.clear()
        decided(self, operation, *more)  # type: ignore[arg-type]

    patch.setattr(Copying, "decided", forget)


@pytest.mark.parametrize(
    "plant",
    [what_was_hidden_stays_hidden, nothing_is_claimed, claims_are_kept, what_was_heard_ahead_is_forgotten],
    ids=lambda plant: plant.__name__,
)
def test_a_planted_defect_is_found(plant: object, monkeypatch: pytest.MonkeyPatch) -> None:
    _covered().go()  # without the defect nobody misses anything
    assert callable(plant)
    plant(monkeypatch)
    with pytest.raises((AssertionError, BraidError)):
        _covered().go()


def _covered() -> Crossing:
    """Somebody at the broker that moves wants everything, which hides what somebody elsewhere wants."""
    run = Crossing(how="precopy")
    for name, place, text in (("greedy", "I", "price >= 0"), ("modest", "M", "price > 50")):
        reader = run.run.subscribe(name, place, [("own", text)])
        run.run.wait(lambda reader=reader: reader.connected and not reader.asking)
    return run

"""Crashes amid a SHIFT while something is under way on every link."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.shift_crossings import Crossing

if TYPE_CHECKING:
    from braid.sim import World


def test_what_comes_again_by_another_way_is_known_however_late_it_comes() -> None:
    """The broker that moves crashes. Those behind it had publications that they had not confirmed; these come
    again by another way, when more than a thousand later ones of the same publisher have passed."""
    run = Crossing(acknowledged=True)
    undo = run.world.partition("I", "X")

    def crash(world: World) -> None:
        world.crash("I")
        world.at(world.now_us + 300_000, lambda: world.restart("I"))
        world.at(world.now_us + 600_000, undo)

    run.when("J", "committed", crash)
    run.go()

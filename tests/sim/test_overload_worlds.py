"""Does a network that has been given too much come to rest with everything delivered?

Queues are small, and more is published than uplinks carry. Whatever waits must only wait for what cannot wait
for it: nothing is lost, and when the overload ends all queues empty and all credit is given back.
"""

from __future__ import annotations

import os
from itertools import product
from typing import TYPE_CHECKING

import pytest

from braid.protocol import Channel
from braid.protocol.incoming import Incoming
from tests.sim import overload
from tests.sim.overload import Circle, RandomTree, Star, left_over

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _pytest.mark import ParameterSet

    from braid.protocol.messages import Acknowledgement

# `make overload` tries fifty.
SEEDS = range(int(os.environ.get("BRAID_OVERLOAD_SEEDS", "1")))
DELIVERIES = pytest.mark.parametrize("acknowledged", [False, True], ids=["fast", "acknowledged"])


@DELIVERIES
def test_a_burst_does_not_stop_a_circle_of_soft_links(acknowledged: bool) -> None:
    circle = Circle(acknowledged=acknowledged, rate=400, seconds=1, uplink_messages_per_s=300)
    circle.run(60)
    circle.require()


@DELIVERIES
def test_a_little_more_than_the_uplink_bears_does_not_stop_a_circle(acknowledged: bool) -> None:
    circle = Circle(acknowledged=acknowledged, rate=140, seconds=8, uplink_messages_per_s=250)
    circle.run(60)
    circle.require()


@DELIVERIES
def test_large_bodies_do_not_stop_a_circle_with_large_queues(acknowledged: bool) -> None:
    circle = Circle(
        acknowledged=acknowledged,
        rate=100,
        seconds=6,
        uplink_bytes_per_s=4_000_000,
        queue_bytes=4 * 1024 * 1024,
        body_bytes=60_000,
    )
    circle.run(120)
    circle.require()


@DELIVERIES
def test_a_full_uplink_ends_no_connection(acknowledged: bool) -> None:
    """Minutes of publications wait at H; heartbeats and acknowledgements do not wait behind them."""
    star = Star(acknowledged=acknowledged, rate=20, seconds=30, uplink_messages_per_s=20)
    star.run(300)
    star.require()
    for name in "HABCD":
        counters = star.world.machine(name).snapshot().counters
        assert (counters.stalled, counters.resent_frames, counters.dropped) == (0, 0, 0)


def kinds_of_trees() -> Iterator[ParameterSet]:
    """Every strategy with small and larger queues, fast and acknowledged; two kinds in every round."""
    for strategy, kilobytes, acknowledged in product(
        ("S0", "S1", "S2", "SH", "SB"), (64, 256), (False, True)
    ):
        often = (strategy, kilobytes, acknowledged) in {("S2", 64, False), ("SB", 64, True)}
        delivery = "acknowledged" if acknowledged else "fast"
        yield pytest.param(
            strategy,
            kilobytes * 1024,
            acknowledged,
            id=f"{strategy}-{kilobytes}KB-{delivery}",
            marks=() if often else pytest.mark.soak,
        )


@pytest.mark.parametrize(("strategy", "queue_bytes", "acknowledged"), list(kinds_of_trees()))
def test_overload_ends_on_random_trees(
    sim_seed: int, strategy: str, queue_bytes: int, acknowledged: bool
) -> None:
    tree = RandomTree(sim_seed, strategy, acknowledged=acknowledged, queue_bytes=queue_bytes)
    tree.run(120)
    tree.require()


@pytest.mark.interpreted
def test_credit_that_is_never_given_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overload, "VALIDATE_US", 0)  # each broker would notice at once
    monkeypatch.setattr(Channel, "release_credit", lambda self, reason, number=None: False)
    circle = Circle(acknowledged=False, rate=400, seconds=1, uplink_messages_per_s=300)
    circle.run(60)
    assert any("gets no credit: " in each for each in left_over(circle.world))


def grant_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nothing had come, for which credit would have to be granted."""
    acknowledgement = Incoming.acknowledgement

    def without_credit(self: Incoming) -> Acknowledgement | None:
        for receiving in self._receiving.values():
            receiving.received_bytes = 0
        return acknowledgement(self)

    monkeypatch.setattr(Incoming, "acknowledgement", without_credit)


@pytest.mark.interpreted
def test_credit_that_is_never_granted_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    circle = Circle(acknowledged=False, rate=40, seconds=1)
    grant_nothing_more(monkeypatch)
    circle.run(60)
    assert any("of credit for class" in each for each in left_over(circle.world))

"""Is what has not been inside a crashed broker delivered once and in order, whatever happens meanwhile?"""

from __future__ import annotations

from typing import Any

import pytest

from braid.broker.link_life import LinkStage
from braid.broker.links import Links
from braid.broker.parties import Link
from braid.broker.resumptions import BASIC, IMMEDIATE, INCREMENTAL
from tests.sim.failover_worlds import FAULTS, PUBLICATIONS_MIN, FailoverWorld

SEEDS = 6


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_weak_complete_and_weak_ordered_delivery(seed: int, fault: str) -> None:
    world = FailoverWorld(seed, fault, acknowledged=bool(seed % 2))
    world.run()
    assert len(world.published) > PUBLICATIONS_MIN
    assert world.violations() == [], world.world.repeat_command


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("resumption", [BASIC, INCREMENTAL, IMMEDIATE])
def test_what_is_acknowledged_is_complete_and_ordered_by_each(resumption: str, fault: str) -> None:
    for seed in range(2):
        world = FailoverWorld(seed, fault, acknowledged=True, resumption=resumption)
        world.run()
        assert world.violations() == [], world.world.repeat_command


@pytest.mark.parametrize("fault", FAULTS)
def test_immediate_resumption_is_complete_and_ordered(fault: str) -> None:
    for seed in range(4):
        world = FailoverWorld(seed, fault, resumption=IMMEDIATE)
        world.run()
        assert world.violations() == [], world.world.repeat_command


def test_a_link_that_opens_before_the_tables_are_there_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the paper's basic protocol does it."""
    early = (LinkStage.SYNCING, LinkStage.HELD, LinkStage.OPEN, LinkStage.LEAVING, LinkStage.GONE)
    monkeypatch.setattr(Link, "holding", property(lambda link: link.stage not in early))
    assert found_by_some_seed("complete")


def test_a_queue_that_is_forgotten_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Links.forget_session

    def forget(links: Any, link: Link) -> None:
        usual(links, link)
        for care in link.channel.abandon():
            links._turn.settlement.settle(care, link)

    monkeypatch.setattr(Links, "forget_session", forget)
    assert found_by_some_seed("complete")


def found_by_some_seed(word: str) -> bool:
    for seed in range(SEEDS):
        world = FailoverWorld(seed, "nothing")
        world.run()
        if any(violation.startswith(word) for violation in world.violations()):
            return True
    return False

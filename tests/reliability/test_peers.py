"""Do a few real peers survive the death of some of them, and would the run notice if they did not?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import braid
from tests.reliability.peers import PeerChoices, PeerRun, Published, Reader, peer_run, summary

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.net


async def test_killed_peers_are_replaced(tmp_path: Path) -> None:
    choices = PeerChoices(
        peers=8, processes=4, rounds=3, publications=10, after_kill_s=7.0, beacon_us=1_000_000, seed=3
    )
    outcome = await peer_run(choices, tmp_path)
    assert outcome.right, (summary(choices, outcome), outcome.problems)
    assert outcome.killed == 2
    assert outcome.expected > 20


async def test_lost_messages_are_sent_again(tmp_path: Path) -> None:
    choices = PeerChoices(
        peers=6, processes=2, rounds=5, publications=20, drop=0.02, beacon_us=1_000_000, seed=4
    )
    outcome = await peer_run(choices, tmp_path)
    assert outcome.right, (summary(choices, outcome), outcome.problems)
    assert outcome.dropped_messages > 0


@pytest.mark.parametrize(
    ("given", "problem"),
    [({0: 1, 2: 1}, ""), ({0: 1}, "missing"), ({0: 1, 2: 2}, "doubled"), ({0: 1, 1: 1, 2: 1}, "uninvited")],
)
def test_the_run_notices_what_is_wrong(tmp_path: Path, given: dict[int, int], problem: str) -> None:
    client: Any = None
    run = PeerRun(PeerChoices(), tmp_path)
    reader = Reader("a", braid.Filter("price > 10"), client, client)
    reader.prices.update(given)
    run._published = [
        Published({"number": number, "price": price}, 0.0, 0) for number, price in enumerate((11, 9, 12))
    ]
    run._judge([reader])
    run.outcome.traces_right = True
    found = {name for name in ("missing", "doubled", "uninvited") if getattr(run.outcome, name)}
    assert found == ({problem} if problem else set())
    assert run.outcome.right is not bool(problem)
    run.outcome.traces_right = False
    assert not run.outcome.right


@pytest.mark.parametrize(("recovery_s", "right"), [(14.9, True), (15.1, False), (None, False)])
def test_recovery_has_a_limit(tmp_path: Path, recovery_s: float | None, right: bool) -> None:
    run = PeerRun(PeerChoices(), tmp_path)
    run.outcome.killed, run.outcome.recovery_s, run.outcome.traces_right = 10, recovery_s, True
    assert run.outcome.right is right

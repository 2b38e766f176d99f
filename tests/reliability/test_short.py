"""Is anything lost or doubled when real brokers are killed? A short run; `run.py` makes the long ones."""

from __future__ import annotations

import pytest

from tests.reliability.run import Choices, reliability_run

# Some 20 seconds; if something is stuck, the run itself says what, later than tests may usually take.
pytestmark = [pytest.mark.net, pytest.mark.slow, pytest.mark.timeout(600)]


def test_nothing_is_lost_or_doubled_when_brokers_are_killed() -> None:
    outcome = reliability_run(Choices(seconds=10, brokers=4, clients=8, seed=1, rate=500))
    assert outcome.right, outcome.explanation
    assert outcome.kills
    assert outcome.resets
    assert outcome.verdict.settled
    assert outcome.verdict.delivered

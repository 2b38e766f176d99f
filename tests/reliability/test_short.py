"""Is anything lost or doubled when real brokers are killed? Short runs; `run.py` makes the long ones."""

from __future__ import annotations

import pytest

from tests.reliability.run import Choices, reliability_run

# Some 20 seconds each; if something is stuck, the run itself says what, later than tests may usually take.
pytestmark = [pytest.mark.net, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    "choices",
    [
        Choices(seconds=10, brokers=4, clients=8, seed=1, rate=500),
        Choices(seconds=8, brokers=6, clients=8, seed=2, rate=300, strategy="S2"),
        Choices(seconds=8, brokers=6, clients=8, seed=3, rate=300, strategy="SB"),
    ],
    ids=lambda choices: choices.strategy,
)
def test_nothing_is_lost_or_doubled_when_brokers_are_killed(choices: Choices) -> None:
    outcome = reliability_run(choices)
    assert outcome.right, outcome.explanation
    assert outcome.kills
    assert outcome.resets
    assert outcome.verdict.settled
    assert outcome.verdict.delivered

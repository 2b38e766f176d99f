"""Is anything lost or doubled when real brokers are killed? Short runs; `run.py` makes the long ones.

Two plans are part of every round of tests, the others of `make soak`.
"""

from __future__ import annotations

import pytest

from tests.reliability.run import Choices, reliability_run

# Some 20 seconds each; if something is stuck, the run itself says what, later than tests may usually take.
pytestmark = [pytest.mark.net, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    "choices",
    [
        Choices(seconds=6, brokers=5, clients=8, seed=3, rate=300, plan="changes"),
        pytest.param(
            Choices(seconds=15, brokers=6, clients=8, seed=1, rate=300, plan="broken changes"),
            marks=pytest.mark.soak,
        ),
        pytest.param(
            Choices(seconds=15, brokers=6, clients=8, seed=2, rate=300, plan="changes", strategy="S2"),
            marks=pytest.mark.soak,
        ),
        pytest.param(
            Choices(seconds=8, brokers=6, clients=12, seed=4, rate=300, filters=200, plan="maintenance"),
            marks=pytest.mark.soak,
        ),
        pytest.param(
            Choices(seconds=6, brokers=6, clients=8, seed=1, rate=300, plan="replacements"),
            marks=pytest.mark.soak,
        ),
    ],
    ids=lambda choices: f"{choices.plan}-{choices.strategy}",
)
def test_nothing_is_lost_doubled_or_reordered_while_the_tree_changes(choices: Choices) -> None:
    outcome = reliability_run(choices)
    assert outcome.right, outcome.explanation
    assert outcome.faults
    assert outcome.verdict.delivered


@pytest.mark.soak
@pytest.mark.spark
def test_nothing_is_lost_doubled_or_reordered_when_everything_happens_together() -> None:
    """Two minutes of what `make together` does in twenty."""
    outcome = reliability_run(
        Choices(seconds=60, brokers=12, clients=16, seed=1, rate=150, plan="together", strategy="SB")
    )
    assert outcome.right, outcome.explanation
    assert outcome.verdict.settled
    for happened in ("kill", "exchanges", "batches of Spark", "deliveries at peers", "published by peers"):
        assert outcome.faults[happened], f"no {happened}: {outcome.explanation}"


@pytest.mark.parametrize(
    "choices",
    [
        Choices(seconds=8, brokers=5, clients=8, seed=1, rate=500),
        pytest.param(
            Choices(seconds=8, brokers=5, clients=8, seed=2, rate=300, strategy="S2", plan="holes"),
            marks=pytest.mark.soak,
        ),
        pytest.param(
            Choices(seconds=8, brokers=5, clients=8, seed=3, rate=300, strategy="SB", plan="stops"),
            marks=pytest.mark.soak,
        ),
        pytest.param(
            Choices(seconds=8, brokers=5, clients=8, seed=4, rate=300, plan="disks"), marks=pytest.mark.soak
        ),
        Choices(seconds=8, brokers=5, clients=8, seed=5, rate=200, strategy="SB", plan="large"),
    ],
    ids=lambda choices: f"{choices.plan}-{choices.strategy}",
)
def test_nothing_is_lost_or_doubled_whatever_goes_wrong(choices: Choices) -> None:
    outcome = reliability_run(choices)
    assert outcome.right, outcome.explanation
    assert outcome.faults
    assert outcome.newcomers
    assert outcome.verdict.settled
    assert outcome.verdict.delivered

"""Is anything lost or doubled when brokers crash and connections break?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from braid.adaptation import SoftLinkSettings
from tests.broker.fault_run import run_with_faults

if TYPE_CHECKING:
    import random

# Soft links come and go within a run.
BUSY_MESH = SoftLinkSettings(fanout=5, review_us=150_000, rest_reviews=1)


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_lost_or_doubled_through_crashes_and_cuts(seed: int) -> None:
    run_with_faults(seed)


@pytest.mark.parametrize("strategy", ["S1", "S2", "SH", "SB"])
@pytest.mark.parametrize("seed", range(8))
def test_shortcuts_lose_and_double_nothing(strategy: str, seed: int) -> None:
    run_with_faults(
        f"{strategy}/{seed}",
        settings=lambda chance: {"strategy": strategy, "soft_links": BUSY_MESH},
        in_order=False,
        cuts_anywhere=True,
    )


@pytest.mark.parametrize("seed", range(12))
def test_a_mixture_of_strategies_loses_and_doubles_nothing(seed: int) -> None:
    def settings(chance: random.Random) -> dict[str, Any]:
        strategy = chance.choice(["S0", "S1", "S2", "SH", "SB"])
        return {"strategy": strategy, "soft_links": BUSY_MESH, "delta": chance.choice([0, 4, 4])}

    run_with_faults(f"mixture/{seed}", settings=settings, in_order=False, cuts_anywhere=True)

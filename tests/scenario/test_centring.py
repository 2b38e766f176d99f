"""Do the brokers that match often move toward the middle while nothing is lost or doubled?"""

from __future__ import annotations

import pytest

from braid.scenario.running import SimulationSettings, simulate
from braid.sim.topologies import random_tree
from tests.scenario.test_running import zipf_classes


@pytest.mark.parametrize("strategy", ["S0", "S2"])
def test_nothing_is_lost_while_brokers_move_and_fewer_copies_go_astray_afterwards(strategy: str) -> None:
    network = random_tree(24, 3, 1)
    work = zipf_classes(network, publications=600, matching=4, seed=1)

    def run(centre_at_us: int | None) -> tuple[int, int]:
        summary = simulate(
            SimulationSettings(
                topology=network,
                workload=work,
                strategy=strategy,
                brokers={
                    "soft_links": {"fanout": 8, "review_us": 500_000},
                    "link": {"acknowledge_delay_us": 20_000},
                },
                centre_at_us=centre_at_us,
            )
        )
        assert summary.violations == ()
        assert summary.warnings == ()
        assert (summary.moved > 0) is (centre_at_us is not None)
        assert (summary.moved_us is not None) is (centre_at_us is not None)
        return summary.hops, summary.deliveries

    (as_it_is, delivered), (centred, delivered_too) = run(None), run(1_000_000)
    assert delivered == delivered_too
    if strategy == "S0":  # soft links past what changes are not used meanwhile, most of so short a run
        assert centred < as_it_is

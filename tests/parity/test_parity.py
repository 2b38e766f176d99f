"""Does the same scenario lead to the same deliveries, whoever drives the brokers?

Whoever drives them is compared with what matching one by one says, and so with all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.parity.on_sim import SimDriver
from tests.parity.on_sim_client import SimClientDriver
from tests.parity.on_sockets import SocketDriver
from tests.parity.on_wire import WireDriver
from tests.parity.scenario import made, run

if TYPE_CHECKING:
    from tests.parity.scenario import Driver, Heard

DRIVERS: dict[str, type[Driver]] = {
    "wire": WireDriver,
    "sim": SimDriver,
    "sim_client": SimClientDriver,
    "sockets": SocketDriver,
}
SEEDS = [
    *(pytest.param("wire", seed, id=f"wire-{seed}") for seed in range(60)),
    *(pytest.param("sim", seed, id=f"sim-{seed}") for seed in range(30)),
    *(pytest.param("sim_client", seed, id=f"sim_client-{seed}") for seed in range(30)),
    *(pytest.param("sockets", seed, id=f"sockets-{seed}", marks=pytest.mark.net) for seed in range(20)),
]


def plain(heard: Heard) -> dict[tuple[str, str], dict[str, list[int]]]:
    """Without those who heard nothing."""
    return {place: dict(numbers) for place, numbers in heard.items() if any(numbers.values())}


@pytest.mark.parametrize(("driver", "seed"), SEEDS)
async def test_everybody_hears_what_matching_says(driver: str, seed: int) -> None:
    scenario = made(seed)
    assert plain(await run(DRIVERS[driver](), scenario)) == plain(scenario.expected)

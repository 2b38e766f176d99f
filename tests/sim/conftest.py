"""What the simulator's tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

__all__: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sim-seed", type=int, default=None, help="run random worlds with this seed only")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with a `sim_seed` runs with each of its module's `SEEDS`, or with the one that was asked for."""
    if "sim_seed" in metafunc.fixturenames:
        only = metafunc.config.getoption("--sim-seed", default=None)
        metafunc.parametrize("sim_seed", metafunc.module.SEEDS if only is None else [only])

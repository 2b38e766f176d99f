"""Is every attack harmless? `run.py` prints what each cost and what an innocent client saw."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.hostile.attacks import ATTACKS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.net, pytest.mark.slow]


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_harmless(name: str, tmp_path: Path) -> None:
    assert ATTACKS[name](tmp_path).verdict == ""

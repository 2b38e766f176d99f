"""Is the house in order? Every rule is applied to every module of the package."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import braid.errors
from tests.house.rules import BENCHMARKS, HOUSE_RULES, RULES, Module, modules

if TYPE_CHECKING:
    from collections.abc import Callable

PROJECT = Path(braid.errors.__file__).parents[2]
MODULES = [
    module
    for place in (PROJECT / "src", PROJECT / "benchmarks" / "src")
    for module in modules(place)
    if module.name.split(".")[0] in ("braid", BENCHMARKS)
]


def test_the_house_is_not_empty() -> None:
    assert {"braid.errors", "braid.pipeline.java", "braid_bench.matching"} <= {
        module.name for module in MODULES
    }


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_module_keeps_the_rule(rule: Callable[[Module], list[str]]) -> None:
    complaints = [complaint for module in MODULES for complaint in rule(module)]
    assert complaints == [], "\n".join(complaints)


@pytest.mark.parametrize("rule", HOUSE_RULES, ids=lambda rule: rule.__name__)
def test_the_whole_house_keeps_the_rule(rule: Callable[[list[Module]], list[str]]) -> None:
    complaints = rule(MODULES)
    assert complaints == [], "\n".join(complaints)


@pytest.mark.parametrize("name", [module.name for module in MODULES if not module.name.endswith("__main__")])
def test_declared_names_can_be_imported(name: str) -> None:
    """Also those that a module makes on demand, which the syntax tree does not show."""
    module = importlib.import_module(name)
    missing = [each for each in getattr(module, "__all__", []) if not hasattr(module, each)]
    assert missing == []

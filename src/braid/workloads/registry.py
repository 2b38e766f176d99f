"""Which workloads are there?"""

from __future__ import annotations

from typing import Any

from braid.errors import ConfigurationError
from braid.workloads import (
    availability,
    covering,
    infrastructurefree,
    multipath,
    quotes,
    selforganising,
    siena,
    social,
)
from braid.workloads.parameters import Definition, did_you_mean
from braid.workloads.tables import Workload

__all__ = ["DEFINITIONS", "definition", "workload"]

DEFINITIONS: dict[str, Definition] = {
    each.name: each
    for each in (
        *multipath.DEFINITIONS,
        *covering.DEFINITIONS,
        *social.DEFINITIONS,
        *selforganising.DEFINITIONS,
        *availability.DEFINITIONS,
        *infrastructurefree.DEFINITIONS,
        *siena.DEFINITIONS,
        *quotes.DEFINITIONS,
    )
}
"""Every workload by its name, in the order of the papers; synthetic and real mixes last."""


def definition(name: str) -> Definition:
    """What can be chosen about a workload."""
    found = DEFINITIONS.get(name)
    if found is None:
        raise ConfigurationError(f"no workload {name!r}; {did_you_mean(name, DEFINITIONS)}")
    return found


def workload(name: str, seed: int = 1, **parameters: Any) -> Workload:
    """Make a workload ready: cheap, because rows are made when they are asked for.

        quick = workload("multipath.DT1", seed=3, duration_s=60)
        quick.local("publications")

    Raises:
        ConfigurationError: there is no such workload or parameter, or a value is not possible.
    """
    chosen = definition(name)
    settings = chosen.settings(parameters)
    return Workload(name, seed, settings, chosen.build(seed, settings))

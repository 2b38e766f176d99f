"""Which networks can be asked for by name?

    topology("C1", seed=7)
    topology("random-tree", seed=7, count=40, degree_max=4)
    topology("zoo", network="Abilene")

`NAMED` holds the networks of the papers, complete; `KINDS` the ways to make one with parameters.
"""

from __future__ import annotations

import difflib
import inspect
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from braid.errors import ConfigurationError
from braid.sim.topologies.topology import LATENCY_US, Topology
from braid.sim.topologies.transit_stub import (
    INFRASTRUCTURE_FREE,
    SELF_ORGANISING,
    Overlay,
    transit_stub,
)
from braid.sim.topologies.trees import DEGREE_MAX, Shape, line, random_tree, star
from braid.sim.topologies.zoo import zoo

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["KINDS", "NAMED", "parameters_of", "topology"]


def _paper_tree(name: str, count: int, seed: int = 1, *, latency_us: int = LATENCY_US) -> Topology:
    return random_tree(count, DEGREE_MAX, seed, latency_us=latency_us, name=name)


def _self_organising(seed: int = 1, *, overlay: Overlay = "uniform", count: int = 100) -> Topology:
    return transit_stub(count, seed, settings=SELF_ORGANISING, overlay=overlay, name="selforganising")


def _infrastructure_free(seed: int = 1, *, overlay: Overlay = "uniform", count: int = 100) -> Topology:
    return transit_stub(count, seed, settings=INFRASTRUCTURE_FREE, overlay=overlay, name="infrastructurefree")


NAMED: Mapping[str, Callable[..., Topology]] = {
    "C1": partial(_paper_tree, "C1", 120),
    "C2": partial(_paper_tree, "C2", 250),
    "C3": partial(_paper_tree, "C3", 500),
    "CPL": partial(_paper_tree, "CPL", 21),
    "selforganising": _self_organising,
    "infrastructurefree": _infrastructure_free,
}
"""Networks of the papers: functions of a seed. C1 to C3 and CPL: table 1 of the multipath paper. The last two
place brokers on the physical network of that paper; the self-organising one starts from a random tree."""


def _random_tree(
    seed: int = 1,
    *,
    count: int,
    degree_max: int | None = None,
    shape: Shape = "balanced",
    latency_us: int = LATENCY_US,
) -> Topology:
    bound = DEGREE_MAX if degree_max is None and shape != "uniform" else degree_max
    return random_tree(count, bound, seed, shape=shape, latency_us=latency_us)


def _line(seed: int = 1, *, count: int, latency_us: int = LATENCY_US) -> Topology:
    return line(count, latency_us=latency_us)


def _star(seed: int = 1, *, count: int, latency_us: int = LATENCY_US) -> Topology:
    return star(count, latency_us=latency_us)


def _transit_stub(
    seed: int = 1,
    *,
    count: int = 100,
    overlay: Overlay = "minimum",
    degree_max: int | None = None,
    transit_domains: int = SELF_ORGANISING.transit_domains,
    transit_routers: int = SELF_ORGANISING.transit_routers,
    stubs_per_router: int = SELF_ORGANISING.stubs_per_router,
    stub_routers: int = SELF_ORGANISING.stub_routers,
    access_us: int = SELF_ORGANISING.access_us,
) -> Topology:
    settings = replace(
        SELF_ORGANISING,
        transit_domains=transit_domains,
        transit_routers=transit_routers,
        stubs_per_router=stubs_per_router,
        stub_routers=stub_routers,
        access_us=access_us,
    )
    return transit_stub(count, seed, settings=settings, overlay=overlay, degree_max=degree_max)


def _zoo(seed: int = 1, *, network: str) -> Topology:
    return zoo(network)


KINDS: Mapping[str, Callable[..., Topology]] = {
    "random-tree": _random_tree,
    "line": _line,
    "star": _star,
    "transit-stub": _transit_stub,
    "zoo": _zoo,
}
"""Ways to make a network: functions of a seed and of parameters by name."""


def parameters_of(name: str) -> Mapping[str, inspect.Parameter]:
    """What a network of this name can be given besides a seed."""
    signature = inspect.signature(_maker(name))
    return {
        key: each
        for key, each in signature.parameters.items()
        if each.kind is inspect.Parameter.KEYWORD_ONLY and key != "seed"
    }


def topology(name: str, seed: int = 1, **parameters: Any) -> Topology:
    """A network by name.

    Raises:
        ConfigurationError: there is no such name or parameter, or a value cannot be; it says what there is.
    """
    maker = _maker(name)
    known = parameters_of(name)
    for key in parameters:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            allowed = f"it takes {', '.join(known)}" if known else "it takes none"
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise ConfigurationError(f"topology {name!r} has no parameter {key!r}; {hint}{allowed}")
    for key, each in known.items():
        if each.default is inspect.Parameter.empty and key not in parameters:
            raise ConfigurationError(f"topology {name!r} needs the parameter {key!r}")
    return maker(seed=seed, **parameters)


def _maker(name: str) -> Callable[..., Topology]:
    maker = NAMED.get(name) or KINDS.get(name)
    if maker is None:
        known = [*NAMED, *KINDS]
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ConfigurationError(f"there is no topology {name!r}; {hint}known are {', '.join(known)}")
    return maker

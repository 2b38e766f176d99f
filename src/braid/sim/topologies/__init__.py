"""Which networks can be simulated?

Trees by recipe, Internet-like networks and the networks of real operators; `topology` finds them by name.
"""

from __future__ import annotations

from braid.sim.topologies.registry import KINDS, NAMED, parameters_of, topology
from braid.sim.topologies.topology import FlatLatency, Latencies, Topology, broker_names
from braid.sim.topologies.transit_stub import (
    INFRASTRUCTURE_FREE,
    SELF_ORGANISING,
    Placement,
    TransitStub,
    TransitStubSettings,
    transit_stub,
)
from braid.sim.topologies.trees import line, random_tree, star
from braid.sim.topologies.zoo import zoo, zoo_names

__all__ = [
    "INFRASTRUCTURE_FREE",
    "KINDS",
    "NAMED",
    "SELF_ORGANISING",
    "FlatLatency",
    "Latencies",
    "Placement",
    "Topology",
    "TransitStub",
    "TransitStubSettings",
    "broker_names",
    "line",
    "parameters_of",
    "random_tree",
    "star",
    "topology",
    "transit_stub",
    "zoo",
    "zoo_names",
]

"""Where does it go next?

- `tables`: subscriptions and advertisements, and what each neighbour must be told of them.
- `neighbour`, `anchored_entries`, `covering_set`, `overlap`, `witness`: the parts of these tables.
- `overlay_map`, `surroundings`: the network around a broker, and how it comes to know it.
- `working_map`, `paths`, `path_matrices`, `multipath`: shortcuts through it.
- `delegation`: sets of destinations, split among next hops.
- `forwarding`: from matching destinations to next hops.
- `duplicates`: what has been here before.
"""

from __future__ import annotations

from braid.routing.anchored_entries import HERE, Anchor
from braid.routing.covering_set import Change, CoveringSet, Removal
from braid.routing.delegation import split_destinations
from braid.routing.forwarding import Forwarding, TreeForwarding
from braid.routing.multipath import Anchored, MultipathForwarding
from braid.routing.neighbour import LinkStatistics, Tell, Verb
from braid.routing.overlap import OverlapIndex
from braid.routing.overlay_map import OverlayMap
from braid.routing.paths import PATHS, ForwardingStrategy, along_the_intersection, straight_to_anchors
from braid.routing.surroundings import Place, Surroundings
from braid.routing.tables import ANYTHING, RoutingStatistics, RoutingTables
from braid.routing.working_map import WorkingMap

__all__ = [
    "ANYTHING",
    "HERE",
    "PATHS",
    "Anchor",
    "Anchored",
    "Change",
    "CoveringSet",
    "Forwarding",
    "ForwardingStrategy",
    "LinkStatistics",
    "MultipathForwarding",
    "OverlapIndex",
    "OverlayMap",
    "Place",
    "Removal",
    "RoutingStatistics",
    "RoutingTables",
    "Surroundings",
    "Tell",
    "TreeForwarding",
    "Verb",
    "WorkingMap",
    "along_the_intersection",
    "split_destinations",
    "straight_to_anchors",
]

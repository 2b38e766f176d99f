"""Where does it go next?

- `tables`: subscriptions and advertisements, and what each neighbour must be told of them.
- `neighbour`, `covering_set`, `overlap`, `witness`: the parts of these tables.
- `forwarding`: from matching destinations to next hops.
- `duplicates`: what has been here before.
"""

from __future__ import annotations

from braid.routing.covering_set import Change, CoveringSet, Removal
from braid.routing.duplicates import DuplicateFilter
from braid.routing.forwarding import Forwarding, Reached, TreeForwarding, reached_by
from braid.routing.neighbour import LinkStatistics, Tell, Verb
from braid.routing.overlap import OverlapIndex
from braid.routing.tables import ANYTHING, RoutingStatistics, RoutingTables

__all__ = [
    "ANYTHING",
    "Change",
    "CoveringSet",
    "DuplicateFilter",
    "Forwarding",
    "LinkStatistics",
    "OverlapIndex",
    "Reached",
    "Removal",
    "RoutingStatistics",
    "RoutingTables",
    "Tell",
    "TreeForwarding",
    "Verb",
    "reached_by",
]

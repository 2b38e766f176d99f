"""Is there a better link?"""

from __future__ import annotations

from braid.adaptation.centre import centred_tree
from braid.adaptation.link_planner import LinkPlan, LinkPlanner, SoftLinkSettings
from braid.adaptation.neighbourhood_load import LoadRow, NeighbourhoodLoad
from braid.adaptation.on_demand import DemandPlanner
from braid.adaptation.profiled import ProfiledPlanner
from braid.adaptation.uplink import Uplink

__all__ = [
    "DemandPlanner",
    "LinkPlan",
    "LinkPlanner",
    "LoadRow",
    "NeighbourhoodLoad",
    "ProfiledPlanner",
    "SoftLinkSettings",
    "Uplink",
    "centred_tree",
]

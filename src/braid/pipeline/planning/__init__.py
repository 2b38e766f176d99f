"""Which tree would be better, for whoever knows everything?

- `solver`: the search for the cheapest tree, and well-known trees to compare it with.
- `bound`: what no tree can be cheaper than.
- `traffic`: who shared which publications, and the present tree, from traces.
- `proposal`: all of it together, as `braid pipeline plan` does it.
"""

from __future__ import annotations

from braid.pipeline.planning.bound import lower_bound
from braid.pipeline.planning.solver import Instance, Solution, exhaustive, solve

__all__ = ["Instance", "Solution", "exhaustive", "lower_bound", "solve"]

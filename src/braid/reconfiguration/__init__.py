"""May the tree change, and by which steps?

- `trees`: the whole primary network as a value that is always a tree.
- `primitives`: APPEND, DETACH and SHIFT, from one tree to another.
- `composites`: MOVE, SEQUESTER, DELETE, INSERT and SPLICE as steps.
- `delta_moves`: from any tree to any other by moving each broker at most once, however far.
- `plans`: steps from a start to a goal, checked one by one.
- `planner`: the steps from any tree to any other; `slides`, `search`, `comings` and `lines` are its parts,
  and `theorem` the long plan of the proof that there always is one.
- `plan_file`: plans and trees as files. `disruption`: what a plan will be felt like. `plan_run`: which steps
  come next, and which are done.

The availability paper, section III.
"""

from __future__ import annotations

from braid.reconfiguration.composites import delete, insert, move, sequester, splice
from braid.reconfiguration.delta_moves import delta_moved, delta_moves
from braid.reconfiguration.disruption import Disruption, disruption_of
from braid.reconfiguration.plan_file import WrittenPlan, decode_plan, decode_tree, encode_plan, encode_tree
from braid.reconfiguration.plan_run import PlanRun, RunState
from braid.reconfiguration.planner import FoundPlan, PlanOptions, find_plan
from braid.reconfiguration.plans import Plan
from braid.reconfiguration.primitives import Append, Detach, Shift, Step
from braid.reconfiguration.theorem import theorem_plan
from braid.reconfiguration.trees import OverlayTree

__all__ = [
    "Append",
    "Detach",
    "Disruption",
    "FoundPlan",
    "OverlayTree",
    "Plan",
    "PlanOptions",
    "PlanRun",
    "RunState",
    "Shift",
    "Step",
    "WrittenPlan",
    "decode_plan",
    "decode_tree",
    "delete",
    "delta_moved",
    "delta_moves",
    "disruption_of",
    "encode_plan",
    "encode_tree",
    "find_plan",
    "insert",
    "move",
    "sequester",
    "splice",
    "theorem_plan",
]

"""May the tree change, and by which steps?

- `trees`: the whole primary network as a value that is always a tree.
- `primitives`: APPEND, DETACH and SHIFT, from one tree to another.
- `composites`: MOVE, SEQUESTER, DELETE, INSERT and SPLICE as steps.
- `plans`: steps from a start to a goal, checked one by one.

The availability paper, section III.
"""

from __future__ import annotations

from braid.reconfiguration.composites import delete, insert, move, sequester, splice
from braid.reconfiguration.plans import Plan
from braid.reconfiguration.primitives import Append, Detach, Shift, Step
from braid.reconfiguration.trees import OverlayTree

__all__ = [
    "Append",
    "Detach",
    "OverlayTree",
    "Plan",
    "Shift",
    "Step",
    "delete",
    "insert",
    "move",
    "sequester",
    "splice",
]

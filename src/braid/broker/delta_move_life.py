"""The life of a delta-move at one of the brokers of its path, as a table (multipath paper, section 6).

The four phases of the paper. The broker that moves begins with its preparation, the others when they are
asked. What becomes of the links meanwhile is the life of an operation, as for every other one
(`operation_life.py`); this is what becomes of publications. `delta_moves.py` is its owner.
"""

from __future__ import annotations

from braid.broker.life import Life, Stage, Step

__all__ = ["MOVE_LIFE", "MoveStage", "MoveStep"]


class MoveStage(Stage):
    """Where a delta-move is in its life."""

    PREPARATION = "the broker that moves asks the coordinator for permission"
    INITIALIZATION = "shortcuts past the links that change are given up, and all of the path make ready"
    UPDATE = "temporary tables are made, from the new end of the path on; publications go the old way"
    DOUBLED = "they are used beside the old ones: what is for the broker that moves goes both ways"
    WRAP_UP = "it is decided; the old tables become the new ones, which the temporary ones stand in for"
    OVER = "no temporary table is left"


class MoveStep(Step):
    """What happens to a delta-move."""

    PERMITTED = "the coordinator gives permission, or there is none"
    READY = "all of the path are ready, or the first entries of the temporary table have come"
    IN_USE = "the temporary table is whole; at the broker that moves: all of them are"
    DECIDED = "it is decided, here or elsewhere"
    ENDED = "everything is known everywhere, or it was given up"


_STAGE, _STEP = MoveStage, MoveStep

MOVE_LIFE = Life(
    "a delta-move",
    (_STAGE.PREPARATION, _STAGE.INITIALIZATION),
    {
        (_STAGE.PREPARATION, _STEP.PERMITTED): _STAGE.INITIALIZATION,
        (_STAGE.INITIALIZATION, _STEP.READY): _STAGE.UPDATE,
        (_STAGE.UPDATE, _STEP.IN_USE): _STAGE.DOUBLED,
        (_STAGE.DOUBLED, _STEP.DECIDED): _STAGE.WRAP_UP,
        (_STAGE.PREPARATION, _STEP.ENDED): _STAGE.OVER,
        (_STAGE.INITIALIZATION, _STEP.ENDED): _STAGE.OVER,
        (_STAGE.UPDATE, _STEP.ENDED): _STAGE.OVER,
        (_STAGE.DOUBLED, _STEP.ENDED): _STAGE.OVER,
        (_STAGE.WRAP_UP, _STEP.ENDED): _STAGE.OVER,
    },
)

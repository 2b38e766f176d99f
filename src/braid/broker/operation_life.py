"""The life of an operation that changes links of the tree, at one of the brokers that take part, as a table.

The first broker of the path decides (it is the one that moves); the others are asked. Between the request and
the decision nothing has changed anywhere, so that giving up costs nothing. From the decision on every broker
carries out its part as soon as it hears of it, by whichever way, however late: nobody goes back.
`reconfigurations.py` is its owner.
"""

from __future__ import annotations

from braid.broker.life import Life, Stage, Step

__all__ = ["OPERATION_LIFE", "OperationStage", "OperationStep"]


class OperationStage(Stage):
    """Where an operation is in its life."""

    IDLE = "nobody here has heard of it"
    LOCKING = "an operator has asked for it; locks, and quiet on shortcuts, are waited for"
    COPYING = "tables travel to their new places, while everything goes on as before"
    PREPARED = "publications are held at the door; the markers behind those before are on their way"
    FLUSHED = "nothing is under way between the brokers of the path any more"
    UNDECIDED = "too long nothing was heard of the decision: publications go the old way until it is"
    COMMITTED = "it is decided; links and tables are being changed here"
    RESUMED = "the new link is used; the last of the tables are on their way"
    FINISHED = "everybody knows everything: the network has changed"
    ABORTED = "it is not to be: everything is as it was"


class OperationStep(Step):
    """What happens to an operation."""

    ASKED = "an operator asks for it"
    COPYING = "tables are to travel ahead"
    REQUESTED = "a broker of the path, or the lock that is ours, lets it begin"
    READY = "the marker came back: all brokers further on are ready, and what was before it has come"
    DECIDED = "it is decided, here or elsewhere"
    PART_DONE = "what this broker has to change before publications go on is changed"
    WRAPPED_UP = "what others have to tell was told"
    GIVEN_UP = "it was refused, called off, or a link or the lock was lost before the decision"
    OVERDUE = "it has taken longer than it may"


_STAGE, _STEP = OperationStage, OperationStep

OPERATION_LIFE = Life(
    "an operation",
    (_STAGE.IDLE,),
    {
        (_STAGE.IDLE, _STEP.ASKED): _STAGE.LOCKING,
        (_STAGE.IDLE, _STEP.COPYING): _STAGE.COPYING,
        (_STAGE.LOCKING, _STEP.COPYING): _STAGE.COPYING,
        (_STAGE.COPYING, _STEP.REQUESTED): _STAGE.PREPARED,
        (_STAGE.COPYING, _STEP.GIVEN_UP): _STAGE.ABORTED,
        (_STAGE.COPYING, _STEP.OVERDUE): _STAGE.ABORTED,
        (_STAGE.IDLE, _STEP.REQUESTED): _STAGE.PREPARED,
        # One that has started again, or had forgotten, hears of the decision only.
        (_STAGE.IDLE, _STEP.DECIDED): _STAGE.COMMITTED,
        (_STAGE.LOCKING, _STEP.REQUESTED): _STAGE.PREPARED,
        (_STAGE.LOCKING, _STEP.GIVEN_UP): _STAGE.ABORTED,
        (_STAGE.LOCKING, _STEP.OVERDUE): _STAGE.ABORTED,
        (_STAGE.PREPARED, _STEP.READY): _STAGE.FLUSHED,
        (_STAGE.PREPARED, _STEP.DECIDED): _STAGE.COMMITTED,
        (_STAGE.PREPARED, _STEP.GIVEN_UP): _STAGE.ABORTED,
        (_STAGE.PREPARED, _STEP.OVERDUE): _STAGE.UNDECIDED,
        (_STAGE.FLUSHED, _STEP.DECIDED): _STAGE.COMMITTED,
        (_STAGE.FLUSHED, _STEP.GIVEN_UP): _STAGE.ABORTED,
        (_STAGE.FLUSHED, _STEP.OVERDUE): _STAGE.UNDECIDED,
        (_STAGE.UNDECIDED, _STEP.DECIDED): _STAGE.COMMITTED,
        (_STAGE.UNDECIDED, _STEP.GIVEN_UP): _STAGE.ABORTED,
        (_STAGE.UNDECIDED, _STEP.OVERDUE): _STAGE.ABORTED,
        (_STAGE.COMMITTED, _STEP.PART_DONE): _STAGE.RESUMED,
        (_STAGE.COMMITTED, _STEP.OVERDUE): _STAGE.RESUMED,
        (_STAGE.RESUMED, _STEP.WRAPPED_UP): _STAGE.FINISHED,
        (_STAGE.RESUMED, _STEP.OVERDUE): _STAGE.FINISHED,
    },
)

"""The life of an exchange of links, at one of the brokers of its path, as a table.

The last broker of the path begins it and ends it. Two brokers move, one after the other: the near end of the
link that goes, then the last broker. What is over can be ended early by anybody at any time; each SHIFT that
was decided is carried out all the same, so a tree remains. `exchanges.py` is its owner.
"""

from __future__ import annotations

from braid.broker.life import Life, Stage, Step

__all__ = ["EXCHANGE_LIFE", "ExchangeStage", "ExchangeStep"]


class ExchangeStage(Stage):
    """Where an exchange is in its life."""

    LOCKING = "the last broker of the path waits for the locks of all of them"
    RESERVED = "this broker takes part in no other change, and waits for its turn or for the end"
    MOVING = "this broker carries out its SHIFTs, one after the other"
    OVER = "it was carried out, or was ended early: a tree either way"


class ExchangeStep(Step):
    """What happens to an exchange."""

    LOCKED = "the locks are held, or there is no directory that has any"
    TURN = "all of the path are ready, and it is this broker's turn"
    MOVED = "its SHIFTs are done, and it is the turn of the last broker"
    ENDED = "it is done, or a broker has given it up, or nothing was heard of it for too long"


_STAGE, _STEP = ExchangeStage, ExchangeStep

EXCHANGE_LIFE = Life(
    "an exchange",
    (_STAGE.LOCKING, _STAGE.RESERVED),
    {
        (_STAGE.LOCKING, _STEP.LOCKED): _STAGE.RESERVED,
        (_STAGE.RESERVED, _STEP.TURN): _STAGE.MOVING,
        (_STAGE.MOVING, _STEP.MOVED): _STAGE.RESERVED,
        (_STAGE.LOCKING, _STEP.ENDED): _STAGE.OVER,
        (_STAGE.RESERVED, _STEP.ENDED): _STAGE.OVER,
        (_STAGE.MOVING, _STEP.ENDED): _STAGE.OVER,
    },
)

"""The life of a soft link, as a table.

`SoftLinks` (`soft_links.py`) is its owner. One that is opened here begins when its address is dialled; one
that another broker opens begins when its greeting has been read. It has one session and ends with its
connection.
"""

from __future__ import annotations

from braid.broker.life import Life, Stage, Step

__all__ = ["SOFT_LINK_LIFE", "SoftLinkStage", "SoftLinkStep"]


class SoftLinkStage(Stage):
    """Where a soft link is in its life."""

    DIALLING = "wanted here; the other broker is dialled, and its answer is awaited"
    GREETED = "wanted there; its greeting has been read"
    UP = "publications may take it"
    RETIRING = "wanted no more: it delivers what it has, and nothing new takes it"
    ENDING = "this broker has said goodbye and waits for the end of the connection"
    CLOSED = "there is none, or no more"


class SoftLinkStep(Step):
    """What happens to a soft link."""

    ENTERED = "both brokers have agreed, and there is a connection"
    UNWANTED = "the review of soft links wants it no more"
    WANTED = "it is wanted after all, and still there"
    GIVEN_UP = "there will be none: no way, no room, or no wish any more"
    GOODBYE = "this broker says goodbye, because it stops"
    DISCONNECTED = "the connection has ended"


_STAGE, _STEP = SoftLinkStage, SoftLinkStep

SOFT_LINK_LIFE = Life(
    "a soft link",
    (_STAGE.DIALLING, _STAGE.GREETED),
    {
        (_STAGE.DIALLING, _STEP.ENTERED): _STAGE.UP,
        (_STAGE.DIALLING, _STEP.GIVEN_UP): _STAGE.CLOSED,
        (_STAGE.GREETED, _STEP.ENTERED): _STAGE.UP,
        (_STAGE.UP, _STEP.UNWANTED): _STAGE.RETIRING,
        (_STAGE.UP, _STEP.GOODBYE): _STAGE.ENDING,
        (_STAGE.UP, _STEP.DISCONNECTED): _STAGE.CLOSED,
        (_STAGE.RETIRING, _STEP.WANTED): _STAGE.UP,
        (_STAGE.RETIRING, _STEP.GOODBYE): _STAGE.ENDING,
        (_STAGE.RETIRING, _STEP.DISCONNECTED): _STAGE.CLOSED,
        (_STAGE.ENDING, _STEP.DISCONNECTED): _STAGE.CLOSED,
    },
)

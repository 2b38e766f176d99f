"""The life of a link to a neighbouring broker, as a table.

The handler that keeps the links (`links.py`) is its owner: no other takes a step. To be dialled and to be
greeted are no stages of a link: until the greeting ends it is not known which neighbour a connection leads
to, if to any. An attempt belongs to its address (`dialling.py`), and a greeting to its connection
(`handshake.py`).

Two directions meet in a link. Its stages say what this side knows of the other; what the other side was told
is data beside them.
"""

from __future__ import annotations

from braid.broker.life import Life, Stage, Step

__all__ = ["LINK_LIFE", "LinkStage", "LinkStep"]


class LinkStage(Stage):
    """Where a link is in its life."""

    DOWN = "no connection, and no session that could go on: the neighbour is told nothing"
    SUSPENDED = "no connection, but a session that may go on: what the neighbour is told waits for it"
    SYNCING = "connected; the neighbour has not said that its tables are complete"
    HELD = "it has said so, and has yet to confirm the advertisements that it was told"
    OPEN = "the interest of everybody behind it is known: publications cross it"
    RETIRING = "this broker has said goodbye and waits for the end of the connection"
    LEAVING = "another link has taken its place; what was sent over it is being settled"
    GONE = "no neighbour any more"


class LinkStep(Step):
    """What happens to a link."""

    BEGUN = "a greeting has ended with a new session"
    RESUMED = "a greeting has ended, and the session goes on"
    COMPLETE = "the neighbour says that its tables are complete"
    INCOMPLETE = "the neighbour says that it has lost track of a subscriber"
    CONFIRMED = "the neighbour has confirmed the advertisements that it was told"
    GOODBYE = "this broker says goodbye, because it stops"
    DISCONNECTED = "the connection has ended"
    FORGOTTEN = "too much waits for the session to go on"
    REPLACED = "an operation has put another link in its place"
    REMOVED = "the neighbour has left, has moved, or was given up"
    STRAYED = (
        "something happened that this table does not know: a mistake of ours, after which it begins anew"
    )


_STAGE, _STEP = LinkStage, LinkStep

LINK_LIFE = Life(
    "a link",
    (_STAGE.DOWN,),
    {
        (_STAGE.DOWN, _STEP.BEGUN): _STAGE.SYNCING,
        (_STAGE.DOWN, _STEP.REMOVED): _STAGE.GONE,
        (_STAGE.SUSPENDED, _STEP.BEGUN): _STAGE.SYNCING,
        (_STAGE.SUSPENDED, _STEP.RESUMED): _STAGE.SYNCING,
        (_STAGE.SUSPENDED, _STEP.FORGOTTEN): _STAGE.DOWN,
        (_STAGE.SUSPENDED, _STEP.REMOVED): _STAGE.GONE,
        (_STAGE.SYNCING, _STEP.COMPLETE): _STAGE.HELD,
        # A session that goes on may bring again what was said before the connection broke.
        (_STAGE.SYNCING, _STEP.INCOMPLETE): _STAGE.SYNCING,
        (_STAGE.SYNCING, _STEP.GOODBYE): _STAGE.RETIRING,
        (_STAGE.SYNCING, _STEP.DISCONNECTED): _STAGE.SUSPENDED,
        (_STAGE.HELD, _STEP.COMPLETE): _STAGE.HELD,
        (_STAGE.HELD, _STEP.INCOMPLETE): _STAGE.SYNCING,
        (_STAGE.HELD, _STEP.CONFIRMED): _STAGE.OPEN,
        (_STAGE.HELD, _STEP.GOODBYE): _STAGE.RETIRING,
        (_STAGE.HELD, _STEP.DISCONNECTED): _STAGE.SUSPENDED,
        (_STAGE.OPEN, _STEP.COMPLETE): _STAGE.OPEN,
        (_STAGE.OPEN, _STEP.INCOMPLETE): _STAGE.SYNCING,
        (_STAGE.OPEN, _STEP.GOODBYE): _STAGE.RETIRING,
        (_STAGE.OPEN, _STEP.DISCONNECTED): _STAGE.SUSPENDED,
        (_STAGE.SYNCING, _STEP.REPLACED): _STAGE.LEAVING,
        (_STAGE.HELD, _STEP.REPLACED): _STAGE.LEAVING,
        (_STAGE.OPEN, _STEP.REPLACED): _STAGE.LEAVING,
        (_STAGE.LEAVING, _STEP.DISCONNECTED): _STAGE.GONE,
        (_STAGE.LEAVING, _STEP.GOODBYE): _STAGE.GONE,
        (_STAGE.RETIRING, _STEP.DISCONNECTED): _STAGE.SUSPENDED,
        (_STAGE.RETIRING, _STEP.REMOVED): _STAGE.GONE,
        # One that an operator gave up after the goodbye.
        (_STAGE.GONE, _STEP.DISCONNECTED): _STAGE.GONE,
        **{
            (stage, _STEP.STRAYED): _STAGE.DOWN
            for stage in _STAGE
            if stage not in (_STAGE.LEAVING, _STAGE.GONE)
        },
        (_STAGE.LEAVING, _STEP.STRAYED): _STAGE.GONE,
        (_STAGE.GONE, _STEP.STRAYED): _STAGE.GONE,
    },
)

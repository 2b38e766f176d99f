"""The life of a client's connection, as a table.

`Client` (`parties.py`) takes the steps itself. A client begins when its greeting ends: before, there is only
a connection. It ends with that connection; another one of the same program is another client.
"""

from __future__ import annotations

from braid.broker.life import Life, Stage, Step

__all__ = ["CLIENT_LIFE", "ClientStage", "ClientStep"]


class ClientStage(Stage):
    """Where a client is in its life."""

    PRESENT = "connected: what it asks for is done"
    TURNED_AWAY = "it has published to a broker that stops: nothing that it says from then on is accepted"
    ENDING = "it was sent away, and the end of its connection is awaited"
    GONE = "its connection has ended; what it had published goes its way"


class ClientStep(Step):
    """What happens to a client."""

    PUBLISHED_LATE = "it has published to a broker that stops"
    SENT_AWAY = "this broker ends the connection"
    DISCONNECTED = "the connection has ended"


_STAGE, _STEP = ClientStage, ClientStep

CLIENT_LIFE = Life(
    "a client",
    (_STAGE.PRESENT,),
    {
        (_STAGE.PRESENT, _STEP.PUBLISHED_LATE): _STAGE.TURNED_AWAY,
        (_STAGE.PRESENT, _STEP.SENT_AWAY): _STAGE.ENDING,
        (_STAGE.PRESENT, _STEP.DISCONNECTED): _STAGE.GONE,
        (_STAGE.TURNED_AWAY, _STEP.PUBLISHED_LATE): _STAGE.TURNED_AWAY,
        (_STAGE.TURNED_AWAY, _STEP.SENT_AWAY): _STAGE.ENDING,
        (_STAGE.TURNED_AWAY, _STEP.DISCONNECTED): _STAGE.GONE,
        (_STAGE.ENDING, _STEP.PUBLISHED_LATE): _STAGE.ENDING,
        (_STAGE.ENDING, _STEP.SENT_AWAY): _STAGE.ENDING,
        (_STAGE.ENDING, _STEP.DISCONNECTED): _STAGE.GONE,
    },
)

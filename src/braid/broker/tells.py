"""What neighbours are told of subscriptions and advertisements, as messages that fit into their frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.protocol.limits import carried_bytes
from braid.protocol.messages import Advertise, Subscribe, Unadvertise, Unsubscribe
from braid.routing import ANYTHING, Verb

if TYPE_CHECKING:
    from braid.broker.parties import Link
    from braid.broker.turn import Turn
    from braid.protocol.codec import Body
    from braid.protocol.messages import Message
    from braid.routing import Tell

__all__ = ["carried", "message_of", "takes_back"]

# What a character takes at most.
UTF8_BYTES_MAX = 4


def carried(link: Link, tell: Tell, turn: Turn) -> Tell:
    """What a neighbour is told; everything instead of a filter that is too large for it.

    It was accepted before the neighbour was met, or where nobody knew how little is read here. To leave it
    out would hide what it covers, and those who wait for its installation would be answered.
    """
    if tell.filter is None or _fits(link, tell.filter.text):
        return tell
    turn.counters.oversized += 1
    turn.note(
        "warning",
        "a filter is too large for a neighbour, which is told TRUE instead",
        neighbour=link.name,
        key=tell.key,
        frame_bytes_max=link.channel.frame_bytes_max,
    )
    return tell._replace(filter=ANYTHING)


def _fits(link: Link, text: str) -> bool:
    """Whether a neighbour can be told of a filter."""
    bytes_max = carried_bytes(link.channel.frame_bytes_max)
    return len(text) * UTF8_BYTES_MAX <= bytes_max or len(text.encode()) <= bytes_max


def takes_back(key: str, message: Body) -> bool:
    """Whether a message takes an advertisement back."""
    return isinstance(message, Unadvertise) and message.key == key


def message_of(tell: Tell, request: int) -> Message:
    """What is said to the neighbour."""
    if tell.verb is Verb.UNSUBSCRIBE:
        return Unsubscribe(request, tell.key)
    if tell.verb is Verb.UNADVERTISE:
        return Unadvertise(request, tell.key)
    # As it was written: the reader has accepted as much before, and a canonical text may be longer.
    text = tell.filter.text if tell.filter is not None else ""
    if tell.verb is Verb.ADVERTISE:
        return Advertise(request, tell.key, text)
    return Subscribe(request, tell.key, text, anchor=tell.anchor.broker, exact=tell.anchor.exact)

"""What must hold in every channel after every turn.

Sums of bytes are kept up to date step by step, because they are asked for with every publication. Here they
are counted anew from what they are sums of. It is for tests, simulations and whoever looks for a mistake: it
looks at everything that waits.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from braid.protocol.batch import PublicationBatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from braid.protocol.channel import Channel
    from braid.protocol.codec import Body

__all__ = ["channel_violations"]


def channel_violations(channel: Channel[Any]) -> Iterator[str]:
    """What is wrong with a channel, sentence by sentence; nothing if all is well."""
    yield from _wrong_numbers(channel)
    yield from _wrong_sums(channel)
    yield from _wrong_lines(channel)
    yield from _wrong_credit(channel)


def _wrong_numbers(channel: Channel[Any]) -> Iterator[str]:
    if not 0 <= channel._peer_settled <= channel._peer_received <= channel._sent:
        yield (
            f"the peer has settled {channel._peer_settled} and received {channel._peer_received} "
            f"of {channel._sent} frames"
        )
    under_way = channel._sent - channel._peer_received
    if len(channel._unacknowledged) != under_way:
        yield f"{len(channel._unacknowledged)} frames are kept where {under_way} are under way"
    if not 0 <= channel.settled <= channel.received:
        yield f"{channel.settled} frames count as settled of {channel.received} that came"
    kept = channel._unsettled.keys()
    for sequence in channel._cares:
        if sequence not in kept and not channel._peer_received < sequence <= channel._sent:
            yield f"somebody waits for frame {sequence}, which is not kept"
    for sequence in kept:
        if sequence not in channel._cares:
            yield f"frame {sequence} is kept, and nobody waits for it"


def _wrong_sums(channel: Channel[Any]) -> Iterator[str]:
    classes = channel._sending
    waiting = {number: _bytes(each.body for each in sending.waiting) for number, sending in classes.items()}
    unsettled = dict.fromkeys(classes, 0)
    under_way = dict.fromkeys(classes, 0)
    for bodies, sums in ((channel._unsettled.values(), unsettled), (channel._unacknowledged, under_way)):
        for body in bodies:
            if isinstance(body, PublicationBatch):
                sums[body.target] += body.size
    for number, sending in classes.items():
        if sending.waiting_bytes != waiting[number]:
            yield f"class {number}: {waiting[number]} bytes wait, {sending.waiting_bytes} are counted"
        if sending.unsettled_bytes != unsettled[number]:
            yield f"class {number}: {unsettled[number]} bytes not settled, {sending.unsettled_bytes} counted"
        flying = sending.sent_bytes - sending.arrived_bytes
        if flying != under_way[number]:
            yield f"class {number}: {under_way[number]} bytes under way, {flying} counted"
        if sending.held:
            yield f"class {number}: {len(sending.held)} batches were passed over and not put back"
    for name, counted, found in (
        ("wait", channel.waiting_bytes, sum(waiting.values())),
        ("are not settled", channel.unsettled_bytes, sum(unsettled.values())),
        ("are under way", channel.unacknowledged_bytes, sum(under_way.values())),
    ):
        if counted != found:
            yield f"{found} bytes {name}, {counted} are counted"
    messages = sum(not isinstance(body, PublicationBatch) for body in channel._unacknowledged)
    if messages != channel.unacknowledged_messages:
        yield f"{messages} messages are under way, {channel.unacknowledged_messages} are counted"


def _wrong_lines(channel: Channel[Any]) -> Iterator[str]:
    lines = {"messages in line": channel._in_line}
    lines.update((f"class {number}", sending.waiting) for number, sending in channel._sending.items())
    for name, line in lines.items():
        if any(later.order < earlier.order for earlier, later in pairwise(line)):
            yield f"{name}: what was offered first does not stand first"


def _wrong_credit(channel: Channel[Any]) -> Iterator[str]:
    for number, receiving in channel._receiving.items():
        room = receiving.granted - receiving.received_bytes
        if room > receiving.window_bytes:
            yield f"class {number}: {room} bytes may come, where the window has {receiving.window_bytes}"


def _bytes(bodies: Iterable[Body]) -> int:
    return sum(body.size for body in bodies if isinstance(body, PublicationBatch))

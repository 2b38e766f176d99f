"""Settings of a client's session, and the effects with which it tells the application something.

The session also asks for `Send`, `Close`, `Dial` and `Note` (see `effects.py`). What is here concerns the
application at this end: answers, arrivals, receipts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from braid.protocol.channel import ChannelSettings
from braid.protocol.effects import Close, Dial, Note, Send

if TYPE_CHECKING:
    from braid.client.inbox import Interest
    from braid.errors import BraidError

__all__ = [
    "Answered",
    "Arrived",
    "ClientEffect",
    "ClientSettings",
    "Connected",
    "ConnectionRefused",
    "Disconnected",
    "Ended",
    "Lost",
    "Progressed",
    "PublicationsDiscarded",
    "PublicationsRefused",
    "SettledApart",
]

SECOND_US = 1_000_000


@dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """Who a client is, where its brokers are, and how patient it is."""

    addresses: tuple[str, ...]
    """Tried in turn; the text of each comes back in a `Dial`."""
    name: str
    """Unique among the clients of a broker as long as it is connected."""
    publisher: str
    """The name in the ids of publications; the broker adds whose it is."""
    incarnation: str
    """Another one for every start of the process."""
    token: str | None = None
    epoch: str = "1"
    """Of the publisher: a name that was used before needs another one, or has to go on where it stopped."""
    secret: str = ""
    """What keeps the name of an anonymous client's publisher from others; without one it is anybody's."""
    first_sequence: int = 1
    """Of the first publication."""
    connect_for_us: int = 10 * SECOND_US
    """How long the first connection is tried for."""
    reconnect_for_us: int = 300 * SECOND_US
    """How long a lost connection is tried for again; 0: not at all."""
    backoff_us_min: int = SECOND_US // 10
    """Pause before the first attempt to connect again; it doubles with every failure. Lower: sooner back,
    and more of a rush when a broker with many clients comes back."""
    backoff_us_max: int = 5 * SECOND_US
    heartbeat_us: int = 5 * SECOND_US
    """Silence after which the broker is asked whether it is there; given up after three times that."""
    outgoing_bytes_max: int = 16 * 1024 * 1024
    """Publications that wait, or are kept until it is known that they arrived. Higher: longer outages
    without a pause for the publisher, more memory."""
    channel: ChannelSettings = field(default_factory=ChannelSettings)


@dataclass(frozen=True, slots=True)
class Connected:
    """A broker welcomed us, for the first time or again."""

    broker: str
    moved: bool = False
    """Whether the one before it was another broker."""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection has gone; another one is being tried."""

    reason: str


@dataclass(frozen=True, slots=True)
class ConnectionRefused:
    """A broker did not want us, or wants us no more; `Disconnected` or `Lost` may follow."""

    code: str
    reason: str
    final: bool
    """Whether trying again would not help."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A request was carried out (`error` is None), or was not."""

    request: int
    text: str = ""
    error: BraidError | None = None


@dataclass(frozen=True, slots=True)
class Arrived:
    """There is something in the queue of a subscription."""

    interest: Interest


@dataclass(frozen=True, slots=True)
class Ended:
    """Nothing more comes for a subscription or replay; what is queued can still be read.

    `interest.failure` says why, or is None where that is simply all.
    """

    interest: Interest


@dataclass(frozen=True, slots=True)
class Progressed:
    """More publications have arrived at the broker, or are safe with everybody.

    Both are sequence numbers; they count everything up to there, and only ever rise.
    """

    received: int
    settled: int


@dataclass(frozen=True, slots=True)
class SettledApart:
    """These publications are safe with everybody, although some before them are not."""

    sequences: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PublicationsRefused:
    """The broker did not take these; comes before the `Progressed` that includes them."""

    sequences: tuple[int, ...]
    error: BraidError


@dataclass(frozen=True, slots=True)
class PublicationsDiscarded:
    """The broker took these for repetitions of what somebody else has sent; before that `Progressed`, too."""

    sequences: tuple[int, ...]
    reason: str
    known: bool = True
    """Whether exactly these were here before; otherwise they are too old to be told from repetitions."""
    highest: int = 0
    """The highest number that is known of the publisher."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The session has ended for good."""

    error: BraidError


ClientEffect: TypeAlias = (
    Send
    | Close
    | Dial
    | Note
    | Connected
    | ConnectionRefused
    | Disconnected
    | Answered
    | Arrived
    | Ended
    | Progressed
    | SettledApart
    | PublicationsRefused
    | PublicationsDiscarded
    | Lost
)

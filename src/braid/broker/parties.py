"""Who is a broker talking to?

A *party* is whoever is at the other end of a channel: a neighbouring broker (a link) or a client. A link
outlives its connections; a client's party ends with its connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from braid.broker.access import ANONYMOUS
from braid.broker.bottleneck import Bottleneck
from braid.broker.confirmations import Outstanding
from braid.broker.settling import Pending, SettleLine, divided_care
from braid.protocol import Channel, ChannelSettings, Frame, PublicationBatch
from braid.protocol.incoming import STREAM_FIRST
from braid.protocol.publisher_names import PublisherNames

if TYPE_CHECKING:
    from braid.broker.access import Principal, RateLimiter
    from braid.matching import FilterIndex
    from braid.protocol.messages import Message

__all__ = [
    "CLASSES",
    "FREE",
    "ON_TREE",
    "Client",
    "ClientDestination",
    "Link",
    "Party",
    "Release",
    "SoftLink",
    "class_of",
]

Release: TypeAlias = Callable[[], None]

# The credit classes of what brokers send to each other: what moves away from its publisher along the tree, by
# long steps or short ones, and copies for a set of brokers that may take any link (decision 0020).
ON_TREE = 0
FREE = 1
BROKER_CLASSES = 2

# The delivery classes of a client's subscriptions, by what they choose for the moment they fall behind.
CLASSES = {"block": 1, "drop_oldest": 2, "disconnect": 3}


def class_of(when_full: str) -> int | None:
    """The number of a delivery class, or None if there is no such choice."""
    return CLASSES.get(when_full)


class Party:
    """The state that links and clients share."""

    __slots__ = (
        "again",
        "behind_since_us",
        "bottleneck",
        "channel",
        "connection",
        "heard_at_us",
        "line",
        "name",
        "outside",
        "pinged",
    )

    def __init__(
        self, name: str, settings: ChannelSettings, changed: Callable[[Party], None], *, classes: int
    ) -> None:
        """`classes`: how many credit classes there are of what it sends."""
        self.name = name
        self.connection: int | None = None
        self.channel: Channel[Pending] = Channel(settings, classes)
        self.channel.divide_care = divided_care
        self.line = SettleLine(self, changed)
        self.outside: list[Message] = []
        """Messages that are not part of the channel, to be sent with the next write."""
        self.again: list[Frame] = []
        """Frames of a resumed session, to be sent before all else."""
        self.heard_at_us = 0
        self.pinged = False
        self.bottleneck = Bottleneck(name)
        """Those who get no credit because this party is behind."""
        self.behind_since_us: int | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class Link(Party):
    """A neighbouring broker."""

    __slots__ = (
        "address",
        "agreed",
        "behind",
        "current",
        "dialled",
        "down_since_us",
        "elsewhere",
        "holding_since_us",
        "incarnation",
        "met",
        "missing",
        "outstanding",
        "reaches",
        "reaches_digests",
        "round_trip_us",
        "said_complete",
        "session",
        "stale_advertisements",
        "stale_subscriptions",
        "told_complete",
        "told_links",
        "told_missing",
        "told_reach",
        "unknown",
    )

    def __init__(self, name: str, settings: ChannelSettings, changed: Callable[[Party], None]) -> None:
        super().__init__(name, settings, changed, classes=BROKER_CLASSES)
        self.address = ""
        self.agreed = ""
        """The name of the session that the channel is in, as both ends know it; empty if there is none that
        could go on."""
        self.incarnation = ""
        """The peer's, in the last session."""
        self.dialled = False
        """Whether we opened the present connection."""
        self.unknown = True
        """Whether somebody behind it may be interested in what we have not heard of."""
        self.met = False
        """Whether its interest has been known since our start."""
        self.said_complete = False
        """Whether it says that its tables hold everything behind it."""
        self.told_complete = False
        """Whether we have told it so, in this session."""
        self.down_since_us: int | None = 0
        """Since when there is no connection; None while there is one."""
        self.session = 0
        """Rises with every session."""
        self.holding_since_us = 0
        self.behind: frozenset[str] = frozenset()
        """The brokers that can be reached through it while it is up, itself included."""
        self.missing: tuple[str, ...] = ()
        """The links behind it that are missing, as it says."""
        self.elsewhere = False
        """Whether somebody has said that it is behind another neighbour now."""
        self.current = False
        """Whether it has said everything and confirmed everything since the connection came up."""
        self.told_reach: frozenset[str] = frozenset()
        """The brokers that it was told can be reached through us."""
        self.told_missing: tuple[str, ...] | None = None
        """The missing links that it was told of; None before it was told."""
        self.stale_subscriptions: set[str] = set()
        self.stale_advertisements: set[str] = set()
        self.outstanding = Outstanding()
        """What it was told and has not confirmed, and who waits for that."""
        self.reaches: frozenset[str] = frozenset()
        """The brokers it has a direct link to, as far as it says and we know them."""
        self.reaches_digests: frozenset[int] = frozenset()
        """The same as it says it."""
        self.told_links: frozenset[int] = frozenset()
        """The direct links that we told it of, in this session."""
        self.round_trip_us = 0
        """The latest that was measured; 0 before the first."""


class SoftLink(Party):
    """A shortcut to, or from, a broker that is no neighbour. It ends with its connection."""

    __slots__ = ("direction", "outgoing", "reaches", "reaches_digests", "session", "told_links")

    def __init__(
        self, name: str, settings: ChannelSettings, changed: Callable[[Party], None], *, outgoing: bool
    ) -> None:
        super().__init__(name, settings, changed, classes=BROKER_CLASSES)
        self.session = 0
        """Always the same: it has no second one."""
        self.outgoing = outgoing
        """Whether it was opened here; publications go over it both ways."""
        self.direction: str | None = None
        """The neighbour in whose direction its other end lies, as was last known."""
        self.reaches: frozenset[str] = frozenset()
        """The brokers its other end has a direct link to, as far as it says and we know them."""
        self.reaches_digests: frozenset[int] = frozenset()
        """The same as it says it."""
        self.told_links: frozenset[int] = frozenset()
        """The direct links that we told it of."""


class ClientDestination:
    """The subscriptions of one client that share one copy of what they want.

    They choose the same for the moment they fall behind. Those that have fallen behind others are in a
    *stream* of their own.
    """

    __slots__ = ("behind_since_us", "bottleneck", "client", "number", "sent_bytes", "separated")

    def __init__(self, client: Client, number: int) -> None:
        self.client = client
        self.number = number
        self.bottleneck = Bottleneck(f"{client.name} class {number}")
        """Those who get no credit because too much waits here."""
        self.behind_since_us: int | None = None
        """Since when that is so and nothing has moved."""
        self.sent_bytes = 0
        """What had been sent when it was last looked at."""
        self.separated: dict[str, int] = {}
        """In a stream: the keys of its subscriptions, and the requests that separated them."""

    @property
    def is_stream(self) -> bool:
        """Whether it has been separated from others."""
        return self.number >= STREAM_FIRST

    def __repr__(self) -> str:
        return f"<{self.client.name} class {self.number}>"


class Client(Party):
    """A connected client."""

    __slots__ = (
        "advertised",
        "advertising",
        "destinations",
        "key",
        "limiter",
        "logs",
        "own_publisher",
        "principal",
        "publishers",
        "replays",
        "subscriptions",
        "unrouted",
    )

    def __init__(
        self,
        name: str,
        key: str,
        principal: Principal,
        limiter: RateLimiter,
        settings: ChannelSettings,
        changed: Callable[[Party], None],
        secret: str = "",
    ) -> None:
        super().__init__(name, settings, changed, classes=1)
        self.key = key
        """The beginning of the global keys of its subscriptions and advertisements."""
        self.principal = principal
        known = principal.name if principal.name != ANONYMOUS else ""
        self.publishers = PublisherNames(known, secret, name)
        """The names that it may publish under."""
        self.own_publisher = ""
        """The name that it published under last: a client mostly has one."""
        self.limiter = limiter
        self.subscriptions: dict[str, str] = {}
        """Its own keys to the global ones."""
        self.destinations: dict[int, ClientDestination] = {}
        self.advertised: FilterIndex[str] | None = None
        """What it says it publishes; None as long as it says nothing."""
        self.advertising = 0
        """Its advertisements that not everybody knows of yet; its publications wait for them."""
        self.unrouted: list[tuple[PublicationBatch, Pending | None]] = []
        """Batches that wait until subscriptions can have found their way here (bounded by its credit)."""
        self.logs: set[str] = set()
        """The durable subscriptions it reads."""
        self.replays: set[int] = set()
        """The requests of the replays under way."""

    @property
    def behind(self) -> list[ClientDestination]:
        """Those of its destinations that hold others up."""
        return [each for each in self.destinations.values() if each.behind_since_us is not None]

    def owns(self, publisher: str) -> bool:
        """Whether a publisher is this client's own."""
        return publisher == self.own_publisher or self.publishers.has(publisher)

"""Who is a broker talking to?

A *party* is the peer at the other end of a channel: a neighbouring broker (a link) or a client. A link
outlives its connections; a client's party ends with its connection.

Where a party is in its life is its *stage*, which a table leads on (`life.py`); what follows from the stage
is read from it and kept nowhere else.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from braid.broker.access import ANONYMOUS
from braid.broker.bottleneck import Bottleneck
from braid.broker.client_life import CLIENT_LIFE, ClientStage, ClientStep
from braid.broker.confirmations import Outstanding
from braid.broker.link_life import LINK_LIFE, LinkStage
from braid.broker.settling import Pending, SettleLine, divided_care
from braid.broker.soft_link_life import SOFT_LINK_LIFE, SoftLinkStage
from braid.language.values import Range
from braid.protocol import Channel, ChannelSettings, Frame, PublicationBatch
from braid.protocol.incoming import STREAM_FIRST
from braid.protocol.publisher_names import PublisherNames

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from braid.broker.access import Principal, RateLimiter
    from braid.broker.life import Life, Stage, Step
    from braid.matching import FilterIndex
    from braid.protocol.messages import Message

__all__ = [
    "CLASSES",
    "FREE",
    "ON_TREE",
    "TO_LINKS",
    "Client",
    "ClientDestination",
    "Link",
    "Party",
    "SoftLink",
    "class_of",
]

# The credit classes of what brokers send to each other: what moves away from its publisher along the tree, by
# long steps or short ones, and copies for a set of brokers that may take any link (decision 0020).
ON_TREE = 0
FREE = 1
BROKER_CLASSES = 2

# The delivery classes of a client's subscriptions, by what they choose for the moment they fall behind.
CLASSES = {"block": 1, "drop_oldest": 2, "disconnect": 3}
# Where receivers come with their delivery classes: these are links.
TO_LINKS = -1


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
        "stage",
    )

    is_broker: ClassVar[bool] = True
    """Whether it is another broker and no client."""
    LIFE: ClassVar[Life[Any, Any]]
    """The table of its stages."""
    CONNECTED: ClassVar[frozenset[Stage]]
    """The stages in which it has a connection."""

    def __init__(
        self,
        name: str,
        settings: ChannelSettings,
        changed: Callable[[Party], None],
        *,
        classes: int,
        stage: Stage,
    ) -> None:
        """`classes`: how many credit classes there are of what it sends; `stage`: where its life begins."""
        self.name = name
        self.stage = stage
        self.connection: int | None = None
        """The number of its connection. Which one it is cannot be read from the stage; that there is none
        can, and `step` sees to it."""
        self.channel: Channel[Pending] = Channel(settings, classes)
        self.channel.divide_care = partial(divided_care, self)
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
        return f"<{type(self).__name__} {self.name} {self.stage.name}>"

    def step(self, step: Step) -> None:
        """Something has happened to it; for its owner alone.

        Raises:
            UnknownStepError: that cannot happen in the stage that it is in.
        """
        self.stage = self.LIFE.after(self.stage, step, self)
        if self.stage not in self.CONNECTED:
            self.connection = None

    def lies_behind(self, broker: Party) -> bool:
        """Whether what it got is known best by a broker."""
        return self is broker

    def heard(self, now_us: int) -> None:
        """Something has come from it."""
        self.heard_at_us = now_us
        self.pinged = False


class Link(Party):
    """A neighbouring broker.

    Its stage says whether it is connected, whether a session may go on, what the neighbour has said and
    whether publications cross. Beside it there is only what the stage cannot say: names and times (`agreed`,
    `incarnation`, `since_us`), what holds across stages (`unknown`, `met`, `elsewhere`), what belongs to one
    connection (`dialled`), and what either side was told (`told_complete`, `told_reach`, `missing`).
    """

    __slots__ = (
        "address",
        "agreed",
        "around",
        "behind",
        "dialled",
        "elsewhere",
        "epoch",
        "fenced_us",
        "foretold",
        "former",
        "handing_over",
        "host",
        "incarnation",
        "informed",
        "latest",
        "met",
        "missing",
        "named",
        "outstanding",
        "placed",
        "provisional",
        "reaches",
        "reaches_digests",
        "replaces",
        "rerouted",
        "resumption",
        "round_trip_us",
        "session",
        "since_us",
        "stale_advertisements",
        "stale_subscriptions",
        "successor",
        "superseded",
        "told_around",
        "told_complete",
        "told_links",
        "told_missing",
        "told_reach",
        "unknown",
    )

    LIFE = LINK_LIFE
    CONNECTED = frozenset({LinkStage.SYNCING, LinkStage.HELD, LinkStage.OPEN, LinkStage.LEAVING})

    stage: LinkStage

    def __init__(self, name: str, settings: ChannelSettings, changed: Callable[[Party], None]) -> None:
        super().__init__(name, settings, changed, classes=BROKER_CLASSES, stage=LinkStage.DOWN)
        self.channel.holding = True
        self.address = ""
        self.host = ""
        """Where its latest connection came from, or went to; empty before the first."""
        self.epoch = 0
        """How often its name has gone to another process: one that shows less has it no more."""
        self.former: tuple[str, ...] = ()
        """Where those that had the name before were dialled: never again."""
        self.fenced_us = 0
        """While it is down: from when on a process that stood still must have noticed that."""
        self.around: tuple[tuple[str, str], ...] = ()
        """Its other neighbours and their addresses, as it said last; kept while it is down."""
        self.told_around: tuple[tuple[str, str], ...] = ()
        """What it was told of that."""
        self.agreed = ""
        """The name of the session that the channel is in, as both ends know it; empty in the stage DOWN."""
        self.latest = ""
        """The name of the session that began last, also when it was given up since."""
        self.named = ""
        """The latest session that the peer has shown to know: it may never have heard of the one that began
        last."""
        self.incarnation = ""
        """The peer's, in the last session."""
        self.dialled = False
        """Whether we opened the present connection: decides between two of them, and changes nothing else."""
        self.unknown = True
        """Whether a broker behind it may be interested in what we have not heard of. A link that goes down
        keeps what it had said, so that its neighbours can be told that we know everybody; in the stage OPEN
        nobody is unknown."""
        self.met = False
        """Whether it has been open since our start; that stays."""
        self.provisional = False
        """Whether nobody has named it, and it has not been met: nothing is promised for it, and when its
        connection ends it is forgotten."""
        self.told_complete = False
        """Whether we have told it that our tables are complete, on this connection: the other direction."""
        self.since_us = 0
        """Since when it has been down, held or open."""
        self.session = 0
        """Rises with every session."""
        self.behind: frozenset[str] = frozenset()
        """The brokers that can be reached through it while it is up, itself included."""
        self.missing: tuple[str, ...] = ()
        """The links behind it that are missing, as it says."""
        self.handing_over = False
        """Whether an operation has put it here and has not brought everything that it is to be told."""
        self.placed = False
        """Whether an operation has put it in the place of another link and it has not been open yet: who is
        behind it is known from there."""
        self.rerouted = False
        """Whether an operation leads others over it than before: what comes over it again, after a crash,
        may have gone another way the first time and not everywhere that it has to go now."""
        self.resumption = ""
        """While the process that has its name now rebuilds its tables: how publications come back to it, as
        it said when the session began; empty: they are held."""
        self.foretold = False
        """Whether what is wanted behind it is known before it has said so, from a delta-move; until its
        connection ends."""
        self.superseded = False
        """Whether everything that still comes over it along the tree comes by another link as well."""
        self.replaces: Link | None = None
        """The link over which the same came before, of a broker that has moved so."""
        self.informed = False
        """Whether it said, when the session began, that it knew everything behind it."""
        self.elsewhere = False
        """Whether others have said, since it was last connected, that it is behind another neighbour."""
        self.successor: Link | None = None
        """The link that has its place, after an operation."""
        self.told_reach: tuple[str, ...] = ()
        """The brokers that it was told can be reached through us, sorted: a set would take several times as
        much."""
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

    def step(self, step: Step) -> None:
        super().step(step)
        self.foretold = self.foretold and self.stage in self.CONNECTED
        self.channel.holding = self.holding

    def lies_behind(self, broker: Party) -> bool:
        return broker in (self, self.successor)

    @property
    def down(self) -> bool:
        """Whether there is no connection, nor one whose end is awaited."""
        return self.stage in (LinkStage.DOWN, LinkStage.SUSPENDED)

    @property
    def complete(self) -> bool:
        """Whether the neighbour says that its tables hold everything behind it."""
        return self.stage in (LinkStage.HELD, LinkStage.OPEN)

    @property
    def holding(self) -> bool:
        """Whether publications are held for it, because the interest behind it is not known for sure."""
        known = self.stage in (LinkStage.OPEN, LinkStage.LEAVING, LinkStage.GONE)
        return not (known or self.foretold)

    @property
    def current(self) -> bool:
        """Whether it has said everything, and confirmed everything, since the connection came up."""
        return self.complete and not self.outstanding.catching_up


class SoftLink(Party):
    """A shortcut to, or from, a broker that is no neighbour. It ends with its connection."""

    __slots__ = ("address", "direction", "outgoing", "reaches", "reaches_digests", "session", "told_links")

    LIFE = SOFT_LINK_LIFE
    CONNECTED = frozenset({SoftLinkStage.UP, SoftLinkStage.RETIRING})

    stage: SoftLinkStage

    def __init__(
        self,
        name: str,
        settings: ChannelSettings,
        changed: Callable[[Party], None],
        *,
        outgoing: bool,
        address: str = "",
    ) -> None:
        first = SoftLinkStage.DIALLING if outgoing else SoftLinkStage.GREETED
        super().__init__(name, settings, changed, classes=BROKER_CLASSES, stage=first)
        self.address = address
        """Where it was dialled; empty for one that another broker opened."""
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

    __slots__ = ("behind_since_us", "bottleneck", "client", "moved_bytes", "number", "separated")

    def __init__(self, client: Client, number: int) -> None:
        self.client = client
        self.number = number
        self.bottleneck = Bottleneck(f"{client.name} class {number}")
        """Those who get no credit because too much waits here."""
        self.behind_since_us: int | None = None
        """Since when that is so and nothing has moved."""
        self.moved_bytes = 0
        """How much had moved when it was last looked at."""
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

    is_broker = False
    LIFE = CLIENT_LIFE
    CONNECTED = frozenset({ClientStage.PRESENT, ClientStage.TURNED_AWAY})

    stage: ClientStage

    __slots__ = (
        "advertised",
        "advertising",
        "destinations",
        "elsewhere",
        "incarnation",
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
        incarnation: str = "",
    ) -> None:
        super().__init__(name, settings, changed, classes=1, stage=ClientStage.PRESENT)
        self.incarnation = incarnation
        """The same one on all connections of one client, and never that of another."""
        self.elsewhere = False
        """Whether it wants to hear where else it may go."""
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

    # Its life: a client has no other owner than itself.

    def published_late(self) -> None:
        """It publishes to a broker that stops: nothing more is accepted from it."""
        self.step(ClientStep.PUBLISHED_LATE)

    @property
    def turned_away(self) -> bool:
        """Whether nothing is accepted from it any more."""
        return self.stage is ClientStage.TURNED_AWAY

    def send_away(self) -> None:
        """This broker ends its connection; the driver says when that has ended."""
        self.step(ClientStep.SENT_AWAY)

    def left(self) -> None:
        """Its connection has ended."""
        self.step(ClientStep.DISCONNECTED)
        self.channel.disconnect()

    def has_advertised(self, publications: Sequence[Mapping[str, Any]]) -> bool:
        """Whether its advertisements cover all these.

        A range may reach beyond an advertisement that it meets, so it counts as not advertised.
        """
        if self.advertised is None or any(Range in map(type, values.values()) for values in publications):
            return False
        return not publications or bool(self.advertised.count_batch(publications).all())

    @property
    def behind(self) -> list[ClientDestination]:
        """Those of its destinations that hold others up."""
        return [each for each in self.destinations.values() if each.behind_since_us is not None]

    def is_again(self, other: Client) -> bool:
        """Whether both are connections of one and the same client."""
        return self.name == other.name and bool(self.incarnation) and self.incarnation == other.incarnation

    def owns(self, publisher: str) -> bool:
        """Whether a publisher is this client's own."""
        return publisher == self.own_publisher or self.publishers.has(publisher)

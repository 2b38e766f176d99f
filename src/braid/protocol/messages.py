"""What do brokers and clients say to each other?

Each message is a small struct that travels as a msgpack array with a number for its kind in front.
Publications are not here: they travel in batches, whose bytes are relayed as they came (`batch.py`).

A *request* carries a number chosen by its sender; `Done` or `Failed` with the same number answers it.
Messages marked *sequenced* count as frames of a channel: they are acknowledged, and sent again when a
broken connection comes back. The others belong to one connection only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from braid.protocol.changes import (
    AvoidShortcuts,
    ChangeAbort,
    ChangeCommit,
    ChangeDone,
    ChangeFinish,
    ChangeMoving,
    ChangeReady,
    ChangeRequest,
    MoveEntries,
    MoveInUse,
    MoveLast,
    ShortcutsAvoided,
    UseShortcuts,
)
from braid.protocol.copies import CopyMessage
from braid.protocol.log_requests import AcknowledgeDurable, CreateDurable, LogStatus, PinLog
from braid.protocol.organising import ExchangeMessage, LinkRequest, TopologyNews
from braid.protocol.packed_rows import PackedRows

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "PASSING",
    "PROTOCOL_VERSION",
    "UNSEQUENCED",
    "Acknowledge",
    "AcknowledgeDurable",
    "Acknowledgement",
    "Advertise",
    "Ask",
    "CreateDurable",
    "Done",
    "DropDurable",
    "Failed",
    "Goodbye",
    "Hello",
    "Introduction",
    "LinkState",
    "Loads",
    "LogReset",
    "LogStatus",
    "Message",
    "Nearby",
    "PinLog",
    "Ping",
    "Pong",
    "PublishDiscarded",
    "PublishRefused",
    "Reach",
    "Refused",
    "Replay",
    "Separate",
    "Settled",
    "SoftWord",
    "StopReading",
    "StoredPublications",
    "Subscribe",
    "SubscribeDurable",
    "SyncBegin",
    "TablesComplete",
    "TablesIncomplete",
    "Unadvertise",
    "Unsubscribe",
    "Welcome",
]

# Rises with every change that an older peer would misunderstand.
PROTOCOL_VERSION = 6


class _Message(msgspec.Struct, array_like=True, frozen=True):
    """The root of all messages; a kind is a number, so that names can improve."""


class Hello(_Message, tag=1, frozen=True):
    """The first message of whoever opened the connection."""

    version: int
    role: str
    """`client`, `broker` (a primary link) or `soft` (a soft link of a broker)."""
    name: str
    """A broker's id, or a name for a client (unique as long as it is connected)."""
    incarnation: str
    """Another one for every start of the process."""
    token: str | None = None
    resumes: str = ""
    """Between brokers: the session to go on with, by the name that both know it by; empty for a new one."""
    received: int = 0
    """In that session: everything up to this frame has arrived here."""
    credit: int = 0
    """Bytes of sequenced frames that the peer may send in this session, counted from its start."""
    address: str = ""
    """Where a broker can be reached by others."""
    brokers: list[str] = []
    """The brokers that this link would connect the peer to: links must not close a loop."""
    delta: int = 1
    """How far a broker wants to see: within so many links it is told who is there and who wants what."""
    secret: str = ""
    """What an anonymous client alone knows: the names of its publishers carry a digest of it."""
    frame_bytes_max: int = 0
    """The largest frame that the sender reads; 0 from a client that reads whatever the broker sends."""
    proofs: dict[str, str] = {}
    """By the names of brokers met before: what proves this to each; of a soft link, its `SoftWord`."""
    ticket: str = ""
    """For a neighbour that is dialled where it was met: what it shows when it dials the sender."""
    returned: dict[str, str] = {}
    """By the names of brokers that have given the sender a ticket: what proves to each that it has it."""
    operation: str = ""
    """For a link that an operation makes: the id of that operation, which both ends take part in."""
    epoch: int = 0
    """How often a broker's name has gone to another process: the one with the greatest has it."""
    elsewhere: bool = False
    """From a client: whether it wants to hear where else it may go (`Reach.neighbours`)."""
    resumption: str = ""
    """From a broker that takes another's place and does not know all tables yet: how publications come back
    to it; empty: they wait until it does."""


class Welcome(_Message, tag=2, frozen=True):
    """The answer to `Hello`; its fields mean the same."""

    version: int
    name: str
    incarnation: str
    resumes: str = ""
    received: int = 0
    credit: int = 0
    frame_bytes_max: int = 0
    address: str = ""
    brokers: list[str] = []
    principal: str = ""
    """Whom the broker takes the client for; empty if it is anonymous (see `publisher_names`)."""
    delta: int = 1
    session: str = ""
    """Between brokers: the name of the session from now on; the one that was asked for if it goes on."""
    proofs: dict[str, str] = {}
    """Between brokers: by the name of whoever dialled, if they have met."""
    epoch: int = 0
    complete: bool = False
    """Between brokers: whether the sender knows all tables but the peer's, as `TablesComplete` says later."""


class Refused(_Message, tag=3, frozen=True):
    """The connection is closed after this, and here is why."""

    code: str
    reason: str
    name: str = ""
    """Where two brokers have a connection already: who refuses a second one."""
    place: str = ""
    """Where an operation has ended this link: the broker in whose place there is a link now."""
    address: str = ""
    """Where that broker can be dialled."""
    epoch: int = 0
    """To a broker whose name another process has: as in `Hello`."""


class Goodbye(_Message, tag=4, frozen=True):
    """The sender leaves on purpose; `detach` says that this link is not to be used again."""

    reason: str = ""
    detach: bool = False


class Ping(_Message, tag=5, frozen=True):
    """Are you there?"""

    number: int


class Pong(_Message, tag=6, frozen=True):
    """Yes."""

    number: int
    """That of the `Ping`; 0 where nobody asked: a long frame is coming in, and what you ask is behind it."""


class Acknowledgement(_Message, tag=7, frozen=True):
    """How far the other direction of a channel has come; all of it only ever rises.

    `settled` counts frames whose acknowledged publications are safe with everybody downstream.
    """

    received: int
    settled: int
    credit: int
    """Bytes of publications of class 0, counted from the start of the session."""
    credits: list[tuple[int, int]] = []
    """The same for other classes, as far as it has changed: (class, bytes)."""
    held: bool = False
    """Whether some credit is kept back on purpose: what waits for it is to wait."""


class Subscribe(_Message, tag=10, frozen=True):
    """A request, sequenced. From a client, `key` is a number of its own; between brokers it is global."""

    request: int
    key: str
    filter: str
    when_full: str = "block"
    anchor: str = ""
    """Between brokers: the broker on the way to the subscriber that publications can be sent to, as far away
    as the receiver wants to see; empty: the sender itself."""
    exact: bool = False
    """Between brokers: whether the subscribers are clients of the anchor itself, and this hides no others."""
    partial: bool = False
    """From a client: an answer that covers only the part of the network that can be reached is welcome."""
    patience_us: int = 0
    """From a client: how long it waits for links that are down, before the answer is `Failed`; 0: however
    long that takes."""


class Unsubscribe(_Message, tag=11, frozen=True):
    """A request, sequenced."""

    request: int
    key: str


class Advertise(_Message, tag=12, frozen=True):
    """A request, sequenced: publications that satisfy this filter may come from here."""

    request: int
    key: str
    filter: str


class Unadvertise(_Message, tag=13, frozen=True):
    """A request, sequenced."""

    request: int
    key: str


class Done(_Message, tag=14, frozen=True):
    """Sequenced. A subscription is installed along the whole path, an advertisement is known to all."""

    request: int
    text: str = ""
    """The effective filter of a subscription, or the answer to `Ask` as JSON."""
    missing: list[str] = []
    """To a client that asked for a partial answer: the links that are down, so that the subscription does not
    cover what is published behind them."""


class Failed(_Message, tag=15, frozen=True):
    """Sequenced. The request was not carried out, and here is why."""

    request: int
    code: str
    reason: str


class PublishRefused(_Message, tag=16, frozen=True):
    """Sequenced. These publications of the client were not accepted, and here is why."""

    publisher: str
    sequences: list[int]
    code: str
    reason: str


class PublishDiscarded(_Message, tag=17, frozen=True):
    """Sequenced. These publications of the client were taken for repetitions and went nowhere.

    Only the client knows whether it has sent them before itself. Then they were delivered, and all is well.
    """

    publisher: str
    sequences: list[int]
    highest: int
    """The highest number that is known of the publisher."""
    known: bool = True
    """Whether exactly these were here before; otherwise they are so old that nothing is known of them."""


class Separate(_Message, tag=18, frozen=True):
    """A request, sequenced: a subscription whose consumer is slower than others gets copies of its own.

    Frames before the answer still are for all of them, those behind it are not.
    """

    request: int
    key: str
    stream: int
    """The class of these copies, which no other subscription has."""


class SubscribeDurable(_Message, tag=20, frozen=True):
    """A request, sequenced: create the named log or go on reading it."""

    request: int
    name: str
    filter: str
    """Empty to go on with the filter that the log was made with."""
    when_full: str = "drop_oldest"
    resume_after: int = -1
    """The highest offset that the client knows it has acknowledged."""
    taken: int = -1
    """The highest offset that has arrived at this client."""
    epochs: list[tuple[str, int]] = []
    """The epochs of the rows that have arrived, and the offset at which each began (`EpochHistory`)."""
    partial: bool = False
    """As in `Subscribe`, and so is what follows."""
    patience_us: int = 0
    secret: str = ""
    """What an anonymous client shows to have the log to itself."""
    takeover: bool = False
    """Whether another client that reads the log is to stop; without that, the second one is refused."""
    copies: int = 0
    """How many neighbours of the broker are to keep the rows, too: none or one."""


class StoredPublications(_Message, tag=21, frozen=True):
    """Rows of a log in the order of their offsets: (publisher, sequence, record)."""

    name: str
    first_offset: int
    rows: list[tuple[str, int, bytes]]
    replay: int = 0
    """The number of the `Replay` request this belongs to, if any."""
    reader: int = 0
    """Otherwise the number of the `SubscribeDurable` request: a client may have stopped and begun again."""
    offsets: list[int] = []
    """The offset of each row where they are not consecutive: rows beyond the reader's grant are left out."""
    epoch: str = ""
    """The epoch of all these rows."""
    packed: PackedRows | None = None
    """The rows as columns, instead, for a replay that asked for that; their offsets are consecutive."""

    def numbered(self) -> Iterable[tuple[int, tuple[str, int, bytes]]]:
        """Each row with its offset."""
        if self.offsets:
            return zip(self.offsets, self.rows, strict=False)
        return enumerate(self.rows, self.first_offset)


class Acknowledge(_Message, tag=22, frozen=True):
    """Sequenced: the client is done with everything up to this offset of a log."""

    name: str
    offset: int
    epoch: str = ""
    """That of the row at this offset; if the log has another row there, this means nothing."""


class Replay(_Message, tag=23, frozen=True):
    """A request, sequenced: send this range of offsets again; `last` is included, -1 means the end."""

    request: int
    name: str
    first: int
    last: int = -1
    epoch: str = ""
    """To go on with a replay: the epoch of the row before `first`, which has arrived."""
    secret: str = ""
    """As in `SubscribeDurable`."""
    complete: bool = False
    """Whether a row of the range that is not there, or not safe yet, fails the request. Rows beyond the
    owner's grant, and those that the filter below does not choose, are passed over all the same."""
    id: str = ""
    """The id of the log that is meant; with another one under this name the request fails."""
    filter: str = ""
    """Only rows that satisfy this, as well as the log's own filter; empty: all of them."""
    columns: list[str] | None = None
    """The attributes to send of each row, without the body; None: rows as they were stored."""
    packed: bool = False
    """Whether rows may come as columns."""


class DropDurable(_Message, tag=24, frozen=True):
    """A request, sequenced: end the durable subscription and forget its log."""

    request: int
    name: str
    secret: str = ""
    """As in `SubscribeDurable`."""


class StopReading(_Message, tag=25, frozen=True):
    """Sequenced: the client reads this log no more for now; the log goes on."""

    name: str


class LogReset(_Message, tag=26, frozen=True):
    """Sequenced, before any row: the log no longer has all that its reader knows, such as after a restore."""

    name: str
    reader: int
    """The number of the `SubscribeDurable` request."""
    next_offset: int
    """Rows from here on are new, whatever the reader had at these offsets."""
    known: bool = False
    """Whether the rows before that are those that the reader knows."""


class SyncBegin(_Message, tag=30, frozen=True):
    """Sequenced, between brokers: what I know follows; what I do not repeat may be stale."""


class TablesComplete(_Message, tag=31, frozen=True):
    """Sequenced, between brokers: everything behind me is in what I told you. Forget what is stale."""


class TablesIncomplete(_Message, tag=32, frozen=True):
    """Sequenced, between brokers: somebody behind me cannot be asked at the moment. Keep what you owe."""


class Reach(_Message, tag=33, frozen=True):
    """Sequenced, between brokers: these brokers can be reached through me, and these links are missing."""

    brokers: list[str]
    missing: list[str] = []
    """Links that are down or not up to date: what is published behind them may pass new subscribers by."""
    neighbours: list[tuple[str, str]] = []
    """My (other) neighbours and their addresses: asked if this broker is to be replaced; told to clients."""


class Nearby(_Message, tag=34, frozen=True):
    """Sequenced, between brokers: what has changed behind me, within the distance you want to see."""

    added: list[tuple[str, str, str]]
    """(broker, the one before it on the way there, its address); the nearer ones first."""
    removed: list[str]


class Loads(_Message, tag=35, frozen=True):
    """Sequenced, between brokers: how busy I and those behind me are, as far as it has changed."""

    rows: list[tuple[str, int, int, int]]
    """(broker, publications sent in a second, at most so many, round trip time of the link before it)."""


class LinkState(_Message, tag=36, frozen=True):
    """Sequenced, between brokers: what has changed of my direct links in this session, as packed digests."""

    added: bytes
    """The brokers I have a link to now."""
    gone: bytes = b""
    """Those I have none to any more."""


class Settled(_Message, tag=37, frozen=True):
    """Sequenced: these frames of yours are settled, although some before them are not."""

    frames: list[int]


class Introduction(_Message, tag=38, frozen=True):
    """Sequenced, between brokers: the key by which you can tell me from others who use my name."""

    key: str
    """Empty from a broker that keeps no data."""
    ticket: str = ""
    """What proves to this process of the sender's that the receiver comes again."""


class SoftWord(_Message, tag=39, frozen=True):
    """Between brokers, passed on along the tree: a soft link is about to be opened.

    It is part of that greeting, so it is not sequenced: if it is lost, another attempt has another one.
    """

    sender: str
    """The broker that opens it."""
    receiver: str
    """The broker that it leads to."""
    word: str
    """What its greeting shows as the proof for the receiver."""


class Ask(_Message, tag=40, frozen=True):
    """A request for a report or an operation, sequenced: `topic` and its arguments."""

    request: int
    topic: str
    arguments: dict[str, str] = {}


Message: TypeAlias = (
    Hello
    | Welcome
    | Refused
    | Goodbye
    | Ping
    | Pong
    | Acknowledgement
    | Subscribe
    | Unsubscribe
    | Advertise
    | Unadvertise
    | Done
    | Failed
    | PublishRefused
    | PublishDiscarded
    | Separate
    | SubscribeDurable
    | StoredPublications
    | Acknowledge
    | Replay
    | DropDurable
    | StopReading
    | LogReset
    | CreateDurable
    | LogStatus
    | AcknowledgeDurable
    | SyncBegin
    | TablesComplete
    | TablesIncomplete
    | Reach
    | Nearby
    | Loads
    | LinkState
    | Settled
    | Introduction
    | SoftWord
    | Ask
    | PinLog
    | TopologyNews
    | LinkRequest
    | ExchangeMessage
    | ChangeRequest
    | ChangeReady
    | ChangeCommit
    | ChangeDone
    | ChangeFinish
    | ChangeMoving
    | ChangeAbort
    | AvoidShortcuts
    | ShortcutsAvoided
    | UseShortcuts
    | MoveEntries
    | MoveInUse
    | MoveLast
    | CopyMessage
)

UNSEQUENCED = (
    Hello,
    Welcome,
    Refused,
    Goodbye,
    Ping,
    Pong,
    Acknowledgement,
    SoftWord,
    TopologyNews,
    LinkRequest,
)

PASSING = frozenset({Acknowledgement, Ping, Pong})
"""What a driver may write before publications that wait for a slow line. It speaks of the other direction."""

"""What the handlers of one broker tell each other: internal events, and who hears of them.

A handler that has changed something tells what has happened, and does not know who cares. Who hears of it,
and in which order, is one table (`composition.py`), which is the same for all brokers and never changes.
Those who hear of an event are called at once, within the same turn; what they cause themselves is told before
the next one hears of the first. A question is no event: a handler that has one is given the answerer when it
is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from braid.errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from braid.broker.operations import Ended
    from braid.broker.parties import Client, Link, Party, SoftLink
    from braid.broker.settling import Pending
    from braid.broker.waiters import Waiter
    from braid.errors import RequestRefusedError
    from braid.protocol import PublicationBatch

__all__ = [
    "EVENTS",
    "Advertised",
    "Announced",
    "AnythingExpected",
    "CaughtUp",
    "ClientLeft",
    "ConnectionEnded",
    "CopyStranded",
    "Detached",
    "DialFailed",
    "Entered",
    "Event",
    "Events",
    "Hearer",
    "Installed",
    "InterestKnown",
    "JoinLost",
    "Joined",
    "LeftOut",
    "LinkAbandoned",
    "LinkBegun",
    "LinkLost",
    "LinkOpening",
    "LinkRemoved",
    "MapChanged",
    "NameTaken",
    "NeighbourGone",
    "NeighboursTold",
    "NotInstalled",
    "OperationEnded",
    "PlaceChanged",
    "PlaceEnded",
    "PublicationsHeld",
    "PublicationsResumed",
    "ReachChanged",
    "Ready",
    "SoftLinkEnded",
    "SoftLinkLost",
    "SoftLinksChanged",
    "TrackLost",
]


# Connections.


@dataclass(frozen=True, slots=True)
class Entered:
    """A connection has been greeted and is that of a party from now on."""

    party: Party


@dataclass(frozen=True, slots=True)
class ConnectionEnded:
    """A greeted connection is over, whatever it was."""

    connection: int


@dataclass(frozen=True, slots=True)
class LinkLost:
    """The connection of a link is over; the link waits for the next one."""

    link: Link
    strayed: bool = False
    """Whether we have lost our way with it, so that its session cannot go on."""
    there: bool = False
    """Whether the other end has closed it, and so knows that it is over."""


@dataclass(frozen=True, slots=True)
class SoftLinkEnded:
    """The connection of a soft link is over."""

    soft: SoftLink


@dataclass(frozen=True, slots=True)
class ClientLeft:
    """A client has gone."""

    client: Client


@dataclass(frozen=True, slots=True)
class Detached:
    """A neighbour says goodbye for good."""

    link: Link


@dataclass(frozen=True, slots=True)
class DialFailed:
    """A connection that we dialled is not to be."""

    address: str
    soft: bool


# Links.


@dataclass(frozen=True, slots=True)
class LinkBegun:
    """A session with a neighbour has begun: it is to be told everything, as far as it wants to see."""

    link: Link
    delta: int
    ahead: bool = False
    """Whether both ends have said everything before it was a link among the others."""


@dataclass(frozen=True, slots=True)
class LinkOpening:
    """A neighbour has said everything and knows everything: what it has not repeated is no more."""

    link: Link


@dataclass(frozen=True, slots=True)
class NameTaken:
    """A neighbour that we dialled says that another process has our name."""

    neighbour: str
    epoch: int
    """How often it has gone to another process."""
    address: str
    """Where that one can be reached."""


@dataclass(frozen=True, slots=True)
class InterestKnown:
    """The interest of a neighbour is known for the first time since our start."""

    link: Link


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """A neighbour has confirmed all that it was told when it came up."""

    link: Link


@dataclass(frozen=True, slots=True)
class TrackLost:
    """A neighbour could not be asked who is interested behind it."""

    link: Link


@dataclass(frozen=True, slots=True)
class LinkAbandoned:
    """A broker that nobody has named has gone before it had said everything: what came from it goes."""

    link: Link


@dataclass(frozen=True, slots=True)
class LinkRemoved:
    """A link is no more, whatever the reason."""

    link: Link


@dataclass(frozen=True, slots=True)
class Joined:
    """A broker has greeted for a link that an operation makes and has not decided on."""

    link: Link


@dataclass(frozen=True, slots=True)
class JoinLost:
    """The connection of such a link is over."""

    link: Link


@dataclass(frozen=True, slots=True)
class PlaceChanged:
    """A broker hangs on another one than before, as an operation has decided."""

    moving: str
    old: str
    new: str
    address: str
    """Where the new neighbour of this broker, if it has one, can be dialled."""


@dataclass(frozen=True, slots=True)
class PlaceEnded:
    """An operation has ended a link, which was dialled at these addresses."""

    name: str
    ended: Ended
    dialled: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PublicationsHeld:
    """Publications wait at the door, as an operation begins; or less waits there than before."""


@dataclass(frozen=True, slots=True)
class PublicationsResumed:
    """Publications go their way again."""


@dataclass(frozen=True, slots=True)
class OperationEnded:
    """An operation that this broker has asked others for is over."""

    operation: str
    problem: str
    """Why it was given up; empty if it was carried out."""


@dataclass(frozen=True, slots=True)
class NeighbourGone:
    """A neighbour is none any more: another broker may have its name."""

    link: Link
    for_good: bool = False
    """Whether it has left the network or was given up, and is not just elsewhere in the tree."""


@dataclass(frozen=True, slots=True)
class CopyStranded:
    """A copy for a set of brokers waited for a link that is no more."""

    batch: PublicationBatch
    care: Pending | None


@dataclass(frozen=True, slots=True)
class ReachChanged:
    """There may be a way to other brokers than before, or other links may be missing."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Publications of clients are accepted from now on."""


# Publications and subscriptions.


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Publications are too large for a party; those who wait for them do not know yet."""

    party: Party
    batch: PublicationBatch


@dataclass(frozen=True, slots=True)
class Advertised:
    """All neighbours know what a client says that it publishes."""

    client: Client


@dataclass(frozen=True, slots=True)
class Installed:
    """A subscription is known everywhere, but for what lies behind missing links that were accepted."""

    waiter: Waiter
    missing: Sequence[str]


@dataclass(frozen=True, slots=True)
class NotInstalled:
    """A subscription cannot be known everywhere, or not in time."""

    waiter: Waiter
    error: RequestRefusedError


@dataclass(frozen=True, slots=True)
class Announced:
    """All neighbours that a waiter waits for have confirmed the advertisements that they were told."""

    waiter: Waiter


@dataclass(frozen=True, slots=True)
class AnythingExpected:
    """All neighbours know that anything may be published here: what a client has published can go its way."""

    client: Client


@dataclass(frozen=True, slots=True)
class NeighboursTold:
    """Neighbours know what they were to be told step by step."""


# Maps and soft links.


@dataclass(frozen=True, slots=True)
class MapChanged:
    """Other brokers are in sight than before, or elsewhere."""


@dataclass(frozen=True, slots=True)
class SoftLinksChanged:
    """Publications may take other soft links than before."""


@dataclass(frozen=True, slots=True)
class SoftLinkLost:
    """A soft link has gone: what it may not have delivered has to go another way."""

    soft: SoftLink


Event: TypeAlias = (
    Entered
    | ConnectionEnded
    | LinkLost
    | SoftLinkEnded
    | ClientLeft
    | Detached
    | DialFailed
    | LinkBegun
    | LinkOpening
    | NameTaken
    | InterestKnown
    | CaughtUp
    | TrackLost
    | LinkAbandoned
    | LinkRemoved
    | NeighbourGone
    | Joined
    | JoinLost
    | PlaceChanged
    | PlaceEnded
    | PublicationsHeld
    | PublicationsResumed
    | OperationEnded
    | CopyStranded
    | ReachChanged
    | Ready
    | LeftOut
    | Advertised
    | Installed
    | NotInstalled
    | Announced
    | AnythingExpected
    | NeighboursTold
    | MapChanged
    | SoftLinksChanged
    | SoftLinkLost
)

EVENTS: tuple[type[Event], ...] = Event.__args__

Hearer: TypeAlias = "Callable[[Any, Any], None]"
"""Has a handler of a broker hear of an event: it is called with all handlers of one broker, and the event."""


class Events:
    """Tells handlers what has happened."""

    __slots__ = ("_broker", "table")

    def __init__(self) -> None:
        self.table: Mapping[type, Sequence[Hearer]] = {}
        """Who hears of which event, in order. All brokers have the same."""
        self._broker: Any = None

    def use(self, table: Mapping[type[Event], Sequence[Hearer]], broker: Any) -> None:
        """The broker is put together: these of its handlers hear of events from now on.

        Raises:
            LocalProtocolError: the table is not about exactly the events there are.
        """
        if table.keys() != set(EVENTS):
            names = sorted(kind.__name__ for kind in table.keys() ^ set(EVENTS))
            raise LocalProtocolError(f"the table of events does not fit the events there are: {names}")
        self.table = table
        self._broker = broker

    def tell(self, event: Event) -> None:
        """Something has happened: all who are concerned hear of it, in the order of the table."""
        for hear in self.table[type(event)]:
            hear(self._broker, event)

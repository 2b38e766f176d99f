"""What do brokers say to each other about a better tree?

The self-organising paper, section 4.3: news of each broker travels a few links far and collects the path that
it takes; a request travels along a path and collects what the brokers there think of an exchange of links.
What they have agreed on is carried out with the exchange messages (`broker/exchanges.py`). All of this is
about the primary network, so these are messages between neighbours.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

__all__ = [
    "ExchangeEnd",
    "ExchangeMessage",
    "ExchangeRequest",
    "ExchangeTurn",
    "LinkRequest",
    "PathStep",
    "RequestStep",
    "TopologyNews",
]


class PathStep(msgspec.Struct, array_like=True, frozen=True):
    """A broker that news came by, and the link before it."""

    broker: str
    processing: float
    """What a message costs at this broker."""
    link_cost: float = 0.0
    """What a message costs on the link to the broker before it on the path; 0 for the first."""
    link_interest: float = 0.0
    """How many publications the two ends of that link have in common; 0 for the first."""
    traffic: bytes = b""
    """A sample of what passed this broker and concerns others than its neighbours on the path."""


class TopologyNews(msgspec.Struct, array_like=True, frozen=True, tag=70):
    """What a broker is interested in and what it costs, with the path that this came by."""

    number: int
    """Rises with every news of the same broker."""
    hops_left: int
    """How many links it may still cross."""
    interest: bytes
    """The filter of what the origin delivered or took in since its last news."""
    path: tuple[PathStep, ...]
    """The origin first, the sender last."""
    address: str = ""
    """Where the origin can be reached."""

    @property
    def origin(self) -> str:
        """Whose news it is."""
        return self.path[0].broker


class RequestStep(msgspec.Struct, array_like=True, frozen=True):
    """A broker on a cycle, and the link behind it."""

    broker: str
    processing: float
    link_cost: float = 0.0
    """What a message costs on the link to the next broker; for the last one on the new link."""
    traffic: bytes = b""
    """As in `PathStep`; of those that the request has reached."""


class LinkRequest(msgspec.Struct, array_like=True, frozen=True, tag=71):
    """May these two be linked, and which link goes instead? From the first broker of a path to the last."""

    number: int
    """That of the news it answers."""
    steps: tuple[RequestStep, ...]
    """The brokers from the requester to the target. The link behind the last is the new one."""
    costs: tuple[float, ...]
    """For each link of the cycle: the cost of what remains without it, as far as brokers have said."""
    has_room: bool = True
    """Whether the requester may have one more link."""
    policy: str = ""
    """By what the requester judges; brokers that judge by something else end it."""

    @property
    def requester(self) -> str:
        """Who wants the link."""
        return self.steps[0].broker

    @property
    def target(self) -> str:
        """To whom."""
        return self.steps[-1].broker


class ExchangeRequest(msgspec.Struct, array_like=True, frozen=True, tag=72):
    """Sequenced, from the last broker of a path to the first: take part in nothing else meanwhile."""

    exchange: str
    """Its id, unlike that of every other."""
    path: tuple[str, ...]
    """The first and the last broker are to be linked."""
    removed: int
    """The link between this broker of the path and the next one goes."""
    epoch: int
    """That of the locks of the whole path; 0 where there is no directory."""


class ExchangeTurn(msgspec.Struct, array_like=True, frozen=True, tag=73):
    """Sequenced: it is your turn to move, or that of the next broker. All of the path are ready."""

    exchange: str


class ExchangeEnd(msgspec.Struct, array_like=True, frozen=True, tag=74):
    """Sequenced, passed on around the cycle: the exchange is over."""

    exchange: str
    problem: str
    """Why it ended early; empty if it was carried out."""


ExchangeMessage: TypeAlias = ExchangeRequest | ExchangeTurn | ExchangeEnd

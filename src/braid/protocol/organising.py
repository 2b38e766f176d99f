"""What do brokers say to each other about a better tree?

The self-organising paper, section 4.3: news of each broker travels a few links far and collects the path that
it takes; a request travels along a path and collects what the brokers there think of an exchange of links.
Both are about the primary network, so they are messages between neighbours.
"""

from __future__ import annotations

import msgspec

__all__ = ["LinkRequest", "PathStep", "RequestStep", "TopologyNews"]


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

    @property
    def requester(self) -> str:
        """Who wants the link."""
        return self.steps[0].broker

    @property
    def target(self) -> str:
        """To whom."""
        return self.steps[-1].broker

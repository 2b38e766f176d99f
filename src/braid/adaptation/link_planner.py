"""What do all ways of choosing soft links have in common?

A planner counts what is sent, and once in a while says which soft links a broker should have. It never
touches a link: the broker opens and closes what differs from the plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from braid.adaptation.neighbourhood_load import NeighbourhoodLoad
    from braid.routing.overlay_map import OverlayMap

__all__ = ["LinkPlan", "LinkPlanner", "SoftLinkSettings"]


@dataclass(frozen=True, kw_only=True)
class SoftLinkSettings:
    """How many soft links a broker has, and how it looks for better ones."""

    fanout: int = 16
    """All links of one broker, at most: primary ones, soft ones that it opened, and soft ones that others
    opened to it. A broker that is full refuses further soft links; primary ones take the place of soft ones.
    Higher: shorter paths, more connections."""
    candidates_max: int = 4
    """Links tried at a time without a connection (`maxlinks - fanout` in the paper); with SB, links opened
    with one review. Higher: the mesh is built in fewer rounds, more counting, and those who come first leave
    less to the others."""
    review_us: int = 20_000_000
    """Time between two reviews. Lower: adapts sooner, swaps more often."""
    load_threshold: float = 0.8
    """A bypassed broker whose load (1: all its uplink, or the busiest around) exceeds this makes a soft link
    worth more."""
    advantage: float = 1.25
    """How much better than a link that is there another must be to replace it. Higher: steadier."""
    rest_reviews: int = 6
    """Reviews for which a link that was given up, refused, or could not be made, is not tried again."""

    def __post_init__(self) -> None:
        for name, least in (("fanout", 1), ("candidates_max", 0), ("review_us", 1_000), ("rest_reviews", 0)):
            if getattr(self, name) < least:
                raise ConfigurationError(f"{name} must be at least {least}, not {getattr(self, name)}")
        if self.advantage < 1:
            raise ConfigurationError(f"advantage must be at least 1, not {self.advantage}")


class LinkPlan(NamedTuple):
    """What a review decided."""

    soft: frozenset[str]
    """The brokers to have a soft link to."""
    candidates: frozenset[str]
    """The brokers to have a stub to, to find out what a link would be worth."""


class LinkPlanner(Protocol):
    """Chooses soft links."""

    def sent(self, broker: str, publications: int) -> None:
        """So many publications were for this broker."""
        ...

    def failed(self, broker: str) -> None:
        """A soft link to it could not be made or was lost."""
        ...

    def review(
        self, overlay: OverlayMap, load: NeighbourhoodLoad, others: frozenset[str] = frozenset()
    ) -> LinkPlan:
        """Choose anew, by what was sent since the last review.

        Args:
            overlay: the brokers in sight.
            load: how busy they are.
            others: brokers that have a soft link to this one. It serves both ends, and takes a place.
        """
        ...

    def instead(self) -> str | None:
        """Whom to link to in the place of one that failed since the last review; each is named once."""
        ...

    def least_useful(self, brokers: Iterable[str], overlay: OverlayMap, load: NeighbourhoodLoad) -> str:
        """The soft link that is missed least, of some."""
        ...

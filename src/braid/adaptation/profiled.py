"""Which shortcuts within sight carry the most, past the most?

The soft link management of the multipath paper (section 6). The *gain* of a link is the publications sent
over it, times the brokers it bypasses, times a factor for those of them that are overloaded or slow to reach.
Links with low gain make room for candidates with high gain. New candidates are looked for beside the links
that carry the most.

Readings of the paper (errata): the load factor can only raise the gain; candidates are looked for by
publications, because primary links never have a gain; and a free slot is filled also with little gain.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from braid.adaptation.link_planner import LinkPlan

if TYPE_CHECKING:
    from collections.abc import Iterable

    from braid.adaptation.link_planner import SoftLinkSettings
    from braid.adaptation.neighbourhood_load import NeighbourhoodLoad
    from braid.routing.overlay_map import OverlayMap

__all__ = ["ProfiledPlanner"]


class ProfiledPlanner:
    """For the strategies of the paper: soft links within delta."""

    def __init__(self, settings: SoftLinkSettings) -> None:
        self._settings = settings
        self._sent: Counter[str] = Counter()
        self._soft: frozenset[str] = frozenset()
        self._candidates = self._soft
        self._reviews = 0
        self._rests_until: dict[str, int] = {}
        self._next: list[str] = []
        """Those that were tried and not chosen, the best last."""

    def sent(self, broker: str, publications: int) -> None:
        """So many publications were meant for a link or candidate."""
        self._sent[broker] += publications

    def failed(self, broker: str) -> None:
        """A soft link to it could not be made or was lost."""
        self._soft -= {broker}
        self._rest(broker)

    def gain(self, broker: str, overlay: OverlayMap, load: NeighbourhoodLoad) -> float:
        """What the link was worth since the last review: section 6 of the paper."""
        bypassed = overlay.path(broker)[:-1]
        factor = 1.0
        for between in bypassed:
            factor *= 1 + max(0.0, load.normalised(between) - self._settings.load_threshold)
        return self._sent[broker] * len(bypassed) * factor * load.slowness(overlay, broker)

    def review(
        self, overlay: OverlayMap, load: NeighbourhoodLoad, others: frozenset[str] = frozenset()
    ) -> LinkPlan:
        """Keep or promote the best, and look for new candidates."""
        self._reviews += 1
        linked = {*overlay.neighbours, *others}
        known = {broker for broker in self._soft | self._candidates if broker in overlay} - linked
        gains = {
            broker: self.gain(broker, overlay, load)
            * (self._settings.advantage if broker in self._soft else 1.0)
            for broker in known
        }
        ranked = sorted(known, key=lambda broker: (-gains[broker], broker not in self._soft, broker))
        slots = max(0, self._settings.fanout - len(linked))
        for broker in ranked[slots:]:
            self._rest(broker)
        self._soft = frozenset(ranked[:slots])
        self._next = ranked[: slots - 1 : -1] if slots else []
        self._candidates = frozenset(self._promising(overlay, load, others)) if slots else frozenset()
        self._sent.clear()
        self._rests_until = {
            broker: until for broker, until in self._rests_until.items() if until > self._reviews
        }
        return LinkPlan(self._soft, self._candidates)

    def instead(self) -> str | None:
        """The one with the highest gain of those that were not chosen."""
        if not self._next:
            return None
        broker = self._next.pop()
        self._soft |= {broker}
        self._rests_until.pop(broker, None)
        return broker

    def least_useful(self, brokers: Iterable[str], overlay: OverlayMap, load: NeighbourhoodLoad) -> str:
        """The one with the lowest gain."""
        return min(
            brokers,
            key=lambda broker: (self.gain(broker, overlay, load) if broker in overlay else 0.0, broker),
        )

    def _promising(self, overlay: OverlayMap, load: NeighbourhoodLoad, others: frozenset[str]) -> list[str]:
        """Brokers beside the links that carry the most; those that rested come before those that rest."""
        links = {*overlay.neighbours, *self._soft, *others}
        by_traffic = sorted(
            links, key=lambda broker: (-self._sent[broker] * load.slowness(overlay, broker), broker)
        )
        beside = dict.fromkeys(
            other
            for link in by_traffic
            if link in overlay
            for other in overlay.beside(link)
            if other != overlay.centre and other not in links
        )
        rested = [broker for broker in beside if broker not in self._rests_until]
        return rested[: self._settings.candidates_max]

    def _rest(self, broker: str) -> None:
        self._rests_until[broker] = self._reviews + self._settings.rest_reviews

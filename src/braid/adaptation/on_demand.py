"""To whom is the most to be delivered from here?

For bitmap delegation (SB): a broker sees every destination it has to find a way for, so nothing has to be
tried first. It links to those it most often had to serve, wherever in the network they are. Earlier periods
count half as much each. Where nothing was counted, chance chooses (by a hash, so every run chooses alike),
and differently for each broker, which is what makes a good mesh.

Places are scarce, and everybody wants the same popular brokers. So each broker opens a few links with each
review, and takes turns with the others that way. If each took all it wants at once, those who come first
would fill the popular brokers, and those who come last would have no way to any of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.adaptation.link_planner import LinkPlan
from braid.protocol.destinations import digest_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from braid.adaptation.link_planner import SoftLinkSettings
    from braid.adaptation.neighbourhood_load import NeighbourhoodLoad
    from braid.routing.overlay_map import OverlayMap

__all__ = ["DemandPlanner"]

FORGETTING = 0.5


class DemandPlanner:
    """Soft links to the most frequent destinations."""

    def __init__(self, settings: SoftLinkSettings) -> None:
        self._settings = settings
        self._demand: dict[str, float] = {}
        self._soft: frozenset[str] = frozenset()
        self._reviews = 0
        self._rests_until: dict[str, int] = {}
        self._next: list[str] = []
        """Those that were not chosen, the best last."""

    def sent(self, broker: str, publications: int) -> None:
        """So many publications had this destination."""
        self._demand[broker] = self._demand.get(broker, 0.0) + publications

    def failed(self, broker: str) -> None:
        """A soft link to it could not be made or was lost."""
        self._soft -= {broker}
        self._rests_until[broker] = self._reviews + self._settings.rest_reviews

    def review(
        self, overlay: OverlayMap, load: NeighbourhoodLoad, others: frozenset[str] = frozenset()
    ) -> LinkPlan:
        """The destinations with the highest demand, a few new ones at a time."""
        self._reviews += 1
        linked = {*overlay.neighbours, *others}
        slots = max(0, self._settings.fanout - len(linked))
        possible = [
            broker
            for broker in overlay.brokers
            if broker not in linked and self._rests_until.get(broker, 0) < self._reviews
        ]
        possible.sort(key=lambda broker: (-self._worth(broker), self._chance(overlay.centre, broker)))
        there = [broker for broker in possible if broker in self._soft]
        # Without traffic nothing is gained by moving.
        better = [broker for broker in possible[:slots] if broker not in self._soft] if self._demand else []
        chosen = better[: self._settings.candidates_max]
        chosen += there[: slots - len(chosen)]
        self._soft = frozenset(chosen)
        self._next = [broker for broker in reversed(possible) if broker not in self._soft] if better else []
        self._demand = {
            broker: demand * FORGETTING for broker, demand in self._demand.items() if demand > 0.01
        }
        self._rests_until = {
            broker: until for broker, until in self._rests_until.items() if until > self._reviews
        }
        return LinkPlan(self._soft, frozenset())

    def instead(self) -> str | None:
        """The one with the highest demand of those that were not chosen."""
        if not self._next:
            return None
        broker = self._next.pop()
        self._soft |= {broker}
        return broker

    def least_useful(self, brokers: Iterable[str], overlay: OverlayMap, load: NeighbourhoodLoad) -> str:
        """The one with the lowest demand."""
        return min(brokers, key=lambda broker: (self._demand.get(broker, 0.0), broker))

    def _worth(self, broker: str) -> float:
        return self._demand.get(broker, 0.0) * (self._settings.advantage if broker in self._soft else 1.0)

    @staticmethod
    def _chance(centre: str, broker: str) -> int:
        return digest_of(f"{centre}>{broker}")

"""To whom is the most to be delivered from here?

For bitmap delegation (SB): a broker sees every destination it has to find a way for, so nothing has to be
tried first. It links to those it most often had to serve, wherever in the network they are. Earlier periods
count half as much each. Where nothing was counted, chance chooses (by a hash, so every run chooses alike),
and differently for each broker, which is what makes a good mesh.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.adaptation.link_planner import LinkPlan
from braid.protocol.destinations import digest_of

if TYPE_CHECKING:
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

    def sent(self, broker: str, publications: int) -> None:
        """So many publications had this destination."""
        self._demand[broker] = self._demand.get(broker, 0.0) + publications

    def failed(self, broker: str) -> None:
        """A soft link to it could not be made or was lost."""
        self._soft -= {broker}
        self._rests_until[broker] = self._reviews + self._settings.rest_reviews

    def review(self, overlay: OverlayMap, load: NeighbourhoodLoad) -> LinkPlan:
        """The destinations with the highest demand."""
        self._reviews += 1
        neighbours = frozenset(overlay.neighbours)
        slots = max(0, self._settings.fanout - len(neighbours))
        possible = [
            broker
            for broker in overlay.brokers
            if broker not in neighbours and self._rests_until.get(broker, 0) < self._reviews
        ]
        if self._demand:
            possible.sort(key=lambda broker: (-self._worth(broker), self._chance(overlay.centre, broker)))
            self._soft = frozenset(possible[:slots])
        else:
            # Without traffic nothing is gained by moving.
            self._soft = frozenset(sorted(self._soft & set(possible))[:slots])
        self._demand = {
            broker: demand * FORGETTING for broker, demand in self._demand.items() if demand > 0.01
        }
        return LinkPlan(self._soft, frozenset())

    def _worth(self, broker: str) -> float:
        return self._demand.get(broker, 0.0) * (self._settings.advantage if broker in self._soft else 1.0)

    @staticmethod
    def _chance(centre: str, broker: str) -> int:
        return digest_of(f"{centre}>{broker}")

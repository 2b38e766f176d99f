"""By what is a better tree looked for?

A policy answers two questions from what one broker knows. Would a direct link to the origin of some news be
better for me (evaluation)? And what do I say to a request that comes by (consensus)? The last broker of the
path gives the verdict. All policies use the same messages; the self-organising paper, sections 4.1 and 4.2.

- `static`: never.
- `lmst`, local minimum spanning tree: if the new link is cheaper than the dearest one on the path, that goes.
- `lmit`, local maximum interest tree: if the ends share more than those of some link on the path, that goes.
- `ci`, cost and interest: the paper's heuristic, Eq. 3 to 10.
- `exact`: by the true change of cost on the cycle (`cycle_traffic`), if it surely pays for the exchange.

The paper does not define the middle two; these are the readings of the errata.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import msgspec

from braid.adaptation.topology.costs import exchange_price
from braid.adaptation.topology.cycle_traffic import CycleTraffic, Sample
from braid.adaptation.topology.estimates import cycle_costs, indirect_costs
from braid.adaptation.topology.settings import OTHER_POLICIES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from braid.adaptation.topology.settings import TopologySettings
    from braid.protocol.organising import LinkRequest

__all__ = ["CyclePlace", "PathView", "TopologyPolicy", "is_cost", "policy_named"]


@dataclass(frozen=True, slots=True)
class PathView:
    """What a broker knows of the path to the origin of some news; the nearest broker first."""

    interests: Sequence[float | None]
    """What it shares with each; None where it has not heard from one."""
    processing: Sequence[float]
    links: Sequence[float]
    """The cost of the link before each."""
    link_interests: Sequence[float]
    """What the ends of that link share."""
    phi: float
    own_processing: float
    samples: Sequence[Sample] = ()
    """Of itself and of each broker on the path, with `exact` only."""


@dataclass(frozen=True, slots=True)
class CyclePlace:
    """What a broker on a cycle knows of it."""

    place: int
    """Which broker of the cycle it is; 0 is the requester."""
    interests: Sequence[float | None]
    """What it shares with each broker of the cycle, by place."""
    phi: float
    own_link: float | None
    """The cost of its link to the next broker on the path; None for the last one."""
    sample: Sample | None = None
    """Of its own traffic beside the cycle."""


class TopologyPolicy(Protocol):
    """A way to look for a better tree."""

    name: str
    samples_traffic: bool
    """Whether news and requests carry samples of traffic."""
    picks_best: bool
    """Whether a broker asks for the best it heard of in an interval; otherwise for whatever is good."""

    def interested(self, view: PathView) -> bool:
        """Whether the direct link is worth measuring."""
        ...

    def gain(self, view: PathView, direct: float) -> float:
        """How much better a direct link of that cost seems to be; 0 if it is not wanted."""
        ...

    def asked(self, request: LinkRequest, here: CyclePlace) -> LinkRequest | None:
        """The request with what this broker has to say; None if it knows too little."""
        ...

    def verdict(self, request: LinkRequest, allowed: frozenset[int]) -> int | None:
        """The link of the path that goes; None if the new one is not worth it."""
        ...


def _with_costs(request: LinkRequest, added: Mapping[int, float] | Sequence[float]) -> LinkRequest:
    items = added.items() if hasattr(added, "items") else enumerate(added)
    costs = list(request.costs)
    for place, cost in items:
        costs[place] += cost
    return msgspec.structs.replace(request, costs=tuple(costs))


def _cheapest(request: LinkRequest, allowed: frozenset[int]) -> int | None:
    """Eq. 10: the smallest element; the new link stays out unless something else is truly cheaper to lose."""
    best = min(sorted(allowed), key=lambda place: request.costs[place], default=None)
    return best if best is not None and request.costs[best] < request.costs[-1] else None


class _Static:
    name = "static"
    samples_traffic = False
    picks_best = False

    def interested(self, view: PathView) -> bool:
        return False

    def gain(self, view: PathView, direct: float) -> float:
        return 0.0

    def asked(self, request: LinkRequest, here: CyclePlace) -> LinkRequest | None:
        return None

    def verdict(self, request: LinkRequest, allowed: frozenset[int]) -> int | None:
        return None


class _LocalMinimumTree:
    name = "lmst"
    samples_traffic = False
    picks_best = False

    def interested(self, view: PathView) -> bool:
        return True

    def gain(self, view: PathView, direct: float) -> float:
        return max(0.0, max(view.links) - direct)

    def asked(self, request: LinkRequest, here: CyclePlace) -> LinkRequest | None:
        # What remains without a link is the cheaper, the dearer the link was.
        if here.own_link is None:
            return request
        added = {here.place: -here.own_link}
        if here.place == 0:
            added[len(request.costs) - 1] = -request.steps[-1].link_cost
        return _with_costs(request, added)

    verdict = staticmethod(_cheapest)


class _LocalInterestTree:
    name = "lmit"
    samples_traffic = False
    picks_best = False

    def interested(self, view: PathView) -> bool:
        return view.interests[-1] is not None and view.interests[-1] > min(view.link_interests)

    def gain(self, view: PathView, direct: float) -> float:
        return max(0.0, (view.interests[-1] or 0.0) - min(view.link_interests))

    def asked(self, request: LinkRequest, here: CyclePlace) -> LinkRequest | None:
        if here.own_link is None:
            return request
        shared = here.interests[here.place + 1]
        if shared is None:
            return None
        added = {here.place: shared}
        if here.place == 0:
            at_the_end = here.interests[-1]
            if at_the_end is None:
                return None
            added[len(request.costs) - 1] = at_the_end
        return _with_costs(request, added)

    verdict = staticmethod(_cheapest)


class _CostAndInterest:
    name = "ci"
    samples_traffic = False
    picks_best = False

    def interested(self, view: PathView) -> bool:
        # It ends if nothing is shared, or if anything on the path is unknown.
        return None not in view.interests and bool(view.interests[-1])

    def gain(self, view: PathView, direct: float) -> float:
        interests = [interest or 0.0 for interest in view.interests]
        indirect = indirect_costs(interests, view.processing, view.links, view.phi)[-1]
        return max(0.0, indirect - direct)

    def asked(self, request: LinkRequest, here: CyclePlace) -> LinkRequest | None:
        others = [each for place, each in enumerate(here.interests) if place != here.place]
        if None in others:
            return None
        return _with_costs(
            request,
            cycle_costs(
                here.place,
                [interest or 0.0 for interest in here.interests],
                [step.processing for step in request.steps],
                [step.link_cost for step in request.steps],
                here.phi,
            ),
        )

    verdict = staticmethod(_cheapest)


class _ExactCycle:
    name = "exact"
    samples_traffic = True
    picks_best = True

    def __init__(self, settings: TopologySettings) -> None:
        self._windows = settings.horizon_intervals / settings.window_intervals
        self._z = settings.confidence_z
        self._entries = settings.sample_entries

    def interested(self, view: PathView) -> bool:
        return True

    def gain(self, view: PathView, direct: float) -> float:
        processing = [view.own_processing, *view.processing]
        worth = self._best(view.samples, processing, [*view.links, direct], frozenset(range(len(view.links))))
        return worth[0] if worth is not None else 0.0

    def _best(
        self,
        samples: Sequence[Sample],
        processing: Sequence[float],
        links: Sequence[float],
        allowed: frozenset[int],
    ) -> tuple[float, int] | None:
        """The net saving over the horizon at least, and by which link; None if there is none."""
        openings = CycleTraffic.of(samples).openings(processing, links)
        price = exchange_price(processing, links)
        worth = [
            (self._windows * opening.at_least(self._z) - price, -opening.removed)
            for opening in openings
            if opening.removed in allowed
        ]
        best = max(worth, default=(0.0, 0))
        return (best[0], -best[1]) if best[0] > 0 else None

    def asked(self, request: LinkRequest, here: CyclePlace) -> LinkRequest | None:
        if here.sample is None:
            return None
        steps = list(request.steps)
        steps[here.place] = msgspec.structs.replace(steps[here.place], traffic=here.sample.encoded())
        return msgspec.structs.replace(request, steps=tuple(steps))

    def verdict(self, request: LinkRequest, allowed: frozenset[int]) -> int | None:
        best = self._best(
            [Sample.decoded(step.traffic, self._entries) for step in request.steps],
            [step.processing for step in request.steps],
            [step.link_cost for step in request.steps],
            allowed,
        )
        return best[1] if best is not None else None


def policy_named(settings: TopologySettings) -> TopologyPolicy:
    """The policy that the settings ask for."""
    if settings.policy in OTHER_POLICIES:
        return OTHER_POLICIES[settings.policy](settings)
    if settings.policy == "exact":
        return _ExactCycle(settings)
    kinds = (_Static, _LocalMinimumTree, _LocalInterestTree, _CostAndInterest)
    return next(kind() for kind in kinds if kind.name == settings.policy)


def is_cost(value: float) -> bool:
    """Whether a number can be a cost that a message carries."""
    return math.isfinite(value) and value >= 0

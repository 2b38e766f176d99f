"""What can be chosen about a topology that organises itself?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from braid.adaptation.topology.cycle_traffic import PLACES_MAX
from braid.adaptation.topology.interest import BITS, CACHE_ENTRIES, HASHES
from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from braid.adaptation.topology.policies import TopologyPolicy

__all__ = ["OTHER_POLICIES", "POLICIES", "TopologySettings", "add_policy"]

POLICIES = ("static", "lmst", "lmit", "ci", "exact")
"""By what a better tree is looked for: not at all; cheap links; common interest; cost and interest (the
self-organising paper); cost and interest with the true change of cost on each cycle."""

OTHER_POLICIES: dict[str, Callable[[TopologySettings], TopologyPolicy]] = {}
"""Those that other distributions bring, by name."""


def add_policy(name: str, made: Callable[[TopologySettings], TopologyPolicy]) -> None:
    """Let brokers of this process look for a better tree in one more way.

    Raises:
        ConfigurationError: there is one of that name.
    """
    if name in POLICIES or name in OTHER_POLICIES:
        raise ConfigurationError(f"there is a topology policy {name} already")
    OTHER_POLICIES[name] = made


@dataclass(frozen=True, kw_only=True)
class TopologySettings:
    """How a broker takes part in improving the tree. All brokers of a network should agree on the policy."""

    policy: str = "static"
    """One of `POLICIES`; static leaves the tree alone and costs nothing."""
    interval_us: int = 2_500_000
    """Between two news of a broker. Shorter: adapts sooner, and more news cross the links."""
    eta: int = 4
    """How many links news travel. More: better trees to choose from, and more news."""
    cache_entries: int = CACHE_ENTRIES
    """Publications of local clients that are remembered; at least those of some intervals."""
    filter_bits: int = BITS
    """The size of the filters of interest; too small, and strangers seem to share interests. 0: each filter
    has the size that its publications need, whatever the traffic."""
    filter_hashes: int = HASHES
    """Bits that a publication sets in such a filter."""
    processing_cost: float = -1.0
    """What a message costs at this broker, in the unit of the links' costs; negative: as measured, in
    milliseconds of matching."""
    link_costs: tuple[str, ...] = ()
    """What a message costs on the way to another broker, whether there is a link or not: `B7=2.5`; `B7=inf`
    where there must be none. Other links are measured, in milliseconds, those that are not there yet
    by a probe of the other broker's listener."""
    degree_max: int = 0
    """Links a broker may have by exchanges; 0 for no bound. The cost model alone favours stars."""
    rest_intervals: int = 0
    """After an exchange of links a broker takes part in no other for so long. Damps oscillation, and slows
    down what is worth while too."""
    sample_entries: int = 256
    """With `exact`: publications that a broker tells of its traffic, at most, a kilobyte for 256."""
    window_intervals: float = 2.0
    """With `exact`: how much of the past an exchange is judged by."""
    horizon_intervals: float = 10.0
    """With `exact`: an exchange must pay for itself within so long."""
    confidence_z: float = 1.64
    """With `exact`: how many standard deviations below its estimate a saving is counted; 1.64 is sure by
    95 %."""
    pause_intervals_max: int = 8
    """With `exact`: a broker around which nothing changes sends news less and less often, up to so many
    intervals apart. 1: every interval, as with the other policies."""
    evaluations_max: int = 16
    """With `exact`: other brokers that are looked at in an interval, in turn."""

    def __post_init__(self) -> None:
        if self.policy not in POLICIES and self.policy not in OTHER_POLICIES:
            known = ", ".join((*POLICIES, *sorted(OTHER_POLICIES)))
            raise ConfigurationError(f"a topology policy is one of {known}; not {self.policy!r}")
        if not 2 <= self.eta < PLACES_MAX:
            raise ConfigurationError(f"eta must be at least 2 and below {PLACES_MAX}, not {self.eta}")
        for name in (
            "interval_us",
            "cache_entries",
            "filter_hashes",
            "sample_entries",
            "pause_intervals_max",
        ):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("window_intervals", "horizon_intervals", "evaluations_max"):
            if not getattr(self, name) > 0:
                raise ConfigurationError(f"{name} must be more than 0, not {getattr(self, name)}")
        for name in ("filter_bits", "degree_max", "rest_intervals", "confidence_z"):
            if getattr(self, name) < 0:
                raise ConfigurationError(f"{name} must be at least 0, not {getattr(self, name)}")
        if math.isnan(self.processing_cost) or math.isinf(self.processing_cost):
            raise ConfigurationError(f"processing_cost must be a number, not {self.processing_cost}")
        self.configured_links  # noqa: B018  (what cannot be read is said at once)
        if self.degree_max == 1:
            raise ConfigurationError(
                "degree_max must be at least 2: brokers with one link form no tree of three"
            )

    @cached_property
    def configured_links(self) -> dict[str, float]:
        """`link_costs` by brokers."""
        found = {}
        for text in self.link_costs:
            name, _, number = text.partition("=")
            try:
                cost = float(number)
            except ValueError:
                cost = math.nan
            if not name or not cost >= 0:
                raise ConfigurationError(f"a link's cost is written as BROKER=COST, at least 0, not {text!r}")
            found[name] = cost
        return found

    @property
    def configured_processing(self) -> float | None:
        """What a message costs here; None: it is to be measured."""
        return self.processing_cost if self.processing_cost >= 0 else None

    @property
    def window_us(self) -> int:
        """How much of the past an exchange is judged by."""
        return max(1, round(self.window_intervals * self.interval_us))

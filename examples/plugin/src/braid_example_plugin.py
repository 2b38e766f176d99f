"""Parts for Braid in a distribution of their own: a forwarding strategy, a topology policy, a directory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from braid.adaptation.topology import policy_named
from braid.routing import ForwardingStrategy, along_the_intersection, straight_to_anchors
from braid.runtime.directory import open_directory

if TYPE_CHECKING:
    from braid.adaptation.topology import TopologySettings
    from braid.adaptation.topology.policies import CyclePlace, PathView
    from braid.protocol.organising import LinkRequest
    from braid.routing import WorkingMap
    from braid.runtime.directory import Directory, DirectorySettings

COPIES_MAX = 3


def few_copies(working: WorkingMap, anchors: int) -> int:
    """Straight to those who want it if they are few, otherwise as far as their ways have in common."""
    chosen = straight_to_anchors(working, anchors)
    return chosen if chosen.bit_count() <= COPIES_MAX else along_the_intersection(working, anchors)


FEW = ForwardingStrategy(few_copies, delta=4)


class Reluctant:
    """The local minimum tree, for networks where a change costs much: only for links at half the price."""

    name = "reluctant"
    samples_traffic = False
    picks_best = False

    def __init__(self, settings: TopologySettings) -> None:
        self._cheapest = policy_named(replace(settings, policy="lmst"))

    def interested(self, view: PathView) -> bool:
        """Whether the direct link is worth measuring."""
        return self._cheapest.interested(view)

    def gain(self, view: PathView, direct: float) -> float:
        """How much better a direct link of that cost seems to be; 0 if it is not wanted."""
        return self._cheapest.gain(view, 2 * direct)

    def asked(self, request: LinkRequest, here: CyclePlace) -> LinkRequest | None:
        """The request with what this broker has to say."""
        return self._cheapest.asked(request, here)

    def verdict(self, request: LinkRequest, allowed: frozenset[int]) -> int | None:
        """The link that goes."""
        return self._cheapest.verdict(request, allowed)


def textfile(url: str, settings: DirectorySettings) -> Directory:
    """`textfile://NAME`: a directory in this process, by another name. A real one would open a file here."""
    return open_directory(f"memory:{url.partition('://')[2]}", settings)

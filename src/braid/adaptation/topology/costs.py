"""What does a message cost, on a link and at a broker?

Eq. 1 of the self-organising paper adds the costs of links and brokers, so both must be in one unit. What is
configured means whatever its author had in mind. What is measured is in milliseconds that a publication
spends: half a round trip on a link, and at a broker the time of the processor for each publication that it
handled, whatever way these took. So a broker whose publications mostly ride soft links counts what it does.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["EXCHANGE_MESSAGES_PER_SHIFT", "FORBIDDEN", "LiveCosts", "exchange_price"]

FORBIDDEN = 1e9
"""What a message costs on a link that is there and must not be: dearer than any way around it, and a number
that messages can carry, so that every policy finds that it is the first to go."""

EXCHANGE_MESSAGES_PER_SHIFT = 8
"""Control messages of one SHIFT between its three brokers, about: two for the agreement each way, two for the
new link's greeting, two for the old link's end."""

# The weight of the newest measurement; older ones fade.
FRESH = 0.2


def exchange_price(processing: Sequence[float], links: Sequence[float]) -> float:
    """What an exchange of links on a cycle costs in control messages: one SHIFT less than it has links.

    Each message costs what one does on the cycle on average, link and receiver; that it takes a forbidden
    link away does not make it dear.
    """
    shifts = len(links) - 2
    usual = [cost for cost in links if cost < FORBIDDEN] or [0.0]
    mean = sum(usual) / len(usual) + sum(processing) / len(processing)
    return shifts * EXCHANGE_MESSAGES_PER_SHIFT * mean


class LiveCosts:
    """The costs of one broker and its links, configured where they are, measured where not.

    Args:
        processing: what a message costs here; None to measure it.
        links: what one costs on the link to each other broker; infinite where there must be none.
    """

    def __init__(self, processing: float | None = None, links: dict[str, float] | None = None) -> None:
        self._configured = processing
        self._links = dict(links or {})
        self._measured_links: dict[str, float] = {}
        self._by_links: dict[str, float] = {}
        self._measured: float | None = None

    @property
    def processing(self) -> float:
        """What a message costs at this broker; 0 while nothing is known."""
        return self._configured if self._configured is not None else self._measured or 0.0

    def link(self, broker: str) -> float | None:
        """What a message costs on the link to another broker, there or not; None if nobody knows."""
        configured = self._links.get(broker)
        if configured is not None:
            return configured
        return self._measured_links.get(broker, self._by_links.get(broker))

    def present_link(self, broker: str) -> float | None:
        """What a message costs on a link that is there, as others are told; None if nobody knows yet."""
        return self.link(broker) if self.allows(broker) else FORBIDDEN

    def allows(self, broker: str) -> bool:
        """Whether there may be a link to a broker."""
        return self._links.get(broker) != math.inf

    def configured(self, broker: str) -> bool:
        """Whether the cost of the link to a broker is configured, so that there is nothing to measure."""
        return broker in self._links

    def lost(self, broker: str) -> None:
        """A broker did not answer a probe: what a link to it would cost is not known."""
        self._measured_links.pop(broker, None)

    def worked(self, processor_us: int, publications: int) -> None:
        """So much time was spent on so many publications."""
        if publications > 0:
            self._measured = _faded(self._measured, processor_us / publications / 1_000)

    def answered(self, broker: str, round_trip_us: int) -> None:
        """A broker that was probed took so long to answer."""
        self._measured_links[broker] = _faded(self._measured_links.get(broker), round_trip_us / 2_000)

    def crossed(self, broker: str, round_trip_us: int) -> None:
        """A message on the link to a neighbour was answered so late; that counts while no probe has been."""
        self._by_links[broker] = _faded(self._by_links.get(broker), round_trip_us / 2_000)

    def forget(self, keep: frozenset[str]) -> None:
        """Brokers out of sight are measured anew when they are back."""
        self._measured_links = {name: cost for name, cost in self._measured_links.items() if name in keep}
        self._by_links = {name: cost for name, cost in self._by_links.items() if name in keep}


def _faded(before: float | None, now: float) -> float:
    return now if before is None else (1 - FRESH) * before + FRESH * now

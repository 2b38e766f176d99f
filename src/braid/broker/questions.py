"""What handlers ask of others whom they need not know: small protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from braid.broker.delegations import Delegations
    from braid.broker.parties import Link, Party, SoftLink
    from braid.routing import MultipathForwarding

__all__ = ["Hops", "Readiness"]


class Readiness(Protocol):
    """How much is known of the network; answered by those who keep the links."""

    @property
    def ready(self) -> bool:
        """Whether publications of clients are accepted."""

    @property
    def accepting(self) -> bool:
        """Whether they are routed now, and do not wait until an operation is through."""

    @property
    def holding(self) -> int:
        """How many links hold publications back, because the interest behind them is not known."""

    @property
    def unknown(self) -> Iterator[Link]:
        """Those for which acknowledged publications are kept whether they match or not."""

    @property
    def links(self) -> Mapping[str, Link]:
        """The neighbours by their names."""


class Hops(Protocol):
    """Where publications go next; answered by those who keep maps and soft links."""

    @property
    def sees_far(self) -> bool:
        """Whether this broker knows more than its neighbours."""

    @property
    def delegates(self) -> bool:
        """Whether publications that enter here are delegated."""

    @property
    def delegations(self) -> Delegations:
        """How sets of brokers are shared out among links."""

    @property
    def direction_of(self) -> Callable[[Party | None], str | None]:
        """The neighbour in whose direction a party lies; None for clients."""

    @property
    def on_the_way_to(self) -> Callable[[str], Link | None]:
        """The neighbour on the primary path to a broker of the map."""

    @property
    def way_back(self) -> Callable[[SoftLink], Link | None]:
        """The neighbour on the primary path to where a soft link led."""

    def party(self, hop: str) -> Party:
        """Who gets what goes to a next hop: a soft link, or else a neighbour."""

    def sent(self, broker: str, publications: int) -> None:
        """So many publications were meant for a link, a candidate or a destination."""

    def bind(self, forwarding: MultipathForwarding) -> None:
        """The forwarding that is to use the maps."""

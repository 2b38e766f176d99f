"""What others ask of those who keep the links: a small protocol, so that they need not know them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from braid.broker.parties import Link

__all__ = ["Readiness"]


class Readiness(Protocol):
    """How much is known of the network."""

    @property
    def ready(self) -> bool:
        """Whether publications of clients are accepted."""

    @property
    def holding(self) -> int:
        """How many links hold publications back, because the interest behind them is not known."""

    @property
    def unknown(self) -> Iterator[Link]:
        """Those for which acknowledged publications are kept whether they match or not."""

    @property
    def links(self) -> Mapping[str, Link]:
        """The neighbours by their names."""

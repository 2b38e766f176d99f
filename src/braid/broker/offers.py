"""What a broker that dials offers: the link that may be there already, and the session to go on with."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["NO_OFFER", "Offer"]


class Offer(NamedTuple):
    """What the greeting of a broker that dials says of a link that may be there already."""

    session: str = ""
    """The session that could go on."""
    received: int = 0
    """How far it has come here."""
    reach: frozenset[str] = frozenset()
    """The brokers that can be reached through us."""
    expected: str = ""
    """Who should be at the address that was dialled; empty if that is not known."""
    operation: str = ""
    """The operation that makes the link, if one does."""


NO_OFFER = Offer()

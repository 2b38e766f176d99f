"""What brokers offer each other when they meet: the link that may be there, and the session to go on with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from braid.protocol.messages import PROTOCOL_VERSION, Welcome

if TYPE_CHECKING:
    from braid.broker.parties import Link
    from braid.broker.settings import BrokerSettings

__all__ = ["NO_OFFER", "Offer", "welcome_to"]


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


def welcome_to(
    link: Link,
    settings: BrokerSettings,
    incarnation: str,
    epoch: int,
    proofs: dict[str, str],
    **more: Any,
) -> Welcome:
    """The answer to a broker that was let in; `more` is what only links that count already say."""
    return Welcome(
        PROTOCOL_VERSION,
        settings.broker_id,
        incarnation,
        credit=link.channel.credit_to_grant,
        frame_bytes_max=settings.frame_bytes_max,
        address=settings.address,
        delta=settings.delta,
        session=link.agreed,
        proofs=proofs,
        epoch=epoch,
        **more,
    )

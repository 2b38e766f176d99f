"""What can be chosen about a process that is a peer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 (its fields are read by their types)
from typing import Final, Literal

from braid.errors import ConfigurationError, FilterError
from braid.language import Filter
from braid.p2p.dht import DHTS, OTHER_DHTS
from braid.p2p.dht.pastry_settings import PastrySettings
from braid.p2p.dht.ring import RingSettings

__all__ = ["PeerSettings"]

# Up to so many peers all know each other: one hop costs less than the tables of more.
FULL_UP_TO: Final = 64


@dataclass(frozen=True, kw_only=True)
class PeerSettings:
    """Whether this process is a peer, of which network, and what may cross between brokers and peers."""

    enabled: bool = False
    """Be a peer as well: a gateway between this broker and a network of peers."""
    alone: bool = False
    """Be a peer and no broker of a network: clients here are clients of the peers. Durable subscriptions,
    replays and acknowledged delivery are refused."""
    bootstrap: tuple[str, ...] = ()
    """Addresses of peers whose network to join; left out, a network begins here."""
    dht: str = "pastry"
    """How peers find each other: pastry (each knows some dozens of others) or ring (each knows all, for some
    dozens of peers), or by a plug-in. The same for all peers of a network."""
    algorithm: Literal["DMM", "DMM-AR"] = "DMM-AR"
    """How subscriptions and publications meet: DMM in one space of all attributes of the schema, DMM-AR in a
    space for each set of attributes that filters use. The same for all peers of a network."""
    schema: Path | None = None
    """A JSON file with what all peers know of attributes: {"price": {"kind": "float", "low": 0, "high": 100,
    "granularity": 0.01}}. The same for all peers of a network; left out, none is needed."""
    acknowledged: bool = True
    """Whether each datagram on the way of a publication is confirmed, and sent again if it is not. False:
    fewer messages, and a lost one is lost."""
    token: str = ""
    """What this peer shows to others; left out, the broker's link_token."""
    to_peers: str = "TRUE"
    """Which publications of the brokers may go to peers: a filter. What the gateway grants."""
    from_peers: str = "TRUE"
    """Which publications of peers may go to the brokers."""
    beacon_us: int = 5_000_000
    """Time between two beacons that keep subscriptions alive; they expire after twice as long. Higher: fewer
    messages, slower recovery."""
    beat_us: int = 1_000_000
    """Time between two signs of life to a neighbour on the circle; one that is silent for some of them is
    given up. Lower: quicker recovery, more messages."""
    timeout_us: int = 1_000_000
    """How long another peer may take to answer where it is not known how far away it is."""
    grace_us: int = 500_000
    """By how much a confirmation may be late before a message is sent again; three in vain mean that a peer
    is dead. Higher: busy peers are less often taken for dead, lost messages come later."""
    loss: float = 0.0
    """The share of messages to other peers that is dropped on purpose, to see what that does."""

    def __post_init__(self) -> None:
        for name in ("to_peers", "from_peers"):
            try:
                Filter(getattr(self, name))
            except FilterError as error:
                raise ConfigurationError(f"[peers] {name} is not a filter: {error}") from None
        if self.dht not in DHTS and self.dht not in OTHER_DHTS:
            known = ", ".join((*DHTS, *sorted(OTHER_DHTS)))
            raise ConfigurationError(f"[peers] dht is one of {known}; not {self.dht!r}")
        if not 0 <= self.loss <= 1:
            raise ConfigurationError(f"[peers] loss is a share from 0 to 1, not {self.loss}")

    @property
    def active(self) -> bool:
        """Whether there is a peer at all."""
        return self.enabled or self.alone

    @property
    def ring(self) -> RingSettings:
        """How patient peers that all know each other are."""
        return RingSettings(
            ping_us=self.beat_us,
            timeout_us=self.timeout_us,
            grace_us=self.grace_us,
            acknowledged=self.acknowledged,
        )

    @property
    def pastry(self) -> PastrySettings:
        """How patient peers are with each other."""
        return PastrySettings(
            full_up_to=FULL_UP_TO,
            beat_us=self.beat_us,
            timeout_us=self.timeout_us,
            grace_us=self.grace_us,
            acknowledged=self.acknowledged,
        )

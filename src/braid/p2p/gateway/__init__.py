"""How do brokers and peers meet? A broker that is also a peer.

- `link`: the neighbour that stands for all peers, as the broker sees it.
- `machine`: broker, peer and that link as one machine.
"""

from __future__ import annotations

from braid.p2p.gateway.link import PeersLink
from braid.p2p.gateway.machine import GatewaySettings, PeeredBroker

__all__ = ["GatewaySettings", "PeeredBroker", "PeersLink"]

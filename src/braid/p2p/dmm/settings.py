"""How peers match and deliver: every choice that the algorithms leave open, with what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from braid.errors import ConfigurationError

__all__ = ["DmmSettings"]

# Who sends again more often than that does so after an hour, with the usual time of retrying.
TRIES_REMEMBERED_MAX = 10


@dataclass(frozen=True, kw_only=True)
class DmmSettings:
    """All peers of a network have the same `algorithm` and `terms_max`; the rest may differ."""

    algorithm: Literal["DMM", "DMM-AR"] = "DMM-AR"
    """`DMM`: one space of all attributes that the network's schema names. `DMM-AR`: a space for each set of
    attributes that filters ask for, found through the spaces of single attributes. It needs no schema."""
    lookup: Literal["search", "climb", "root"] = "search"
    """How a publication finds its active region: by halving the possible lengths of its code, or, as in the
    paper, from the smallest region upwards, one lookup per bit. `root` begins at the root and makes it busy,
    to be compared with."""
    primary: Literal["first", "random", "most-selective"] = "most-selective"
    """Which attribute of a term its region is found by (DMM-AR): the first by name, one drawn for each space,
    or the one that lets the fewest publications through, as far as its region has seen."""
    attribute_root: Literal["primary", "names", "full"] = "full"
    """What the space of a single attribute looks at before it passes a publication on: that attribute, the
    names of all attributes of the term as well, or the whole filter. More: fewer messages, more work."""
    shortcuts: bool = True
    """Whether a peer on the way from a region to a single other peer steps aside, so that publications go
    to that one directly. In the paper they take every hop. It costs a message when a second one comes."""
    covering: bool = True
    """Whether a term that another one covers goes no further. Fewer entries, more comparisons."""
    covering_comparisons_max: int = 256
    """With so many others a term is compared at most."""
    terms_max: int = 16
    """A filter of more terms than this has one entry, for the smallest box around them all."""
    split_threshold: int = 1_000
    """So many entries are too many for a region; it is halved."""
    merge_share: float = 1 / 3
    """Two halves are joined again when they have less than this share of the threshold together."""
    split_keep_max: float = 0.95
    """A region is not halved if one half would keep more than this share of its entries."""
    gateways: bool = False
    """Whether peers also tell what they subscribe to for gateways to brokers (`Gathering`), so that those ask
    brokers for nothing else. All peers of a network with gateways do."""
    replicas: int = 2
    """Neighbours that know whom to ask if this peer dies, on both sides together."""
    beacon_us: int = 30_000_000
    """Time between two beacons of what a peer has asked others for."""
    expiry_us: int = 60_000_000
    """What was not confirmed by a beacon for so long is forgotten."""
    tree_cache: Literal["publisher", "path", "leaf-hop"] | None = "publisher"
    """Who remembers which region was active: the publisher, all peers on the way there, or, as in the paper,
    the last peer before it. None: nobody."""
    cache_beacon_us: int = 15_000_000
    """Time between two beacons of active regions to those who remember them."""
    cache_expiry_us: int = 30_000_000
    """What was not confirmed for so long is looked up again."""

    acknowledged: bool = False
    """Whether publishers are told where their publications have arrived, and send again what has not. The
    hops of the DHT are confirmed by a setting of their own. One more message for each region that is
    reached."""
    retry_us: int = 8_000_000
    """How long a publisher waits before it sends again; each further time, twice as long."""
    tries_max: int = 5
    """So often a publication is sent at most."""

    @property
    def resends_us(self) -> int:
        """For how long after the first time a publication may be sent again, and some time to arrive: so long
        subscribers' peers remember it. All peers of a network should send again for the same time."""
        tries = min(self.tries_max, TRIES_REMEMBERED_MAX)
        return self.retry_us * (1 << tries - 1)

    def __post_init__(self) -> None:
        choices = {
            "algorithm": ("DMM", "DMM-AR"),
            "lookup": ("search", "climb", "root"),
            "primary": ("first", "random", "most-selective"),
            "attribute_root": ("primary", "names", "full"),
            "tree_cache": ("publisher", "path", "leaf-hop", None),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ConfigurationError(
                    f"dmm: {name} is one of {', '.join(map(repr, allowed))}, not {getattr(self, name)!r}"
                )
        for name in (
            "covering_comparisons_max",
            "terms_max",
            "split_threshold",
            "beacon_us",
            "expiry_us",
            "cache_beacon_us",
            "cache_expiry_us",
            "retry_us",
            "tries_max",
        ):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"dmm: {name} is at least 1, not {getattr(self, name)}")
        for name in ("merge_share", "split_keep_max"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigurationError(f"dmm: {name} is a share from 0 to 1, not {getattr(self, name)}")
        if self.replicas < 0 or self.replicas % 2:
            raise ConfigurationError(f"dmm: replicas is an even number from 0 up, not {self.replicas}")

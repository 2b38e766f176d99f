"""Sizes of what peers of Pastry know, and how patient they are with each other."""

from __future__ import annotations

from dataclasses import dataclass

from braid.errors import ConfigurationError

__all__ = ["PastrySettings"]


@dataclass(frozen=True, kw_only=True)
class PastrySettings:
    """Sizes, and how patient peers are with each other."""

    leaf_set: int = 16
    """Neighbours on the circle, on both sides together."""
    full_up_to: int = 0
    """In a network of up to so many peers all know each other, and a message takes one hop. Peers change
    over by themselves as the network grows and shrinks. 0: never, as in the papers."""
    digit_bits: int = 4
    """The `b` of the paper: bits that one hop decides. More: fewer hops, larger tables."""
    beat_us: int | None = 5_000_000
    """Time between beats to each nearest neighbour; None for a network in which nobody fails."""
    silence_beats: int = 2
    """A neighbour that was not heard for so many beats and a half is pinged."""
    probes_per_beat: int = 1
    """Peers of the routing table that are pinged at each beat, one after the other."""
    timeout_us: int = 3_000_000
    """How long an answer may take, where it is not known how far the other is."""
    grace_us: int = 100_000
    """By how much a confirmation may be late, beyond twice the round trip time, before a message is sent
    again. Higher: busy peers are less often taken for dead, lost messages come later."""
    tries: int = 3
    """So many unanswered pings or unconfirmed messages mean that a peer is dead."""
    forget_us: int = 60_000_000
    """How long news of others are not believed when they name a peer that did not answer."""
    acknowledged: bool = False
    """Whether each hop confirms what it gets. Costs a message for each; loses nothing to lost datagrams."""

    def __post_init__(self) -> None:
        if self.leaf_set < 2 or self.leaf_set % 2:
            raise ConfigurationError(f"pastry: leaf_set is an even number from 2 up, not {self.leaf_set}")
        if self.full_up_to < 0:
            raise ConfigurationError(f"pastry: full_up_to is at least 0, not {self.full_up_to}")
        if self.digit_bits not in (1, 2, 4, 8):
            raise ConfigurationError(f"pastry: digit_bits is 1, 2, 4 or 8, not {self.digit_bits}")
        for name in ("silence_beats", "timeout_us", "grace_us", "tries", "forget_us"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"pastry: {name} is at least 1, not {getattr(self, name)}")
        if self.beat_us is not None and self.beat_us < 1:
            raise ConfigurationError(f"pastry: beat_us is at least 1 (or None), not {self.beat_us}")
        if self.probes_per_beat < 0:
            raise ConfigurationError(f"pastry: probes_per_beat is at least 0, not {self.probes_per_beat}")

"""How good are the wires and the machines?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from braid.errors import ConfigurationError
from braid.protocol import PublicationBatch, encode_frames
from braid.protocol.kinds import kind_of
from braid.protocol.log import Retention

if TYPE_CHECKING:
    from braid.protocol.codec import Frame
    from braid.protocol.log import StoreState

__all__ = ["Birth", "LinkModel", "NodeModel", "frame_bytes"]


@dataclass(frozen=True, slots=True)
class LinkModel:
    """What lies between two ends of a connection; the same in both directions."""

    latency_us: int = 1000
    """From one end to the other."""
    bandwidth_bytes_per_s: int | None = None
    """How much one connection carries in each direction; None for as much as there is."""
    loss: float = 0.0
    """The share of transmissions that are lost. As with TCP the data is sent again, a round trip later, and
    what follows waits for it: loss costs time, never data."""

    def __post_init__(self) -> None:
        if self.latency_us < 0:
            raise ConfigurationError(f"latency_us must be at least 0, not {self.latency_us}")
        _require_positive("bandwidth_bytes_per_s", self.bandwidth_bytes_per_s)
        if not 0 <= self.loss < 1:
            raise ConfigurationError(f"loss is a share from 0 to below 1, not {self.loss}")


@dataclass(frozen=True, slots=True)
class NodeModel:
    """What one machine runs on."""

    cost_us: Mapping[str, int] | int = 0
    """Processing time of one message, for all kinds alike or by kind (`publication`, `subscribe`,
    `acknowledgement`, ...; those that are not named cost nothing). A batch costs as much as its publications.
    There is one processor: what arrives while it is busy waits."""
    uplink_messages_per_s: int | None = None
    """Publications that can leave in a second, to everybody together. Other messages are not counted."""
    uplink_bytes_per_s: int | None = None
    """Bytes that can leave in a second, of all messages."""
    store_latency_us: int = 100
    """How long a transaction of the store takes, one after the other."""
    retention: Retention = field(default_factory=Retention)
    """How much of the logs its store keeps."""

    def __post_init__(self) -> None:
        costs = self.cost_us.values() if isinstance(self.cost_us, Mapping) else [self.cost_us]
        if any(cost < 0 for cost in costs):
            raise ConfigurationError(f"cost_us must be at least 0, not {self.cost_us}")
        _require_positive("uplink_messages_per_s", self.uplink_messages_per_s)
        _require_positive("uplink_bytes_per_s", self.uplink_bytes_per_s)
        if self.uplink_messages_per_s is not None and self.uplink_bytes_per_s is not None:
            raise ConfigurationError("an uplink is limited in messages or in bytes per second, not in both")
        if self.store_latency_us < 0:
            raise ConfigurationError(f"store_latency_us must be at least 0, not {self.store_latency_us}")

    @property
    def costs(self) -> bool:
        """Whether processing takes any time."""
        return any(self.cost_us.values()) if isinstance(self.cost_us, Mapping) else self.cost_us > 0

    def cost_of(self, frame: Frame) -> int:
        """Processing time of one frame."""
        body = frame.body
        cost = self.cost_us
        per_message = cost if isinstance(cost, int) else cost.get(kind_of(body), 0)
        return per_message * len(body) if isinstance(body, PublicationBatch) else per_message


@dataclass(frozen=True, slots=True)
class Birth:
    """What a machine is told when it is made."""

    incarnation: str
    """Another one for every start."""
    seed: int
    """For the chance in what it does."""
    store: StoreState | None = None
    """What was kept from earlier; None for a machine without a store."""


def frame_bytes(frame: Frame) -> int:
    """How many bytes a frame takes on the wire."""
    body = frame.body
    return body.size if isinstance(body, PublicationBatch) else len(encode_frames((frame,)))


def _require_positive(name: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise ConfigurationError(f"{name} must be at least 1 (or None for no limit), not {value}")

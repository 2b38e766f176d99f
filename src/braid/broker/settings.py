"""What can be chosen about a broker, and at what price?"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from braid.adaptation import SoftLinkSettings
from braid.adaptation.topology import TopologySettings
from braid.errors import ConfigurationError
from braid.protocol import FRAME_BYTES_MAX, ChannelSettings
from braid.routing import PATHS, ForwardingStrategy

__all__ = [
    "DELTA_MAX",
    "LOG_MEMORY_BYTES_MAX",
    "OVERTAKING_MAX",
    "STRATEGIES",
    "BrokerSettings",
    "add_strategy",
    "checked_broker_id",
    "checked_strategy",
]

STRATEGIES = {"S0": 1, "S1": 4, "S2": 4, "SH": 4, "SB": 255}
"""The ways to forward publications, with how far a broker sees if nothing else is said."""


def add_strategy(name: str, strategy: ForwardingStrategy) -> None:
    """Let brokers of this process forward in one more way.

    Raises:
        ConfigurationError: there is one of that name, or it cannot be one.
    """
    if name in STRATEGIES:
        raise ConfigurationError(f"there is a forwarding strategy {name} already")
    if not 2 <= strategy.delta <= DELTA_MAX:
        raise ConfigurationError(f"the strategy {name} sees 2 to {DELTA_MAX} links far, not {strategy.delta}")
    PATHS[name] = strategy.checked(name)
    STRATEGIES[name] = strategy.delta


# Farther than any path through a network is.
DELTA_MAX = 255

OVERTAKING_MAX = 65_536
"""How many later publications of its publisher may arrive before one that is still told from a repetition.

On a tree that stays as it is nothing overtakes. With shortcuts, one congested way is enough; and when a link
leaves, by an operation or a crash amid one, what it had not settled comes by another way, however much of the
same publisher has passed since. What waits like that is bounded by the queue of a link.
"""

LOG_MEMORY_BYTES_MAX = 16 * 1024 * 1024
"""What a log remembers of publishers may take so much, beside their number: beyond it, of the principal whose
names take the most those are forgotten that were heard least recently."""

_BROKER_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


def checked_broker_id(text: str) -> str:
    """The id, or a `ConfigurationError` that says what ids look like."""
    if not _BROKER_ID.fullmatch(text):
        raise ConfigurationError(
            f"a broker's id has 1 to 64 letters, digits, dots, dashes and underscores; {text!r} does not fit"
        )
    return text


def checked_strategy(name: str, delta: int) -> str:
    """The strategy, or a `ConfigurationError` that says which there are and what they need."""
    if name not in STRATEGIES:
        raise ConfigurationError(f"a strategy is one of {', '.join(STRATEGIES)}; {name!r} is none")
    if name != "S0" and delta < 2:
        raise ConfigurationError(f"{name} needs to see further than its neighbours: delta must be at least 2")
    return name


@dataclass(frozen=True, kw_only=True, slots=True)
class BrokerSettings:
    """The choices of one broker."""

    broker_id: str
    """Its name, which no other broker has: 1 to 64 letters, digits, dots, dashes and underscores."""
    address: str = ""
    """Where neighbours and clients can reach it, as it is told to others."""
    neighbours: tuple[str, ...] = ()
    """Addresses of brokers to link to. One side of a link is enough. The network must stay a tree."""
    expected: tuple[str, ...] = ()
    """Ids of neighbours that link to this one. A broker that has lost its data, or keeps none, does not know
    them otherwise, and would give receipts and answers that hold for those only whom it has met again."""
    unknown_brokers: Literal["accept", "refuse"] = "accept"
    """Whether brokers may link to this one that it neither dials nor expects and has never met, where no
    access file says who may. accept: nothing need be said here of a new neighbour, and anybody who can
    connect can become one. refuse: each is named in expected, or dialled."""
    unknown_brokers_max: int = 256
    """How many such brokers may be neighbours. Higher: more may link, and more that nobody knows may have to
    be waited for. Those that are named are not counted."""
    link_token: str = ""
    """The token that this broker shows to its neighbours, if they ask for one. A certificate is better: it
    never crosses the wire."""
    flooding: bool = False
    """Announce at start that anything may be published here. True: the first publication that was not
    advertised need not wait for a round through the network; subscriptions travel here although nothing
    is published."""
    hops_max: int = 64
    """Links a publication may cross. It must exceed the longest path of the network; a loop ends there."""
    frame_bytes_max: int = FRAME_BYTES_MAX
    """The largest frame that is read. Clients may send 16 KiB less, which leaves room for what brokers add.
    What does not fit into the frames of a neighbour is left out for it, so let all brokers have the same.
    Higher: larger bodies, more memory per connection."""
    strategy: str = "S0"
    """How publications are forwarded: S0 along the tree; S1 and S2 past brokers that are not interested, over
    soft links (S2 with more copies); SH by S1 while the uplink is busy and by S2 otherwise; SB to sets of
    destinations that travel along."""
    delta: int = 0
    """Up to how many links away this broker knows others. Higher: longer shortcuts; less covering between
    subscriptions from different brokers, more to know. 0: as the strategy needs it (S0 1, SB everything, the
    others 4)."""
    topology: TopologySettings = field(default_factory=TopologySettings)
    """Whether and by what it looks for a better tree."""
    soft_links: SoftLinkSettings = field(default_factory=SoftLinkSettings)
    """How many soft links there are, and how they are chosen."""
    uplink_messages_per_s: float = 0.0
    """Publications a second that the uplink can carry, for SH and for telling others how busy we are; 0: not
    known."""
    uplink_threshold: float = 0.8
    """The share of the uplink from which on SH saves copies."""
    link: ChannelSettings = field(default_factory=ChannelSettings)
    """How much may be under way on a link."""
    client: ChannelSettings = field(default_factory=lambda: ChannelSettings(window_bytes=FRAME_BYTES_MAX))
    """How much may be under way on a client's connection."""
    link_queue_bytes_max: int = 64 * 1024 * 1024
    """Publications kept for one neighbour. Beyond it those who send them get no more credit, and while the
    link is down the oldest that are not acknowledged delivery are dropped. Copies that SB may send over any
    link have half as much beside that; beyond it they go along the tree."""
    link_messages_max: int = 10_000
    """Messages other than publications that wait for a neighbour whose link is down. Beyond it the session is
    given up, and the next one begins with everything anew. Higher: longer outages that cost nothing when they
    end, more memory."""
    client_queue_bytes_max: int = 16 * 1024 * 1024
    """Publications waiting for one client. Beyond it the subscription's own choice decides."""
    stall_us_max: int = 30_000_000
    """How long a client may keep others waiting without reading anything, before it is disconnected; and how
    long a connection to another broker may carry nothing although something waits, before it is made anew.
    Higher: slow readers and stuck connections are borne longer."""
    heartbeat_us: int = 2_000_000
    """Silence after which a peer is asked whether it is there; after three times as long it is given up.
    Lower: failures are noticed sooner, more small messages."""
    handshake_us_max: int = 10_000_000
    """How long a new connection may take to say who it is."""
    connections_max: int = 10_000
    """Connections at a time, greeted or not. Each costs a few kilobytes."""
    redial_us_min: int = 100_000
    """The first pause before a lost neighbour is dialled again; it doubles up to the next setting."""
    redial_us_max: int = 5_000_000
    """The longest such pause. Lower: sooner back, more attempts at what is not there."""
    recovery_us_max: int = 5_000_000
    """How long a started broker waits for its neighbours' tables before it accepts publications.
    Acknowledged publications for neighbours known from before wait for them without limit."""
    operation_us_max: int = 10_000_000
    """How long a change of the tree, such as a SHIFT, may take before it is decided; publications are held at
    its brokers meanwhile. Beyond it everything stays as it was. Higher: slow links and long queues are waited
    for, longer pauses at the worst."""
    durable_window_bytes: int = 1024 * 1024
    """Rows of one durable subscription sent ahead of what its client has taken in."""
    durable_tail_bytes: int = 4 * 1024 * 1024
    """Recent rows of one log kept in memory, so that a reader who keeps up costs no reads."""
    log_publishers_max: int = 10_000
    """Publishers of which one log recognises what comes again. Of more, those with the oldest rows are
    forgotten, in the store too. Higher: more memory and disk for each log, up to 8 kB a name."""
    persist_bytes_max: int = 64 * 1024 * 1024
    """Rows handed to the store and not yet safe. Beyond it publishers get no more credit."""
    disk_low_bytes: int = 64 * 1024 * 1024
    """Free bytes on the store's disk below which clients whose publications are stored get no more credit,
    and the broker is not ready. Higher: more room for what is under way, and for tidying up."""
    disk_high_bytes: int = 128 * 1024 * 1024
    """Free bytes from which on they get credit again."""
    memory_bytes_max: int = 0
    """Memory of the process from which on clients that publish get no more credit, until it takes a tenth
    less; 0: no limit. It must be well above what the broker needs for its subscriptions."""
    drain_us_max: int = 10_000_000
    """How long a broker that was asked to stop waits for others to take what it holds."""

    def __post_init__(self) -> None:
        checked_broker_id(self.broker_id)
        if self.broker_id in {checked_broker_id(name) for name in self.expected}:
            raise ConfigurationError(f"{self.broker_id} cannot be expected as its own neighbour")
        if self.delta == 0:
            object.__setattr__(self, "delta", STRATEGIES.get(self.strategy, 1))
        if not 1 <= self.delta <= DELTA_MAX:
            raise ConfigurationError(f"delta must be 0 to {DELTA_MAX}, not {self.delta}")
        checked_strategy(self.strategy, self.delta)
        if self.uplink_messages_per_s < 0 or not 0 < self.uplink_threshold <= 1:
            raise ConfigurationError(
                "uplink_messages_per_s must not be negative, uplink_threshold within 0 to 1"
            )
        for name in (
            "hops_max",
            "log_publishers_max",
            "frame_bytes_max",
            "link_queue_bytes_max",
            "link_messages_max",
            "unknown_brokers_max",
            "client_queue_bytes_max",
        ):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.unknown_brokers not in ("accept", "refuse"):
            raise ConfigurationError(f"unknown_brokers is accept or refuse, not {self.unknown_brokers!r}")
        if self.hops_max > 255:
            raise ConfigurationError(f"hops_max must be at most 255, not {self.hops_max}")
        if not 0 <= self.disk_low_bytes <= self.disk_high_bytes or self.memory_bytes_max < 0:
            raise ConfigurationError(
                f"disk_low_bytes ({self.disk_low_bytes}) must not exceed disk_high_bytes "
                f"({self.disk_high_bytes}), and neither they nor memory_bytes_max may be negative"
            )
        if self.redial_us_min > self.redial_us_max:
            raise ConfigurationError(
                f"redial_us_min ({self.redial_us_min}) must not exceed redial_us_max ({self.redial_us_max})"
            )

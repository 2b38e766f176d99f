"""What crosses each link, and what does each node do, second by second?"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NamedTuple

from braid.protocol import PublicationBatch
from braid.protocol.kinds import PUBLICATION, kind_of
from braid.sim.host import Host
from braid.sim.models import frame_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from braid.protocol import Machine
    from braid.protocol.codec import Frame
    from braid.sim.pipe import Pipe
    from braid.trace.writer import TraceWriter

__all__ = ["Load", "Meter", "Sampler", "load_of"]

# Every link of a tree is one; the other kind belongs to overlays that take short cuts.
PRIMARY, SOFT = "primary", "soft"


class Load(NamedTuple):
    """What a machine says of itself: counters since its start, and how much there is now."""

    counters: tuple[int, int, int, int, int, int]
    """Publications received, published, forwarded, delivered, repeated and dropped."""
    queues: Mapping[str, int]
    """Bytes that wait, by the neighbour they wait for; those for all clients together under ``""``."""
    subscriptions: int
    covering_set: int
    links: int | None = None
    """All its links, whoever opened them; None if it does not say."""


_NOTHING = (0, 0, 0, 0, 0, 0)


def load_of(machine: Machine) -> Load | None:
    """The load of a machine that keeps `statistics()` as a broker does; None for others."""
    statistics = getattr(machine, "statistics", None)
    found: Mapping[str, Any] = statistics() if callable(statistics) else {}
    if "counters" not in found:
        return None
    counters, routing = found["counters"], found["routing"]
    queues = {
        link: found["link_waiting_bytes"][link] + found["link_unacknowledged_bytes"][link] + unsettled
        for link, unsettled in found["link_unsettled_bytes"].items()
    }
    queues[""] = found["client_waiting_bytes"]
    return Load(
        (
            counters["received"],
            counters["published"],
            counters["forwarded"],
            counters["delivered"],
            counters["duplicates"],
            counters["dropped"],
        ),
        queues,
        routing["subscriptions"],
        sum(link["subscriptions_told"] for link in routing["links"].values()),
        found.get("mesh", {}).get("links_in_all"),
    )


class Meter:
    """What has crossed one link in one direction since the last sample."""

    __slots__ = ("_link", "_source", "_target", "_trace", "bytes", "messages")

    def __init__(self, source: str, target: str, link: str, trace: TraceWriter) -> None:
        self._source = source
        self._target = target
        self._link = link
        self._trace = trace
        self.messages: dict[str, int] = {}
        self.bytes: dict[str, int] = {}

    def arrived(self, frames: Sequence[Frame], at_us: int, sent_at_us: int) -> None:
        """Frames have come to the target."""
        messages, sizes = self.messages, self.bytes
        for frame in frames:
            body = frame.body
            if type(body) is PublicationBatch:
                self._trace.hop(at_us, sent_at_us, self._source, self._target, self._link, body)
                messages[PUBLICATION] = messages.get(PUBLICATION, 0) + body.count
                sizes[PUBLICATION] = sizes.get(PUBLICATION, 0) + body.size
                continue
            kind = kind_of(body)
            messages[kind] = messages.get(kind, 0) + 1
            sizes[kind] = sizes.get(kind, 0) + frame_bytes(frame)


class _Before:
    """How far a host had come at the last sample."""

    __slots__ = ("busy_us", "counters", "life", "uplink_us")

    def __init__(self) -> None:
        self.life = 0
        self.counters = _NOTHING
        self.busy_us = 0
        self.uplink_us = 0


class Sampler:
    """Writes samples of all links between nodes, and of all nodes."""

    def __init__(self, trace: TraceWriter) -> None:
        self._trace = trace
        self._meters: dict[tuple[str, str, str], Meter] = {}
        self._latency_us: dict[tuple[str, str], int] = {}
        self._before: dict[str, _Before] = {}

    def meter(self, pipe: Pipe, link: str = PRIMARY) -> Meter | None:
        """The meter for a pipe of a link of this kind; None for those to and from clients."""
        if not isinstance(pipe.source, Host) or not isinstance(pipe.target, Host):
            return None
        way = (pipe.source.name, pipe.target.name)
        found = self._meters.get((*way, link))
        if found is None:
            found = self._meters[(*way, link)] = Meter(*way, link, self._trace)
        self._latency_us[way] = pipe.latency_us
        return found

    def soft(self, pipe: Pipe) -> None:
        """A connection turns out to be a soft link: what comes from now on is counted as that."""
        for way in (pipe, pipe.back):
            way.meter = self.meter(way, SOFT)

    def sample(self, loads: Mapping[Host, Load], now_us: int, period_us: int) -> None:
        """Write down what the last period brought."""
        queues: dict[tuple[str, str], int] = {}
        for host, load in loads.items():
            self._sample_host(host, load, now_us, period_us)
            for neighbour, size in load.queues.items():
                below = host.uplink.waiting_for(neighbour) if host.uplink is not None else 0
                queues[(host.name, neighbour)] = size + below
        for (source, target, link), meter in self._meters.items():
            way = (source, target)
            for kind in sorted(meter.messages):
                self._trace.link_sample(
                    now_us,
                    period_us,
                    source,
                    target,
                    link,
                    kind,
                    meter.messages[kind],
                    meter.bytes[kind],
                    queues.get(way, 0),
                    2 * self._latency_us[way],
                )
            meter.messages, meter.bytes = {}, {}

    def _sample_host(self, host: Host, load: Load, now_us: int, period_us: int) -> None:
        before = self._before.get(host.name)
        if before is None:
            before = self._before[host.name] = _Before()
        if before.life != host.lives:  # its counters begin anew with every life
            before.life, before.counters = host.lives, _NOTHING
        received, published, forwarded, delivered, duplicates, dropped = map(
            operator.sub, load.counters, before.counters
        )
        uplink_us = host.uplink.busy_us if host.uplink is not None else 0
        self._trace.broker_load(
            now_us,
            period_us,
            host.name,
            received,
            published,
            forwarded,
            delivered,
            duplicates,
            dropped,
            sum(load.queues.values()) + (host.uplink.waiting_bytes if host.uplink is not None else 0),
            load.subscriptions,
            load.covering_set,
            host.busy_us - before.busy_us if host.node.costs else None,
            (uplink_us - before.uplink_us) / period_us if host.uplink is not None else None,
            load.links,
        )
        before.counters, before.busy_us, before.uplink_us = load.counters, host.busy_us, uplink_us

"""How is a machine doing, in numbers that Prometheus reads?

Counters and gauges are taken from the machine's own `statistics()` at the moment somebody asks. Only the
times of turns are collected as they happen: `TurnTimes` is handed to a `Node` as its `on_turn`.

The package prometheus-client writes the text. It is loaded at the first request for it, so that a broker
without it does everything else.
"""

from __future__ import annotations

from bisect import bisect_left
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Protocol

from braid.errors import ConfigurationError
from braid.runtime.logs import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client.core import Metric
    from prometheus_client.registry import CollectorRegistry

    from braid.protocol.inputs import Input
    from braid.runtime.node import Handshakes

__all__ = ["Metrics", "Reporting", "TurnTimes", "require_prometheus"]

# Upper bounds in microseconds, from a turn that does almost nothing to one that everybody notices.
BOUNDS_US: Final = (
    10,
    25,
    50,
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    1_000_000,
)

_PEER_GAUGES: Final = {
    "subscriptions": "Subscriptions of this peer's own clients.",
    "leaf_entries": "Entries that this peer matches publications with.",
    "tree_entries": "Entries of others that this peer passes publications on for.",
    "regions": "Regions that this peer owns.",
    "trees": "Spaces in which this peer asks others for publications.",
}
_PEER_COUNTERS: Final = {
    "datagrams_sent": "Datagrams sent to other peers.",
    "datagrams_heard": "Datagrams that came from other peers.",
    "datagrams_dropped": "Datagrams that found no room, were too large, or had no way to their address.",
    "datagrams_refused": "Connections of peers that were refused, or ended for what came over them.",
    "to_peers": "Publications that went from clients or brokers to the peers.",
    "from_peers": "Publications that came from the peers to clients or brokers.",
    "refused": "Publications that were not allowed to cross.",
}

_COUNTERS: Final = {
    "received": "Publications that arrived, from clients and links.",
    "published": "Publications that arrived from clients of this broker.",
    "delivered": "Publications handed to clients of this broker.",
    "forwarded": "Publications passed on to neighbours.",
    "duplicates": "Publications that had been here before and were dropped.",
    "discarded": "Those of clients here among them, and those too old to tell. The clients were told.",
    "refused": "Publications that were beyond their publisher's grant.",
    "dropped": "Publications dropped for consumers or links that were behind.",
    "stored": "Rows appended to the logs of durable subscriptions.",
    "looped": "Publications that had crossed too many links.",
    "oversized": "Publications left out, and filters told as TRUE, where a party reads only smaller frames.",
    "unreadable": "Subscriptions and advertisements of neighbours whose filters could not be read.",
    "resent_frames": "Frames sent again after a connection was lost.",
    "stalled": "Connections to brokers given up because nothing moved on them.",
    "matched_batches": "Batches matched against the subscriptions.",
}
_GAUGES: Final = {
    "clients": "Clients that are connected.",
    "clients_behind": "Clients that hold others up because they read too slowly.",
    "client_waiting_bytes": "Bytes waiting for all clients together.",
    "links": "Neighbours that are known, linked or not.",
    "links_up": "Neighbours with a connection.",
    "ready": "1 when publications are accepted.",
    "durable_logs_set_aside": "Logs that are not used because their filters cannot be read.",
    "store_unsafe_bytes": "Bytes handed to the store and not yet safe on disk.",
    "store_failed": "1 when the store takes nothing; the log says whether it is tried again.",
    "disk_low": "1 when the disk is nearly full and publishers of stored publications wait.",
    "memory_high": "1 when memory is short and publishers wait.",
}
_LINK_GAUGES: Final = {
    "link_waiting_bytes": "Bytes waiting to be sent to a neighbour.",
    "link_unacknowledged_bytes": "Bytes sent to a neighbour that has not acknowledged them.",
    "link_unsettled_bytes": "Bytes of acknowledged delivery that those behind a neighbour have not settled.",
    "soft_link_waiting_bytes": "Bytes waiting to be sent over a soft link; its other end is the neighbour.",
}
_MESH_GAUGES: Final = {
    "delta": "Up to how many links away this broker knows others.",
    "brokers_in_sight": "Other brokers that this one knows of, within delta.",
    "soft_links": "Soft links that this broker has to others.",
    "soft_links_from": "Soft links that others have to this broker.",
    "links_in_all": "Primary and soft links together, opened by either side.",
    "fanout": "How many links there may be in all.",
    "candidates": "Links tried without a connection, to find out what they would be worth.",
    "saving_uplink": "1 while SH saves copies because the uplink is busy.",
}


class Reporting(Protocol):
    """What metrics need of a machine."""

    def statistics(self) -> dict[str, Any]:
        """A snapshot: `counters`, `routing`, and plain numbers beside them."""


class TurnTimes:
    """How long turns took, by the kind of input; call it after each turn."""

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}
        self._sums_us: dict[str, int] = {}

    def __call__(self, stimulus: Input, duration_us: int) -> None:
        kind = type(stimulus).__name__
        counts = self._counts.get(kind)
        if counts is None:
            counts = self._counts[kind] = [0] * (len(BOUNDS_US) + 1)
            self._sums_us[kind] = 0
        counts[bisect_left(BOUNDS_US, duration_us)] += 1
        self._sums_us[kind] += duration_us

    @property
    def busy_us(self) -> int:
        """All turns together."""
        return sum(self._sums_us.values())

    def histograms(self) -> Iterator[tuple[str, list[tuple[str, float]], float]]:
        """Kind, cumulative counts by upper bound in seconds as text, and the sum in seconds."""
        for kind in sorted(self._counts):
            total = 0
            buckets = []
            bounds = (*(str(bound / 1e6) for bound in BOUNDS_US), "+Inf")
            for bound, count in zip(bounds, self._counts[kind], strict=True):
                total += count
                buckets.append((bound, float(total)))
            yield kind, buckets, self._sums_us[kind] / 1e6


def require_prometheus() -> None:
    """Raise a `ConfigurationError` that says what to install, unless prometheus-client is there."""
    if find_spec("prometheus_client") is None:
        raise ConfigurationError(
            "metrics need the package prometheus-client; install it with: pip install 'braid-pubsub[network]'"
        )


class Metrics:
    """The metrics of one machine."""

    def __init__(
        self,
        machine: Reporting,
        turns: TurnTimes | None = None,
        handshakes: Handshakes | None = None,
        peer: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        """
        Args:
            machine: what is asked for its statistics.
            turns: how long its turns take.
            handshakes: of the listener.
            peer: what there is to know about the peer of this process, if it is one.
        """
        self._machine = machine
        self._peer = peer
        self._turns = turns
        self._handshakes = handshakes
        self._registry: CollectorRegistry | None = None

    def text(self) -> bytes:
        """Everything in the text format of Prometheus.

        Raises:
            ConfigurationError: prometheus-client is not installed.
        """
        require_prometheus()
        from prometheus_client import CollectorRegistry, generate_latest

        if self._registry is None:
            self._registry = CollectorRegistry(auto_describe=False)
            self._registry.register(self)
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Nothing in advance: the names depend on what the machine reports."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Called by prometheus-client for each request."""
        found = self._machine.statistics()
        broker = str(found.get("broker", ""))
        yield from _counters(broker, found.get("counters", {}))
        yield from _gauges(broker, found)
        yield from _mesh(broker, found.get("mesh", {}))
        yield from _routing(broker, found.get("routing", {}))
        yield from _logs(broker, found.get("durable_logs", {}))
        yield from self._turn_times(broker)
        if self._handshakes is not None:
            yield from _handshakes(broker, self._handshakes)
        if self._peer is not None:
            yield from _peers(broker, self._peer())

    def _turn_times(self, broker: str) -> Iterator[Metric]:
        from prometheus_client.core import HistogramMetricFamily

        if self._turns is None:
            return
        family = HistogramMetricFamily(
            "braid_turn_seconds",
            "Time to take in one input and do everything it leads to.",
            labels=["broker", "input"],
        )
        for kind, buckets, sum_s in self._turns.histograms():
            family.add_metric([broker, kind], buckets, sum_value=sum_s)
        yield family


def _counters(broker: str, counters: Mapping[str, Any]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, SummaryMetricFamily

    for name, help_text in _COUNTERS.items():
        if name in counters:
            family = CounterMetricFamily(f"braid_{name}", help_text, labels=["broker"])
            family.add_metric([broker], float(counters[name]))
            yield family
    if "match_ns" in counters:
        summary = SummaryMetricFamily(
            "braid_match_seconds", "Time spent matching batches against subscriptions.", labels=["broker"]
        )
        summary.add_metric([broker], int(counters.get("matched_batches", 0)), counters["match_ns"] / 1e9)
        yield summary


def _gauges(broker: str, found: Mapping[str, Any]) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    for name, help_text in _GAUGES.items():
        if name in found:
            family = GaugeMetricFamily(f"braid_{name}", help_text, labels=["broker"])
            family.add_metric([broker], float(found[name]))
            yield family
    for name, help_text in _LINK_GAUGES.items():
        family = GaugeMetricFamily(f"braid_{name}", help_text, labels=["broker", "neighbour"])
        for neighbour, size in sorted(found.get(name, {}).items()):
            family.add_metric([broker, neighbour], float(size))
        yield family


def _handshakes(broker: str, handshakes: Handshakes) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    under_way = GaugeMetricFamily(
        "braid_handshakes_under_way",
        "Connections that were accepted and have not finished their TLS handshake.",
        labels=["broker"],
    )
    under_way.add_metric([broker], float(handshakes.under_way))
    yield under_way
    failed = CounterMetricFamily(
        "braid_handshakes_failed",
        "Connections that did not finish their TLS handshake, or not in time.",
        labels=["broker"],
    )
    failed.add_metric([broker], float(handshakes.failed))
    yield failed
    refused = CounterMetricFamily(
        "braid_handshakes_refused",
        "Connections that were closed before a handshake, because there were too many.",
        labels=["broker"],
    )
    refused.add_metric([broker], float(handshakes.refused))
    yield refused


def _peers(broker: str, found: Mapping[str, Any]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    joined = GaugeMetricFamily("braid_peer_joined", "1 while this peer has its place.", labels=["broker"])
    joined.add_metric([broker], float(found["joined"]))
    yield joined
    neighbours = GaugeMetricFamily(
        "braid_peer_neighbours", "Neighbours of this peer on the circle, at most 16.", labels=["broker"]
    )
    neighbours.add_metric([broker], float(len(found["neighbours"])))
    yield neighbours
    for name, help_text in _PEER_GAUGES.items():
        family = GaugeMetricFamily(f"braid_peer_{name}", help_text, labels=["broker"])
        family.add_metric([broker], float(found["holds"][name]))
        yield family
    connections = GaugeMetricFamily(
        "braid_peer_connections", "Connections with other peers.", labels=["broker", "side"]
    )
    for side, count in sorted(found["connections"].items()):
        connections.add_metric([broker, side], float(count))
    yield connections
    for name, help_text in _PEER_COUNTERS.items():
        counter = CounterMetricFamily(f"braid_peer_{name}", help_text, labels=["broker"])
        value = found[name] if name in found else found["datagrams"][name.removeprefix("datagrams_")]
        counter.add_metric([broker], float(value))
        yield counter
    sent = CounterMetricFamily(
        "braid_peer_messages_sent", "Messages sent to other peers.", labels=["broker", "kind"]
    )
    for kind, count in sorted(found["datagrams"]["messages"].items()):
        sent.add_metric([broker, kind], float(count))
    yield sent


def _mesh(broker: str, mesh: Mapping[str, Any]) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    if "strategy" in mesh:
        family = GaugeMetricFamily(
            "braid_strategy", "1 for the strategy in force.", labels=["broker", "strategy"]
        )
        family.add_metric([broker, str(mesh["strategy"])], 1.0)
        yield family
    for name, help_text in _MESH_GAUGES.items():
        if name in mesh:
            value = mesh[name]
            family = GaugeMetricFamily(f"braid_{name}", help_text, labels=["broker"])
            family.add_metric([broker], float(len(value) if isinstance(value, (list, tuple)) else value))
            yield family


def _routing(broker: str, routing: Mapping[str, Any]) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    for name in ("subscriptions", "advertisements"):
        if name in routing:
            family = GaugeMetricFamily(
                f"braid_{name}", f"{name.capitalize()} that this broker knows of.", labels=["broker"]
            )
            family.add_metric([broker], float(routing[name]))
            yield family
    ratio = GaugeMetricFamily(
        "braid_link_covering_ratio",
        "Share of the subscriptions for a neighbour that it need not be told, for others cover them.",
        labels=["broker", "neighbour"],
    )
    for neighbour, told in sorted(routing.get("links", {}).items()):
        ratio.add_metric([broker, neighbour], covering_ratio(told))
    yield ratio


def covering_ratio(link: Mapping[str, Any]) -> float:
    """hidden / (told + hidden); 0 where there is nothing to tell."""
    told, hidden = int(link.get("subscriptions_told", 0)), int(link.get("subscriptions_hidden", 0))
    return hidden / (told + hidden) if told + hidden else 0.0


def _logs(broker: str, logs: Mapping[str, Any]) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(
        "braid_durable_log_unacknowledged",
        "Rows of a durable subscription that its reader has not acknowledged.",
        labels=["broker", "log"],
    )
    for name, log in sorted(logs.items()):
        family.add_metric(
            [broker, printable(name)], float(max(0, log["next_offset"] - 1 - log["acknowledged"]))
        )
    yield family
    pins = GaugeMetricFamily(
        "braid_durable_log_pin_expires",
        "When the pin of a consumer ends, in seconds since 1970; its rows may go then.",
        labels=["broker", "log", "consumer"],
    )
    for name, log in sorted(logs.items()):
        for consumer, pin in sorted(log.get("pins", {}).items()):
            labels = [broker, printable(name), printable(consumer)]
            pins.add_metric(labels, pin["expires_at_us"] / 1_000_000)
    yield pins

"""Which metrics are there, by name?

METRICS["yield"](Traces(spark, "out/traces"), from_us=240_000_000).show()
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from braid.errors import ConfigurationError
from braid.pipeline.metrics.availability import disruption, operation_time, replication_time, resumption
from braid.pipeline.metrics.cost import cost_over_time, delivery_tree_cost, forwarding_cost
from braid.pipeline.metrics.delay import (
    delivery_delay,
    delivery_delay_by_pair,
    delivery_ratio,
    delivery_ratio_over_time,
    dht_hops,
)
from braid.pipeline.metrics.forwarding import (
    forwarding_over_time,
    hop_distribution,
    mean_hops,
    pure_forwarders,
    repeated_deliveries,
    system_yield,
    throughput,
)
from braid.pipeline.metrics.ordering import ordering_degree, ordering_degree_by_sequence
from braid.pipeline.metrics.overlay import end_to_end_paths, links_in_use, most_links, path_count_shares
from braid.pipeline.metrics.state import covering_set_size, state_distribution, state_per_peer
from braid.pipeline.metrics.traffic import (
    control_overhead,
    message_size,
    messages_by_kind,
    messages_per_match,
    network_traffic,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from braid.pipeline.traces import Traces

__all__ = ["METRICS", "Metric", "metric"]


COST_PERIOD_US = 10_000_000
"""The paper measures every 1,000 ticks; a tick is 10 ms here."""


@dataclass(frozen=True)
class Metric:
    """A quantity of the papers that can be computed from traces alone."""

    name: str
    paper: str
    """The short name of the paper, and where in it."""
    tables: tuple[str, ...]
    """The tables it reads, in the order in which `function` takes them."""
    function: Callable[..., DataFrame]
    prepare: Callable[..., DataFrame] | None = None
    """Makes the one argument of `function` of the tables and the interval, where that is not the tables."""

    @property
    def summary(self) -> str:
        """The first line of what the function says about itself."""
        return (self.function.__doc__ or "").strip().partition("\n")[0]

    def __call__(self, traces: Traces, *, from_us: int | None = None, to_us: int | None = None) -> DataFrame:
        """The metric over an interval of all runs; an end that is None is open."""
        tables = [traces.table(kind) for kind in self.tables]
        if self.prepare is not None:
            return self.function(self.prepare(*tables, from_us=from_us, to_us=to_us))
        return self.function(*tables, from_us=from_us, to_us=to_us)


def metric(name: str) -> Metric:
    """The metric of that name, or a `ConfigurationError` that lists all names."""
    if name not in METRICS:
        raise ConfigurationError(f"there is no metric {name!r}; there are {', '.join(METRICS)}")
    return METRICS[name]


def _paths(link_sample: DataFrame, *, from_us: int | None, to_us: int | None) -> DataFrame:
    return end_to_end_paths(links_in_use(link_sample, from_us=from_us, to_us=to_us))


def _tree_cost(
    publication: DataFrame,
    delivery: DataFrame,
    link_sample: DataFrame,
    *,
    from_us: int | None,
    to_us: int | None,
) -> DataFrame:
    """cost(N, T) with unit costs: links and brokers in the smallest delivery trees."""
    links = links_in_use(link_sample, from_us=from_us, to_us=to_us)
    return delivery_tree_cost(publication, delivery, links, from_us=from_us, to_us=to_us)


def _cost_over_time(
    link_sample: DataFrame, broker_load: DataFrame, *, from_us: int | None, to_us: int | None
) -> DataFrame:
    """Cost of all messages by periods of 10 s with unit costs, and what they were for."""
    return cost_over_time(link_sample, broker_load, period_us=COST_PERIOD_US, from_us=from_us, to_us=to_us)


_ALL = (
    Metric("hops", "multipath, Figure 9", ("delivery", "hop"), hop_distribution),
    Metric("mean_hops", "multipath, Figures 9 and 14", ("delivery", "hop"), mean_hops),
    Metric("yield", "multipath, Table 2", ("hop", "delivery"), system_yield),
    Metric("yield_over_time", "multipath, Table 2", ("hop", "delivery"), forwarding_over_time),
    Metric("pure_forwarders", "multipath, Table 2", ("hop", "delivery"), pure_forwarders),
    Metric("repeated_deliveries", "multipath, section 5", ("delivery",), repeated_deliveries),
    Metric("throughput", "multipath, Figure 13", ("delivery",), throughput),
    Metric("delay", "multipath, section 7", ("publication", "delivery"), delivery_delay),
    Metric("delay_by_pair", "multipath, Figure 10", ("publication", "delivery"), delivery_delay_by_pair),
    Metric("traffic", "multipath, Figure 11", ("hop",), network_traffic),
    Metric("message_size", "multipath, section 8", ("hop",), message_size),
    Metric("control_overhead", "multipath, section 7", ("link_sample",), control_overhead),
    Metric("covering_set", "multipath, Figure 12", ("broker_load",), covering_set_size),
    Metric("most_links", "multipath, section 6", ("broker_load",), most_links),
    Metric("paths", "multipath, Figure 1", ("link_sample",), end_to_end_paths, links_in_use),
    Metric("path_shares", "multipath, Figure 1", ("link_sample",), path_count_shares, _paths),
    Metric("tree_cost", "self-organising, Eq. 1-2", ("publication", "delivery", "link_sample"), _tree_cost),
    Metric("cost_over_time", "self-organising, Figure 4", ("link_sample", "broker_load"), _cost_over_time),
    Metric("forwarding_cost", "self-organising, Eq. 1-2", ("publication", "hop"), forwarding_cost),
    Metric("operation_time", "availability, OT", ("reconfiguration",), operation_time),
    Metric("replication_time", "availability, RT", ("reconfiguration",), replication_time),
    Metric(
        "resumption",
        "availability, PDRD and LMPT",
        ("reconfiguration", "publication", "hop", "delivery"),
        resumption,
    ),
    Metric(
        "disruption",
        "availability, PDRD and LMPT",
        ("reconfiguration", "publication", "hop", "delivery"),
        disruption,
    ),
    Metric("ordering_degree", "availability, evaluation", ("delivery",), ordering_degree),
    Metric("ordering_by_sequence", "availability, evaluation", ("delivery",), ordering_degree_by_sequence),
    Metric("delivery_ratio", "infrastructure-free, Figure 8", ("publication", "delivery"), delivery_ratio),
    Metric(
        "delivery_ratio_over_time",
        "infrastructure-free, Figure 26",
        ("publication", "delivery"),
        delivery_ratio_over_time,
    ),
    Metric("messages_by_kind", "infrastructure-free, Figure 11", ("link_sample",), messages_by_kind),
    Metric(
        "messages_per_match", "infrastructure-free, Figure 13", ("hop", "publication"), messages_per_match
    ),
    Metric("dht_hops", "infrastructure-free, Figure 19", ("publication", "delivery"), dht_hops),
    Metric("state_per_peer", "infrastructure-free, Figure 20", ("broker_load",), state_per_peer),
    Metric("state_distribution", "infrastructure-free, Figure 20", ("broker_load",), state_distribution),
)
METRICS = {each.name: each for each in _ALL}

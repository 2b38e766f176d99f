"""What does the availability paper's evaluation run on?

Section V and Table VI: subscriptions are `attribute > value`, publications give the attribute a value; both
values follow Zipf distributions over [1, 20] with degrees from 0.1 to 4.0. Whether a distribution favours
low or high values decides how general subscriptions are and how popular publications: low subscriptions and
high publications match most. There are 100 to 1,000 publishers and 100 to 10,000 subscribers, here one
subscription per subscriber.

Those are no more than 20 different filters, so that covering leaves 20 entries whatever the number. With
`distinct` each filter also asks for an id of its own, and nothing covers anything.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from braid.workloads.draws import Floats, Integers, choices, integers, zipf_shares
from braid.workloads.parameters import Definition, Parameter
from braid.workloads.schedule import (
    publication_count,
    schedule_parameters,
    scheduled_us,
    take_turns,
)
from braid.workloads.tables import (
    PublicationColumns,
    Table,
    broker_name,
    brokers_table,
    publications_table,
    published_by,
    subscriptions_batch,
    subscriptions_table,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DEFINITIONS", "value_shares"]

ATTRIBUTES = {"attribute": pa.int64()}
DISTINCT_ATTRIBUTES = {**ATTRIBUTES, "id": pa.int64()}
_BIASES = ("low", "high")


def value_shares(values: int, degree: float, bias: str) -> Floats:
    """How often each value from 1 up is drawn: Zipf, with rank 1 at the favoured end."""
    shares = zipf_shares(values, degree)
    return shares if bias == "low" else shares[::-1]


def _build(seed: int, settings: Mapping[str, Any]) -> dict[str, Table]:
    brokers = settings["brokers"]
    publishing = integers(seed, "publisher", np.arange(settings["publishers"]), 0, brokers)
    subscribing = _places(seed, settings)
    return {
        "brokers": brokers_table(brokers, publishing.tolist(), subscribing.tolist()),
        "subscriptions": subscriptions_table(
            len(subscribing), partial(_subscriptions, seed, subscribing, dict(settings))
        ),
        "publications": publications_table(
            publication_count(settings),
            DISTINCT_ATTRIBUTES if settings["distinct"] else ATTRIBUTES,
            settings["body_bytes"],
            partial(_publications, seed, publishing, len(subscribing), dict(settings)),
        ),
    }


def _places(seed: int, settings: Mapping[str, Any]) -> Integers:
    """The broker of each subscription, by number."""
    brokers, skew = settings["brokers"], settings["skew"]
    count = settings["per_broker"] * brokers or settings["subscribers"]
    if not skew:
        if not settings["per_broker"]:
            return integers(seed, "subscriber", np.arange(count), 0, brokers)
        return np.repeat(np.arange(brokers), settings["per_broker"])
    sizes: list[int] = []
    for _ in range(brokers - 1):
        sizes.append(round(skew * (count - sum(sizes))))
    return np.repeat(np.arange(brokers), [*sizes, count - sum(sizes)])


def _subscriptions(
    seed: int, subscribing: Integers, settings: Mapping[str, Any], rows: Integers
) -> pa.RecordBatch:
    shares = value_shares(settings["values"], settings["subscription_degree"], settings["subscription_bias"])
    values = 1 + choices(seed, "subscription value", rows, shares)
    numbers = rows.tolist()
    return subscriptions_batch(
        [broker_name(each) for each in subscribing[rows].tolist()],
        [f"S{row:05d}" for row in numbers],
        [f"s{row}" for row in numbers],
        [
            f"attribute > {value} AND id = {row}" if settings["distinct"] else f"attribute > {value}"
            for row, value in zip(numbers, values.tolist(), strict=True)
        ],
    )


def _publications(
    seed: int, publishing: Integers, subscriptions: int, settings: Mapping[str, Any], rows: Integers
) -> PublicationColumns:
    publisher, sequence = take_turns(seed, rows, len(publishing))
    shares = value_shares(settings["values"], settings["publication_degree"], settings["publication_bias"])
    attributes = {"attribute": pa.array(1 + choices(seed, "publication value", rows, shares))}
    if settings["distinct"]:
        attributes["id"] = pa.array(integers(seed, "publication id", rows, 0, subscriptions))
    return published_by(
        publishing,
        publisher,
        at_us=scheduled_us(seed, settings, rows),
        sequence=sequence + 1,
        attributes=attributes,
    )


DEFINITIONS = (
    Definition(
        "availability",
        "`attribute > value` with Zipf values on both sides",
        "availability paper, section V and Table VI",
        (
            Parameter("brokers", 7, "brokers in the network", 1, 100_000),
            Parameter("publishers", 100, "clients that publish", 1, 1_000_000),
            Parameter("subscribers", 1_000, "clients with one subscription each", 1, 10_000_000),
            Parameter("per_broker", 0, "subscribers at each broker exactly; 0: by chance", 0, 1_000_000),
            Parameter("skew", 0.0, "share of those left that each broker in turn has; 0: none", 0, 0.999),
            Parameter("distinct", False, "each subscription asks for an id of its own, too"),
            Parameter("values", 20, "values go from 1 to this", 1, 1_000_000),
            Parameter("publication_degree", 1.0, "of the Zipf distribution of published values", 0, 10),
            Parameter("publication_bias", "high", "values that are published most", choices=_BIASES),
            Parameter("subscription_degree", 1.0, "of the Zipf distribution of asked values", 0, 10),
            Parameter("subscription_bias", "low", "values that are asked for most", choices=_BIASES),
            *schedule_parameters(3_000.0, 10.0),
        ),
        _build,
    ),
)

"""What does the infrastructure-free paper's evaluation run on?

Section VI: 10 attributes with integers in [1, 256]. A subscription takes 1 to 5 of them, each between two
random values; a publication takes 1 to 10, each with one random value (as a range whose ends are equal;
`publication_width` makes it wider). In the skewed form (section VI-B) both the attributes and the values
are drawn with a Zipf distribution of exponent 1. Of 5,000 peers 100 publish and the others subscribe.

Subscriptions come 10 ms apart; 40 s after the last one each publisher begins within 10 s and then publishes
every 10 s, for 100 s. A peer is a broker here, with one client.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from braid.workloads.draws import (
    Floats,
    Integers,
    choices,
    integers,
    permutation,
    uniform,
    weighted_samples,
    zipf_shares,
)
from braid.workloads.parameters import Definition, Parameter
from braid.workloads.schedule import SECOND_US
from braid.workloads.tables import (
    RANGE_TYPE,
    PublicationColumns,
    Table,
    broker_name,
    brokers_table,
    publications_table,
    published_by,
    require_brokers,
    subscriptions_batch,
    subscriptions_table,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ATTRIBUTE_NAMES", "DEFINITIONS", "VALUE_MAX"]

ATTRIBUTE_NAMES = tuple(f"a{number}" for number in range(1, 11))
VALUE_MAX = 256
ATTRIBUTES = dict.fromkeys(ATTRIBUTE_NAMES, RANGE_TYPE)


def _build(exponent: float, seed: int, settings: Mapping[str, Any]) -> dict[str, Table]:
    peers, publishers = settings["peers"], settings["publishers"]
    require_brokers(peers, publishers, 1)
    placed = permutation(seed, "placement", peers)
    publishing, subscribing = placed[:publishers], placed[publishers:]
    rounds = round(settings["publish_s"] / settings["period_s"])
    subscribers = np.unique(subscribing[: settings["subscriptions"]])
    return {
        "brokers": brokers_table(peers, publishing.tolist(), subscribers.tolist()),
        "subscriptions": subscriptions_table(
            settings["subscriptions"], partial(_subscriptions, exponent, seed, subscribing, dict(settings))
        ),
        "publications": publications_table(
            rounds * publishers,
            ATTRIBUTES,
            settings["body_bytes"],
            partial(_publications, exponent, seed, publishing, dict(settings)),
        ),
    }


def _subscriptions(
    exponent: float, seed: int, subscribing: Integers, settings: Mapping[str, Any], rows: Integers
) -> pa.RecordBatch:
    order = weighted_samples(seed, "subscription attributes", rows, _attribute_shares(exponent)).tolist()
    sizes = integers(seed, "predicates", rows, 1, settings["predicates_max"] + 1).tolist()
    if settings["predicates"]:
        sizes = [settings["predicates"]] * len(rows)
    ends = np.sort(
        np.stack([_values(exponent, seed, f"{end} ends", rows) for end in ("one", "other")]), axis=0
    )
    if settings["width_max"]:
        ends[1] = np.minimum(ends[1], ends[0] + settings["width_max"])
    if settings["narrow"]:
        for place, attributes in enumerate(order):
            ends[:, place, attributes[settings["narrow"] :]] = [[1], [VALUE_MAX]]
    filters = [
        " AND ".join(
            f"{ATTRIBUTE_NAMES[each]} BETWEEN {ends[0][place][each]} AND {ends[1][place][each]}"
            for each in sorted(order[place][: sizes[place]])
        )
        for place in range(len(rows))
    ]
    # Subscribers take turns, so the subscriptions are spread evenly over them.
    peers = subscribing[rows % len(subscribing)].tolist()
    return subscriptions_batch(
        [broker_name(peer) for peer in peers],
        [f"S{peer:05d}" for peer in peers],
        [f"s{row}" for row in rows.tolist()],
        filters,
        at_us=rows * settings["subscription_gap_us"],
    )


def _publications(
    exponent: float, seed: int, publishing: Integers, settings: Mapping[str, Any], rows: Integers
) -> PublicationColumns:
    publishers = len(publishing)
    period_us = round(settings["period_s"] * SECOND_US)
    phases_us = (uniform(seed, "phase", np.arange(publishers)) * period_us).astype(np.int64)
    # In each round they publish in the order of their phases, which keeps all rows in the order of time.
    turns = np.argsort(phases_us, kind="stable")
    publisher, sequence = turns[rows % publishers], rows // publishers
    begin_us = settings["subscriptions"] * settings["subscription_gap_us"] + round(
        settings["settle_s"] * SECOND_US
    )
    order = weighted_samples(seed, "publication attributes", rows, _attribute_shares(exponent))
    sizes = integers(seed, "published attributes", rows, 1, len(ATTRIBUTE_NAMES) + 1)
    if settings["published"]:
        sizes = np.full(len(rows), settings["published"])
    missing = np.argsort(order, axis=1) >= sizes[:, np.newaxis]
    low = _values(exponent, seed, "published", rows)
    high = np.minimum(low + settings["publication_width"], VALUE_MAX)
    return published_by(
        publishing,
        publisher,
        at_us=begin_us + sequence * period_us + phases_us[publisher],
        sequence=sequence + 1,
        attributes={
            name: pa.StructArray.from_arrays(
                [pa.array(low[:, each]), pa.array(high[:, each])],
                fields=list(RANGE_TYPE),
                mask=pa.array(missing[:, each]),
            )
            for each, name in enumerate(ATTRIBUTE_NAMES)
        },
    )


def _attribute_shares(exponent: float) -> Floats:
    return zipf_shares(len(ATTRIBUTE_NAMES), exponent)


def _values(exponent: float, seed: int, purpose: str, rows: Integers) -> Integers:
    """A value for every attribute of every row, shape (rows, attributes)."""
    places = rows[:, np.newaxis] * len(ATTRIBUTE_NAMES) + np.arange(len(ATTRIBUTE_NAMES))
    return 1 + choices(seed, purpose, places, zipf_shares(VALUE_MAX, exponent))


_PARAMETERS = (
    Parameter("peers", 5_000, "peers in the network", 2, 1_000_000),
    Parameter("publishers", 100, "peers that publish; all others may subscribe", 1, 1_000_000),
    Parameter("subscriptions", 1_000, "spread evenly over the other peers", 1, 10_000_000),
    Parameter("predicates_max", 5, "attributes that a subscription takes at most", 1, len(ATTRIBUTE_NAMES)),
    Parameter("predicates", 0, "attributes that each takes; 0: up to the most", 0, len(ATTRIBUTE_NAMES)),
    Parameter("narrow", 0, "so many of them are random ranges, the others whole; 0: all", 0, 10),
    Parameter("width_max", 0, "how much higher a range ends than it begins; 0: as drawn", 0, VALUE_MAX),
    Parameter("published", 0, "attributes of each publication; 0: 1 to 10", 0, len(ATTRIBUTE_NAMES)),
    Parameter("publication_width", 0, "how much higher a published range ends than it begins", 0, VALUE_MAX),
    Parameter("subscription_gap_us", 10_000, "between two subscriptions", 0, 1_000_000_000),
    Parameter("settle_s", 40.0, "from the last subscription to the first publication", 0, 1e6),
    Parameter("period_s", 10.0, "between two publications of a publisher", 0.001, 1e6),
    Parameter("publish_s", 100.0, "how long they publish", 0, 1e6),
    Parameter("body_bytes", 100, "size of a publication's body", 0, 1_000_000),
)
DEFINITIONS = (
    Definition(
        "infrastructurefree.uniform",
        "10 attributes in [1, 256], conjunctions of ranges",
        "infrastructure-free paper, section VI",
        _PARAMETERS,
        partial(_build, 0.0),
    ),
    Definition(
        "infrastructurefree.zipf",
        "the same with attributes and values drawn by Zipf, exponent 1",
        "infrastructure-free paper, section VI-B",
        _PARAMETERS,
        partial(_build, 1.0),
    ),
)

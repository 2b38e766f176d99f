"""What does dataset DT-C of the multipath paper look like, whose subscriptions cover one another?

Section 7 says only that there are covering relations on configuration C3 (500 brokers) and that covering
subscriptions are more generic and come with fewer predicates than covered ones. Here filters form a tree
for each topic. The one at the top asks for the topic alone; every further level adds a predicate that cuts
the values of one more attribute into `branching` equal slices:

    topic = 'T07'
    topic = 'T07' AND x1 BETWEEN 250 AND 499
    topic = 'T07' AND x1 BETWEEN 250 AND 499 AND x2 BETWEEN 0 AND 249

A filter of level l is covered by the l - 1 filters above it, and by nothing else. A subscription takes a
topic, a level and a slice per predicate at random; each level has `level_ratio` times as many as the one
above.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from braid.workloads.draws import Integers, choices, integers, zipf_shares
from braid.workloads.parameters import Definition, Parameter
from braid.workloads.schedule import (
    placed,
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
    text_column,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DEFINITIONS"]

VALUES = 1_000
"""Attributes x1, x2, ... hold integers from 0 to 999."""


def _build(seed: int, settings: Mapping[str, Any]) -> dict[str, Table]:
    publishing, subscribing = placed(seed, settings)
    attributes = {"topic": pa.string()} | {f"x{each}": pa.int64() for each in range(1, settings["depth"])}
    return {
        "brokers": brokers_table(settings["brokers"], publishing.tolist(), subscribing.tolist()),
        "subscriptions": subscriptions_table(
            settings["subscriptions"], partial(_subscriptions, seed, subscribing, dict(settings))
        ),
        "publications": publications_table(
            publication_count(settings),
            attributes,
            settings["body_bytes"],
            partial(_publications, seed, publishing, dict(settings)),
        ),
    }


def _subscriptions(
    seed: int, subscribing: Integers, settings: Mapping[str, Any], rows: Integers
) -> pa.RecordBatch:
    depth, branching = settings["depth"], settings["branching"]
    subscriber = integers(seed, "subscriber", rows, 0, len(subscribing)).tolist()
    topic = _topics(seed, "subscription topic", rows, settings).tolist()
    level = choices(seed, "level", rows, settings["level_ratio"] ** np.arange(depth)).tolist()
    slices = np.stack(
        [integers(seed, f"slice {each}", rows, 0, branching) for each in range(1, depth)] or [rows * 0],
        axis=1,
    ).tolist()
    filters = [
        " AND ".join(
            [
                f"topic = '{_topic(topic[place])}'",
                *(
                    f"x{each + 1} BETWEEN {_edge(slices[place][each], branching)} "
                    f"AND {_edge(slices[place][each] + 1, branching) - 1}"
                    for each in range(level[place])
                ),
            ]
        )
        for place in range(len(rows))
    ]
    return subscriptions_batch(
        [broker_name(int(subscribing[each])) for each in subscriber],
        [f"S{each:03d}" for each in subscriber],
        [f"s{row}" for row in rows.tolist()],
        filters,
    )


def _publications(
    seed: int, publishing: Integers, settings: Mapping[str, Any], rows: Integers
) -> PublicationColumns:
    publisher, sequence = take_turns(seed, rows, len(publishing))
    topic = _topics(seed, "publication topic", rows, settings)
    attributes = {"topic": text_column([_topic(each) for each in range(settings["topics"])], topic)}
    for each in range(1, settings["depth"]):
        attributes[f"x{each}"] = pa.array(integers(seed, f"x{each}", rows, 0, VALUES))
    return published_by(
        publishing,
        publisher,
        at_us=scheduled_us(seed, settings, rows),
        sequence=sequence + 1,
        attributes=attributes,
    )


def _topics(seed: int, purpose: str, rows: Integers, settings: Mapping[str, Any]) -> Integers:
    return choices(seed, purpose, rows, zipf_shares(settings["topics"], settings["exponent"]))


def _topic(number: int) -> str:
    return f"T{number:02d}"


def _edge(slice_number: int, branching: int) -> int:
    return slice_number * VALUES // branching


DEFINITIONS = (
    Definition(
        "multipath.DT-C",
        "500 brokers, subscriptions that cover one another",
        "multipath paper, section 7 and Figure 12; configuration C3",
        (
            Parameter("brokers", 500, "brokers in the network", 2, 100_000),
            Parameter("publishers", 250, "brokers that host a publisher", 1, 100_000),
            Parameter("subscribers", 250, "other brokers, that host a subscriber", 1, 100_000),
            Parameter("subscriptions", 6_500, "of all subscribers together", 1, 10_000_000),
            Parameter("topics", 50, "trees of filters", 1, 100_000),
            Parameter("exponent", 0.0, "of the Zipf distribution over topics; 0: all alike", 0, 10),
            Parameter("depth", 4, "levels of a tree, so predicates of a filter at most", 1, 10),
            Parameter("branching", 4, "slices that a predicate cuts an attribute into", 1, VALUES),
            Parameter("level_ratio", 2.0, "subscriptions of a level to those of the one above", 0.01, 100),
            *schedule_parameters(3_600.0, 120.0),
        ),
        _build,
    ),
)

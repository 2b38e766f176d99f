"""What do the multipath paper's datasets DT1 to DT5 look like?

The paper (section 7, Figure 8) says that they are made with a Zipf distribution, from sparse to dense, and
how many deliveries DT1 and DT2 lead to. Here every publisher has `classes` classes of publications. The
class of rank r is wanted at a number of subscriber brokers that falls as r ** -exponent, capped at all of
them and scaled so that the mean over the classes is `matching_mean`. Which brokers these are is drawn anew
for each publisher and class. A publisher runs through its classes in an order that is drawn anew for each
round, so every class is published equally often and the number of deliveries is not left to chance.

At a broker one client holds all subscriptions. What it wants of one publisher is split into subscriptions
of at most `classes_per_subscription` classes each: `source = 'P017' AND class IN (3, 14, 41)`.

With `classes_of = 'network'` the classes are the same for all publishers, and who wants them is drawn once:
`class IN (3, 14, 41)`. A publication then matches as many brokers, with a hundredth of the subscriptions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from braid.errors import ConfigurationError
from braid.workloads.draws import (
    Integers,
    integers,
    permutation,
    permutations,
    uniform,
    zipf_shares,
)
from braid.workloads.parameters import Definition, Parameter
from braid.workloads.schedule import (
    arrival_times_us,
    duration_us,
    publication_count,
    schedule_parameters,
    take_turns,
)
from braid.workloads.tables import (
    PublicationColumns,
    Table,
    broker_name,
    brokers_table,
    publications_table,
    require_brokers,
    subscriptions_batch,
    subscriptions_table,
    text_column,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["DEFINITIONS", "Interests", "brokers_per_class", "interests"]

ATTRIBUTES = {"source": pa.string(), "class": pa.int64(), "price": pa.float64(), "volume": pa.int64()}


@dataclass(frozen=True)
class Interests:
    """Who wants what: everything that has to be known before rows can be made."""

    publishers: Integers
    """The broker of each publisher."""
    subscribers: Integers
    """The brokers that host a subscriber."""
    wanted: NDArray[np.bool_]
    """Publisher x class x subscriber: is it wanted there?"""


def interests(seed: int, settings: Mapping[str, Any]) -> Interests:
    """Place publishers and subscribers on different brokers, and draw who wants which class."""
    brokers, publishers, subscribers = (settings[key] for key in ("brokers", "publishers", "subscribers"))
    require_brokers(brokers, publishers, subscribers)
    classes = settings["classes"]
    sizes = brokers_per_class(classes, settings["exponent"], settings["matching_mean"], subscribers)
    placed = permutation(seed, "placement", brokers)
    # The first n of a random order are a random set of n; every publisher and class has an order.
    drawn = publishers if settings["classes_of"] == "publisher" else 1
    orders = permutations(seed, "interest", np.arange(drawn * classes), subscribers)
    ranks = np.argsort(orders, axis=1).reshape(drawn, classes, subscribers)
    ranks = np.broadcast_to(ranks, (publishers, classes, subscribers))
    return Interests(
        publishers=np.sort(placed[:publishers]),
        subscribers=np.sort(placed[publishers : publishers + subscribers]),
        wanted=ranks < sizes[:, np.newaxis],
    )


def brokers_per_class(classes: int, exponent: float, matching_mean: float, subscribers: int) -> Integers:
    """How many brokers want the class of each rank: Zipf, capped, with the exact total for the mean."""
    if not 0 < matching_mean <= subscribers:
        raise ConfigurationError(
            f"matching_mean is more than 0 and at most the {subscribers} subscribers, not {matching_mean}"
        )
    total = round(matching_mean * classes)
    shares = zipf_shares(classes, exponent)
    low, high = 0.0, subscribers / shares[-1]
    for _ in range(100):  # bisection: the capped sum grows with the scale
        middle = (low + high) / 2
        if np.minimum(shares * middle, subscribers).sum() < total:
            low = middle
        else:
            high = middle
    exact = np.minimum(shares * high, subscribers)
    sizes: Integers = np.floor(exact + 1e-9).astype(np.int64)
    remainder = np.argsort(sizes - exact, kind="stable")[: max(0, total - int(sizes.sum()))]
    sizes[remainder] += 1
    return sizes


def _build(seed: int, settings: Mapping[str, Any]) -> dict[str, Table]:
    known = interests(seed, settings)
    publishers = settings["publishers"] if settings["classes_of"] == "publisher" else 0
    triples = _subscription_chunks(known, publishers, settings["classes_per_subscription"])
    publications = publication_count(settings)
    return {
        "brokers": brokers_table(settings["brokers"], known.publishers.tolist(), known.subscribers.tolist()),
        "subscriptions": subscriptions_table(len(triples), partial(_subscriptions, known, triples)),
        "publications": publications_table(
            publications,
            ATTRIBUTES,
            settings["body_bytes"],
            partial(_publications, seed, known.publishers, publications, dict(settings)),
        ),
    }


def _subscription_chunks(
    known: Interests, publishers: int, classes_per_subscription: int
) -> list[tuple[int, int | None, list[int]]]:
    """Subscriber, publisher (None: all of them) and classes of every subscription."""
    chunks: list[tuple[int, int | None, list[int]]] = []
    for subscriber in range(len(known.subscribers)):
        for publisher in range(publishers) if publishers else [None]:
            classes = (np.flatnonzero(known.wanted[publisher or 0, :, subscriber]) + 1).tolist()
            chunks += [
                (subscriber, publisher, classes[start : start + classes_per_subscription])
                for start in range(0, len(classes), classes_per_subscription)
            ]
    return chunks


def _subscriptions(
    known: Interests, chunks: list[tuple[int, int | None, list[int]]], rows: Integers
) -> pa.RecordBatch:
    brokers, clients, keys, filters = [], [], [], []
    for row in rows.tolist():
        subscriber, publisher, classes = chunks[row]
        brokers.append(broker_name(int(known.subscribers[subscriber])))
        clients.append(f"S{subscriber:03d}")
        keys.append(f"s{row}")
        listed = f"= {classes[0]}" if len(classes) == 1 else f"IN ({', '.join(map(str, classes))})"
        source = "" if publisher is None else f"source = '{_source(publisher)}' AND "
        filters.append(f"{source}class {listed}")
    return subscriptions_batch(brokers, clients, keys, filters)


def _publications(
    seed: int, publishers: Integers, count: int, settings: Mapping[str, Any], rows: Integers
) -> PublicationColumns:
    publisher, sequence = take_turns(seed, rows, len(publishers))
    names = [_source(each) for each in range(len(publishers))]
    client = text_column(names, publisher)
    return PublicationColumns(
        at_us=arrival_times_us(seed, settings["spread"], rows, count, duration_us(settings)),
        broker=text_column([broker_name(each) for each in publishers.tolist()], publisher),
        client=client,
        sequence=sequence + 1,
        attributes={
            "source": client,
            "class": pa.array(1 + _classes(seed, publisher, sequence, len(publishers), settings["classes"])),
            "price": pa.array(np.round(10 + 90 * uniform(seed, "price", rows), 2)),
            "volume": pa.array(integers(seed, "volume", rows, 1, 10_000)),
        },
    )


def _classes(seed: int, publisher: Integers, sequence: Integers, publishers: int, classes: int) -> Integers:
    """The class of a publisher's n-th publication: each round of `classes` has every class once."""
    rounds, place = sequence // classes, sequence % classes
    addresses, which = np.unique(rounds * publishers + publisher, return_inverse=True)
    return permutations(seed, "class order", addresses, classes)[which, place]


def _source(publisher: int) -> str:
    return f"P{publisher:03d}"


def _definition(name: str, summary: str, source: str, **defaults: Any) -> Definition:
    values = {
        "brokers": 120,
        "publishers": 60,
        "subscribers": 60,
        "classes": 60,
        "exponent": 1.2,
        "duration_s": 600.0,
        "rate_per_minute": 3_600.0,
    } | defaults
    parameters = (
        Parameter("brokers", values["brokers"], "brokers in the network", 2, 100_000),
        Parameter("publishers", values["publishers"], "brokers that host a publisher", 1, 100_000),
        Parameter("subscribers", values["subscribers"], "other brokers, that host a subscriber", 1, 100_000),
        Parameter("classes", values["classes"], "classes of publications per publisher", 1, 10_000),
        Parameter("exponent", values["exponent"], "of the Zipf distribution over classes", 0, 10),
        Parameter(
            "matching_mean",
            values["matching_mean"],
            "subscriber brokers a publication matches, mean",
            0,
            100_000,
        ),
        Parameter(
            "classes_per_subscription",
            values["classes_per_subscription"],
            "classes that one subscription lists at most",
            1,
            10_000,
        ),
        Parameter(
            "classes_of",
            "publisher",
            "classes are each publisher's own, or the whole network's",
            choices=("publisher", "network"),
        ),
        *schedule_parameters(values["rate_per_minute"], values["duration_s"]),
    )
    return Definition(name, summary, source, parameters, _build)


_SECTION = "multipath paper, section 7 and Figure 8"
DEFINITIONS = (
    _definition(
        "multipath.DT1",
        "sparse: a publication matches 9.67 of 60 subscriber brokers",
        f"{_SECTION}; configuration C1",
        exponent=1.4,
        matching_mean=9.67,
        classes_per_subscription=7,
    ),
    _definition(
        "multipath.DT2",
        "dense: a publication matches 28.7 of 60 subscriber brokers",
        f"{_SECTION}; configuration C1",
        matching_mean=28.72,
        classes_per_subscription=24,
    ),
    _definition(
        "multipath.DT3",
        "250 brokers, as sparse as DT1",
        f"{_SECTION}, Figure 13(b); configuration C2",
        brokers=250,
        publishers=60,
        subscribers=125,
        exponent=1.4,
        matching_mean=20.15,
        classes_per_subscription=24,
        rate_per_minute=72_000.0,
    ),
    _definition(
        "multipath.DT4",
        "21 brokers, sparse",
        f"{_SECTION}, Figure 13(c) left; configuration CPL",
        brokers=21,
        publishers=10,
        subscribers=10,
        classes=10,
        matching_mean=2.0,
        classes_per_subscription=7,
        rate_per_minute=3_300.0,
        duration_s=300.0,
    ),
    _definition(
        "multipath.DT5",
        "21 brokers, dense",
        f"{_SECTION}, Figure 13(c) right; configuration CPL",
        brokers=21,
        publishers=10,
        subscribers=10,
        classes=10,
        matching_mean=5.0,
        classes_per_subscription=7,
        rate_per_minute=3_300.0,
        duration_s=300.0,
    ),
)

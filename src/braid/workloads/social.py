"""What does a social network ask of brokers? (dataset DT-FB of the multipath paper)

The paper takes traces of Facebook, which are not public. Here the trace is CollegeMsg: 59,835 messages
between 1,899 users of an online community. A user sits at one broker, and everybody who exchanged a message
with a user in the trace is a contact and subscribes to that user: `author = 'u17'`. Messages are published
in the order of the trace, at the wanted rate instead of over half a year.

Users are placed by hash, or by community: friends sit together, as where a site serves a region.

With `subscriptions_of = 'broker'` one client per broker asks for all authors that somebody there wants, in
one subscription: the same brokers get the same publications, with 120 subscriptions instead of 27,676.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from braid.workloads.datasets import MESSAGES, dataset, read_messages
from braid.workloads.draws import Integers, integers
from braid.workloads.parameters import Definition, Parameter
from braid.workloads.schedule import (
    arrival_times_us,
    duration_us,
    numbered,
    publication_count,
    schedule_parameters,
)
from braid.workloads.tables import (
    PublicationColumns,
    Table,
    broker_name,
    brokers_table,
    publications_table,
    subscriptions_batch,
    subscriptions_table,
    text_column,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DEFINITIONS"]


@dataclass(frozen=True)
class _Society:
    """The trace with users numbered from 0 without gaps."""

    names: list[str]
    authors: Integers
    recipients: Integers
    contacts: Integers
    """Rows of (who subscribes, to whom), sorted."""


def _build(seed: int, settings: Mapping[str, Any]) -> dict[str, Table]:
    society = _society(read_messages(dataset(MESSAGES)))
    homes = _homes(seed, society, settings["brokers"], settings["placement"])
    count = min(publication_count(settings), len(society.authors))
    # What was cut off at the end of the trace shortens the run instead of slowing it down.
    within_us = duration_us(settings) * count // max(publication_count(settings), 1)
    attributes = {"author": pa.string(), "recipient": pa.string(), "length": pa.int64()}
    return {
        "brokers": brokers_table(
            settings["brokers"],
            homes[np.unique(society.authors)].tolist(),
            homes[np.unique(society.contacts[:, 0])].tolist(),
        ),
        "subscriptions": _subscription_table(society, homes, settings["subscriptions_of"]),
        "publications": publications_table(
            count,
            attributes,
            settings["body_bytes"],
            partial(
                _publications,
                seed,
                settings["spread"],
                within_us,
                (society.names, homes, society.authors[:count], society.recipients[:count]),
            ),
        ),
    }


def _society(messages: Integers) -> _Society:
    users, numbers = np.unique(messages[:, :2], return_inverse=True)
    pairs = numbers.reshape(-1, 2)
    both_ways = np.concatenate([pairs, pairs[:, ::-1]])
    contacts = np.unique(both_ways[both_ways[:, 0] != both_ways[:, 1]], axis=0)
    return _Society([f"u{user}" for user in users.tolist()], pairs[:, 0], pairs[:, 1], contacts)


def _homes(seed: int, society: _Society, brokers: int, placement: str) -> Integers:
    """The broker of each user."""
    users = len(society.names)
    if placement == "hash":
        return integers(seed, "home", np.arange(users), 0, brokers)
    order = [user for community in _communities(seed, users, society.contacts) for user in community]
    homes = np.empty(users, dtype=np.int64)
    # Brokers fill up one after the other, so that a community has as few as it needs.
    homes[order] = np.arange(users) * brokers // users
    return homes


def _communities(seed: int, users: int, contacts: Integers) -> list[list[int]]:
    """Groups of users with many contacts among themselves (Louvain), largest first."""
    import networkx

    graph = networkx.Graph()
    graph.add_nodes_from(range(users))
    graph.add_edges_from(contacts.tolist())
    groups = networkx.algorithms.community.louvain_communities(graph, seed=seed)
    return sorted((sorted(group) for group in groups), key=lambda group: (-len(group), group))


def _subscription_table(society: _Society, homes: Integers, of: str) -> Table:
    if of == "user":
        make = partial(_subscriptions, society.names, homes, society.contacts)
        return subscriptions_table(len(society.contacts), make)
    wanted = np.unique(np.stack([homes[society.contacts[:, 0]], society.contacts[:, 1]], axis=1), axis=0)
    authors = {
        int(home): wanted[wanted[:, 0] == home, 1].tolist() for home in np.unique(wanted[:, 0]).tolist()
    }
    return subscriptions_table(len(authors), partial(_joint_subscriptions, society.names, authors))


def _joint_subscriptions(names: list[str], authors: dict[int, list[int]], rows: Integers) -> pa.RecordBatch:
    chosen = [list(authors.items())[row] for row in rows.tolist()]
    return subscriptions_batch(
        [broker_name(home) for home, _ in chosen],
        [f"S{home:03d}" for home, _ in chosen],
        [f"s{home}" for home, _ in chosen],
        [f"author IN ({', '.join(repr(names[author]) for author in wanted)})" for _, wanted in chosen],
    )


def _subscriptions(names: list[str], homes: Integers, contacts: Integers, rows: Integers) -> pa.RecordBatch:
    chosen = contacts[rows].tolist()
    return subscriptions_batch(
        [broker_name(int(homes[reader])) for reader, _ in chosen],
        [names[reader] for reader, _ in chosen],
        [f"{names[reader]}-{names[author]}" for reader, author in chosen],
        [f"author = '{names[author]}'" for _, author in chosen],
    )


def _publications(
    seed: int,
    spread: str,
    within_us: int,
    trace: tuple[list[str], Integers, Integers, Integers],
    rows: Integers,
) -> PublicationColumns:
    names, homes, authors, recipients = trace
    author = text_column(names, authors[rows])
    return PublicationColumns(
        at_us=arrival_times_us(seed, spread, rows, len(authors), within_us),
        broker=text_column([broker_name(each) for each in homes.tolist()], authors[rows]),
        client=author,
        sequence=_sequences(authors.tobytes())[rows] + 1,
        attributes={
            "author": author,
            "recipient": text_column(names, recipients[rows]),
            "length": pa.array(integers(seed, "length", rows, 1, 500)),
        },
    )


@lru_cache(maxsize=2)
def _sequences(authors: bytes) -> Integers:
    return numbered(np.frombuffer(authors, dtype=np.int64))


DEFINITIONS = (
    Definition(
        "multipath.DT-FB",
        "a real social network: contacts subscribe to each other",
        "multipath paper, section 7 (Facebook dataset); the trace is CollegeMsg of SNAP",
        (
            Parameter("brokers", 120, "brokers in the network", 1, 100_000),
            Parameter("placement", "hash", "which broker a user sits at", choices=("hash", "community")),
            Parameter(
                "subscriptions_of",
                "user",
                "each user subscribes, or one client for all users of a broker",
                choices=("user", "broker"),
            ),
            *schedule_parameters(3_600.0, 600.0),
        ),
        _build,
    ),
)

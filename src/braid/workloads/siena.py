"""What does a mix of all kinds of predicates look like?

The form is that of the workloads for Siena (Carzaniga and Wolf, "Forwarding in a Content-Based Network",
SIGCOMM 2003, and the Siena synthetic benchmark generator): how many constraints a filter has, how many
attributes a message has, and which operators are used are drawn from tables of weights; names and strings
follow Zipf distributions. The weights are those below. Half of the names hold integers, half of them
strings, so a constraint and an attribute of one name always agree in their type.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from braid.errors import ConfigurationError
from braid.workloads.draws import (
    Integers,
    choices,
    permutation,
    uniform_columns,
    weighted_samples,
    zipf_shares,
)
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
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "ATTRIBUTES_PER_MESSAGE",
    "CONSTRAINTS_PER_FILTER",
    "DEFINITIONS",
    "INTEGER_OPERATORS",
    "STRING_OPERATORS",
    "WORDS",
]

CONSTRAINTS_PER_FILTER = {1: 20, 2: 30, 3: 25, 4: 15, 5: 10}
ATTRIBUTES_PER_MESSAGE = {4: 5, 5: 10, 6: 15, 7: 20, 8: 20, 9: 15, 10: 10, 11: 5}
INTEGER_OPERATORS = {"=": 60, "<": 20, ">": 20}
STRING_OPERATORS = {"=": 35, "prefix": 15, "suffix": 15, "substring": 15, "<": 10, ">": 10}

NAME_EXPONENT = 1.0
WORD_EXPONENT = 1.0
INTEGER_MAX = 100
WORD_COUNT = 200
_SYLLABLES = ("ba", "ce", "di", "fo", "gu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "xu", "ze")


def _words() -> tuple[str, ...]:
    """Distinct words that share beginnings and ends, so that parts of words are worth asking for."""
    letters = permutation(0, "words", len(_SYLLABLES) ** 3)[:WORD_COUNT].tolist()
    return tuple(
        _SYLLABLES[each >> 8] + _SYLLABLES[each >> 4 & 15] + _SYLLABLES[each & 15] for each in letters
    )


WORDS = _words()


def _build(seed: int, settings: Mapping[str, Any]) -> dict[str, Table]:
    if settings["names"] < max(ATTRIBUTES_PER_MESSAGE):
        raise ConfigurationError(
            f"siena: names is at least {max(ATTRIBUTES_PER_MESSAGE)}, the attributes of the largest message"
        )
    publishing, subscribing = placed(seed, settings)
    attributes = {
        _name(each): pa.int64() if _is_integer(each) else pa.string() for each in range(settings["names"])
    }
    return {
        "brokers": brokers_table(settings["brokers"], publishing.tolist(), subscribing.tolist()),
        "subscriptions": subscriptions_table(
            settings["subscriptions"], partial(_subscriptions, seed, subscribing, settings["names"])
        ),
        "publications": publications_table(
            publication_count(settings),
            attributes,
            settings["body_bytes"],
            partial(_publications, seed, publishing, dict(settings)),
        ),
    }


def _subscriptions(seed: int, subscribing: Integers, names: int, rows: Integers) -> pa.RecordBatch:
    most = max(CONSTRAINTS_PER_FILTER)
    sizes = _sizes(seed, "constraints", rows, CONSTRAINTS_PER_FILTER).tolist()
    chosen = weighted_samples(seed, "constraint names", rows, zipf_shares(names, NAME_EXPONENT))[
        :, :most
    ].tolist()
    operator = uniform_columns(seed, "operator", rows, most).tolist()
    numbers = _columns(seed, "constraint number", rows, most, np.ones(INTEGER_MAX)).tolist()
    words = _columns(seed, "constraint word", rows, most, zipf_shares(WORD_COUNT, WORD_EXPONENT)).tolist()
    filters = []
    for place in range(len(rows)):
        parts = []
        for each in range(sizes[place]):
            name = chosen[place][each]
            if _is_integer(name):
                sign = _weighted(INTEGER_OPERATORS, operator[place][each])
                parts.append(f"{_name(name)} {sign} {numbers[place][each]}")
            else:
                sign = _weighted(STRING_OPERATORS, operator[place][each])
                parts.append(f"{_name(name)} {_of_string(sign, WORDS[words[place][each]])}")
        filters.append(" AND ".join(parts))
    # Subscribers take turns, so each broker has about as many subscriptions as any other.
    subscriber = (rows % len(subscribing)).tolist()
    return subscriptions_batch(
        [broker_name(int(subscribing[each])) for each in subscriber],
        [f"S{each:03d}" for each in subscriber],
        [f"s{row}" for row in rows.tolist()],
        filters,
    )


def _of_string(operator: str, word: str) -> str:
    """A constraint on a string; parts of words are one syllable long, two letters."""
    patterns = {"prefix": f"{word[:2]}%", "suffix": f"%{word[-2:]}", "substring": f"%{word[2:4]}%"}
    return f"LIKE '{patterns[operator]}'" if operator in patterns else f"{operator} '{word}'"


def _publications(
    seed: int, publishing: Integers, settings: Mapping[str, Any], rows: Integers
) -> PublicationColumns:
    names = settings["names"]
    publisher, sequence = take_turns(seed, rows, len(publishing))
    order = weighted_samples(seed, "message names", rows, zipf_shares(names, NAME_EXPONENT))
    sizes = _sizes(seed, "attributes", rows, ATTRIBUTES_PER_MESSAGE)
    missing = np.argsort(order, axis=1) >= sizes[:, np.newaxis]
    numbers = _columns(seed, "number", rows, names, np.ones(INTEGER_MAX))
    words = _columns(seed, "word", rows, names, zipf_shares(WORD_COUNT, WORD_EXPONENT))
    vocabulary = pa.array(WORDS)
    attributes = {
        _name(each): pa.array(numbers[:, each], mask=missing[:, each])
        if _is_integer(each)
        else vocabulary.take(pa.array(words[:, each], mask=missing[:, each]))
        for each in range(names)
    }
    return published_by(
        publishing,
        publisher,
        at_us=scheduled_us(seed, settings, rows),
        sequence=sequence + 1,
        attributes=attributes,
    )


def _sizes(seed: int, purpose: str, rows: Integers, weights: Mapping[int, int]) -> Integers:
    return np.array(list(weights))[choices(seed, purpose, rows, list(weights.values()))]


def _columns(
    seed: int, purpose: str, rows: Integers, columns: int, shares: Sequence[float] | Any
) -> Integers:
    """A draw with these shares for every column of every row."""
    return choices(seed, purpose, rows[:, np.newaxis] * columns + np.arange(columns), shares)


def _weighted(weights: Mapping[str, int], drawn: float) -> str:
    """The operator that a number in [0, 1) falls on."""
    left = drawn * sum(weights.values())
    for operator, weight in weights.items():
        left -= weight
        if left < 0:
            return operator
    return operator


def _name(number: int) -> str:
    return f"n{number:02d}"


def _is_integer(number: int) -> bool:
    return number % 2 == 0


DEFINITIONS = (
    Definition(
        "siena",
        "a mix of equality, order, prefix, suffix and substring constraints",
        "workloads for Siena: Carzaniga and Wolf, SIGCOMM 2003; weights in siena.py",
        (
            Parameter("brokers", 120, "brokers in the network", 2, 100_000),
            Parameter("publishers", 60, "brokers that host a publisher", 1, 100_000),
            Parameter("subscribers", 60, "other brokers, that host a subscriber", 1, 100_000),
            Parameter("subscriptions", 6_000, "of all subscribers together", 1, 10_000_000),
            Parameter("names", 30, "names of attributes", 11, 1_000),
            *schedule_parameters(3_600.0, 600.0),
        ),
        _build,
    ),
)

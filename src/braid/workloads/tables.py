"""What is a workload made of?

Three tables, each a function from row numbers to rows, so that Spark can make them in any pieces:

    brokers        broker, role ("publisher", "subscriber", "both" or "none")
    subscriptions  at_us, broker, client, key, filter, until_us (null: it stays)
    publications   at_us, broker, client, sequence, body_bytes, attributes (a struct with one field per name)

Times count from the start of the workload; a subscription at 0 is in place before the first publication, for
which a run has to leave time. Subscriptions and publications come in the order of their times, and the
publications of one client are numbered 1, 2, 3, ... An attribute that a publication does not have is null in
its struct; a range is a struct of `low` and `high`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from braid.errors import ConfigurationError
from braid.language import Range, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from braid.workloads.draws import Integers

__all__ = [
    "BROKERS_SCHEMA",
    "RANGE_TYPE",
    "SUBSCRIPTIONS_SCHEMA",
    "PublicationColumns",
    "Role",
    "Table",
    "Workload",
    "attribute_rows",
    "broker_name",
    "brokers_table",
    "publications_schema",
    "publications_table",
    "published_by",
    "require_brokers",
    "struct_column",
    "subscriptions_batch",
    "subscriptions_table",
    "text_column",
]

Role = Literal["publisher", "subscriber", "both", "none"]

BROKERS_SCHEMA = pa.schema([("broker", pa.string()), ("role", pa.string())])
SUBSCRIPTIONS_SCHEMA = pa.schema(
    [
        ("at_us", pa.int64()),
        ("broker", pa.string()),
        ("client", pa.string()),
        ("key", pa.string()),
        ("filter", pa.string()),
        ("until_us", pa.int64()),
    ]
)
RANGE_TYPE = pa.struct([("low", pa.int64()), ("high", pa.int64())])

# Rows made at once outside Spark: enough for NumPy to be quick, few enough to stay small.
CHUNK_ROWS = 100_000


class Table(NamedTuple):
    """Rows that can be made in any pieces and any order."""

    schema: pa.Schema
    rows: int
    make: Callable[[Integers], pa.RecordBatch]
    """The rows with these numbers, in the order of the numbers."""


@dataclass(frozen=True)
class Workload:
    """Who asks for what, and who says what, when: to be made with or without Spark."""

    name: str
    seed: int
    parameters: Mapping[str, Any]
    tables: Mapping[str, Table]

    def local(self, table: str) -> pa.Table:
        """A whole table in memory, made without Spark."""
        made = self.tables.get(table)
        if made is None:
            raise ConfigurationError(f"no table {table!r}; a workload has {', '.join(self.tables)}")
        batches = [
            made.make(np.arange(start, min(start + CHUNK_ROWS, made.rows), dtype=np.int64))
            for start in range(0, made.rows, CHUNK_ROWS)
        ]
        return pa.Table.from_batches(batches, schema=made.schema)


def broker_name(number: int) -> str:
    """`B007`; topologies use the same names."""
    return f"B{number:03d}"


def require_brokers(brokers: int, publishers: int, subscribers: int) -> None:
    """A `ConfigurationError` when not everybody can have a broker of its own."""
    if publishers + subscribers > brokers:
        raise ConfigurationError(
            f"publishers ({publishers}) and subscribers ({subscribers}) need a broker each, "
            f"and there are only {brokers}"
        )


def publications_schema(attributes: Mapping[str, pa.DataType]) -> pa.Schema:
    """The schema of publications with these attributes."""
    return pa.schema(
        [
            ("at_us", pa.int64()),
            ("broker", pa.string()),
            ("client", pa.string()),
            ("sequence", pa.int64()),
            ("body_bytes", pa.int32()),
            ("attributes", pa.struct(list(attributes.items()))),
        ]
    )


def brokers_table(count: int, publishers: Sequence[int], subscribers: Sequence[int]) -> Table:
    """All brokers with what they host."""
    publishing, subscribing = set(publishers), set(subscribers)
    roles: list[Role] = [
        "both"
        if number in publishing and number in subscribing
        else "publisher"
        if number in publishing
        else "subscriber"
        if number in subscribing
        else "none"
        for number in range(count)
    ]

    def make(rows: Integers) -> pa.RecordBatch:
        numbers = rows.tolist()
        columns = [
            pa.array([broker_name(each) for each in numbers]),
            pa.array([roles[each] for each in numbers]),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=BROKERS_SCHEMA)

    return Table(BROKERS_SCHEMA, count, make)


def subscriptions_batch(
    brokers: Sequence[str],
    clients: Sequence[str],
    keys: Sequence[str],
    filters: Sequence[str],
    at_us: Integers | None = None,
    until_us: Sequence[int | None] | None = None,
) -> pa.RecordBatch:
    """Rows of the table of subscriptions; without times they are there from the start and stay."""
    count = len(filters)
    begin = np.zeros(count, dtype=np.int64) if at_us is None else at_us
    end = [None] * count if until_us is None else until_us
    columns = [
        pa.array(begin, pa.int64()),
        pa.array(brokers, pa.string()),
        pa.array(clients, pa.string()),
        pa.array(keys, pa.string()),
        pa.array(filters, pa.string()),
        pa.array(end, pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SUBSCRIPTIONS_SCHEMA)


def subscriptions_table(rows: int, make: Callable[[Integers], pa.RecordBatch]) -> Table:
    """A table of subscriptions."""
    return Table(SUBSCRIPTIONS_SCHEMA, rows, make)


class PublicationColumns(NamedTuple):
    """What differs between publications; the attributes as one Arrow array per name."""

    at_us: Integers
    broker: pa.Array
    client: pa.Array
    sequence: Integers
    attributes: Mapping[str, pa.Array]


def published_by(
    publishing: Integers,
    publisher: Integers,
    *,
    at_us: Integers,
    sequence: Integers,
    attributes: Mapping[str, pa.Array],
) -> PublicationColumns:
    """Publications of clients P000, P001, ... at these brokers, by the number of each one's client."""
    return PublicationColumns(
        at_us=at_us,
        broker=text_column([broker_name(each) for each in publishing.tolist()], publisher),
        client=text_column([f"P{each:03d}" for each in range(len(publishing))], publisher),
        sequence=sequence,
        attributes=attributes,
    )


def publications_table(
    rows: int,
    attributes: Mapping[str, pa.DataType],
    body_bytes: int,
    make: Callable[[Integers], PublicationColumns],
) -> Table:
    """A table of publications whose bodies all have the same size."""
    schema = publications_schema(attributes)

    def batch(numbers: Integers) -> pa.RecordBatch:
        made = make(numbers)
        columns = [
            pa.array(made.at_us, pa.int64()),
            made.broker,
            made.client,
            pa.array(made.sequence, pa.int64()),
            pa.array(np.full(len(numbers), body_bytes, dtype=np.int32)),
            struct_column(made.attributes, attributes),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    return Table(schema, rows, batch)


def struct_column(columns: Mapping[str, pa.Array], attributes: Mapping[str, pa.DataType]) -> pa.Array:
    """The attributes of publications, one struct a row."""
    fields = [pa.field(name, kind) for name, kind in attributes.items()]
    return pa.StructArray.from_arrays([columns[name] for name in attributes], fields=fields)


def text_column(words: Sequence[str], codes: Integers) -> pa.Array:
    """Words by their numbers."""
    return pa.array(words, pa.string()).take(pa.array(codes))


def attribute_rows(publications: pa.Table | pa.RecordBatch) -> list[dict[str, Value]]:
    """The attributes of each publication as a broker takes them: without nulls, and ranges as `Range`.

    A range with equal ends is the same as the number, which brokers match much faster.
    """
    column = publications.column("attributes")
    ranges = frozenset(field.name for field in column.type if pa.types.is_struct(field.type))
    return [
        {
            name: _range_or_number(value) if name in ranges else value
            for name, value in row.items()
            if value is not None
        }
        for row in column.to_pylist()
    ]


def _range_or_number(ends: Mapping[str, int]) -> Value:
    return ends["low"] if ends["low"] == ends["high"] else Range(ends["low"], ends["high"])

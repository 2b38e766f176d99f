"""Which tables does a trace have, and what is in their columns?

Times are whole microseconds: virtual ones of a simulation, or those since 1970 of a real broker. A column may
be null only where it says so. Nothing here needs pyarrow but `schema`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "FILE_SUFFIX",
    "KINDS",
    "KIND_KEY",
    "TABLES",
    "TRACE_VERSION",
    "VERSION_KEY",
    "WRITER_KEY",
    "Column",
    "require_kind",
    "require_pyarrow",
    "schema",
]

# Rises with every change after which an older reader would misunderstand a file.
TRACE_VERSION: Final = 1

FILE_SUFFIX: Final = ".parquet"
VERSION_KEY: Final = "braid.trace.version"
KIND_KEY: Final = "braid.trace.kind"
WRITER_KEY: Final = "braid.trace.writer"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    type: Literal["int16", "int32", "int64", "float64", "string"]
    meaning: str
    nullable: bool = False


_AT = Column("at_us", "int64", "When it happened.")
_PERIOD = Column("period_us", "int64", "How long the period was that ends at at_us.")
_PUBLISHER = Column(
    "publisher", "string", "Whose publication it is, with `#` and the epoch unless the name was made up."
)
_SEQUENCE = Column("sequence", "int64", "The publication's number among those of its publisher.")

TABLES: Final[Mapping[str, tuple[Column, ...]]] = {
    "publication": (
        _AT,
        _PUBLISHER,
        _SEQUENCE,
        Column("broker", "string", "The broker where it entered the network."),
        Column("size_bytes", "int32", "Its share of the frame it came in."),
        Column(
            "expected",
            "int32",
            "How many brokers have a matching local subscriber; only one who sees all of them knows.",
            nullable=True,
        ),
    ),
    "hop": (
        _AT,
        Column("sent_at_us", "int64", "When it was sent, where that is known.", nullable=True),
        _PUBLISHER,
        _SEQUENCE,
        Column("source", "string", "The broker that passed it on."),
        Column("target", "string", "The broker that it came to."),
        Column("hops", "int16", "Links it has crossed, this one included."),
        Column("link", "string", "`primary` or `soft`."),
        Column("size_bytes", "int32", "Its share of the frame it came in."),
    ),
    "delivery": (
        _AT,
        _PUBLISHER,
        _SEQUENCE,
        Column("broker", "string", "The broker that handed it over."),
        Column("subscriber", "string", "The client that it was handed to."),
        Column("hops", "int16", "Links it has crossed on its way; -1: read from a log, which does not say."),
    ),
    "subscription": (
        _AT,
        Column("broker", "string", "The broker whose client it is."),
        Column("subscriber", "string", "The client."),
        Column("key", "string", "The client's own name for this subscription."),
        Column("filter", "string", "The filter in SQL."),
        Column(
            "action",
            "string",
            "`subscribe`, `unsubscribe`; of real brokers `installed`, `refused` too.",
        ),
    ),
    "link_sample": (
        _AT,
        _PERIOD,
        Column("source", "string", "The broker that sent."),
        Column("target", "string", "The broker that it was sent to."),
        Column("link", "string", "`primary` or `soft`."),
        Column("kind", "string", "The kind of message in lower case, such as `publication` or `subscribe`."),
        Column("messages", "int64", "Messages of that kind within the period."),
        Column("bytes", "int64", "Their bytes."),
        Column("queue_bytes", "int64", "Bytes that wait for this link at the end of the period."),
        Column("round_trip_us", "int64", "How long an answer took at last.", nullable=True),
    ),
    "broker_load": (
        _AT,
        _PERIOD,
        Column("broker", "string", "Whose load it is."),
        Column("received", "int64", "Publications that arrived within the period."),
        Column("published", "int64", "Those of them that came from clients."),
        Column("forwarded", "int64", "Publications passed on to neighbours."),
        Column("delivered", "int64", "Publications handed to clients."),
        Column("duplicates", "int64", "Publications that had been here before."),
        Column("dropped", "int64", "Publications dropped for those who were behind."),
        Column("queue_bytes", "int64", "Bytes that wait for clients and neighbours at the end."),
        Column("subscriptions", "int32", "Subscriptions in the table at the end."),
        Column("covering_set", "int32", "Those that a neighbour was told; they cover the others."),
        Column("cpu_us", "int64", "Time of the processor within the period.", nullable=True),
        Column("utilisation", "float64", "Share of the uplink's cap that was used.", nullable=True),
        Column(
            "links",
            "int32",
            "Primary and soft links at the end, opened by either side, where that is known.",
            nullable=True,
        ),
    ),
    "peer_state": (
        _AT,
        Column("peer", "string", "The peer that holds it."),
        Column("leaf", "int32", "Subscriptions that it matches publications with."),
        Column("tree", "int32", "Subscriptions that it passes publications on for."),
    ),
    "reconfiguration": (
        _AT,
        Column("operation", "string", "What is being changed, such as `shift`."),
        Column("operation_id", "string", "Which operation of that kind."),
        Column("phase", "string", "How far it has come."),
        Column("broker", "string", "Who says so."),
        Column("detail", "string", "More, for people."),
    ),
    "fault": (
        _AT,
        Column("fault", "string", "What went wrong or was made to, such as `link lost`."),
        Column("subject", "string", "The broker or link that it happened to."),
        Column("detail", "string", "More, for people."),
    ),
}
KINDS: Final = tuple(TABLES)


def require_kind(kind: str) -> str:
    """The kind, or a `ConfigurationError` that lists those there are."""
    if kind not in TABLES:
        raise ConfigurationError(f"there is no table {kind!r} in a trace; there are {', '.join(KINDS)}")
    return kind


def require_pyarrow(who: str = "traces need") -> None:
    """Raise a `ConfigurationError` that says what to install, unless pyarrow is there."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise ConfigurationError(
            f"{who} the package pyarrow; install it with: pip install 'braid-pubsub[trace]'"
        ) from None


@cache
def schema(kind: str) -> Any:
    """The `pyarrow.Schema` of a table."""
    columns = TABLES[require_kind(kind)]
    require_pyarrow()
    import pyarrow

    types = {
        "int16": pyarrow.int16(),
        "int32": pyarrow.int32(),
        "int64": pyarrow.int64(),
        "float64": pyarrow.float64(),
        "string": pyarrow.string(),
    }
    return pyarrow.schema(
        [pyarrow.field(column.name, types[column.type], nullable=column.nullable) for column in columns]
    )

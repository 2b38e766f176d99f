"""What may be noted in a trace, and which rows should come of it? An oracle in plain loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from braid.protocol import PublicationBatch
from braid.trace.records import TABLES

if TYPE_CHECKING:
    from braid.trace import TraceWriter

__all__ = ["CALLS", "Call", "batch_of", "expected_rows", "perform"]

Call = tuple[str, tuple[Any, ...]]

NAMES = st.sampled_from(["A", "B", "broker-3", "é.1", "a 'quoted' name", ""])
TIMES = st.integers(0, 2**62)
COUNTS = st.integers(0, 2**40)
SMALL = st.integers(0, 2**31 - 1)


def batch_of(
    publisher: str, sequences: list[int], hops: int = 0, record: bytes = b"\x81"
) -> PublicationBatch:
    """A batch whose records nobody reads."""
    made = PublicationBatch.of(
        publisher, sequences, [record * (1 + place % 3) for place in range(len(sequences))]
    )
    made.hops = hops
    return made


BATCHES = st.builds(
    batch_of,
    st.sampled_from(["alice", "bob", "carol.2"]),
    st.one_of(
        st.integers(0, 2**62).map(lambda number: [number]),
        st.tuples(st.integers(0, 2**40), st.integers(1, 40)).map(
            lambda pair: list(range(pair[0], sum(pair)))
        ),
        st.sets(st.integers(0, 2**31), min_size=1, max_size=20).map(sorted),
    ),
    st.integers(0, 255),
)
_PLAIN = {
    "subscription": st.tuples(
        TIMES, NAMES, NAMES, NAMES, st.text(max_size=20), st.sampled_from(["subscribe", "unsubscribe"])
    ),
    "link_sample": st.tuples(
        TIMES, COUNTS, NAMES, NAMES, NAMES, NAMES, COUNTS, COUNTS, COUNTS, st.none() | COUNTS
    ),
    "broker_load": st.tuples(
        TIMES,
        COUNTS,
        NAMES,
        *[COUNTS] * 7,
        SMALL,
        SMALL,
        st.none() | COUNTS,
        st.none() | st.floats(0, 1),
        st.none() | SMALL,
    ),
    "peer_state": st.tuples(TIMES, NAMES, SMALL, SMALL),
    "reconfiguration": st.tuples(TIMES, *[NAMES] * 4, st.text(max_size=20)),
    "fault": st.tuples(TIMES, NAMES, NAMES, st.text(max_size=20)),
}
_BATCHED = {
    "publication": st.tuples(TIMES, NAMES, BATCHES, st.none() | SMALL),
    "hop": st.tuples(TIMES, st.none() | TIMES, NAMES, NAMES, st.sampled_from(["primary", "soft"]), BATCHES),
    "delivery": st.tuples(TIMES, NAMES, NAMES, BATCHES),
}
CALLS: st.SearchStrategy[list[Call]] = st.lists(
    st.one_of([st.tuples(st.just(kind), arguments) for kind, arguments in {**_PLAIN, **_BATCHED}.items()]),
    max_size=40,
)


def perform(writer: TraceWriter, call: Call) -> None:
    kind, arguments = call
    getattr(writer, kind)(*arguments)


def expected_rows(kind: str, calls: list[Call]) -> list[dict[str, Any]]:
    """The rows of one table, in the order of the calls."""
    rows: list[dict[str, Any]] = []
    for called, arguments in calls:
        if called != kind:
            continue
        if kind in _PLAIN:
            rows.append(dict(zip([column.name for column in TABLES[kind]], arguments, strict=True)))
            continue
        batch = next(each for each in arguments if isinstance(each, PublicationBatch))
        share, rest = divmod(batch.size, len(batch))
        for place, sequence in enumerate(batch.sequences.tolist()):
            one = {
                "publisher": batch.publisher,
                "sequence": sequence,
                "hops": batch.hops,
                "size_bytes": share + (place < rest),
            }
            if kind == "publication":
                at_us, broker, _, expected = arguments
                one |= {"at_us": at_us, "broker": broker, "expected": expected}
            elif kind == "hop":
                at_us, sent_at_us, source, target, link, _ = arguments
                one |= {
                    "at_us": at_us,
                    "sent_at_us": sent_at_us,
                    "source": source,
                    "target": target,
                    "link": link,
                }
            else:
                at_us, broker, subscriber, _ = arguments
                one |= {"at_us": at_us, "broker": broker, "subscriber": subscriber}
            rows.append({column.name: one[column.name] for column in TABLES[kind]})
    return rows

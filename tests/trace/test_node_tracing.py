"""What does the driver's side of a trace do when things go wrong, and what does it cost the loop?"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from braid.protocol import Frame
from braid.protocol.effects import Close, Greeted, Send
from braid.protocol.inputs import Closed, Received, Tick
from braid.protocol.messages import (
    PROTOCOL_VERSION,
    Done,
    Failed,
    Hello,
    Ping,
    Pong,
    StoredPublications,
    Subscribe,
)
from braid.runtime.tracing import NodeTracing
from braid.trace import TraceWriter, read_table
from tests.trace.calls import batch_of

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

COUNTERS = ("received", "published", "forwarded", "delivered", "duplicates", "dropped")
HELLO = Frame(0, Hello(PROTOCOL_VERSION, "client", "alice", "i"))


def statistics() -> dict[str, Any]:
    return {
        "counters": dict.fromkeys(COUNTERS, 0),
        "link_waiting_bytes": {"B": 7},
        "client_waiting_bytes": 5,
        "routing": {"subscriptions": 3, "links": {"B": {"subscriptions_told": 2}}},
    }


def tracing(writer: TraceWriter) -> NodeTracing:
    return NodeTracing(writer, "A", statistics)


def test_what_comes_behind_a_greeting_is_noted(tmp_path: Path) -> None:
    trace = tracing(TraceWriter(tmp_path, "A"))
    frames = [HELLO, Frame(1, batch_of("alice", [1])), Frame(2, Subscribe(1, "k", "x > 1"))]
    answer = Send(1, [Frame(1, Done(1, "x > 1 AND y = 2")), Frame(2, batch_of("alice", [1]))])
    trace.turn(Received(1, frames), [Greeted(1, 10, "client", "alice"), answer], 100)
    trace.close(200)
    assert read_table(tmp_path, "publication")["sequence"].to_pylist() == [1]
    assert read_table(tmp_path, "delivery")["subscriber"].to_pylist() == ["alice"]
    found = read_table(tmp_path, "subscription", columns=["filter", "action"]).to_pylist()
    assert found == [
        {"filter": "x > 1", "action": "subscribe"},
        {"filter": "x > 1 AND y = 2", "action": "installed"},
    ]


def test_nothing_is_noted_of_those_who_were_not_let_in(tmp_path: Path) -> None:
    trace = tracing(TraceWriter(tmp_path, "A"))
    trace.turn(Received(1, [HELLO, Frame(1, batch_of("alice", [1]))]), [Close(1, "no")], 100)
    trace.turn(Closed(1, "gone"), [], 150)
    trace.turn(Closed(None, "cannot be reached", "127.0.0.1:1"), [], 160)
    trace.close(200)
    assert read_table(tmp_path, "publication").num_rows == 0


def test_a_refused_subscription_does_not_end_again(tmp_path: Path) -> None:
    trace = tracing(TraceWriter(tmp_path, "A"))
    trace.turn(Received(1, [HELLO]), [Greeted(1, 10, "client", "alice")], 1)
    trace.turn(
        Received(1, [Frame(1, Subscribe(1, "k", "x >"))]), [Send(1, [Frame(1, Failed(1, "f", "?"))])], 2
    )
    trace.turn(Closed(1, "gone"), [], 3)
    trace.close(200)
    assert read_table(tmp_path, "subscription")["action"].to_pylist() == ["subscribe", "refused"]


def test_links_are_told_apart_and_their_round_trips_measured(tmp_path: Path) -> None:
    trace = tracing(TraceWriter(tmp_path, "A"))
    trace.turn(
        Received(1, [Frame(0, Hello(PROTOCOL_VERSION, "broker", "B", "i"))]),
        [Greeted(1, 10, "broker", "B")],
        1_000_000,
    )
    trace.turn(
        Received(2, [Frame(0, Hello(PROTOCOL_VERSION, "soft", "B", "i"))]),
        [Greeted(2, 10, "soft", "B")],
        1_000_000,
    )
    trace.turn(Tick(), [Send(1, [Frame(0, Ping(5))])], 1_000_010)
    trace.turn(Received(1, [Frame(0, Pong(5)), Frame(1, batch_of("p", [1], hops=1))]), [], 1_000_310)
    trace.turn(Received(2, [Frame(1, batch_of("p", [2], hops=2))]), [], 1_000_320)
    trace.close(2_500_000)
    assert read_table(tmp_path, "hop", columns=["sequence", "link", "hops"]).to_pylist() == [
        {"sequence": 1, "link": "primary", "hops": 1},
        {"sequence": 2, "link": "soft", "hops": 2},
    ]
    (sample,) = read_table(tmp_path, "link_sample").to_pylist()
    assert (sample["kind"], sample["round_trip_us"], sample["queue_bytes"]) == ("ping", 300, 7)
    load = read_table(tmp_path, "broker_load").to_pylist()[-1]
    assert (load["queue_bytes"], load["subscriptions"], load["covering_set"]) == (12, 3, 2)


def test_a_peer_notes_what_it_holds_and_what_it_has_sent_since(tmp_path: Path) -> None:
    sent = {"find": 5}
    holds = {"leaf_entries": 7, "tree_entries": 3}
    trace = NodeTracing(
        TraceWriter(tmp_path, "A"), "A", statistics, lambda: {"holds": holds, "datagrams": {"messages": sent}}
    )
    trace.turn(Tick(), [], 1_000_000)
    sent = {"find": 9, "multicast": 2}
    trace.turn(Tick(), [], 2_500_000)
    trace.close(3_000_000)
    state = read_table(tmp_path, "peer_state").to_pylist()[0]
    assert (state["peer"], state["leaf"], state["tree"]) == ("A", 7, 3)
    rows = read_table(tmp_path, "link_sample").to_pylist()
    assert [(row["target"], row["kind"], row["messages"]) for row in rows] == [
        ("", "find", 4),
        ("", "multicast", 2),
    ]


def test_rows_of_a_log_are_deliveries_unless_they_are_replayed(tmp_path: Path) -> None:
    trace = tracing(TraceWriter(tmp_path, "A"))
    trace.turn(Received(1, [HELLO]), [Greeted(1, 10, "client", "alice")], 1)
    rows = [("p", 1, b""), ("p", 2**40, b""), ("q", 5, b""), ("p", 3, b"")]
    trace.turn(Tick(), [Send(1, [Frame(1, StoredPublications("log", 0, rows))])], 2)
    trace.turn(Tick(), [Send(1, [Frame(2, StoredPublications("log", 0, rows, replay=9))])], 3)
    trace.close(200)
    found = read_table(tmp_path, "delivery", columns=["publisher", "sequence"]).to_pylist()
    assert [(row["publisher"], row["sequence"]) for row in found] == [row[:2] for row in rows]


def test_a_thread_that_is_behind_costs_rows_and_a_line_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = threading.Event()
    write = TraceWriter._write

    def slow(writer: TraceWriter, *arguments: Any) -> None:
        go_on.wait()
        write(writer, *arguments)

    monkeypatch.setattr(TraceWriter, "_write", slow)
    writer = TraceWriter(tmp_path, "A", rows_max=10, background=True)
    trace = tracing(writer)
    trace.turn(Received(1, [HELLO]), [Greeted(1, 10, "client", "alice")], 1)
    for number in range(200):
        trace.turn(Received(1, [Frame(number, batch_of("alice", [number]))]), [], number)
    dropped = writer.dropped_rows
    assert 0 < dropped < 200
    with caplog.at_level(logging.WARNING, "braid.trace"):
        trace.turn(Tick(), [], 2_000_000)
    go_on.set()
    trace.close(2_000_001)
    assert [record.message for record in caplog.records] == ["the trace cannot keep up: rows are missing"]
    assert read_table(tmp_path, "publication").num_rows == 200 - dropped


def test_tracing_ends_with_one_line_when_nothing_can_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "publication").write_text("in the way")
    writer = TraceWriter(tmp_path, "A", rows_max=1, background=True)
    trace = tracing(writer)
    trace.turn(Received(1, [HELLO]), [Greeted(1, 10, "client", "alice")], 1)
    with caplog.at_level(logging.WARNING, "braid.trace"):
        for number in range(3):
            trace.turn(Received(1, [Frame(number, batch_of("alice", [number]))]), [], number)
        trace.close(2_000_000)
    assert [record.message for record in caplog.records] == ["tracing has stopped; the broker goes on"]
    assert writer.dropped_rows == 3

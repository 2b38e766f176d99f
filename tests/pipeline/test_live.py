"""The table of what a network does now: the same as the metrics of its whole trace, whatever comes when."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest

import braid
from braid.cli import main
from braid.errors import ConfigurationError
from braid.pipeline.live.job import LiveMetrics, LiveSettings
from braid.pipeline.live.table import LiveTable, read_current
from braid.pipeline.metrics.cost import forwarding_cost
from braid.pipeline.metrics.forwarding import forwarding_over_time
from braid.pipeline.traces import Traces
from braid.protocol import PublicationBatch
from braid.trace import TraceWriter, compact

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

PERIOD_US = 10_000
SETTINGS: dict[str, Any] = {"period_us": PERIOD_US, "late_us": 30_000, "keep_us": 100_000_000}


class Story:
    """What three brokers in a row note, in the order of time: A - B - C, with somebody at B and at C."""

    def __init__(self, seed: int) -> None:
        self.fate = random.Random(seed)
        self.sequence = 0
        self.notes: list[tuple[int, str, Any]] = []

    def publish(self, at_us: int) -> None:
        self.sequence += 1
        at = at_us
        self._note(at, "A", "publication", at, "A")
        if self.fate.random() < 0.1:  # the client was not sure, and sends it again
            self._note(at + 300, "A", "publication", at + 300, "A")
        for hops, (source, target) in enumerate((("A", "B"), ("B", "C")), 1):
            at += self.fate.randrange(200, 4_000)
            self._note(at, target, "hop", at, None, source, target, "primary", hops)
            if self.fate.random() < 0.2:  # after a broken connection
                self._note(at + 900, target, "hop", at + 900, None, source, target, "primary", hops)
            if self.fate.random() < 0.6:
                wait = self.fate.choice([0, 100, 15_000])
                for client in range(self.fate.choice([1, 2])):
                    self._note(at + wait, target, "delivery", at + wait, target, f"{target}{client}", hops)

    def load(self, at_us: int) -> None:
        for broker in "ABC":
            self._note(at_us, broker, "broker_load", at_us, broker)
            self._note(at_us, broker, "link_sample", at_us, broker)

    def _note(self, at_us: int, writer: str, kind: str, *what: Any) -> None:
        self.notes.append((at_us, writer, (kind, self.sequence, what)))

    def written(self, folder: Path, notes: list[tuple[int, str, Any]]) -> None:
        """Each broker writes a file of each table."""
        for broker in "ABC":
            with TraceWriter(folder, broker) as writer:
                for _, own, (kind, sequence, what) in notes:
                    if own != broker:
                        continue
                    batch = PublicationBatch.of("p", [sequence], [b"some bytes"])
                    if kind == "publication":
                        writer.publication(*what, batch)
                    elif kind == "hop":
                        at_us, sent, source, target, link, hops = what
                        batch.hops = hops
                        writer.hop(at_us, sent, source, target, link, batch)
                    elif kind == "delivery":
                        batch.hops = what[-1]
                        writer.delivery(*what[:-1], batch)
                    elif kind == "broker_load":
                        writer.broker_load(what[0], PERIOD_US, broker, 1, 1, 1, 1, 0, 7, 100, 1, 1, 5)
                    else:
                        writer.link_sample(
                            what[0], PERIOD_US, broker, "B" if broker != "B" else "C", "primary", "ping", 2,
                            20, 30, 40,
                        )  # fmt: skip


def counted(rows: list[dict[str, Any]], name: str) -> dict[int, float]:
    found: dict[int, float] = {}
    for row in rows:
        found[row["at_us"]] = found.get(row["at_us"], 0) + (row[name] or 0)
    return {at: count for at, count in found.items() if count}


@pytest.mark.parametrize("seed", range(3))
def test_bit_by_bit_it_is_what_the_metrics_say_of_the_whole(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    story = Story(seed)
    for at_us in range(1_000_000, 1_200_000, 1_700):
        story.publish(at_us)
    for at_us in range(1_000_000, 1_220_000, PERIOD_US):
        story.load(at_us)
    story.notes.sort(key=lambda note: note[0])
    traces, folder = tmp_path / "traces", tmp_path / "live"
    parts = 4
    for part in range(parts):
        notes = story.notes[len(story.notes) * part // parts : len(story.notes) * (part + 1) // parts]
        story.written(traces, notes)
        if part == 1:
            compact(traces)
        # A job of its own each time: it was ended, or killed, and started again.
        LiveMetrics(spark, traces, folder, LiveSettings(**SETTINGS)).start().awaitTermination()
    table = LiveTable(folder)
    brokers, links = table.rows("brokers"), table.rows("links")
    whole = Traces(spark, traces)
    expected = [row.asDict() for row in
                forwarding_over_time(whole.hop, whole.delivery, period_us=PERIOD_US).collect()]  # fmt: skip
    for name in ("sent", "deliveries", "pure_forwarders", "repeats", "local_deliveries", "links"):
        assert counted(brokers, name) == {row["at_us"]: row[name] for row in expected if row[name]}, name
    # Delays, by hand.
    began: dict[int, int] = {}
    delays: dict[tuple[int, str], list[int]] = {}
    first: dict[tuple[int, str], int] = {}
    for at_us, broker, (kind, sequence, _) in story.notes:
        if kind == "publication":
            began[sequence] = min(at_us, began.get(sequence, at_us))
        elif kind == "delivery":
            first[sequence, broker] = min(at_us, first.get((sequence, broker), at_us))
    for (sequence, broker), at_us in first.items():
        delays.setdefault((at_us - at_us % PERIOD_US, broker), []).append(at_us - began[sequence])
    assert {
        (row["at_us"], row["broker"]): (row["mean_delay_us"], row["delay_us_max"])
        for row in brokers
        if row["mean_delay_us"] is not None
    } == {place: (sum(each) / len(each), max(each)) for place, each in delays.items()}
    costs = forwarding_cost(whole.publication, whole.hop).collect()[0]
    assert sum(row["processing_cost"] for row in brokers) == costs["processing_cost"]
    assert sum(row["communication_cost"] for row in links) == costs["communication_cost"]
    samples = sum(kind == "broker_load" for _, _, (kind, _, _) in story.notes)
    assert sum(row["dropped"] for row in brokers) == 7 * samples
    assert sum(row["messages"] for row in links) == 2 * samples
    current = read_current(folder)
    assert current is not None
    assert {row["broker"] for row in current["brokers"]} == {"A", "B", "C"}
    newest = max(row["at_us"] for row in brokers)
    assert all(row["at_us"] < newest and row["dropped"] == 7 for row in current["brokers"])
    assert {(row["source"], row["target"]) for row in current["links"]} >= {("A", "B"), ("B", "C")}


def test_a_batch_that_is_repeated_changes_nothing_and_old_rows_go(
    spark: SparkSession, tmp_path: Path
) -> None:
    story = Story(1)
    for at_us in range(1_000_000, 1_300_000, 5_000):
        story.publish(at_us)
    traces, folder = tmp_path / "traces", tmp_path / "live"
    story.written(traces, [note for note in story.notes if note[0] < 1_200_000])
    (traces / "hop" / "A-000099.parquet").write_bytes(b"no Parquet file")

    def run(**settings: Any) -> list[dict[str, Any]]:
        job = LiveMetrics(spark, traces, folder, LiveSettings(**{**SETTINGS, **settings}))
        job.start().awaitTermination()
        return job.table.rows("brokers")

    before = run()
    assert before
    # A clock that is centuries ahead makes nothing else old, and does not come in.
    with TraceWriter(traces, "Z") as writer:
        writer.broker_load(2**60, 1, "Z", 1, 1, 1, 1, 0, 7, 100, 1, 1, 5)
    assert run() == before
    shutil.rmtree(folder / ".checkpoint")  # all of it comes again
    (folder / "brokers" / ".1.parquet.tmp").write_bytes(b"half")
    assert run() == before
    assert not [*(folder / "brokers").glob(".*.tmp")]
    story.written(traces, [note for note in story.notes if note[0] >= 1_200_000])
    kept = run(keep_us=60_000)
    newest = max(row["at_us"] for row in kept)
    assert newest >= 1_290_000
    assert all(row["at_us"] >= newest - 80_000 for row in kept)


def test_before_there_is_a_trace_nothing_is_current(spark: SparkSession, tmp_path: Path) -> None:
    LiveMetrics(spark, tmp_path / "traces", tmp_path / "live").start().awaitTermination()
    assert read_current(tmp_path / "live") is None
    (tmp_path / "live" / "current.json").write_text("[]")
    with pytest.raises(ConfigurationError, match="is not what this version"):
        read_current(tmp_path / "live")
    with pytest.raises(ConfigurationError, match="longer than late_us"):
        LiveSettings(keep_us=1)


@pytest.fixture
def traced(tmp_path: Path) -> Path:
    """The trace of two real brokers with a publication from one to a subscriber at the other."""
    traces = tmp_path / "traces"
    settings: dict[str, Any] = {"listen": "127.0.0.1:0", "trace": traces}
    with (
        braid.serve_sync(braid.ServerSettings.of(broker_id="A", **settings)) as one,
        braid.serve_sync(
            braid.ServerSettings.of(broker_id="B", neighbours=[one.address], **settings)
        ) as other,
        braid.connect_sync(one.address) as publisher,
        braid.connect_sync(other.address) as subscriber,
    ):
        heard = subscriber.subscribe("n >= 0")
        for n in range(50):
            publisher.publish({"n": n}, delivery="acknowledged").wait()
        assert [heard.get(timeout_s=10)["n"] for _ in range(50)] == [*range(50)]
    return traces


@pytest.mark.net
def test_the_command_and_real_brokers(
    spark: SparkSession, traced: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", "live", str(traced), "--to", str(tmp_path / "live"), "--period", "1ms", "--once"])
    assert not ended.value.code, capsys.readouterr().err
    rows = LiveTable(tmp_path / "live").rows("brokers")
    assert sum(row["deliveries"] for row in rows if row["broker"] == "B") == 50
    assert sum(row["published"] for row in rows if row["broker"] == "A") == 50
    links = LiveTable(tmp_path / "live").rows("links")
    assert sum(row["publications"] for row in links if (row["source"], row["target"]) == ("A", "B")) == 50

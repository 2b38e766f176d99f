"""Do the traces of real brokers say what their clients saw?"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest

import braid
from braid.trace import inspect, read_table
from braid.trace.checks import check_deliveries
from tests.cli.broker_process import BRAID, BrokerProcess, running_broker
from tests.cli.broker_process import braid as command

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from braid.language.publication import Publication

pytestmark = pytest.mark.net

PUBLICATIONS = 200
WAIT_S_MAX = 30.0


def configured(tmp_path: Path, **settings: object) -> tuple[str, str]:
    """Options for a broker that makes files much sooner than by default."""
    lines = [f"{name} = {value}" for name, value in settings.items()]
    path = tmp_path / "broker.toml"
    path.write_text("\n".join(["[trace]", *lines, ""]))
    return "--config", str(path)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def rows(directory: Path, kind: str, *columns: str) -> list[tuple[Any, ...]]:
    table = read_table(directory, kind, columns=columns)
    return list(zip(*(table[name].to_pylist() for name in columns), strict=True))


def seen(received: list[Publication]) -> list[tuple[str, int]]:
    return [(each.publisher, each.sequence) for each in received]


def test_a_trace_of_two_brokers_is_what_their_clients_saw(tmp_path: Path) -> None:
    directory = tmp_path / "trace"
    where = ("--trace", str(directory))
    with running_broker("A", *where) as a, running_broker("B", *where, "--neighbor", a.address) as b:
        b.wait_for("ready")
        with (
            braid.connect_sync(a.address, name="publisher") as publisher,
            braid.connect_sync(a.address, name="near") as near,
            braid.connect_sync(b.address, name="far") as far,
        ):
            low, high = near.subscribe("x < 50"), far.subscribe("x >= 50")
            late = far.subscribe("x >= 190", when_full="drop_oldest")
            for number in range(PUBLICATIONS):
                publisher.publish({"x": number})
            received = {
                "near": [next(low) for _ in range(50)],
                "far": [next(high) for _ in range(150)],
                "far/drop_oldest": [next(late) for _ in range(10)],
            }
            high.close()
        assert a.stop() == 0
    assert all(report.ok for report in inspect(directory, verify=True))

    attributes = {
        (each.publisher, each.sequence): dict(each.attributes)
        for each in (*received["near"], *received["far"])
    }
    published = rows(directory, "publication", "publisher", "sequence")
    assert sorted(published) == sorted(attributes)
    assert {broker for (broker,) in rows(directory, "publication", "broker")} == {"A"}
    for subscriber, publications in received.items():
        found = rows(directory, "delivery", "subscriber", "publisher", "sequence", "broker", "hops")
        mine = [row for row in found if row[0] == subscriber]
        assert [row[1:3] for row in mine] == seen(publications)
        assert {row[3:] for row in mine} == {("A", 0) if subscriber == "near" else ("B", 1)}
    hops = rows(directory, "hop", "publisher", "sequence", "source", "target", "hops", "link")
    assert [row[:2] for row in hops] == seen(received["far"])
    assert {row[2:] for row in hops} == {("A", "B", 1, "primary")}

    # A client that goes ends what it has not ended itself.
    actions = rows(directory, "subscription", "subscriber", "filter", "action")
    for subscriber, text in (("near", "x < 50"), ("far", "x >= 50"), ("far/drop_oldest", "x >= 190")):
        mine = [action for name, _, action in actions if name == subscriber]
        assert mine == ["subscribe", "installed", "unsubscribe"]
        assert {written for name, written, _ in actions if name == subscriber} == {text}

    # All of it at once, with every filter evaluated: nobody waits a second here, so nothing may settle.
    verdict = check_deliveries([directory], attributes_of=lambda *what: attributes[what], settle_us=0)
    assert verdict.right, verdict.report()
    assert (verdict.published, verdict.delivered, verdict.judged) == (PUBLICATIONS, 210, PUBLICATIONS)

    # What was counted within periods adds up to what there was.
    load = read_table(directory, "broker_load").to_pylist()
    by_broker = {
        name: {
            column: sum(row[column] for row in load if row["broker"] == name)
            for column in ("published", "received", "forwarded", "delivered", "duplicates", "dropped")
        }
        for name in ("A", "B")
    }
    nothing = {"duplicates": 0, "dropped": 0}
    assert by_broker == {
        "A": {"published": 200, "received": 200, "forwarded": 150, "delivered": 50} | nothing,
        "B": {"published": 0, "received": 150, "forwarded": 0, "delivered": 160} | nothing,
    }
    assert max(row["subscriptions"] for row in load if row["broker"] == "B") <= 2
    assert all(row["cpu_us"] > 0 for row in load)
    sample = read_table(directory, "link_sample").to_pylist()
    sent = [row for row in sample if row["kind"] == "publication"]
    assert {(row["source"], row["target"]) for row in sent} == {("A", "B")}
    assert sum(row["messages"] for row in sent) == 150
    assert sum(row["bytes"] for row in sent) == sum(size for (size,) in rows(directory, "hop", "size_bytes"))


def test_a_lost_message_is_found_by_the_checker(tmp_path: Path) -> None:
    """The same check with one file of the truth taken away: it must not be content then."""
    directory = tmp_path / "trace"
    with (
        running_broker("A", "--trace", str(directory)) as a,
        braid.connect_sync(a.address) as publisher,
        braid.connect_sync(a.address) as subscriber,
    ):
        subscription = subscriber.subscribe("x >= 0")
        for number in range(10):
            publisher.publish({"x": number})
        known = {
            (each.publisher, each.sequence): each.attributes
            for each in (next(subscription) for _ in range(10))
        }
    (file,) = (directory / "delivery").iterdir()
    file.unlink()
    verdict = check_deliveries([directory], attributes_of=lambda *what: known[what], settle_us=0)
    assert verdict.lost == 10


def test_a_killed_broker_leaves_what_was_written(tmp_path: Path) -> None:
    directory = tmp_path / "trace"
    options = (*configured(tmp_path, rows_max=10), "--trace", str(directory))
    with running_broker("A", *options) as a, braid.connect_sync(a.address, name="p") as publisher:
        for number in range(10 * PUBLICATIONS):
            publisher.publish({"x": number})
        wait_until(lambda: (directory / "publication").is_dir() and bool(inspect(directory)))
        a.process.kill()
        a.process.wait()
    assert all(report.ok for report in inspect(directory, verify=True))
    found = [sequence for (sequence,) in rows(directory, "publication", "sequence")]
    assert found
    assert sorted(found) == found

    # Its next life goes on behind that.
    files = {report.path.name for report in inspect(directory)}
    with running_broker("A", *options) as again, braid.connect_sync(again.address, name="p") as publisher:
        publisher.publish({"x": 1})
    assert list(directory.rglob("*.tmp")) == []
    assert files < {report.path.name for report in inspect(directory, verify=True) if report.ok}


def test_a_link_that_breaks_and_comes_back_is_a_fault(tmp_path: Path) -> None:
    directory = tmp_path / "trace"
    with running_broker("A", "--trace", str(directory)) as a:
        with running_broker("B", "--neighbor", a.address) as b:
            b.wait_for("link up")
            b.process.kill()
            b.process.wait()
            a.wait_for("connection closed.*party=B")
        # It keeps nothing on disk, so it is known by where it is.
        place = ("--listen", b.address.removeprefix("braid://"))
        with running_broker("B", "--neighbor", a.address, *place) as b:
            b.wait_for("link up")
    faults = rows(directory, "fault", "fault", "subject")
    assert faults[:2] == [("link lost", "A B"), ("link regained", "A B")]


def test_a_durable_subscription_is_a_subscriber_of_its_own(tmp_path: Path) -> None:
    directory = tmp_path / "trace"
    where = ("--trace", str(directory), "--data-dir", str(tmp_path / "data"))
    with running_broker("A", *where) as a, braid.connect_sync(a.address) as client:
        reader = client.subscribe("x > 2", durable="orders")
        for number in range(6):
            client.publish({"x": number})
        for _ in range(3):
            reader.acknowledge(next(reader))
    assert {row[0] for row in rows(directory, "delivery", "subscriber", "hops")} == {"durable:orders"}
    assert [row[0] for row in rows(directory, "delivery", "sequence")] == [4, 5, 6]
    actions = rows(directory, "subscription", "subscriber", "key", "filter", "action")
    assert actions[:2] == [
        ("durable:orders", "orders", "x > 2", "subscribe"),
        ("durable:orders", "orders", "x > 2", "installed"),
    ]
    verdict = check_deliveries([directory])
    assert verdict.right, verdict.report()


def test_a_folder_that_cannot_be_written_to_is_said_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    answer = command(
        "broker", "--id", "A", "--listen", "127.0.0.1:0", "--trace", str(tmp_path / "file" / "t")
    )
    assert answer.returncode == 2
    assert "no trace can be written to" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_broker_goes_on_when_its_trace_cannot(tmp_path: Path) -> None:
    directory = tmp_path / "trace"
    options = (*configured(tmp_path, age_s_max=0.01), "--trace", str(directory))
    directory.mkdir()
    (directory / "publication").write_text("in the way")
    with running_broker("A", *options) as a, braid.connect_sync(a.address) as client:
        subscription = client.subscribe("x >= 0")
        number = 0
        while not any("tracing has stopped" in line for line in a.lines):
            client.publish({"x": number})
            assert next(subscription).attributes["x"] == number
            number += 1
        client.publish({"x": -1})
        client.publish({"x": number})
        assert next(subscription).attributes["x"] == number
    assert sum("tracing has stopped" in line for line in a.lines) == 1
    assert (
        "Not a directory" in a.wait_for("tracing has stopped.*").string
        or "exists" in a.wait_for("tracing has stopped.*").string
    )


def test_pyarrow_is_loaded_only_for_a_trace(tmp_path: Path) -> None:
    assert BRAID
    with running_broker("A") as a:
        maps = _maps(a)
    assert "pyarrow" not in maps


def _maps(broker: BrokerProcess) -> str:
    path = f"/proc/{broker.process.pid}/maps"
    if not os.path.exists(path):
        pytest.skip("needs /proc to see what a process has loaded")
    with open(path, encoding="utf-8") as file:
        return file.read()

"""Does the checker find every mistake that was made, and none that was not?"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.trace import TraceWriter
from braid.trace.checks import SETTLE_US, Verdict, check_deliveries
from tests.trace.calls import batch_of

LONG_US = 10 * SETTLE_US
FILTERS = ("x > 10", "x <= 10", "TRUE")


def attributes_of(publisher: str, sequence: int) -> dict[str, Any]:
    """What a publication says follows from its number."""
    return {"x": sequence * (3 if publisher == "alice" else 5) % 21}


class Run:
    """A trace of a made-up run: one subscriber per filter at its own broker, all of them from the start."""

    def __init__(self, directory: Path, filters: tuple[str, ...] = FILTERS) -> None:
        self.directory = directory
        self.filters = filters
        self.writer = TraceWriter(directory, "all")
        for place, text in enumerate(filters):
            self.writer.subscription(0, f"B{place}", f"c{place}", "1", text, "subscribe")

    def wanted(self, what: tuple[str, int]) -> list[int]:
        x = attributes_of(*what)["x"]
        return [
            place
            for place, text in enumerate(self.filters)
            if {"x > 10": x > 10, "x <= 10": x <= 10, "TRUE": True}[text]
        ]

    def publish(self, what: tuple[str, int], at_us: int, expected: int | None = None) -> None:
        self.writer.publication(at_us, "B0", batch_of(what[0], [what[1]]), expected)

    def deliver(self, what: tuple[str, int], place: int, at_us: int) -> None:
        self.writer.delivery(at_us, f"B{place}", f"c{place}", batch_of(what[0], [what[1]]))

    def verdict(self, **options: Any) -> Verdict:
        self.writer.close()
        return check_deliveries([self.directory], **options)


def counts(verdict: Verdict) -> dict[str, int]:
    kinds = ("lost", "doubled", "misordered", "uninvited", "unknown")
    return {kind: getattr(verdict, kind) for kind in kinds if getattr(verdict, kind)}


NUMBERS = st.lists(
    st.tuples(st.sampled_from(["alice", "bob"]), st.integers(1, 30)), min_size=1, max_size=20, unique=True
).map(sorted)


@settings(max_examples=50)
@given(what=NUMBERS, data=st.data())
def test_a_right_run_is_right_and_each_mistake_is_counted(
    what: list[tuple[str, int]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as name:
        run = Run(Path(name))
        deliveries = [(each, place) for each in what for place in run.wanted(each)]
        others = [(each, place) for each in what for place in range(3) if place not in run.wanted(each)]
        lost = data.draw(st.sets(st.sampled_from(deliveries)))
        doubled = data.draw(
            st.sets(st.sampled_from([each for each in deliveries if each not in lost] or [None]))
        )
        uninvited = data.draw(st.sets(st.sampled_from(others))) if others else set()
        for each in what:
            run.publish(each, LONG_US)
        for each, place in deliveries:
            if (each, place) not in lost:
                run.deliver(each, place, LONG_US + 1)
                if (each, place) in doubled:
                    run.deliver(each, place, LONG_US + 2)
        # The uninvited ones come to those who get nothing else of that number, so in no order yet.
        for each, place in sorted(uninvited):
            run.deliver(each, place, LONG_US + 3)
        found = run.verdict(attributes_of=attributes_of, ordered=False)
        made = {"lost": len(lost), "doubled": len(doubled - {None}), "uninvited": len(uninvited)}
        assert counts(found) == {kind: count for kind, count in made.items() if count}
        assert found.right == (not any(made.values()))
        assert (found.published, found.judged) == (len(what), len(what))
        assert bool(found.report()) == (not found.right)


def test_order_is_that_of_each_publisher(tmp_path: Path) -> None:
    run = Run(tmp_path, ("TRUE",))
    for publisher, sequence in (("alice", 1), ("bob", 9), ("alice", 2), ("bob", 3), ("bob", 10)):
        run.publish((publisher, sequence), LONG_US)
        run.deliver((publisher, sequence), 0, LONG_US)
    verdict = run.verdict(attributes_of=attributes_of)
    assert counts(verdict) == {"misordered": 1}
    assert verdict.report() == ["misordered: bob/3 to c0 at B0 after 9"]


def test_without_attributes_only_the_tables_speak(tmp_path: Path) -> None:
    run = Run(tmp_path, ("x > 10",))
    run.publish(("alice", 1), LONG_US)
    run.deliver(("alice", 1), 0, LONG_US)  # x is 3, but that is not in a trace
    run.deliver(("alice", 2), 0, LONG_US)
    run.deliver(("alice", 1), 7, LONG_US)
    verdict = run.verdict()
    assert counts(verdict) == {"unknown": 1, "uninvited": 1}
    assert verdict.judged == 0


def test_what_somebody_expected_is_missed_without_attributes(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.publish(("alice", 1), LONG_US, expected=2)
    run.deliver(("alice", 1), 1, LONG_US)
    verdict = run.verdict()
    assert counts(verdict) == {"lost": 1}
    assert "1 of 2 brokers" in verdict.report()[0]


@pytest.mark.parametrize(
    ("installed_us", "ended_us", "lost"),
    [
        (LONG_US - SETTLE_US, None, 1),
        (LONG_US - SETTLE_US + 1, None, 0),
        (0, LONG_US + SETTLE_US, 1),
        (0, LONG_US + SETTLE_US - 1, 0),
    ],
)
def test_nothing_is_lost_to_who_comes_or_goes_just_then(
    tmp_path: Path, installed_us: int, ended_us: int | None, lost: int
) -> None:
    run = Run(tmp_path, ())
    run.writer.subscription(0, "B", "c", "1", "x >= 0", "subscribe")
    run.writer.subscription(installed_us, "B", "c", "1", "x >= 0 AND TRUE", "installed")
    if ended_us is not None:
        run.writer.subscription(ended_us, "B", "c", "1", "x >= 0", "unsubscribe")
    run.publish(("alice", 1), LONG_US)
    assert run.verdict(attributes_of=attributes_of).lost == lost


def test_a_refused_subscription_invites_nobody(tmp_path: Path) -> None:
    run = Run(tmp_path, ())
    run.writer.subscription(0, "B0", "c0", "1", "TRUE", "subscribe")
    run.writer.subscription(1, "B0", "c0", "1", "TRUE", "refused")
    run.publish(("alice", 1), LONG_US)
    run.deliver(("alice", 1), 0, LONG_US)
    assert counts(run.verdict(attributes_of=attributes_of)) == {"uninvited": 1}


def test_a_log_may_be_read_late_and_again(tmp_path: Path) -> None:
    run = Run(tmp_path, ())
    run.writer.subscription(0, "B", "durable:orders", "orders", "", "subscribe")
    run.writer.subscription(0, "B", "durable:orders", "orders", "x >= 0", "installed")
    for number in (1, 2, 3):
        run.publish(("alice", number), LONG_US)
    for number in (1, 2, 1, 2):
        run.writer.delivery(2 * LONG_US, "B", "durable:orders", batch_of("alice", [number]))
    verdict = run.verdict(attributes_of=attributes_of)
    assert verdict.right, verdict.report()
    assert verdict.repeated == 2


def test_what_enters_twice_is_one_publication_and_bad_files_are_named(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for _ in range(2):
        run.publish(("alice", 1), LONG_US)
    for place in run.wanted(("alice", 1)):
        run.deliver(("alice", 1), place, LONG_US)
    run.writer.close()
    (tmp_path / "delivery" / "zz.parquet").write_bytes(b"")
    verdict = run.verdict(attributes_of=attributes_of)
    assert verdict.right
    assert verdict.published == 1
    assert [report.path.name for report in verdict.bad_files] == ["zz.parquet"]

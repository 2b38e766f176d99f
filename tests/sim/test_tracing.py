"""Does the trace of a simulation say what happened?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from braid.adaptation import SoftLinkSettings
from braid.sim import NodeModel, Station, World
from braid.trace import TraceWriter, read_table
from tests.sim.brokers import add_tree

if TYPE_CHECKING:
    from pathlib import Path

LINE = {"A": None, "B": "A", "C": "B"}


def run(directory: Path, *, checkers: bool = True, expected: bool = True, codec: bool = False) -> World:
    """Three publications over a line; one fault."""
    with TraceWriter(directory, "sim") as trace:
        world = World(1, trace=trace, checkers=checkers, expected=expected, codec=codec)
        node = NodeModel(cost_us={"publication": 10}, uplink_messages_per_s=1000)
        add_tree(world, LINE, node=node)
        readers = [("near", "A"), ("far", "C"), ("farther", "C")]
        for name, broker in readers:
            world.attach(Station(name, broker, subscriptions=[("1", f"price > {len(name)}")]))
        some = [(2_500_000 + 1000 * price, {"price": price}) for price in (1, 6, 9)]
        world.attach(Station("writer", "A", publications=some, advertise=["price >= 0"]))
        world.at(2_900_000, lambda: world.delay("A", "B", 0))
        world.at(2_950_000, lambda: world.station("far").unsubscribe("1"))
        world.run_until_quiet()
        world.close()
    return world


def rows(directory: Path, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read_table(directory, kind).to_pylist()
    return found


@pytest.mark.parametrize("checkers", [False, True])
@pytest.mark.parametrize("codec", [False, True])
def test_every_table_is_written(tmp_path: Path, checkers: bool, codec: bool) -> None:
    world = run(tmp_path, checkers=checkers, codec=codec)
    assert world.checkers.report() == []
    publications = rows(tmp_path, "publication")
    assert [(each["at_us"], each["sequence"], each["expected"]) for each in publications] == [
        (2_501_000, 1, 0),
        (2_506_000, 2, 2),
        (2_509_000, 3, 2),
    ]
    hops = rows(tmp_path, "hop")
    assert [(each["sequence"], each["source"], each["target"], each["hops"]) for each in hops] == [
        (2, "A", "B", 1),
        (2, "B", "C", 2),
        (3, "A", "B", 1),
        (3, "B", "C", 2),
    ]
    assert all(each["at_us"] - each["sent_at_us"] == 1000 for each in hops)
    deliveries = rows(tmp_path, "delivery")
    assert sorted((each["sequence"], each["subscriber"], each["hops"]) for each in deliveries) == [
        (2, "far", 2),
        (2, "near", 0),
        (3, "far", 2),
        (3, "farther", 2),
        (3, "near", 0),
    ]
    subscriptions = rows(tmp_path, "subscription")
    assert [(each["subscriber"], each["action"]) for each in subscriptions] == [
        ("near", "subscribe"),
        ("far", "subscribe"),
        ("farther", "subscribe"),
        ("far", "unsubscribe"),
    ]
    assert [(each["fault"], each["subject"]) for each in rows(tmp_path, "fault")] == [("delay", "A - B")]


def test_links_and_nodes_are_sampled(tmp_path: Path) -> None:
    run(tmp_path)
    samples = rows(tmp_path, "link_sample")
    crossed = [each for each in samples if each["kind"] == "publication"]
    assert [(each["source"], each["target"], each["messages"]) for each in crossed] == [
        ("A", "B", 2),
        ("B", "C", 2),
    ]
    assert all(each["round_trip_us"] == 2000 and each["bytes"] > 0 for each in samples)
    assert {"subscribe", "advertise", "hello", "acknowledgement"} <= {each["kind"] for each in samples}
    loads = rows(tmp_path, "broker_load")
    totals = {
        name: (
            sum(each["received"] for each in loads if each["broker"] == name),
            sum(each["forwarded"] for each in loads if each["broker"] == name),
            sum(each["delivered"] for each in loads if each["broker"] == name),
            sum(each["cpu_us"] for each in loads if each["broker"] == name),
        )
        for name in "ABC"
    }
    assert totals == {"A": (3, 2, 2, 30), "B": (2, 2, 0, 20), "C": (2, 0, 3, 20)}
    used = sum(each["utilisation"] * each["period_us"] for each in loads if each["broker"] == "A")
    assert used == pytest.approx(2000)


def test_a_soft_link_is_told_from_a_primary_one(tmp_path: Path) -> None:
    with TraceWriter(tmp_path, "sim") as trace:
        world = World(1, trace=trace, checkers=False)
        soft_links = SoftLinkSettings(fanout=5, review_us=150_000, rest_reviews=1)
        add_tree(world, {**LINE, "D": "C"}, strategy="S2", soft_links=soft_links)
        for place in "BD":
            world.attach(Station(f"reader {place}", place, subscriptions=[("1", "price > 0")]))
        many = [(3_000_000 + 10_000 * number, {"price": 1 + number}) for number in range(200)]
        world.attach(Station("writer", "A", publications=many, advertise=["price >= 0"]))
        world.run_until(6_000_000)
        world.close()
    primary = {("A", "B"), ("B", "C"), ("C", "D")}
    for kind in ("hop", "link_sample"):
        crossed = [each for each in rows(tmp_path, kind) if each.get("kind", "publication") == "publication"]
        assert {each["link"] for each in crossed} == {"primary", "soft"}
        for each in crossed:
            near = (each["source"], each["target"]) in primary
            assert each["link"] == ("primary" if near else "soft")


def test_what_is_expected_need_not_be_known(tmp_path: Path) -> None:
    run(tmp_path, checkers=False, expected=False)
    assert [each["expected"] for each in rows(tmp_path, "publication")] == [None] * 3

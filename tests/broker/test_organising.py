"""Can a neighbour hurt more than itself by what it says about a better tree, and does anything pile up?"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from braid.adaptation.topology import InterestFilter, TopologySettings, TrafficWindow, publication_hashes
from braid.broker.organising import _publications
from braid.protocol import Frame, PublicationBatch, encode_record
from braid.protocol.inputs import Writable
from braid.protocol.messages import (
    Ask,
    Done,
    Message,
    Refused,
    StoredPublications,
    SyncBegin,
    TablesComplete,
)
from braid.protocol.organising import LinkRequest, PathStep, RequestStep, TopologyNews
from tests.broker.test_mesh import subscribed
from tests.broker.test_mesh_hostile import Stranger
from tests.broker.wire import Network

CI = TopologySettings(policy="ci", interval_us=200_000)
EMPTY = InterestFilter.of(publication_hashes("p", [])).encoded()


def scene(topology: TopologySettings = CI) -> tuple[Network, Stranger]:
    """Three brokers in a row, and a stranger beside the middle one."""
    network = Network()
    neighbours: tuple[str, ...] = ()
    for name in "ABC":
        network.start(name, neighbours=neighbours, topology=topology)
        network.run(us=300_000)
        neighbours = (name,)
    stranger = Stranger(network, "Z", "B")
    network.run(us=10_000)
    stranger.ask(SyncBegin())
    stranger.ask(TablesComplete())
    network.run(us=500_000)
    return network, stranger


def say(network: Network, stranger: Stranger, message: Message) -> None:
    network.from_client(stranger, [Frame(0, message)])
    network.run(us=10_000)


def step(name: str, **more: Any) -> PathStep:
    return PathStep(
        name, more.get("processing", 1.0), more.get("link_cost", 1.0), 0.0, more.get("traffic", b"")
    )


@pytest.mark.parametrize(
    "message",
    [
        TopologyNews(1, 3, EMPTY, ()),
        TopologyNews(1, 3, EMPTY, (step("Q"),)),
        TopologyNews(1, 99, EMPTY, (step("Z"),)),
        TopologyNews(1, 3, EMPTY, (*(step(f"Q{each}") for each in range(5)), step("Z"))),
        TopologyNews(1, 3, EMPTY, (step("Z", processing=-1.0),)),
        TopologyNews(1, 3, EMPTY, (step("Z", link_cost=float("inf")),)),
        TopologyNews(1, 3, EMPTY, (step("x" * 65), step("Z"))),
        TopologyNews(1, 3, EMPTY, (step("Z", traffic=b"1234" * 1_000),)),
        TopologyNews(1, 3, EMPTY, (step("Z"),), "x" * 300),
        TopologyNews(1, 3, b"", (step("Z"),)),
        TopologyNews(1, 3, b"\x00\x05\xff\xff\xff\xff", (step("Z"),)),
        LinkRequest(1, (), ()),
        LinkRequest(1, (RequestStep("Z", 1.0), RequestStep("B", 1.0)), (0.0, 0.0)),
        LinkRequest(1, tuple(RequestStep(name, 1.0) for name in "ZAB"), (0.0,) * 3),
        LinkRequest(1, tuple(RequestStep(name, 1.0) for name in "ZBA"), (0.0,) * 2),
        LinkRequest(1, tuple(RequestStep(name, 1.0) for name in "ZBA"), (0.0, float("nan"), 0.0)),
        LinkRequest(1, tuple(RequestStep(name, -1.0) for name in "ZBA"), (0.0,) * 3),
        LinkRequest(1, tuple(RequestStep(name, 1.0) for name in "ZBAQWERT"), (0.0,) * 8),
    ],
)
def test_whoever_breaks_the_rules_loses_its_own_link_only(message: Message) -> None:
    network, stranger = scene()
    assert stranger.open
    say(network, stranger, message)
    assert not stranger.open
    assert [refused.code for refused in stranger.answers(Refused)] == ["protocol"]
    for name, others in (("A", "B"), ("B", "AC"), ("C", "B")):
        links = network.cores[name]._links.links
        assert all(links[other].connection is not None for other in others)


def test_old_news_and_loops_are_not_passed_on() -> None:
    network, stranger = scene()
    organiser = network.cores["A"]._topology.organising.organiser
    say(network, stranger, TopologyNews(5, 3, EMPTY, (step("Z"),)))
    assert organiser._known["Z"].number == 5
    say(network, stranger, TopologyNews(4, 3, EMPTY, (step("Z"),)))
    assert organiser._known["Z"].number == 5
    # A path that has been here before is none.
    say(network, stranger, TopologyNews(9, 3, EMPTY, (step("Q"), step("B"), step("Z"))))
    assert "Q" not in organiser.knows
    assert stranger.open


def test_a_lie_about_costs_makes_no_link() -> None:
    network, stranger = scene()
    for number in range(20):
        say(network, stranger, TopologyNews(number + 1, 3, EMPTY, (step("Z", processing=0.0),)))
        network.run(us=200_000)
    assert stranger.open
    for name in "ABC":
        # The cost of a link to Z is not known to anybody but B, so nobody asks for one.
        assert not network.cores[name]._topology.organising.proposals


def test_only_the_newest_news_of_a_broker_waits_and_nothing_for_a_link_that_is_down() -> None:
    network, stranger = scene()
    core = network.cores["B"]
    link = core._links.links["C"]
    core.handle(Writable(link.connection, False), network.now_us)
    waiting = core._topology.organising._waiting
    for number in range(1, 200):
        say(network, stranger, TopologyNews(number, 3, EMPTY, (step("Z"),)))
    assert waiting["C"]["Z"].number == 199
    assert set(waiting["C"]) <= {"A", "B", "Z"}
    core.handle(Writable(link.connection, True), network.now_us)
    network.run(us=500_000)
    assert not waiting
    network.hold("B", "C")
    network.cut("B", "C")
    say(network, stranger, TopologyNews(300, 3, EMPTY, (step("Z"),)))
    assert "C" not in waiting


def test_brokers_without_a_policy_ignore_those_with_one() -> None:
    network, stranger = scene(TopologySettings())
    say(network, stranger, TopologyNews(1, 3, EMPTY, (step("Z"),)))
    say(network, stranger, LinkRequest(1, tuple(RequestStep(name, 1.0) for name in "ZBA"), (0.0,) * 3))
    assert stranger.open
    operator = network.client("operator", "B")
    operator.ask(Ask(1, "topology"))
    network.run(us=10_000)
    [done] = operator.answers(Done)
    assert json.loads(done.text)["policy"] == "static"


def test_rows_of_logs_count_as_a_trace_counts_them() -> None:
    record = encode_record({"a": 1}, 0)
    stored = StoredPublications("log", 1, [("p", 4, record), ("p", 9, record)])
    again = StoredPublications("log", 1, [("p", 5, record)], replay=3)
    batch = PublicationBatch.of("q", [1, 2, 3], [record] * 3)
    found = np.concatenate(list(_publications([Frame(1, stored), Frame(2, again), Frame(3, batch)])))
    expected = [*publication_hashes("p", [4, 9]).tolist(), *publication_hashes("q", [1, 2, 3]).tolist()]
    assert sorted(found.tolist()) == sorted(expected)


@pytest.mark.parametrize("costs", [("B7",), ("B7=",), ("=3",), ("B7=-1",), ("B7=nan",), ("B7=much",)])
def test_costs_that_cannot_be_read_are_named(costs: tuple[str, ...]) -> None:
    from braid.errors import ConfigurationError

    with pytest.raises(ConfigurationError, match=repr(costs[0])):
        TopologySettings(link_costs=costs)
    assert TopologySettings(link_costs=("B7=inf", "B8=2.5")).configured_links == {"B7": np.inf, "B8": 2.5}


def links_of(network: Network, name: str) -> Any:
    network.cores[name]._topology.organising._know_links()
    return network.cores[name]._topology.organising.organiser.links


def test_a_forbidden_link_that_is_there_is_dearer_than_any_other() -> None:
    costs = ("A=inf", "B=inf", "C=5")
    network, _ = scene(TopologySettings(policy="ci", interval_us=200_000, link_costs=costs))
    assert links_of(network, "A")["B"] >= 1e9
    assert np.isfinite(links_of(network, "A")["B"])  # or no message could carry it
    news = network.cores["C"]._topology.organising.organiser._known["A"]
    assert news.path[-1].link_cost >= 1e9


def test_a_link_that_nobody_has_measured_has_no_cost_and_nothing_is_learnt_by_it() -> None:
    network, stranger = scene()
    network.cores["B"]._topology.organising._costs._by_links.clear()
    network.cores["B"]._links.links["Z"].round_trip_us = 0
    network.cores["B"]._topology.organising._know_costs()
    assert links_of(network, "B")["Z"] is None
    assert links_of(network, "B")["A"] is not None
    say(network, stranger, TopologyNews(1, 3, EMPTY, (step("Z"),)))
    assert stranger.open
    assert "Z" not in network.cores["B"]._topology.organising.organiser.knows
    # What goes by the link itself measures it, where a probe does not.
    network.run(us=500_000)
    assert links_of(network, "B")["Z"] > 0
    say(network, stranger, TopologyNews(2, 3, EMPTY, (step("Z"),)))
    assert "Z" in network.cores["B"]._topology.organising.organiser.knows


def test_a_publication_counts_once_however_many_links_it_takes() -> None:
    network = Network()
    exact = TopologySettings(policy="exact", interval_us=200_000, sample_entries=50)
    network.start("B", topology=exact)
    for name in "ACDE":
        network.start(name, neighbours=("B",), topology=exact)
    network.run(us=300_000)
    for name in "CDE":
        subscribed(network, f"reader-{name}", name, "x > 0")
    network.run(us=100_000)
    writer = network.client("writer", "A")
    for number in range(40):
        writer.publish({"x": number + 1})
        network.run(us=1_000)
    organiser = network.cores["B"]._topology.organising.organiser
    chunks = organiser.traffic._chunks
    assert sum(len(hashes) for _, hashes, _ in chunks) == 40
    assert {links for _, _, links in chunks} == {frozenset("ACDE")}
    # So the whole sample is there for what hangs on it beside a link, whatever the degree.
    beside = organiser.traffic.beside(frozenset("A"), network.now_us)
    assert (len(beside.hashes), beside.threshold) == (40, 1 << 32)


def test_one_that_passes_in_several_turns_is_one_publication() -> None:
    window = TrafficWindow(100, 1_000_000)
    hashes = publication_hashes("p", range(90))
    for now_us, link in enumerate("ABCDEFGH"):
        window.passed(hashes, frozenset({link}), now_us)
    sample = window.beside(frozenset({"A"}), 10)
    assert len(sample.hashes) == len(np.unique(sample.hashes))
    assert len(sample.hashes) * (1 << 32) / sample.threshold == pytest.approx(90, rel=0.35)
    assert window._held <= 2 * 100 * 8

"""Is each promise of a failover protocol kept, and would the checkers notice if it were not?

Some scenarios of every protocol, every counterexample that is stored, and defects that are planted: each
breaks the property that it is for.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from braid.broker.link_life import LinkStage
from braid.broker.links import Links
from braid.broker.parties import Link
from braid.broker.replica_cache import ReplicaCache
from braid.broker.resumptions import Resumptions
from braid.pipeline.experiments.availability.delivery_properties import PROPERTIES, violations
from braid.pipeline.experiments.availability.fault_scenarios import (
    FAULTS,
    IN_FLIGHT_MIN,
    MESSAGES,
    PROTOCOLS,
    Scenario,
    run,
    scenario,
    smallest,
)
from braid.pipeline.experiments.availability.held_rows import Delivery, HeldRows, Hop, Published, Subscribed
from braid.pipeline.experiments.availability.properties import EXPERIMENT, PROMISED, TICK_RUNS_MIN, chunk
from braid.pipeline.experiments.registry import Evidence, Plan
from braid.pipeline.experiments.sweep import RunTask
from braid.pipeline.experiments.sweep_folder import FinishedRun
from braid.protocol import Channel

if TYPE_CHECKING:
    from collections.abc import Callable

RUNS = 30
KEPT = {
    protocol: {name for name, promised in of.items() if promised in ("yes", "ours")}
    for protocol, of in PROMISED.items()
}
STORED = sorted((Path(__file__).parent / "counterexamples").glob("*.json"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_promise_of_a_protocol_is_broken(protocol: str) -> None:
    struck = 0
    for seed in range(RUNS + 4):
        made = scenario(protocol, seed)
        outcome = run(made)
        if outcome.struck:
            struck += 1
            assert outcome.in_flight >= IN_FLIGHT_MIN
        broken = [each for each in outcome.violations if each.property in KEPT[protocol]]
        assert broken == [], made.text()
    assert struck >= RUNS


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_a_stored_counterexample_still_shows_what_it_is_for(path: Path) -> None:
    """They are named PROTOCOL-PROPERTY: what a protocol does not promise is really broken."""
    made = msgspec.json.decode(path.read_bytes(), type=Scenario)
    protocol, name = path.stem.split("-")
    assert made.protocol == protocol
    assert name in run(made).broken
    assert name not in KEPT[protocol]


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
@pytest.mark.parametrize("protocol", [each for each, kept in KEPT.items() if "weak_complete" in kept])
def test_what_breaks_one_protocol_breaks_no_promise_of_another(protocol: str, path: Path) -> None:
    made = msgspec.json.decode(path.read_bytes(), type=Scenario)
    outcome = run(msgspec.structs.replace(made, protocol=protocol))
    assert outcome.broken & KEPT[protocol] == set()


def test_every_cross_of_the_paper_has_a_stored_counterexample() -> None:
    crosses = {
        f"{protocol}-{name}" for protocol, of in PROMISED.items() for name, said in of.items() if said == "no"
    }
    assert crosses <= {path.stem for path in STORED}


def test_seeds_take_every_message_with_every_fault() -> None:
    taken = {(made.message, made.fault) for made in (scenario("basic", seed) for seed in range(40))}
    assert len(taken) == len(MESSAGES) * len(FAULTS)


def test_the_same_scenario_has_the_same_run() -> None:
    made = scenario("incremental", 3)
    assert made == scenario("incremental", 3)
    assert run(made) == run(made)


def test_a_chunk_counts_runs_by_stage_message_and_fault(tmp_path: Path) -> None:
    task = RunTask({"protocol": "basic", "runs": 3, "shrink_runs_max": 3}, 1, tmp_path, tmp_path)
    found = chunk(task)
    assert found["runs"] == sum(found["cases"].values()) == 3
    assert found["in_flight_min"] >= IN_FLIGHT_MIN
    assert found["broken"]["weak_complete"] > 0
    shown = msgspec.convert(found["examples"]["weak_complete"]["scenario"], Scenario)
    assert "weak_complete" in run(shown).broken


def evidence(runs: int, **broken: int) -> Evidence:
    """What one chunk of one protocol says."""
    summary = {
        "runs": runs,
        "in_flight_min": IN_FLIGHT_MIN,
        "cases": {"open/reach/cut": runs},
        "broken": broken,
        "examples": {},
    }
    run = FinishedRun("r1", "", {"protocol": "synchronous"}, 1, summary, 1.0)
    nothing: Any = None
    return Evidence(nothing, Plan("quick", 1, Path()), {"r1": run}, nothing)


def measured(found: Evidence, metric: str) -> dict[str, float]:
    samples = EXPERIMENT.measure(found).samples
    return {str(each.labels.get("property", "")): each.value for each in samples if each.metric == metric}


def test_too_few_runs_say_nothing_about_a_tick_and_still_what_was_broken() -> None:
    found = evidence(40, strong_complete=4)
    assert measured(found, "tick") == {}
    assert measured(found, "violations") == dict.fromkeys(PROPERTIES, 0.0) | {"strong_complete": 4.0}


def test_enough_runs_make_ticks_and_crosses() -> None:
    ticks = measured(evidence(TICK_RUNS_MIN, strong_complete=4), "tick")
    assert ticks == dict.fromkeys(PROPERTIES, 1.0) | {"strong_complete": 0.0}


def test_a_case_that_no_run_has_met_is_shown() -> None:
    samples = EXPERIMENT.measure(evidence(40)).samples
    cases = {
        (each.labels["state"], each.labels["message"], each.labels["fault"]): each.value
        for each in samples
        if each.metric == "runs_of_case"
    }
    assert cases.pop(("open", "reach", "cut")) == 40
    assert len(cases) == 3 * len(MESSAGES) * len(FAULTS) - 1
    assert set(cases.values()) == {0.0}
    assert [each.value for each in samples if each.metric == "cases_without_a_run"] == [len(cases)]


def test_a_smaller_counterexample_is_one() -> None:
    made = scenario("synchronous", 32)
    small = smallest(made, "strong_complete", runs_max=6)
    assert "strong_complete" in run(small).broken
    assert (len(small.readers), len(small.publications)) == (1, 1)


def test_a_neighbour_that_has_just_begun_again_is_not_passed_what_it_would_drop() -> None:
    for seed in (112, 159):
        assert "weak_complete" not in run(scenario("immediate", seed)).broken


# Planted defects.


def found(protocol: str, name: str, seeds: int = 40) -> bool:
    return any(name in run(scenario(protocol, seed)).broken for seed in range(seeds))


def test_resumption_before_the_last_subscription_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    early = (LinkStage.SYNCING, LinkStage.HELD, LinkStage.OPEN, LinkStage.LEAVING, LinkStage.GONE)
    monkeypatch.setattr(Link, "holding", property(lambda link: link.stage not in early))
    assert found("synchronous", "weak_complete")


def test_a_queue_that_is_released_instead_of_moved_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Links.forget_session

    def forget(links: Any, link: Link) -> None:
        usual(links, link)
        for care in link.channel.abandon():
            links._turn.settlement.settle(care, link)

    monkeypatch.setattr(Links, "forget_session", forget)
    assert found("synchronous", "weak_complete")
    assert found("acknowledged", "strong_complete")


def test_a_replica_that_keeps_nothing_for_late_subscriptions_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ReplicaCache, "keep", lambda *_: None)
    assert found("incremental", "weak_complete")


def test_a_wait_queue_that_is_not_looked_at_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is chosen and not sent stays behind for good."""
    usual = Channel.choose

    def choose(channel: Any, wanted: Callable[..., Any], after: int) -> int:
        channel.refilter(lambda batch: batch if len(wanted([batch])[0]) or batch.first % 2 else None)
        return usual(channel, wanted, after)

    monkeypatch.setattr(Channel, "choose", choose)
    assert found("incremental", "weak_complete")


def test_a_replica_that_waits_for_subscriptions_to_pass_everything_on_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual = Resumptions._review

    def review(resumptions: Any) -> None:
        usual(resumptions)
        resumptions._ways.sent_everywhere = False

    monkeypatch.setattr(Resumptions, "_review", review)
    assert found("immediate", "weak_complete")


# The checkers.


def rows(*numbers: int, inside: int = 0, reader: str = "C") -> HeldRows:
    """What A's writer published from 1 to 4 comes to a reader; some of it was inside B, which crashed."""
    held = HeldRows(subscriptions=[Subscribed(0, reader, "reader", "price > 0")], crashes=[(10, "B")])
    held.published += [Published(number, "w", number, "A") for number in range(1, 5)]
    held.hops += [Hop(9, "w", number, "A", "B") for number in range(1, inside + 1)]
    held.deliveries += [Delivery(20, "w", number, "C", "reader") for number in numbers]
    return held


WHOLE = {("w", number): {"price": 1} for number in range(1, 5)}


@pytest.mark.parametrize(
    ("held", "broken"),
    [
        (rows(1, 2, 3, 4), set()),
        (rows(1, 2, 4), {"weak_complete", "strong_complete"}),
        (rows(1, 2, 3), {"weak_complete", "strong_complete"}),
        (rows(1, 3, 2, 4), {"weak_ordered", "strong_ordered"}),
        (rows(1, 2, 2, 3, 4), {"weak_ordered", "strong_ordered"}),
        (rows(2, 3, 4, inside=1), {"strong_complete"}),
        (rows(2, 1, 3, 4, inside=1), {"strong_ordered"}),
        (rows(3, 2, 4, inside=1), {"strong_complete", "weak_ordered", "strong_ordered"}),
        (rows(reader="B"), set()),
        (rows(), {"weak_complete", "strong_complete"}),
    ],
)
def test_the_checkers_read_what_was_lost_and_displaced(held: HeldRows, broken: set[str]) -> None:
    found = violations(held, WHOLE, lambda source, target: ["A", "B", target])
    assert {each.property for each in found} == broken
    assert broken <= set(PROPERTIES)


def test_who_was_inside_a_broker_beside_the_way_is_owed() -> None:
    held = rows(2, 3, 4, inside=1)
    found = violations(held, WHOLE, lambda source, target: ["A", target])
    assert {each.property for each in found} == {"weak_complete", "strong_complete"}


def test_what_is_wanted_by_nobody_is_not_missed() -> None:
    held = rows(1, 2)
    values = {place: {"price": int(np.sign(3 - place[1]))} for place in WHOLE}
    assert violations(held, values, lambda source, target: ["A", "B", target]) == []

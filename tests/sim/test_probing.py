"""Is the cost of a link that is not there measured, and only where and as often as it should be?"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from braid.adaptation.topology import TopologySettings
from braid.sim import World
from tests.sim.brokers import broker
from tests.sim.shift_worlds import links_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

INTERVAL_US = 500_000
LATENCY_US = {"AB": 12_000, "BC": 10_000, "CD": 1_000, "AC": 1_000, "AD": 30_000, "BD": 30_000}


def line(
    own: Mapping[str, Sequence[str]] | None = None, **settings: Any
) -> tuple[World, Counter[tuple[str, str, int]]]:
    """Four brokers in a row that measure costs; and who has probed whom in which interval."""
    world = World(1, latency_us=lambda *ends: LATENCY_US["".join(sorted(ends))])
    for name, other in {"A": "", "B": "A", "C": "B", "D": "C"}.items():
        costs = tuple((own or {}).get(name, ()))
        chosen = TopologySettings(policy="lmst", interval_us=INTERVAL_US, link_costs=costs, **settings)
        world.add(name, broker(name, [other] if other else [], topology=chosen), store=True)
    probed: Counter[tuple[str, str, int]] = Counter()
    probe = world.probe

    def counted(host: Any, wanted: Any) -> None:
        machine = host.machine
        probed[host.name, wanted.broker, machine._topology.organising.due_us] += 1
        probe(host, wanted)

    world.probe = counted  # type: ignore[method-assign]
    return world, probed


def test_a_link_that_is_not_there_is_measured_and_made() -> None:
    world, probed = line()
    world.run_for(seconds=6)
    assert links_of(world, "A") == ["C"]
    assert sorted(links_of(world, "C")) == ["A", "B", "D"]
    core = world.machine("A")
    # Half a round trip, in milliseconds.
    assert core._topology.organising.organiser.links["C"] == 1.0
    assert {(source, target) for source, target, _ in probed} >= {("A", "C"), ("C", "A")}
    assert max(probed.values()) == 1
    world.checkers.require()


def test_a_forbidden_link_is_neither_probed_nor_made() -> None:
    world, probed = line({"A": ["C=inf"], "C": ["A=inf"]})
    world.run_for(seconds=6)
    assert links_of(world, "A") == ["B"]
    assert not any({source, target} == {"A", "C"} for source, target, _ in probed)


def test_a_configured_cost_is_not_measured() -> None:
    costs = {name: [f"{other}=5" for other in "ABCD" if other != name] for name in "ABCD"}
    world, probed = line(costs)
    world.run_for(seconds=4)
    assert not probed
    assert world.machine("A")._topology.organising.organiser.links == {"B": 5.0}


def test_a_broker_that_does_not_answer_is_proposed_no_link() -> None:
    world, _ = line()
    world.run_for(seconds=0.3)
    world.partition("A", "C")
    world.run_for(seconds=8)
    assert "C" not in links_of(world, "A")
    world.checkers.require()

"""Which protocol keeps which property? (Table V, made by running each against scenarios with faults)"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from braid.pipeline.experiments.availability.delivery_properties import PROPERTIES
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
from braid.pipeline.experiments.registry import Experiment, Findings
from braid.pipeline.experiments.rows import PaperValue, Sample
from braid.pipeline.experiments.sweep import Point

if TYPE_CHECKING:
    from braid.pipeline.experiments.registry import Evidence, Plan
    from braid.pipeline.experiments.sweep import RunTask

__all__ = ["EXPERIMENT", "PROMISED", "TICK_RUNS_MIN", "chunk"]

FUNCTION: Final = "braid.pipeline.experiments.availability.properties:chunk"
RUNS_PER_CHUNK: Final = {"quick": 40, "paper": 100}
SHRINK_RUNS_MAX: Final = 40
"""Runs that may go into making a counterexample smaller."""
TICK_RUNS_MIN: Final = 2_000
"""Runs without a counterexample from which on a promise counts as kept."""
CHUNK_SEEDS: Final = 1_000
"""Seeds that one chunk may use; those whose message never comes are passed over."""
STATES: Final = ("syncing", "held", "open")
"""Stages of a link that has a session and a connection, where a message may find it."""
PROMISED: Final[dict[str, dict[str, str]]] = {
    "basic": {"weak_complete": "no", "weak_ordered": "yes"},
    "synchronous": {"weak_complete": "yes", "weak_ordered": "yes"},
    "incremental": {"weak_complete": "yes", "weak_ordered": "no"},
    "immediate": {"weak_complete": "ours", "weak_ordered": "ours"},
    "acknowledged": dict.fromkeys(PROPERTIES, "ours"),
}
"""What Table V says of a protocol, and what we say of our own; the paper leaves the rest open."""


def _points(plan: Plan) -> list[Point]:
    return [
        Point(
            {"protocol": protocol, "runs": RUNS_PER_CHUNK[plan.scale], "shrink_runs_max": SHRINK_RUNS_MAX},
            seed,
        )
        for seed in range(1, plan.seeds + 1)
        for protocol in PROTOCOLS
    ]


def chunk(task: RunTask) -> dict[str, Any]:
    """Run scenarios until the fault has struck in so many; says what was broken, and how it can be seen."""
    protocol, wanted = task.settings["protocol"], task.settings["runs"]
    cases: Counter[str] = Counter()
    broken: Counter[str] = Counter()
    examples: dict[str, Scenario] = {}
    in_flight = []
    first = (task.seed - 1) * CHUNK_SEEDS
    for seed in range(first, first + CHUNK_SEEDS):
        made = scenario(protocol, seed)
        outcome = run(made)
        if not outcome.struck or outcome.in_flight < IN_FLIGHT_MIN:
            continue
        cases[f"{outcome.struck}/{made.message}/{made.fault}"] += 1
        in_flight.append(outcome.in_flight)
        for name in outcome.broken:
            broken[name] += 1
            known = examples.get(name)
            if known is None or len(made.links) < len(known.links):
                examples[name] = made
        if len(in_flight) == wanted:
            break
    shown = {}
    for name, made in sorted(examples.items()):
        shrinks = task.settings["shrink_runs_max"] if task.seed == 1 else 0
        small = smallest(made, name, runs_max=shrinks) if shrinks else made
        violation = next(each for each in run(small).violations if each.property == name)
        shown[name] = {
            "scenario": msgspec.to_builtins(small),
            "text": f"{small.text()}: {violation}",
        }
    return {
        "runs": len(in_flight),
        "in_flight_min": min(in_flight, default=0),
        "cases": dict(cases),
        "broken": dict(broken),
        "examples": shown,
    }


def _measure(evidence: Evidence) -> Findings:
    found = [(run.settings["protocol"], run.seed, run.summary) for run in evidence.runs.values()]
    samples = []
    for protocol in PROTOCOLS:
        ordered = sorted(found, key=lambda each: each[1])
        summaries = [(seed, summary) for each, seed, summary in ordered if each == protocol]
        if not summaries:
            continue
        runs = sum(summary["runs"] for _, summary in summaries)
        broken: Counter[str] = Counter()
        cases: Counter[str] = Counter()
        for _, summary in summaries:
            broken.update(summary["broken"])
            cases.update(summary["cases"])
        for name in PROPERTIES:
            promised = PROMISED[protocol].get(name, "open")
            labels = {"protocol": protocol, "property": name, "promised": promised}
            samples.append(Sample("violations", labels, 1, float(broken[name])))
            if runs >= TICK_RUNS_MIN:
                samples.append(Sample("tick", labels, 1, float(not broken[name])))
            example = next((s["examples"][name] for _, s in summaries if name in s["examples"]), None)
            if example is not None:
                labels = {"protocol": protocol, "property": name, "shows": example["text"]}
                size = float(len(example["scenario"]["publications"]))
                samples.append(Sample("counterexample_publications", labels, 1, size))
        samples.append(Sample("runs", {"protocol": protocol}, 1, float(runs)))
        least = min(summary["in_flight_min"] for _, summary in summaries)
        samples.append(Sample("in_flight_min", {"protocol": protocol}, 1, float(least)))
        # A case that no run has met is shown, too: nothing is known of it.
        wanted = {
            f"{state}/{message}/{fault}" for state in STATES for message in MESSAGES for fault in FAULTS
        }
        missed = sum(not cases[case] for case in wanted)
        samples.append(Sample("cases_without_a_run", {"protocol": protocol}, 1, float(missed)))
        for case in sorted(wanted | cases.keys()):
            state, message, fault = case.split("/")
            labels = {"protocol": protocol, "state": state, "message": message, "fault": fault}
            samples.append(Sample("runs_of_case", labels, 1, float(cases[case])))
    return Findings(samples)


EXPERIMENT = Experiment(
    paper="availability",
    name="properties",
    title="Properties of the failover protocols",
    shows=(
        "Each run is a simulated tree of 5 to 7 brokers, in which one crashes for good and is replaced while "
        "four writers publish; at a certain message between the replica and its neighbours something else "
        "goes wrong: a connection is cut, or held, or a broker stands still, or the replica or a neighbour "
        "crashes and comes back. Checkers read hops, deliveries and subscriptions and let nobody off because "
        "of a fault. `violations` counts runs in which a property was broken; a tick stands for 2,000 runs "
        "without any."
    ),
    function=FUNCTION,
    points=_points,
    measure=_measure,
    paper_values=tuple(
        PaperValue("tick", {"protocol": protocol, "property": name}, float(promised == "yes"))
        for protocol, of in PROMISED.items()
        for name, promised in of.items()
        if promised in ("yes", "no")
    ),
    seeds={"quick": 1, "paper": 20},
    shown=("violations", "runs", "in_flight_min", "cases_without_a_run"),
    notes=(
        "weak_*: of publications that have not been inside a broker that crashed, the replica included, on "
        "their way to a subscriber; strong_*: of all. Complete counts what is missing at the end as well as "
        "gaps, which is more than the paper asks for.",
        "`promised` is what Table V says (yes, no), what we say of our own protocols (ours), or open: the "
        "paper has n/a for strong properties of failover. `immediate` is ours; `acknowledged` is synchronous "
        "with publishers that want receipts.",
        "At the quick scale there is no row about ticks, neither for nor against, because there are not "
        "2,000 runs: `violations` is what was found. `make properties` makes them, and goes on where it was "
        "stopped.",
        "A case is a stage of the link where a fault struck, the message at which it did, and the fault. "
        "Some cannot be, such as a greeting on a link that is open; `runs_of_case` is 0 for these, and for "
        "what the scenarios have not met.",
    ),
)

"""Which better tree does observed traffic ask for, what does it save, and how does one get there?

Everything that a trace says goes into one instance of the PSOOP; the search for its cheapest tree starts from
many places at once, each a Spark task; and the planner of `braid.reconfiguration` finds the SHIFTs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from braid.adaptation.topology.pricing import NumberedTree
from braid.errors import ConfigurationError
from braid.pipeline.planning.bound import lower_bound
from braid.pipeline.planning.solver import (
    Instance,
    Solution,
    best_shortest_ways,
    best_star,
    interest_tree,
    minimum_tree,
    solve,
)
from braid.pipeline.planning.traffic import concerned, interest_groups, present_tree
from braid.reconfiguration import OverlayTree, PlanOptions, find_plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

    from braid.reconfiguration import FoundPlan

__all__ = ["Costs", "Proposal", "propose", "solve_on_spark"]

GROUPS_MAX = 5_000
"""Sets of brokers that trees are priced for; rarer ones are left out, and their share is told."""

UNIT_COST = 1.0


@dataclass(frozen=True, slots=True)
class Costs:
    """What a message costs, by names; what is not named costs 1, and an infinite link must not be."""

    links: Mapping[tuple[str, str], float]
    """In either direction."""
    brokers: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A better tree, and what is known of it."""

    found: FoundPlan
    """The way there."""
    publications: int
    present_cost: float
    planned_cost: float
    bound: float
    """No tree costs less than this."""
    priced_share: float
    """The share of publications that were taken into account."""

    @property
    def saving(self) -> float:
        """The share of the present cost that the plan saves."""
        return 1 - self.planned_cost / self.present_cost if self.present_cost else 0.0

    def report(self) -> dict[str, Any]:
        """As `braid pipeline plan --json` prints it."""
        plan = self.found.plan
        return {
            "brokers": len(plan.start),
            "publications": self.publications,
            "priced_share": self.priced_share,
            "present_cost": self.present_cost,
            "planned_cost": self.planned_cost,
            "saving": self.saving,
            "bound": self.bound,
            "links_exchanged": len(plan.start.links - plan.goal.links),
            "shifts": plan.shifts,
            "most_links": max(plan.goal.degree(broker) for broker in plan.goal.brokers),
        }


def propose(
    spark: SparkSession,
    publication: DataFrame,
    delivery: DataFrame,
    link_sample: DataFrame,
    *,
    costs: Costs | None = None,
    degree_max: int = 0,
    starts: int = 8,
    rounds: int = 6,
    from_us: int | None = None,
    to_us: int | None = None,
) -> Proposal:
    """Look for a better tree for the traffic of one run.

    Args:
        spark: the session.
        publication: as in traces, of one run.
        delivery: likewise.
        link_sample: likewise; the tree at its end is where the plan starts.
        costs: of links and brokers; everything costs 1 if not given.
        degree_max: links of a broker, at most; 0 for no bound.
        starts: how many searches are made, each a task.
        rounds: how long each of them goes on after the first tree that no exchange improves.
        from_us: only what was published from then on.
        to_us: and before that; the tree is that of this time, too.

    Raises:
        ConfigurationError: the trace does not say enough, or no plan keeps to the bound.
    """
    tree = present_tree(link_sample, to_us=to_us)
    if len(tree) < 3:
        raise ConfigurationError(f"a network of {len(tree)} brokers has no other tree")
    concerns = concerned(publication, delivery, from_us=from_us, to_us=to_us)
    groups = interest_groups(concerns).limit(GROUPS_MAX + 1).collect()[:GROUPS_MAX]
    published = concerns.select("publisher", "sequence").distinct().count()
    if not groups:
        raise ConfigurationError("the trace has no publications in that interval, so any tree is as good")
    instance = _instance(tree, groups, costs or Costs({}, {}), degree_max)
    number = {name: place for place, name in enumerate(tree.brokers)}
    present = NumberedTree.of_links(len(tree), [(number[one], number[other]) for one, other in tree.links])
    best = solve_on_spark(spark, instance, present, starts=starts, rounds=rounds)
    present_cost = instance.cost(present)
    if best.cost >= present_cost:
        best = Solution(present_cost, present)
    names = tree.brokers
    goal = OverlayTree([(names[one], names[other]) for one, other in best.tree.links])
    # While links move a broker may need one more than before or after.
    found = find_plan(tree, goal, PlanOptions())
    priced = int(instance.counts.sum())
    return Proposal(
        found,
        published,
        present_cost,
        best.cost,
        lower_bound(instance),
        priced / published if published else 1.0,
    )


def _instance(tree: OverlayTree, groups: Iterable[Any], costs: Costs, degree_max: int) -> Instance:
    number = {name: place for place, name in enumerate(tree.brokers)}
    rows, counts = [], []
    for group in groups:
        strangers = [name for name in group["brokers"] if name not in number]
        if strangers:
            raise ConfigurationError(
                f"{min(strangers)} published or delivered something and is not in the tree at the end"
            )
        row = np.zeros(len(number), np.float32)
        row[[number[name] for name in group["brokers"]]] = 1
        rows.append(row)
        counts.append(group["publications"])
    links = np.full((len(number), len(number)), UNIT_COST)
    np.fill_diagonal(links, 0.0)
    for (one, other), cost in costs.links.items():
        if one in number and other in number:
            links[number[one], number[other]] = links[number[other], number[one]] = cost
    processing = np.array([costs.brokers.get(name, UNIT_COST) for name in tree.brokers])
    return Instance(np.array(rows), np.array(counts, float), links, processing, degree_max)


def solve_on_spark(
    spark: SparkSession, instance: Instance, present: NumberedTree, *, starts: int, rounds: int
) -> Solution:
    """The best tree of several searches, each a task of one Spark job."""

    def work(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

        for batch in batches:
            for start in batch.column(0).to_pylist():
                found = solve(instance, _start(instance, present, start), rounds=rounds, seed=start)
                yield pyarrow.RecordBatch.from_pydict(
                    {"cost": [found.cost], "links": [json.dumps(found.tree.links)]}
                )

    rows = spark.range(0, starts, 1, starts).mapInArrow(work, "cost double, links string").collect()
    best = min(rows, key=lambda row: (row["cost"], row["links"]))
    tree = NumberedTree.of_links(instance.brokers, [(one, other) for one, other in json.loads(best["links"])])
    return Solution(best["cost"], tree)


def _start(instance: Instance, present: NumberedTree, start: int) -> NumberedTree:
    """Where a search begins: the tree as it is, the well-known ones, and all of them again."""
    known = (best_star, best_shortest_ways, minimum_tree, interest_tree)
    chosen = start % (len(known) + 1)
    if not chosen:
        return _within_bound(instance, present)
    try:
        return _within_bound(instance, known[chosen - 1](instance))
    except ConfigurationError:
        return _within_bound(instance, present)  # where links are forbidden there may be no star


def _within_bound(instance: Instance, tree: NumberedTree) -> NumberedTree:
    """The tree, or a line through the brokers in its order if some broker has too many links there."""
    degrees = np.bincount(np.array(tree.links).ravel(), minlength=instance.brokers)
    if not instance.degree_max or degrees.max() <= instance.degree_max:
        return tree
    line = NumberedTree.of_links(instance.brokers, list(pairwise(tree.order.tolist())))
    if any(np.isinf(instance.links[link]) for link in line.links):
        return tree
    return line

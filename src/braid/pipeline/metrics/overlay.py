"""How many ways lead from one broker to another?

The multipath paper, section 1 and Figure 1. Primary links form a tree. Every broker on the way sends along a
link, primary or soft, whose far end lies further along the *primary path* to the destination (sections 3 and
5: `BetweenSet`), so a forwarding path is a choice of brokers on that primary path, each reached by one link
from the one before.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql import functions as F

from braid.errors import ConfigurationError
from braid.pipeline.metrics.frames import within

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame

__all__ = ["PRIMARY", "Tree", "end_to_end_paths", "links_in_use", "most_links", "path_count_shares"]

PRIMARY = "primary"

# These cross a connection before it is known to be a link, and of which sort.
_GREETINGS = ("hello", "refused")

_PATHS_SCHEMA = "run string, source string, target string, distance int, paths double"


def links_in_use(
    link_sample: DataFrame, *, from_us: int | None = None, to_us: int | None = None
) -> DataFrame:
    """The links that carried more than greetings in an interval: `run, source, target, link`, each once.

    Where the primary network changes during a run, the interval must lie between two changes.
    """
    used = within(link_sample, from_us, to_us).where(~F.col("kind").isin(*_GREETINGS))
    return used.select("run", "source", "target", "link").distinct()


def most_links(broker_load: DataFrame, *, from_us: int | None = None, to_us: int | None = None) -> DataFrame:
    """The largest number of links that any broker had in any sample: what `fanout` is a bound on.

    Multipath paper, section 6: the fanout is "the maximum number of communication links, i.e., primary and
    soft links combined". A soft link counts at both of its ends.

    Returns:
        `run, links_max, links_mean`: the mean is over all brokers and samples in the interval.
    """
    known = within(broker_load, from_us, to_us).where(F.col("links").isNotNull())
    return (
        known.groupBy("run")
        .agg(F.max("links").alias("links_max"), F.avg("links").alias("links_mean"))
        .orderBy("run")
    )


def end_to_end_paths(links: DataFrame) -> DataFrame:
    """The number of distinct forwarding paths between all ordered pairs of brokers.

    Multipath paper, section 1 and Figure 1. With f(v) the number of paths from v to a fixed destination,

        f(destination) = 1,    f(v) = sum of f(w) over links v -> w with w on the primary path to it

    Primary links serve both directions, a soft link those ends that `links` has as a `source`.

    Args:
        links: `run, source, target, link`, such as `links_in_use` gives.

    Returns:
        `run, source, target, distance, paths` for every ordered pair of different brokers that the primary
        network connects; `distance` counts primary links. `paths` is exact up to 2 ** 53.
    """

    def of_one_run(table: Any) -> Any:
        import pyarrow

        [run] = set(table.column("run").to_pylist())
        tree, shortcuts = _overlay(table, run)
        counts = _count_paths(tree, shortcuts)
        sources, targets = np.nonzero(tree.distances > 0)
        names = pyarrow.array(tree.brokers)
        return pyarrow.table(
            {
                "run": pyarrow.array([run] * len(sources), pyarrow.string()),
                "source": names.take(pyarrow.array(sources)),
                "target": names.take(pyarrow.array(targets)),
                "distance": pyarrow.array(tree.distances[sources, targets], pyarrow.int32()),
                "paths": pyarrow.array(counts[sources, targets]),
            }
        )

    columns = links.select("run", "source", "target", "link").distinct()
    return columns.groupBy("run").applyInArrow(of_one_run, _PATHS_SCHEMA)


def path_count_shares(
    paths: DataFrame, thresholds: Sequence[int] = (1, 2, 10, 100, 1_000, 10_000, 100_000)
) -> DataFrame:
    """Which share of the pairs has at least so many paths.

    Multipath paper, section 1: "About 40% of brokers in a network of size 120 have at least one hundred
    distinct forwarding paths among them. This is increased to more than 1,000 for 13% [...] of size 250."

    Args:
        paths: what `end_to_end_paths` gives.

    Returns:
        `run, paths_min, pairs, share`.
    """
    if not thresholds:
        raise ConfigurationError("no thresholds: at least one number of paths is needed")
    columns = [F.count_if(F.col("paths") >= least).alias(str(least)) for least in thresholds]
    table = F.array(
        *(
            F.struct(F.lit(least).cast("long").alias("paths_min"), F.col(str(least)).alias("pairs"))
            for least in thresholds
        )
    )
    return (
        paths.groupBy("run")
        .agg(F.count(F.lit(1)).alias("all"), *columns)
        .select("run", "all", F.inline(table))
        .select("run", "paths_min", "pairs", (F.col("pairs") / F.col("all")).alias("share"))
        .orderBy("run", "paths_min")
    )


class Tree:
    """The primary network of one run. Brokers have numbers, in the order of their names."""

    def __init__(self, brokers: Iterable[str], links: Iterable[tuple[str, str]], run: str = "") -> None:
        self.brokers = sorted(brokers)
        self.number = {broker: number for number, broker in enumerate(self.brokers)}
        self._run = run
        self._neighbours: list[list[int]] = [[] for _ in self.brokers]
        for one, other in sorted({(min(link), max(link)) for link in links}):
            self._neighbours[self.number[one]].append(self.number[other])
            self._neighbours[self.number[other]].append(self.number[one])

    def from_root(self, root: int) -> tuple[list[int], list[int], list[int]]:
        """The brokers that a root reaches, nearest first; and of every broker the parent and the distance.

        Both are -1 for a broker that is not reached, and so is the parent of the root.

        Raises:
            ConfigurationError: there are two ways to a broker, so this is no tree.
        """
        parents, distances = [-1] * len(self.brokers), [-1] * len(self.brokers)
        distances[root] = 0
        reached = [root]
        for broker in reached:
            for neighbour in self._neighbours[broker]:
                if neighbour == parents[broker]:
                    continue
                if distances[neighbour] >= 0:
                    raise ConfigurationError(
                        f"the primary links of run {self._run!r} are no tree: there is a second way from "
                        f"{self.brokers[root]} to {self.brokers[neighbour]}. If the network changed "
                        "during the run, choose an interval between two changes."
                    )
                parents[neighbour] = broker
                distances[neighbour] = distances[broker] + 1
                reached.append(neighbour)
        return reached, parents, distances

    @cached_property
    def distances(self) -> np.ndarray[Any, np.dtype[np.int32]]:
        """Primary links between any two brokers; -1 where there is no way."""
        rows = [self.from_root(root)[2] for root in range(len(self.brokers))]
        return np.array(rows, np.int32).reshape(len(self.brokers), len(self.brokers))


def _overlay(table: Any, run: str) -> tuple[Tree, list[tuple[int, int]]]:
    """The tree of a run, and its directed links of both sorts by number, each pair once."""
    rows = list(zip(*(table.column(name).to_pylist() for name in ("source", "target", "link")), strict=True))
    brokers = {broker for source, target, _ in rows for broker in (source, target)}
    primary = [(source, target) for source, target, link in rows if link == PRIMARY]
    tree = Tree(brokers, primary, run)
    pairs = {(source, target) for source, target, _ in rows} | {
        (target, source) for source, target in primary
    }
    return tree, sorted((tree.number[source], tree.number[target]) for source, target in pairs)


def _count_paths(tree: Tree, links: list[tuple[int, int]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The matrix of path counts: one destination after the other, brokers in order of distance to it."""
    count = len(tree.brokers)
    counts = np.zeros((count, count))
    starts, ends = np.array(links, np.int64).reshape(-1, 2).T
    lengths = tree.distances[starts, ends]
    for target in range(count):
        to_target = tree.distances[:, target]
        # On a tree, w lies on the way from v to the target exactly when the distances add up.
        useful = (to_target[ends] >= 0) & (lengths + to_target[ends] == to_target[starts])
        begin, end = starts[useful], ends[useful]
        order = np.argsort(to_target[begin], kind="stable")
        begin, end = begin[order], end[order]
        levels = np.searchsorted(to_target[begin], np.arange(1, to_target.max(initial=0) + 2))
        column = counts[:, target]
        column[target] = 1
        for first, last in pairwise(levels):
            np.add.at(column, begin[first:last], column[end[first:last]])
    return counts

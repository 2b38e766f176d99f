"""Are paths counted and trees priced as in the papers?"""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING

import networkx
import pytest

from braid.errors import ConfigurationError
from braid.pipeline.metrics.cost import delivery_tree_cost, forwarding_cost
from braid.pipeline.metrics.overlay import (
    Tree,
    end_to_end_paths,
    links_in_use,
    most_links,
    path_count_shares,
)
from tests.pipeline.metric_tables import rows_of, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def links(spark: SparkSession, *rows: tuple[str, str, str]) -> DataFrame:
    return spark.createDataFrame(
        [("", *row) for row in rows], "run string, source string, target string, link string"
    )


def chain(*brokers: str) -> list[tuple[str, str, str]]:
    return [(one, other, "primary") for one, other in pairwise(brokers)]


def counts(paths: DataFrame) -> dict[tuple[str, str], tuple[int, float]]:
    return {(row.source, row.target): (row.distance, row.paths) for row in paths.collect()}


def test_without_soft_links_there_is_one_path(spark: SparkSession) -> None:
    found = counts(end_to_end_paths(links(spark, *chain("A", "B", "C"))))
    assert found == {
        ("A", "B"): (1, 1), ("B", "A"): (1, 1), ("B", "C"): (1, 1),
        ("C", "B"): (1, 1), ("A", "C"): (2, 1), ("C", "A"): (2, 1),
    }  # fmt: skip


def test_soft_links_multiply_paths_in_their_direction(spark: SparkSession) -> None:
    # A - B - C - D, with A -> C and B -> D. From A to D: ABCD, ACD, ABD. From D to A only the primary path.
    found = counts(
        end_to_end_paths(links(spark, *chain("A", "B", "C", "D"), ("A", "C", "soft"), ("B", "D", "soft")))
    )
    assert found["A", "D"] == (3, 3)
    assert found["A", "C"] == (2, 2)
    assert found["B", "D"] == (2, 2)
    assert found["D", "A"] == (3, 1)


def test_a_soft_link_off_the_primary_path_is_of_no_use(spark: SparkSession) -> None:
    # C hangs off B. A -> C does not lie on the way from A to D.
    found = counts(
        end_to_end_paths(links(spark, *chain("A", "B", "D"), ("B", "C", "primary"), ("A", "C", "soft")))
    )
    assert found["A", "D"] == (2, 1)
    assert found["A", "C"] == (2, 2)


def test_a_link_said_twice_is_one(spark: SparkSession) -> None:
    found = counts(
        end_to_end_paths(links(spark, ("A", "B", "primary"), ("B", "A", "primary"), ("A", "B", "soft")))
    )
    assert found == {("A", "B"): (1, 1), ("B", "A"): (1, 1)}


def test_shares_of_pairs(spark: SparkSession) -> None:
    paths = end_to_end_paths(links(spark, *chain("A", "B", "C", "D"), ("A", "C", "soft"), ("B", "D", "soft")))
    # Of 12 ordered pairs, A-C, B-D and A-D have at least 2 paths, A-D has 3.
    assert rows_of(path_count_shares(paths, (1, 2, 3, 4))) == [
        ("", 1, 12, 1.0), ("", 2, 3, 0.25), ("", 3, 1, round(1 / 12, 12)), ("", 4, 0, 0.0),
    ]  # fmt: skip
    with pytest.raises(ConfigurationError, match="no thresholds"):
        path_count_shares(paths, ())


def test_random_overlays_agree_with_walking_every_path(spark: SparkSession) -> None:
    stream = random.Random("4/paths")
    rows = []
    expected = {}
    for run in ("x", "y"):
        tree = networkx.Graph()
        for number in range(1, 12):
            tree.add_edge(f"B{number}", f"B{stream.randrange(number)}")
        soft = {tuple(stream.sample(sorted(tree), 2)) for _ in range(25)}
        rows += [(run, *edge, "primary") for edge in tree.edges] + [
            (run, *pair, "soft") for pair in sorted(soft)
        ]
        sends = {broker: set(tree[broker]) | {b for a, b in soft if a == broker} for broker in tree}
        for source in tree:
            for target in tree:
                if source != target:
                    way = networkx.shortest_path(tree, source, target)
                    expected[run, source, target] = (len(way) - 1, walks(way, sends))
    table = spark.createDataFrame(rows, "run string, source string, target string, link string")
    found = {(r.run, r.source, r.target): (r.distance, r.paths) for r in end_to_end_paths(table).collect()}
    assert found == expected
    assert max(paths for _, paths in found.values()) > 5, "the example is too tame"


def walks(way: list[str], sends: dict[str, set[str]]) -> int:
    """The number of ways along the primary path, by taking every one of them."""
    if len(way) == 1:
        return 1
    return sum(walks(way[ahead:], sends) for ahead in range(1, len(way)) if way[ahead] in sends[way[0]])


def test_primary_links_that_are_no_tree_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"run 'x' are no tree: there is a second way from A to"):
        Tree(["A", "B", "C"], [("A", "B"), ("B", "C"), ("C", "A")], "x").from_root(0)


def test_parts_that_are_not_connected_have_no_paths(spark: SparkSession) -> None:
    found = counts(
        end_to_end_paths(links(spark, ("A", "B", "primary"), ("C", "D", "primary"), ("A", "C", "soft")))
    )
    assert sorted(found) == [("A", "B"), ("B", "A"), ("C", "D"), ("D", "C")]


def test_links_in_use_are_those_of_the_interval(spark: SparkSession) -> None:
    sample = table(
        spark,
        "link_sample",
        "at_us source target link kind",
        (1, "A", "B", "primary", "ping"),
        (1, "A", "B", "primary", "publication"),
        # Nobody knows yet what this connection will be, and this one never was a link.
        (1, "A", "C", "primary", "hello"),
        (1, "D", "A", "primary", "refused"),
        (9, "A", "C", "soft", "publication"),
    )
    assert rows_of(links_in_use(sample, to_us=5)) == [("", "A", "B", "primary")]
    assert len(rows_of(links_in_use(sample))) == 2


# The self-organising paper's Figure 2: p = 1 everywhere, c12 = 2, c13 = 5, c23 = 6; B2 publishes 10 times.
FIGURE_2_COSTS = [("B1", "B2", 2.0), ("B1", "B3", 5.0), ("B2", "B3", 6.0)]
CHEAP_TREE = [("B2", "B1", "primary"), ("B1", "B3", "primary")]
DIRECT_TREE = [("B2", "B3", "primary"), ("B2", "B1", "primary")]


@pytest.mark.parametrize(
    ("tree", "also_for_b1", "communication", "processing"),
    [
        (CHEAP_TREE, 0, 10 * (2 + 5), 10 * 3),  # 10 (p2 + c21 + p1 + c13 + p3) = 100
        (DIRECT_TREE, 0, 10 * 6, 10 * 2),  # 10 (p2 + c23 + p3) = 80
        (DIRECT_TREE, 9, 10 * 6 + 9 * 2, 10 * 2 + 9),  # ... + 9 (c12 + p1) = 107
        (CHEAP_TREE, 9, 10 * (2 + 5), 10 * 3),  # printed as 80, but its formula is that of the first: 100
    ],
)
def test_the_example_of_figure_2(spark: SparkSession, tree, also_for_b1, communication, processing) -> None:
    publication = table(
        spark, "publication", "publisher sequence broker", *(("p", n, "B2") for n in range(10))
    )
    delivery = table(
        spark,
        "delivery",
        "publisher sequence broker",
        *(("p", n, "B3") for n in range(10)),
        *(("p", n, "B1") for n in range(also_for_b1)),
    )
    costs = spark.createDataFrame(FIGURE_2_COSTS, "source string, target string, cost double")
    result = delivery_tree_cost(publication, delivery, links(spark, *tree), link_costs=costs)
    assert rows_of(result) == [("", 10, communication, processing, communication + processing)]


def test_what_was_really_forwarded_has_its_price_too(spark: SparkSession) -> None:
    # One notification from B2 over B1 to B3, and one that nobody wanted beyond B2.
    publication = table(spark, "publication", "publisher sequence broker", ("p", 1, "B2"), ("p", 2, "B2"))
    hop = table(spark, "hop", "publisher sequence source target", ("p", 1, "B2", "B1"), ("p", 1, "B1", "B3"))
    link_costs = spark.createDataFrame(FIGURE_2_COSTS, "source string, target string, cost double")
    broker_costs = spark.createDataFrame(
        [("", "B2", 10.0), ("", "B3", 0.5)], "run string, broker string, cost double"
    )
    # Links 2 + 5. Brokers: B2 twice 10, B1 the unit cost, B3 0.5.
    assert rows_of(forwarding_cost(publication, hop, link_costs=link_costs, broker_costs=broker_costs)) == [
        ("", 2, 7.0, 21.5, 28.5)
    ]
    assert rows_of(forwarding_cost(publication, hop)) == [("", 2, 2.0, 4.0, 6.0)]


def test_random_trees_agree_with_the_union_of_their_paths(spark: SparkSession) -> None:
    stream = random.Random("4/cost")
    tree = networkx.Graph()
    for number in range(1, 15):
        tree.add_edge(f"B{number}", f"B{stream.randrange(number)}")
    brokers = sorted(tree)
    link_cost = {frozenset(edge): stream.randrange(1, 10) for edge in tree.edges}
    broker_cost = {broker: stream.randrange(1, 10) for broker in brokers}
    publications, deliveries, hops = [], [], []
    communication = processing = 0
    for sequence in range(60):
        source = stream.choice(brokers[:4])
        targets = stream.sample(brokers, stream.randrange(5))
        publications.append(("p", sequence, source))
        deliveries += [("p", sequence, target) for target in targets for _ in range(stream.randrange(1, 3))]
        delivery_tree = networkx.Graph()
        delivery_tree.add_node(source)
        for target in targets:
            networkx.add_path(delivery_tree, networkx.shortest_path(tree, source, target))
        communication += sum(link_cost[frozenset(edge)] for edge in delivery_tree.edges)
        processing += sum(broker_cost[broker] for broker in delivery_tree)
        hops += [("p", sequence, *edge) for edge in networkx.bfs_edges(delivery_tree, source)]
    costs = {
        "link_costs": spark.createDataFrame(
            [(*sorted(edge), float(cost)) for edge, cost in link_cost.items()],
            "source string, target string, cost double",
        ),
        "broker_costs": spark.createDataFrame(
            [(broker, float(cost)) for broker, cost in broker_cost.items()], "broker string, cost double"
        ),
    }
    publication = table(spark, "publication", "publisher sequence broker", *publications)
    delivery = table(spark, "delivery", "publisher sequence broker", *deliveries)
    hop = table(spark, "hop", "publisher sequence source target", *hops)
    overlay = links(spark, *((*edge, "primary") for edge in tree.edges))
    expected = [("", 60, communication, processing, communication + processing)]
    assert rows_of(delivery_tree_cost(publication, delivery, overlay, **costs)) == expected
    assert rows_of(forwarding_cost(publication, hop, **costs)) == expected


def test_a_delivery_where_no_primary_link_leads_is_an_error(spark: SparkSession) -> None:
    from pyspark.errors import PythonException

    publication = table(spark, "publication", "publisher sequence broker", ("p", 1, "A"))
    delivery = table(spark, "delivery", "publisher sequence broker", ("p", 1, "Z"))
    with pytest.raises(PythonException, match="Z delivered what was published at A, and no primary links"):
        delivery_tree_cost(publication, delivery, links(spark, ("A", "B", "primary"))).collect()


def test_the_most_links_of_any_broker_in_any_sample(spark: SparkSession) -> None:
    loads = table(
        spark,
        "broker_load",
        "at_us broker links",
        (1_000_000, "A", 2),
        (1_000_000, "B", 9),
        (2_000_000, "A", 4),
        (2_000_000, "B", 5),
        (2_000_000, "C", None),  # of a machine that does not say
    )
    assert rows_of(most_links(loads)) == [("", 9, 5.0)]
    assert rows_of(most_links(loads, from_us=1_500_000)) == [("", 5, 4.5)]

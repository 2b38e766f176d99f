"""Does every step lead from a tree to a tree, and every composite where the paper says?

networkx is the oracle of what a tree is; composites are compared with their meaning in sets of links.
"""

from __future__ import annotations

import re

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.errors import ConfigurationError
from braid.reconfiguration import (
    Append,
    Detach,
    OverlayTree,
    Plan,
    Shift,
    delete,
    insert,
    move,
    sequester,
    splice,
)
from tests.reconfiguration.random_trees import trees

LINE = OverlayTree([("A", "B"), ("B", "C"), ("C", "D")])


def graph_of(tree: OverlayTree) -> nx.Graph:
    graph = nx.Graph()
    graph.add_nodes_from(tree.brokers)
    graph.add_edges_from(tree.links)
    return graph


def same(tree: OverlayTree, graph: nx.Graph) -> bool:
    links = {frozenset(link) for link in graph.edges}
    return set(tree.brokers) == set(graph.nodes) and {frozenset(link) for link in tree.links} == links


def is_safe(plan: Plan) -> bool:
    return all(nx.is_tree(graph_of(tree)) for tree in plan.trees)


# Trees.


@pytest.mark.parametrize(
    ("links", "brokers", "problem"),
    [
        ([], [], "there is no broker"),
        ([("A", "A")], [], "'A' is linked to itself"),
        ([("A", "B"), ("B", "A")], [], "'A' and 'B' are linked twice"),
        ([("A", "B"), ("C", "D")], [], "no way from 'A' to 'C'"),
        ([("A", "B")], ["A", "B", "C"], "no way from 'A' to 'C'"),
        ([("A", "B"), ("B", "C"), ("C", "A")], [], "3 brokers with 3 links have a cycle"),
    ],
)
def test_what_is_no_tree_cannot_be_made(
    links: list[tuple[str, str]], brokers: list[str], problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        OverlayTree(links, brokers)


@given(brokers=st.integers(2, 7), data=st.data())
def test_a_tree_is_what_networkx_calls_one(brokers: int, data: st.DataObject) -> None:
    names = [f"B{number}" for number in range(brokers)]
    pairs = [(left, right) for left in names for right in names if left < right]
    links = data.draw(st.lists(st.sampled_from(pairs), unique=True))
    graph = nx.Graph(links)
    graph.add_nodes_from(names)
    try:
        made = OverlayTree(links, names)
    except ConfigurationError:
        assert not nx.is_tree(graph)
    else:
        assert nx.is_tree(graph)
        assert same(made, graph)


@given(tree=trees(2), data=st.data())
def test_paths_and_sides(tree: OverlayTree, data: st.DataObject) -> None:
    graph = graph_of(tree)
    source, target = (data.draw(st.sampled_from(tree.brokers)) for _ in range(2))
    assert list(tree.path(source, target)) == nx.shortest_path(graph, source, target)
    left, right = data.draw(st.sampled_from(sorted(tree.links)))
    graph.remove_edge(left, right)
    assert tree.behind(left, right) == nx.node_connected_component(graph, left)
    some = data.draw(st.sets(st.sampled_from(tree.brokers), min_size=1))
    assert tree.connects(some) == nx.is_connected(graph_of(tree).subgraph(some))


# Primitives.


@given(tree=trees(), data=st.data())
def test_claim_1_a_primitive_is_safe_or_refused_and_can_be_undone(
    tree: OverlayTree, data: st.DataObject
) -> None:
    any_broker = st.sampled_from([*tree.brokers, "X"])
    one, two, three = (data.draw(any_broker) for _ in range(3))
    for step in (Append(one, two), Detach(one, two), Shift(one, two, three)):
        graph = graph_of(tree)
        allowed = {
            Append: one not in tree and two in tree,
            Detach: list(graph.adj[one] if one in graph else ()) == [two],
            Shift: graph.has_edge(one, two) and graph.has_edge(two, three) and one != three,
        }[type(step)]
        if not allowed:
            with pytest.raises(ConfigurationError, match=re.escape(str(step))):
                step.apply(tree)
            continue
        after = step.apply(tree)
        if isinstance(step, Append):
            graph.add_edge(one, two)
        elif isinstance(step, Detach):
            graph.remove_node(one)
        else:
            graph.remove_edge(one, two)
            graph.add_edge(one, three)
        assert nx.is_tree(graph)
        assert same(after, graph)
        assert step.undo.apply(after) == tree


def test_the_last_broker_stays() -> None:
    with pytest.raises(ConfigurationError, match="it is alone"):
        Detach("A", "B").apply(OverlayTree([], ["A"]))
    with pytest.raises(ConfigurationError, match="the last broker stays"):
        delete(OverlayTree([], ["A"]), "A")


# Composites (Claim 1: each is safe, because a plan is checked step by step and by networkx).


@given(tree=trees(3), data=st.data())
def test_move_hangs_a_broker_anywhere_but_on_itself(tree: OverlayTree, data: st.DataObject) -> None:
    moving = data.draw(st.sampled_from(tree.brokers))
    old = data.draw(st.sampled_from(tree.neighbours(moving)))
    new = data.draw(st.sampled_from(tree.brokers))
    if new in tree.behind(moving, old):
        with pytest.raises(ConfigurationError, match="hangs on"):
            move(tree, moving, old, new)
        return
    plan = Plan(tree, move(tree, moving, old, new))
    wanted = graph_of(tree)
    wanted.remove_edge(moving, old)
    wanted.add_edge(moving, new)
    assert is_safe(plan)
    assert same(plan.goal, wanted)
    assert len(plan) == tree.distance(old, new)


@given(tree=trees(2), data=st.data())
def test_sequester_and_delete(tree: OverlayTree, data: st.DataObject) -> None:
    broker = data.draw(st.sampled_from(tree.brokers))
    keep = data.draw(st.sampled_from(tree.neighbours(broker)))
    plan = Plan(tree, sequester(tree, broker, keep))
    assert is_safe(plan)
    assert plan.goal.neighbours(broker) == (keep,)
    assert len(plan) == tree.degree(broker) - 1
    gone = Plan(tree, delete(tree, broker, keep))
    wanted = graph_of(tree)
    wanted.remove_node(broker)
    wanted.add_edges_from((keep, other) for other in tree.neighbours(broker) if other != keep)
    assert is_safe(gone)
    assert same(gone.goal, wanted)
    assert is_safe(Plan(tree, delete(tree, broker)))


@given(tree=trees(), data=st.data())
def test_insert_and_splice(tree: OverlayTree, data: st.DataObject) -> None:
    beside = data.draw(st.sets(st.sampled_from(tree.brokers), min_size=1, max_size=4))
    connected = nx.is_connected(graph_of(tree).subgraph(beside))
    inner = [link for link in tree.links if set(link) <= beside]
    if not connected:
        with pytest.raises(ConfigurationError, match="do not form a subtree"):
            insert(tree, "X", beside)
    else:
        plan = Plan(tree, insert(tree, "X", beside))
        wanted = graph_of(tree)
        wanted.remove_edges_from(inner)
        wanted.add_edges_from(("X", other) for other in beside)
        assert is_safe(plan)
        assert same(plan.goal, wanted)
        assert plan.shifts == len(beside) - 1
    outside = sorted(set(tree.brokers) - beside)
    if not outside:
        return
    broker = data.draw(st.sampled_from(outside))
    if not connected:
        with pytest.raises(ConfigurationError, match="do not form a subtree"):
            splice(tree, broker, beside)
        return
    plan = Plan(tree, splice(tree, broker, beside))
    nearest = min(beside, key=lambda other: tree.distance(broker, other))
    wanted = graph_of(tree)
    wanted.remove_edges_from([*inner, (broker, tree.path(broker, nearest)[1])])
    wanted.add_edges_from((broker, other) for other in beside)
    assert is_safe(plan)
    assert same(plan.goal, wanted)


def test_what_insert_and_splice_refuse() -> None:
    with pytest.raises(ConfigurationError, match="A, C do not form a subtree"):
        splice(LINE, "D", ["A", "C"])
    with pytest.raises(ConfigurationError, match="linked to itself"):
        splice(LINE, "A", ["A", "B"])
    with pytest.raises(ConfigurationError, match="no brokers are named"):
        insert(LINE, "X", [])
    with pytest.raises(ConfigurationError, match="there is a broker 'A'"):
        insert(LINE, "A", ["B"])
    with pytest.raises(ConfigurationError, match="no broker 'Y'"):
        insert(LINE, "X", ["Y"])


@given(tree=trees(3, 9), data=st.data())
def test_lemma_1_any_tree_by_inserts_in_any_order(tree: OverlayTree, data: st.DataObject) -> None:
    order = data.draw(st.permutations(tree.brokers))
    beside = []
    rest = tree
    for broker in reversed(order[1:]):
        beside.append((broker, rest.neighbours(broker)))
        rest = Plan(rest, delete(rest, broker)).goal
    grown = OverlayTree([], [order[0]])
    for broker, others in reversed(beside):
        plan = Plan(grown, insert(grown, broker, others))
        assert is_safe(plan)
        grown = plan.goal
    assert grown == tree


@given(tree=trees(2, 10), data=st.data())
def test_corollary_1_from_appended_to_inserted_by_shifts_alone(
    tree: OverlayTree, data: st.DataObject
) -> None:
    appended = Append("X", data.draw(st.sampled_from(tree.brokers))).apply(tree)
    beside = {data.draw(st.sampled_from(tree.brokers))}
    for _ in range(data.draw(st.integers(0, 3))):
        beyond = {other for broker in beside for other in tree.neighbours(broker)} - beside
        if beyond:
            beside.add(data.draw(st.sampled_from(sorted(beyond))))
    inserted = Plan(tree, insert(tree, "X", beside)).goal
    plan = Plan(appended, splice(appended, "X", beside), inserted)
    assert is_safe(plan)
    assert plan.shifts == len(plan)


# Plans.


@given(tree=trees(2), data=st.data())
def test_a_plan_knows_its_way_back_and_where_it_is(tree: OverlayTree, data: st.DataObject) -> None:
    broker = data.draw(st.sampled_from(tree.brokers))
    plan = Plan(tree, delete(tree, broker))
    assert plan.undo.goal == tree
    assert [plan.done_at(each) for each in plan.trees] == list(range(len(plan) + 1))
    assert plan.done_at(Append("X", broker).apply(tree)) is None


def test_a_plan_that_does_not_work_is_none() -> None:
    with pytest.raises(ConfigurationError, match=r"step 2, SHIFT\(A, B, C\): there is no link"):
        Plan(LINE, [Shift("A", "B", "C"), Shift("A", "B", "C")])
    with pytest.raises(ConfigurationError, match="A-C is there, A-B is missing after the last one"):
        Plan(LINE, [Shift("A", "B", "C")], LINE)

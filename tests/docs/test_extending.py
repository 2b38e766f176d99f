"""Does the topology policy that a page shows find a cheaper tree, in a simulation that loses nothing?"""

from __future__ import annotations

from pathlib import Path

import pytest

from braid.adaptation.topology import add_policy
from braid.adaptation.topology.settings import OTHER_POLICIES
from tests.docs.runner import blocks_of
from tests.scenario.test_organising_brokers import core, costs, run

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


def test_the_policy_of_the_page_makes_a_cheaper_tree() -> None:
    blocks = blocks_of(PAGE.read_text(), PAGE.name)
    (program,) = [each.text for each in blocks if "class HalfPrice" in each.text]
    assert len(program.splitlines()) <= 50
    names: dict[str, object] = {}
    exec(program, names)
    add_policy("halfprice", names["HalfPrice"])  # type: ignore[arg-type]
    try:
        played, _ = run("halfprice")
    finally:
        del OTHER_POLICIES["halfprice"]
    _, prices, _ = costs(1)

    def cost(links: object) -> float:
        return sum(float(prices[int(a[1:]), int(b[1:])]) for a, b in links)  # type: ignore[attr-defined]

    before = {frozenset(link) for link in played.network.links}
    after = {
        frozenset((name, other))
        for name in played.network.brokers
        for other in core(played, name)._links.links
    }
    assert len(after) == len(before)
    assert cost(map(sorted, after)) < 0.8 * cost(map(sorted, before))

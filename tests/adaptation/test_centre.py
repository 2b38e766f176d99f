"""Is the tree with often-matching brokers in its middle a tree of that kind?"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.adaptation import centred_tree
from braid.errors import ConfigurationError
from braid.reconfiguration import OverlayTree


@given(
    st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.integers(0, 9), min_size=1, max_size=40),
    st.integers(2, 6),
)
def test_nobody_further_out_matches_more_often(matches: dict[str, int], degree_max: int) -> None:
    links = centred_tree(matches, matches, degree_max)
    tree = OverlayTree(links, list(matches))  # which refuses loops and parts
    assert max(map(tree.degree, tree.brokers)) <= degree_max
    middle = max(matches, key=lambda name: (matches[name], [-ord(letter) for letter in name]))
    middle = links[0][0] if links else middle
    assert matches[middle] == max(matches.values())
    by_distance = sorted(tree.brokers, key=lambda name: tree.distance(middle, name))
    for nearer, further in pairwise(by_distance):
        if tree.distance(middle, nearer) < tree.distance(middle, further):
            assert matches[nearer] >= matches[further]


def test_one_link_each_makes_no_tree() -> None:
    with pytest.raises(ConfigurationError, match="2 links"):
        centred_tree("ABC", {}, 1)

"""Do the right rows go to the right destinations, in a fixed order?"""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from braid.matching import GroupMatrix
from braid.matching.matcher import reached_by
from braid.routing import Forwarding, TreeForwarding

LINKS = ["south", "north", "east"]
GROUPS = ["south", ("client", 2), None, "north", "alice", ("client", 1), "east"]


@given(
    cells=st.lists(st.lists(st.booleans(), min_size=7, max_size=7), max_size=5),
    came_from=st.sampled_from(GROUPS),
    ordered=st.booleans(),
)
def test_every_destination_gets_the_rows_it_wants(
    cells: list[list[bool]], came_from: object, ordered: bool
) -> None:
    matrix = np.array(cells, np.bool_).reshape(-1, 7)
    matrix[:, GROUPS.index(None)] = False  # a number without a group, as the index leaves behind
    forwarding: Forwarding = TreeForwarding(LINKS)
    hops = forwarding.next_hops(reached_by(GroupMatrix(GROUPS, matrix)), came_from, ordered, len(matrix))
    rows = {group: list(range(len(matrix))) if some is None else some.tolist() for group, some in hops}
    assert rows == {
        group: [row for row in range(len(matrix)) if matrix[row, column]]
        for column, group in enumerate(GROUPS)
        if matrix[:, column].any() and group != came_from
    }
    assert all((some is None) == (len(rows[group]) == len(matrix)) for group, some in hops)
    order = ["east", "north", "south", ("client", 2), "alice", ("client", 1)]
    assert [group for group, _ in hops] == [group for group in order if group in rows]

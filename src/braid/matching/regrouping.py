"""How do filters of an index get another group?

When a link takes the place of another, thousands of subscriptions are for another destination, and nothing
else about them changes. So they stay where they are in the index; only the numbers of their groups are
written over, and what segments have noted of destinations is mended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from braid.matching.index import FilterIndex

__all__ = ["regroup"]


def regroup(index: FilterIndex[Any], slots: Sequence[int], group: Hashable) -> None:
    """Give the filters in these slots another group."""
    groups, group_of_slot = index._groups, index._group_of_slot
    by_home: dict[int, list[int]] = {}
    for slot in slots:
        former = int(group_of_slot[slot])
        group_of_slot[slot] = groups.enter(group)
        groups.leave(former)
        by_home.setdefault(int(index._home[slot]), []).append(slot)
    for home, moved in by_home.items():
        segment = index._segments.get(home)
        if segment is not None:
            segment.regroup(moved, group_of_slot)
        merge, sealing = index._merge, index._sealing
        if merge is not None and home in merge.sources:
            merge.regrouped += moved
        elif sealing is not None:
            sealing.regrouped += [slot for slot in moved if slot in index._full_tail]

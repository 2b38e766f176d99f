"""Do the publications of a batch take the ways that each would take alone?"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.routing import PATHS, MultipathForwarding, OverlayMap, WorkingMap
from braid.routing.multipath import Anchored

if TYPE_CHECKING:
    from collections.abc import Hashable

    from hypothesis.strategies import DrawFn

CENTRE = "X"


@st.composite
def surroundings(draw: DrawFn, brokers_max: int = 80) -> tuple[OverlayMap, list[str], list[str]]:
    """A map, the brokers with a link (more than 62 at times), and those of them that are candidates."""
    count = draw(st.integers(1, brokers_max))
    names = [f"B{number:02d}" for number in range(count)]
    parents = {name: draw(st.sampled_from([CENTRE, *names[:place]])) for place, name in enumerate(names)}
    overlay = OverlayMap(CENTRE, parents)
    farther = [name for name in names if name not in overlay.neighbours]
    soft = [name for name in farther if draw(st.booleans())]
    candidates = [name for name in soft if draw(st.integers(0, 3)) == 0]
    return overlay, [*overlay.neighbours, *soft], candidates


@settings(max_examples=60, deadline=None)
@given(surroundings(), st.sampled_from(sorted(PATHS)), st.integers(1, 40), st.data())
def test_a_batch_goes_where_its_rows_would_go_alone(
    around: tuple[OverlayMap, list[str], list[str]], strategy: str, rows: int, data: st.DataObject
) -> None:
    overlay, links, candidates = around
    meant: Counter[str] = Counter()

    def sent(broker: str, publications: int) -> None:
        meant[broker] += publications

    forwarding = MultipathForwarding(set(overlay.neighbours), sent)
    forwarding.use(WorkingMap(overlay, links, candidates), PATHS[strategy])
    wanted = data.draw(
        st.dictionaries(
            st.sampled_from(overlay.brokers), st.sets(st.integers(0, rows - 1), min_size=1), max_size=8
        )
    )
    came_from = data.draw(st.sampled_from([None, *overlay.neighbours]))
    destinations: dict[Hashable, set[int]] = {
        Anchored(overlay.toward(broker), broker): chosen for broker, chosen in wanted.items()
    }
    destinations["local client"] = {0}
    together = forwarding.next_hops(
        [
            (destination, None if len(chosen) == rows else np.array(sorted(chosen), np.int64))
            for destination, chosen in destinations.items()
        ],
        came_from,
        False,
        rows,
    )
    found: dict[Hashable, list[int]] = {
        hop: list(range(rows)) if chosen is None else chosen.tolist() for hop, chosen in together
    }
    meant_together, meant = meant, Counter()
    alone: dict[Hashable, list[int]] = {}
    for row in range(rows):
        reached = [(destination, None) for destination, chosen in destinations.items() if row in chosen]
        for hop, _ in forwarding.next_hops(reached, came_from, False, 1):
            alone.setdefault(hop, []).append(row)
    assert found == alone
    assert meant_together == meant
    assert [hop for hop, _ in together if hop != "local client"] == sorted(
        alone.keys() - {"local client"}, key=str
    )

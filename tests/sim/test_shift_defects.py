"""Are the defects found that the checks of operations are for? Each is planted, and must be seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from braid.broker.copying import Copying
from braid.broker.fair_queue import FairQueue
from braid.broker.operations import Changing
from braid.broker.reconfigurations import Reconfigurations
from braid.errors import BraidError
from braid.protocol.changes import ChangeReady
from tests.sim.shift_crossings import Crossing
from tests.sim.shift_faults import Case, ShiftFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from braid.broker.operations import Operation
    from braid.broker.parties import Link
    from braid.protocol.messages import Unsubscribe


def nothing_is_held(patch: pytest.MonkeyPatch) -> None:
    """Publications go on behind the markers."""
    patch.setattr(Changing, "held", lambda self, party, kind: False)


def resumed_before_the_last_subscription(patch: pytest.MonkeyPatch) -> None:
    """Publications go on while entries are still on their way."""
    patch.setattr(Reconfigurations, "_part_done", lambda self, operation: True)


def nobody_is_let_in_again(patch: pytest.MonkeyPatch) -> None:
    """What was held at the door stays there: its senders never get credit again."""
    patch.setattr(FairQueue, "resume", lambda self, event: None)


CALM = Case("never", "I", "crash", "I")


@pytest.mark.parametrize(
    ("plant", "busy"),
    [
        (nothing_is_held, True),
        (resumed_before_the_last_subscription, False),
        (nobody_is_let_in_again, False),
    ],
    ids=lambda each: getattr(each, "__name__", str(each)),
)
def test_a_planted_defect_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], busy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, BraidError)):
        ShiftFault(CALM, acknowledged=not busy, busy=busy).go()


def moved_entries_forgotten(patch: pytest.MonkeyPatch) -> None:
    """What the broker before takes back is forgotten until it is told anew over the new link."""

    def forget(self: Copying, link: Link, message: Unsubscribe) -> None:
        self._words.unsubscribe_link(link, message)

    patch.setattr(Copying, "unsubscribed", forget)


def new_link_is_slow() -> Crossing:
    """The old neighbour has taken back what moved long before it is told over the new link."""
    return Crossing(slow="IK")


def test_entries_that_moved_and_were_forgotten_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    new_link_is_slow().go()  # without the defect nobody misses anything
    moved_entries_forgotten(monkeypatch)
    with pytest.raises(BraidError, match="never got it"):
        new_link_is_slow().go()


def marker_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    """A broker amid the path says that it is ready while publications still come from further on."""
    ask = Reconfigurations._ask_to_prepare

    def ask_and_go_on(self: Reconfigurations, operation: Operation) -> None:
        ask(self, operation)
        if not operation.first:
            after = self._neighbours[operation.after]
            self.ready(after, ChangeReady(operation.id, after.name, operation.epoch))

    patch.setattr(Reconfigurations, "_ask_to_prepare", ask_and_go_on)


def queue_towards_the_old_neighbour() -> Crossing:
    """The new neighbour has a long queue of publications for the old one, and nothing comes the other way."""
    return Crossing(writers="KY", window_bytes=2_048, period_us=300)


def test_a_marker_that_is_not_waited_for_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    queue_towards_the_old_neighbour().go()  # without the defect nobody misses anything
    marker_not_waited_for(monkeypatch)
    with pytest.raises(BraidError, match="never got it"):
        queue_towards_the_old_neighbour().go()

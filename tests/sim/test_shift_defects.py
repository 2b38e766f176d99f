"""Are the defects found that the checks of operations are for? Each is planted, and must be seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from braid.broker.fair_queue import FairQueue
from braid.broker.operations import Changing
from braid.broker.reconfigurations import Reconfigurations
from braid.errors import BraidError
from tests.sim.shift_faults import Case, ShiftFault

if TYPE_CHECKING:
    from collections.abc import Callable


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

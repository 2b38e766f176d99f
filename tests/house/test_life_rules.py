"""Does only the table assign a stage, and only its owner take a step?"""

from __future__ import annotations

import pytest

from tests.house.life_rules import OWNERS, stages_are_assigned_by_the_table, steps_are_taken_by_their_owner
from tests.house.rules import Module
from tests.house.test_house import MODULES


def test_stages_are_assigned_by_the_table_alone() -> None:
    complaints = [complaint for module in MODULES for complaint in stages_are_assigned_by_the_table(module)]
    assert complaints == [], "\n".join(complaints)


def test_steps_are_taken_by_their_owners_alone() -> None:
    complaints = [complaint for module in MODULES for complaint in steps_are_taken_by_their_owner(module)]
    assert complaints == [], "\n".join(complaints)


def test_the_owners_are_there() -> None:
    """Otherwise a rename would leave the rule without anything to look at."""
    assert {name for names in OWNERS.values() for name in names} <= {module.name for module in MODULES}


@pytest.mark.parametrize(
    "source",
    [
        "link.stage = OPEN",
        "def f(link):\n    link.stage, other = OPEN, 1",
        "class Other:\n    def f(self):\n        self.link.stage = OPEN",
        "setattr(link, 'stage', OPEN)",
        "object.__setattr__(link, 'stage', OPEN)",
    ],
)
def test_an_assignment_elsewhere_is_seen(source: str) -> None:
    assert len(stages_are_assigned_by_the_table(Module("braid.broker.links", source))) == 1


@pytest.mark.parametrize("source", ["stage = OPEN", "class Link:\n    stage: LinkStage", "f(link.stage)"])
def test_what_is_no_assignment_is_left_alone(source: str) -> None:
    assert stages_are_assigned_by_the_table(Module("braid.broker.links", source)) == []


@pytest.mark.parametrize("source", ["link.step(LinkStep.BEGUN)", "link.step(link_life.LinkStep.BEGUN)"])
def test_a_step_of_somebody_else_is_seen(source: str) -> None:
    assert len(steps_are_taken_by_their_owner(Module("braid.broker.draining", source))) == 1
    assert steps_are_taken_by_their_owner(Module("braid.broker.links", source)) == []

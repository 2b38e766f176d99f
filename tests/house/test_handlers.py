"""Do the handlers of a broker know little of each other? And can the counting see it when they do not?"""

from __future__ import annotations

from pathlib import Path

import braid.errors
from tests.house.handlers import PARTS, figures, figures_of_directory

BROKER = Path(braid.errors.__file__).parent / "broker"

# These may only fall.
REFERENCES_MAX = 60
REACH_THROUGHS_MAX = 0
HOOKS_MAX = 0
CONSTRUCTOR_LINES_MAX = 68


def test_handlers_know_no_more_of_each_other_than_before() -> None:
    found = figures_of_directory(BROKER)
    assert len(found.references) <= REFERENCES_MAX, "\n".join(found.references)
    assert len(found.reach_throughs) <= REACH_THROUGHS_MAX, "\n".join(found.reach_throughs)
    assert len(found.hooks) <= HOOKS_MAX, "\n".join(found.hooks)
    assert max(found.constructors.values()) <= CONSTRUCTOR_LINES_MAX, found.constructors


def test_the_parts_are_there() -> None:
    """Otherwise a rename would make them handlers of their own, or nothing."""
    constructors = figures_of_directory(BROKER).constructors
    assert {*PARTS, *PARTS.values()} <= constructors.keys()


MADE_UP = """
class Links:
    def __init__(self, turn: Turn) -> None:
        self.ready = False
        self.attempts = Attempts(turn)

    def begin(self):
        self.attempts.due()

class Attempts:
    def __init__(self, turn: Turn) -> None:
        self.next_us = 0

class Operator:
    def __init__(self, turn: Turn, links: Links, ask: Callable[[Links], bool]) -> None:
        self._turn = turn
        self._links = links
        self._ask = ask
"""


def counted(body: str) -> tuple[int, int, int]:
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    found = figures([MADE_UP + "\n    def work(self) -> None:\n" + lines])
    return len(found.references), len(found.reach_throughs), len(found.hooks)


def test_a_part_that_a_handler_makes_for_itself_is_its_own() -> None:
    assert counted("pass") == (0, 0, 0)


def test_references_are_counted_wherever_they_stand() -> None:
    assert counted("return self._links.ready") == (1, 0, 0)
    assert counted("links = self._links\nreturn links.ready or links.begin()") == (2, 0, 0)
    assert counted("return self._turn.now_us") == (0, 0, 0)
    assert counted("return self._ask(3)") == (0, 0, 0)


def test_reaching_through_is_counted_beside_the_reference() -> None:
    assert counted("return self._links.attempts.next_us") == (1, 1, 0)


def test_hooks_are_seen_where_they_are_assigned_and_where_they_are_declared() -> None:
    assert counted("self._links.when_ready = self.work")[2] == 1
    declared = MADE_UP + "        self.when_done: Callable[[], None] = _nothing\n"
    assert len(figures([declared]).hooks) == 1
    given = MADE_UP + "        self.when_done: Callable[[Links], bool] = ask\n"
    assert figures([given]).hooks == []

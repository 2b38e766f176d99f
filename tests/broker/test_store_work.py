"""Is everything asked of the store in its turn, whatever the store refuses?"""

from __future__ import annotations

import pytest

from braid.broker.events import Events
from braid.broker.postroom import Postroom
from braid.broker.settings import BrokerSettings
from braid.broker.store_work import StoreWork
from braid.protocol.effects import Note, Persist
from braid.protocol.inputs import Persisted
from braid.protocol.log import ForgetNeighbour


class Desk:
    """A store that is asked for work, and answers when and what a test says."""

    def __init__(self) -> None:
        self.postroom = Postroom(BrokerSettings(broker_id="A"), Events())
        self.safe: list[int] = []
        self.work = StoreWork(self.postroom, {int: self.safe.append})
        self.asked: list[int] = []
        self.notes: list[str] = []

    def ask(self, number: int) -> None:
        self.work.ask(ForgetNeighbour(str(number)))
        self.work.when_safe(number)
        self.work.collect()
        self._collect()

    def answer(self, token: int, error: str | None = None, *, temporary: bool = False) -> None:
        self.work.persisted(Persisted(token, error, temporary=temporary))
        self._collect()

    def wait(self, us: int) -> None:
        self.postroom.now_us += us
        self.work.review()
        self._collect()

    def _collect(self) -> None:
        effects = self.postroom.collect()
        self.asked += [effect.token for effect in effects if isinstance(effect, Persist)]
        self.notes += [effect.what for effect in effects if isinstance(effect, Note)]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_what_fails_because_something_before_it_was_refused_is_asked_for_again(desk: Desk) -> None:
    """A store that is behind refuses one piece and may take the next, which leaves a gap then."""
    for number in (1, 2, 3):
        desk.ask(number)
    desk.answer(2, "the store is behind", temporary=True)
    desk.answer(1)
    assert desk.asked == [1, 2, 3, 2], "there is room, so what was refused is asked for at once"
    desk.answer(3, "rows were to be appended at another offset")
    assert not desk.work.broken
    desk.answer(2)
    assert desk.asked == [1, 2, 3, 2, 3]
    desk.answer(3)
    assert desk.safe == [1, 2, 3]
    assert not desk.work.failed
    assert desk.notes == ["the store takes nothing and is tried again", "the store works again"]


def test_what_follows_a_refusal_waits_for_it(desk: Desk) -> None:
    for number in (1, 2):
        desk.ask(number)
    desk.answer(2, "the store is behind", temporary=True)
    desk.ask(3)
    assert desk.asked == [1, 2]
    desk.answer(1)
    desk.answer(2)
    assert desk.asked == [1, 2, 2], "as one piece with it"
    assert desk.safe == [1, 2, 3]


def test_a_failure_in_its_turn_is_final(desk: Desk) -> None:
    for number in (1, 2):
        desk.ask(number)
    desk.answer(1, "no room", temporary=True)
    desk.answer(2)
    desk.wait(600_000)
    assert desk.asked == [1, 2, 1]
    desk.answer(1, "the file is no database")
    assert desk.work.broken
    assert desk.safe == [2]

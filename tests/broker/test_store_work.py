"""Is everything asked of the store in its turn, whatever the store refuses?"""

from __future__ import annotations

import pytest

from braid.broker.events import Events
from braid.broker.settings import BrokerSettings
from braid.broker.store_work import StoreWork
from braid.broker.turn import Turn
from braid.protocol.effects import Note, Persist
from braid.protocol.inputs import Persisted
from braid.protocol.log import ForgetNeighbour


class AskedStore:
    """A store that is asked for work, and answers when and what a test says."""

    def __init__(self) -> None:
        self.turn = Turn(BrokerSettings(broker_id="A"), Events())
        self.safe: list[int] = []
        self.work = StoreWork(self.turn, {int: self.safe.append})
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
        self.turn.now_us += us
        self.work.review()
        self._collect()

    def _collect(self) -> None:
        effects = self.turn.collect()
        self.asked += [effect.token for effect in effects if isinstance(effect, Persist)]
        self.notes += [effect.what for effect in effects if isinstance(effect, Note)]


@pytest.fixture
def asked_store() -> AskedStore:
    return AskedStore()


def test_what_fails_because_something_before_it_was_refused_is_asked_for_again(
    asked_store: AskedStore,
) -> None:
    """A store that is behind refuses one piece and may take the next, which leaves a gap then."""
    for number in (1, 2, 3):
        asked_store.ask(number)
    asked_store.answer(2, "the store is behind", temporary=True)
    asked_store.answer(1)
    assert asked_store.asked == [1, 2, 3, 2], "there is room, so what was refused is asked for at once"
    asked_store.answer(3, "rows were to be appended at another offset")
    assert not asked_store.work.broken
    asked_store.answer(2)
    assert asked_store.asked == [1, 2, 3, 2, 3]
    asked_store.answer(3)
    assert asked_store.safe == [1, 2, 3]
    assert not asked_store.work.failed
    assert asked_store.notes == ["the store takes nothing and is tried again", "the store works again"]


def test_what_follows_a_refusal_waits_for_it(asked_store: AskedStore) -> None:
    for number in (1, 2):
        asked_store.ask(number)
    asked_store.answer(2, "the store is behind", temporary=True)
    asked_store.ask(3)
    assert asked_store.asked == [1, 2]
    asked_store.answer(1)
    asked_store.answer(2)
    assert asked_store.asked == [1, 2, 2], "as one piece with it"
    assert asked_store.safe == [1, 2, 3]


def test_a_failure_in_its_turn_is_final(asked_store: AskedStore) -> None:
    for number in (1, 2):
        asked_store.ask(number)
    asked_store.answer(1, "no room", temporary=True)
    asked_store.answer(2)
    asked_store.wait(600_000)
    assert asked_store.asked == [1, 2, 1]
    asked_store.answer(1, "the file is no database")
    assert asked_store.work.broken
    assert asked_store.safe == [2]

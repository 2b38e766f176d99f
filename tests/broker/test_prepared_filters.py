"""A long filter that the driver has had read is not read again in a turn, whatever it is for."""

from __future__ import annotations

import pytest

from braid.language.reading import prepare
from braid.protocol.messages import Advertise, Failed, Message, Subscribe
from tests.broker.test_turns import Driver
from tests.language.test_reading import LONGEST, require_no_reading

MISTAKEN = LONGEST.rstrip() + " AND"


@pytest.mark.parametrize("text", [LONGEST, MISTAKEN])
@pytest.mark.parametrize("kind", [Subscribe, Advertise])
def test_of_a_client(kind: type[Message], text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Driver()
    alice = broker.client(1)
    prepare(text)
    require_no_reading(monkeypatch)
    broker.ask(alice, kind(1, "mine", text))
    broker.turns(10)
    if text == LONGEST:
        assert broker.done(alice) == 1
    else:
        (answer,) = [each for each in broker.heard[alice] if isinstance(each, Failed)]
        assert "expected" in answer.reason


@pytest.mark.parametrize("text", [LONGEST, MISTAKEN])
def test_of_a_neighbour(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Driver()
    neighbour = broker.neighbour(2)
    prepare(text)
    require_no_reading(monkeypatch)
    broker.ask(neighbour, Subscribe(1, "B/1", text), Advertise(2, "B/2", text))
    broker.turns(10)
    assert neighbour not in broker.closed
    assert broker.core.snapshot().subscriptions == (text == LONGEST)

"""Is every internal event heard of, by those and in the order that the table says?"""

from __future__ import annotations

import dataclasses

import pytest

from braid.broker import events as told
from braid.broker.access import AccessPolicy
from braid.broker.composition import Composition
from braid.broker.events import EVENTS, Events, MapChanged, Ready
from braid.broker.message_table import OF_ANYBODY, OF_PARTIES
from braid.broker.settings import BrokerSettings
from braid.errors import LocalProtocolError


def test_those_concerned_hear_of_an_event_at_once_and_in_order() -> None:
    heard: list[str] = []
    events = Events()
    table = dict.fromkeys(EVENTS, ())
    # What the first one causes is heard of before the second one hears of the cause.
    table[Ready] = (
        lambda broker, event: events.tell(MapChanged()),
        lambda broker, event: heard.append(f"{broker} is ready"),
    )
    table[MapChanged] = (lambda broker, event: heard.append(f"the map of {broker}"),)
    events.use(table, "A")
    events.tell(Ready())
    assert heard == ["the map of A", "A is ready"]


def test_a_table_that_forgets_an_event_is_refused() -> None:
    table = {kind: () for kind in EVENTS if kind is not Ready}
    with pytest.raises(LocalProtocolError, match="Ready"):
        Events().use(table, None)


def test_a_table_with_what_is_no_event_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="int"):
        Events().use({**dict.fromkeys(EVENTS, ()), int: ()}, None)


def test_every_event_there_is_can_be_told_and_cannot_be_changed() -> None:
    defined = {
        kind for kind in vars(told).values() if isinstance(kind, type) and dataclasses.is_dataclass(kind)
    }
    assert set(EVENTS) == defined
    assert all(kind.__dataclass_params__.frozen for kind in EVENTS)


@pytest.fixture
def broker() -> Composition:
    settings = BrokerSettings(broker_id="A", address="A")
    return Composition(settings, "A-1", 1, AccessPolicy.open(), None, None, None)


def test_every_message_that_has_a_handler_has_one_that_exists(broker: Composition) -> None:
    tables = (OF_ANYBODY, *OF_PARTIES.values())
    assert all(callable(find(broker)) for table in tables for find in table.values())


def test_in_a_broker_every_event_is_heard_of(broker: Composition) -> None:
    assert broker.events.table.keys() == set(EVENTS)
    assert all(broker.events.table.values()), "an event of which nobody hears need not be told"

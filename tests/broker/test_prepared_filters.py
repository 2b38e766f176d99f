"""A long filter that the driver has had read is not read again in a turn, whatever it is for."""

from __future__ import annotations

import pytest

from braid.broker.access import AccessPolicy, Grant, Principal, hashed_token
from braid.language import Filter
from braid.language.reading import prepare
from braid.protocol.effects import Granted
from braid.protocol.inputs import Reconfigured
from braid.protocol.messages import Advertise, Done, Failed, Message, Subscribe, SubscribeDurable
from tests.broker.test_turns import Driver
from tests.broker.wire import Network
from tests.language.test_reading import GRANTED, LONGEST, require_no_comparing, require_no_reading

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


def with_grant(granted: str, *, narrow: bool) -> AccessPolicy:
    grant = Grant(Filter(granted), Filter(granted), narrow=narrow)
    principals = {"till": Principal("till", grant)}
    return AccessPolicy(principals=principals, tokens={hashed_token("till"): "till"})


@pytest.mark.parametrize("narrow", [True, False])
@pytest.mark.parametrize("kind", [Subscribe, Advertise])
def test_of_a_client_who_may_have_only_a_part_of_it(
    kind: type[Message], narrow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Driver(with_grant(GRANTED, narrow=narrow))
    effects = broker.greet(1, token="till")
    (granted,) = [each for each in effects if isinstance(each, Granted)]
    assert granted == Granted(1, GRANTED, GRANTED, narrow)
    prepare(LONGEST, GRANTED, narrow=narrow)
    require_no_reading(monkeypatch)
    require_no_comparing(monkeypatch)
    broker.ask(1, kind(1, "mine", LONGEST))
    broker.turns(10)
    if narrow:
        assert broker.done(1) == 1
    else:
        (answer,) = [each for each in broker.heard[1] if isinstance(each, Failed)]
        assert "may only" in answer.reason


def test_a_driver_hears_of_another_grant() -> None:
    broker = Driver(with_grant(GRANTED, narrow=True))
    broker.greet(1, token="till")
    effects = broker.tell(Reconfigured(access=with_grant("c > 2", narrow=True)))
    assert [each for each in effects if isinstance(each, Granted)] == [Granted(1, "c > 2", "c > 2", True)]
    effects = broker.tell(Reconfigured(access=with_grant("TRUE", narrow=True)))
    assert [each for each in effects if isinstance(each, Granted)] == [Granted(1, "", "", True)]
    assert not any(isinstance(each, Granted) for each in Driver().greet(1))


def test_of_a_durable_subscription(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when it is resumed by one who says again what was asked for."""
    network = Network()
    network.start("A", store=True, access=with_grant(GRANTED, narrow=True))
    network.run(us=1_000_000)
    prepare(LONGEST, GRANTED, narrow=True)
    require_no_reading(monkeypatch)
    require_no_comparing(monkeypatch)
    for _ in range(2):
        client = network.client("till", "A", token="till")
        client.ask(SubscribeDurable(1, "log", LONGEST))
        network.run(us=1_000_000)
        assert len(client.answers(Done)) == 1
        network.leave(client)
        network.run(us=100_000)


@pytest.mark.parametrize("text", [LONGEST, MISTAKEN, f"({LONGEST}) AND ({GRANTED}){' ' * 200_000}"])
def test_of_a_neighbour(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Driver()
    neighbour = broker.neighbour(2)
    prepare(text)
    require_no_reading(monkeypatch)
    broker.ask(neighbour, Subscribe(1, "B/1", text), Advertise(2, "B/2", text))
    broker.turns(10)
    assert neighbour not in broker.closed
    assert broker.core.snapshot().subscriptions == (text != MISTAKEN)

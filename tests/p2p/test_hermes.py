"""Hermes, the system that DMM is compared with: every subscriber gets what it wants, filtered on the way."""

from __future__ import annotations

import random
from typing import Any

import pytest

from braid.errors import ConfigurationError
from braid.language import Filter, Publication
from braid.p2p.dht.pastry import Pastry
from braid.p2p.dht.pastry_settings import PastrySettings
from braid.p2p.dmm import DmmSettings, Interests
from braid.p2p.hermes import HERMES_MESSAGES, Hermes, Rising, Sinking
from braid.p2p.peer import Peer, peer_vocabulary
from braid.p2p.turn import Turn
from braid.protocol.effects import Delivery, Effect, SendTo
from tests.language.strategies import Maker
from tests.p2p.networks import SCHEMA
from tests.p2p.wire import Wire


class HermesNetwork(Wire):
    """Peers `p0`, `p1` and so on."""

    def __init__(self, count: int) -> None:
        super().__init__(self._peer)
        self.vocabulary = peer_vocabulary(HERMES_MESSAGES)
        self.delivered: list[tuple[str, str]] = []
        self.wanted: dict[tuple[str, str, str], Filter] = {}
        self.carrying = 0
        for number in range(count):
            self.add(f"p{number}", [f"p{number // 2}"] if number else [])
            self.run(2)
        self.run(30)

    def _peer(self, address: str, bootstrap: list[str]) -> Peer:
        turn = Turn()
        dht = Pastry(turn, address, PastrySettings(leaf_set=4))
        interests = Interests(DmmSettings(algorithm="DMM"), SCHEMA)
        return Peer(turn, dht, Hermes(turn, dht, interests=interests), bootstrap)

    def hermes(self, address: str) -> Hermes:
        application: Any = self.peers[address].application
        return application  # type: ignore[no-any-return]

    def subscribe(self, address: str, of: str, key: str, text: str) -> None:
        self.wanted[address, of, key] = Filter(text)
        self.act(address, lambda peer: self.hermes(address).subscribe(of, key, Filter(text), self.now_us))

    def unsubscribe(self, address: str, of: str, key: str) -> None:
        del self.wanted[address, of, key]
        self.act(address, lambda peer: self.hermes(address).unsubscribe(of, key, self.now_us))

    def publish(self, address: str, of: str, attributes: dict[str, Any]) -> None:
        def act(peer: Peer) -> None:
            self.hermes(address).advertise(of, self.now_us)
            self.hermes(address).publish(of, Publication(attributes), self.now_us)

        self.act(address, act)

    def require_right(self, address: str, of: str, attributes: dict[str, Any]) -> None:
        self.delivered.clear()
        self.publish(address, of, attributes)
        self.run(3)
        expected = sorted(
            (peer, key)
            for (peer, wanted, key), each in self.wanted.items()
            if wanted == of and peer in self.peers and each.matches(attributes)
        )
        assert sorted(self.delivered) == expected

    def _perform(self, source: str, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Delivery):
                self.delivered += [(source, key) for key in effect.subscriptions]
            elif isinstance(effect, SendTo):
                self.carrying += sum(isinstance(each, Rising | Sinking) for each in effect.messages)
        super()._perform(source, effects)


def test_what_is_delivered_is_what_the_plain_loop_says() -> None:
    network, maker = HermesNetwork(14), Maker(random.Random(8))
    for number in range(50):
        of = maker.random.choice(("quote", "trade"))
        network.subscribe(f"p{maker.random.randrange(14)}", of, f"s{number}", maker.filter())
    network.run(5)
    for number in range(40):
        of = maker.random.choice(("quote", "trade"))
        network.require_right(f"p{number % 14}", of, dict(maker.publication()))
    for address, of, key in list(network.wanted)[::2]:
        network.unsubscribe(address, of, key)
    network.run(5)
    for number in range(20):
        network.require_right(f"p{number % 14}", "quote", dict(maker.publication()))
    assert {key for _, of, key in network.wanted if of == "quote"}


def test_after_crashes_everything_is_told_again() -> None:
    network = HermesNetwork(16)
    for number in range(16):
        network.subscribe(f"p{number}", "quote", f"s{number}", f"i >= {number - 8}")
    network.run(5)
    for number in (1, 4, 9):
        network.kill(f"p{number}")
    network.run(120)
    for value in (-8, 0, 8):
        network.require_right("p0", "quote", {"i": value})


def test_publications_are_filtered_on_the_way_and_types_are_advertised() -> None:
    network = HermesNetwork(20)
    for number in range(20):
        network.subscribe(f"p{number}", "quote", "mine", f"i = {number}")
    network.run(5)
    network.carrying = 0
    for number in range(20):
        network.require_right("p3", "quote", {"i": 100 + number})
    assert network.carrying <= 20 * 3  # only the way up
    with pytest.raises(ConfigurationError, match="is not advertised here"):
        network.hermes("p3").publish("rumour", Publication({"i": 1}), network.now_us)


def test_filters_do_not_decide_if_tables_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The defect that the plain loop is there for: children are forgotten."""
    monkeypatch.setattr(Hermes, "_on_asked", lambda *rest: None)
    with pytest.raises(AssertionError):
        test_after_crashes_everything_is_told_again()

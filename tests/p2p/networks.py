"""Networks of publish/subscribe peers for tests: what each subscriber got, and what it should have got."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from braid.language import Filter, Publication
from braid.p2p.dht.pastry import Pastry
from braid.p2p.dht.pastry_settings import PastrySettings
from braid.p2p.dht.ring import Ring, RingSettings
from braid.p2p.dmm import DMM_MESSAGES, Dmm, DmmSettings, Interests
from braid.p2p.peer import Peer, peer_vocabulary
from braid.p2p.schema import NetworkSchema
from braid.p2p.turn import Turn
from braid.protocol.effects import Delivery
from tests.p2p.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from braid.language import Value
    from braid.p2p.dht.interface import Dht
    from braid.p2p.dmm.regions import State
    from braid.protocol.effects import Effect

__all__ = ["SCHEMA", "Network"]

# Of the attributes that the language tests use, with domains that are soon halved to the end.
SCHEMA = NetworkSchema(
    {
        "i": {"kind": "integer", "low": -8, "high": 8},
        "x": {"kind": "float"},
        "s": {"kind": "string", "length_max": 2},
        "p": {"kind": "boolean"},
    }
)


class Network(Wire):
    """Peers by the names `p0`, `p1` and so on, joined one after the other, and all that was delivered."""

    def __init__(
        self,
        count: int,
        settings: DmmSettings,
        dht: str = "ring",
        schema: NetworkSchema | None = None,
        seed: int = 1,
        loss: float = 0.0,
        pastry: PastrySettings | None = None,
    ) -> None:
        super().__init__(self._peer, seed, 0.0)
        self.settings = settings
        self.dht = dht
        self.schema = schema
        self.pastry = pastry or PastrySettings(leaf_set=4)
        self.ring = RingSettings(acknowledged=self.pastry.acknowledged)
        self.vocabulary = peer_vocabulary(DMM_MESSAGES)
        self.delivered: list[tuple[str, str, str, int]] = []
        """Peer, key of the subscription, publisher and number."""
        for number in range(count):
            self.add(f"p{number}", [f"p{number // 2}"] if number else [])
            self.run(2)
        self.run(30)
        self.loss = loss

    def _peer(self, address: str, bootstrap: list[str]) -> Peer:
        turn = Turn()
        dht: Dht = (
            Ring(turn, address, self.ring) if self.dht == "ring" else Pastry(turn, address, self.pastry)
        )
        interests = Interests(self.settings, self.schema)
        return Peer(turn, dht, Dmm(turn, dht, self.settings, interests), bootstrap)

    def dmm(self, address: str) -> Dmm:
        application: Any = self.peers[address].application
        assert isinstance(application, Dmm)
        return application

    def subscribe(self, address: str, key: str, text: str, *, confirm: bool = False) -> None:
        self.act(
            address,
            lambda peer: self.dmm(address).subscribe(key, Filter(text), self.now_us, confirm=confirm),
        )

    def run_until_installed(self, address: str, key: str, seconds_max: float = 60) -> None:
        """Let time pass until a peer says that what it has subscribed to is installed, and no longer."""
        until_us = self.now_us + int(seconds_max * 1e6)
        while key not in self.dmm(address).take_installed():
            assert self.now_us < until_us, f"{key} at {address} is not installed"
            self.run(0.001)

    def unsubscribe(self, address: str, key: str) -> None:
        self.act(address, lambda peer: self.dmm(address).unsubscribe(key, self.now_us))

    def publish(self, address: str, attributes: Mapping[str, Value]) -> None:
        self.act(address, lambda peer: self._publish(address, attributes))

    def _publish(self, address: str, attributes: Mapping[str, Value]) -> None:
        self.dmm(address).publish(Publication(attributes), self.now_us)

    def interested(self, attributes: Mapping[str, Value]) -> list[tuple[str, str]]:
        """The plain loop: every subscription that a publication satisfies, by peer and key."""
        return sorted(
            (address, key)
            for address in self.peers
            for key, wanted in self.dmm(address).subscriptions.items()
            if wanted.matches(attributes)
        )

    def regions(self, state: State) -> int:
        """How many regions there are of a state."""
        return sum(
            region.state is state
            for address in self.peers
            for region in self.dmm(address).site.holding.regions.values()
        )

    def taken(self) -> list[tuple[str, str]]:
        """What was delivered since the last time, by peer and key."""
        found = sorted((address, key) for address, key, _, _ in self.delivered)
        self.delivered.clear()
        return found

    def _perform(self, source: str, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Delivery):
                for key in effect.subscriptions:
                    publication = effect.publication
                    self.delivered.append((source, key, publication.publisher, publication.sequence))
        super()._perform(source, effects)

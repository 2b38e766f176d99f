"""Worlds in which a broker is replaced by another process that takes its name.

Hosts have names of their own: that of a replica is its address, and the broker on it is called as the one
whose place it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from braid.broker.core import BrokerCore
from braid.broker.identities import granted_key
from braid.broker.settings import BrokerSettings
from braid.protocol.log import KeepStanding
from tests.sim.operator_station import OperatorStation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from braid.sim import Birth, World

__all__ = ["KEY", "Failover", "replica"]

KEY = "the key of the replica"


def replica(
    address: str,
    name: str,
    epoch: int,
    neighbours: Sequence[str],
    *,
    resumption: str = "",
    **settings: Any,
) -> Callable[[Birth], BrokerCore]:
    """Makes a broker that runs in the place of another one, at an address of its own."""
    standing = KeepStanding(name, epoch, KEY, tuple((each, each) for each in neighbours), resumption)
    chosen = BrokerSettings(
        broker_id=name, address=address, neighbours=tuple(neighbours), expected=tuple(neighbours), **settings
    )

    def make(birth: Birth) -> BrokerCore:
        return BrokerCore(
            chosen, incarnation=birth.incarnation, seed=birth.seed, store=birth.store, standing=standing
        )

    return make


class Failover:
    """An operator who has a broker replaced: asks its neighbours, and starts the replica."""

    def __init__(
        self, world: World, name: str, neighbours: Sequence[str], address: str, epoch: int = 1
    ) -> None:
        self.world = world
        self.name, self.neighbours, self.address, self.epoch = name, tuple(neighbours), address, epoch
        self._operators = {
            each: world.attach(OperatorStation(f"replaces {name} by {address} at {each}", each))
            for each in neighbours
        }
        world.run_for(us=50_000)  # until they are connected
        self.refusals: list[str] = []
        """The codes with which neighbours refused, in order."""

    def ask(self, neighbour: str) -> dict[str, Any]:
        """Ask one neighbour to grant the name; returns its answer."""
        operator = self._operators[neighbour]
        request = operator.ask(
            "grant",
            name=self.name,
            address=self.address,
            epoch=str(self.epoch),
            key=granted_key(KEY, neighbour),
        )
        for _ in range(2_000):
            if request in operator.answers:
                return operator.answers[request]
            self.world.run_for(us=1_000)
        raise AssertionError(f"{neighbour} does not answer")

    def grants(self, seconds: float = 60.0) -> None:
        """Have all neighbours grant the name, however long the old process may take to notice."""
        until_us = self.world.now_us + round(seconds * 1_000_000)
        for neighbour in self.neighbours:
            while (code := self.ask(neighbour).get("code")) is not None:
                self.refusals.append(code)
                assert code in ("lease", "up"), f"{neighbour}: {code}"
                assert self.world.now_us < until_us, f"{neighbour} does not grant it in time: {code}"
                self.world.run_for(us=100_000)

    def start(self, *, store: bool = False, **settings: Any) -> None:
        """Start the replica."""
        self.world.add(
            self.address,
            replica(self.address, self.name, self.epoch, self.neighbours, **settings),
            store=store,
        )

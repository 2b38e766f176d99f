"""Moves the brokers that match often toward the middle of a simulated network while it delivers.

It does what an operator of a real network would: look at how much each broker has delivered, find a better
tree (`braid.adaptation.centre`), and ask one broker after the other to move there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.adaptation import centred_tree
from braid.protocol.messages import Ask, Done, Failed
from braid.reconfiguration import OverlayTree, delta_moved, delta_moves
from braid.sim import Station

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from braid.protocol.messages import Message
    from braid.sim import World
    from braid.sim.topologies import Topology

__all__ = ["Centring"]

# Operators are connected by then.
CONNECT_US = 100_000
# A broker that refuses for the moment is asked again after this time, so often.
AGAIN_US = 250_000
ASKED_MAX = 20


class Centring:
    """Moves brokers, one after the other.

    Args:
        world: where they are.
        network: the tree that they begin with.
        degree_max: how many links of the tree a broker is to have at most in the end.
        matches: how often each broker has matched so far.
    """

    def __init__(
        self, world: World, network: Topology, degree_max: int, matches: Callable[[], Mapping[str, float]]
    ) -> None:
        self._world = world
        self._tree = OverlayTree(network.links, network.brokers)
        self._degree_max = degree_max
        self._matches = matches
        self._operators: dict[str, Station] = {}
        self._waiting: list[tuple[str, ...]] = []
        self._asked = 0
        self.moved = 0
        """How many brokers have been moved."""
        self.refusals: list[str] = []
        """Why one was not, in the end; after the first nothing more is asked for."""
        self.done_us: int | None = None
        """When the last of them was."""

    def begin(self) -> None:
        """Find the tree, and ask the first broker to move."""
        goal = OverlayTree(
            centred_tree(self._tree.brokers, self._matches(), self._degree_max), self._tree.brokers
        )
        self._waiting = list(delta_moves(self._tree, goal))[::-1]
        for path in self._waiting:
            operator = Station(f"operator at {path[0]}", path[0], on_message=self._answered)
            self._operators[path[0]] = operator
            self._world.attach(operator)
        self._world.at(self._world.now_us + CONNECT_US, self._ask)

    def _ask(self) -> None:
        if not self._waiting:
            self.done_us = self._world.now_us
            return
        path = self._waiting[-1]
        operator = self._operators[path[0]]
        self._asked += 1
        arguments = {"operation": "delta", "path": ",".join(path)}
        operator.say(Ask(operator.next_request(), "reconfigure", arguments))

    def _answered(self, operator: Station, message: Message) -> None:
        if isinstance(message, Done):
            self._tree = delta_moved(self._tree, self._waiting.pop())
            self._asked = 0
            self.moved += 1
            self._ask()
        elif isinstance(message, Failed):
            if self._asked < ASKED_MAX:
                self._world.at(self._world.now_us + AGAIN_US, self._ask)
            else:
                self.refusals.append(message.reason)

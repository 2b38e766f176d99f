"""Brokers in a simulated world, as tests compose them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from braid.broker.core import BrokerCore
from braid.broker.settings import BrokerSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from braid.sim import Birth, NodeModel, World

__all__ = ["add_tree", "broker"]


def broker(name: str, neighbours: Iterable[str] = (), **settings: Any) -> Callable[[Birth], BrokerCore]:
    """Makes a broker, at each of its starts."""
    chosen = BrokerSettings(broker_id=name, address=name, neighbours=tuple(neighbours), **settings)

    def make(birth: Birth) -> BrokerCore:
        return BrokerCore(chosen, incarnation=birth.incarnation, seed=birth.seed, store=birth.store)

    return make


def add_tree(
    world: World,
    links: Mapping[str, str | None],
    *,
    store: bool = False,
    node: NodeModel | None = None,
    **settings: Any,
) -> None:
    """Add brokers, each linked to the one that it names, and wait until they know each other."""
    for name, other in links.items():
        more = {} if node is None else {"node": node}
        world.add(name, broker(name, [other] if other else [], **settings), store=store, **more)
    world.run_for(seconds=1)

"""How much does each principal have of what it may have only so much of?

Counted by principal and not by connection, so that connecting again, or often, does not help. All anonymous
clients are one principal.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from braid.broker.access import ANONYMOUS
from braid.errors import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from braid.broker.access import Principal

__all__ = ["PUBLISHER_REST_US", "Quotas"]

SECOND_US = 1_000_000
# The name of a publisher that nobody has used for so long gives its place to another one.
PUBLISHER_REST_US = 600 * SECOND_US


class _Held:
    """What one principal has."""

    __slots__ = ("_level", "_level_at_us", "connections", "logs", "publishers", "subscriptions")

    def __init__(self, now_us: int) -> None:
        self.connections = 0
        self.subscriptions = 0
        self.logs = 0
        self.publishers: OrderedDict[str, int] = OrderedDict()
        """The names it published under, and when it last began to or ceased, the earliest first."""
        self._level: int | None = None
        self._level_at_us = now_us

    def take_connection(self, per_second: int, now_us: int) -> bool:
        """Whether another connection keeps to the rate; a second's worth may come at once."""
        full = per_second * SECOND_US
        elapsed_us = max(0, now_us - self._level_at_us)
        before = full if self._level is None else min(full, self._level + per_second * elapsed_us)
        self._level_at_us = now_us
        fits = before >= SECOND_US
        self._level = before - SECOND_US * fits
        return fits


class Quotas:
    """What all principals have."""

    def __init__(self) -> None:
        self._principals: dict[str, _Held] = {}

    def _of(self, name: str, now_us: int = 0) -> _Held:
        held = self._principals.get(name)
        if held is None:
            held = self._principals[name] = _Held(now_us)
        return held

    def held(self) -> Iterator[tuple[str, tuple[int, int, int]]]:
        """How many connections, subscriptions and logs each principal has."""
        for name, held in self._principals.items():
            yield name, (held.connections, held.subscriptions, held.logs)

    # Connections.

    def connect(self, principal: Principal, now_us: int) -> None:
        """One more connection, or a `RequestRefusedError`."""
        held = self._of(principal.name, now_us)
        limits = principal.limits
        limits.require_connection(held.connections)
        if not held.take_connection(limits.connections_per_second_max, now_us):
            raise RequestRefusedError(
                f"no more than {limits.connections_per_second_max:,} connections a second may be opened; "
                "try again in a second",
                "limit",
            )
        held.connections += 1

    def leave(self, principal: Principal, subscriptions: int, publisher: str, now_us: int) -> None:
        """A connection has gone, with so many subscriptions and the name that it published under last."""
        held = self._of(principal.name)
        held.connections -= 1
        held.subscriptions -= subscriptions
        if publisher in held.publishers:
            held.publishers[publisher] = now_us
            held.publishers.move_to_end(publisher)

    # Subscriptions.

    def require_subscription(self, principal: Principal) -> None:
        """Refuse one subscription more than the principal may have, durable ones included."""
        held = self._of(principal.name)
        principal.limits.require_subscription(held.subscriptions + held.logs)

    def subscribed(self, principal: Principal, count: int = 1) -> None:
        """A principal has so many subscriptions more, or less."""
        self._of(principal.name).subscriptions += count

    def log_kept(self, owner: str, count: int = 1) -> None:
        """An owner has so many durable subscriptions more, or less."""
        self._of(owner).logs += count

    # Publishers.

    def require_publisher(self, principal: Principal, publisher: str, now_us: int) -> None:
        """Refuse a name more than the principal may publish under at a time."""
        known = self._of(principal.name).publishers
        if publisher not in known:
            while known and next(iter(known.values())) < now_us - PUBLISHER_REST_US:
                known.popitem(last=False)
            if len(known) >= principal.limits.publishers_max:
                anonymous = principal.name == ANONYMOUS
                who = "anonymous clients publish" if anonymous else f"{principal.name!r} publishes"
                raise RequestRefusedError(
                    f"{who} under {len(known):,} names already, and no more than "
                    f"{principal.limits.publishers_max:,} may be used within "
                    f"{PUBLISHER_REST_US // SECOND_US // 60} minutes; keep to one name per program",
                    "limit",
                )
        known[publisher] = now_us
        known.move_to_end(publisher)

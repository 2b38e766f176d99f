"""What clients have published that left before it could be routed.

They may have heard that it was received, so it is kept until it can be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from braid.broker.parties import Client
    from braid.broker.turn import Turn

__all__ = ["LeftBehind"]

# All of a few clients' windows fit.
LEFT_BEHIND_BYTES_MAX = 64 * 1024 * 1024


class LeftBehind:
    """The clients that have gone and left publications."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._clients: list[Client] = []

    def __iter__(self) -> Iterator[Client]:
        return iter(self._clients)

    def __bool__(self) -> bool:
        """Whether there is something that is not routed yet."""
        return any(client.unrouted for client in self._clients)

    def take(self, client: Client) -> None:
        """A client has gone. What it published is kept, unless there is too much of that."""
        if not client.unrouted:
            return
        self._clients = [each for each in self._clients if each.unrouted and each is not client]
        size = sum(batch.size for each in (*self._clients, client) for batch, _ in each.unrouted)
        if size <= LEFT_BEHIND_BYTES_MAX:
            self._clients.append(client)
            return
        rows = sum(len(batch) for batch, _ in client.unrouted)
        client.unrouted.clear()
        self._turn.note(
            "warning", "publications of a client that left were dropped", client=client.name, count=rows
        )

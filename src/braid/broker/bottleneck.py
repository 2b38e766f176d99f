"""Who has to wait because something is full?

A *bottleneck* is whatever can fall behind: a party that takes less than it is sent, the store, the lobby of
copies for brokers out of sight. Those who sent what filled it get no further credit until it lets them go.
A source that several hold up goes on when the last of them has let it go: its channel knows the reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from braid.broker.parties import Party

__all__ = ["Bottleneck"]


class Bottleneck:
    """Something that is behind, and those who wait for it."""

    __slots__ = ("held_up", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.held_up: dict[Party, None] = {}
        """Those who get no credit because of it."""

    def __repr__(self) -> str:
        return f"<{self.name} is behind>"

    def hold_up(self, source: Party) -> None:
        """Give a source no further credit."""
        self.held_up[source] = None
        source.channel.hold_credit(self)

    def let_go(self) -> list[Party]:
        """Nobody waits for it any more; returns those who may get credit again."""
        held_up, self.held_up = self.held_up, {}
        return [source for source in held_up if source.channel.release_credit(self)]

    def forget(self, source: Party) -> None:
        """A source has gone."""
        self.held_up.pop(source, None)
        source.channel.release_credit(self)

"""Who has to wait because something is full?

A *bottleneck* is whatever can fall behind: a party that takes less than it is sent, the store, the
copies for brokers out of sight. Those who sent what filled it get no further credit until it lets them go.
A source that several hold up goes on when the last of them has let it go: its channel knows the reasons.

Where it matters for what a source sends (see decision 0020), only one credit class of it is held up.
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
        self.held_up: dict[tuple[Party, int | None], None] = {}
        """Those who get no credit because of it, with the class concerned; None stands for all."""

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        return f"{self.name} is behind"

    def hold_up(self, source: Party, number: int | None = None) -> None:
        """Give a source no further credit; with a `number`, only for that class."""
        self.held_up[source, number] = None
        source.channel.hold_credit(self, number)

    def let_go(self) -> list[Party]:
        """Nobody waits for it any more; returns those who may get credit again."""
        held_up, self.held_up = self.held_up, {}
        return [source for source, number in held_up if source.channel.release_credit(self, number)]

    def forget(self, source: Party) -> None:
        """A source has gone."""
        for held in [each for each in self.held_up if each[0] is source]:
            del self.held_up[held]
            source.channel.release_credit(self, held[1])

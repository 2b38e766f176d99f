"""Whom does a broker dial, and when again?

Neighbours are dialled because the settings name them, because an operator said so, or, once, to see whether a
neighbour that was met before is the one who speaks in its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from braid.protocol.effects import Dial

if TYPE_CHECKING:
    from collections.abc import Mapping

    from braid.broker.events import DialFailed
    from braid.broker.parties import Link
    from braid.broker.settings import BrokerSettings
    from braid.broker.turn import Turn

__all__ = ["Dialling", "Neighbour"]


@dataclass(slots=True)
class Neighbour:
    """A broker we are to be linked to, and our attempts at it."""

    address: str
    broker_id: str = ""
    """Known once it has answered."""
    linked: bool = False
    """Whether there was a link to that broker by this address."""
    dial_at_us: int | None = 0
    """When to try next; None while an attempt or a connection is under way."""
    pause_us: int = 0


class Dialling:
    """The attempts at neighbours."""

    def __init__(
        self,
        settings: BrokerSettings,
        turn: Turn,
        seed: int,
        links: Mapping[str, Link],
    ) -> None:
        self.neighbours = {address: Neighbour(address) for address in settings.neighbours}
        self.next_us: int | None = None
        """When the next attempt is due."""
        self._settings = settings
        self._turn = turn
        self._seed = seed
        self._random: Random | None = None
        """Made when it is needed: it weighs a twentieth of all the rest of an idle broker."""
        self._links = links
        self._verifying: dict[str, str] = {}
        """Addresses that are dialled to see who is there, with who should be."""
        self._verified_us: dict[str, int] = {}
        """When neighbours were last dialled for that, by their names."""
        self._review()

    def remember(self, address: str, broker_id: str = "") -> None:
        """There is one more neighbour to dial."""
        self.neighbours.setdefault(address, Neighbour(address, broker_id))
        self._review()

    def forget(self, address: str) -> None:
        """Dial an address no more."""
        self.neighbours.pop(address, None)
        self._review()

    def forget_broker(self, name: str) -> None:
        """Dial a broker no more."""
        for address in [each.address for each in self.neighbours.values() if each.broker_id == name]:
            self.forget(address)

    def addresses_of(self, name: str) -> tuple[str, ...]:
        """Where a broker is dialled."""
        return tuple(each.address for each in self.neighbours.values() if each.broker_id == name)

    def appended_address(self, link: Link) -> str:
        """Where to dial a neighbour after a restart that our settings do not name; empty for others."""
        addresses = [each.address for each in self.neighbours.values() if each.broker_id == link.name]
        return next((each for each in addresses if each not in self._settings.neighbours), "")

    def due(self, now_us: int) -> None:
        """Try those neighbours whose time has come."""
        if self.next_us is None or now_us < self.next_us:
            return
        for neighbour in self.neighbours.values():
            if neighbour.dial_at_us is not None and neighbour.dial_at_us <= now_us:
                neighbour.dial_at_us = None
                link = self._links.get(neighbour.broker_id)
                if link is None or link.connection is None:
                    self._dial(neighbour.address)
        self._review()

    def _dial(self, address: str) -> None:
        self._turn.effect(Dial(address, frame_bytes_max=self._settings.frame_bytes_max))

    def again(self, address: str) -> None:
        """An attempt failed or a connection was lost: try again after a pause that grows."""
        self._verifying.pop(address, None)
        neighbour = self.neighbours.get(address)
        if neighbour is None or neighbour.dial_at_us is not None:
            return
        doubled = max(self._settings.redial_us_min, neighbour.pause_us * 2)
        neighbour.pause_us = min(doubled, self._settings.redial_us_max)
        # Some chance keeps many brokers from knocking at the same moment.
        if self._random is None:
            self._random = Random(self._seed)
        pause_us = round(neighbour.pause_us * self._random.uniform(0.75, 1.25))
        neighbour.dial_at_us = self._turn.now_us + pause_us
        self._review()

    def failed(self, event: DialFailed) -> None:
        """A connection is not to be."""
        if not event.soft:
            self.again(event.address)

    def lost(self, name: str) -> None:
        """The connection to a broker has gone."""
        for neighbour in list(self.neighbours.values()):
            if neighbour.broker_id == name:
                self.again(neighbour.address)

    def verify(self, link: Link) -> None:
        """Dial a neighbour where it was met, if that is known and not under way, and not just done."""
        now_us = self._turn.now_us
        if now_us < self._verified_us.get(link.name, 0) + self._settings.redial_us_min:
            return
        self._verified_us[link.name] = now_us
        neighbour = self.neighbours.get(link.address)
        if neighbour is not None and neighbour.dial_at_us is not None:
            neighbour.dial_at_us = now_us
            self._review()
        elif link.address and neighbour is None and link.address not in self._verifying:
            self._verifying[link.address] = link.name
            self._dial(link.address)

    def wanted(self, address: str, name: str) -> bool:
        """Whether the broker that has answered at an address is to be a neighbour."""
        return address in self.neighbours or self._verifying.pop(address, None) == name

    def met(self, address: str, name: str, *, linked: bool = False) -> None:
        """Who is at an address is known now, and perhaps there is a link to it."""
        neighbour = self.neighbours.get(address)
        if neighbour is not None:
            neighbour.linked = linked or (neighbour.linked and neighbour.broker_id == name)
            neighbour.broker_id = name
            if linked:
                neighbour.pause_us = 0

    def is_at(self, address: str, link: Link) -> bool:
        """Whether a broker that there is, or was, a link to was met at an address."""
        neighbour = self.neighbours.get(address)
        linked = neighbour is not None and neighbour.linked and neighbour.broker_id == link.name
        return linked or address == link.address

    def name_of(self, address: str) -> str:
        """Who is at an address; empty if that is not known."""
        neighbour = self.neighbours.get(address)
        return neighbour.broker_id if neighbour is not None else ""

    def expected(self, address: str) -> str:
        """Who should be at an address: who was met there, or says that it is there; empty if nobody."""
        found = self.name_of(address) or self._verifying.get(address, "")
        return found or next((link.name for link in self._links.values() if link.address == address), "")

    def resumable(self, address: str) -> Link | None:
        """The link that a dialled connection could go on with."""
        link = self._links.get(self.name_of(address) or self._verifying.get(address, ""))
        # A peer that is told the name of a session can go on with it.
        return link if link is not None and link.agreed and self.is_at(address, link) else None

    def strangers(self) -> list[Neighbour]:
        """Those to whom there has been no link since the start."""
        return [each for each in self.neighbours.values() if each.broker_id not in self._links]

    def _review(self) -> None:
        """The attempts, or their times, have changed."""
        times = [each.dial_at_us for each in self.neighbours.values() if each.dial_at_us is not None]
        self.next_us = min(times, default=None)

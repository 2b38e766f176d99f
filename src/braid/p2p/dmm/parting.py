"""How a peer leaves without a gap: first the tables, then the goodbye, then the rest.

1. Its tables go to the neighbours that will own them. It goes on as before, and what comes in takes both
   ways. Who relies on its word that a space is idle is told to ask again.
2. When they have the tables it says goodbye: from now on they are the owners. What still comes to it, it
   passes on. Those who asked it for publications ask others, and the new owners ask for what the regions
   need; until all of that is installed, it goes on handing on what it is given.
3. It takes back what it has asked for. What was on its way to it meanwhile has some more time to come.

None of it takes for ever: a peer that gets no answers goes after some time anyway.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from braid.p2p.dmm.site import Site

__all__ = ["Parting"]

# So long it takes at most.
LEAVING_US_MAX: Final = 20_000_000
# What is not installed yet is asked again after so long.
AGAIN_US: Final = 500_000
# The numbers of its requests.
PROMISES: Final = -1
OTHERS: Final = -2
TAKEN_BACK: Final = -3


class Stage(Enum):
    """How far it is."""

    MEMBER = "member"
    HANDING_OVER = "handing over"
    PARTED = "parted"
    TAKING_BACK = "taking back"
    LINGERING = "lingering"


class Parting:
    """Whether and how a peer is leaving."""

    __slots__ = ("_again_us", "_open", "_site", "_stage", "_until_us", "due_us", "has_parted")

    def __init__(self, site: Site) -> None:
        self._site = site
        self._stage = Stage.MEMBER
        self._until_us = 0
        self._again_us = 0
        self._open: set[int] = set()
        self.has_parted = False
        """Whether it has said goodbye."""
        self.due_us: int | None = None
        """When to look again."""

    def settled(self, number: int, well: bool, now_us: int) -> None:
        """A request of this peer has been answered."""
        if number == OTHERS and not well:
            self._again_us = min(self._again_us, now_us + AGAIN_US)
        else:
            self._open.discard(number)

    def hand_over(self, now_us: int) -> bool:
        """Step 1. Whether it is done."""
        site = self._site
        if self._stage is Stage.MEMBER:
            self._stage = Stage.HANDING_OVER
            self._until_us = now_us + LEAVING_US_MAX
            site.leaving = True
            request = site.confirming.own(PROMISES)
            self._open.add(PROMISES)
            site.finding.end_promises(request, now_us)
            site.confirming.end(request, now_us)
            site.holding.moving.hand_over(now_us)
        self.due_us = now_us + AGAIN_US
        if not site.dht.neighbours(2) or now_us >= self._until_us:
            return True
        return not self._open and site.holding.moving.handed_over

    def part(self, now_us: int) -> bool:
        """Steps 2 and 3. Whether they are done."""
        site = self._site
        alone = not site.dht.neighbours(2)
        late = alone or now_us >= self._until_us
        if self._stage is Stage.HANDING_OVER:
            self._stage = Stage.PARTED
            self.has_parted = True
            site.holding.moving.part(now_us)
            self._ask_others(now_us)
        elif self._stage is Stage.PARTED and OTHERS in self._open and now_us >= self._again_us:
            self._ask_others(now_us)
        if self._stage is Stage.PARTED and (late or not self._open):
            self._stage = Stage.TAKING_BACK
            self._open = {TAKEN_BACK}
            request = site.confirming.own(TAKEN_BACK)
            site.multicasting.take_back(request, now_us)
            site.confirming.end(request, now_us)
        if self._stage is Stage.TAKING_BACK and (late or not (self._open or site.finding.waits)):
            self._stage = Stage.LINGERING
            self._until_us = now_us + (0 if alone else site.dht.patience_us)
        if self._stage is Stage.LINGERING:
            done = now_us >= self._until_us
            self.due_us = now_us + AGAIN_US if done else self._until_us
            return done
        self.due_us = now_us + AGAIN_US
        return False

    def _ask_others(self, now_us: int) -> None:
        site = self._site
        self._open.add(OTHERS)
        self._again_us = now_us + site.settings.retry_us
        request = site.confirming.own(OTHERS)
        site.holding.moving.ask_heirs(request, now_us)
        site.multicasting.ask_elsewhere(request, now_us)
        site.confirming.end(request, now_us)

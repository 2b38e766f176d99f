"""Which brokers can be reached through which link, and which links of the network are missing.

*Loops.* The network is a tree: a link that would connect what is connected already is refused. So every
broker tells each neighbour whom it connects it to (`Reach`).

*Missing.* A link that is down or not up to date is missing to everybody: brokers pass its name on with the
same message, and subscriptions are not answered until it is there again or given up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.errors import RequestRefusedError
from braid.protocol.messages import Reach

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from braid.broker.dialling import Dialling
    from braid.broker.parties import Link
    from braid.broker.turn import Turn

__all__ = ["Reachability"]

# Names of missing links that are told. More would say no more to people, and the first are enough to wait.
MISSING_MAX = 16


class Reachability:
    """What can be reached from here.

    Args:
        turn: where messages to neighbours go.
        links: the neighbours by their names.
        dialling: knows the neighbours that are to be met.
    """

    def __init__(self, turn: Turn, links: Mapping[str, Link], dialling: Dialling) -> None:
        self._broker_id = turn.settings.broker_id
        self._turn = turn
        self._links = links
        self._dialling = dialling

    def reach(self, besides: Link | None = None) -> frozenset[str]:
        """The brokers that can be reached through us, without those behind one link."""
        others = [link.behind for link in self._links.values() if link is not besides]
        return frozenset({self._broker_id}).union(*others)

    def toward(self, broker: str) -> str | None:
        """The neighbour behind which a broker is; None if there is no way to it."""
        return next((name for name, link in self._links.items() if broker in link.behind), None)

    def unmet(self) -> list[str]:
        """The addresses of neighbours that have not been met since the start."""
        strangers = self._dialling.strangers()
        if not strangers:
            return []
        # One that is reached another way needs no link of its own.
        reached = self.reach()
        return sorted(each.address for each in strangers if each.broker_id not in reached)

    def missing(self, besides: Link | None = None) -> tuple[str, ...]:
        """The links that are not there, or not up to date yet, without those behind one link."""
        names: dict[str, None] = {}
        for link in self._links.values():
            if link is besides:
                continue
            if link.provisional and link.down:
                continue  # nothing was promised for it
            names.update(dict.fromkeys(link.missing))
            if not link.channel.connected or not (link.current or link.missing or link.placed):
                names[f"{self._broker_id} to {link.name}"] = None
        names.update((f"{self._broker_id} to {address}", None) for address in self.unmet())
        return tuple(sorted(names)[:MISSING_MAX])

    def require_no_loop(self, name: str, brokers: Iterable[str]) -> None:
        """Refuse a link that would connect what is connected already: the network must stay a tree.

        Raises:
            RequestRefusedError: which brokers there is a way to already.
        """
        behind = frozenset({name, *brokers})
        common = behind & self.reach(self._links.get(name))
        if common:
            raise RequestRefusedError(
                f"a link between {self._broker_id} and {name} would close a loop: "
                f"there is a way to {', '.join(sorted(common)[:5])} already",
                "loop",
            )

    def heard(
        self,
        link: Link,
        brokers: Iterable[str],
        missing: Sequence[str] = (),
        around: Iterable[tuple[str, str]] | None = None,
    ) -> None:
        """A neighbour says whom it connects us to, which links are missing there, and who is around it."""
        if around is not None:
            link.around = tuple(around)
        link.behind = frozenset({link.name, *brokers})
        link.missing = tuple(missing[:MISSING_MAX])
        self._notice_moved(link.behind)

    def _notice_moved(self, reached: frozenset[str]) -> None:
        """Others say that former neighbours are behind them now. That is hearsay: what waits for such a one
        stays until it says so itself, or an operator does."""
        for name in sorted(reached & self._links.keys()):
            moved = self._links[name]
            if moved.connection is None and not moved.elsewhere:
                moved.elsewhere = True
                self._turn.note(
                    "warning",
                    "a neighbour that is missing is said to be elsewhere; 'braid overlay forget' sends there "
                    "what waits for it here",
                    neighbour=name,
                    waiting_bytes=moved.channel.backlog_bytes,
                )

    def tell(self) -> None:
        """Tell every neighbour whom we connect it to and whom not, if that has changed."""
        known = sorted(self._links.items())
        for link in self._links.values():
            if not link.channel.connected:
                continue
            reach, missing = self.reach(link), self.missing(link)
            if link.provisional:
                # Nobody behind it may take for granted that what is published here waits for it.
                missing = (f"{self._broker_id} to {link.name}", *missing)[:MISSING_MAX]
            around = tuple([(name, each.address) for name, each in known if each is not link])
            same = len(reach) == len(link.told_reach) and reach.issuperset(link.told_reach)
            if not same or missing != link.told_missing or around != link.told_around:
                link.told_reach, link.told_missing = tuple(sorted(reach)), missing
                link.told_around = around
                self._turn.tell(link, Reach(list(link.told_reach), list(missing), list(around)))

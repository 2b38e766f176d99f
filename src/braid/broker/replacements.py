"""When does another process have a broker's name, and how does the one that had it learn of that?

A broker that has crashed is replaced by a process that takes its name (REPLICATE, failover, in the
availability paper): every table, anchor and map elsewhere stays as it is, and what waits for that broker goes
to its replica. Each neighbour *grants* the name to an address, with a key and an *epoch*: how often the name
has gone to another process. From then on whoever comes in that name with a smaller epoch is refused as
`replaced`.

*Fencing.* A neighbour grants nothing as long as the process that has the name may believe that it is linked.
If that process has ended the connection itself, it knows. Otherwise it notices within `FENCE_HEARTBEATS`: it
misses heartbeats, or, if it stood still, finds that it is late as soon as it goes on. A broker that is late
ends all its links before it does anything else, and asks its neighbours anew. So it settles nothing by
tables that are older than that. One that all its neighbours refuse sends its clients away and stops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from braid.broker.identities import KEY_LENGTH
from braid.broker.parties import Link
from braid.errors import RequestRefusedError
from braid.protocol.codec import Frame
from braid.protocol.effects import Replaced, Send
from braid.protocol.messages import Done, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from braid.broker.connections import Connections
    from braid.broker.dialling import Dialling
    from braid.broker.events import LinkBegun, LinkLost, NameTaken
    from braid.broker.identities import Acquaintances, Identities
    from braid.broker.links import Links
    from braid.broker.parties import Client, Party
    from braid.broker.turn import Turn
    from braid.protocol.messages import Ask, Hello, Message, Welcome

__all__ = ["Replacements"]

REPLACED = "replaced"
# Three without a word, one until the next look, and one of standing still that goes unnoticed.
FENCE_HEARTBEATS = 5
EPOCH_MAX = 2**53
ADDRESS_LENGTH_MAX = 300


class Replacements:
    """Grants names, and refuses those who have them no more.

    Args:
        turn: where answers and effects go.
        connections: who is here.
        neighbours: the links by their names.
        links: keeps them.
        dialling: the attempts at neighbours.
        identities: the keys of neighbours.
        acquaintances: keeps what is known of neighbours.
        incarnation: of this broker, and of whatever is a neighbour in the same process.
        started_us: when this broker began; None before that.
        when_safe: answers a client once what was asked of the store is done.
        close: lets nobody new in.
        broken: ends a connection, with a code and the reason.
        given: told when another process has been given the name of a neighbour.
    """

    def __init__(
        self,
        turn: Turn,
        connections: Connections,
        neighbours: Mapping[str, Link],
        links: Links,
        dialling: Dialling,
        identities: Identities,
        acquaintances: Acquaintances,
        *,
        incarnation: str,
        started_us: Callable[[], int | None],
        when_safe: Callable[[Client, Message], None],
        close: Callable[[], None],
        broken: Callable[[int, str, str], None],
        given: Callable[[Link], None],
    ) -> None:
        self._turn = turn
        self._settings = turn.settings
        self._connections = connections
        self._neighbours = neighbours
        self._links = links
        self._dialling = dialling
        self._identities = identities
        self._acquaintances = acquaintances
        self._incarnation = incarnation
        self._started_us = started_us
        self._when_safe = when_safe
        self._close = close
        self._broken = broken
        self._given = given
        self._refused_by: dict[str, tuple[int, str]] = {}
        """Neighbours that say that another process has our name, with its epoch, and where that is."""
        self._doubtful = False
        """Whether we were away, so that somebody else may have our name."""
        self._ask_at_us = 0
        """When neighbours that have not come back since are asked whether we are still their neighbour."""
        self.over = False
        """Whether another process has our name."""

    # Granting.

    def restore(self, replaced: tuple[tuple[str, int, tuple[str, ...]], ...]) -> None:
        """This broker was here before. Names that had gone to other processes then have not come back."""
        self._doubtful = bool(self._neighbours)
        for name, epoch, former in replaced:
            link = self._neighbours.get(name)
            if link is not None:
                link.epoch, link.former = epoch, former
            for address in former:
                self._dialling.forget(address)

    def grant(self, client: Client, message: Ask) -> None:
        """An operator gives the name of a neighbour that is gone to the process at an address.

        Whoever asks for the same again hears that it is so.

        Raises:
            RequestRefusedError: that cannot be, or not yet.
        """
        name, address, key, epoch = _checked(message.arguments)
        link = self._neighbours.get(name)
        if link is None:
            known = ", ".join(sorted(self._neighbours)) or "none"
            raise RequestRefusedError(f"there is no neighbour {name!r} here; there are: {known}", "unknown")
        if (epoch, address) != (link.epoch, link.address) or self._identities.known.get(name) != key:
            self._require_free(link, epoch)
            self._give(link, address, key, epoch)
        answer = {
            "broker": self._settings.broker_id,
            "granted": name,
            "epoch": epoch,
            "waiting_bytes": link.channel.backlog_bytes,
        }
        self._when_safe(client, Done(message.request, msgspec.json.encode(answer).decode()))

    def _require_free(self, link: Link, epoch: int) -> None:
        if epoch <= link.epoch:
            raise RequestRefusedError(
                f"the name {link.name} was given to the broker at {link.address} with epoch {link.epoch}; "
                f"{epoch} is not later",
                "epoch",
            )
        if link.connection is not None:
            raise RequestRefusedError(
                f"the link from {self._settings.broker_id} to {link.name} is up; only a broker that is gone "
                "can be replaced: stop it first",
                "up",
            )
        fence_us = FENCE_HEARTBEATS * self._settings.heartbeat_us
        started_us = self._started_us() or 0
        # One that has not been met since our start may not have noticed that we were gone.
        free_us = link.fenced_us if link.session else max(link.fenced_us, started_us + fence_us)
        wait_us = free_us - self._turn.now_us
        if wait_us > 0:
            raise RequestRefusedError(
                f"{link.name} may not have noticed yet that its link to {self._settings.broker_id} is down; "
                f"ask again in {wait_us / 1e6:.1f} s",
                "lease",
            )

    def _give(self, link: Link, address: str, key: str, epoch: int) -> None:
        """From now on the process at this address has the name."""
        name = link.name
        self._links.forget_session(link)
        link.latest = link.named = ""  # whoever shows to know them has the name no more
        link.epoch = epoch
        dialled = dict.fromkeys((*self._dialling.addresses_of(name), *link.former))
        if link.address in self._dialling.neighbours:
            dialled[link.address] = None
        for each in dialled:
            # What was kept for whoever is there is kept for this broker.
            self._dialling.met(each, name)
        self._links.tell_reach()
        for each in dialled:
            self._dialling.forget(each)  # the replica dials
        dialled.pop(address, None)
        link.former = tuple(dialled)
        link.address = address
        self._identities.forget(name)
        self._identities.learn(name, key)
        self._acquaintances.keep(link)
        self._given(link)
        self._turn.audit("warning", "a neighbour is replaced", neighbour=name, address=address, epoch=epoch)

    def require_current(self, connection: int, name: str, greeting: Hello | Welcome) -> None:
        """Refuse a process whose name another one has.

        Raises:
            RequestRefusedError: it is one.
        """
        link = self._neighbours.get(name)
        if link is None or greeting.epoch >= link.epoch:
            return
        reason = f"the broker at {link.address} has the name {name} now, with epoch {link.epoch}"
        refused = Refused(REPLACED, reason, self._settings.broker_id, address=link.address, epoch=link.epoch)
        self._turn.effect(Send(connection, [Frame(0, refused)]))
        raise RequestRefusedError(reason, REPLACED)

    def granted(self, name: str, hello: Hello) -> bool:
        """Whether a greeting is that of a process to which this name was given."""
        link = self._neighbours.get(name)
        return link is not None and 0 < link.epoch == hello.epoch and self._identities.proven(link, hello)

    # Being replaced.

    def link_lost(self, event: LinkLost) -> None:
        """The connection of a link is over. From when on does the other end know that?"""
        fence_us = 0 if event.there else FENCE_HEARTBEATS * self._settings.heartbeat_us
        event.link.fenced_us = self._turn.now_us + fence_us

    def link_begun(self, event: LinkBegun) -> None:
        """A neighbour takes this broker for what it says it is."""
        self._refused_by.pop(event.link.name, None)

    def woke(self, late_us: int) -> None:
        """This broker has stood still for so long that its neighbours may have replaced it."""
        reason = f"this broker stood still for {late_us / 1e6:.1f} s"
        self._turn.note("warning", "stood still; asks its neighbours anew", seconds=round(late_us / 1e6, 1))
        for connection, party in list(self._connections.parties.items()):
            # What is in this very process has stood still, too, and has replaced nobody.
            if party.is_broker and not (isinstance(party, Link) and party.incarnation == self._incarnation):
                self._broken(connection, "stalled", reason)
        self._doubtful, self._ask_at_us = True, self._turn.now_us

    def review(self) -> None:
        """From time to time: ask those who have not come back, and stop if no neighbour wants us any more."""
        now_us = self._turn.now_us
        if self._doubtful:
            away = [link for link in self._neighbours.values() if link.down]
            self._ask_at_us = self._ask_at_us or now_us + self._settings.recovery_us_max
            self._doubtful = bool(away)
            if now_us >= self._ask_at_us:
                self._ask_at_us = now_us + self._settings.redial_us_max
                for link in away:
                    if not self._dialling.addresses_of(link.name):
                        self._dialling.verify(link)
        if self._refused_by and not self.over:
            self._give_way()

    def refused(self, party: Party, message: Refused) -> None:
        """A peer says why it is about to end the connection."""
        if message.code == REPLACED and isinstance(party, Link):
            self._taken(party.name, message.epoch, message.address)

    def name_taken(self, event: NameTaken) -> None:
        """A neighbour that we dialled says that another process has our name."""
        self._taken(event.neighbour, event.epoch, event.address)

    def _taken(self, neighbour: str, epoch: int, address: str) -> None:
        if epoch > self._turn.epoch:
            self._refused_by[neighbour] = (epoch, address[:ADDRESS_LENGTH_MAX])

    def _give_way(self) -> None:
        """Stop, unless a neighbour may still take us for what we were; one that has gone itself does not."""
        oldest_us = self._turn.now_us - self._settings.recovery_us_max
        for name, link in self._neighbours.items():
            if name not in self._refused_by and (link.connection is not None or link.since_us > oldest_us):
                return
        if (self._started_us() or 0) > oldest_us and any(
            each.broker_id not in self._refused_by for each in self._dialling.strangers()
        ):
            return
        self.over = True
        self._close()
        epoch, address = max(self._refused_by.values())
        self._turn.audit("error", "replaced by another process", address=address, epoch=epoch)
        reason = f"the broker at {address} has the name {self._settings.broker_id} now"
        for connection in list(self._connections.parties):
            self._broken(connection, REPLACED, reason)
        self._turn.effect(Replaced(epoch, address))


def _checked(arguments: Mapping[str, Any]) -> tuple[str, str, str, int]:
    """Name, address, key and epoch of a grant.

    Raises:
        RequestRefusedError: one of them is missing or cannot be.
    """
    name, address, key = (arguments.get(each, "") for each in ("name", "address", "key"))
    epoch = arguments.get("epoch", "")
    problem = ""
    if not name or not 0 < len(address) <= ADDRESS_LENGTH_MAX:
        problem = "needs the name of a neighbour, and the address of the process that is to have it"
    elif len(key) != KEY_LENGTH:
        problem = f"needs a key of {KEY_LENGTH} hexadecimal digits"
    elif not epoch.isascii() or not epoch.isdigit() or not 0 < int(epoch[:20]) < EPOCH_MAX:
        problem = f"needs an epoch above 0, not {epoch[:30]!r}"
    if problem:
        raise RequestRefusedError(f"a grant {problem}; 'braid overlay replicate' has them", "argument")
    return name, address, key, int(epoch)

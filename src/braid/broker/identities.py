"""Is a neighbour who it says it is?

Where brokers show tokens or certificates, those say it. Where nothing is configured, a neighbour is trusted
on first use, as ssh does: when two brokers meet, each gives the other a key of its own making, made from a
secret that is kept with its data, so that a broker needs to keep one secret only. A peer that comes in the
name of a neighbour that was met before has to prove that it knows that key. One that cannot (it keeps no
data, or has lost them) is dialled at the address where it was met: the broker that answers there is that
neighbour. One that has neither key nor address is known by the host that it comes from. Where neither end
can prove anything, both dial: each gives a ticket to the broker at the other's address, and lets in who
comes back with it.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

from braid.protocol.log import EndLink, ForgetNeighbour, KeepNeighbour
from braid.protocol.messages import Hello

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from braid.broker.dialling import Dialling
    from braid.broker.events import InterestKnown, NeighbourGone, PlaceEnded
    from braid.broker.parties import Link
    from braid.protocol.log import KeepStanding, StoreOperation, StoreState
    from braid.protocol.messages import Introduction, Welcome

__all__ = ["KEY_LENGTH", "Acquaintances", "Identities", "granted_key", "host_of"]

# Of a key or a proof, in hexadecimal digits.
KEY_LENGTH = 64

# Of the name of a session, likewise.
SESSION_LENGTH = 32

# Who listens everywhere and does not say where others reach it cannot be dialled.
ANY_HOST = ("0.0.0.0", "[::]")


class Identities:
    """The keys of one broker and of those it has met."""

    def __init__(
        self,
        broker_id: str,
        incarnation: str,
        seed: int,
        store: StoreState | None,
        standing: KeepStanding | None = None,
    ) -> None:
        """
        Args:
            broker_id: this broker's name.
            incarnation: of this broker.
            seed: nobody else knows it.
            store: what was kept from earlier, if anything is.
            standing: in whose place this broker runs, if in another one's.
        """
        self._broker_id = broker_id
        self._incarnation = incarnation
        self._own = f"{seed} {incarnation}"
        """What names of sessions are made from, for as long as this process lives; tickets, too, if it keeps
        nothing."""
        self._sessions = 0
        self._tickets: dict[str, str] = {}
        """What neighbours gave to the broker at this broker's address, by their names."""
        self._secret = store.secret if store is not None else ""
        """What this broker's keys are made from; empty if it keeps nothing."""
        if standing is not None:
            self._secret = standing.key  # neighbours have been given what is made from it
        self.known = dict(store.keys) if store is not None else {}
        """The keys that neighbours have given."""

    def key_for(self, neighbour: str) -> str:
        """The key that a neighbour knows this broker by; empty if it keeps none."""
        return granted_key(self._secret, neighbour) if self._secret else ""

    def proofs(self, neighbours: Iterable[str]) -> dict[str, str]:
        """What proves to each of these that a greeting is this broker's."""
        if not self._secret:
            return {}
        return {
            name: _proof(self.key_for(name), self._broker_id, name, self._incarnation) for name in neighbours
        }

    def new_session(self) -> str:
        """A word that nobody can guess, such as the name of a session with a neighbour."""
        self._sessions += 1
        return _digest(self._own, f"session {self._sessions}")[:SESSION_LENGTH]

    def ticket_for(self, neighbour: str) -> str:
        """What a neighbour is given where it was met, and shows when it dials this broker.

        One that keeps no data has nothing else to show after a restart of ours.
        """
        return _digest(self._secret or self._own, f"ticket {neighbour}")

    def returned(self, neighbours: Iterable[str]) -> dict[str, str]:
        """What proves to each of these that has given a ticket that a greeting comes from who has it."""
        return {
            name: _proof(self._tickets[name], self._broker_id, name, self._incarnation)
            for name in neighbours
            if name in self._tickets
        }

    def take_ticket(self, neighbour: str, ticket: str) -> None:
        """A peer in a neighbour's name gives a ticket. It opens no door but the one of who made it."""
        if len(ticket) == KEY_LENGTH:
            self._tickets[neighbour] = ticket

    def learn(self, neighbour: str, key: str) -> bool:
        """A neighbour gives its key; returns whether it was another one before, or none."""
        if len(key) != KEY_LENGTH or self.known.get(neighbour) == key:
            return False
        self.known[neighbour] = key
        return True

    def forget(self, neighbour: str) -> None:
        """Its key means nothing any more."""
        self.known.pop(neighbour, None)
        self._tickets.pop(neighbour, None)

    def convincing(self, link: Link, greeting: Hello | Welcome, remote: str) -> bool:
        """Whether a greeting in the name of a neighbour that was met before is that neighbour's.

        Its incarnation does not say so: every client of that neighbour was told it. `remote` is where the
        connection comes from.
        """
        if greeting.resumes and any(
            hmac.compare_digest(greeting.resumes.encode(), known.encode())
            for known in (link.latest, link.named)
        ):
            return True  # only that process knows these
        if isinstance(greeting, Hello):
            returned = _proof(self.ticket_for(link.name), link.name, self._broker_id, greeting.incarnation)
            if hmac.compare_digest(returned.encode(), greeting.returned.get(self._broker_id, "").encode()):
                return True
        key = self.known.get(link.name)
        if key is None:
            if link.connection is not None:
                return False  # as far as we know it is there, and goes on with what it has
            # One that has no key, either, is dialled where it was met. If that is nowhere, the host that it
            # came from is all that there is to tell it by.
            known_place = link.address and not any(host in link.address for host in ANY_HOST)
            return not known_place and link.host in ("", host_of(remote))
        return self.proven(link, greeting)

    def proven(self, link: Link, greeting: Hello | Welcome) -> bool:
        """Whether a greeting shows that its sender knows the key that this neighbour has given."""
        key = self.known.get(link.name)
        if key is None:
            return False
        expected = _proof(key, link.name, self._broker_id, greeting.incarnation)
        return hmac.compare_digest(expected.encode(), greeting.proofs.get(self._broker_id, "").encode())


class Acquaintances:
    """Keeps the neighbours that were met, so that after a restart their share is kept until they speak."""

    def __init__(
        self, identities: Identities, dialling: Dialling, keep: Callable[[StoreOperation], None]
    ) -> None:
        self._identities = identities
        self._dialling = dialling
        self._keep = keep

    def known(self, event: InterestKnown) -> None:
        """A neighbour's interest has become known."""
        self.keep(event.link)

    def keep(self, link: Link) -> None:
        """Have the store remember what is known of a neighbour now."""
        address = self._dialling.appended_address(link)
        key = self._identities.known.get(link.name, "")
        self._keep(KeepNeighbour(link.name, address, key, link.address, link.epoch, link.former))

    def introduced(self, link: Link, message: Introduction) -> None:
        """A neighbour gives its key, and a ticket to come again with."""
        self._identities.take_ticket(link.name, message.ticket)
        if self._identities.learn(link.name, message.key) and not link.provisional:
            self.keep(link)

    def ended(self, event: PlaceEnded) -> None:
        """An operation has ended a link: after a restart it is not to be, whatever the settings say."""
        ended = event.ended
        self._keep(EndLink(event.name, ended.epoch, ended.place, ended.address, event.dialled))

    def gone(self, event: NeighbourGone) -> None:
        """A neighbour is none any more: another may have its name."""
        link = event.link
        self._identities.forget(link.name)
        if not link.provisional:
            self._keep(ForgetNeighbour(link.name))


def host_of(remote: str) -> str:
    """The host in what a driver says of where a connection comes from."""
    return remote.rpartition(":")[0] or remote


def granted_key(secret: str, neighbour: str) -> str:
    """The key that a neighbour knows a broker by which has this secret."""
    return _digest(secret, neighbour)


def _digest(secret: str, text: str) -> str:
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()


def _proof(key: str, prover: str, verifier: str, incarnation: str) -> str:
    # Names have no spaces.
    return _digest(key, f"{prover} {verifier} {incarnation}")

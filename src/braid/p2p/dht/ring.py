"""A consistent-hash ring where every peer knows every peer: the right DHT for some dozens of them.

A message takes one hop. News of members (`RingMembers`) go to everybody at once; what a lost datagram hid
is found by the digests in pings, which each peer exchanges with its two neighbours. A peer that does not
answer pings is declared dead by the neighbour; if it is not, it contradicts with a new life, as in the SWIM
protocol.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from braid.errors import ConfigurationError
from braid.p2p.dht.identifiers import Contact, closeness, contact_of, number_of
from braid.p2p.dht.messages import (
    Confirmed,
    Member,
    Numbered,
    RingJoin,
    RingMembers,
    RingPing,
    RingPong,
    Routed,
)
from braid.p2p.dht.resending import Resender

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import msgspec

    from braid.p2p.dht.identifiers import Address, Key
    from braid.p2p.dht.interface import Application
    from braid.p2p.dht.resending import Pending
    from braid.p2p.turn import Turn

__all__ = ["Ring", "RingSettings"]

# Peers may disagree for a moment on who is there; a message that went so far ends where it is.
HOPS_MAX: Final = 8
# So many of the dead are remembered, lest old news bring them back.
DEAD_MAX: Final = 1_000
# A ring is for a handful of peers; so many members are known at most.
MEMBERS_MAX: Final = 4_096
ADDRESS_LENGTH_MAX: Final = 300
# What is routed before this peer has its place waits, up to so many messages; more are left out.
WAITING_MAX: Final = 1_000


@dataclass(frozen=True, kw_only=True)
class RingSettings:
    """How patient peers are with each other."""

    ping_us: int = 1_000_000
    """Time between pings to each neighbour."""
    pings_max: int = 3
    """So many pings without an answer mean that a neighbour is dead."""
    retry_us: int = 1_000_000
    """How long an answer to a request to join may take before the next bootstrap peer is asked."""
    acknowledged: bool = False
    """Whether each hop confirms what it gets. Costs a message for each; loses nothing to lost datagrams."""
    timeout_us: int = 1_000_000
    """How long a confirmation may take, where it is not known how far the other is."""
    grace_us: int = 100_000
    """By how much a confirmation may be late, beyond twice the round trip time."""
    tries: int = 3
    """So many unconfirmed messages mean that they do not come."""

    def __post_init__(self) -> None:
        for name in ("ping_us", "pings_max", "retry_us", "timeout_us", "tries"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"ring: {name} is at least 1, not {getattr(self, name)}")


class Ring:
    """A DHT whose members all know each other."""

    __slots__ = (
        "_application",
        "_bootstrap",
        "_changes",
        "_contacts",
        "_deadline_us",
        "_joined",
        "_known",
        "_numbers",
        "_parted",
        "_resender",
        "_settings",
        "_silence",
        "_tries",
        "_turn",
        "_waiting",
        "own",
    )

    _application: Application

    def __init__(self, turn: Turn, address: Address, settings: RingSettings | None = None) -> None:
        self._turn = turn
        self._settings = settings = settings or RingSettings()
        self._resender = (
            Resender(turn, settings.timeout_us, settings.tries, settings.grace_us)
            if settings.acknowledged
            else None
        )
        self.own = contact_of(address)
        self._known: dict[Address, Member] = {}
        """Everybody ever heard of, the dead too: they must not come back by old news."""
        self._numbers: list[int] = []
        """The places of living members, in order."""
        self._contacts: list[Contact] = []
        """Those members, in the same order."""
        self._changes = 0
        """How often the members have changed."""
        self._joined = False
        self._parted = False
        """Whether this peer has said goodbye; it is no member for itself, either."""
        self._bootstrap: tuple[Address, ...] = ()
        self._tries = 0
        self._deadline_us: int | None = None
        self._silence: dict[Address, int] = {}
        """Pings to each neighbour since it was last heard of."""
        self._waiting: list[tuple[Key, msgspec.Struct]] = []

    def start(self, application: Application) -> None:
        """Name the application."""
        self._application = application

    # For the application.

    def route(self, key: Key, message: msgspec.Struct, now_us: int) -> None:
        """Take a message to the owner of a key."""
        if not self._joined:
            if len(self._waiting) < WAITING_MAX:
                self._waiting.append((key, message))
            return
        self._pass_on(key, message, self.own.address, 1, now_us)

    def send(self, address: Address, message: msgspec.Struct, now_us: int) -> None:
        """Take a message to the peer at an address."""
        self._send(address, message, now_us)

    def _send(self, address: Address, message: msgspec.Struct, now_us: int) -> None:
        if self._resender is None or address == self.own.address:
            self._turn.send(address, message)
        else:
            self._resender.send(address, message, now_us)

    def responsible(self, key: Key) -> bool:
        """Whether this peer is the owner of a key."""
        return self._joined and self._owner(key) == self.own

    def owner(self, key: Key) -> Contact | None:
        """The owner of a key; everybody is known here."""
        return self._owner(key) if self._joined else None

    def following(self, key: Key) -> Address | None:
        """The owner of a key is one hop away."""
        return self._owner(key).address if self._joined else None

    def suspect(self, address: Address, now_us: int) -> None:
        """Neighbours are pinged every second, and whoever finds a death tells everybody."""

    @property
    def changes(self) -> int:
        """Rises with every change of the members."""
        return self._changes + self._joined + self._parted

    def neighbours(self, count: int) -> list[Contact]:
        """The nearest peers before and after this one on the circle."""
        size = len(self._contacts)
        if not self._joined or size < 2:
            return []
        place = bisect_left(self._numbers, number_of(self.own.id))
        found: dict[Contact, None] = {}
        for step in range(1, min(count // 2, size - 1) + 1):
            found[self._contacts[(place - step) % size]] = None
            found[self._contacts[(place + step - self._parted) % size]] = None
        return list(found)

    # For the peer machine.

    def join(self, bootstrap: Sequence[Address], now_us: int) -> None:
        """Ask to be a member; without anybody to ask, be the first."""
        self._bootstrap = tuple(each for each in bootstrap if each != self.own.address)
        if self._bootstrap:
            self._ask(now_us)
        else:
            self._become(Member(self.own.address, 1), now_us)

    def leave(self, now_us: int) -> None:
        """Tell everybody."""
        word = self._known.get(self.own.address)
        self._deadline_us = None
        if self._joined and word is not None:
            self._parted = True
            gone = word._replace(alive=False)
            self._known[gone.address] = gone
            self._place(gone)
            self._tell(RingMembers([gone], polite=True))

    @property
    def is_quiet(self) -> bool:
        """Whether nothing that was sent waits to be confirmed."""
        return self._resender is None or self._resender.is_idle

    @property
    def patience_us(self) -> int:
        """How long a message may be under way."""
        return self._settings.timeout_us if self._resender is None else self._resender.patience_us

    def heard(self, sender: Address, message: msgspec.Struct, now_us: int) -> bool:
        """Take in a message; False if it is one for the application."""
        self._silence.pop(sender, None)
        if isinstance(message, Numbered):
            if self._resender is None:  # the other side confirms; this one need not
                self._turn.send(sender, Confirmed(message.number))
            elif not self._resender.heard(sender, message):
                return True
            message = message.message
        if isinstance(message, Routed):
            self._pass_on(message.key, message.message, sender, message.hops + 1, now_us)
        elif self._parted and isinstance(message, RingPing | RingPong | RingJoin):
            self._turn.send(sender, RingMembers([self._known[self.own.address]], polite=True))
        elif isinstance(message, RingPing):
            self._turn.send(sender, RingPong(self._digest()))
            self._compare(sender, message.digest)
        elif isinstance(message, RingPong):
            self._compare(sender, message.digest)
        elif isinstance(message, RingMembers):
            self._learn(message, now_us)
        elif isinstance(message, RingJoin):
            self._admit(sender, now_us)
        elif isinstance(message, Confirmed):
            if self._resender is not None:
                self._resender.confirmed(sender, message.number, now_us)
        else:
            self._application.received(sender, message, now_us)
        return True

    def tick(self, now_us: int) -> None:
        """Send again what was not confirmed; ping the neighbours, or ask again to be a member."""
        if self._resender is not None:
            for pending in self._resender.overdue(now_us):
                self._again(pending, now_us)
        if self._deadline_us is None or now_us < self._deadline_us:
            return
        if not self._joined:
            self._ask(now_us)
            return
        self._deadline_us = now_us + self._settings.ping_us
        ping = RingPing(self._digest())
        nearest = [contact.address for contact in self.neighbours(2)]
        self._silence = {each: self._silence.get(each, 0) for each in nearest}
        for address in nearest:
            if self._silence[address] >= self._settings.pings_max:
                self._declare_dead(address, now_us)
            else:
                self._silence[address] += 1
                self._turn.send(address, ping)
        self._look_for_the_dead(ping)

    def next_deadline_us(self) -> int | None:
        """When something is due."""
        due_us = self._deadline_us
        if self._resender is not None:
            resend_us = self._resender.next_deadline_us()
            if resend_us is not None and (due_us is None or resend_us < due_us):
                return resend_us
        return due_us

    # Where a message goes.

    def _owner(self, key: Key) -> Contact:
        number = number_of(key)
        place = bisect_left(self._numbers, number)
        size = len(self._numbers)
        before, after = (place - 1) % size, place % size
        nearer = closeness(self._numbers[before], number) <= closeness(self._numbers[after], number)
        return self._contacts[before if nearer else after]

    def _pass_on(self, key: Key, message: msgspec.Struct, sender: Address, hops: int, now_us: int) -> None:
        following = self._owner(key).address if self._joined else self.own.address
        if following == self.own.address or hops > HOPS_MAX:
            self._turn.deliver(key, message, sender)
            return
        passed = self._application.forward(key, message, sender, following, now_us)
        if passed is not None:
            self._send(following, Routed(key, passed, hops), now_us)

    def _again(self, pending: Pending, now_us: int) -> None:
        """What a peer did not confirm takes another way, if its owner is another one by now."""
        message = pending.message
        if not isinstance(message, Routed):
            self._application.undelivered(pending.address, message, now_us)
        elif message.hops < HOPS_MAX:
            self._pass_on(message.key, message.message, self.own.address, message.hops + 1, now_us)

    # Who is there.

    def _ask(self, now_us: int) -> None:
        self._turn.send(self._bootstrap[self._tries % len(self._bootstrap)], RingJoin())
        self._tries += 1
        self._deadline_us = now_us + self._settings.retry_us

    def _admit(self, sender: Address, now_us: int) -> None:
        if not self._joined:
            return  # it will ask again
        before = self._known.get(sender)
        word = Member(sender, before.life + 1 if before else 1)
        others = [each.address for each in self._contacts if each.address not in (sender, self.own.address)]
        self._learn(RingMembers([word]), now_us)
        for address in others:
            self._turn.send(address, RingMembers([word]))
        self._turn.send(sender, self._everything())

    def _learn(self, news: RingMembers, now_us: int) -> None:
        around = self.neighbours(2)
        here = self.own.address
        for word in news.members:
            address = word.address
            before = self._known.get(address)
            if address == here:
                self._hear_of_oneself(word, news, now_us)
            elif before is None and (len(self._known) >= MEMBERS_MAX or len(address) > ADDRESS_LENGTH_MAX):
                continue
            elif before is None or word.rank > before.rank:
                self._known[address] = word
                self._place(word)
                if before is not None and before.alive and self._joined:
                    self._application.peer_failed(address, now_us, polite=news.polite)
                if self._resender is not None and not word.alive:
                    for pending in self._resender.withdraw(address):
                        self._again(pending, now_us)
        if self._joined and self.neighbours(2) != around:
            self._application.ownership_changed(now_us)

    def _hear_of_oneself(self, word: Member, news: RingMembers, now_us: int) -> None:
        before = self._known.get(word.address)
        if not self._joined:
            if news.whole and word.alive and self._deadline_us is not None:
                members = news.members[:MEMBERS_MAX]
                self._known.update({each.address: each for each in members})
                for each in members:
                    self._place(each)
                self._become(word, now_us)
        elif before is not None and word.rank > before.rank and not self._parted:
            mine = Member(word.address, word.life + (not word.alive))
            self._known[word.address] = mine
            if not word.alive:
                self._tell(RingMembers([mine]))

    def _become(self, word: Member, now_us: int) -> None:
        self._known[word.address] = word
        self._place(word)
        self._joined = True
        self._deadline_us = now_us + self._settings.ping_us
        self._application.joined(now_us)
        waiting, self._waiting = self._waiting, []
        for key, message in waiting:
            self.route(key, message, now_us)

    def _declare_dead(self, address: Address, now_us: int) -> None:
        news = RingMembers([self._known[address]._replace(alive=False)])
        self._turn.note("info", "peer failed", address=address)
        self._tell(news)
        self._silence.pop(address, None)
        self._learn(news, now_us)

    def _look_for_the_dead(self, ping: RingPing) -> None:
        """Ping one of them in turn: after a partition each side holds the other for dead."""
        dead = [each for each in self._known.values() if not each.alive]
        if dead:
            self._tries += 1
            self._turn.send(dead[self._tries % len(dead)].address, ping)
        for word in dead[: len(dead) - DEAD_MAX]:
            del self._known[word.address]

    def _tell(self, news: RingMembers) -> None:
        for contact in self._contacts:
            if contact != self.own:
                self._turn.send(contact.address, news)

    def _compare(self, sender: Address, digest: bytes) -> None:
        if self._joined and digest != self._digest():
            self._turn.send(sender, self._everything())

    def _everything(self) -> RingMembers:
        return RingMembers(sorted(self._known.values()), whole=True)

    def _digest(self) -> bytes:
        words = "\n".join(f"{each.address} {each.life} {each.alive}" for each in sorted(self._known.values()))
        return blake2b(words.encode(), digest_size=8).digest()

    def _place(self, word: Member) -> None:
        self._changes += 1
        contact = contact_of(word.address)
        number = number_of(contact.id)
        place = bisect_left(self._numbers, number)
        present = place < len(self._numbers) and self._numbers[place] == number
        if word.alive and not present:
            self._numbers.insert(place, number)
            self._contacts.insert(place, contact)
        elif present and not word.alive:
            del self._numbers[place], self._contacts[place]

    def members(self) -> Iterable[Contact]:
        """Every living member, this peer included, in the order of the circle."""
        return tuple(self._contacts)

"""A DHT in the manner of Pastry: each peer knows some dozens of others, and messages take about log16 N hops.

Section II of the infrastructure-free paper stands on it; the design is that of Rowstron and Druschel. A
peer knows its *leaf set*, the nearest peers on the circle, and a *routing table*. A message goes to the
owner of its key if that is in the leaf set, else to a peer with one more digit in common with the key, else
to one that is at least closer to it.

- **Join.** A `Join` travels to the newcomer's place. Those on the way send rows of their tables, the last
  one its leaf set. The newcomer pings them all; those that answer are known to be alive and how far away
  they are. Then it has its place, and says so to all it knows (`Hello`).
- **Only the living are taken in.** What is heard of a peer from others leads to a ping, and the answer into
  the tables.
- **Neighbours watch each other** by beats. Whoever is silent is pinged, then taken for dead, and the others
  that know it are told to see for themselves; then all neighbours are pinged at once, since whole stretches
  of the circle may have died together, and both ends of the leaf set are asked for theirs. Beats carry the
  leaf set after a change and now and then, so that lost datagrams leave no lasting gap.
- **Entries of the routing table** are noticed to be dead when they do not confirm (`acknowledged`) or do
  not answer the pings that go round; their slot is filled from the table of another peer of the row.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from braid.p2p.dht.identifiers import Contact, closeness, contact_of, number_of
from braid.p2p.dht.leaf_set import LeafSet
from braid.p2p.dht.messages import (
    Beat,
    Confirmed,
    Goodbye,
    Hello,
    Join,
    Leaves,
    Numbered,
    Ping,
    Pong,
    Routed,
    Row,
    RowRequest,
    Suspicion,
)
from braid.p2p.dht.pastry_settings import PastrySettings
from braid.p2p.dht.pings import Pings
from braid.p2p.dht.resending import Resender
from braid.p2p.dht.routing_table import RoutingTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import msgspec

    from braid.p2p.dht.identifiers import Address, Key
    from braid.p2p.dht.interface import Application
    from braid.p2p.dht.resending import Pending
    from braid.p2p.turn import Turn

__all__ = ["Pastry"]

# A way has at most one hop per digit and some through neighbours; a longer one means that tables disagree.
HOPS_MAX: Final = 48
# What is routed before this peer has its place waits, up to so many messages; more are left out.
WAITING_MAX: Final = 1_000
# So many of the dead are remembered, lest old news bring them back.
DEAD_MAX: Final = 256
# After so many times that span they are not looked for any more, either.
SEARCHES_MAX: Final = 10
# So many peers are told that this one has left; further ones find out.
TOLD_MAX: Final = 10_000
# Of the addresses in a message so many are looked at (some dozen would do), and while so many peers are to
# answer a ping, no further ones that others speak of are pinged.
ADDRESSES_MAX: Final = 512
ADDRESS_LENGTH_MAX: Final = 300
PINGS_MAX: Final = 1_024
# Every so many beats carry the leaf set although nothing has changed.
LEAVES_EVERY: Final = 12
# So many beats after a change carry the leaf set: one may be lost.
BEATS_AFTER_CHANGE: Final = 2


class Pastry:
    """A DHT whose members know a few others each."""

    __slots__ = (
        "_application",
        "_beats",
        "_beats_with_leaves",
        "_bootstrap",
        "_dead",
        "_joined",
        "_next_beat_us",
        "_number",
        "_parted",
        "_pings",
        "_placed",
        "_resender",
        "_retry_us",
        "_settings",
        "_tries",
        "_turn",
        "_waiting",
        "_watched",
        "leaves",
        "own",
        "table",
    )

    _application: Application

    def __init__(self, turn: Turn, own: Contact | Address, settings: PastrySettings | None = None) -> None:
        self._turn = turn
        self._settings = settings = settings or PastrySettings()
        self.own = own if isinstance(own, Contact) else contact_of(own)
        self._number = number_of(self.own.id)
        self.leaves = LeafSet(self.own, self._number, settings.leaf_set // 2, settings.full_up_to // 2)
        self.table = RoutingTable(self._number, settings.digit_bits)
        self._resender = (
            Resender(turn, settings.timeout_us, settings.tries, settings.grace_us)
            if settings.acknowledged
            else None
        )
        self._joined = False
        self._placed = False
        """Whether the neighbour of this peer's place has answered; then the answers to pings are awaited."""
        self._bootstrap: tuple[Address, ...] = ()
        self._tries = 0
        self._retry_us: int | None = None
        """When to ask again to be let in."""
        self._next_beat_us: int | None = None
        self._beats = 0
        self._beats_with_leaves = 0
        self._watched: dict[Address, int] = {}
        """When each nearest neighbour was last heard."""
        self._pings = Pings()
        self._dead: dict[Address, int] = {}
        """Peers that did not answer, and until when they are not believed to live when others say so."""
        self._waiting: list[tuple[Key, msgspec.Struct]] = []
        self._parted: dict[Address, None] | None = None
        """Once this peer has said goodbye: to whom."""

    def start(self, application: Application) -> None:
        """Name the application."""
        self._application = application

    def settle(self, now_us: int, phase_us: int = 0) -> None:
        """Begin with tables that are filled already, as a member; beats begin `phase_us` later."""
        self._joined = True
        if self._settings.beat_us is not None:
            self._next_beat_us = now_us + phase_us
            self._watch(now_us + phase_us)

    # For the application.

    def route(self, key: Key, message: msgspec.Struct, now_us: int) -> None:
        """Take a message to the owner of a key."""
        if self._joined:
            self._pass_on(key, message, self.own.address, 1, now_us)
        elif len(self._waiting) < WAITING_MAX:
            self._waiting.append((key, message))

    def send(self, address: Address, message: msgspec.Struct, now_us: int) -> None:
        """Take a message to the peer at an address."""
        self._send(address, message, now_us)

    def _send(self, address: Address, message: msgspec.Struct, now_us: int) -> None:
        if self._parted is not None:
            self._say_goodbye(address)
        if self._resender is None or address == self.own.address:
            self._turn.send(address, message)
        else:
            self._resender.send(address, message, now_us)

    def responsible(self, key: Key) -> bool:
        """Whether this peer is the owner of a key, as far as it knows."""
        return self._joined and self._parted is None and self.leaves.responsible(number_of(key))

    def owner(self, key: Key) -> Contact | None:
        """The owner of a key, if it is this peer or in its leaf set."""
        return self._owner(number_of(key)) if self._joined else None

    def _owner(self, number: int) -> Contact | None:
        owner = self.leaves.owner(number)
        if self._parted is not None and owner is self.own:
            return self.leaves.heir(number) or owner
        return owner

    def following(self, key: Key) -> Address | None:
        """The next peer on the way to a key."""
        return (self._following(number_of(key)) or self.own.address) if self._joined else None

    def suspect(self, address: Address, now_us: int) -> None:
        """Have a peer of the tables give a sign of life now."""
        contact = contact_of(address)
        if contact in self.leaves or contact in self.table:
            self._ping(address, now_us)

    @property
    def changes(self) -> int:
        """Rises with every change of the leaf set, of the routing table and of this peer's own place."""
        return self.leaves.changes + self.table.changes + self._joined + (self._parted is not None)

    def neighbours(self, count: int) -> list[Contact]:
        """The nearest peers before and after this one on the circle, at most the leaf set."""
        return self.leaves.nearest(count // 2) if self._joined else []

    # For the peer machine.

    def join(self, bootstrap: Sequence[Address], now_us: int) -> None:
        """Look for this peer's place; without anybody to ask, be the first."""
        self._bootstrap = tuple(each for each in bootstrap if each != self.own.address)
        if self._bootstrap:
            self._ask(now_us)
        else:
            self._become(now_us)

    def leave(self, now_us: int) -> None:
        """Tell the neighbours, who tell nobody: it is they who own the keys now."""
        self._parted = {self.own.address: None}
        if self._joined:
            for contact in self.leaves:
                self._say_goodbye(contact.address)
        self._next_beat_us = self._retry_us = None
        self._pings.clear()

    def _say_goodbye(self, address: Address, *, again: bool = False) -> None:
        """A peer that still takes this one for a member learns better."""
        assert self._parted is not None
        if again or (address not in self._parted and len(self._parted) < TOLD_MAX):
            self._parted[address] = None
            self._turn.send(address, Goodbye([contact.address for contact in self.leaves]))

    @property
    def is_quiet(self) -> bool:
        """Whether nothing that was sent is to be confirmed."""
        return self._resender is None or self._resender.is_idle

    @property
    def patience_us(self) -> int:
        """How long a message may be under way."""
        return self._settings.timeout_us if self._resender is None else self._resender.patience_us

    def heard(self, sender: Address, message: msgspec.Struct, now_us: int) -> bool:
        """Take in a message; False if it is one for the application."""
        if sender in self._watched:
            self._watched[sender] = now_us
        if isinstance(message, Numbered):
            if self._resender is None:  # the other side confirms; this one need not
                self._turn.send(sender, Confirmed(message.number))
            elif not self._resender.heard(sender, message):
                return True
            message = message.message
        if self._parted is not None:
            if type(message) in _HANDLERS:
                if type(message) is Goodbye:
                    self._on_goodbye(sender, message, now_us)
                elif type(message) is Ping:
                    self._say_goodbye(sender, again=True)
                return True
            if type(message) is not Confirmed:
                self._say_goodbye(sender)
        if isinstance(message, Routed):
            if self._joined or len(self._waiting) >= WAITING_MAX:
                self._pass_on(message.key, message.message, sender, message.hops + 1, now_us)
            else:
                self._waiting.append((message.key, message.message))
            return True
        handler = _HANDLERS.get(type(message))
        if handler is None:
            if type(message) is Confirmed:
                if self._resender is not None:
                    self._resender.confirmed(sender, message.number, now_us)
                return True
            self._application.received(sender, message, now_us)
            return True
        handler(self, sender, message, now_us)
        return True

    def tick(self, now_us: int) -> None:
        """Beat, ping again, send again."""
        if self._resender is not None:
            for pending in self._resender.overdue(now_us):
                self._bury(pending.address, now_us, polite=False)
                self._again(pending, now_us)
        if self._retry_us is not None and now_us >= self._retry_us:
            self._ask(now_us)
        if self._pings:
            self._ping_again(now_us)
        if self._next_beat_us is not None and now_us >= self._next_beat_us:
            self._beat(now_us)

    def next_deadline_us(self) -> int | None:
        """When something is due."""
        due_us = self._next_beat_us
        resend_us = self._resender.next_deadline_us() if self._resender is not None else None
        for other_us in (self._retry_us, self._pings.next_us(), resend_us):
            if other_us is not None and (due_us is None or other_us < due_us):
                due_us = other_us
        return due_us

    # Where a message goes.

    def _pass_on(self, key: Key, message: msgspec.Struct, sender: Address, hops: int, now_us: int) -> None:
        following = self._following(number_of(key))
        if following is None or hops > HOPS_MAX:
            self._turn.deliver(key, message, sender)
            return
        passed = self._application.forward(key, message, sender, following, now_us)
        if passed is None:
            return
        self._send(following, Routed(key, passed, hops), now_us)

    def _following(self, number: int) -> Address | None:
        """The next peer on the way to a key, or None if it ends here."""
        leaves = self.leaves
        owner = self._owner(number)
        if owner is not None:
            return None if owner is leaves.own else owner.address
        entry = self.table.get(number)
        if entry is not None:
            return entry.address
        # The rare case: nobody is known with a longer prefix, but perhaps with the same one, and closer.
        best, best_closeness = None, closeness(self._number, number)
        row = self.table.row_of(number)
        for contact in (*self.table.closer(number), *leaves):
            other = number_of(contact.id)
            if other != self._number and self._shared(other, number) >= row:
                distance = closeness(other, number)
                if distance < best_closeness:
                    best, best_closeness = contact, distance
        return best.address if best is not None else None

    def _shared(self, one: int, other: int) -> int:
        return (128 - (one ^ other).bit_length()) // self._settings.digit_bits

    def _again(self, pending: Pending, now_us: int) -> None:
        """What a peer that is gone did not confirm takes another way."""
        message = pending.message
        if isinstance(message, Routed):
            self._pass_on(message.key, message.message, self.own.address, message.hops, now_us)
        else:
            self._application.undelivered(pending.address, message, now_us)

    # Finding a place.

    def _ask(self, now_us: int) -> None:
        self._turn.send(self._bootstrap[self._tries % len(self._bootstrap)], Join(self.own.address))
        self._tries += 1
        self._placed = False
        self._retry_us = now_us + 2 * self._settings.timeout_us

    def _on_join(self, sender: Address, message: Join, now_us: int) -> None:
        if not self._joined or message.address == self.own.address:
            return  # it will ask again
        contact = contact_of(message.address)
        number = number_of(contact.id)
        self._forget(contact, now_us)  # it begins anew, whatever was known of it
        row = self.table.row_of(number)
        following = self._following(number)
        # The peers before on its way have sent the shorter prefixes; the last one sends all that it has.
        first = self._shared(number, number_of(contact_of(sender).id)) if message.hops > 1 else 0
        last = self.table.depth - 1 if following is None else row
        found = [each.address for place in range(first, last + 1) for each in self.table.row(place)]
        self._turn.send(message.address, Row([self.own.address, *found]))
        if following is None or message.hops > HOPS_MAX:
            around = [self.own.address, *(each.address for each in self.leaves)]
            self._turn.send(message.address, Leaves(around, place=True))
        else:
            self._turn.send(following, Join(message.address, message.hops + 1))

    def _settle_in(self, now_us: int) -> None:
        """Once every ping is answered or given up, the leaf set is as good as it gets."""
        if self._placed and not self._pings and not self._joined:
            if not self.leaves.after:
                return  # nobody has answered: ask again
            self._become(now_us)

    def _become(self, now_us: int) -> None:
        self._joined = True
        self._retry_us = None
        if self._settings.beat_us is not None:
            self._next_beat_us = now_us + self._settings.beat_us
        self._beats_with_leaves = BEATS_AFTER_CHANGE
        hello = Hello()
        for address in {each.address: None for each in (*self.leaves, *self.table)}:
            self._turn.send(address, hello)
        self._watch(now_us)
        self._application.joined(now_us)
        waiting, self._waiting = self._waiting, []
        for key, message in waiting:
            self.route(key, message, now_us)

    # Who is there.

    def _consider(self, addresses: Iterable[Address], now_us: int, *, perhaps_nearer: bool = False) -> None:
        """Ping those of these peers that would be good to know, or may be nearer than known ones."""
        for address in islice(addresses, ADDRESSES_MAX):
            if len(self._pings) >= PINGS_MAX:
                return
            if address == self.own.address or address in self._pings or len(address) > ADDRESS_LENGTH_MAX:
                continue
            if self._dead.get(address, 0) > now_us:
                continue
            contact = contact_of(address)
            number = number_of(contact.id)
            if perhaps_nearer or self.leaves.wants(number) or self.table.has_room(number):
                self._ping(address, now_us)

    def _take_in(self, contact: Contact, now_us: int, time_us: int | None = None) -> None:
        """A peer is alive: it belongs into the tables if it is near enough."""
        number = number_of(contact.id)
        self._dead.pop(contact.address, None)
        if time_us is None:
            self.table.add(contact, number)
        else:
            self.table.add(contact, number, time_us)
        around = self.leaves.nearest(1)
        if self.leaves.add(contact, number):
            self._beats_with_leaves = BEATS_AFTER_CHANGE
            self._neighbours_may_differ(around, now_us)

    def _neighbours_may_differ(self, around: list[Contact], now_us: int) -> None:
        if self._joined and self.leaves.nearest(1) != around:
            self._watch(now_us)
            self._application.ownership_changed(now_us)

    def _watch(self, now_us: int) -> None:
        watched = self._watched
        self._watched = {each.address: watched.get(each.address, now_us) for each in self.leaves.nearest(1)}

    def _bury(self, address: Address, now_us: int, *, polite: bool) -> None:
        """Strike out a peer that has gone, and look for others in its place."""
        contact = contact_of(address)
        self._pings.end(address)
        self._dead[address] = now_us + self._settings.forget_us
        if len(self._dead) > DEAD_MAX:
            del self._dead[next(iter(self._dead))]
        was_nearest = contact in self.leaves.nearest(1)
        known = self._forget(contact, now_us)
        if not polite:
            if not known:
                return
            self._turn.note("info", "peer failed", address=address)
            if was_nearest and self._joined:
                for each in self.leaves:
                    self._turn.send(each.address, Suspicion(address))
        self._application.peer_failed(address, now_us, polite=polite)
        if self._resender is not None:
            for pending in self._resender.withdraw(address):
                self._again(pending, now_us)

    def _forget(self, contact: Contact, now_us: int) -> bool:
        """Take a peer out of all tables and repair them; whether it was there."""
        row = self.table.remove(contact)
        if row is not None:
            others = self.table.row(row)
            if others:
                self._tries += 1
                self._turn.send(others[self._tries % len(others)].address, RowRequest(row))
        around = self.leaves.nearest(1)
        if self.leaves.remove(contact.address):
            self._beats_with_leaves = BEATS_AFTER_CHANGE
            self._neighbours_may_differ(around, now_us)
            self._repair_leaves(now_us)
            return True
        return row is not None

    def _repair_leaves(self, now_us: int) -> None:
        """Ask the far ends of the leaf set for theirs, and everybody in it for a sign of life."""
        if self._parted is not None:
            return  # who hears a question like that takes this peer for a member again
        for side in (self.leaves.before, self.leaves.after):
            if side:
                around = [each.address for each in self.leaves]
                self._turn.send(side[-1].address, Leaves(around, wanted=True))
        if self._settings.beat_us is not None:
            for contact in self.leaves:
                self._ping(contact.address, now_us)

    # Signs of life.

    def _ping(self, address: Address, now_us: int) -> None:
        if address in self._pings:
            return
        self._turn.send(address, Ping(now_us))
        self._pings.expect(address, 1, now_us + self._settings.timeout_us)

    def _ping_again(self, now_us: int) -> None:
        while overdue := self._pings.overdue(now_us):
            address, count = overdue
            if count >= self._settings.tries:
                self._bury(address, now_us, polite=False)
            else:
                self._pings.expect(address, count + 1, now_us + self._settings.timeout_us)
                self._turn.send(address, Ping(now_us))
        self._settle_in(now_us)

    def _beat(self, now_us: int) -> None:
        beat_us = self._settings.beat_us
        assert beat_us is not None
        self._next_beat_us = now_us + beat_us
        self._beats += 1
        with_leaves = self._beats_with_leaves > 0 or self._beats % LEAVES_EVERY == 0
        self._beats_with_leaves = max(0, self._beats_with_leaves - 1)
        word: msgspec.Struct = Leaves([contact.address for contact in self.leaves]) if with_leaves else Beat()
        silent_since_us = now_us - self._settings.silence_beats * beat_us - beat_us // 2
        for address, heard_us in self._watched.items():
            self._turn.send(address, word)
            if heard_us < silent_since_us:
                self._ping(address, now_us)
        self._probe_table(now_us)
        if self._dead:
            self._look_for_the_dead(now_us)

    def _look_for_the_dead(self, now_us: int) -> None:
        """Ping one of them in turn: those who were only out of reach are there again some day."""
        address = next(iter(self._dead))
        until_us = self._dead.pop(address)
        if now_us < until_us + SEARCHES_MAX * self._settings.forget_us:
            self._dead[address] = until_us
            self._turn.send(address, Ping(now_us))

    def _probe_table(self, now_us: int) -> None:
        if not self._settings.probes_per_beat or not self.table.depth:
            return
        addresses = self.table.addresses()
        for step in range(min(self._settings.probes_per_beat, len(addresses))):
            address = addresses[(self._beats * self._settings.probes_per_beat + step) % len(addresses)]
            self._ping(address, now_us)
        row = self._beats % self.table.depth
        others = self.table.row(row)
        if others and self._beats % LEAVES_EVERY == 0:
            self._turn.send(others[self._beats // LEAVES_EVERY % len(others)].address, RowRequest(row))

    # What others say.

    def _on_row(self, sender: Address, message: Row, now_us: int) -> None:
        self._consider(message.addresses, now_us, perhaps_nearer=True)

    def _on_row_request(self, sender: Address, message: RowRequest, now_us: int) -> None:
        found = [contact.address for contact in self.table.row(message.row)]
        if found:
            self._turn.send(sender, Row(found))

    def _on_leaves(self, sender: Address, message: Leaves, now_us: int) -> None:
        if message.place and not self._joined:
            self._placed = True
            self._retry_us = now_us + 4 * self._settings.timeout_us
        self._consider(message.addresses, now_us)
        if message.wanted and self._joined:
            self._turn.send(sender, Leaves([self.own.address, *(each.address for each in self.leaves)]))
        if self._joined and not message.place:
            self._greet(sender, now_us)

    def _greet(self, sender: Address, now_us: int) -> None:
        """A member spoke, so it is alive; neighbours that do not know each other learn so."""
        contact = contact_of(sender)
        if self.leaves.wants(number_of(contact.id)) or self._dead.get(sender):
            self._take_in(contact, now_us)

    def _on_hello(self, sender: Address, message: Hello, now_us: int) -> None:
        self._take_in(contact_of(sender), now_us)

    def _on_ping(self, sender: Address, message: Ping, now_us: int) -> None:
        self._turn.send(sender, Pong(message.sent_us))
        if sender in self._dead:
            self._greet(sender, now_us)

    def _on_pong(self, sender: Address, message: Pong, now_us: int) -> None:
        if not self._pings.end(sender) and sender not in self._dead:
            return
        self._take_in(contact_of(sender), now_us, max(0, now_us - message.sent_us))
        self._settle_in(now_us)

    def _on_beat(self, sender: Address, message: Beat, now_us: int) -> None:
        if self._joined and sender not in self._watched:
            self._greet(sender, now_us)

    def _on_goodbye(self, sender: Address, message: Goodbye, now_us: int) -> None:
        self._bury(sender, now_us, polite=True)
        self._consider(message.addresses, now_us)

    def _on_suspicion(self, sender: Address, message: Suspicion, now_us: int) -> None:
        self.suspect(message.address, now_us)


_HANDLERS: dict[type, Callable[[Pastry, Address, msgspec.Struct, int], None]] = {
    Join: Pastry._on_join,  # type: ignore[dict-item]
    Row: Pastry._on_row,  # type: ignore[dict-item]
    RowRequest: Pastry._on_row_request,  # type: ignore[dict-item]
    Leaves: Pastry._on_leaves,  # type: ignore[dict-item]
    Hello: Pastry._on_hello,  # type: ignore[dict-item]
    Ping: Pastry._on_ping,  # type: ignore[dict-item]
    Pong: Pastry._on_pong,  # type: ignore[dict-item]
    Beat: Pastry._on_beat,  # type: ignore[dict-item]
    Goodbye: Pastry._on_goodbye,  # type: ignore[dict-item]
    Suspicion: Pastry._on_suspicion,  # type: ignore[dict-item]
}

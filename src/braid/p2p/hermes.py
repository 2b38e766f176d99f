"""Hermes on a DHT, to compare with: event types, their rendezvous peers, and filters on the way.

Hermes (Pietzuch and Bacon) is what section VI-A3 of the infrastructure-free paper compares DMM with.
Each *event type* has a rendezvous peer, the owner of the hash of its name. A publisher advertises the type
there before it publishes. Subscriptions go towards the rendezvous peer hop by hop; every peer on the way
keeps what those behind it want and passes on only what nothing covers that it has passed on before. A
publication goes the same way up, and at every peer it passes also down to those whose filters it satisfies.

Tables are confirmed by beacons and expire, as those of DMM. There are no replicas and nothing is handed over
when peers come and go: what expires is told again.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import msgspec

from braid.errors import ConfigurationError, RemoteProtocolError
from braid.language.publication import Publication
from braid.p2p.dmm.arrivals import Arrival
from braid.p2p.dmm.interests import Interests
from braid.p2p.dmm.messages import Content, Entry
from braid.p2p.dmm.repeats import Repeats
from braid.p2p.dmm.settings import DmmSettings
from braid.p2p.dmm.site import REPEATS_MAX
from braid.p2p.dmm.tables import Bundle, Change, Tree
from braid.protocol.effects import Delivery
from braid.protocol.publisher_names import publisher_and_epoch, whole_name

if TYPE_CHECKING:
    from braid.language.filters import Filter
    from braid.p2p.dht.identifiers import Address, Key
    from braid.p2p.dht.interface import Dht
    from braid.p2p.schema import NetworkSchema
    from braid.p2p.turn import Turn

__all__ = ["HERMES_MESSAGES", "Hermes", "Rising", "Sinking"]

BEACON_US: Final = 30_000_000
EXPIRY_US: Final = 60_000_000
# So many types are known at most, and so many entries of a table are compared for covering.
TYPES_MAX: Final = 10_000
COMPARISONS_MAX: Final = 256
OWN: Final = ""


class Advertised(msgspec.Struct, array_like=True, tag=240, gc=False):
    """The sender, or one behind it, publishes events of this type."""

    event_type: str


class Asked(msgspec.Struct, array_like=True, tag=241):
    """What the sender wants of a type has changed."""

    event_type: str
    added: list[Entry]
    removed: list[str]
    digest: int
    fresh: bool = False


class Confirmed(msgspec.Struct, array_like=True, tag=242):
    """What the sender wants still holds: digests by type."""

    digests: list[tuple[str, int]]


class Missing(msgspec.Struct, array_like=True, tag=243):
    """The sender has heard otherwise of these types: say it all."""

    types: list[str]


class Rising(msgspec.Struct, array_like=True, tag=244):
    """A publication on its way to the rendezvous peer of its type."""

    event_type: str
    content: Content


class Sinking(msgspec.Struct, array_like=True, tag=245):
    """A publication on its way to those who want it."""

    event_type: str
    content: Content


HERMES_MESSAGES: Final = (Advertised, Asked, Confirmed, Missing, Rising, Sinking)


def rendezvous(event_type: str) -> Key:
    """The key whose owner is the rendezvous peer of a type."""
    return blake2b(f"hermes\n{event_type}".encode(), digest_size=16).digest()


class Hermes:
    """The application of one peer."""

    __slots__ = (
        "_beacon_us",
        "_dht",
        "_interests",
        "_matched",
        "_own",
        "_repeats",
        "_sequence",
        "_types",
        "trees",
        "turn",
    )

    def __init__(self, turn: Turn, dht: Dht, schema: NetworkSchema | None = None,
                 interests: Interests | None = None) -> None:  # fmt: skip
        """`interests` reads filters, made for DMM; peers of one process may share one."""
        self.turn = turn
        self._dht = dht
        self._interests = interests or Interests(DmmSettings(algorithm="DMM"), schema)
        self._own: dict[tuple[str, str], Filter] = {}
        self._types: dict[str, None] = {}
        """Types that are published here, or behind this peer."""
        self._repeats = Repeats(REPEATS_MAX)
        self._sequence = 0
        self._matched = 0
        """Publications that this peer has matched as a rendezvous."""
        self._beacon_us: int | None = None
        self.trees: dict[str, Tree] = {}
        """By type, what those behind this peer, and it itself, want."""

    # For the user of this peer.

    def advertise(self, event_type: str, now_us: int) -> None:
        """Say that this peer publishes events of a type."""
        self._learn(event_type, now_us)

    def subscribe(self, event_type: str, key: str, wanted: Filter, now_us: int) -> None:
        """From now on, ask for events of a type that satisfy a filter."""
        self._own[event_type, key] = wanted
        tree, change = self._tree(event_type), Change()
        for number in range(len(self._interests.of(wanted.text).places)):
            entry = Entry(f"{self._dht.own.address}/{key}#{number}", wanted.text, number)
            tree.wishes.setdefault(OWN, {})[entry.name] = entry
            tree.add(entry, change)
        self._tell(event_type, tree, change, now_us)

    def unsubscribe(self, event_type: str, key: str, now_us: int) -> None:
        """Ask for it no more."""
        wanted = self._own.pop((event_type, key), None)
        if wanted is None:
            raise ConfigurationError(f"there is no subscription {key!r} to {event_type!r}")
        tree, change = self._tree(event_type), Change()
        for number in range(len(self._interests.of(wanted.text).places)):
            name = f"{self._dht.own.address}/{key}#{number}"
            del tree.wishes[OWN][name]
            if not tree.wishes[OWN]:
                del tree.wishes[OWN]
            tree.remove(name, change)
        self._tell(event_type, tree, change, now_us)

    def publish(self, event_type: str, publication: Publication, now_us: int) -> Content:
        """Publish an event of a type that this peer has advertised."""
        if event_type not in self._types:
            raise ConfigurationError(f"{event_type!r} is not advertised here: call advertise first")
        if publication.publisher:
            publisher, sequence = whole_name(publication.publisher, publication.epoch), publication.sequence
        else:
            self._sequence += 1
            publisher, sequence = self._dht.own.address, self._sequence
        content = Content(publisher, sequence, dict(publication.attributes), now_us)  # type: ignore[arg-type]
        self._on_publication(self._dht.own.address, event_type, content, now_us, rising=True)
        return content

    def statistics(self) -> dict[str, int]:
        """What this peer holds: entries that it passes publications on for, or matches as the rendezvous."""
        leaf = tree = 0
        for event_type, each in self.trees.items():
            if self._dht.responsible(rendezvous(event_type)):
                leaf += each.size
            else:
                tree += each.size
        return {"tree_entries": tree, "leaf_entries": leaf, "matched": self._matched}

    def indexed(self) -> set[str]:
        """The names of the entries that this peer matches publications with as a rendezvous."""
        return {
            name
            for event_type, tree in self.trees.items()
            if self._dht.responsible(rendezvous(event_type))
            for names in (*(each.entries for each in tree.bundles.values()), *tree.wishes.values())
            for name in names
        }

    # What others say.

    def received(self, sender: Address, message: msgspec.Struct, now_us: int) -> None:
        """A neighbour says something."""
        if isinstance(message, Rising):
            self._on_publication(sender, message.event_type, message.content, now_us, rising=True)
        elif isinstance(message, Sinking):
            self._on_publication(sender, message.event_type, message.content, now_us, rising=False)
        elif isinstance(message, Asked):
            self._on_asked(sender, message, now_us)
        elif isinstance(message, Confirmed):
            self._on_confirmed(sender, message, now_us)
        elif isinstance(message, Missing):
            for event_type in message.types:
                tree = self.trees.get(event_type)
                if tree is not None and tree.parent == sender:
                    self._say_all(event_type, tree)
        elif isinstance(message, Advertised):
            self._learn(message.event_type, now_us)

    def deliver(self, key: Key, message: msgspec.Struct, sender: Address, now_us: int) -> None:
        """Nothing is routed here: it all goes hop by hop."""
        self.received(sender, message, now_us)

    def forward(
        self, key: Key, message: msgspec.Struct, sender: Address, following: Address, now_us: int
    ) -> msgspec.Struct | None:
        """Nothing is routed here."""
        return message

    def undelivered(self, address: Address, message: msgspec.Struct, now_us: int) -> None:
        """What a neighbour did not get, goes another way if it was on its way up."""
        if isinstance(message, Rising):
            self._rise(message.event_type, message.content, now_us)

    def _learn(self, event_type: str, now_us: int) -> None:
        if event_type in self._types or len(self._types) >= TYPES_MAX:
            return
        self._types[event_type] = None
        following = self._dht.following(rendezvous(event_type))
        if following is not None and following != self._dht.own.address:
            self._dht.send(following, Advertised(event_type), now_us)

    def _tree(self, event_type: str) -> Tree:
        tree = self.trees.get(event_type)
        if tree is None:
            if len(self.trees) >= TYPES_MAX:
                raise RemoteProtocolError(f"{TYPES_MAX:,} event types are known here; no room for more")
            tree = self.trees[event_type] = Tree(self._interests.whole, self._interests, COMPARISONS_MAX)
        return tree

    def _on_asked(self, sender: Address, message: Asked, now_us: int) -> None:
        tree, change = self._tree(message.event_type), Change()
        if message.fresh:
            tree.drop(sender, change)
        bundle = tree.bundles.setdefault(sender, Bundle())
        bundle.expires_us = now_us + EXPIRY_US
        for name in message.removed:
            if bundle.remove(name):
                tree.remove(name, change)
        for entry in message.added:
            if bundle.add(entry):
                tree.add(entry, change)
        if bundle.digest != message.digest:
            self._dht.send(sender, Missing([message.event_type]), now_us)
        if not bundle.entries:
            del tree.bundles[sender]
        self._tell(message.event_type, tree, change, now_us)

    def _tell(self, event_type: str, tree: Tree, change: Change, now_us: int) -> None:
        following = self._dht.following(rendezvous(event_type))
        if following == self._dht.own.address:
            tree.parent = following
        elif following is not None and following != tree.parent:
            tree.parent = following
            self._say_all(event_type, tree)
        elif following is not None and change:
            added, removed = list(change.added.values()), list(change.removed)
            self._dht.send(following, Asked(event_type, added, removed, tree.sent.digest), now_us)
        if tree.empty:
            self.trees.pop(event_type, None)
        self._wake(now_us)

    def _say_all(self, event_type: str, tree: Tree) -> None:
        assert tree.parent is not None
        entries = list(tree.sent.entries.values())
        self.turn.send(tree.parent, Asked(event_type, entries, [], tree.sent.digest, True))

    def _on_confirmed(self, sender: Address, message: Confirmed, now_us: int) -> None:
        missing = []
        for event_type, digest in message.digests:
            tree = self.trees.get(event_type)
            bundle = tree.bundles.get(sender) if tree is not None else None
            if bundle is None or bundle.digest != digest:
                missing.append(event_type)
            else:
                bundle.expires_us = now_us + EXPIRY_US
        if missing:
            self._dht.send(sender, Missing(missing), now_us)

    # Publications.

    def _on_publication(
        self, sender: Address, event_type: str, content: Content, now_us: int, *, rising: bool
    ) -> None:
        if rising:
            self._rise(event_type, content, now_us)
        if not self._repeats.is_new((content.publisher, content.sequence, event_type)):
            return
        self._matched += self._dht.responsible(rendezvous(event_type))
        tree = self.trees.get(event_type)
        if tree is None:
            return
        arrival, matches = Arrival(content), self._interests.matches
        for child, bundle in list(tree.bundles.items()):
            # Who has sent it up has looked at its own table.
            if not (rising and child == sender) and any(
                matches(entry, arrival) for entry in bundle.entries.values()
            ):
                self._dht.send(child, Sinking(event_type, content), now_us)
        keys = tuple(
            key
            for (of, key), wanted in self._own.items()
            if of == event_type
            and self._interests.of(wanted.text).is_satisfied(arrival.attributes, ranged=False)
        )
        if keys:
            publisher, epoch = publisher_and_epoch(content.publisher)
            publication = Publication(
                arrival.attributes, content.body, content.content_type, publisher, content.sequence,
                content.published_at_us, epoch,
            )  # fmt: skip
            self.turn.emit(Delivery(keys, publication))

    def _rise(self, event_type: str, content: Content, now_us: int) -> None:
        following = self._dht.following(rendezvous(event_type))
        if following is not None and following != self._dht.own.address:
            self._dht.send(following, Rising(event_type, content), now_us)

    # The network and time.

    def joined(self, now_us: int) -> None:
        """This peer has its place."""
        self.ownership_changed(now_us)

    def ownership_changed(self, now_us: int) -> None:
        """The ways to rendezvous peers may have changed."""
        for event_type, tree in list(self.trees.items()):
            self._tell(event_type, tree, Change(), now_us)

    def peer_failed(self, address: Address, now_us: int, *, polite: bool) -> None:
        """A peer has gone, with what it wanted and what it was asked for."""
        for event_type, tree in list(self.trees.items()):
            change = Change()
            tree.drop(address, change)
            if tree.parent == address:
                tree.parent = None
            self._tell(event_type, tree, change, now_us)

    def leaving(self, now_us: int) -> bool:
        """There is nothing to hand over: those behind this peer ask others when it has gone."""
        return True

    def parting(self, now_us: int) -> bool:
        """It is gone at once."""
        return True

    def tick(self, now_us: int) -> None:
        """Confirm what this peer wants, and forget what others did not confirm."""
        if self._beacon_us is None or now_us < self._beacon_us:
            return
        self._beacon_us = None
        digests: dict[Address, list[tuple[str, int]]] = {}
        for event_type, tree in list(self.trees.items()):
            change = Change()
            for child in list(tree.expired(now_us)):
                tree.drop(child, change)
            self._tell(event_type, tree, change, now_us)
            if tree.parent not in (None, self._dht.own.address) and not tree.empty:
                digests.setdefault(tree.parent, []).append((event_type, tree.sent.digest))
        for address, known in digests.items():
            self._dht.send(address, Confirmed(known), now_us)
        self._wake(now_us)

    def next_deadline_us(self) -> int | None:
        """When `tick` is due."""
        return self._beacon_us

    def _wake(self, now_us: int) -> None:
        if self._beacon_us is None and self.trees:
            self._beacon_us = now_us + BEACON_US

"""Publish/subscribe on a DHT, without brokers: DMM and DMM-AR as an application of a peer.

    turn = Turn()
    dht = Ring(turn, "10.0.0.1:7000")              # or Pastry(...)
    dmm = Dmm(turn, dht, DmmSettings())
    peer = Peer(turn, dht, dmm, bootstrap=[...])   # its vocabulary: peer_vocabulary(DMM_MESSAGES)

    dmm.subscribe("my key", Filter("price > 10"), now_us)
    dmm.publish(Publication({"price": 12}), now_us)
    dmm.unsubscribe("my key", now_us)
    effects = peer.complete(now_us)                # after calls from outside

What subscribers are to be given comes as an effect `Delivery(subscriptions, publication)`, once for each
publication, with the keys of all subscriptions of this peer that it satisfies. Order is not promised.

A *space* has some attributes as axes; its *regions* are halved as they fill up. Every term of a filter is an
*entry* in one space. An entry goes to the owner of the space's root region hop by hop, and every peer on the
way keeps in a table from whom it came: together these tables are a multicast tree. A publication looks for
the active region that it lies in, is matched there, and goes back along the tables. In DMM-AR the region of
an entry asks in turn for the publications of one of its attributes, in the space of that attribute alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from braid.errors import BraidError, ConfigurationError
from braid.language.publication import Publication, checked_attributes, plain_attributes
from braid.language.values import Range
from braid.p2p.dmm.interests import CATCH_ALL, Interests, has_all
from braid.p2p.dmm.messages import Beacon, Content, Entry, Find, Multicast, Update, Wanted
from braid.p2p.dmm.regions import Region
from braid.p2p.dmm.repeats import Repeats
from braid.p2p.dmm.settings import DmmSettings
from braid.p2p.dmm.tables import Bundle, Change, Tree
from braid.protocol.effects import Delivery
from braid.protocol.publisher_names import publisher_and_epoch, whole_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    import msgspec

    from braid.language.filters import Filter
    from braid.language.values import Value
    from braid.p2p.dht.identifiers import Address, Key
    from braid.p2p.dht.interface import Dht
    from braid.p2p.space import Box, Space
    from braid.p2p.turn import Turn

__all__ = ["Dmm"]

# A repeat comes within some seconds of the original; so many marks are remembered.
REPEATS_MAX: Final = 65_536
# So many entries go into one message; more go in parts.
ENTRIES_PER_MESSAGE: Final = 500
# What this peer's own subscriptions are filed under.
OWN: Final = ""


class Arrival:
    """A publication as it is matched here."""

    __slots__ = ("_boxes", "attributes", "content")

    def __init__(self, content: Content) -> None:
        self.content = content
        attributes: Mapping[str, Any] = content.attributes
        if any(type(value) in (tuple, list) for value in attributes.values()):
            attributes = {
                name: Range(*value) if type(value) in (tuple, list) else value
                for name, value in attributes.items()
            }
        self.attributes: Mapping[str, Value] = plain_attributes(attributes)[0]
        self._boxes: dict[str, Box] = {}

    def box(self, space: Space) -> Box:
        """Where it lies in a space."""
        box = self._boxes.get(space.name)
        if box is None:
            box = self._boxes[space.name] = space.box_of(self.attributes)
        return box


class Dmm:
    """The application of one peer."""

    __slots__ = (
        "_arrival",
        "_dht",
        "_epoch",
        "_interests",
        "_own",
        "_regions",
        "_repeats",
        "_sequence",
        "_settings",
        "_tick_us",
        "_trees",
        "_turn",
    )

    def __init__(
        self,
        turn: Turn,
        dht: Dht,
        settings: DmmSettings | None = None,
        interests: Interests | None = None,
        *,
        epoch: str = "1",
    ) -> None:
        """
        Args:
            turn: the one that the DHT was made with.
            dht: the substrate.
            settings: how to match and deliver.
            interests: reads filters, made with the same settings and the network's schema; peers of one
                process may share one.
            epoch: which run of this peer it is, part of the ids of what it publishes: another one after each
                start.
        """
        self._turn = turn
        self._dht = dht
        self._settings = settings or DmmSettings()
        self._interests = interests or Interests(self._settings)
        self._epoch = epoch
        self._sequence = 0
        self._own: dict[str, Filter] = {}
        self._trees: dict[str, Tree] = {}
        self._regions: dict[tuple[str, str], Region] = {}
        self._repeats = Repeats(REPEATS_MAX)
        self._arrival: Arrival | None = None
        self._tick_us: int | None = None

    # For the user of this peer.

    def subscribe(self, key: str, wanted: Filter, now_us: int) -> None:
        """From now on, ask for what satisfies a filter. A subscription of this key is replaced."""
        if key in self._own:
            self.unsubscribe(key, now_us)
        self._own[key] = wanted
        for number, place in enumerate(self._interests.of(wanted.text).places):
            entry = Entry(f"{self._dht.own.address}/{key}#{number}", wanted.text, number)
            tree = self._tree(place.space)
            change = Change()
            tree.wishes.setdefault(OWN, {})[entry.name] = entry
            tree.add(entry, change)
            self._tell(tree, change, now_us)

    def unsubscribe(self, key: str, now_us: int) -> None:
        """Ask for it no more; from now on there is no delivery for this key.

        Raises:
            ConfigurationError: there is no subscription of this key.
        """
        wanted = self._own.pop(key, None)
        if wanted is None:
            raise ConfigurationError(f"there is no subscription {key!r} at {self._dht.own.address}")
        for number, place in enumerate(self._interests.of(wanted.text).places):
            tree = self._trees[place.space.name]
            own = tree.wishes[OWN]
            name = f"{self._dht.own.address}/{key}#{number}"
            del own[name]
            if not own:
                del tree.wishes[OWN]
            change = Change()
            tree.remove(name, change)
            self._tell(tree, change, now_us)

    @property
    def subscriptions(self) -> Mapping[str, Filter]:
        """The subscriptions of this peer, by their keys."""
        return self._own

    def publish(self, publication: Publication, now_us: int) -> Content:
        """Publish. Without a publisher it gets this peer's address and the next number.

        Returns:
            What travels: with the publisher's name and the number that are its id.

        Raises:
            PublicationError: it has a value that no publication can have.
        """
        attributes = checked_attributes(publication.attributes)
        if publication.publisher:
            publisher, sequence = whole_name(publication.publisher, publication.epoch), publication.sequence
        else:
            self._sequence += 1
            publisher, sequence = whole_name(self._dht.own.address, self._epoch), self._sequence
        content = Content(
            publisher,
            sequence,
            {
                name: (value.low, value.high) if type(value) is Range else value  # type: ignore[misc]
                for name, value in attributes.items()
            },
            publication.published_at_us or now_us,
            publication.body,
            publication.content_type,
        )
        arrival = self._arrive(content)
        spaces = self._interests.spaces_of(arrival.attributes)
        if self._settings.algorithm == "DMM-AR":
            spaces.append(self._interests.spaces.named(CATCH_ALL))
        for space in spaces:
            target = space.enclosing(arrival.box(space))
            find = Find(space.name, target, 0, 0, len(target), content, self._dht.own.address)
            self._dht.route(space.key(""), find, now_us)
        return content

    # Upcalls of the DHT.

    def deliver(self, key: Key, message: msgspec.Struct, sender: Address, now_us: int) -> None:
        """A routed message has come to its end."""
        self.received(sender, message, now_us)

    def forward(
        self, key: Key, message: msgspec.Struct, sender: Address, following: Address, now_us: int
    ) -> msgspec.Struct | None:
        """A routed message passes through."""
        return message

    def received(self, sender: Address, message: msgspec.Struct, now_us: int) -> None:
        """A message has come to this peer. One that makes no sense is left out, with a note."""
        handler = _HANDLERS.get(type(message))
        try:
            if handler is not None:
                handler(self, sender, message, now_us)
        except BraidError as error:
            self._turn.note("warning", "message left out", sender=sender, error=str(error))

    def joined(self, now_us: int) -> None:
        """This peer has its place: what was asked for before goes out now."""
        self.ownership_changed(now_us)

    def ownership_changed(self, now_us: int) -> None:
        """Other keys than before belong to this peer."""
        for tree in list(self._trees.values()):
            self._tell(tree, Change(), now_us)

    def peer_failed(self, address: Address, now_us: int, *, polite: bool) -> None:
        """A peer has gone: what it was asked for is asked of another one."""
        for tree in list(self._trees.values()):
            if tree.parent == address:
                tree.parent = None
                self._tell(tree, Change(), now_us)

    def leaving(self, now_us: int) -> None:
        """This peer is about to say goodbye."""

    def tick(self, now_us: int) -> None:
        """Time has passed."""
        if self._tick_us is None or now_us < self._tick_us:
            return
        self._tick_us = None
        if self._trees or self._regions:
            self._beacon(now_us)
            self._wake(now_us)

    def next_deadline_us(self) -> int | None:
        """When the next beacon is due."""
        return self._tick_us

    # Asking for publications.

    def _tree(self, space: Space) -> Tree:
        tree = self._trees.get(space.name)
        if tree is None:
            comparisons = self._settings.covering_comparisons_max if self._settings.covering else 0
            tree = self._trees[space.name] = Tree(space, self._interests, comparisons)
        return tree

    def _wake(self, now_us: int) -> None:
        if self._tick_us is None:
            self._tick_us = now_us + self._settings.beacon_us

    def _tell(self, tree: Tree, change: Change, now_us: int) -> None:
        """Tell the parent what has changed; all, if it is a new one."""
        self._wake(now_us)
        following = self._dht.following(tree.space.key(""))
        if following is None:
            return  # told when this peer has its place
        if following != tree.parent:
            tree.parent = following
            self._tell_all(tree, now_us)
        elif change:
            self._say(
                following,
                Update(tree.space.name, list(change.added.values()), list(change.removed), tree.sent.digest),
                now_us,
            )
        if tree.empty:
            del self._trees[tree.space.name]

    def _tell_all(self, tree: Tree, now_us: int) -> None:
        assert tree.parent is not None
        entries = list(tree.sent.entries.values())
        for first in range(0, max(1, len(entries)), ENTRIES_PER_MESSAGE):
            part = entries[first : first + ENTRIES_PER_MESSAGE]
            more = first + ENTRIES_PER_MESSAGE < len(entries)
            self._say(
                tree.parent, Update(tree.space.name, part, [], tree.sent.digest, first == 0, more), now_us
            )

    def _say(self, address: Address, message: msgspec.Struct, now_us: int) -> None:
        if address == self._dht.own.address:
            self.received(address, message, now_us)
        else:
            self._dht.send(address, message, now_us)

    def _on_update(self, sender: Address, message: Update, now_us: int) -> None:
        space = self._interests.spaces.named(message.space)
        for entry in message.added:
            if not self._interests.fits(entry, space):
                raise ConfigurationError(f"the entry {entry.name!r} is none of the space {space.name!r}")
        if sender == self._dht.own.address or self._dht.responsible(space.key("")):
            digest = self._update_region(sender, space, "", message, now_us)
        else:
            digest = self._update_tree(sender, space, message, now_us)
        if digest != message.digest and not message.more:
            self._say(sender, Wanted([space.name]), now_us)

    def _update_tree(self, sender: Address, space: Space, message: Update, now_us: int) -> int:
        tree = self._tree(space)
        change = Change()
        if message.fresh:
            tree.drop(sender, change)
        bundle = tree.bundles.get(sender)
        if bundle is None:
            bundle = tree.bundles[sender] = Bundle()
        bundle.expires_us = now_us + self._settings.expiry_us
        for name in message.removed:
            if bundle.remove(name):
                tree.remove(name, change)
        for entry in message.added:
            if bundle.add(entry):
                tree.add(entry, change)
        if not bundle.entries:
            del tree.bundles[sender]
        self._tell(tree, change, now_us)
        return bundle.digest

    def _update_region(self, sender: Address, space: Space, code: str, message: Update, now_us: int) -> int:
        self._wake(now_us)
        region = self._regions.get((space.name, code))
        if region is None:
            region = self._regions[space.name, code] = Region(space, code)
        bundle = region.bundles.get(sender)
        if bundle is None:
            bundle = region.bundles[sender] = Bundle()
        bundle.expires_us = now_us + self._settings.expiry_us
        gone = list(bundle.entries) if message.fresh else message.removed
        changed = [name for name in gone if bundle.remove(name)]
        changed += [entry.name for entry in message.added if bundle.add(entry)]
        if not bundle.entries:
            del region.bundles[sender]
        self._ask_primaries(region, changed, message.added, now_us)
        if not region.bundles:
            del self._regions[space.name, code]
        return bundle.digest

    def _ask_primaries(self, region: Region, changed: list[str], added: Iterable[Entry], now_us: int) -> None:
        """Ask for the publications of one attribute of each entry, in the space of that attribute alone."""
        space = region.space
        if self._settings.algorithm == "DMM" or len(space.axes) < 2:
            return
        changes: dict[int, Change] = {}
        known = {entry.name: entry for entry in added}
        for name in changed:
            axis = region.primaries.pop(name, None)
            if axis is not None:
                tree = self._attribute_tree(space, axis)
                wishes = tree.wishes[region.purpose]
                del wishes[name]
                if not wishes:
                    del tree.wishes[region.purpose]
                tree.remove(name, changes.setdefault(axis, Change()))
            entry = known.get(name)
            if entry is not None and region.holds(name):
                axis = region.primaries[name] = 0
                tree = self._attribute_tree(space, axis)
                asked = Entry(name, entry.text, entry.term, axis)
                tree.wishes.setdefault(region.purpose, {})[name] = asked
                tree.add(asked, changes.setdefault(axis, Change()))
        for axis, change in changes.items():
            self._tell(self._attribute_tree(space, axis), change, now_us)

    def _attribute_tree(self, space: Space, axis: int) -> Tree:
        return self._tree(self._interests.spaces.of([space.axes[axis]]))

    # Soft state.

    def _beacon(self, now_us: int) -> None:
        """Confirm what was asked for, forget what others do not confirm."""
        digests: dict[Address, list[tuple[str, int]]] = {}
        for tree in list(self._trees.values()):
            change = Change()
            for child in list(tree.expired(now_us)):
                tree.drop(child, change)
            self._tell(tree, change, now_us)
            if tree.parent is not None and not tree.empty:
                digests.setdefault(tree.parent, []).append((tree.space.name, tree.sent.digest))
        for parent, known in digests.items():
            self._say(parent, Beacon(known), now_us)
        for region in list(self._regions.values()):
            for child in [each for each, bundle in region.bundles.items() if bundle.expires_us <= now_us]:
                self._update_region(child, region.space, region.code, Update("", [], [], 0, True), now_us)

    def _on_beacon(self, sender: Address, message: Beacon, now_us: int) -> None:
        unknown: list[str] = []
        for name, digest in message.digests:
            space = self._interests.spaces.named(name)
            bundle: Bundle | None = None
            if sender == self._dht.own.address or self._dht.responsible(space.key("")):
                region = self._regions.get((name, ""))
                bundle = region.bundles.get(sender) if region is not None else None
            else:
                tree = self._trees.get(name)
                bundle = tree.bundles.get(sender) if tree is not None else None
            if bundle is None or bundle.digest != digest:
                unknown.append(name)
            else:
                bundle.expires_us = now_us + self._settings.expiry_us
        if unknown:
            self._say(sender, Wanted(unknown), now_us)

    def _on_wanted(self, sender: Address, message: Wanted, now_us: int) -> None:
        for name in message.spaces:
            tree = self._trees.get(name)
            if tree is not None and tree.parent == sender:
                self._tell_all(tree, now_us)

    # Publications.

    def _arrive(self, content: Content) -> Arrival:
        arrival = self._arrival
        if arrival is None or arrival.content is not content:
            arrival = self._arrival = Arrival(content)
        return arrival

    def _on_find(self, sender: Address, message: Find, now_us: int) -> None:
        space = self._interests.spaces.named(message.space)
        region = self._regions.get((space.name, ""))
        if region is not None:
            self._match(region, self._arrive(message.content), now_us)

    def _match(self, region: Region, arrival: Arrival, now_us: int) -> None:
        """Send a publication back to those whose entries in a region it satisfies."""
        content, space = arrival.content, region.space
        mark = (content.publisher, content.sequence, space.name, region.code)
        if not self._repeats.is_new(mark):
            return
        if self._settings.algorithm == "DMM-AR" and not has_all(space, arrival.attributes):
            return
        box = arrival.box(space)
        matches = self._interests.matches
        for holder, bundle in list(region.bundles.items()):
            if any(matches(entry, box, arrival.attributes) for entry in bundle.entries.values()):
                self._say(holder, Multicast(space.name, content), now_us)

    def _on_multicast(self, sender: Address, message: Multicast, now_us: int) -> None:
        content = message.content
        if not self._repeats.is_new((content.publisher, content.sequence, message.space)):
            return
        tree = self._trees.get(message.space)
        if tree is None:
            return
        arrival = self._arrive(content)
        box, attributes = arrival.box(tree.space), arrival.attributes
        matches = self._interests.matches
        for child, bundle in list(tree.bundles.items()):
            if child != sender and any(matches(entry, box, attributes) for entry in bundle.entries.values()):
                self._dht.send(child, Multicast(message.space, content), now_us)
        for purpose, wishes in list(tree.wishes.items()):
            if purpose == OWN:
                self._give(arrival)
            elif any(matches(entry, box, attributes) for entry in wishes.values()):
                name, _, code = purpose.partition("\n")
                region = self._regions.get((name, code))
                if region is not None:
                    self._match(region, arrival, now_us)

    def _give(self, arrival: Arrival) -> None:
        """Deliver a publication to all subscriptions of this peer that it satisfies, once."""
        content = arrival.content
        keys = tuple(key for key, wanted in self._own.items() if wanted.matches(arrival.attributes))
        if keys and self._repeats.is_new((content.publisher, content.sequence)):
            publisher, epoch = publisher_and_epoch(content.publisher)
            self._turn.emit(
                Delivery(
                    keys,
                    Publication(
                        arrival.attributes,
                        content.body,
                        content.content_type,
                        publisher,
                        content.sequence,
                        content.published_at_us,
                        epoch,
                    ),
                )
            )


_HANDLERS: dict[type, Callable[[Dmm, Address, Any, int], None]] = {
    Update: Dmm._on_update,
    Beacon: Dmm._on_beacon,
    Wanted: Dmm._on_wanted,
    Find: Dmm._on_find,
    Multicast: Dmm._on_multicast,
}

"""What this peer asks others for, and others ask it for: its part of the multicast tree of every space.

Entries go hop by hop towards the root of their space, and publications come back the same way (section V-A of
the infrastructure-free paper). The last peer before the tree of regions *holds* them there. Once a space has
been halved, it deals with the active regions directly (`Link`), so that the root is on no way of
publications.

All of it is soft state: beacons of digests confirm bundles, one datagram per neighbour; what was not
confirmed expires; where digests differ, the bundle is told again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from braid.errors import RemoteProtocolError
from braid.p2p.dmm.messages import Active, Beacon, Enter, Gone, Multicast, Update, Wanted
from braid.p2p.dmm.tables import Bundle, Change, Link, Tree, digest_of, seal_of
from braid.p2p.space import boxes_meet

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from braid.p2p.dht.identifiers import Address
    from braid.p2p.dmm.messages import Entry
    from braid.p2p.dmm.site import Site
    from braid.p2p.space import Space

__all__ = ["ENTRIES_PER_MESSAGE", "OWN", "Multicasting"]

# So many entries go into one message; more go in parts.
ENTRIES_PER_MESSAGE: Final = 500
# With so many regions of one space a peer deals directly; entries of further ones are told through the root.
LINKS_MAX: Final = 4_096
# What this peer's own subscriptions are filed under.
OWN: Final = ""


class Multicasting:
    """The trees that this peer is part of, by space."""

    __slots__ = ("_site", "trees")

    def __init__(self, site: Site) -> None:
        self._site = site
        self.trees: dict[str, Tree] = {}

    def tree(self, space: Space) -> Tree:
        """The tree of a space."""
        tree = self.trees.get(space.name)
        if tree is None:
            settings = self._site.settings
            comparisons = settings.covering_comparisons_max if settings.covering else 0
            tree = self.trees[space.name] = Tree(space, self._site.interests, comparisons)
        return tree

    def want(
        self, space: Space, purpose: str, added: Iterable[Entry], removed: Iterable[str], now_us: int
    ) -> None:
        """This peer itself asks for other entries than before."""
        tree = self.tree(space)
        wishes = tree.wishes.setdefault(purpose, {})
        change = Change()
        for name in removed:
            if wishes.pop(name, None) is not None:
                tree.remove(name, change)
        for entry in added:
            wishes[entry.name] = entry
            tree.add(entry, change)
        if not wishes:
            del tree.wishes[purpose]
        self._tell(tree, change, now_us)

    # Telling those who are asked.

    def tell_again(self, now_us: int) -> None:
        """The way to the roots may have changed."""
        for tree in list(self.trees.values()):
            self._tell(tree, Change(), now_us)

    def peer_failed(self, address: Address, now_us: int) -> None:
        """A peer has gone: what it was asked for is asked of another one, and what it has asked for is
        void."""
        for tree in list(self.trees.values()):
            change = Change()
            if address in tree.bundles:
                tree.drop(address, change)
            for code in [each for each, link in tree.links.items() if link.address == address]:
                del tree.links[code]
                self._enter(tree, tree.sent.entries.values(), now_us)
            if tree.parent == address:
                tree.parent = None
            self._tell(tree, change, now_us)

    def _tell(self, tree: Tree, change: Change, now_us: int) -> None:
        """Tell what has changed; all of it, if the one to be told is new."""
        site = self._site
        target = self._target(tree)
        turned = target != tree.target
        tree.target = target
        if tree.links:
            if change or turned:
                self._tell_links(tree, change, now_us)
        else:
            following = site.dht.following(tree.space.key(""))
            if following is None:
                return  # told when this peer has its place
            if following != tree.parent:
                tree.parent = following
                if tree.sent.entries or not tree.empty:
                    self._tell_all(tree, now_us)
            elif change or turned:
                added, removed = list(change.added.values()), list(change.removed)
                seal = tree.sent.digest ^ seal_of(target)
                site.say(following, Update(tree.space.name, added, removed, seal, target=target), now_us)
        if tree.empty:
            self.trees.pop(tree.space.name, None)

    def _target(self, tree: Tree) -> Address:
        """Who is to get the publications that this peer asks for: if it would only pass them on, its
        child."""
        if self._site.settings.shortcuts and len(tree.bundles) == 1 and not tree.wishes:
            return next(iter(tree.bundles.values())).target
        return self._site.address

    def _tell_all(self, tree: Tree, now_us: int) -> None:
        assert tree.parent is not None
        entries = list(tree.sent.entries.values())
        self._tell_entries(tree.parent, tree.space, "", entries, tree.target, now_us)

    def _tell_entries(
        self,
        address: Address,
        space: Space,
        code: str,
        entries: Sequence[Entry],
        target: Address,
        now_us: int,
    ) -> None:
        seal = digest_of(entries) ^ seal_of(target)
        for first in range(0, max(1, len(entries)), ENTRIES_PER_MESSAGE):
            part = list(entries[first : first + ENTRIES_PER_MESSAGE])
            more = first + ENTRIES_PER_MESSAGE < len(entries)
            message = Update(space.name, part, [], seal, first == 0, more, code, target)
            self._site.say(address, message, now_us)

    def _tell_links(self, tree: Tree, change: Change, now_us: int) -> None:
        for code, link in list(tree.links.items()):
            part = tree.part(link)
            met = {entry.name for entry in part}
            added = [entry for entry in change.added.values() if entry.name in met]
            seal = digest_of(part) ^ seal_of(tree.target)
            removed = list(change.removed)
            update = Update(tree.space.name, added, removed, seal, False, False, code, tree.target)
            self._site.say(link.address, update, now_us)
        self._enter(tree, change.added.values(), now_us)

    def _enter(self, tree: Tree, entries: Iterable[Entry], now_us: int) -> None:
        """Have those entries find their regions that are not known to be with all of them."""
        site = self._site
        lost = [entry for entry in entries if not tree.is_linked(entry)]
        for first in range(0, len(lost), ENTRIES_PER_MESSAGE):
            part = lost[first : first + ENTRIES_PER_MESSAGE]
            message = Enter(tree.space.name, "", site.address, tree.target, part)
            site.dht.route(tree.space.key(""), message, now_us)

    def on_active(self, sender: Address, message: Active, now_us: int) -> None:
        """Regions are active at the sender, and this peer's entries are there."""
        site = self._site
        for name, code in message.names:
            site.finding.remember(name, code, sender, now_us)
            tree = self.trees.get(name) if message.held else None
            if tree is None:
                continue
            if not code:
                if tree.links:  # it is whole again
                    tree.links.clear()
                    tree.parent = None
                    self._tell(tree, Change(), now_us)
                continue
            for other in [each for each in tree.links if each.startswith(code) or code.startswith(each)]:
                if other != code:
                    del tree.links[other]
            link = tree.links.get(code)
            expires_us = now_us + site.settings.cache_expiry_us
            if link is None and len(tree.links) >= LINKS_MAX:
                continue
            if link is None or link.address != sender:
                tree.links[code] = Link(sender, tree.space.region(code), expires_us)
            else:
                link.expires_us = expires_us

    def on_gone(self, sender: Address, message: Gone, now_us: int) -> None:
        """Regions that were known to be active at the sender are not."""
        for name, code in message.names:
            self._site.finding.forget(name, code, sender)
            tree = self.trees.get(name)
            link = tree.links.get(code) if tree is not None else None
            if tree is not None and link is not None and link.address == sender:
                self._unlink(tree, code, now_us)

    def _unlink(self, tree: Tree, code: str, now_us: int) -> None:
        box = tree.links.pop(code).box
        if tree.links:
            lost = tree.part(Link("", box, 0))
            self._enter(tree, lost, now_us)
        else:
            tree.parent = None
            self._tell(tree, Change(), now_us)

    def leaving(self, heirs: Mapping[str, Address], now_us: int) -> None:
        """Have those that this peer asks deal with those that ask this peer, without it.

        Args:
            heirs: by the purpose of wishes of a region, who will own the region.
        """
        site = self._site
        for tree in list(self.trees.values()):
            asked = {child: list(bundle.entries.values()) for child, bundle in tree.bundles.items()}
            for purpose, wishes in tree.wishes.items():
                if purpose in heirs:
                    asked.setdefault(heirs[purpose], []).extend(wishes.values())
            for child, entries in asked.items():
                for code, address, part in self._those_asked(tree, entries):
                    target = tree.bundles[child].target if child in tree.bundles else child
                    update = Update(tree.space.name, part, [], 0, False, True, code, target, child)
                    if address == site.address:
                        self.on_update(address, update, now_us)
                    elif part:
                        site.dht.send(address, update, now_us)
            for code, address, _ in self._those_asked(tree, []):
                if address == site.address:
                    self.on_update(address, Update(tree.space.name, [], [], 0, True, False, code), now_us)
                else:
                    site.dht.send(address, Update(tree.space.name, [], [], 0, True, False, code), now_us)

    def _those_asked(self, tree: Tree, entries: list[Entry]) -> list[tuple[str, Address, list[Entry]]]:
        """Whom this peer asks for entries of a space: the code of a region, its owner, and what lies
        there."""
        if not tree.links:
            return [("", tree.parent, entries)] if tree.parent is not None else []
        box = self._site.interests.box
        return [
            (code, link.address, [each for each in entries if boxes_meet(box(each), link.box)])
            for code, link in tree.links.items()
        ]

    # Being asked.

    def on_update(self, sender: Address, message: Update, now_us: int) -> None:
        """A neighbour asks for other entries than before."""
        site = self._site
        space = site.interests.spaces.named(message.space)
        self.require_fit(message.added, space)
        sender = message.child or sender
        if message.code or sender == site.address or site.dht.responsible(space.key("")):
            site.holding.update(sender, space, message, now_us)
            return
        tree = self.tree(space)
        change = Change()
        if message.fresh:
            tree.drop(sender, change)
        bundle = tree.bundles.get(sender)
        if bundle is None:
            bundle = tree.bundles[sender] = Bundle()
            site.replicas.changed(now_us)
        bundle.target = message.target or sender
        bundle.expires_us = now_us + site.settings.expiry_us
        for name in message.removed:
            if bundle.remove(name):
                tree.remove(name, change)
        for entry in message.added:
            if bundle.add(entry):
                tree.add(entry, change)
        if not bundle.entries:
            del tree.bundles[sender]
        self._tell(tree, change, now_us)
        if bundle.seal != message.digest and not message.more:
            site.say(sender, Wanted([(space.name, "")]), now_us)

    def require_fit(self, entries: Iterable[Entry], space: Space) -> None:
        """Raise a `RemoteProtocolError` for an entry that is none of this space."""
        for entry in entries:
            if not self._site.interests.fits(entry, space):
                raise RemoteProtocolError(f"the entry {entry.name!r} is none of the space {space.name!r}")

    def on_wanted(self, sender: Address, message: Wanted, now_us: int) -> None:
        """A neighbour has heard otherwise, or nothing."""
        for name, code in message.names:
            tree = self.trees.get(name)
            if tree is None:
                space = self._site.interests.spaces.named(name)
                self._tell_entries(sender, space, code, [], self._site.address, now_us)
            elif not code and not tree.links:
                if tree.parent == sender:
                    self._tell_all(tree, now_us)
            elif code in tree.links and tree.links[code].address == sender:
                part = tree.part(tree.links[code])
                self._tell_entries(sender, tree.space, code, part, tree.target, now_us)

    # Soft state.

    def beacon(self, now_us: int) -> None:
        """Confirm what was asked for, forget what others did not confirm."""
        site = self._site
        digests: dict[Address, list[tuple[str, str, int]]] = {}
        for tree in list(self.trees.values()):
            name = tree.space.name
            change = Change()
            for child in list(tree.expired(now_us)):
                tree.drop(child, change)
            self._tell(tree, change, now_us)
            if tree.empty:
                continue
            if tree.links:
                for code, link in tree.links.items():
                    known = digests.setdefault(link.address, [])
                    known.append((name, code, digest_of(tree.part(link)) ^ seal_of(tree.target)))
                self._enter(tree, tree.sent.entries.values(), now_us)
            elif tree.parent is not None:
                seal = tree.sent.digest ^ seal_of(tree.target)
                digests.setdefault(tree.parent, []).append((name, "", seal))
        for parent, known in digests.items():
            site.say(parent, Beacon(known), now_us)

    def forget_links(self, now_us: int) -> None:
        """Regions that are not confirmed to be active are looked for again."""
        for tree in list(self.trees.values()):
            for code in [each for each, link in tree.links.items() if link.expires_us <= now_us]:
                if code in tree.links:
                    self._unlink(tree, code, now_us)

    def on_beacon(self, sender: Address, message: Beacon, now_us: int) -> None:
        """A neighbour confirms what it has asked for."""
        site = self._site
        unknown: list[tuple[str, str]] = []
        responsible = site.dht.responsible
        for name, code, digest in message.digests:
            tree = self.trees.get(name)
            bundle = tree.bundles.get(sender) if tree is not None and not code else None
            if bundle is None or bundle.seal != digest:
                space = site.interests.spaces.named(name)
                if code or sender == site.address or responsible(space.key("")):
                    bundle = site.holding.bundle(sender, space, code, now_us)
                    if bundle is None and code:
                        continue  # it was told that the region is not here
            if bundle is None or bundle.seal != digest:
                unknown.append((name, code))
            else:
                bundle.expires_us = now_us + site.settings.expiry_us
        if unknown:
            site.say(sender, Wanted(unknown), now_us)

    # Publications.

    def on_multicast(self, sender: Address, message: Multicast, now_us: int) -> None:
        """A publication comes back along what was asked for."""
        site, content = self._site, message.content
        if not site.repeats.is_new((content.publisher, content.sequence, message.space)):
            return
        tree = self.trees.get(message.space)
        if tree is None:
            return
        arrival = site.arrive(content)
        matches = site.interests.matches
        # Also to the sender: it may own the region and be a child, which does not know the publication then.
        for bundle in list(tree.bundles.values()):
            if any(matches(entry, arrival) for entry in bundle.entries.values()):
                site.say(bundle.target, message, now_us)
        for purpose, wishes in list(tree.wishes.items()):
            if purpose == OWN:
                site.give(arrival)
            elif any(matches(entry, arrival) for entry in wishes.values()):
                name, _, code = purpose.partition("\n")
                site.holding.match_for((name, code), arrival, now_us)

    def multicast_again(self, message: Multicast, now_us: int) -> None:
        """One that was to get a publication is gone; others may have taken its place. The rest know it."""
        content = message.content
        self._site.repeats.forget((content.publisher, content.sequence, message.space))
        self.on_multicast(self._site.address, message, now_us)

    @property
    def children(self) -> set[Address]:
        """All who have asked this peer for anything on its way to a region."""
        return {child for tree in self.trees.values() for child in tree.bundles}

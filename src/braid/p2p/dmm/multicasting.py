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
from braid.p2p.dmm.messages import Active, Beacon, Enter, Gone, Multicast, Resend, Update, Wanted
from braid.p2p.dmm.tables import Bundle, Change, Link, Tree, digest_of, seal_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from braid.p2p.dht.identifiers import Address
    from braid.p2p.dmm.confirming import Request
    from braid.p2p.dmm.messages import Entry
    from braid.p2p.dmm.site import Site
    from braid.p2p.space import Space

__all__ = ["ENTRIES_PER_MESSAGE", "OWN", "Multicasting"]

# So many entries go into one message; more go in parts.
ENTRIES_PER_MESSAGE: Final = 500
# With so many regions of one space a peer deals directly; entries of further ones are told through the root.
LINKS_MAX: Final = 4_096
# Entries in so many gaps between known regions look for theirs from each; with more, from the root.
GAPS_MAX: Final = 256
# When regions are lost, the rest of a failure or a split is awaited for so long; twice as long each time that
# this happens before all are found.
PAUSE_US: Final = 500_000
# What this peer's own subscriptions are filed under.
OWN: Final = ""


class Multicasting:
    """The trees that this peer is part of, by space."""

    __slots__ = ("_beacons", "_beacons_at", "_expires_us", "_site", "due_us", "trees")

    def __init__(self, site: Site) -> None:
        self._site = site
        self.trees: dict[str, Tree] = {}
        self._beacons: dict[Address, Beacon] | None = None
        """What confirms all that was asked for; None if that may have changed since."""
        self._beacons_at = -1
        """Which state of the DHT they are for."""
        self._expires_us = 0
        """No bundle expires before that."""
        self.due_us: int | None = None
        """When regions that were lost are to be looked for."""

    def tree(self, space: Space) -> Tree:
        """The tree of a space."""
        tree = self.trees.get(space.name)
        if tree is None:
            settings = self._site.settings
            comparisons = settings.covering_comparisons_max if settings.covering else 0
            tree = self.trees[space.name] = Tree(space, self._site.interests, comparisons)
        return tree

    def want(
        self,
        space: Space,
        purpose: str,
        added: Iterable[Entry],
        removed: Iterable[str],
        now_us: int,
        request: Request | None = None,
    ) -> None:
        """This peer itself asks for other entries than before, or, with a request, whether they are
        installed."""
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
        self._tell(tree, change, now_us, request)

    # Telling those who are asked.

    def tell_again(self, now_us: int) -> None:
        """The way to the roots may have changed."""
        for tree in list(self.trees.values()):
            self._tell(tree, Change(), now_us)

    def peer_failed(self, address: Address, now_us: int, *, polite: bool) -> None:
        """A peer has gone: what it was asked for is asked of another one, and what it has asked for is
        void. One that leaves takes that back itself, when it is not needed any more."""
        for tree in list(self.trees.values()):
            change = Change()
            if address in tree.bundles and not polite:
                tree.drop(address, change)
            lost = [each for each, link in tree.links.items() if link.address == address]
            for code in lost:
                tree.unlink(code)
            if tree.links and lost:
                self._look_again(tree, now_us)
            if tree.parent == address or (lost and not tree.links):
                tree.parent = None
            self._tell(tree, change, now_us)

    def _tell(self, tree: Tree, change: Change, now_us: int, request: Request | None = None) -> None:
        """Tell what has changed; all of it, if the one to be told is new. A request goes along in any
        case."""
        site = self._site
        target = self._target(tree)
        turned = target != tree.target
        tree.sent.target = target
        self._beacons = None
        if tree.links:
            if change or turned or request is not None:
                self._tell_links(tree, change, now_us, request)
        else:
            following = self._parent(tree)
            if following is None:
                if request is not None:
                    request.fail()
                return  # told when this peer has its place
            if following != tree.parent:
                tree.parent = following
                if tree.sent.entries or not tree.empty:
                    self._tell_all(tree, now_us, request)
            elif change or turned or request is not None:
                added, removed = list(change.added.values()), list(change.removed)
                number = site.confirming.part(request, now_us)
                seal = tree.sent.seal
                word = Update(tree.space.name, added, removed, seal, target=target, request=number)
                site.say(following, word, now_us)
        if tree.empty:
            self.trees.pop(tree.space.name, None)

    def _parent(self, tree: Tree) -> Address | None:
        """The next peer towards the root of a space, as the DHT says now."""
        dht = self._site.dht
        if tree.parent is not None and tree.parent_at == dht.changes:
            return tree.parent
        tree.parent_at = dht.changes
        return dht.following(tree.space.root_key)

    def _target(self, tree: Tree) -> Address:
        """Who is to get the publications that this peer asks for: if it would only pass them on, its
        child."""
        if self._site.settings.shortcuts and len(tree.bundles) == 1 and not tree.wishes:
            return next(iter(tree.bundles.values())).target
        return self._site.address

    def _tell_all(self, tree: Tree, now_us: int, request: Request | None = None) -> None:
        assert tree.parent is not None
        entries = list(tree.sent.entries.values())
        self._tell_entries(tree.parent, tree.space, "", entries, tree.target, now_us, request)

    def _tell_entries(
        self,
        address: Address,
        space: Space,
        code: str,
        entries: Sequence[Entry],
        target: Address,
        now_us: int,
        request: Request | None = None,
    ) -> None:
        seal = digest_of(entries) ^ seal_of(target)
        for first in range(0, max(1, len(entries)), ENTRIES_PER_MESSAGE):
            part = list(entries[first : first + ENTRIES_PER_MESSAGE])
            more = first + ENTRIES_PER_MESSAGE < len(entries)
            number = 0 if more else self._site.confirming.part(request, now_us)
            message = Update(space.name, part, [], seal, first == 0, more, code, target, number)
            self._site.say(address, message, now_us)

    def _tell_links(self, tree: Tree, change: Change, now_us: int, request: Request | None) -> None:
        site = self._site
        for code, link in list(tree.links.items()):
            part = tree.part(link)
            met = {entry.name for entry in part}
            added = [entry for entry in change.added.values() if entry.name in met]
            seal = tree.seal_for(link)
            removed = list(change.removed)
            number = site.confirming.part(request, now_us)
            update = Update(tree.space.name, added, removed, seal, False, False, code, tree.target, number)
            site.say(link.address, update, now_us)
        told = change.added if request is None else tree.sent.entries
        self._enter(tree, told.values(), now_us, request)

    def _enter(
        self, tree: Tree, entries: Iterable[Entry], now_us: int, request: Request | None = None
    ) -> bool:
        """Have those entries find their regions that are not known to be with all of them; whether there
        are none."""
        site, space = self._site, tree.space
        gaps = tree.gaps(entries)
        if len(gaps) > GAPS_MAX:
            gaps = {"": list({entry.name: entry for some in gaps.values() for entry in some}.values())}
        for code, lost in gaps.items():
            for first in range(0, len(lost), ENTRIES_PER_MESSAGE):
                part = lost[first : first + ENTRIES_PER_MESSAGE]
                number = site.confirming.part(request, now_us)
                message = Enter(
                    space.name, code, site.address, tree.target, part, asker=site.address, request=number,
                    guess=True,
                )  # fmt: skip
                site.dht.route(space.key(code), message, now_us)
        return not gaps

    def _look_again(self, tree: Tree, now_us: int) -> None:
        """Regions are not known any more: look for them soon, all that are lost by then at once."""
        if tree.again_us is None:
            tree.pause_us = min(2 * tree.pause_us or PAUSE_US, self._site.settings.beacon_us)
            tree.again_us = now_us + tree.pause_us
            if self.due_us is None or tree.again_us < self.due_us:
                self.due_us = tree.again_us

    def tick(self, now_us: int) -> None:
        """Look for regions that were lost."""
        if self.due_us is None or now_us < self.due_us:
            return
        self.due_us = None
        for tree in list(self.trees.values()):
            if tree.again_us is None:
                continue
            if tree.again_us > now_us:
                self.due_us = min(self.due_us or tree.again_us, tree.again_us)
                continue
            tree.again_us = None
            if tree.links and self._enter(tree, tree.sent.entries.values(), now_us):
                tree.pause_us = 0

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
                    tree.unlink(other)
            link = tree.links.get(code)
            expires_us = now_us + site.settings.cache_expiry_us
            if link is None and len(tree.links) >= LINKS_MAX:
                continue
            if link is None or link.address != sender:
                self._beacons = None
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
        tree.unlink(code)
        self._beacons = None
        if tree.links:
            self._look_again(tree, now_us)
        else:
            tree.parent = None
            self._tell(tree, Change(), now_us)

    # Leaving.

    def ask_elsewhere(self, request: Request, now_us: int) -> None:
        """This peer leaves: have those who ask it ask others, and say when they do."""
        site = self._site
        spaces: dict[Address, list[str]] = {}
        for tree in self.trees.values():
            for child in tree.bundles:
                spaces.setdefault(child, []).append(tree.space.name)
        for child, names in sorted(spaces.items()):
            number = site.confirming.part(request, now_us)
            site.say(child, Resend(site.address, tuple(names), number), now_us)

    def take_back(self, request: Request, now_us: int) -> None:
        """Nothing is asked for any more, and nobody is to be given anything by this peer."""
        site = self._site
        seal = digest_of([]) ^ seal_of(site.address)
        for tree in list(self.trees.values()):
            asked = [(code, link.address) for code, link in tree.links.items()]
            if not asked and tree.parent is not None:
                asked = [("", tree.parent)]
            for code, address in asked:
                if address != site.address:
                    number = site.confirming.part(request, now_us)
                    word = Update(tree.space.name, [], [], seal, True, False, code, site.address, number)
                    site.say(address, word, now_us)

    def are_installed(self, names: Iterable[str], request: Request | None, now_us: int) -> None:
        """Whether what this peer has asked for in some spaces is installed."""
        for name in names:
            tree = self.trees.get(name)
            if tree is not None:
                self._tell(tree, Change(), now_us, request)

    # Being asked.

    def on_update(self, sender: Address, message: Update, now_us: int) -> None:
        """A neighbour asks for other entries than before."""
        site = self._site
        space = site.interests.spaces.named(message.space)
        self.require_fit(message.added, space)
        request = site.confirming.begin(sender, message.request)
        if message.code or sender == site.address or site.dht.responsible(space.root_key):
            site.holding.update(sender, space, message, now_us, request)
        else:
            self._pass_on(sender, space, message, now_us, request)
        site.confirming.end(request, now_us)

    def _pass_on(
        self, sender: Address, space: Space, message: Update, now_us: int, request: Request | None
    ) -> None:
        site = self._site
        tree = self.tree(space)
        change = Change()
        if message.fresh:
            tree.drop(sender, change)
        bundle = tree.bundles.get(sender)
        if bundle is None:
            site.replicas.passed_by(sender, space.root_key, now_us)
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
        if bundle.seal != message.digest and not message.more:
            site.say(sender, Wanted([(space.name, "")]), now_us)
            if request is not None:
                request.fail()
        self._tell(tree, change, now_us, request)

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
        if now_us >= self._expires_us:
            self._forget_expired(now_us)
        beacons = self._beacons
        if beacons is None or self._beacons_at != site.dht.changes:
            beacons = self._make_beacons(now_us)
        for parent, beacon in beacons.items():
            site.say(parent, beacon, now_us)

    def _forget_expired(self, now_us: int) -> None:
        self._expires_us = now_us + self._site.settings.expiry_us
        for tree in list(self.trees.values()):
            expired = list(tree.expired(now_us))
            if expired:
                change = Change()
                for child in expired:
                    tree.drop(child, change)
                self._tell(tree, change, now_us)
            for bundle in tree.bundles.values():
                self._expires_us = min(self._expires_us, bundle.expires_us)

    def _make_beacons(self, now_us: int) -> dict[Address, Beacon]:
        digests: dict[Address, list[tuple[str, str, int]]] = {}
        lasting = True
        for tree in list(self.trees.values()):
            name = tree.space.name
            self._tell(tree, Change(), now_us)
            if tree.empty:
                continue
            if tree.links:
                for code, link in tree.links.items():
                    digests.setdefault(link.address, []).append((name, code, tree.seal_for(link)))
                if not tree.whole and tree.again_us is None:
                    tree.whole = self._enter(tree, tree.sent.entries.values(), now_us)
                    if tree.whole:
                        tree.pause_us = 0
                lasting = lasting and tree.whole
            elif tree.parent is not None:
                digests.setdefault(tree.parent, []).append((name, "", tree.sent.seal))
        beacons = {parent: Beacon(known) for parent, known in digests.items()}
        if lasting:
            self._beacons, self._beacons_at = beacons, self._site.dht.changes
        return beacons

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
                if code or sender == site.address or responsible(space.root_key):
                    bundle = site.holding.bundle(sender, space, code, now_us)
                    if bundle is None:
                        site.replicas.unexpected(space.key(code), now_us)
                        if code:
                            continue  # it was told that the region is not here
                elif bundle is None:
                    site.replicas.passed_by(sender, space.root_key, now_us)
            if bundle is None or bundle.seal != digest:
                unknown.append((name, code))
            else:
                bundle.expires_us = now_us + site.settings.expiry_us
        if unknown:
            site.say(sender, Wanted(unknown), now_us)

    # Publications.

    def on_multicast(self, sender: Address, message: Multicast, now_us: int) -> None:
        """A publication comes back along what was asked for."""
        site = self._site
        arrival = site.arrive(message.content)
        if not site.repeats.is_new(arrival.mark(message.space)):
            return
        tree = self.trees.get(message.space)
        if tree is None:
            return
        matches = site.interests.matches
        # Also to the sender: it may own the region and be a child, which does not know the publication then.
        for bundle in list(tree.bundles.values()):
            if any(matches(entry, arrival) for entry in bundle.entries.values()):
                site.say(bundle.target, message, now_us)
        for purpose, wishes in list(tree.wishes.items()):
            if purpose == OWN:
                site.give(arrival, now_us)
            elif any(matches(entry, arrival) for entry in wishes.values()):
                name, _, code = purpose.partition("\n")
                site.holding.match_for((name, code), arrival, now_us)

    def multicast_again(self, message: Multicast, now_us: int) -> None:
        """One that was to get a publication is gone; others may have taken its place. The rest know it."""
        self._site.repeats.forget(self._site.arrive(message.content).mark(message.space))
        self.on_multicast(self._site.address, message, now_us)

    @property
    def children(self) -> set[Address]:
        """All who have asked this peer for anything on its way to a region."""
        return {child for tree in self.trees.values() for child in tree.bundles}

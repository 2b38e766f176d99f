"""Tables of entries: what others have asked a peer for, and what it asks others for in turn.

A `Bundle` is all that one peer has asked another for in one space. Both sides keep its digest, so a beacon
of some bytes confirms it, and only where the digests differ it is told again. A `Tree` is one peer's part of
the multicast tree of a space: bundles from its children, what it wants itself, and the bundle that goes on
to its parent, without entries that others of it cover (infrastructure-free paper, section V-A).
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING

from braid.p2p.space import box_within, boxes_meet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from braid.p2p.dht.identifiers import Address
    from braid.p2p.dmm.interests import Interests
    from braid.p2p.dmm.messages import Entry
    from braid.p2p.space import Box, Space

__all__ = ["Bundle", "Change", "Link", "Tree", "digest_of", "seal_of"]


def seal_of(target: Address) -> int:
    """What a target adds to a digest."""
    return int.from_bytes(blake2b(target.encode(), digest_size=7).digest(), "big")


SEAL_OF_NOBODY = seal_of("")


def digest_of(entries: Iterable[Entry]) -> int:
    """A digest that does not depend on the order."""
    digest = 0
    for entry in entries:
        digest ^= _digest(entry)
    return digest


def _digest(entry: Entry) -> int:
    words = f"{entry.name}\n{entry.term} {entry.axis}\n{entry.text}"
    return int.from_bytes(blake2b(words.encode(), digest_size=7).digest(), "big")


class Bundle:
    """Entries by name, and a digest of them all that does not depend on their order."""

    __slots__ = ("_target", "_target_seal", "digest", "entries", "expires_us")

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.digest = 0
        self.expires_us = 0
        self._target: Address = ""
        self._target_seal = SEAL_OF_NOBODY

    @property
    def target(self) -> Address:
        """To whom publications go."""
        return self._target

    @target.setter
    def target(self, target: Address) -> None:
        if target != self._target:
            self._target = target
            self._target_seal = seal_of(target)

    @property
    def seal(self) -> int:
        """A digest of entries and target."""
        return self.digest ^ self._target_seal

    def add(self, entry: Entry) -> bool:
        """Take an entry in; whether that changes anything."""
        before = self.entries.get(entry.name)
        if before is not None:
            if before == entry:
                return False
            self.digest ^= _digest(before)
        self.entries[entry.name] = entry
        self.digest ^= _digest(entry)
        return True

    def remove(self, name: str) -> bool:
        """Take an entry out; whether it was there."""
        entry = self.entries.pop(name, None)
        if entry is None:
            return False
        self.digest ^= _digest(entry)
        return True


class Change:
    """How what a peer asks for in a space changes."""

    __slots__ = ("added", "removed")

    def __init__(self) -> None:
        self.added: dict[str, Entry] = {}
        self.removed: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)

    def add(self, entry: Entry) -> None:
        """An entry comes in."""
        self.removed.pop(entry.name, None)
        self.added[entry.name] = entry

    def remove(self, name: str) -> None:
        """An entry goes out."""
        if self.added.pop(name, None) is None:
            self.removed[name] = None


class Link:
    """An active region that a peer holds entries in, and deals with directly."""

    __slots__ = ("address", "box", "digest", "expires_us")

    def __init__(self, address: Address, box: Box, expires_us: int) -> None:
        self.address = address
        self.box = box
        self.expires_us = expires_us
        self.digest: int | None = None
        """Of what its owner is asked for; None if that may have changed."""


class Tree:
    """What this peer gives and gets of a space on the way between subscribers and regions."""

    __slots__ = (
        "_boxes",
        "_comparisons_max",
        "_interests",
        "again_us",
        "bundles",
        "covered",
        "links",
        "parent",
        "parent_at",
        "pause_us",
        "sent",
        "space",
        "whole",
        "wishes",
    )

    def __init__(self, space: Space, interests: Interests, comparisons_max: int) -> None:
        self.space = space
        self._interests = interests
        self._comparisons_max = comparisons_max
        """With how many others an entry is compared; 0 for no covering at all."""
        self._boxes: dict[str, Box] = {}
        """Where the entries lie that the parent is asked for, in the same order."""
        self.bundles: dict[Address, Bundle] = {}
        """What children have asked for."""
        self.wishes: dict[str, dict[str, Entry]] = {}
        """What this peer wants itself, by what it is for: its subscribers, or one of its regions."""
        self.sent = Bundle()
        """What the parent is asked for, and to whom it was told to send publications."""
        self.covered: dict[str, Entry] = {}
        """What the parent is not asked for, because something that it is asked for covers it."""
        self.parent: Address | None = None
        """The next peer towards the root of the space; None if it is still to be told."""
        self.parent_at = -1
        """Which state of the DHT said so."""
        self.links: dict[str, Link] = {}
        """By code, the active regions of a space that has been halved: then the parent is not asked."""
        self.whole = False
        """Whether all entries are known to be linked, and neither they nor the links have changed since."""
        self.again_us: int | None = None
        """When to look for the regions that are not known any more; None: nothing was lost."""
        self.pause_us = 0
        """How long to wait before that, so that what is lost together is looked for together."""

    @property
    def target(self) -> Address:
        """To whom the parent was told to send publications."""
        return self.sent.target

    @property
    def empty(self) -> bool:
        """Whether nobody wants anything."""
        return not self.bundles and not self.wishes

    @property
    def size(self) -> int:
        """How many entries of others it holds."""
        return sum(len(bundle.entries) for bundle in self.bundles.values())

    def add(self, entry: Entry, change: Change) -> None:
        """An entry was added to a bundle or to the wishes."""
        name = entry.name
        sent = self.sent.entries.get(name)
        if sent is not None:
            if sent == entry:
                return
            self._take_back(sent, change)
        box = self._interests.box(entry)
        if self._comparisons_max:
            narrower = self._narrower(entry, box)
            if narrower is None:
                self.covered[name] = entry
                return
            for each in narrower:
                self.changed()
                self._take_out(each.name)
                self.covered[each.name] = each
                change.remove(each.name)
        self.covered.pop(name, None)
        self.sent.add(entry)
        self._boxes[name] = box
        self.changed()
        change.add(entry)

    def _narrower(self, entry: Entry, box: Box) -> list[Entry] | None:
        """Which of the entries that the parent is asked for this one covers; None if it is covered itself.

        Whatever covers another has it within its box, which is quickly seen.
        """
        covers, entries = self._interests.covers, self.sent.entries
        inside: list[str] = []
        if len(box) == 2:
            low, high = box
            for name, (other_low, other_high) in islice(self._boxes.items(), self._comparisons_max):
                if other_low <= low and high <= other_high and covers(entries[name], entry):
                    return None
                if low <= other_low and other_high <= high:
                    inside.append(name)
        else:
            for name, other in islice(self._boxes.items(), self._comparisons_max):
                if box_within(box, other) and covers(entries[name], entry):
                    return None
                if box_within(other, box):
                    inside.append(name)
        return [entries[name] for name in inside if covers(entry, entries[name])]

    def _take_out(self, name: str) -> None:
        """The parent is not asked for an entry any more."""
        self.sent.remove(name)
        self._boxes.pop(name, None)

    def remove(self, name: str, change: Change) -> None:
        """An entry was taken out of a bundle or the wishes."""
        for holder in (*(each.entries for each in self.bundles.values()), *self.wishes.values()):
            if name in holder:
                return  # it has come by two ways, and one of them is left
        self.covered.pop(name, None)
        gone = self.sent.entries.get(name)
        if gone is not None:
            self._take_back(gone, change)

    def _take_back(self, gone: Entry, change: Change) -> None:
        """Ask for an entry no more, but for what it has covered."""
        self.changed()
        self._take_out(gone.name)
        change.remove(gone.name)
        for entry in [each for each in self.covered.values() if self._interests.covers(gone, each)]:
            del self.covered[entry.name]
            self.add(entry, change)

    def drop(self, child: Address, change: Change) -> None:
        """Forget all that a child has asked for."""
        bundle = self.bundles.pop(child, None)
        if bundle is not None:
            for name in bundle.entries:
                self.remove(name, change)

    def changed(self) -> None:
        """What is asked for is about to be other than before."""
        self.whole = False
        for link in self.links.values():
            link.digest = None

    def unlink(self, code: str) -> Link:
        """Deal with the owner of a region no more."""
        self.whole = False
        return self.links.pop(code)

    def seal_for(self, link: Link) -> int:
        """A digest of what the owner of a region is asked for, and of the target."""
        if link.digest is None:
            link.digest = digest_of(self.part(link))
        return link.digest ^ seal_of(self.target)

    def part(self, link: Link) -> list[Entry]:
        """What the owner of a region is asked for."""
        box = self._interests.box
        return [entry for entry in self.sent.entries.values() if boxes_meet(box(entry), link.box)]

    def gaps(self, entries: Iterable[Entry]) -> dict[str, list[Entry]]:
        """Where the owners of active regions are not known, by code: the entries that lie there.

        A gap is as large as it can be without a region in it that is known; nobody says that it is a region.
        """
        around = {code[:length] for code in self.links for length in range(len(code))}
        boxes: dict[str, Box] = {}
        found: dict[str, list[Entry]] = {}
        for entry in entries:
            box = self._interests.box(entry)
            if any(box_within(box, link.box) for link in self.links.values()):
                continue
            codes = [""]
            while codes:
                code = codes.pop()
                if code in self.links:
                    continue
                if code not in around:
                    found.setdefault(code, []).append(entry)
                    continue
                for half in (code + "1", code + "0"):
                    if half not in boxes:
                        boxes[half] = self.space.region(half)
                    if boxes_meet(box, boxes[half]):
                        codes.append(half)
        return found

    def expired(self, now_us: int) -> Iterator[Address]:
        """Children that have not confirmed their bundles in time."""
        return (child for child, bundle in self.bundles.items() if bundle.expires_us <= now_us)

"""The regions that this peer owns: entries come in, publications are matched, attributes are asked for.

How tables of regions get from one peer to another is in `moving`.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from braid.p2p.dmm.columns import Columns
from braid.p2p.dmm.interests import GATHERED, has_all
from braid.p2p.dmm.messages import Active, Enter, Entry, Gone, Load, Multicast, Update, Wanted
from braid.p2p.dmm.moving import Moving
from braid.p2p.dmm.regions import Region, State
from braid.p2p.dmm.tables import Bundle, seal_of
from braid.p2p.schema import kind_of
from braid.p2p.space import boxes_meet

if TYPE_CHECKING:
    from collections.abc import Iterable

    from braid.p2p.dht.identifiers import Address
    from braid.p2p.dmm.arrivals import Arrival
    from braid.p2p.dmm.confirming import Request
    from braid.p2p.dmm.messages import Name
    from braid.p2p.dmm.site import Site
    from braid.p2p.space import Space

__all__ = ["Holding"]

# So many publications tell what is selective.
SAMPLES_MAX: Final = 32
# So many publications wait for entries that are coming back after a failure.
HELD_MAX: Final = 1_000
# So many peers are told again and again that a region is active.
CACHERS_MAX: Final = 10_000


class Holding:
    """The regions of one peer."""

    __slots__ = ("_site", "matched", "moving", "regions")

    def __init__(self, site: Site) -> None:
        self._site = site
        self.regions: dict[Name, Region] = {}
        self.matched = 0
        """Publications that regions here have matched, each once for each region."""
        self.moving = Moving(site, self)

    # Entries.

    def update(
        self,
        sender: Address,
        space: Space,
        message: Update,
        now_us: int,
        request: Request | None = None,
    ) -> None:
        """A holder asks for other entries of a region, or of the root of a space, than before."""
        site = self._site
        region = self.regions.get((space.name, message.code))
        if region is None or region.state is State.MOVED:
            if message.code:
                self._say_gone(sender, (space.name, message.code), now_us, request)
                return
            if not message.added:
                if request is not None and message.digest != seal_of(message.target or sender):
                    request.fail()  # all that the sender has asked for is lost
                    site.say(sender, Wanted([(space.name, "")]), now_us)
                return  # it asks for nothing, and nothing is here
            region = self.moving.begin(space, "", now_us)
        if region.state is State.INNER:
            if message.code:
                self._say_gone(sender, region.name, now_us, request)
            elif message.added:
                target = message.target or sender
                self.descend(region, sender, target, message.added, now_us, request=request)
            elif request is not None and message.digest != seal_of(message.target or sender):
                request.fail()  # it does not know of the halves yet
                site.say(sender, Wanted([(space.name, "")]), now_us)
            return
        bundle = self._bundle_of(region, sender, now_us, message.target)
        gone = list(bundle.entries) if message.fresh else message.removed
        self.take_out(region, sender, [name for name in gone if name in bundle.entries], now_us)
        self.take_in(region, sender, message.added, now_us)
        if bundle.seal != message.digest and not message.more:
            site.say(sender, Wanted([region.name]), now_us)
            if request is not None:
                request.fail()
        self.confirm_region(region, now_us, request)
        if not bundle.entries:
            region.bundles.pop(sender, None)
            self._end_if_empty(region, now_us)

    def _say_gone(self, sender: Address, name: Name, now_us: int, request: Request | None) -> None:
        self._site.say(sender, Gone([name]), now_us)
        if request is not None:
            request.fail()

    def confirm_region(self, region: Region, now_us: int, request: Request | None) -> None:
        """A request ends here when this region gets all publications that its entries are for."""
        if region.space.name == GATHERED:
            self._site.gathering.tell(region, request, now_us)
        if request is None:
            return
        if region.state is not State.LEAF or region.outgoing:
            request.fail()  # who has the table now does not know all that is here
            return
        if not region.code:
            self._site.finding.in_use(region.space.name, now_us, request, region.source)
        for axis in sorted(set(region.primaries.values())):
            attribute = self._site.interests.spaces.of([region.space.axes[axis]])
            self._site.multicasting.are_installed([attribute.name], request, now_us)

    def _bundle_of(self, region: Region, holder: Address, now_us: int, target: Address = "") -> Bundle:
        bundle = region.bundles.get(holder)
        if bundle is None:
            bundle = region.bundles[holder] = Bundle()
            self._site.replicas.changed(now_us)
        bundle.target = target or bundle.target or holder
        bundle.expires_us = now_us + self._site.settings.expiry_us
        return bundle

    def take_in(
        self, region: Region, holder: Address, entries: Iterable[Entry], now_us: int, target: Address = ""
    ) -> None:
        """Add entries of a holder to a region; to its halves or its new owner, too, if they have its
        table."""
        bundle = self._bundle_of(region, holder, now_us, target)
        added = [entry for entry in entries if bundle.add(entry)]
        if not added:
            return
        region.columns = None
        if region.state is State.LEAF:
            self._ask(region, added, now_us)
            if region.held:
                self._match_held(region, now_us)
        self.moving.pass_on(region, holder, added, now_us)
        self.moving.split_if_full(region, now_us)

    def take_out(self, region: Region, holder: Address, names: Iterable[str], now_us: int) -> None:
        """Remove entries of a holder from a region."""
        bundle = region.bundles.get(holder)
        if bundle is not None:
            region.columns = None
            removed = [name for name in names if bundle.remove(name)]
            self._ask_no_more(region, [name for name in removed if not region.holds(name)], now_us)

    def on_enter(self, sender: Address, message: Enter, now_us: int) -> None:
        """Entries look for the active regions that they meet."""
        site = self._site
        request = site.confirming.begin(message.asker, message.request)
        self._on_enter(message, now_us, request)
        site.confirming.end(request, now_us)

    def _on_enter(self, message: Enter, now_us: int, request: Request | None) -> None:
        site = self._site
        space = site.interests.spaces.named(message.space)
        site.multicasting.require_fit(message.entries, space)
        region = self.regions.get((space.name, message.code))
        if region is None or region.state is State.MOVED:
            if message.code and not message.doubt:
                # Its parent says it is active. Perhaps it was; if the parent says so again, it has to be. The
                # other half has nothing to do with that.
                number = site.confirming.part(request, now_us)
                again = Enter(
                    space.name, message.code[:-1], message.holder, message.target, message.entries,
                    not message.guess, site.address, number, message.guess, message.code,
                )  # fmt: skip
                site.dht.route(space.key(again.code), again, now_us)
                return
            region = self.moving.begin(space, message.code, now_us)
        if region.state is State.INNER:
            if region.merging_until_us is not None:
                self.take_in(region, message.holder, message.entries, now_us, message.target)
            self.descend(
                region, message.holder, message.target, message.entries, now_us, message.doubt, request,
                message.half,
            )  # fmt: skip
            return
        self.take_in(region, message.holder, message.entries, now_us, message.target)
        self.confirm_region(region, now_us, request)
        if region.code:
            site.say(message.holder, Active([region.name], True), now_us)

    def descend(
        self,
        region: Region,
        holder: Address,
        target: Address,
        entries: Iterable[Entry],
        now_us: int,
        doubt: bool = False,
        request: Request | None = None,
        half: str = "",
    ) -> None:
        """Have entries go on to the halves of a region that they meet, or to one half alone."""
        site, space = self._site, region.space
        box = site.interests.box
        for code in (region.code + "0", region.code + "1"):
            if half and not half.startswith(code):
                continue
            around = space.region(code)
            meeting = [entry for entry in entries if boxes_meet(box(entry), around)]
            if meeting:
                number = site.confirming.part(request, now_us)
                further = half if half != code else ""
                message = Enter(
                    space.name, code, holder, target, meeting, doubt, site.address, number, half=further
                )
                site.dht.route(space.key(code), message, now_us)

    def bundle(self, holder: Address, space: Space, code: str, now_us: int) -> Bundle | None:
        """What a holder has in a region; None, and the holder is told, if the region is not active here."""
        region = self.regions.get((space.name, code))
        if region is not None and region.state in (State.LEAF, State.BUILDING):
            return region.bundles.get(holder)
        if code:
            self._site.say(holder, Gone([(space.name, code)]), now_us)
        return None

    def _end_if_empty(self, region: Region, now_us: int) -> None:
        """A root without entries is not kept; other regions are, until they are joined."""
        if not region.code and not region.bundles and region.state is State.LEAF and not region.outgoing:
            self.regions.pop(region.name, None)

    # DMM-AR: asking for publications of one attribute.

    def _ask(self, region: Region, entries: Iterable[Entry], now_us: int) -> None:
        """Ask for the publications of one attribute of each entry, in the space of that attribute alone."""
        site, space = self._site, region.space
        if site.settings.algorithm == "DMM" or len(space.axes) < 2:
            return
        wanted: dict[int, list[Entry]] = {}
        for entry in entries:
            before = region.primaries.get(entry.name)
            axis = self._primary(region, entry) if before is None else before
            region.primaries[entry.name] = axis
            wanted.setdefault(axis, []).append(Entry(entry.name, entry.text, entry.term, axis))
        for axis, asked in wanted.items():
            attribute = site.interests.spaces.of([space.axes[axis]])
            site.multicasting.want(attribute, region.purpose, asked, (), now_us)

    def _ask_no_more(self, region: Region, names: Iterable[str], now_us: int) -> None:
        unwanted: dict[int, list[str]] = {}
        for name in names:
            axis = region.primaries.pop(name, None)
            if axis is not None:
                unwanted.setdefault(axis, []).append(name)
        for axis, removed in unwanted.items():
            attribute = self._site.interests.spaces.of([region.space.axes[axis]])
            self._site.multicasting.want(attribute, region.purpose, (), removed, now_us)

    def ask_for_all(self, region: Region, now_us: int, request: Request | None = None) -> None:
        """A region has become active: ask for all that its entries need."""
        self._ask_no_more(region, [name for name in region.primaries if not region.holds(name)], now_us)
        for bundle in list(region.bundles.values()):
            self._ask(region, list(bundle.entries.values()), now_us)
        self.confirm_region(region, now_us, request)

    def ask_for_nothing(self, region: Region, now_us: int) -> None:
        """A region is active no more, and those who are have asked for themselves."""
        self._ask_no_more(region, list(region.primaries), now_us)

    def _primary(self, region: Region, entry: Entry) -> int:
        space, policy = region.space, self._site.settings.primary
        if policy == "first":
            return 0
        if policy == "random":
            return blake2b(space.name.encode(), digest_size=4).digest()[0] % len(space.axes)
        place = self._site.interests.place(entry)
        whole = space.whole
        seen = len(region.samples)

        def share(axis: int) -> float:
            """Of all publications, those that the axis lets through: as seen, and by its width before."""
            low, high = place.sides[axis]
            hits = 0
            for arrival in region.samples:
                if _has(arrival, space, axis):
                    box = arrival.box(space)
                    hits += low <= box[2 * axis + 1] and box[2 * axis] <= high
            return (hits + (high - low + 1) / (whole[2 * axis + 1] + 1)) / (seen + 1)

        return min(range(len(space.axes)), key=share)

    # Publications.

    def match(self, region: Region, arrival: Arrival, now_us: int) -> None:
        """Send a publication back to those whose entries in an active region it satisfies."""
        site, content, space = self._site, arrival.content, region.space
        if not site.repeats.is_new(arrival.mark(region.name)):
            return
        self.matched += 1
        if len(space.axes) > 1:
            region.samples.append(arrival)
            if len(region.samples) > SAMPLES_MAX:
                del region.samples[0]
        if region.held is not None and len(region.held) < HELD_MAX:
            region.held.append(arrival)
        if site.settings.algorithm == "DMM-AR" and not has_all(space, arrival.attributes):
            return
        if region.code and not boxes_meet(arrival.box(space), region.box):
            return
        if region.columns is None:
            region.columns = Columns(space, region.bundles.values(), site.interests)
        matches, satisfied = site.interests.matches, None
        multicast = Multicast(space.name, content)
        for bundle, entry in region.columns.meeting(arrival.box(space)):
            if bundle is not satisfied and matches(entry, arrival):
                satisfied = bundle
                site.say(bundle.target, multicast, now_us)

    def _match_held(self, region: Region, now_us: int) -> None:
        """Entries have come back: give them what has passed meanwhile. Repeats are told further on."""
        held, region.held = region.held or [], None
        for arrival in held:
            self._site.repeats.forget(arrival.mark(region.name))
            self.match(region, arrival, now_us)
        region.held = held

    def match_again(self, message: Multicast, now_us: int) -> None:
        """One that was to get a publication is gone; others may have taken its place. The rest know it."""
        arrival = self._site.arrive(message.content)
        for region in list(self.regions.values()):
            if region.space.name == message.space and self._site.repeats.forget(arrival.mark(region.name)):
                self.match(region, arrival, now_us)

    def match_for(self, name: Name, arrival: Arrival, now_us: int) -> None:
        """A publication has come that a region of this peer has asked for in the space of an attribute."""
        region = self.regions.get(name)
        if region is None:
            return
        if region.state is State.LEAF:
            self.match(region, arrival, now_us)
        elif region.state is not State.BUILDING:
            self._site.finding.go_on(region, arrival, now_us)

    # Soft state.

    def beacon(self, now_us: int) -> None:
        """Forget what holders did not confirm; tell the owners of the regions around how full these are."""
        for region in list(self.regions.values()):
            if region.state is State.LEAF:
                for holder in [each for each, one in region.bundles.items() if one.expires_us <= now_us]:
                    self.drop(region, holder, now_us)
            if region.code and region.state in (State.LEAF, State.INNER):
                self._report(region, now_us)

    def report_to(self, address: Address, now_us: int) -> None:
        """A peer that may have owned regions around those of this peer has died: tell whoever owns them."""
        for region in list(self.regions.values()):
            if region.code and region.state in (State.LEAF, State.INNER):
                self._report(region, now_us)

    def _report(self, region: Region, now_us: int) -> None:
        count = region.size if region.state is State.LEAF else -1
        load = Load(region.space.name, region.code, self._site.address, count)
        self._site.dht.route(region.space.key(region.code[:-1]), load, now_us)

    def drop(self, region: Region, holder: Address, now_us: int) -> None:
        """Forget all that a holder has in a region."""
        bundle = region.bundles.get(holder)
        if bundle is not None:
            self.take_out(region, holder, list(bundle.entries), now_us)
            del region.bundles[holder]
            self._end_if_empty(region, now_us)

    def confirm(self, now_us: int) -> None:
        """Tell those who deal with regions directly that they are still active."""
        site = self._site
        told: dict[tuple[Address, bool], list[Name]] = {}
        oldest_us = now_us - 2 * site.settings.cache_expiry_us
        for region in self.regions.values():
            if region.state is not State.LEAF:
                continue
            for address, used_us in list(region.cachers.items()):
                if used_us < oldest_us:
                    del region.cachers[address]
                else:
                    told.setdefault((address, False), []).append(region.name)
            if region.code:
                for holder in region.bundles:
                    told.setdefault((holder, True), []).append(region.name)
        for (address, held), names in told.items():
            site.say(address, Active(names, held), now_us)

    def remember_cacher(self, region: Region, address: Address, now_us: int) -> None:
        """A peer publishes to this region directly."""
        if address in region.cachers or len(region.cachers) < CACHERS_MAX:
            region.cachers[address] = now_us

    @property
    def children(self) -> set[Address]:
        """All whose entries are in regions of this peer, and the owners of their halves."""
        found: set[Address] = set()
        for region in self.regions.values():
            found.update(region.bundles)
            found.update(owner for _, owner in region.loads.values())
        return found


def _has(arrival: Arrival, space: Space, axis: int) -> bool:
    """Whether a publication has the attribute of an axis, with a value of the right kind."""
    name, kind = space.axes[axis]
    value = arrival.attributes.get(name)
    return value is not None and kind_of(value) == kind

"""Publications that look for the active regions that they lie in.

A publication goes to the peer that owns a region around it, for which any prefix of its code will do. If that
region has halves, the active one is smaller; if it is not there, it is larger. So the length of the active
region's code is searched for: from a short one on in larger and larger steps, then by halving, some log2 of
the depth of the tree in all; or, in the paper's way, from the smallest region up, one bit at a time.
Neither begins at the root, which would be busy with all publications of the space.

With ranges a publication may lie in many regions: where it meets both halves of a region, two copies go on,
each for one half, so that no region is visited twice.

Who has published to a region may remember it (`TreeCache`, section V-C): the owner of an active region tells
those who are to remember, again and again as long as they use it. Who finds a space unused is told so, and
when that changes. With `acknowledged` the publisher is told where its publication has arrived, and sends it
again if it is not told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from braid.p2p.dmm.messages import Active, Arrived, Find, Gone, Idle, InUse
from braid.p2p.dmm.regions import State
from braid.p2p.space import boxes_meet

if TYPE_CHECKING:
    from braid.p2p.dht.identifiers import Address
    from braid.p2p.dmm.arrivals import Arrival
    from braid.p2p.dmm.confirming import Request
    from braid.p2p.dmm.messages import Content
    from braid.p2p.dmm.regions import Region
    from braid.p2p.dmm.site import Site
    from braid.p2p.space import Box, Space

__all__ = ["Finding"]

# The first guess at how long the code of an active region is: four peers share what all would ask the root.
LENGTH_FIRST: Final = 2
# So many peers on the way are told of an active region.
CACHES_MAX: Final = 16
# So many regions of one space are remembered, and so many spaces.
REMEMBERED_MAX: Final = 1_024
SPACES_MAX: Final = 10_000
# So many peers are promised to be told when an unused space is used.
PROMISES_MAX: Final = 10_000
# So many publications wait to hear that they have arrived; further ones are sent once.
WAITING_MAX: Final = 10_000
# More lookups than this do not find anything: the tree of regions is in disorder.
LOOKUPS_MAX: Final = 1_024


class Waiting:
    """A publication of this peer that has not arrived everywhere."""

    __slots__ = ("again_us", "arrival", "arrived", "tries")

    def __init__(self, arrival: Arrival, again_us: int) -> None:
        self.arrival = arrival
        self.arrived: dict[str, set[str]] = {}
        """By space, the codes of regions that it has arrived in."""
        self.again_us = again_us
        self.tries = 1


class Finding:
    """The publications of one peer and those that come to it on their way."""

    __slots__ = ("_cache", "_idle", "_lengths", "_promises", "_site", "_told", "_used", "_waiting", "due_us")

    def __init__(self, site: Site) -> None:
        self._site = site
        self._cache: dict[str, dict[str, tuple[Address, int]]] = {}
        """By space and code: where an active region is, and until when that is believed."""
        self._idle: dict[str, int] = {}
        """Spaces of which nobody wants anything, and until when that is believed."""
        self._promises: dict[str, dict[Address, int]] = {}
        """By unused space, who is to be told when it is used, and until when."""
        self._lengths: dict[str, int] = {}
        """By space, how long the code of the latest region was in which a publication arrived."""
        self._told: set[str] = set()
        """Those of them of which all have been told."""
        self._used: dict[str, int] = {}
        """Spaces that have come into use, and until when news that they are idle are older than that."""
        self._waiting: dict[tuple[str, int], Waiting] = {}
        self.due_us: int | None = None
        """When something may have to be sent again."""

    # From the publisher.

    def publish(self, arrival: Arrival, spaces: list[Space], now_us: int) -> None:
        """Look for all regions that a new publication lies in."""
        site, content = self._site, arrival.content
        spaces = [space for space in spaces if self._idle.get(space.name, 0) <= now_us]
        if site.settings.acknowledged and spaces and len(self._waiting) < WAITING_MAX:
            waiting = Waiting(arrival, now_us + site.settings.retry_us)
            waiting.arrived = {space.name: set() for space in spaces}
            self._waiting[content.publisher, content.sequence] = waiting
            if self.due_us is None:
                self.due_us = waiting.again_us
        for space in spaces:
            self._start(space, arrival, now_us)

    def _start(self, space: Space, arrival: Arrival, now_us: int, *, cold: bool = False) -> None:
        site = self._site
        target = space.enclosing(arrival.box(space))
        caches = (site.address,) if site.settings.tree_cache == "publisher" else ()
        find = Find(space.name, target, 0, 0, len(target), arrival.content, site.address, caches=caches)
        if cold or not self._from_cache(find, now_us):
            self._look_up(space, find, self._first_length(space.name, target), now_us)

    def _first_length(self, name: str, target: str) -> int:
        if self._site.settings.lookup != "search":
            return len(target) if self._site.settings.lookup == "climb" else 0
        known = self._cache.get(name)
        if known:
            return min(max(map(len, known)), len(target))
        # Who is told where its publications arrive asks the root of a space once, and knows better then.
        first = 0 if self._site.settings.acknowledged else LENGTH_FIRST
        return min(self._lengths.get(name, first), len(target))

    def go_on(self, region: Region, arrival: Arrival, now_us: int) -> None:
        """A publication has come to a region that is not active any more: look for those that are."""
        space = region.space
        target = space.enclosing(arrival.box(space))
        if not target.startswith(region.code):
            if not boxes_meet(arrival.box(space), region.box):
                return
            target = region.code
        find = Find(space.name, target, 0, 0, len(target), arrival.content, "")
        self._look_up(space, find, min(len(region.code), len(target)), now_us)

    def _look_up(self, space: Space, find: Find, length: int, now_us: int) -> None:
        find.length = length
        self._site.dht.route(space.key(find.target[:length]), find, now_us)

    def _from_cache(self, find: Find, now_us: int) -> bool:
        """Send a publication directly to where its region was active, if that is remembered."""
        known = self._cache.get(find.space)
        if not known:
            return False
        for code, (address, until_us) in known.items():
            if find.target.startswith(code) and until_us > now_us:
                direct = Find(
                    find.space, find.target, len(code), 0, len(find.target), find.content, find.origin,
                    find.lookups, True, caches=(self._site.address,),
                )  # fmt: skip
                self._site.say(address, direct, now_us)
                return True
        return False

    # On the way.

    def forward(self, find: Find, now_us: int) -> Find | None:
        """A publication passes through: perhaps this peer knows the rest of its way, or is to learn it."""
        place = self._site.settings.tree_cache
        if place not in ("path", "leaf-hop") or find.relayed or find.doubt:
            return find
        if find.lookups == 1 and self._from_cache(find, now_us):
            return None
        if place == "leaf-hop" or len(find.caches) >= CACHES_MAX or self._site.address in find.caches:
            return find
        return self._copy(find, find.length, find.low, find.high, caches=(*find.caches, self._site.address))

    def _copy(
        self, find: Find, length: int, low: int, high: int, *, doubt: bool = False,
        caches: tuple[Address, ...] | None = None,
    ) -> Find:  # fmt: skip
        return Find(
            find.space, find.target, length, low, high, find.content, find.origin, find.lookups,
            doubt=doubt, caches=find.caches if caches is None else caches,
        )  # fmt: skip

    # At a region.

    def on_find(self, sender: Address, find: Find, now_us: int, *, routed: bool = False) -> None:
        """A publication has come to where a region around it is, or would be."""
        site = self._site
        space = site.interests.spaces.named(find.space)
        if find.lookups > LOOKUPS_MAX or not find.length <= len(find.target) <= space.depth:
            return
        if routed and find.lookups == 1 and site.settings.tree_cache == "leaf-hop" and sender != site.address:
            find = self._copy(find, find.length, find.low, find.high, doubt=find.doubt, caches=(sender,))
        code = find.target[: find.length]
        region = site.holding.regions.get((space.name, code))
        state = region.state if region is not None else None
        if region is not None and (state is State.LEAF or (find.relayed and state is State.MOVED)):
            self._arrive(region, sender, find, now_us)
            if region.source is not None and not find.relayed and state is State.LEAF:
                self._relay(region.source, find, now_us)  # the rest of the table may still be there
        elif region is not None and state is State.INNER:
            self._go_down(space, find, now_us)
        elif region is not None and state is State.BUILDING and not find.relayed and region.source:
            self._relay(region.source, find, now_us)
        elif not routed and not find.relayed:
            if find.direct:
                site.say(sender, Gone([(space.name, code)]), now_us)
            site.dht.route(space.key(code), self._copy(find, find.length, 0, len(find.target)), now_us)
        else:
            former = None if find.relayed else site.holding.moving.former_owner(space.key(code), now_us)
            if former is not None:
                self._relay(former, find, now_us)
            else:
                self._go_up(space, sender, find, now_us)

    def _relay(self, address: Address, find: Find, now_us: int) -> None:
        copy = self._copy(find, find.length, find.low, find.high, doubt=find.doubt)
        copy.relayed = True
        self._site.say(address, copy, now_us)

    def _arrive(self, region: Region, sender: Address, find: Find, now_us: int) -> None:
        site, holding = self._site, self._site.holding
        if find.direct:
            holding.remember_cacher(region, sender, now_us)
        else:
            for address in find.caches:
                holding.remember_cacher(region, address, now_us)
                site.say(address, Active([region.name]), now_us)
        holding.match(region, site.arrive(find.content), now_us)
        self._tell_origin(find, region.code, now_us)

    def _tell_origin(self, find: Find, code: str, now_us: int) -> None:
        if self._site.settings.acknowledged and find.origin:
            content = find.content
            word = Arrived(content.publisher, content.sequence, find.space, code)
            self._site.say(find.origin, word, now_us)

    def _go_down(self, space: Space, find: Find, now_us: int) -> None:
        length, low = find.length, find.length + 1
        if length < len(find.target):
            high = max(find.high, low)
            following = low
            if self._site.settings.lookup == "search":
                unbounded = high == len(find.target)
                following = min(2 * length or 1, high) if unbounded else (low + high) // 2
                following = max(low, following)
            self._next(space, self._copy(find, following, low, high, doubt=find.doubt), now_us)
            return
        box = self._site.arrive(find.content).box(space)
        for half in (find.target + "0", find.target + "1"):
            if boxes_meet(box, space.region(half)):
                copy = self._copy(find, low, low, low, doubt=find.doubt)
                copy.target = half
                self._next(space, copy, now_us)

    def _go_up(self, space: Space, sender: Address, find: Find, now_us: int) -> None:
        length = find.length
        if length == 0:
            # A former owner does not hear when the space comes into use, so it promises nothing.
            if not find.relayed:
                self._tell_idle(space, find, now_us)
        elif length > find.low or not find.doubt:
            doubt = length <= find.low
            low, high = (0 if doubt else find.low), length - 1
            following = high
            if self._site.settings.lookup == "search" and not doubt:
                following = (low + high) // 2
            self._next(space, self._copy(find, following, low, high, doubt=doubt or find.doubt), now_us)
        else:
            # Its parent has said twice that this region is active: what was here is lost.
            region = self._site.holding.moving.recover(space, find.target[:length], now_us)
            self._site.replicas.unexpected(space.key(region.code), now_us)
            self._arrive(region, sender, find, now_us)

    def _next(self, space: Space, find: Find, now_us: int) -> None:
        find.lookups += 1
        self._look_up(space, find, find.length, now_us)

    # Spaces that nobody uses.

    def _tell_idle(self, space: Space, find: Find, now_us: int) -> None:
        site = self._site
        if site.replicas.unexpected(space.root_key, now_us):
            region = site.holding.moving.recover(space, "", now_us)
            self._arrive(region, "", find, now_us)
            return
        self._tell_origin(find, "", now_us)
        if site.leaving:
            return
        promises = self._promises.setdefault(space.name, {})
        if find.origin and len(promises) < PROMISES_MAX and len(self._promises) < SPACES_MAX:
            promises[find.origin] = now_us + site.settings.cache_expiry_us
            self._told.discard(space.name)
            site.say(find.origin, Idle(space.name), now_us)

    def in_use(
        self, name: str, now_us: int, request: Request | None = None, former: Address | None = None
    ) -> None:
        """A space has its first entries: those who were told otherwise are told, also by its former owner.

        They are told once, and with every request again as long as they might rely on it, for an answer may
        be missing.
        """
        site = self._site
        if name in self._promises and (request is not None or name not in self._told):
            self._told.add(name)
            for address, until_us in self._promises[name].items():
                if until_us > now_us:
                    site.say(address, InUse(name, site.confirming.part(request, now_us)), now_us)
        if request is not None and former is not None:
            site.say(former, InUse(name, site.confirming.part(request, now_us)), now_us)

    def break_promises(self, now_us: int) -> None:
        """Roots that belong to others now: those who rely on this peer are told to ask again."""
        for name in list(self._promises):
            if not self._site.dht.responsible(self._site.interests.spaces.named(name).root_key):
                self.in_use(name, now_us)

    def end_promises(self, request: Request, now_us: int) -> None:
        """This peer leaves: all who rely on it are told to ask again."""
        for name in list(self._promises):
            self.in_use(name, now_us, request)

    def on_idle(self, sender: Address, message: Idle, now_us: int) -> None:
        """Nobody wants anything of a space."""
        if len(self._idle) < SPACES_MAX and self._used.get(message.space, 0) <= now_us:
            # A little shorter than what was promised: the word was on its way for some time.
            self._idle[message.space] = now_us + self._site.settings.cache_expiry_us * 2 // 3

    def on_in_use(self, sender: Address, message: InUse, now_us: int) -> None:
        """A space is used after all."""
        site = self._site
        self._idle.pop(message.space, None)
        if len(self._used) < SPACES_MAX:
            self._used[message.space] = now_us + site.settings.cache_expiry_us // 3
        request = site.confirming.begin(sender, message.request)
        self.in_use(message.space, now_us, request)
        # Two peers that have promised it to each other are not to tell each other for ever.
        self._promises.pop(message.space, None)
        self._told.discard(message.space)
        site.confirming.end(request, now_us)

    # What is remembered.

    def remember(self, name: str, code: str, address: Address, now_us: int) -> None:
        """A region is active at a peer."""
        if self._site.settings.tree_cache is None:
            return
        known = self._cache.get(name)
        if known is None:
            if len(self._cache) >= SPACES_MAX:
                self._cache.clear()
            known = self._cache[name] = {}
        elif code not in known:
            for other in [each for each in known if each.startswith(code) or code.startswith(each)]:
                del known[other]
            if len(known) >= REMEMBERED_MAX:
                known.clear()
        known[code] = (address, now_us + self._site.settings.cache_expiry_us)

    def forget(self, name: str, code: str, address: Address) -> None:
        """A region is not active at a peer."""
        known = self._cache.get(name)
        if known is not None and known.get(code, ("", 0))[0] == address:
            del known[code]

    def find_again(self, find: Find, now_us: int) -> None:
        """A publication did not come to where its region was known to be: the DHT knows better."""
        space = self._site.interests.spaces.named(find.space)
        again = self._copy(find, find.length, 0, len(find.target), doubt=False)
        self._look_up(space, again, min(find.length, len(find.target)), now_us)

    def forget_all_at(self, address: Address) -> None:
        """A peer has gone."""
        for known in self._cache.values():
            for code in [each for each, (owner, _) in known.items() if owner == address]:
                del known[code]

    def forget_old(self, now_us: int) -> None:
        """What was not confirmed in time does not count."""
        for name, known in list(self._cache.items()):
            for code in [each for each, (_, until_us) in known.items() if until_us <= now_us]:
                del known[code]
            if not known:
                del self._cache[name]
        self._idle = {name: until_us for name, until_us in self._idle.items() if until_us > now_us}
        for name, promises in list(self._promises.items()):
            for address in [each for each, until_us in promises.items() if until_us <= now_us]:
                del promises[address]
            if not promises:
                del self._promises[name]
                self._told.discard(name)
        self._used = {name: until_us for name, until_us in self._used.items() if until_us > now_us}

    @property
    def waits(self) -> bool:
        """Whether a publication of this peer has not arrived everywhere."""
        return bool(self._waiting)

    @property
    def remembers(self) -> bool:
        """Whether anything is to be forgotten some time."""
        return bool(self._cache or self._idle or self._promises or self._used)

    # From end to end.

    def on_arrived(self, sender: Address, message: Arrived, now_us: int) -> None:
        """A publication of this peer was matched in a region."""
        mark = (message.publisher, message.sequence)
        waiting = self._waiting.get(mark)
        codes = waiting.arrived.get(message.space) if waiting is not None else None
        if waiting is None or codes is None:
            return
        codes.add(message.code)
        if len(self._lengths) < SPACES_MAX or message.space in self._lengths:
            self._lengths[message.space] = len(message.code)
        space = self._site.interests.spaces.named(message.space)
        if self._is_everywhere(space, waiting.arrival.box(space), codes):
            del waiting.arrived[message.space]
            if not waiting.arrived:
                del self._waiting[mark]

    def _is_everywhere(self, space: Space, box: Box, codes: set[str]) -> bool:
        target = space.enclosing(box)
        if any(target.startswith(code) for code in codes):
            return True
        return self._is_within(space, box, target, codes)

    def _is_within(self, space: Space, box: Box, code: str, codes: set[str]) -> bool:
        if code in codes:
            return True
        if not any(each.startswith(code) for each in codes):
            return False
        return all(
            self._is_within(space, box, half, codes)
            for half in (code + "0", code + "1")
            if boxes_meet(box, space.region(half))
        )

    def tick(self, now_us: int) -> None:
        """Send again what has not arrived, by the DHT and not by memory."""
        if self.due_us is None or now_us < self.due_us:
            return
        settings = self._site.settings
        for mark, waiting in list(self._waiting.items()):
            if waiting.again_us > now_us:
                continue
            if waiting.tries >= settings.tries_max:
                del self._waiting[mark]
                content: Content = waiting.arrival.content
                self._site.turn.note(
                    "warning", "publication not confirmed", publisher=content.publisher,
                    sequence=content.sequence, spaces=sorted(waiting.arrived),
                )  # fmt: skip
                continue
            waiting.again_us = now_us + (settings.retry_us << waiting.tries)
            waiting.tries += 1
            for name in list(waiting.arrived):
                self._start(self._site.interests.spaces.named(name), waiting.arrival, now_us, cold=True)
        self.due_us = min((each.again_us for each in self._waiting.values()), default=None)

"""Tables of regions on their way between peers: splits, merges, and new owners, without a gap.

All three use the same steps. The peer that has the table goes on matching while it sends the table in parts.
The peer that gets it takes entries in, and has publications matched where the table comes from until all
parts are there; then it says so (`Taken`). Only then the former owner stops. What comes in meanwhile is
passed on as well. A table of which nothing is heard is sent again.

- **Split.** A region with too many entries sends each half its own; when both have them, it is INNER. For
  some time it goes on asking for publications (DMM-AR) and sends them down, until the halves get them.
- **Merge.** Regions tell the owner of the region around how many entries they have (`Load`). If both halves
  have few, it asks them for their tables, and when both are complete it is active and the halves retire.
- **Move.** A peer that has joined owns some regions of its neighbours, who send it their tables. Until they
  come, it asks the neighbour that was the owner before to match publications.
- **Leave.** A peer that leaves sends its tables to the neighbours that will be the owners, and goes on as
  before until they have them. Its goodbye makes them active. What still comes to it, it passes on to them.
- **Healing.** A region that hears of a half of its own is INNER, even if it has lost everything in a failure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from braid.p2p.dht.identifiers import closeness, number_of
from braid.p2p.dmm.messages import Active, Enter, Load, Merge, Retire, Table, Taken
from braid.p2p.dmm.regions import Region, State, Transfer
from braid.p2p.space import boxes_meet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.p2p.dht.identifiers import Address, Key
    from braid.p2p.dmm.confirming import Request
    from braid.p2p.dmm.holding import Holding
    from braid.p2p.dmm.messages import Entry, Name
    from braid.p2p.dmm.site import Site
    from braid.p2p.space import Space

__all__ = ["Moving"]

# So many entries of a table go into one message.
ENTRIES_PER_PART: Final = 500
# A table that nobody confirms is sent again after so long, so often.
AGAIN_US: Final = 5_000_000
TRIES_MAX: Final = 5
# After joining, a peer asks the former owners of what it does not have, for so long. The first part of a
# table comes within a second or two.
ARRIVAL_US: Final = 10_000_000


class Moving:
    """Tables that come and go."""

    __slots__ = ("_arriving_until_us", "_handed", "_holding", "_number", "_site", "busy")

    def __init__(self, site: Site, holding: Holding) -> None:
        self._site = site
        self._holding = holding
        self._arriving_until_us = 0
        self._number = 0
        """Of the latest table that was sent."""
        self._handed: dict[Name, tuple[Address, bool]] | None = None
        """Once this peer is leaving: to whom each region goes, and whether it has halves."""
        self.busy = False
        """Whether something is waited for."""

    # A region begins.

    def begin(self, space: Space, code: str, now_us: int) -> Region:
        """Entries have come for a region that is not here: there is one now."""
        site = self._site
        region = self._holding.regions[space.name, code] = Region(space, code)
        site.finding.in_use(space.name, now_us)
        before = self.former_owner(space.key(code), now_us)
        if before is not None:
            # Its table will come from there, if there is one; what has come already is matched here.
            region.source = before
            region.until_us = self._arriving_until_us
            self.busy = True
        elif site.replicas.unexpected(space.key(code), now_us) or code:
            self._recover(region, now_us)
        return region

    def _recover(self, region: Region, now_us: int) -> None:
        """Its former owner has failed, so entries will come; those publications that come before wait."""
        region.held = []
        self.busy = True
        region.until_us = now_us + self._site.settings.expiry_us

    def recover(self, space: Space, code: str, now_us: int) -> Region:
        """A region that should be active is not here: its former owner has failed."""
        region = self._holding.regions[space.name, code] = Region(space, code)
        self._recover(region, now_us)
        return region

    def joined(self, now_us: int) -> None:
        """This peer has its place, and neighbours will send what belongs there."""
        self._arriving_until_us = now_us + ARRIVAL_US

    def former_owner(self, key: Key, now_us: int) -> Address | None:
        """Who owned a key before this peer joined, if that was not long ago."""
        if now_us >= self._arriving_until_us:
            return None
        around = self._site.dht.neighbours(2)
        number = number_of(key)
        nearest = min(around, key=lambda each: closeness(number_of(each.id), number), default=None)
        return nearest.address if nearest is not None else None

    # Sending tables.

    def split_if_full(self, region: Region, now_us: int) -> None:
        """Halve a region that has too many entries, if that helps."""
        settings = self._site.settings
        size = region.size
        if region.state is not State.LEAF or region.outgoing or size < settings.split_threshold:
            return
        if self._handed is not None:
            return
        if size < region.split_from or len(region.code) >= region.space.depth:
            return
        halves = [region.code + "0", region.code + "1"]
        if max(len(self._part(region, code)) for code in halves) > settings.split_keep_max * size:
            region.split_from = size + size // 4  # try again when there are others
            return
        for code in halves:
            region.outgoing[code] = Transfer("split", None, now_us + AGAIN_US)
            self._send_table(region, code, now_us)

    def _part(self, region: Region, code: str) -> list[tuple[Address, Entry]]:
        """The entries of a region that meet another one, with their holders."""
        box, around = self._site.interests.box, region.space.region(code)
        return [
            (holder, entry)
            for holder, bundle in region.bundles.items()
            for entry in bundle.entries.values()
            if boxes_meet(box(entry), around)
        ]

    def _send_table(self, region: Region, code: str, now_us: int) -> None:
        site, transfer = self._site, region.outgoing[code]
        self.busy = True
        sending = self._next_number(now_us)
        by_holder: dict[Address, list[Entry]] = {}
        if region.state is not State.INNER:
            for holder, entry in self._part(region, code):
                by_holder.setdefault(holder, []).append(entry)
        parts: list[tuple[Address, Sequence[Entry]]] = [
            (holder, entries[first : first + ENTRIES_PER_PART])
            for holder, entries in by_holder.items()
            for first in range(0, len(entries), ENTRIES_PER_PART)
        ] or [("", [])]
        for number, (holder, entries) in enumerate(parts):
            message = Table(
                region.space.name,
                code,
                region.code,
                site.address,
                transfer.kind,  # type: ignore[arg-type]
                number,
                len(parts),
                holder,
                region.bundles[holder].target if holder else "",
                list(entries),
                region.state is State.INNER,
                number=sending,
            )
            if transfer.address is None:
                site.dht.route(region.space.key(code), message, now_us)
            else:
                site.say(transfer.address, message, now_us)

    def _next_number(self, now_us: int) -> int:
        # Time makes numbers that an earlier life of this peer did not use.
        self._number = max(self._number + 1, now_us)
        return self._number

    def pass_on(self, region: Region, holder: Address, entries: Sequence[Entry], now_us: int) -> None:
        """Entries have come to a region whose table is on its way: they go the same way."""
        box = self._site.interests.box
        for code, transfer in region.outgoing.items():
            around = region.space.region(code)
            meeting = [entry for entry in entries if boxes_meet(box(entry), around)]
            if meeting:
                target = region.bundles[holder].target
                message = Enter(region.space.name, code, holder, target, meeting, True)
                if transfer.address is None:
                    self._site.dht.route(region.space.key(code), message, now_us)
                else:
                    self._site.say(transfer.address, message, now_us)

    # Getting tables.

    def on_table(self, sender: Address, message: Table, now_us: int) -> None:
        """A part of a table has come."""
        site, holding = self._site, self._holding
        space = site.interests.spaces.named(message.space)
        site.multicasting.require_fit(message.entries, space)
        region = holding.regions.get((space.name, message.code))
        if message.kind == "merge":
            if region is not None and region.merging_until_us is not None:
                self._take_half(region, message, now_us)
            return
        if region is None or region.state is State.MOVED:
            region = holding.regions[space.name, message.code] = Region(space, message.code, State.BUILDING)
            region.source = message.source
            region.until_us = now_us + TRIES_MAX * AGAIN_US
            self.busy = True
            site.finding.in_use(space.name, now_us)
        if region.state is State.INNER:
            if message.entries:
                holding.descend(region, message.holder, message.target, message.entries, now_us)
        elif message.entries:
            holding.take_in(region, message.holder, message.entries, now_us, message.target)
        if self._note_part(region, message):
            del region.incoming[message.source, message.came_from]
            if message.kind == "leave" and not site.dht.responsible(space.key(message.code)):
                region.waits_inner = message.inner
            elif region.state is State.BUILDING or region.source is not None:
                self._complete(region, message.inner, now_us)
            site.say(message.source, Taken(space.name, message.code), now_us)
            request = site.confirming.begin(sender, message.request)
            holding.confirm_region(region, now_us, request)
            site.confirming.end(request, now_us)

    def _note_part(self, region: Region, message: Table) -> bool:
        """Whether all parts of this sending of a table have come."""
        key = (message.source, message.came_from)
        number, come = region.incoming.get(key, (message.number, set()))
        if message.number < number or not 0 <= message.part < message.parts:
            return False  # its entries are taken in; what counts is the later one
        if message.number > number:
            come = set()
        come.add(message.part)
        region.incoming[key] = message.number, come
        return len(come) == message.parts

    def _complete(self, region: Region, inner: bool, now_us: int) -> None:
        """A region that was built has all that it needs."""
        region.source = region.until_us = region.waits_inner = None
        if inner:
            region.state = State.INNER
            self._holding.ask_for_nothing(region, now_us)
            for holder, bundle in list(region.bundles.items()):
                self._holding.descend(region, holder, bundle.target, list(bundle.entries.values()), now_us)
            region.bundles.clear()
        else:
            region.state = State.LEAF
            self._become_active(region, now_us)

    def _become_active(self, region: Region, now_us: int) -> None:
        self._holding.ask_for_all(region, now_us)
        self._site.replicas.changed(now_us)
        if region.code or region.merged:
            active = Active([region.name], True)
            for holder in list(region.bundles):
                self._site.say(holder, active, now_us)
        self.split_if_full(region, now_us)

    def on_taken(self, sender: Address, message: Taken, now_us: int) -> None:
        """A table has come to where it was sent."""
        regions = self._holding.regions
        moved = regions.get((message.space, message.code))
        if moved is not None and message.code in moved.outgoing:
            if moved.outgoing[message.code].kind == "leave":
                moved.outgoing[message.code].done = True
                return
            moved.outgoing.clear()
            self._retire(moved, now_us)
            return
        split = regions.get((message.space, message.code[:-1])) if message.code else None
        if split is None or message.code not in split.outgoing:
            return
        split.loads[message.code[-1]] = (self._site.settings.split_threshold, sender)
        split.outgoing[message.code].done = True
        if all(transfer.done for transfer in split.outgoing.values()):
            split.outgoing.clear()
            self._become_inner(split, now_us)

    def _become_inner(self, region: Region, now_us: int) -> None:
        region.state = State.INNER
        region.merged = False
        region.bundles.clear()
        region.cachers.clear()
        # Its halves ask for publications of single attributes now; until these come to them, it gets them.
        region.until_us = now_us + self._site.settings.beacon_us
        self.busy = True

    def _retire(self, region: Region, now_us: int) -> None:
        region.state = State.MOVED
        region.until_us = now_us + self._site.settings.beacon_us
        self.busy = True
        region.loads.clear()
        region.cachers.clear()

    # Joining halves.

    def on_load(self, sender: Address, message: Load, now_us: int) -> None:
        """A half of a region says how many entries it has."""
        if not message.code:
            return
        site, holding = self._site, self._holding
        space = site.interests.spaces.named(message.space)
        region = holding.regions.get((space.name, message.code[:-1]))
        if region is None or region.state is State.MOVED:
            region = holding.regions[space.name, message.code[:-1]] = Region(
                space, message.code[:-1], State.INNER
            )
            site.finding.in_use(space.name, now_us)
            site.replicas.unexpected(space.key(region.code), now_us)
        if region.state is State.LEAF and not region.outgoing:
            if region.merged:
                site.say(message.owner, Retire(space.name, message.code), now_us)
                return
            self._go_down(region, now_us)
        if region.state is State.INNER:
            region.loads[message.code[-1]] = (message.count, message.owner)
            self._merge_if_few(region, now_us)

    def _go_down(self, region: Region, now_us: int) -> None:
        """A region that has begun anew after a failure hears that it has halves: its entries belong there."""
        bundles = list(region.bundles.items())
        for holder, bundle in bundles:
            entries = list(bundle.entries.values())
            self._holding.descend(region, holder, bundle.target, entries, now_us, True)
        held, region.held = region.held, None
        self._become_inner(region, now_us)
        for arrival in held or ():
            self._site.finding.go_on(region, arrival, now_us)

    def _merge_if_few(self, region: Region, now_us: int) -> None:
        settings = self._site.settings
        if len(region.loads) < 2 or region.merging_until_us is not None:
            return
        counts = [count for count, _ in region.loads.values()]
        if min(counts) < 0 or sum(counts) >= settings.merge_share * settings.split_threshold:
            return
        region.merging_until_us = now_us + TRIES_MAX * AGAIN_US
        self.busy = True
        region.incoming.clear()
        region.halves_come.clear()
        for bit, (_, owner) in region.loads.items():
            self._site.say(owner, Merge(region.space.name, region.code + bit), now_us)

    def on_merge(self, sender: Address, message: Merge, now_us: int) -> None:
        """The region around asks for the table of one of this peer."""
        region = self._holding.regions.get((message.space, message.code))
        if region is not None and region.state is State.LEAF and not region.outgoing and region.code:
            around = region.code[:-1]
            region.outgoing[around] = Transfer("merge", sender, now_us + AGAIN_US)
            self._send_table(region, around, now_us)

    def _take_half(self, region: Region, message: Table, now_us: int) -> None:
        if message.entries:
            self._holding.take_in(region, message.holder, message.entries, now_us, message.target)
        half = message.came_from[len(region.code) :]
        if half not in region.loads or not self._note_part(region, message):
            return
        region.halves_come.add(half)
        if len(region.halves_come) < 2:
            return
        region.halves_come.clear()
        region.merging_until_us = region.until_us = None
        region.incoming.clear()
        region.state = State.LEAF
        region.merged = True
        owners = {bit: owner for bit, (_, owner) in region.loads.items()}
        region.loads.clear()
        self._become_active(region, now_us)
        for bit, owner in owners.items():
            self._site.say(owner, Retire(region.space.name, region.code + bit), now_us)

    def on_retire(self, sender: Address, message: Retire, now_us: int) -> None:
        """The region around one of this peer is active again."""
        region = self._holding.regions.get((message.space, message.code))
        if region is not None and region.state is State.LEAF:
            region.outgoing.clear()
            self._retire(region, now_us)

    # Other owners.

    def ownership_changed(self, now_us: int) -> None:
        """Send the tables of regions that belong to a neighbour now."""
        dht = self._site.dht
        for region in list(self._holding.regions.values()):
            if region.state not in (State.LEAF, State.INNER):
                continue
            key = region.space.key(region.code)
            if dht.responsible(key):
                continue
            owner = dht.owner(key)
            if owner is None:
                continue
            transfer = region.outgoing.get(region.code)
            if transfer is None or transfer.address != owner.address:
                region.outgoing[region.code] = Transfer("move", owner.address, now_us + AGAIN_US)
                self._send_table(region, region.code, now_us)
        if self._handed is not None:
            self.hand_over(now_us)

    def peer_failed(self, address: Address, now_us: int) -> None:
        """A peer has gone. What it has sent for the time after it is active now; what it was asked for, until
        its table came, it cannot say any more."""
        for region in list(self._holding.regions.values()):
            if region.source != address:
                continue
            if region.state is not State.BUILDING:
                region.source = None
            elif self._site.dht.responsible(region.space.key(region.code)):
                self._complete(region, bool(region.waits_inner), now_us)
            else:
                self._holding.regions.pop(region.name)  # another one has come between, and has it from there

    # Leaving.

    def hand_over(self, now_us: int) -> None:
        """Send all tables to those who will own them when this peer has left."""
        self._handed = handed = self._handed or {}
        around = self._site.dht.neighbours(2)
        for region in list(self._holding.regions.values()):
            if region.state not in (State.LEAF, State.INNER) or not around:
                continue
            number = number_of(region.space.key(region.code))
            heir = min(around, key=lambda each: closeness(number_of(each.id), number)).address
            transfer = region.outgoing.get(region.code)
            if transfer is None or (transfer.kind == "leave" and transfer.address != heir):
                handed[region.name] = (heir, region.state is State.INNER)
                region.outgoing.clear()
                region.outgoing[region.code] = Transfer("leave", heir, now_us + AGAIN_US)
                self._send_table(region, region.code, now_us)

    @property
    def handed_over(self) -> bool:
        """Whether all tables have come to where they were sent."""
        return all(
            transfer.done
            for region in self._holding.regions.values()
            for transfer in region.outgoing.values()
        )

    def part(self, now_us: int) -> None:
        """This peer has said goodbye: others own its regions."""
        for region in self._holding.regions.values():
            if region.state in (State.LEAF, State.INNER):
                region.outgoing.clear()
                self._retire(region, now_us)

    def ask_heirs(self, request: Request, now_us: int) -> None:
        """Have the new owners say when they have asked for all that the regions need."""
        site = self._site
        for (name, code), (heir, inner) in (self._handed or {}).items():
            number = site.confirming.part(request, now_us)
            sending = self._next_number(now_us)
            word = Table(name, code, code, site.address, "leave", 0, 1, "", "", [], inner, number, sending)
            site.say(heir, word, now_us)

    # Time.

    def tick(self, now_us: int) -> None:
        """Send again what was not confirmed; end what takes too long."""
        self._look_at_all(now_us)
        self.busy = any(
            region.outgoing or region.until_us is not None or region.merging_until_us is not None
            for region in self._holding.regions.values()
        )

    def _look_at_all(self, now_us: int) -> None:
        for region in list(self._holding.regions.values()):
            for code, transfer in list(region.outgoing.items()):
                if transfer.again_us <= now_us and not transfer.done and code in region.outgoing:
                    self._again(region, code, transfer, now_us)
            if region.merging_until_us is not None and region.merging_until_us <= now_us:
                region.merging_until_us = None
                region.bundles.clear()
                region.incoming.clear()
            if region.until_us is not None and region.until_us <= now_us:
                self._end_of_time(region, now_us)

    def _again(self, region: Region, code: str, transfer: Transfer, now_us: int) -> None:
        transfer.tries += 1
        transfer.again_us = now_us + AGAIN_US
        if transfer.tries <= TRIES_MAX:
            self._send_table(region, code, now_us)
        elif transfer.kind == "move":
            # The new owner does not answer; whoever owns it now gets it by the DHT.
            transfer.address, transfer.tries = None, 1
            if self._site.dht.responsible(region.space.key(code)):
                del region.outgoing[code]
        else:
            region.outgoing.clear()

    def _end_of_time(self, region: Region, now_us: int) -> None:
        region.until_us = None
        if region.state is State.BUILDING:
            self._complete(region, bool(region.waits_inner), now_us)
        elif region.state is State.LEAF:
            region.held = region.source = None
        else:
            self._holding.ask_for_nothing(region, now_us)
            if region.state is State.MOVED:
                self._holding.regions.pop(region.name, None)

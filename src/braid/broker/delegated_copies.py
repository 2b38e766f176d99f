"""What happens to publications that are for a set of brokers?

Bitmap delegation (strategy SB): a copy carries the destinations that its receiver has to serve. A broker that
gets one, whatever its own strategy, delivers it here if it is one of them and splits the rest among its
links.

A copy along the tree and a copy for a set can both come by while the network changes; each broker remembers
which publications it has delivered for a set, so that its clients get each once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from braid.broker.bottleneck import Bottleneck
from braid.broker.parties import FREE, ON_TREE, Link
from braid.broker.settings import OVERTAKING_MAX
from braid.protocol.destinations import digest_of, packed_destinations
from braid.protocol.duplicates import DuplicateFilter
from braid.routing import Anchored
from braid.routing.delegation import HOPS_OF_SHORTCUTS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from braid.broker.delegations import Delegation
    from braid.broker.discards import Discards
    from braid.broker.events import CopyStranded, Event
    from braid.broker.parties import Party
    from braid.broker.questions import Hops, Readiness
    from braid.broker.settling import Pending
    from braid.broker.turn import Turn
    from braid.matching.columns import IntArray
    from braid.matching.matcher import Reached
    from braid.protocol import PublicationBatch

__all__ = ["DelegatedCopies"]

# Copies for brokers that are not in sight yet. All that a few neighbours may send at once fits.
OUT_OF_SIGHT_BYTES_MAX = 64 * 1024 * 1024


class DelegatedCopies:
    """Passes on copies for sets of destinations."""

    def __init__(
        self,
        turn: Turn,
        links: Readiness,
        mesh: Hops,
        discards: Discards,
        seen_on_tree: DuplicateFilter,
    ) -> None:
        """`seen_on_tree`: what has been here as a copy along the tree."""
        self._discards = discards
        self.delivered = DuplicateFilter(window=OVERTAKING_MAX)
        """What was delivered here for a set."""
        self._seen_on_tree = seen_on_tree
        self._turn = turn
        self._links = links
        self._mesh = mesh
        self._out_of_sight: list[tuple[PublicationBatch, Pending | None, int]] = []
        self._out_of_sight_bytes = 0
        self._bottleneck = Bottleneck("copies for brokers out of sight")

    def violations(self) -> Iterator[str]:
        """What is wrong with it; nothing if all is well."""
        found = sum(batch.size for batch, _, _ in self._out_of_sight)
        if found != self._out_of_sight_bytes:
            yield f"{found} bytes are out of sight, {self._out_of_sight_bytes} are counted"
        for batch, care, _ in self._out_of_sight:
            if care is not None and care.done:
                yield f"a copy of {batch.publisher} is out of sight, and settled"

    # What enters as a set.

    def sets(
        self, reached: Reached, came_from: str | None, rows: int
    ) -> list[tuple[bytes, IntArray | None]] | None:
        """The rows by the set of brokers they are for; None if not all of them can be put into sets.

        Args:
            reached: which destinations want which rows.
            came_from: the neighbour in whose direction they came from; it has been served.
            rows: how many there are.
        """
        mesh = self._mesh
        everywhere: list[int] = []
        some: list[tuple[int, IntArray]] = []
        for destination, wanted in reached:
            if not isinstance(destination, Anchored) or destination.origin == came_from:
                continue
            if not destination.exact or not mesh.delegations.addressable(destination.anchor):
                return None
            digest = digest_of(destination.anchor)
            if wanted is None:
                everywhere.append(digest)
            else:
                some.append((digest, wanted))
        if not some:
            return [(packed_destinations(everywhere), None)] if everywhere else []
        # One column for each broker: rows that look the same have the same set.
        wants = np.zeros((rows, len(some)), np.bool_)
        for column, (_, wanted) in enumerate(some):
            wants[wanted, column] = True
        digests = [digest for digest, _ in some]
        octets = np.packbits(wants, axis=1)
        _, firsts, which = np.unique(octets, axis=0, return_index=True, return_inverse=True)
        found: list[tuple[bytes, IntArray | None]] = []
        for number in np.argsort(firsts).tolist():
            members = everywhere + [
                digests[column] for column in np.flatnonzero(wants[firsts[number]]).tolist()
            ]
            if members:
                chosen = np.flatnonzero(which.reshape(-1) == number)
                found.append((packed_destinations(members), chosen if len(chosen) < rows else None))
        return found

    # What arrives as a set, or has just been made one.

    def arrived(
        self,
        source: Party,
        batch: PublicationBatch,
        pending: Pending | None,
        deliver_here: Callable[[Party, PublicationBatch, Pending | None], None],
    ) -> bool:
        """A copy for a set has come from another broker; returns whether some of it was here before.

        `deliver_here` is called with what is for clients of this broker.
        """
        delegation = self.delegation(batch)
        repeated = False
        if delegation.here:
            fresh = self._not_delivered(source, batch)
            repeated = fresh is not batch
            if fresh is not None:
                deliver_here(source, fresh, pending)
                self._pass_to_doubles(source, fresh, delegation.doubles, pending)
        self.pass_on(source, batch, batch.route, pending, free=bool(batch.target))
        return repeated

    def delegation(self, batch: PublicationBatch) -> Delegation:
        """What becomes of a copy for a set here.

        Raises:
            RemoteProtocolError: its bytes name no set.
        """
        return self._split(batch.route, batch.hops, free=bool(batch.target))

    def _split(self, route: bytes, hops: int, *, free: bool) -> Delegation:
        """Share a set out among links; `free`: among any, otherwise along the tree."""
        return self._mesh.delegations.of(route, hops if free else HOPS_OF_SHORTCUTS_MAX)

    def _copies(self, delegation: Delegation, hops: int, *, free: bool) -> Sequence[tuple[Party, bytes, int]]:
        """The copies to send: to whom, for which brokers, and in which credit class.

        A copy that may take any link goes where it is best, as long as there is room; nobody waits for that.
        Otherwise it goes along the tree, and stays there.
        """
        party = self._mesh.party
        if not free or hops >= HOPS_OF_SHORTCUTS_MAX:
            return [(party(hop), share, ON_TREE) for hop, share in delegation.hops]
        copies: list[tuple[Party, bytes, int]] = []
        has_room = self._turn.has_room
        for hop, share in delegation.hops:
            link = party(hop)
            if has_room(link):
                copies.append((link, share, FREE))
            else:
                copies += self._copies(self._split(share, hops, free=False), hops, free=False)
        return copies

    def _waits_for(self, source: Party, party: Party, target: int) -> Party | None:
        """Who is held up if a copy finds no room: its source, unless it goes back there along the tree.

        That happens while a broker moves. It is the only way in which links of the tree could wait for each
        other in a circle, so it may fill a queue twice.
        """
        if target == ON_TREE and self._mesh.direction_of(source) == party.name:
            bound = 2 * self._turn.settings.link_queue_bytes_max
            return None if party.channel.backlog_bytes_of(ON_TREE) <= bound else source
        return source

    def _pass_to_doubles(
        self, source: Party, batch: PublicationBatch, doubles: tuple[str, ...], pending: Pending | None
    ) -> None:
        """Others have this broker's digest, and the broker that made the set did not know: it may have meant
        them.

        They do the same, so that copies meet; but what has been here before goes no further.
        """
        for broker in doubles:
            link = self._mesh.on_the_way_to(broker)
            if link is not None:
                digests = packed_destinations([digest_of(broker)])
                onward = batch.readdressed(target=ON_TREE, further=True, route=digests)
                held_up = self._waits_for(source, link, ON_TREE)
                self._turn.pass_on((link,), [(onward, pending)], held_up, batch.target)

    def pass_on(
        self, source: Party, batch: PublicationBatch, route: bytes, pending: Pending | None, *, free: bool
    ) -> None:
        """Split a set among next hops; `free`: its copies may take any link."""
        mesh = self._mesh
        delegation = self._split(route, batch.hops, free=free)
        for broker in delegation.destinations:
            mesh.sent(broker, len(batch))
        for party, share, target in self._copies(delegation, batch.hops, free=free):
            self._turn.counters.forwarded += len(batch)
            onward = batch.readdressed(target=target, further=True, route=share)
            held_up = self._waits_for(source, party, target)
            self._turn.pass_on((party,), [(onward, pending)], held_up, batch.target)
        if delegation.unknown:
            waiting = batch.readdressed(target=FREE if free else ON_TREE, route=delegation.unknown)
            self._wait(waiting, pending, self._turn.now_us)
            if self._out_of_sight_bytes > OUT_OF_SIGHT_BYTES_MAX:
                self._bottleneck.hold_up(source)

    def stranded(self, event: CopyStranded) -> None:
        """The link that a copy waited for is no more."""
        self.again(event.batch, event.care)

    def again(self, batch: PublicationBatch, care: Pending | None, since_us: int | None = None) -> None:
        """The link that took this copy has gone, or it has waited since then: its set is split anew.

        Those who take over have shares of what is waited for, beside the one that there was.
        """
        free = bool(batch.target)
        delegation = self._split(batch.route, batch.hops, free=free)
        for party, share, target in self._copies(delegation, batch.hops, free=free):
            readdressed = batch.readdressed(target=target, route=share)
            self._turn.pass_on((party,), [(readdressed, care)], None)
        unknown = delegation.unknown
        if unknown:
            since_us = self._turn.now_us if since_us is None else since_us
            self._wait(batch.readdressed(target=batch.target, route=unknown), care, since_us)

    def leave(self, party: Party) -> None:
        """The connection to a neighbour was given up: what may take any link takes another, if it can."""
        if isinstance(party, Link):
            for batch, care in party.channel.withdraw_waiting(FREE):
                self.again(batch, care)
                self._turn.settlement.settle(care, party)

    # What is done here.

    def _not_delivered(self, source: Party, batch: PublicationBatch) -> PublicationBatch | None:
        """The rows that clients here have not had."""
        unseen = self._without(self._seen_on_tree, batch)
        fresh = None
        if unseen is not None:
            rows = self.delivered.new_in(unseen)
            fresh = unseen if rows is None else _selected(unseen, rows)
            if rows is not None:
                gone = np.setdiff1d(unseen.sequences, unseen.sequences[rows])
                self._discards.further_in(source, batch, self.delivered, gone.tolist())
        self._turn.counters.duplicates += len(batch) - (fresh.count if fresh is not None else 0)
        return fresh

    def not_delivered_for_a_set(self, batch: PublicationBatch) -> PublicationBatch | None:
        """Of a copy along the tree, the rows that clients here have not had for a set."""
        return self._without(self.delivered, batch)

    def _without(self, seen: DuplicateFilter, batch: PublicationBatch) -> PublicationBatch | None:
        """The rows that were not seen there."""
        publisher = batch.publisher
        if batch.count == 1:
            return None if seen.has(publisher, batch.first) else batch
        if seen.highest(publisher) is None:
            return batch
        return _selected(batch, np.flatnonzero(~seen.has_rows(publisher, batch.sequences)))

    # What is for brokers out of sight.

    def _wait(self, batch: PublicationBatch, care: Pending | None, since_us: int) -> None:
        # The broker that made the set may have heard of a new broker sooner than we do.
        over = self._turn.now_us - since_us >= self._turn.settings.recovery_us_max
        if (over and self._knows_all()) or (
            care is None and self._out_of_sight_bytes > OUT_OF_SIGHT_BYTES_MAX
        ):
            # They have left the network, and their subscriptions with them.
            self._turn.counters.dropped += len(batch)
            return
        self._out_of_sight.append((batch, care.share() if care is not None else None, since_us))
        self._out_of_sight_bytes += batch.size

    def look_again(self, _: Event | None = None) -> None:
        """The map has changed, or time has passed: perhaps they are in sight now, or waited for no more."""
        if not (self._out_of_sight or self._bottleneck.held_up):
            return
        waiting, self._out_of_sight = self._out_of_sight, []
        self._out_of_sight_bytes = 0
        for batch, care, since_us in waiting:
            self.again(batch, care, since_us)
            self._turn.settlement.settle(care)
        if self._out_of_sight_bytes * 2 <= OUT_OF_SIGHT_BYTES_MAX:
            self._turn.open(self._bottleneck)

    def _knows_all(self) -> bool:
        return self._links.ready and not self._links.holding


def _selected(batch: PublicationBatch, rows: IntArray) -> PublicationBatch | None:
    if not len(rows):
        return None
    return batch if len(rows) == len(batch) else batch.select(rows)

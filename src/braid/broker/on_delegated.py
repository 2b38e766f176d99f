"""What happens to publications that are for a set of brokers?

Bitmap delegation (strategy SB): a copy carries the destinations that its receiver has to serve. Whoever gets
one, whatever strategy it has itself, delivers it here if it is one of them and splits the rest among its
links.

A copy along the tree and a copy for a set can both come by while the network changes; each broker remembers
which publications it has delivered for a set, so that its clients get each once.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from braid.broker.bottleneck import Bottleneck
from braid.protocol.destinations import digest_of, packed_destinations
from braid.protocol.duplicates import DuplicateFilter
from braid.routing import Anchored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from braid.broker.on_link import LinkDesk
    from braid.broker.on_mesh import MeshDesk
    from braid.broker.parties import Party, Release
    from braid.broker.postroom import Postroom
    from braid.broker.settling import Pending
    from braid.matching.columns import IntArray
    from braid.matching.matcher import Reached
    from braid.protocol import PublicationBatch

__all__ = ["DelegatedDesk"]

# Copies for brokers that are not in sight yet. All that a few neighbours may send at once fits.
LOBBY_BYTES_MAX = 64 * 1024 * 1024


class DelegatedDesk:
    """Passes on copies for sets of destinations."""

    def __init__(self, postroom: Postroom, links: LinkDesk, mesh: MeshDesk) -> None:
        self.deliver_here: Callable[[Party, PublicationBatch, Pending | None], None] = _nowhere
        """Called with what is for clients of this broker."""
        self.seen_on_tree: Callable[[str, int], bool] = lambda publisher, sequence: False
        """Whether a publication has been here as a copy along the tree."""
        self.delivered = DuplicateFilter(window=postroom.settings.overtaking_max)
        """What was delivered here for a set."""
        self._postroom = postroom
        self._links = links
        self._mesh = mesh
        self._lobby: deque[tuple[PublicationBatch, Release | None, int]] = deque()
        self._lobby_bytes = 0
        self._bottleneck = Bottleneck("the lobby")
        mesh.when_reviewed = self.look_again

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
        members: list[list[int]] = [list(everywhere) for _ in range(rows)]
        for digest, wanted in some:
            for row in wanted.tolist():
                members[row].append(digest)
        by_set: dict[bytes, list[int]] = {}
        for row, digests in enumerate(members):
            if digests:
                by_set.setdefault(packed_destinations(digests), []).append(row)
        return [(packed, np.array(chosen, np.int64)) for packed, chosen in by_set.items()]

    # What arrives as a set, or has just been made one.

    def arrived(self, source: Party, batch: PublicationBatch, pending: Pending | None) -> bool:
        """A copy for a set has come from another broker; returns whether some of it was here before."""
        delegation = self._mesh.delegations.of(batch.route, batch.hops)
        repeated = False
        if delegation.here:
            fresh = self._not_delivered(batch)
            repeated = fresh is not batch
            if fresh is not None:
                self.deliver_here(source, fresh, pending)
                self._pass_to_doubles(source, fresh, delegation.doubles, pending)
        self.pass_on(source, batch, batch.route, pending)
        return repeated

    def _pass_to_doubles(
        self, source: Party, batch: PublicationBatch, doubles: tuple[str, ...], pending: Pending | None
    ) -> None:
        """Others have this broker's digest, and whoever made the set did not know: it may have meant them.

        They do the same, so that copies meet; but what has been here before goes no further.
        """
        for broker in doubles:
            link = self._mesh.on_the_way_to(broker)
            if link is not None:
                care = pending.share() if pending is not None else None
                onward = batch.readdressed(further=True, route=packed_destinations([digest_of(broker)]))
                self._postroom.pass_on(link, onward, care, source)

    def pass_on(
        self, source: Party | None, batch: PublicationBatch, route: bytes, pending: Pending | None
    ) -> None:
        """Split a set among next hops."""
        mesh = self._mesh
        delegation = mesh.delegations.of(route, batch.hops)
        for broker in delegation.destinations:
            mesh.sent(broker, len(batch))
        for hop, share in delegation.hops:
            self._postroom.counters.forwarded += len(batch)
            care = pending.share() if pending is not None else None
            onward = batch.readdressed(further=True, route=share)
            self._postroom.pass_on(mesh.party(hop), onward, care, source)
        if delegation.unknown:
            care = pending.share() if pending is not None else None
            self._wait(batch.readdressed(route=delegation.unknown), care, self._postroom.now_us)
            if source is not None and self._lobby_bytes > LOBBY_BYTES_MAX:
                self._bottleneck.hold_up(source)

    def pass_on_one(self, source: Party, batch: PublicationBatch, route: bytes) -> None:
        """The same for a single publication that nobody waits for."""
        mesh = self._mesh
        delegation = mesh.delegations.of(route, batch.hops)
        if delegation.unknown:
            self.pass_on(source, batch, route, None)
            return
        for broker in delegation.destinations:
            mesh.sent(broker, 1)
        for hop, share in delegation.hops:
            self._postroom.counters.forwarded += 1
            onward = batch.readdressed(further=True, route=share)
            self._postroom.pass_on_at_once(mesh.party(hop), onward, source)

    def again(self, batch: PublicationBatch, care: Release | None, since_us: int | None = None) -> None:
        """The link that took this copy has gone, or it has waited since then: its set is split anew."""
        delegation = self._mesh.delegations.of(batch.route, batch.hops)
        if not delegation.hops and not delegation.unknown:
            if care is not None:
                care()
            return
        cares = _shared(care, len(delegation.hops) + bool(delegation.unknown))
        for hop, share in delegation.hops:
            self._postroom.pass_on(self._mesh.party(hop), batch.readdressed(route=share), next(cares), None)
        if delegation.unknown:
            since_us = self._postroom.now_us if since_us is None else since_us
            self._wait(batch.readdressed(route=delegation.unknown), next(cares), since_us)

    # What is done here.

    def _not_delivered(self, batch: PublicationBatch) -> PublicationBatch | None:
        """The rows that clients here have not had."""
        publisher = batch.publisher
        fresh = [
            row
            for row, sequence in enumerate(_sequences(batch))
            if not self.seen_on_tree(publisher, sequence) and self.delivered.is_new(publisher, sequence)
        ]
        self._postroom.counters.duplicates += len(batch) - len(fresh)
        if not fresh:
            return None
        return batch if len(fresh) == len(batch) else batch.select(np.array(fresh, np.int64))

    def not_delivered_for_a_set(self, batch: PublicationBatch) -> PublicationBatch | None:
        """Of a copy along the tree, the rows that clients here have not had for a set."""
        publisher = batch.publisher
        if self.delivered.highest(publisher) is None:
            return batch
        fresh = [
            row
            for row, sequence in enumerate(_sequences(batch))
            if not self.delivered.has(publisher, sequence)
        ]
        if not fresh:
            return None
        return batch if len(fresh) == len(batch) else batch.select(np.array(fresh, np.int64))

    # What is for brokers out of sight.

    def _wait(self, batch: PublicationBatch, care: Release | None, since_us: int) -> None:
        # Whoever made the set may have heard of a new broker sooner than we do.
        over = self._postroom.now_us - since_us >= self._postroom.settings.recovery_us_max
        if (over and self._knows_all()) or (care is None and self._lobby_bytes > LOBBY_BYTES_MAX):
            # They have left the network, and their subscriptions with them.
            self._postroom.counters.dropped += len(batch)
            if care is not None:
                care()
            return
        self._lobby.append((batch, care, since_us))
        self._lobby_bytes += batch.size

    def look_again(self) -> None:
        """The map has changed, or time has passed: perhaps they are in sight now, or waited for no more."""
        waiting, self._lobby = self._lobby, deque()
        self._lobby_bytes = 0
        for batch, care, since_us in waiting:
            self.again(batch, care, since_us)
        if self._lobby_bytes * 2 <= LOBBY_BYTES_MAX:
            self._postroom.open(self._bottleneck)

    def _knows_all(self) -> bool:
        return self._links.ready and not self._links.holding


def _sequences(batch: PublicationBatch) -> list[int]:
    # Most have one row, which needs no array.
    return [batch.first] if batch.count == 1 else batch.sequences.tolist()


def _shared(care: Release | None, count: int) -> Iterator[Release | None]:
    """As many cares as parts; the whole is settled when all parts are."""
    left = count

    def settle() -> None:
        nonlocal left
        left -= 1
        if not left and care is not None:
            care()

    for _ in range(count):
        yield settle if care is not None else None


def _nowhere(source: Party, batch: PublicationBatch, pending: Pending | None) -> None:
    """Nobody is here."""

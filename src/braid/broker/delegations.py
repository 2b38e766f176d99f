"""Who is meant by a set of destinations, and who takes care of whom?

A set names brokers by their digests. Which brokers these are is known from the map, and how they are shared
out among links is remembered until links or the map change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from braid.protocol.destinations import digest_of, packed_destinations, unpacked_destinations
from braid.routing import split_destinations
from braid.routing.delegation import HOPS_OF_SHORTCUTS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Set

__all__ = ["Delegation", "Delegations"]

# Of the sets of destinations whose split is remembered. Each takes a few times its length, and some more.
REMEMBERED_BYTES_MAX = 16 * 1024 * 1024
REMEMBERED_BYTES_EACH = 200


class Delegation(NamedTuple):
    """What becomes of a copy that is for a set of destinations."""

    here: bool
    """Whether this broker is one of them."""
    doubles: tuple[str, ...]
    """Others that may be meant instead, because they have the same digest."""
    hops: tuple[tuple[str, bytes], ...]
    """Next hops, each with the set it takes over."""
    destinations: tuple[str, ...]
    """Those that are known here, without this broker."""
    unknown: bytes
    """Those that are not."""


# One for all: every empty set that is made is another one.
_NOBODY: frozenset[str] = frozenset()


class Delegations:
    """How one broker deals with sets of destinations.

    Args:
        broker: this broker.
        links: the usable direct links, with what each of those brokers can reach directly, as far as known.
        toward: the neighbour on the primary path to a broker in sight.
    """

    def __init__(
        self, broker: str, links: Callable[[], Mapping[str, Set[str]]], toward: Callable[[str], str | None]
    ) -> None:
        self._digest = digest_of(broker)
        self._links = links
        self._toward = toward
        self._brokers: Callable[[], Iterable[str]] = tuple
        self._names: dict[int, tuple[str, ...]] | None = None
        self._remembered: dict[tuple[bytes, int], Delegation] = {}
        self._remembered_bytes = 0

    def see(self, brokers: Callable[[], Iterable[str]]) -> None:
        """Others may be in sight now. Who they are is asked when a set comes by, if one ever does."""
        self._brokers = brokers
        self._names = None
        self.forget()

    @property
    def _known(self) -> dict[int, tuple[str, ...]]:
        """The brokers in sight by their digests. Now and then two have the same."""
        if self._names is None:
            self._names = {}
            for broker in self._brokers():
                digest = digest_of(broker)
                self._names[digest] = (*self._names.get(digest, ()), broker)
        return self._names

    def forget(self) -> None:
        """Links have changed, or what others say of theirs."""
        self._remembered.clear()
        self._remembered_bytes = 0

    def named(self, digests: frozenset[int]) -> frozenset[str]:
        """Those of them that are in sight, and unmistakable."""
        if not digests:
            return _NOBODY
        return frozenset(
            self._known[digest][0] for digest in digests if len(self._known.get(digest, ())) == 1
        )

    def addressable(self, broker: str) -> bool:
        """Whether a broker can be put into a set: no other has its digest."""
        digest = digest_of(broker)
        return digest != self._digest and self._known.get(digest) == (broker,)

    def of(self, route: bytes, hops: int) -> Delegation:
        """What becomes of a set of destinations here.

        Raises:
            RemoteProtocolError: the bytes are no such set.
        """
        key = (route, min(hops, HOPS_OF_SHORTCUTS_MAX))
        found = self._remembered.get(key)
        if found is None:
            found = self._split(unpacked_destinations(route), hops)
            self._remembered_bytes += REMEMBERED_BYTES_EACH + len(route)
            if self._remembered_bytes > REMEMBERED_BYTES_MAX:
                self.forget()
            self._remembered[key] = found
        return found

    def _split(self, digests: frozenset[int], hops: int) -> Delegation:
        names: set[str] = set()
        unknown: list[int] = []
        for digest in sorted(digests - {self._digest}):
            found = self._known.get(digest)
            if found is None:
                unknown.append(digest)
            else:
                # The broker that made the set knew of one alone; we cannot tell of which.
                names.update(found)
        shares = split_destinations(names, self._links(), self._toward, hops)
        here = self._digest in digests
        return Delegation(
            here,
            self._known.get(self._digest, ()) if here else (),
            tuple((hop, packed_destinations(map(digest_of, share))) for hop, share in sorted(shares.items())),
            tuple(sorted(names)),
            packed_destinations(unknown),
        )

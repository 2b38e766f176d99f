"""What all peers together subscribe to, for gateways: they ask brokers for that and for nothing else.

Every peer enters its subscriptions a second time, into a space of their own (`GATHERED`) that has no axes
and in which nothing is published. So they go hop by hop to one peer, the *collector*, covered on the way,
confirmed by the same beacons and repaired like all others. Who would ask for too many asks for everything
instead. Gateways tell the collector of themselves again and again, and hear from it what is wanted.

A subscription is installed when the gateways have it at their brokers, too (`Confirming`). A gateway whose
brokers do not answer within `PATIENCE_US` is not waited for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from braid.p2p.dmm.interests import GATHERED, GATHERED_AXIS
from braid.p2p.dmm.messages import Entry, Gateway, Gathered, Installed
from braid.p2p.dmm.regions import State

if TYPE_CHECKING:
    from collections.abc import Iterable

    from braid.language.filters import Filter
    from braid.p2p.dht.identifiers import Address
    from braid.p2p.dmm.confirming import Request
    from braid.p2p.dmm.regions import Region
    from braid.p2p.dmm.site import Site

__all__ = ["Gathering"]

# Who wants more different things than this is given everything.
FILTERS_MAX: Final = 64
# So many gateways are told.
GATEWAYS_MAX: Final = 1_000
# So long a gateway's brokers may take to know of a subscription.
PATIENCE_US: Final = 5_000_000
# What subscriptions are filed under on their way to the collector, and what stands for too many.
PURPOSE: Final = "gateways"
SUMMARY: Final = "summary"
EVERYTHING: Final = "TRUE"


class Gathering:
    """The part of one peer: it tells what it wants, may be the collector, and may be a gateway."""

    __slots__ = ("_asked", "_changed", "_gateways", "_is_gateway", "_site", "_wanted", "due_us")

    def __init__(self, site: Site) -> None:
        self._site = site
        self._is_gateway = False
        self._gateways: dict[Address, tuple[int, tuple[str, ...]]] = {}
        """The collector's: until when each gateway is believed to be there, and what it was told."""
        self._wanted: dict[str, int] = {}
        """A gateway's: the filters of peers, and until when each counts."""
        self._changed = False
        self._asked: dict[int, int] = {}
        """A gateway's: requests that its brokers are to answer, and when they are not waited for any more."""
        self.due_us: int | None = None
        """When a gateway tells of itself again, or stops waiting."""

    # Any peer.

    def enter(self, key: str, wanted: Filter, request: Request | None, now_us: int) -> None:
        """A subscription of this peer. What gateways want for brokers is not for brokers."""
        if not self._site.settings.gateways or self._is_gateway:
            return
        self._want(
            [self._entry(key, number, wanted.text) for number in self._numbers(wanted)], (), now_us, request
        )

    def withdraw(self, key: str, wanted: Filter, now_us: int) -> None:
        """It ends."""
        if self._site.settings.gateways and not self._is_gateway:
            self._want((), [self._entry(key, number, "").name for number in self._numbers(wanted)], now_us)

    def _numbers(self, wanted: Filter) -> range:
        return range(len(self._site.interests.of(wanted.text).places))

    def _entry(self, key: str, number: int, text: str) -> Entry:
        return Entry(f"{self._site.address}/{key}#{number}", text, number, GATHERED_AXIS)

    def _want(
        self, added: Iterable[Entry], removed: Iterable[str], now_us: int, request: Request | None = None
    ) -> None:
        space = self._site.interests.spaces.named(GATHERED)
        self._site.multicasting.want(space, PURPOSE, added, removed, now_us, request)

    def summarise(self, now_us: int) -> None:
        """Ask for everything instead of very many things, and for those again when they are few."""
        multicasting = self._site.multicasting
        tree = multicasting.trees.get(GATHERED)
        if tree is None:
            return
        summary = Entry(f"{self._site.address}/{SUMMARY}", EVERYTHING, 0, GATHERED_AXIS)
        if SUMMARY not in tree.wishes:
            if len(tree.sent.entries) > FILTERS_MAX:
                multicasting.want(tree.space, SUMMARY, (summary,), (), now_us)
        elif len(tree.covered) <= FILTERS_MAX // 2:
            multicasting.want(tree.space, SUMMARY, (), (summary.name,), now_us)

    # The collector.

    def on_gateway(self, sender: Address, message: Gateway, now_us: int) -> None:
        """A gateway tells of itself."""
        if message.address in self._gateways or len(self._gateways) < GATEWAYS_MAX:
            self._gateways[message.address] = (now_us + self._site.settings.expiry_us, ())
            region = self._site.holding.regions.get((GATHERED, ""))
            if region is None or region.state is State.LEAF:
                self._tell(message.address, region, None, now_us)

    def tell(self, region: Region, request: Request | None, now_us: int) -> None:
        """What is wanted has changed, or somebody asks whether gateways know."""
        for address in list(self._gateways):
            self._tell(address, region, request, now_us)

    def _tell(self, address: Address, region: Region | None, request: Request | None, now_us: int) -> None:
        until_us, told = self._gateways[address]
        if until_us <= now_us:
            del self._gateways[address]
            return
        texts = _texts(region) if region is not None else ()
        if request is not None or texts != told or not told:
            self._gateways[address] = (until_us, texts)
            word = Gathered(list(texts), self._site.confirming.part(request, now_us))
            self._site.say(address, word, now_us)

    def forget(self, address: Address) -> None:
        """A peer has gone."""
        self._gateways.pop(address, None)

    # A gateway.

    def begin(self) -> None:
        """This peer is a gateway: from now on it tells the collector so."""
        self._is_gateway = True
        self.due_us = 0

    def joined(self, now_us: int) -> None:
        """This peer has its place."""
        if self._is_gateway:
            self.due_us = now_us

    def on_gathered(self, sender: Address, message: Gathered, now_us: int) -> None:
        """What peers want. What was said before and is not now counts for a while: tables may be moving."""
        if not self._is_gateway:
            return
        until_us = now_us + self._site.settings.expiry_us
        for text in message.filters[:FILTERS_MAX]:
            self._site.interests.of(text)  # a filter that is none ends here
            self._changed |= text not in self._wanted
            self._wanted[text] = until_us
        if len(self._wanted) > 2 * FILTERS_MAX:
            self._wanted = {EVERYTHING: until_us}
            self._changed = True
        confirming = self._site.confirming
        request = confirming.begin(sender, message.request)
        if request is not None:
            until_us = self._asked[confirming.part(request, now_us)] = now_us + PATIENCE_US
            self.due_us = min(self.due_us or until_us, until_us)
        confirming.end(request, now_us)

    def tick(self, now_us: int) -> None:
        """Tell of this gateway again, forget what nobody wants any more, and stop waiting."""
        if self.due_us is None or now_us < self.due_us:
            return
        settings, interests = self._site.settings, self._site.interests
        self._site.dht.route(interests.spaces.named(GATHERED).root_key, Gateway(self._site.address), now_us)
        for text in [each for each, until_us in self._wanted.items() if until_us <= now_us]:
            del self._wanted[text]
            self._changed = True
        self._answer([number for number, until_us in self._asked.items() if until_us <= now_us], now_us)
        self.due_us = min(now_us + settings.beacon_us, *self._asked.values(), now_us + PATIENCE_US)

    def take_wanted(self) -> list[str] | None:
        """What peers want, as texts of filters; None if that has not changed since the last call."""
        if not self._changed:
            return None
        self._changed = False
        return sorted(self._wanted)

    @property
    def is_asked(self) -> bool:
        """Whether requests wait until the brokers have all that is wanted."""
        return bool(self._asked)

    def answer_all(self, now_us: int) -> None:
        """The brokers have it."""
        self._answer(list(self._asked), now_us)

    def _answer(self, numbers: Iterable[int], now_us: int) -> None:
        for number in numbers:
            if self._asked.pop(number, None) is not None:
                self._site.confirming.on_installed("", Installed(number), now_us)


def _texts(region: Region) -> tuple[str, ...]:
    """The filters of a collector's region, or one for everything if they are many."""
    texts = {entry.text for bundle in region.bundles.values() for entry in bundle.entries.values()}
    return (EVERYTHING,) if len(texts) > FILTERS_MAX or EVERYTHING in texts else tuple(sorted(texts))

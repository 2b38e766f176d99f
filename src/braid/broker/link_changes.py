"""How does one link take the place of another?

An operation (`reconfigurations.py`) decides; what it means for links is done here. The new link is made while
the old one is still there, so a greeting that names the operation may close a loop for a moment. It is a link
among the others only from the decision on. The old one then lives on as *leaving* until everything that was
sent over it is settled; if it is lost before, what its other end may not have goes another way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.broker.events import (
    CopyStranded,
    InterestKnown,
    Joined,
    JoinLost,
    LinkBegun,
    LinkOpening,
    NameTaken,
    NeighbourGone,
    PlaceChanged,
    PlaceEnded,
)
from braid.broker.link_life import LinkStage, LinkStep
from braid.broker.links import Links
from braid.broker.offers import welcome_to
from braid.broker.operations import Changing, Ended
from braid.broker.parties import Link
from braid.errors import RequestRefusedError
from braid.protocol.codec import Frame
from braid.protocol.effects import Close, Progress, Send
from braid.protocol.messages import Goodbye, Refused, SyncBegin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from braid.broker.access_review import Admission
    from braid.broker.confirmations import Outstanding
    from braid.broker.events import LinkLost
    from braid.broker.offers import Offer
    from braid.broker.settling import Pending
    from braid.protocol import PublicationBatch
    from braid.protocol.log import EndLink
    from braid.protocol.messages import Hello, Reach, Welcome

__all__ = ["MovableLinks"]


class MovableLinks(Links):
    """Links of which one can take the place of another.

    Args:
        changing: the operation under way, and the links that others have ended.
        more: as for `Links`.
    """

    def __init__(self, changing: Changing, *more: Any) -> None:
        super().__init__(*more)
        self._changing = changing
        self.joining: dict[str, Link] = {}
        """Links that an operation makes and has not decided on, by name."""
        self.leaving: list[Link] = []
        """Links whose place another one has taken."""
        self._carried: list[tuple[PublicationBatch, Pending | None]] = []
        """What they may not have delivered, until it is sent again by the new way."""
        self._unconfirmed: list[Outstanding] = []
        """What those of them have not confirmed."""
        self._deltas: dict[str, int] = {}
        """How far those who are joining want to see."""

    # Greetings.

    def offer(self, address: str) -> Offer:
        """What to say to whoever is dialled at an address."""
        operation = self._changing.current
        if operation is None or address != self._changing.dialled:
            return super().offer(address)
        old = self.links.get(operation.path[1]) if not operation.decided else None
        offered = super().offer(address)
        reach = self._reachability.reach(old) if old is not None else offered.reach
        return offered._replace(reach=reach, operation=operation.id)

    def accept(
        self, connection: int, hello: Hello, admission: Admission, proofs: dict[str, str]
    ) -> tuple[Link, bool]:
        """A broker that was let in says hello; returns its link, and whether the session goes on."""
        name = hello.name
        if hello.operation and self._changing.awaits(name, hello.operation) and name not in self.links:
            return self._accept_joining(connection, hello, admission, proofs), False
        ended = self._changing.ended.get(name)
        if ended is not None and name not in self.links:
            reason = f"an operation has ended the link to {name}: {ended.place} has its place"
            refused = Refused("moved", reason, self._settings.broker_id, ended.place, ended.address)
            self._turn.effect(Send(connection, [Frame(0, refused)]))
            raise RequestRefusedError(reason, "moved")
        return super().accept(connection, hello, admission, proofs)

    def _accept_joining(
        self, connection: int, hello: Hello, admission: Admission, proofs: dict[str, str]
    ) -> Link:
        """The broker that moves comes for its new link, which is not decided yet."""
        self._forget_joining(hello.name)
        operation = self._changing.current
        if operation is not None:
            requested = Progress(operation.kind, operation.id, "connection requested", hello.name)
            self._turn.effect(requested)
        link = self._meet(hello.name, hello.address, hello, self._new_session())
        link.dialled = False
        link.behind = frozenset({hello.name, *hello.brokers})
        self._connections.enter(connection, link, hello.frame_bytes_max, admission)
        welcome = welcome_to(link, self._settings, self._incarnation, self._turn.epoch, proofs)
        self._turn.tell_connection(link, welcome)
        self._events.tell(Joined(link))
        return link

    def welcomed(
        self, connection: int, address: str, welcome: Welcome, offer: Offer, admission: Admission
    ) -> tuple[Link, bool] | None:
        """A broker that we dialled says welcome; returns its link, and whether the session goes on."""
        if offer.operation and welcome.name not in self.links:
            if not self._changing.awaits(welcome.name, offer.operation) or not welcome.session:
                self._turn.effect(Close(connection, "the operation is over"))
                return None
            link = self._meet(welcome.name, welcome.address or address, welcome, welcome.session)
            link.dialled = True
            self._connections.enter(connection, link, welcome.frame_bytes_max, admission)
            self._events.tell(Joined(link))
            return link, False
        return super().welcomed(connection, address, welcome, offer, admission)

    def _meet(self, name: str, address: str, greeting: Hello | Welcome, session: str) -> Link:
        """A link that is not among the others yet, in a session that has just begun."""
        link = self.joining[name] = Link(name, self._settings.link, self._turn.changed)
        link.address = address
        link.since_us = self._turn.now_us
        self._step(link, LinkStep.BEGUN)
        link.channel.restart(greeting.credit)
        link.agreed = link.latest = session
        link.incarnation = greeting.incarnation
        link.session += 1
        operation = self._changing.current
        if operation is not None and operation.flows:
            link.foretold = True
            link.channel.holding = link.holding
        self._deltas[name] = greeting.delta
        return link

    def _forget_joining(self, name: str) -> None:
        """A link is not to be, or not over this connection."""
        link = self.joining.pop(name, None)
        if link is None:
            return
        if link.connection is not None:
            connection = link.connection
            self._connections.leave(connection)
            self._turn.effect(Close(connection, "the operation is over"))
            self._end_joining(link)
        self._forget_copies(link)

    def _end_joining(self, link: Link) -> None:
        """A link that is not among the others has lost its connection."""
        link.foretold, link.channel.holding = False, True
        self._step(link, LinkStep.DISCONNECTED)
        link.channel.disconnect()

    def _forget_copies(self, link: Link) -> None:
        """What went over a link that is not to be went the old way as well."""
        for _, care in link.channel.withdraw():
            self._turn.settlement.settle(care, link)
        link.line.clear()
        self._turn.forget(link)

    def give_up_joining(self) -> None:
        """No link is made: the operation was given up."""
        for name in list(self.joining):
            link = self.joining[name]
            self._forget_joining(name)
            self._events.tell(NeighbourGone(link))

    def refused(self, address: str, refusal: Refused) -> None:
        """A broker that we dialled refuses the link."""
        if refusal.code == "replaced":
            link = self.links.get(refusal.name)
            self._dialling.met(address, refusal.name)
            if link is None or self._dialling.is_at(address, link):
                self._events.tell(NameTaken(refusal.name, refusal.epoch, refusal.address))
            return
        if refusal.code == "moved":
            self._dialling.met(address, refusal.name)
            self._dialling.forget(address)
            link = self.links.get(refusal.name)
            here = (self._settings.broker_id, *self.links)
            if refusal.place and refusal.address and refusal.place not in here:
                self._dialling.remember(refusal.address, refusal.place)
            if link is not None and link.connection is None:
                self.drop(link)
                self._events.tell(NeighbourGone(link))
            self.tell_reach()
            return
        super().refused(address, refusal)

    def _require_no_loop(self, link: str, brokers: Any) -> None:
        operation = self._changing.current
        if operation is not None and link in operation.path:
            return  # for a while two neighbours may speak of the same brokers
        super()._require_no_loop(link, brokers)

    def reaches(self, link: Link, message: Reach) -> None:
        """A neighbour says whom it connects us to, and which links are missing there."""
        operation = self._changing.current
        if operation is not None and link.name in operation.path:
            elsewhere = self._reachability.reach(link)
            brokers = [broker for broker in message.brokers if broker not in elsewhere]
            self._reachability.heard(link, brokers, message.missing, message.neighbours)
            self.tell_reach()
            return
        super().reaches(link, message)

    def lost(self, event: LinkLost) -> None:
        """The connection of a link has ended."""
        link = event.link
        if link in self.leaving:
            self._left_for_good(link)
        elif self.joining.get(link.name) is link:
            self._end_joining(link)
            operation = self._changing.current
            if operation is None or operation.first or not operation.flows:
                del self.joining[link.name]
                self._forget_copies(link)
            # Otherwise it may be decided already: then what waits for it goes nowhere else.
            self._events.tell(JoinLost(link))
        else:
            handing_over = link.handing_over and self._changing.moves(link.name)
            super().lost(event)
            if handing_over:
                link.handing_over = False
                self.forget_session(link)  # so that everything is said in the next one

    # Places.

    def take_place(
        self,
        old: Link,
        new_name: str,
        address: str,
        ended: Ended,
        ahead: Callable[[], None] | None = None,
    ) -> Link:
        """This broker hangs on another one from now on: what came from the old one comes from the new.

        `ahead`: lets count what was prepared in tables; without it the two say everything now.
        """
        new = self.joining.pop(new_name, None)
        if new is None:
            new = Link(new_name, self._settings.link, self._turn.changed)
            new.since_us = self._turn.now_us
            new.address = address
        behind, missing, old.successor = old.behind, old.missing, new
        self._leave(old, ended)
        self._enter(new)
        new.unknown = old.unknown
        if new.channel.connected:
            new.behind, new.missing = behind, missing
        if ahead is not None:
            ahead()
        else:
            self._tables.rename_link(old.name, new.name)
        new.outstanding.inherit(old.outstanding)
        self._dial_again(new, address)
        if new.foretold:
            old.superseded = new.handing_over = True
            new.replaces = old
        place = PlaceChanged(self._settings.broker_id, old.name, new.name, address)
        self._begin_place(new, place, ahead=ahead is not None)
        self._subscriptions.link_down(old)
        return new

    def let_go(self, link: Link, toward: Link | None, ended: Ended, path: tuple[str, ...]) -> None:
        """A neighbour hangs on another broker from now on, which is behind the neighbour `toward`."""
        behind, link.successor = link.behind, toward
        self._leave(link, ended)
        self._changing.leaving.add(link.name)
        if toward is not None and toward.channel.connected:
            toward.behind |= behind
        self._events.tell(PlaceChanged(path[0], path[1], path[-1], ended.address))
        self.tell_reach()

    def welcome(
        self,
        name: str,
        address: str,
        before: Link | None,
        brokers: frozenset[str],
        old: str,
        ahead: Callable[[], None] | None = None,
    ) -> Link:
        """A broker hangs on this one from now on; what is behind it was behind another neighbour.

        `ahead`: lets count what was prepared in tables; without it the two say everything now.
        """
        new = self.joining.pop(name, None)
        if new is None:
            new = Link(name, self._settings.link, self._turn.changed)
            new.since_us = self._turn.now_us
            new.address = address
        if before is not None:
            before.behind -= brokers
            new.unknown = before.unknown
        if not new.channel.connected:
            new.behind = frozenset()
        self._enter(new)
        if ahead is not None:
            if new.channel.connected:
                new.behind = brokers
            ahead()
        else:
            self._tables.add_link(name, muted=True)
            new.handing_over = True
        if new.connection is None and new.agreed:
            self.forget_session(new)  # nothing of the place it has now was said in that one
        self._dial_again(new, address)
        place = PlaceChanged(name, old, self._settings.broker_id, address)
        self._begin_place(new, place, ahead=ahead is not None)
        return new

    def pass_by(
        self, before: Link | None, after: Link | None, brokers: frozenset[str], place: PlaceChanged
    ) -> None:
        """Brokers that were behind one neighbour are behind another one."""
        if before is not None:
            before.behind -= brokers
        if after is not None and after.channel.connected:
            after.behind |= brokers
        self._events.tell(place)
        self.tell_reach()

    def _begin_place(self, link: Link, place: PlaceChanged, *, ahead: bool) -> None:
        """Say everything over a link that has just become one of the others, or what is left of it."""
        link.told_reach, link.told_missing = (), None
        if link.replaces is not None:
            # The new neighbour says when it is ready to be told everything; until then publications cross.
            # What it says of the network around it counts from now on.
            self._events.tell(place)
            self.tell_reach()
            if link.channel.connected:
                self._events.tell(LinkBegun(link, self._deltas.pop(link.name, 1), ahead=True))
            return
        if ahead and link.channel.connected:
            self._open_at_once(link, place)
            return
        if link.channel.connected:
            self._turn.tell(link, SyncBegin())
        self._events.tell(place)
        self.tell_reach()
        if link.channel.connected:
            self._events.tell(LinkBegun(link, self._deltas.pop(link.name, 1)))
        self._completeness.tell()

    def say_everything(self, link: Link) -> None:
        """The new neighbour of a broker that has moved is ready to be told all that this one knows."""
        link.handing_over = False
        if link.channel.connected:
            self._turn.tell(link, SyncBegin())
            self._subscriptions.synchronise(LinkBegun(link, self._settings.delta))
        self._completeness.tell()

    def _open_at_once(self, link: Link, place: PlaceChanged) -> None:
        """Both ends have said everything before: publications cross at once."""
        self._step(link, LinkStep.COMPLETE)
        self._events.tell(place)
        self.tell_reach()
        self._events.tell(LinkBegun(link, self._deltas.pop(link.name, 1), ahead=True))
        self._events.tell(LinkOpening(link))
        self._step(link, LinkStep.CONFIRMED)
        link.unknown, link.placed, link.met = False, False, True
        self._turn.caught_up(link)
        self._turn.changed(link)
        self._completeness.tell()

    def _dial_again(self, link: Link, address: str) -> None:
        """Dial the other end of a new link whenever there is no connection, also after a restart."""
        if address:
            self._dialling.remember(address, link.name)
            self._dialling.met(address, link.name, linked=link.channel.connected)
        self._events.tell(InterestKnown(link))  # so that it is kept from now on

    def restore(self, ended: Iterable[EndLink]) -> None:
        """Links that operations ended before the last restart are not made again."""
        for each in ended:
            self._changing.epoch = max(self._changing.epoch, each.epoch)
            self._changing.end(each.broker_id, Ended(each.epoch, each.place, each.address))
            for address in each.dialled:
                self._dialling.forget(address)
            link = self.links.get(each.broker_id)
            if link is not None:  # the settings expect it
                self.drop(link)

    def _enter(self, link: Link) -> None:
        """A link is among the others."""
        self._changing.ended.pop(link.name, None)
        self.links[link.name] = link
        link.placed = link.channel.connected
        self.holding += link.holding
        self._names_changed()

    def _leave(self, link: Link, ended: Ended) -> None:
        """A link is not among the others any more."""
        del self.links[link.name]
        self._names_changed()
        self._changing.end(link.name, ended)
        dialled = self._dialling.addresses_of(link.name)
        self._dialling.forget_broker(link.name)
        self._unconfirmed.append(link.outstanding)
        self.leaving.append(link)
        for batch, care in link.channel.kept():
            if not batch.route and (care is not None or link.connection is None):
                self._carried.append((batch, care.share() if care is not None else None))
        if link.connection is None:
            self._step(link, LinkStep.REMOVED)
            self._left(link)
        else:
            self._step(link, LinkStep.REPLACED)
            self._turn.changed(link)
        self._events.tell(NeighbourGone(link))
        self._events.tell(PlaceEnded(link.name, ended, dialled))

    def require_open(self, name: str) -> Link:
        """The neighbour of this name, if publications cross to it.

        Raises:
            RequestRefusedError: there is none, or the link is not open.
        """
        here = self._settings.broker_id
        link = self.links.get(name)
        if link is None:
            known = ", ".join(sorted(self.links)) or "none"
            raise RequestRefusedError(f"{name} is no neighbour of {here}; there are: {known}", "unknown")
        if link.stage is not LinkStage.OPEN or link.unknown:
            raise RequestRefusedError(
                f"the link between {here} and {name} is {link.stage.name.lower()}, and must be open",
                "down",
            )
        return link

    def reach_besides(self, link: Link) -> frozenset[str]:
        """The brokers that are reached without a link, this one included."""
        return self._reachability.reach(link)

    def tell_complete(self) -> None:
        """Whether neighbours know everything may have changed."""
        self._completeness.tell()

    @property
    def accepting(self) -> bool:
        """Whether publications are routed: not while an operation holds them at the door."""
        return self._completeness.ready and not self._changing.stopped

    # Leaving.

    def settle_announcements(self) -> None:
        """Whoever waited until a link that has left knew of advertisements need not any more: by the new way
        they are known there."""
        unconfirmed, self._unconfirmed = self._unconfirmed, []
        for outstanding in unconfirmed:
            outstanding.give_up_announcements()

    def review_leaving(self) -> None:
        """End the connections of links that others have taken the place of, once all is settled."""
        for link in [link for link in self.leaving if link.stage is LinkStage.LEAVING]:
            channel = link.channel
            if channel.idle and not link.line.waiting and not channel.acknowledgement_waits:
                connection = link.connection
                if connection is not None:
                    goodbye = Frame(0, Goodbye("another link has taken the place of this one"))
                    self._turn.effect(Send(connection, [goodbye]))
                    self._turn.effect(Close(connection, "another link has taken its place"))
                    self._endings.end(connection)

    def _left_for_good(self, link: Link) -> None:
        self._step(link, LinkStep.DISCONNECTED)
        link.channel.disconnect()
        self._left(link)

    def carry_over(self, toward: Link | None, before: Link | None) -> None:
        """Send what was sent the old way and is not settled by the new way, ahead of all that follows.

        So whichever broker crashes, what is older comes first. Those who have had it recognise it.

        Args:
            toward: the link that others are reached over from now on.
            before: the link that they were reached over; None if that one has left.
        """
        carried, self._carried = self._carried, []
        for batch, care in carried:
            if toward is not None:
                self._turn.pass_on((toward,), [(batch.repetition(), care)], None)
            self._turn.settlement.settle(care)
        if toward is None or before is None:
            return
        for batch, care in before.channel.kept():
            # What is for a set of brokers finds its way by itself.
            if care is not None and not batch.route:
                wanted = batch if toward.holding else self._wanted(toward, batch)
                if wanted is not None:
                    self._turn.pass_on((toward,), [(wanted.repetition(), care)], None)
        toward.rerouted = before.rerouted = True

    def _left(self, link: Link) -> None:
        """A link that has left will settle nothing any more. What goes by the new way is waited for there."""
        self.leaving.remove(link)
        for batch, care in link.channel.withdraw():
            if batch.route:
                self._events.tell(CopyStranded(batch, care))
            self._turn.settlement.settle(care, link)
        link.line.clear()
        self._turn.forget(link)

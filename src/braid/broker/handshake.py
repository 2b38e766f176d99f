"""Who has just come through the door?

Every connection begins with a greeting. Until it is done nothing else is accepted from it, and it has
only so long. Clients become a party of their own. Of brokers it is only found out here who they are: what
becomes of their links, `Links` and `Mesh` decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from braid.broker.access import ANONYMOUS, RateLimiter, RequestRate
from braid.broker.access_review import NOBODY, Admission, WrongTokens
from braid.broker.identities import host_of
from braid.broker.links import DOUBLE
from braid.broker.offers import NO_OFFER, Offer
from braid.broker.parties import Client
from braid.broker.settings import checked_broker_id
from braid.errors import (
    AccessDeniedError,
    AuthenticationError,
    ConfigurationError,
    RemoteProtocolError,
    RequestRefusedError,
)
from braid.protocol import Frame
from braid.protocol.effects import Close, Send
from braid.protocol.messages import PROTOCOL_VERSION, Hello, Introduction, Refused, Welcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from braid.broker.access import AccessPolicy, Principal
    from braid.broker.connections import Connections
    from braid.broker.dialling import Dialling
    from braid.broker.events import ClientLeft
    from braid.broker.identities import Identities
    from braid.broker.links import Links
    from braid.broker.mesh import Mesh
    from braid.broker.parties import Link, Party, SoftLink
    from braid.broker.turn import Turn
    from braid.protocol.inputs import Opened
    from braid.protocol.messages import Message, SoftWord

__all__ = ["Handshake", "Visitor"]

NAME_LENGTH_MAX = 200
SECRET_LENGTH_MAX = 1024


@dataclass(slots=True)
class Visitor:
    """A connection that has not been greeted yet."""

    opened: Opened
    since_us: int
    offer: Offer = NO_OFFER
    """What our greeting said of the link that may be there."""
    admission: Admission = NOBODY
    refusal: AuthenticationError | None = None
    """What it hears at `refused_at_us`, if it showed a wrong token."""
    refused_at_us: int = 0
    soft: Hello | None = None
    """The greeting of a soft link, while the word that proves it has not come yet."""


class Handshake:
    """Greets connections."""

    def __init__(
        self,
        incarnation: str,
        identities: Identities,
        access: AccessPolicy,
        turn: Turn,
        connections: Connections,
        neighbours: Mapping[str, Link],
        links: Links,
        mesh: Mesh,
        dialling: Dialling,
        guard: Callable[..., None],
        require_current: Callable[[int, str, Hello | Welcome], None],
        granted: Callable[[str, Hello], bool],
        resumption: Callable[[], str],
    ) -> None:
        """
        Args:
            incarnation: of this broker.
            identities: know whether a neighbour is who it says.
            access: who may do what.
            turn: where answers go.
            connections: who is here.
            neighbours: the links by their names.
            links: take over the greetings of neighbours.
            mesh: takes over those of soft links.
            dialling: dials where a neighbour should be.
            guard: runs what a visitor's mistake may end, which then ends that connection.
            require_current: refuses a process whose name another one has.
            granted: whether a name was given to the process that greets.
            resumption: how publications come back to this broker.
        """
        self._closed = False
        """Nobody new is let in."""
        self._settings = turn.settings
        self._incarnation = incarnation
        self._identities = identities
        self.access = access
        """Who may do what; `use_access` puts another one in its place."""
        self._wrong_tokens = WrongTokens()
        self.refused: dict[int, Visitor] = {}
        """Visitors that showed a wrong token and wait to hear so."""
        self._turn = turn
        self._connections = connections
        self._neighbours = neighbours
        self._links = links
        self._mesh = mesh
        self._dialling = dialling
        self._guard = guard
        self._require_current = require_current
        self._granted = granted
        self._resumption = resumption
        self._clients_ever = 0
        self._requests: dict[str, RequestRate] = {}
        """What all connections of a principal ask for, together; there are no more than principals."""

    def close(self) -> None:
        """Let nobody new in."""
        self._closed = True

    def opened(self, opened: Opened) -> None:
        """A connection is there."""
        if opened.dialled is None:
            if self._closed:
                self._turn.refuse(opened.connection, "closing", "this broker is shutting down")
                return
            if len(self._connections) >= self._settings.connections_max:
                self._turn.refuse(opened.connection, "limit", "this broker has too many connections")
                return
        soft = opened.soft
        if soft and not self._mesh.awaits(opened.dialled):
            self._turn.effect(Close(opened.connection, "the soft link is not to be"))
            return
        visitor = self._connections.visitors[opened.connection] = Visitor(opened, self._turn.now_us)
        if opened.dialled is not None:
            visitor.admission = Admission(certificate=opened.certificate)
            offer = visitor.offer = self._links.offer(opened.dialled) if not soft else NO_OFFER
            meant = [] if soft else self._meant(opened.dialled, offer.expected)
            hello = Hello(
                PROTOCOL_VERSION,
                "soft" if soft else "broker",
                self._settings.broker_id,
                self._incarnation,
                self._settings.link_token or None,
                resumes=offer.session,
                received=offer.received,
                credit=self._settings.link.window_bytes,
                address=self._settings.address,
                brokers=sorted(offer.reach),
                delta=self._settings.delta,
                frame_bytes_max=self._settings.frame_bytes_max,
                proofs=self._mesh.proofs(opened.dialled) if soft else self._identities.proofs(meant),
                ticket=self._identities.ticket_for(offer.expected) if offer.expected else "",
                returned=self._identities.returned(meant),
                operation=offer.operation,
                epoch=self._turn.epoch,
                resumption="" if soft else self._resumption(),
            )
            self._turn.effect(Send(opened.connection, [Frame(0, hello)]))

    def _meant(self, address: str, expected: str) -> list[str]:
        """The neighbours that a greeting is to convince: the one that should be where it goes.

        Another one may be there, and could repeat to others what proves to them who we are; it dials back if
        it must know. Only at an address of our settings it may be any of them where nobody says to be there:
        brokers are dialled at names that they do not call themselves by.
        """
        if expected:
            return [expected]
        configured = address in self._settings.neighbours
        return sorted({*self._neighbours, *self._identities.known}) if configured else []

    def greeted(self, connection: int, message: Message) -> Party | None:
        """The first message of a visitor; returns the party it has become.

        Raises:
            RemoteProtocolError: that is no way to greet.
            RequestRefusedError: it is not let in.
        """
        visitor = self._connections.visitors[connection]
        if visitor.opened.dialled is not None:
            if visitor.opened.soft:
                return self._soft_welcomed(connection, visitor, visitor.opened.dialled, message)
            if isinstance(message, Refused):
                self._turn.note(
                    "error",
                    "a neighbour refuses the link",
                    address=visitor.opened.dialled,
                    code=message.code,
                    reason=message.reason,
                )
                self._turn.effect(Close(connection, message.reason))
                self._links.refused(visitor.opened.dialled, message)
                return None
            if not isinstance(message, Welcome):
                raise RemoteProtocolError(f"a Welcome was expected, not a {type(message).__name__}")
            return self._welcomed(connection, visitor, visitor.opened.dialled, message)
        if not isinstance(message, Hello):
            raise RemoteProtocolError(f"a Hello was expected, not a {type(message).__name__}")
        _require_version(message.version)
        if self._closed:
            raise RequestRefusedError("this broker is shutting down", "closing")
        if (
            not 0 < len(message.name) <= NAME_LENGTH_MAX
            or not 0 < len(message.incarnation) <= NAME_LENGTH_MAX
        ):
            raise RemoteProtocolError(f"names have 1 to {NAME_LENGTH_MAX} characters")
        if len(message.secret) > SECRET_LENGTH_MAX:
            raise RemoteProtocolError(f"a secret has at most {SECRET_LENGTH_MAX:,} characters")
        # A soft link is a broker's, too.
        role = "broker" if message.role == "soft" else message.role
        principal = self._authenticated(visitor, message.token, role)
        if principal is None:
            return None
        if message.role in ("broker", "soft"):
            own = self.access.is_open or principal.name == message.name
            if not own and not (role == message.role and self._granted(message.name, message)):
                raise AccessDeniedError(f"this principal may not link as the broker {message.name!r}")
            if message.role == "soft":
                return self._soft(connection, visitor, message)
            return self._broker(connection, visitor, message)
        if message.role != "client":
            raise RemoteProtocolError(f"a role is 'client', 'broker' or 'soft', not {message.role!r}")
        self._turn.quotas.connect(principal, self._turn.now_us)
        self._clients_ever += 1
        client = Client(
            message.name,
            f"{self._settings.broker_id}/{self._incarnation[:8]}.{self._clients_ever}",
            principal,
            RateLimiter(principal.limits, self.requests_of(principal)),
            self._settings.client,
            self._turn.changed,
            message.secret,
            message.incarnation,
        )
        client.elsewhere = message.elsewhere
        client.channel.restart(message.credit)
        self._connections.enter(connection, client, message.frame_bytes_max, visitor.admission)
        self._turn.tell_connection(
            client,
            Welcome(
                PROTOCOL_VERSION,
                self._settings.broker_id,
                self._incarnation,
                credit=client.channel.credit_to_grant,
                frame_bytes_max=self._connections.taken_from(client),
                address=self._settings.address,
                principal=principal.name if principal.name != ANONYMOUS else "",
            ),
        )
        self._turn.audit(
            "info",
            "client connected",
            client=client.name,
            principal=principal.name,
            remote=visitor.opened.remote,
        )
        return client

    def _authenticated(self, visitor: Visitor, token: str | None, role: str) -> Principal | None:
        """Who it is; None if that was a wrong token, and the answer waits a little."""
        now_us = self._turn.now_us
        certificate = visitor.opened.certificate
        visitor.admission = Admission(self.access.credential(token, certificate), role, certificate)
        try:
            return self.access.authenticate(token, certificate, role, now_us)
        except AuthenticationError as error:
            # One without a token has guessed nothing.
            wait_us = self._wrong_tokens.wait_us(visitor.opened.remote, now_us) if token is not None else 0
            if not wait_us:
                raise
            visitor.refusal, visitor.refused_at_us = error, now_us + wait_us
            self.refused[visitor.opened.connection] = visitor
            return None

    @property
    def next_refusal_us(self) -> int | None:
        """When the next of those who showed wrong tokens is to be answered."""
        if not self.refused:
            return None
        return min(visitor.refused_at_us for visitor in self.refused.values())

    def refusals_due(self) -> list[tuple[int, AuthenticationError]]:
        """Those who showed wrong tokens and have waited long enough."""
        due = []
        for connection, visitor in list(self.refused.items()):
            if connection not in self._connections.visitors:
                del self.refused[connection]  # it has gone
            elif visitor.refusal is not None and visitor.refused_at_us <= self._turn.now_us:
                del self.refused[connection]
                due.append((connection, visitor.refusal))
        return due

    def use_access(self, access: AccessPolicy) -> None:
        """From now on this says who may do what. Those who are here are looked at by others."""
        self.access = access
        self._requests.clear()

    def _broker(self, connection: int, visitor: Visitor, hello: Hello) -> Link:
        checked = _checked_id(hello.name)
        self._require_current(connection, checked, hello)
        known = self._neighbours.get(checked)
        if known is not None and known.connection is not None and self._settings.broker_id in hello.brokers:
            # It does not know that this is us, whom it is connected with.
            raise RequestRefusedError(DOUBLE, "double")
        remote = visitor.opened.remote
        if (
            known is not None
            and self.access.is_open
            and not (known.provisional and known.down)
            and not self._identities.convincing(known, hello, remote)
        ):
            self._identities.take_ticket(checked, hello.ticket)
            self._dialling.verify(known)
            raise RequestRefusedError(
                f"a broker {checked!r} was met before, and nothing proves that this is the same one; it is "
                f"dialled at {known.address or 'no address'}. If it was set up anew elsewhere: "
                f"'braid overlay forget {checked}'",
                "identity",
            )
        proofs = self._identities.proofs([checked])
        return self._linked(visitor, *self._links.accept(connection, hello, visitor.admission, proofs))

    def _linked(self, visitor: Visitor, link: Link, resumed: bool) -> Link:
        """A greeting has ended with a link."""
        link.host = host_of(visitor.opened.remote)
        if not resumed:
            key, ticket = self._identities.key_for(link.name), self._identities.ticket_for(link.name)
            self._turn.tell(link, Introduction(key, ticket))
        self._turn.audit("info", "link up", neighbour=link.name, resumed=resumed)
        return link

    def _welcomed(self, connection: int, visitor: Visitor, address: str, welcome: Welcome) -> Link | None:
        _require_version(welcome.version)
        known = self._neighbours.get(_checked_id(welcome.name))
        self._require_current(connection, welcome.name, welcome)
        if (
            known is not None
            and self.access.is_open
            and not self._dialling.is_at(address, known)
            and not self._identities.convincing(known, welcome, visitor.opened.remote)
        ):
            self._dialling.verify(known)
            raise RequestRefusedError(
                f"a broker {welcome.name!r} was met elsewhere before, and nothing proves that the one at "
                f"{address} is the same; ids must differ. If it was set up anew there: "
                f"'braid overlay forget {welcome.name}'",
                "identity",
            )
        linked = self._links.welcomed(connection, address, welcome, visitor.offer, visitor.admission)
        return self._linked(visitor, *linked) if linked is not None else None

    def heard_word(self, link: Link, message: SoftWord) -> None:
        """A broker says that it opens a soft link, which may have come before its word."""
        self._mesh.hear_word(link, message)
        for connection, visitor in list(self._connections.visitors.items()):
            if visitor.soft is not None and visitor.soft.name == message.sender:
                self._guard(connection, self._soft, connection, visitor, visitor.soft)

    def _soft(self, connection: int, visitor: Visitor, hello: Hello) -> SoftLink | None:
        """Another broker opens a soft link to us; None if the word that proves that is still to come."""
        if _checked_id(hello.name) == self._settings.broker_id:
            raise RemoteProtocolError(f"this broker is called {hello.name!r} too; ids must differ")
        soft = self._mesh.accept(connection, hello, visitor.admission, by_word=self.access.is_open)
        if soft is None:
            visitor.soft = hello
        return soft

    def _soft_welcomed(
        self, connection: int, visitor: Visitor, address: str, message: Message
    ) -> SoftLink | None:
        """The answer to a soft link of ours."""
        soft = None
        if isinstance(message, Welcome):
            _require_version(message.version)
            soft = self._mesh.welcomed(connection, address, message, visitor.admission)
        else:
            self._mesh.not_to_be(address)
        if soft is None:
            # Its end is no news any more: the same address may have been dialled again by then.
            del self._connections.visitors[connection]
            self._turn.effect(Close(connection, "the soft link is not to be"))
        return soft

    def requests_of(self, principal: Principal) -> RequestRate:
        """What all connections of a principal ask for together."""
        known = self._requests.get(principal.name)
        if known is None:
            known = RequestRate(principal.limits.requests_per_second_together_max)
            self._requests[principal.name] = known
        return known

    def left(self, event: ClientLeft) -> None:
        """A client has gone."""
        client = event.client
        now_us = self._turn.now_us
        held = len(client.subscriptions)
        self._turn.quotas.leave(client.principal, held, client.own_publisher, now_us)

    def principal(self, name: str) -> Principal | None:
        """Whom a name stands for at present; None for nobody."""
        return self.access.named(name)

    def overdue(self) -> list[int]:
        """Visitors that have taken too long."""
        oldest = self._turn.now_us - self._settings.handshake_us_max
        return [
            connection
            for connection, visitor in self._connections.visitors.items()
            if visitor.since_us < oldest
        ]


def _require_version(version: int) -> None:
    if version != PROTOCOL_VERSION:
        raise RequestRefusedError(
            f"version {PROTOCOL_VERSION} of the protocol is spoken here, not {version}", "version"
        )


def _checked_id(name: str) -> str:
    try:
        return checked_broker_id(name)
    except ConfigurationError as error:
        raise RemoteProtocolError(str(error)) from None

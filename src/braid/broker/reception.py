"""Who has just come through the door?

Every connection begins with a greeting. Until it is done nothing else is accepted from it, and it has
only so long. Clients become a party of their own; brokers get the link they had.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from braid.broker.access import ANONYMOUS, RateLimiter, RequestRate
from braid.broker.admission import NOBODY, Admission, WrongTokens
from braid.broker.parties import Client, Link, SoftLink
from braid.broker.settings import checked_broker_id
from braid.errors import (
    AccessDeniedError,
    AuthenticationError,
    ConfigurationError,
    RemoteProtocolError,
    RequestRefusedError,
)
from braid.protocol import Frame
from braid.protocol.effects import Close, Greeted, Send
from braid.protocol.limits import FRAME_BYTES_MAX, carried_bytes, readable_bytes
from braid.protocol.messages import PROTOCOL_VERSION, Goodbye, Hello, Introduction, Refused, Welcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from braid.broker.access import AccessPolicy, Principal
    from braid.broker.identities import Identities
    from braid.broker.on_link import LinkDesk
    from braid.broker.on_mesh import MeshDesk
    from braid.broker.parties import Party
    from braid.broker.postroom import Postroom
    from braid.broker.settings import BrokerSettings
    from braid.protocol.inputs import Opened
    from braid.protocol.messages import Message

__all__ = ["Reception", "Visitor"]

NAME_LENGTH_MAX = 200
SECRET_LENGTH_MAX = 1024


@dataclass(slots=True)
class Visitor:
    """A connection that has not been greeted yet."""

    opened: Opened
    since_us: int
    told_reach: tuple[str, ...] = ()
    """The brokers that our greeting said can be reached through us."""
    offered: str = ""
    """The session that our greeting asked to go on with."""
    admission: Admission = NOBODY
    refusal: AuthenticationError | None = None
    """What it hears at `refused_at_us`, if it showed a wrong token."""
    refused_at_us: int = 0


class Reception:
    """Greets connections."""

    def __init__(
        self,
        settings: BrokerSettings,
        incarnation: str,
        identities: Identities,
        access: AccessPolicy,
        postroom: Postroom,
        links: LinkDesk,
        mesh: MeshDesk,
        changed: Callable[[Party], None],
    ) -> None:
        self.visitors: dict[int, Visitor] = {}
        self.parties: dict[int, Party] = {}
        self.clients: dict[Client, None] = {}
        self.closed = False
        """Nobody new is let in."""
        self._settings = settings
        self._incarnation = incarnation
        self._identities = identities
        self.access = access
        """Who may do what; `use_access` puts another one in its place."""
        self.admissions: dict[int, Admission] = {}
        """How those were let in who are here, by connection."""
        self._wrong_tokens = WrongTokens()
        self.refused: dict[int, Visitor] = {}
        """Visitors that showed a wrong token and wait to hear so."""
        self._postroom = postroom
        self._links = links
        self._mesh = mesh
        self._changed = changed
        self._clients_ever = 0
        self._requests: dict[str, RequestRate] = {}
        """What all connections of a principal ask for, together; there are no more than principals."""
        mesh.when_let_go = self._let_go

    def opened(self, opened: Opened) -> None:
        """A connection is there."""
        if opened.dialled is None:
            if self.closed:
                self._postroom.refuse(opened.connection, "closing", "this broker is shutting down")
                return
            if len(self.visitors) + len(self.parties) >= self._settings.connections_max:
                self._postroom.refuse(opened.connection, "limit", "this broker has too many connections")
                return
        soft = opened.soft
        if soft and not self._mesh.awaits(opened.dialled):
            self._postroom.effect(Close(opened.connection, "the soft link is not to be"))
            return
        visitor = self.visitors[opened.connection] = Visitor(opened, self._postroom.now_us)
        if opened.dialled is not None:
            link = self._links.dialling.resumable(opened.dialled) if not soft else None
            visitor.told_reach = tuple(sorted(self._links.reach(link))) if not soft else ()
            visitor.offered = link.agreed if link is not None else ""
            hello = Hello(
                PROTOCOL_VERSION,
                "soft" if soft else "broker",
                self._settings.broker_id,
                self._incarnation,
                self._settings.link_token or None,
                resumes=visitor.offered,
                received=link.channel.received if link is not None else 0,
                credit=self._settings.link.window_bytes,
                address=self._settings.address,
                brokers=list(visitor.told_reach),
                delta=self._settings.delta,
                frame_bytes_max=self._settings.frame_bytes_max,
                proofs=self._identities.proofs(self._links.links, self._incarnation) if not soft else {},
            )
            self._postroom.effect(Send(opened.connection, [Frame(0, hello)]))

    def greeted(self, connection: int, message: Message) -> Party | None:
        """The first message of a visitor; returns the party it has become.

        Raises:
            RemoteProtocolError: that is no way to greet.
            RequestRefusedError: it is not let in.
        """
        visitor = self.visitors[connection]
        if visitor.opened.dialled is not None:
            if visitor.opened.soft:
                return self._soft_welcomed(connection, visitor.opened.dialled, message)
            if isinstance(message, Refused):
                self._postroom.note(
                    "error",
                    "a neighbour refuses the link",
                    address=visitor.opened.dialled,
                    code=message.code,
                    reason=message.reason,
                )
                self._postroom.effect(Close(connection, message.reason))
                if message.code in ("loop", "double"):
                    self._links.dialling.met(visitor.opened.dialled, message.name)
                    self._links.moved(message.name)
                    self._links.tell_reach()
                return None
            if not isinstance(message, Welcome):
                raise RemoteProtocolError(f"a Welcome was expected, not a {type(message).__name__}")
            return self._welcomed(connection, visitor, visitor.opened.dialled, message)
        if not isinstance(message, Hello):
            raise RemoteProtocolError(f"a Hello was expected, not a {type(message).__name__}")
        _require_version(message.version)
        if self.closed:
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
            if not self.access.is_open and principal.name != message.name:
                raise AccessDeniedError(f"this principal may not link as the broker {message.name!r}")
            if message.role == "soft":
                return self._soft(connection, message)
            return self._broker(connection, message)
        if message.role != "client":
            raise RemoteProtocolError(f"a role is 'client', 'broker' or 'soft', not {message.role!r}")
        self._postroom.quotas.connect(principal, self._postroom.now_us)
        self._clients_ever += 1
        client = Client(
            message.name,
            f"{self._settings.broker_id}/{self._incarnation[:8]}.{self._clients_ever}",
            principal,
            RateLimiter(principal.limits, self.requests_of(principal)),
            self._settings.client,
            self._changed,
            message.secret,
        )
        self._enter(connection, client, message.frame_bytes_max)
        self.clients[client] = None
        client.channel.restart(message.credit)
        self._postroom.aside(
            client,
            Welcome(
                PROTOCOL_VERSION,
                self._settings.broker_id,
                self._incarnation,
                credit=client.channel.credit_to_grant,
                frame_bytes_max=self._taken_from(client),
                address=self._settings.address,
                principal=principal.name if principal.name != ANONYMOUS else "",
            ),
        )
        self._postroom.audit(
            "info",
            "client connected",
            client=client.name,
            principal=principal.name,
            remote=visitor.opened.remote,
        )
        return client

    def _authenticated(self, visitor: Visitor, token: str | None, role: str) -> Principal | None:
        """Who it is; None if that was a wrong token, and the answer waits a little."""
        now_us = self._postroom.now_us
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
            if connection not in self.visitors:
                del self.refused[connection]  # it has gone
            elif visitor.refusal is not None and visitor.refused_at_us <= self._postroom.now_us:
                del self.refused[connection]
                due.append((connection, visitor.refusal))
        return due

    def use_access(self, access: AccessPolicy) -> None:
        """From now on this says who may do what. Those who are here are looked at by others."""
        self.access = access
        self._requests.clear()

    def _broker(self, connection: int, hello: Hello) -> Link | None:
        checked = _checked_id(hello.name)
        self._links.require_other(checked)
        known = self._links.links.get(checked)
        if known is not None and self.access.is_open and not self._identities.convincing(known, hello):
            self._links.dialling.verify(known)
            raise RequestRefusedError(
                f"a broker {checked!r} was met before, and nothing proves that this is the same one; it is "
                f"dialled at {known.address or 'no address'}. If it was set up anew elsewhere: "
                f"'braid overlay forget {checked}'",
                "identity",
            )
        if known is not None and known.connection is not None:
            if known.incarnation != hello.incarnation and hello.address != known.address and known.address:
                # One that was started again comes from where it was.
                raise RequestRefusedError(
                    f"there is a broker {checked!r} at {known.address} already; ids must differ", "taken"
                )
            if not self._links.prefer(known, dialled=False):
                raise RequestRefusedError("there is a connection between us already", "double")
            self._replace(known)
        try:
            self._links.require_no_loop(checked, hello.brokers)
        except RequestRefusedError:
            self._links.moved(checked)
            raise
        link, resumed = self._links.accepted(hello)
        link.dialled = False
        self._enter(connection, link, hello.frame_bytes_max)
        reach = tuple(sorted(self._links.reach(link)))
        self._postroom.aside(
            link,
            Welcome(
                PROTOCOL_VERSION,
                self._settings.broker_id,
                self._incarnation,
                resumes=link.agreed if resumed else "",
                received=link.channel.received,
                credit=link.channel.credit_to_grant,
                frame_bytes_max=self._settings.frame_bytes_max,
                address=self._settings.address,
                brokers=list(reach),
                delta=self._settings.delta,
                session=link.agreed,
            ),
        )
        link.told_reach = reach
        self._begun(link, resumed, hello.delta)
        return link

    def _begun(self, link: Link, resumed: bool, delta: int) -> None:
        self._links.begun(link, resumed, delta)
        key = self._identities.key_for(link.name)
        if key and not resumed:
            self._postroom.tell(link, Introduction(key))
        self._postroom.audit("info", "link up", neighbour=link.name, resumed=resumed)

    def _welcomed(self, connection: int, visitor: Visitor, address: str, welcome: Welcome) -> Link | None:
        _require_version(welcome.version)
        if not self._links.dialling.wanted(address, welcome.name):
            # We were detached while the connection was being made.
            goodbye = Goodbye("detached", detach=True)
            self._postroom.effect(Send(connection, [Frame(0, goodbye)]))
            self._postroom.effect(Close(connection, "detached"))
            return None
        self._links.require_other(_checked_id(welcome.name))
        known = self._links.links.get(welcome.name)
        self._links.dialling.met(address, welcome.name)
        if known is not None and known.connection is not None:
            same = known.incarnation == welcome.incarnation
            if same and not self._links.prefer(known, dialled=True):
                self._links.tell_reach()
                self._postroom.effect(Close(connection, "there is a connection between us already"))
                return None
            self._replace(known)
        try:
            self._links.require_no_loop(welcome.name, welcome.brokers)
        except RequestRefusedError:
            self._links.moved(welcome.name)
            self._links.tell_reach()
            raise
        link, resumed = self._links.welcomed(address, welcome, visitor.offered)
        link.dialled = True
        link.told_reach = visitor.told_reach
        self._enter(connection, link, welcome.frame_bytes_max)
        self._begun(link, resumed, welcome.delta)
        return link

    def _soft(self, connection: int, hello: Hello) -> SoftLink:
        """Another broker opens a soft link to us."""
        self._links.require_other(_checked_id(hello.name))
        soft = self._mesh.accepted(hello)
        self._enter(connection, soft, hello.frame_bytes_max)
        self._postroom.aside(
            soft,
            Welcome(
                PROTOCOL_VERSION,
                self._settings.broker_id,
                self._incarnation,
                credit=soft.channel.credit_to_grant,
                frame_bytes_max=self._settings.frame_bytes_max,
                address=self._settings.address,
                delta=self._settings.delta,
            ),
        )
        self._mesh.entered(soft)
        return soft

    def _let_go(self, connection: int) -> None:
        """A soft link has been closed here: its end is no news any more."""
        self.parties.pop(connection, None)

    def _soft_welcomed(self, connection: int, address: str, message: Message) -> SoftLink | None:
        """The answer to a soft link of ours."""
        soft = None
        frame_bytes_max = 0
        if isinstance(message, Welcome):
            _require_version(message.version)
            frame_bytes_max = message.frame_bytes_max
            soft = self._mesh.welcomed(address, message)
        else:
            self._mesh.dial_failed(address)
        if soft is None:
            # Its end is no news any more: the same address may have been dialled again by then.
            del self.visitors[connection]
            self._postroom.effect(Close(connection, "the soft link is not to be"))
            return None
        self._enter(connection, soft, frame_bytes_max)
        self._mesh.entered(soft)
        return soft

    def _replace(self, link: Link) -> None:
        """The connection a link has is given up for a new one."""
        if link.connection is not None:
            del self.parties[link.connection]
            self._postroom.effect(Close(link.connection, "another connection has taken over"))
            self._links.disconnected(link)

    def _taken_from(self, client: Client) -> int:
        """The largest frame that is read from a client: one that can be passed on to everybody."""
        return min(carried_bytes(self._settings.frame_bytes_max), client.principal.limits.frame_bytes_max)

    def _enter(self, connection: int, party: Party, frame_bytes_max: int) -> None:
        """A visitor has become a party that reads frames of so many bytes; 0: it does not say."""
        visitor = self.visitors.pop(connection)
        self.admissions[connection] = (
            visitor.admission
            if visitor.opened.dialled is None
            else Admission(certificate=visitor.opened.certificate)
        )
        self.parties[connection] = party
        taken_bytes = self._settings.frame_bytes_max
        kind = "broker"
        if isinstance(party, SoftLink):
            kind = "soft"
        elif isinstance(party, Client):
            kind = "client"
            taken_bytes = self._taken_from(party)
        self._postroom.effect(Greeted(connection, taken_bytes, kind, party.name))
        silent = readable_bytes(taken_bytes) if isinstance(party, Client) else FRAME_BYTES_MAX
        party.channel.frame_bytes_max = frame_bytes_max if frame_bytes_max > 0 else silent
        party.connection = connection
        party.heard_at_us = self._postroom.now_us
        party.pinged = False
        party.outside.clear()

    def requests_of(self, principal: Principal) -> RequestRate:
        """What all connections of a principal ask for together."""
        known = self._requests.get(principal.name)
        if known is None:
            known = RequestRate(principal.limits.requests_per_second_together_max)
            self._requests[principal.name] = known
        return known

    def left(self, client: Client) -> None:
        """A client has gone."""
        self.clients.pop(client, None)
        now_us = self._postroom.now_us
        held = len(client.subscriptions)
        self._postroom.quotas.leave(client.principal, held, client.own_publisher, now_us)

    def principal(self, name: str) -> Principal | None:
        """Whom a name stands for at present; None for nobody."""
        return self.access.named(name)

    def overdue(self) -> list[int]:
        """Visitors that have taken too long."""
        oldest = self._postroom.now_us - self._settings.handshake_us_max
        return [connection for connection, visitor in self.visitors.items() if visitor.since_us < oldest]


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

"""By what was a peer let in, and which must go when that no longer holds?

The access policy can be replaced while the broker runs, tokens expire, and certificates are revoked. A peer
that was let in by something that no longer counts is sent away. One that may do less than before, and has
asked for more than that, is asked to come again, and hears then what it may have.

A peer that shows wrong tokens waits for the answers, longer each time. Only wrong ones wait: a right token is
accepted at once, from wherever it comes, so that nobody can lock others out.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from braid.broker.access import RateLimiter
from braid.broker.parties import Client
from braid.errors import RequestRefusedError
from braid.protocol.codec import Frame
from braid.protocol.effects import Close, Reload, Send
from braid.protocol.messages import Done, Goodbye

if TYPE_CHECKING:
    from collections.abc import Callable

    from braid.broker.access import Principal
    from braid.broker.connections import Connections
    from braid.broker.durable_logs import DurableLogs
    from braid.broker.handshake import Handshake
    from braid.broker.parties import Party
    from braid.broker.subscriptions import Subscriptions
    from braid.broker.turn import Turn
    from braid.language import Filter
    from braid.protocol.inputs import Reconfigured
    from braid.protocol.messages import Ask

__all__ = ["NOBODY", "AccessReview", "Admission", "WrongTokens"]

# The answer to the second wrong token from an address waits so long; it doubles with each further one.
WRONG_TOKEN_US = 100_000
WRONG_TOKEN_US_MAX = 5_000_000
# An address that has shown no wrong token for so long begins anew.
FORGIVEN_AFTER_US = 60_000_000
# Addresses that are remembered; more than this forget the one that was wrong longest ago.
ADDRESSES_MAX = 4_096
# The owner of an IPv6 address usually owns so much of what is around it.
IPV6_PREFIX = 64


@dataclass(frozen=True, slots=True)
class Admission:
    """How a peer was let in."""

    credential: str = ""
    """As `AccessPolicy.credential` names it; empty for nobody in particular."""
    role: str = ""
    """`client` or `broker`; empty where we were the one who asked to be let in."""
    certificate: str | None = None
    """The name in the verified certificate of the connection."""


NOBODY = Admission()
"""How a peer was let in of which nothing is known."""


class WrongTokens:
    """How long should the answer to a wrong token wait?"""

    def __init__(self) -> None:
        self._addresses: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """How many wrong tokens an address has shown, and when the last one."""

    def wait_us(self, remote: str, now_us: int) -> int:
        """A wrong token has come from there; 0 for the first one."""
        address = _address(remote)
        count, last_us = self._addresses.pop(address, (0, now_us))
        if now_us - last_us > FORGIVEN_AFTER_US:
            count = 0
        self._addresses[address] = (count + 1, now_us)
        if len(self._addresses) > ADDRESSES_MAX:
            self._addresses.popitem(last=False)
        if not count:
            return 0
        return min(WRONG_TOKEN_US_MAX, WRONG_TOKEN_US << min(count - 1, 16))


def _address(remote: str) -> str:
    """Where a connection comes from, without its port."""
    host = remote.rpartition(":")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, IPV6_PREFIX), strict=False))
    return host


class AccessReview:
    """Sees to it that only those stay who may."""

    def __init__(
        self,
        turn: Turn,
        connections: Connections,
        handshake: Handshake,
        subscriptions: Subscriptions,
        durables: DurableLogs,
        *,
        send_away: Callable[[int, str, str], None],
        end: Callable[[int], None],
    ) -> None:
        """
        Args:
            turn: where answers and effects go.
            connections: who is here, and by what they were let in.
            handshake: knows who may do what.
            subscriptions: of clients.
            durables: logs, whose owners may hear more or less than before.
            send_away: ends a connection with a code and a reason.
            end: takes note of the end of a connection.
        """
        self._turn = turn
        self._connections = connections
        self._handshake = handshake
        self._subscriptions = subscriptions
        self._durables = durables
        self._send_away = send_away
        self._end = end
        self._asked: dict[int, tuple[Client, int]] = {}
        """Operators who have asked for a reload, with their request, by its token."""
        self._tokens = 0

    def reload(self, client: Client, message: Ask) -> None:
        """An operator wants access file and certificates read again."""
        self._tokens += 1
        self._asked[self._tokens] = (client, message.request)
        self._turn.effect(Reload(self._tokens))

    def reconfigured(self, stimulus: Reconfigured) -> None:
        """Access file and certificates were read again, or could not be."""
        asker = self._asked.pop(stimulus.token, None)
        if stimulus.problem:
            self._turn.audit("error", "reload failed, everything stays as it was", reason=stimulus.problem)
        else:
            gone = self._use(stimulus)
            self._turn.audit("info", "reloaded", connections_ended=gone)
        if asker is not None and asker[0].connection is not None:
            client, request = asker
            if stimulus.problem:
                error = RequestRefusedError(f"nothing has changed: {stimulus.problem}", "configuration")
                self._turn.fail(client, request, error)
            else:
                broker = self._turn.settings.broker_id
                self._turn.tell(client, Done(request, f'{{"broker":"{broker}","connections_ended":{gone}}}'))

    def review(self) -> None:
        """Send away those whose tokens have expired."""
        access = self._handshake.access
        if access.expiries:
            for connection, party in list(self._connections.parties.items()):
                admission = self._connections.admissions.get(connection)
                if admission is not None and admission.credential in access.expiries:
                    self._readmitted(connection, party, admission)

    def _use(self, stimulus: Reconfigured) -> int:
        """Let the new policy count; returns how many connections have ended."""
        before = len(self._connections.parties)
        if stimulus.access is not None:
            self._handshake.use_access(stimulus.access)
        for connection, party in list(self._connections.parties.items()):
            admission = self._connections.admissions.get(connection, NOBODY)
            if stimulus.certificates_changed and admission.certificate is not None:
                # Whether a certificate still counts is only found out in a handshake.
                self._ask_to_come_again(connection, "certificates are looked at again")
                continue
            principal = self._readmitted(connection, party, admission) if admission.role else None
            if principal is not None and isinstance(party, Client):
                self._change(connection, party, principal)
        self._durables.grants_changed()
        return before - len(self._connections.parties)

    def _readmitted(self, connection: int, party: Party, admission: Admission) -> Principal | None:
        """The principal that this is at present; None if it has been sent away."""
        access = self._handshake.access
        try:
            principal = access.readmit(admission.credential, admission.role, self._turn.now_us)
            if isinstance(party, Client):
                if principal.name != party.principal.name:
                    raise RequestRefusedError("this belongs to another principal now", "authentication")
            elif not access.is_open and principal.name != party.name:
                raise RequestRefusedError(f"this principal may not link as {party.name!r}", "denied")
        except RequestRefusedError as error:
            self._send_away(connection, error.code, str(error))
            return None
        return principal

    def _change(self, connection: int, client: Client, principal: Principal) -> None:
        """A client has another grant, or other limits."""
        former, client.principal = client.principal, principal
        if former == principal:
            return
        self._connections.granted(connection, client, former)
        client.limiter = RateLimiter(principal.limits, self._handshake.requests_of(principal))
        grant, before = principal.grant, former.grant
        tables = self._subscriptions.tables
        beyond = (
            not _within(before.subscribe, grant.subscribe)
            and not all(
                _within(tables.subscription(key), grant.subscribe) for key in client.subscriptions.values()
            )
        ) or (
            not _within(before.publish, grant.publish)
            and client.advertised is not None
            and not all(
                _within(tables.advertisement(f"{client.key}/{key}"), grant.publish)
                for key in client.advertised
            )
        )
        if beyond:
            self._ask_to_come_again(connection, "what it may do has changed")

    def _ask_to_come_again(self, connection: int, reason: str) -> None:
        party = self._connections.parties[connection]
        self._turn.audit("info", "asked to come again", party=party.name, reason=reason)
        self._turn.effect(Send(connection, [Frame(0, Goodbye(reason))]))
        self._turn.effect(Close(connection, reason))
        self._end(connection)


def _within(inner: Filter | None, outer: Filter | None) -> bool:
    return inner is None or (outer is not None and outer.covers(inner))

"""Opens what makes a broker process a peer: DHT, matching, the link to the broker, and datagrams.

A process that is only a peer (`braid peer`, `alone`) has a broker without neighbours for its clients. A
gateway is a broker of a network that is a peer as well.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from braid.broker.access import AccessPolicy, Grant, Principal, hashed_token
from braid.broker.reports import overlay_of
from braid.broker.settings import checked_broker_id
from braid.errors import BraidError, ConfigurationError
from braid.p2p.dht import OTHER_DHTS
from braid.p2p.dht.pastry import Pastry
from braid.p2p.dht.ring import Ring
from braid.p2p.dmm import DMM_MESSAGES, Dmm, DmmSettings, Interests
from braid.p2p.gateway import GatewaySettings, PeeredBroker, PeersLink
from braid.p2p.peer import Peer, inner_kind, peer_vocabulary
from braid.p2p.schema import NetworkSchema
from braid.p2p.turn import Turn
from braid.runtime.datagrams import Datagrams, DatagramSettings
from braid.runtime.tls import Address, parse_address

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from braid.broker.core import BrokerCore
    from braid.broker.settings import BrokerSettings
    from braid.p2p.dht.interface import Dht
    from braid.server.doorkeeping import Doorkeeping
    from braid.server.peer_settings import PeerSettings
    from braid.server.settings import ServerSettings

__all__ = ["Peering", "open_peering"]

# Others cannot be told that a peer is everywhere.
_ANY_HOST = ("0.0.0.0", "::", "")


def open_peering(
    wanted: ServerSettings, broker: BrokerSettings, listener: Address, doors: Doorkeeping
) -> Peering | None:
    """The peer of a broker process, if it is one."""
    if not wanted.peers.active:
        return None
    peering = Peering(
        wanted.peers,
        broker.broker_id,
        listener,
        advertised=wanted.broker.address,
        link_token=broker.link_token,
        frame_bytes_max=broker.frame_bytes_max,
    )
    doors.amend = peering.admitting
    return peering


class Peering:
    """The peer of one process."""

    def __init__(
        self,
        settings: PeerSettings,
        broker_id: str,
        listener: Address,
        *,
        advertised: str = "",
        link_token: str = "",
        frame_bytes_max: int,
    ) -> None:
        """
        Args:
            settings: what was asked for.
            broker_id: of the broker in this process.
            listener: where it listens.
            advertised: where others reach it, if not there.
            link_token: shown to other peers, if the settings have no token.
            frame_bytes_max: the largest frame that the broker reads.

        Raises:
            ConfigurationError: something cannot be used.
        """
        self.settings = settings
        place = parse_address(advertised) if advertised else listener
        if place.host in _ANY_HOST:
            raise ConfigurationError(
                f"other peers cannot reach {place.host or 'all interfaces'}: give the address that they are "
                "to use (--address, or address in [broker])"
            )
        self.address = _peer_address(place)
        self._token = settings.token or link_token or None
        self._schema = _read_schema(settings.schema)
        self._dmm_settings = DmmSettings(
            algorithm=settings.algorithm,
            beacon_us=settings.beacon_us,
            expiry_us=2 * settings.beacon_us,
            cache_beacon_us=settings.beacon_us,
            cache_expiry_us=2 * settings.beacon_us,
            gateways=True,
        )
        if settings.algorithm == "DMM" and not self._schema.dimensions:
            raise ConfigurationError("DMM needs a schema that names the attributes; give one, or use DMM-AR")
        self._link_token = secrets.token_urlsafe(32)
        self._link_name = checked_broker_id(f"{broker_id[:58]}.peers")
        self._frame_bytes_max = frame_bytes_max
        self.refusal = ""
        """Why the first bootstrap peer that answered does not want us, if it does not."""
        self.on_refusal: Callable[[], None] = lambda: None
        self._bootstrap = tuple(_peer_address(parse_address(each)) for each in settings.bootstrap)
        self._require_tls_as_written(listener.tls)
        self._access: AccessPolicy | None = None
        self.machine: PeeredBroker
        self.datagrams: Datagrams
        self._dht: Dht

    def _require_tls_as_written(self, tls: bool) -> None:
        """Raise unless peers are dialled as their addresses say. One without a scheme says nothing."""
        for text in self.settings.bootstrap:
            if "://" in text and parse_address(text).tls != tls:
                problem = (
                    f"{text} means without TLS, but this peer has a certificate; use braids+p2p://"
                    if tls
                    else f"{text} means with TLS, but this peer has no certificate; give it one"
                )
                raise ConfigurationError(f"[peers] bootstrap: {problem}")

    @property
    def network(self) -> str:
        """What all peers of the network agree on."""
        dmm = self._dmm_settings
        words = (
            f"{self._schema.digest} {self.settings.dht} {dmm.algorithm} {dmm.attribute_root} {dmm.terms_max}"
        )
        return blake2b(words.encode(), digest_size=16).hexdigest()

    def admitting(self, access: AccessPolicy | None) -> AccessPolicy | None:
        """The policy with a principal for the link between the broker and its peers."""
        self._access = access
        if access is None or access.is_open:
            return access
        principal = Principal(self._link_name, Grant(link=True))
        return replace(
            access,
            principals={**access.principals, self._link_name: principal},
            tokens={**access.tokens, hashed_token(self._link_token): self._link_name},
        )

    def open(self, broker: BrokerCore, client_tls: ssl.SSLContext | None) -> PeeredBroker:
        """The broker and its peer as one machine."""
        turn = Turn()
        settings = self.settings
        if settings.dht == "ring":
            dht: Dht = Ring(turn, self.address, settings.ring)
        elif settings.dht in OTHER_DHTS:
            dht = OTHER_DHTS[settings.dht](turn, self.address)
        else:
            dht = Pastry(turn, self.address, settings.pastry)
        self._dht = dht
        dmm = Dmm(
            turn,
            dht,
            self._dmm_settings,
            Interests(self._dmm_settings, self._schema),
            epoch=secrets.token_hex(6),
        )
        peer = Peer(turn, dht, dmm, self._bootstrap)
        link = PeersLink(self._link_name, broker.incarnation, self._link_token, self._frame_bytes_max)
        crossing = GatewaySettings(
            to_peers=settings.to_peers,
            from_peers=settings.from_peers,
            alone=settings.alone,
        )
        broker.answer("peer", lambda arguments: self.report())
        broker.answer("overlay", lambda arguments: self._marked(overlay_of(broker.snapshot())))
        self.machine = PeeredBroker(broker, peer, dmm, link, crossing)
        self.datagrams = Datagrams(
            self.address,
            peer_vocabulary(DMM_MESSAGES),
            network=self.network,
            settings=DatagramSettings(loss=settings.loss),
            token=self._token,
            admits=self._admits,
            client_tls=client_tls,
            on_refused=self._refused,
            kind_of=inner_kind,
        )
        return self.machine

    def _marked(self, overlay: dict[str, Any]) -> dict[str, Any]:
        """Whoever looks at the network can tell which neighbour is no broker, and has no address."""
        for link in overlay["links"]:
            if link["neighbour"] == self._link_name:
                link["peers"] = True
        return overlay

    @property
    def joined(self) -> bool:
        """Whether this peer has its place."""
        return self._dht.responsible(self._dht.own.id)

    def why_not_ready(self) -> str:
        """A sentence, empty while this peer has its place."""
        if self.joined:
            return ""
        if self.refusal:
            return self.refusal
        return f"waiting for a place among the peers of {', '.join(self._bootstrap)}"

    def report(self) -> dict[str, Any]:
        """What there is to know about this peer."""
        counters = self.datagrams.counters
        outgoing, accepted = self.datagrams.connections
        return {
            "address": self.address,
            "identifier": self._dht.own.id.hex(),
            "joined": self.joined,
            "network": self.network,
            "dht": self.settings.dht,
            "algorithm": self.settings.algorithm,
            "schema": sorted(name for name, _ in self._schema.dimensions),
            "neighbours": [contact.address for contact in self._dht.neighbours(16)],
            "holds": self.machine.dmm.statistics(),
            "to_peers": self.machine.to_peers,
            "from_peers": self.machine.from_peers,
            "refused": self.machine.refused,
            "connections": {"opened": outgoing, "accepted": accepted},
            "datagrams": msgspec.to_builtins(counters),
        }

    def _admits(self, token: str | None, certificate: str | None) -> str:
        """Why somebody may not be a peer; empty if it may."""
        if self._access is None:
            return ""
        try:
            self._access.authenticate(token, certificate, "broker")
        except BraidError as error:
            return str(error).replace("broker", "peer")
        return ""

    def _refused(self, address: str, reason: str) -> None:
        if address in self._bootstrap and not self.joined:
            self.refusal = f"the peer {address} refuses this one: {reason}"
            self.on_refusal()


def _peer_address(address: Address) -> str:
    """How peers write an address, all in the same way: its hash is the place of that peer."""
    host = f"[{address.host}]" if ":" in address.host else address.host.lower()
    return f"{host}:{address.port}"


def _read_schema(path: os.PathLike[str] | None) -> NetworkSchema:
    if path is None:
        return NetworkSchema()
    try:
        found = msgspec.json.decode(Path(path).read_bytes(), type=dict[str, dict[str, Any]])
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigurationError(f"the schema {os.fspath(path)} cannot be read: {error}") from None
    return NetworkSchema(found)

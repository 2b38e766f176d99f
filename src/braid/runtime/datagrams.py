"""How do datagrams cross real sockets?

A `SendTo` goes over a pooled TCP connection to its address, which is opened when it is first needed and
closed when it has been idle. Each side sends over connections it has opened itself, so a datagram goes where
its address leads, whatever others claim. Everything that waits is bounded, and what finds no room is dropped,
as datagrams may be: the machine that cares sends again. Whatever a stranger sends ends its own connection
only.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

from braid.errors import BraidError, ConfigurationError, RemoteProtocolError
from braid.protocol import Frame, FrameDecoder, encode_frames
from braid.protocol.datagrams import (
    FIRST_BYTES,
    PEER_VERSION,
    Datagram,
    PeerHello,
    PeerRefused,
    PeerWelcome,
    datagram_vocabulary,
    encode_datagram,
    is_peer_greeting,
)
from braid.protocol.inputs import Heard
from braid.protocol.limits import FRAME_BYTES_MAX
from braid.runtime.tls import handshake_problem, parse_address, peer_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import msgspec

    from braid.protocol.codec import Vocabulary
    from braid.protocol.effects import SendTo
    from braid.protocol.inputs import Input

__all__ = ["DatagramCounters", "DatagramSettings", "Datagrams", "FirstBytes"]

# One attempt to open a connection, with its greeting.
DIAL_S_MAX: Final = 5.0
# How long nothing is sent to an address that could not be reached, and to one that refused us.
UNREACHABLE_S: Final = 0.5
REFUSED_S: Final = 5.0
# How often idle connections are looked for, as a share of how long they may be idle.
LOOKS: Final = 4
# A refusal is written before its connection ends, unless the other side does not read.
LINGER_S: Final = 1.0
ADDRESS_LENGTH_MAX: Final = 300


@dataclass(frozen=True, kw_only=True)
class DatagramSettings:
    """How much datagrams may take of a process."""

    connections_max: int = 512
    """Connections to other peers. Beyond it the one that was used least recently is closed."""
    accepted_max: int = 4_096
    """Connections from other peers. Further ones are refused."""
    idle_s_max: float = 60.0
    """How long a connection stays open without a datagram. Higher: fewer greetings, more open connections."""
    waiting_bytes_max: int = 4 * 1024 * 1024
    """Datagrams that wait for one address, because its connection is being opened or does not take more.
    Further ones are dropped."""
    datagram_bytes_max: int = FRAME_BYTES_MAX
    """The largest datagram that is read or sent."""
    loss: float = 0.0
    """The share of messages that are dropped on purpose before they are sent, to see what that does."""
    loss_seed: int = 0
    """Decides which ones."""

    def __post_init__(self) -> None:
        for name in ("connections_max", "accepted_max", "waiting_bytes_max", "datagram_bytes_max"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"datagrams: {name} is at least 1, not {getattr(self, name)}")
        if not self.idle_s_max > 0:
            raise ConfigurationError(f"datagrams: idle_s_max is above 0, not {self.idle_s_max}")
        if not 0 <= self.loss <= 1:
            raise ConfigurationError(f"datagrams: loss is a share from 0 to 1, not {self.loss}")


@dataclass(slots=True)
class DatagramCounters:
    """What has become of datagrams since the start."""

    sent: int = 0
    heard: int = 0
    dropped: int = 0
    """Those that found no room, were too large, or had no way to their address."""
    lost_messages: int = 0
    """Messages that were dropped on purpose."""
    refused: int = 0
    """Connections that were refused, or ended for what came over them."""
    messages: dict[str, int] = field(default_factory=dict)
    """Messages that were sent, by kind; those to itself left out."""


class Datagrams:
    """Sends and receives the datagrams of one machine."""

    def __init__(
        self,
        address: str,
        vocabulary: Vocabulary,
        *,
        network: str,
        settings: DatagramSettings | None = None,
        token: str | None = None,
        admits: Callable[[str | None, str | None], str] = lambda token, certificate: "",
        client_tls: ssl.SSLContext | None = None,
        on_refused: Callable[[str, str], None] = lambda address, reason: None,
        kind_of: Callable[[msgspec.Struct], str] = lambda message: type(message).__name__,
    ) -> None:
        """
        Args:
            address: where this machine can be reached, as others are told.
            vocabulary: the messages of the machine.
            network: what all machines of the network agree on; others are refused.
            settings: how much there may be of everything.
            token: what is shown to others.
            admits: is given the token and the verified certificate's name of whoever connects; returns why it
                is refused, or nothing.
            client_tls: for connections to others; None for plain ones.
            on_refused: told when another machine refuses us, and why.
            kind_of: what a message is counted as.
        """
        self.address = address
        self.counters = DatagramCounters()
        self.settings = settings or DatagramSettings()
        self._hello = encode_frames((Frame(0, PeerHello(PEER_VERSION, network, address, token)),))  # type: ignore[arg-type]
        self._welcome = encode_frames(
            (Frame(0, PeerWelcome(PEER_VERSION, network, self.settings.datagram_bytes_max)),)  # type: ignore[arg-type]
        )
        self.network = network
        self.vocabulary = datagram_vocabulary(vocabulary)
        self.admits = admits
        self._client_tls = client_tls
        self._on_refused = on_refused
        self._kind_of = kind_of
        self._chance = random.Random(f"{self.settings.loss_seed}/{address}")
        self._loop = asyncio.get_running_loop()
        self._log = logging.getLogger(f"braid.datagrams.{address}")
        self._report: Callable[[Input], None] = lambda stimulus: None
        self._outgoing: dict[str, _Outgoing] = {}
        """By address, the most recently used last."""
        self._closed_to: dict[str, float] = {}
        """Addresses to which nothing is sent before a time."""
        self.accepted: set[_Incoming] = set()
        self.undecided = 0
        self._looking: asyncio.TimerHandle | None = None
        self._stopped = False

    def start(self, report: Callable[[Input], None]) -> None:
        """From now on the machine hears what comes."""
        self._report = report
        self._look()

    def use_tls(self, client: ssl.SSLContext | None) -> None:
        """Encrypt connections with this from now on, where they were encrypted before."""
        if self._client_tls is not None:
            self._client_tls = client

    @property
    def connections(self) -> tuple[int, int]:
        """How many there are to others, and from others."""
        return len(self._outgoing), len(self.accepted)

    # Sending.

    def send(self, effect: SendTo) -> None:
        """Send a datagram, or drop it."""
        messages = list(effect.messages)
        loss = self.settings.loss
        if loss:
            kept = [each for each in messages if self._chance.random() >= loss]
            self.counters.lost_messages += len(messages) - len(kept)
            if not kept:
                return
            messages = kept
        self.counters.sent += 1
        if effect.address == self.address:
            self._loop.call_soon(self._report, Heard(self.address, messages))
            return
        counted = self.counters.messages
        for message in messages:
            kind = self._kind_of(message)
            counted[kind] = counted.get(kind, 0) + 1
        data = encode_datagram(messages)
        outgoing = self._outgoing.pop(effect.address, None)
        if outgoing is None:
            outgoing = self._opened(effect.address)
        if outgoing is not None:
            self._outgoing[effect.address] = outgoing  # the most recently used is last
        if outgoing is None or not outgoing.send(data):
            self.counters.dropped += 1

    def _opened(self, address: str) -> _Outgoing | None:
        until_s = self._closed_to.get(address)
        if self._stopped or (until_s is not None and self._loop.time() < until_s):
            return None
        while len(self._outgoing) >= self.settings.connections_max:
            self._outgoing.pop(next(iter(self._outgoing))).end()
        outgoing = _Outgoing(self, address)
        outgoing.task = self._loop.create_task(self._dial(outgoing))
        return outgoing

    async def _dial(self, outgoing: _Outgoing) -> None:
        problem = ""
        try:
            target = parse_address(outgoing.address)
            async with asyncio.timeout(DIAL_S_MAX):
                await self._loop.create_connection(
                    lambda: outgoing, target.host, target.port, ssl=self._client_tls
                )
                await outgoing.welcomed.wait()
        except TimeoutError:
            problem = f"no answer within {DIAL_S_MAX:g} s"
        except ssl.SSLError as error:
            problem = handshake_problem(error)
        except (OSError, BraidError) as error:
            problem = str(error)
        if problem:
            self._log.debug(
                "a peer cannot be reached", extra={"fields": {"peer": outgoing.address, "reason": problem}}
            )
            self.ended(outgoing, UNREACHABLE_S)
            outgoing.end()

    def greeting(self) -> bytes:
        """What is said first."""
        return self._hello

    def refused(self, outgoing: _Outgoing, reason: str) -> None:
        """The machine at an address does not take our datagrams."""
        self._log.warning(
            "a peer refuses datagrams", extra={"fields": {"peer": outgoing.address, "reason": reason}}
        )
        self.ended(outgoing, REFUSED_S)
        self._on_refused(outgoing.address, reason)

    def ended(self, outgoing: _Outgoing, pause_s: float = 0.0) -> None:
        """A connection of ours is no more."""
        if self._outgoing.get(outgoing.address) is outgoing:
            del self._outgoing[outgoing.address]
        self.counters.dropped += outgoing.forget_waiting()
        if pause_s:
            self._closed_to[outgoing.address] = self._loop.time() + pause_s

    # Receiving.

    def accept(self, transport: asyncio.Transport) -> _Incoming:
        """A connection has come that begins as a peer's does."""
        incoming = _Incoming(self)
        self.accepted.add(incoming)
        incoming.connection_made(transport)
        if len(self.accepted) > self.settings.accepted_max or self._stopped:
            incoming.refuse("limit", "this peer has too many connections")
        return incoming

    def welcome(self) -> bytes:
        """The answer to a greeting that is as it should be."""
        return self._welcome

    def heard(self, sender: str, messages: list[msgspec.Struct]) -> None:
        """A datagram has come."""
        self.counters.heard += 1
        self._report(Heard(sender, messages))

    def objected(self, remote: str, reason: str) -> None:
        """Something came that is not as it should be."""
        self.counters.refused += 1
        self._log.warning(
            "a peer's connection is ended", extra={"fields": {"remote": remote, "reason": reason}}
        )

    # Time.

    def _look(self) -> None:
        """Close what has been idle."""
        idle_s = self.settings.idle_s_max
        self._looking = self._loop.call_later(idle_s / LOOKS, self._look)
        now_s = self._loop.time()
        for outgoing in list(self._outgoing.values()):
            if now_s - outgoing.used_s > idle_s:
                self.ended(outgoing)
                outgoing.end()
        for incoming in list(self.accepted):
            # The side that opened it closes it; this is for one that has gone without a word.
            if now_s - incoming.used_s > 2 * idle_s:
                incoming.end()
        for address in [each for each, until_s in self._closed_to.items() if until_s < now_s]:
            del self._closed_to[address]

    async def stop(self, linger_s: float = LINGER_S) -> None:
        """Write what waits, at most for a moment, then end everything."""
        self._stopped = True
        if self._looking is not None:
            self._looking.cancel()
        waiting = [each.emptied.wait() for each in self._outgoing.values() if not each.emptied.is_set()]
        if waiting:
            tasks = [self._loop.create_task(each) for each in waiting]
            _, late = await asyncio.wait(tasks, timeout=linger_s)
            for task in late:
                task.cancel()
        dialling = [each.task for each in self._outgoing.values() if each.task is not None]
        for outgoing in list(self._outgoing.values()):
            outgoing.end()
        self._outgoing.clear()
        for incoming in list(self.accepted):
            incoming.end()
        if dialling:
            await asyncio.wait(dialling, timeout=linger_s)


class _Outgoing(asyncio.Protocol):
    """A connection to one address, from the first datagram on."""

    def __init__(self, datagrams: Datagrams, address: str) -> None:
        self.address = address
        self.welcomed = asyncio.Event()
        self.emptied = asyncio.Event()
        """Set while nothing waits."""
        self.task: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()
        self._time = loop.time
        self.used_s = loop.time()
        self._datagrams = datagrams
        self._decoder = FrameDecoder(datagrams.settings.datagram_bytes_max, datagrams.vocabulary)
        self._bytes_max = datagrams.settings.datagram_bytes_max
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._open = False

    def send(self, data: bytes) -> bool:
        """Send a datagram as soon as it can be; whether there is room for it."""
        self.used_s = self._time()
        room = self._datagrams.settings.waiting_bytes_max
        if len(data) > self._bytes_max:
            return False
        if self._open and self._transport is not None:
            if self._transport.get_write_buffer_size() + len(data) > max(room, len(data)):
                return False
            self._transport.write(data)
            if self._transport.get_write_buffer_size():
                self.emptied.clear()
            return True
        if self._waiting_bytes + len(data) > room and self._waiting:
            return False
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        self.emptied.clear()
        return True

    def forget_waiting(self) -> int:
        """Drop what waits; returns how many datagrams that were."""
        count = len(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        self.emptied.set()
        return count

    def end(self) -> None:
        """Close the connection, or give up opening it."""
        self.welcomed.set()
        self._open = False
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(1)  # it says when everything is written
        self._transport.write(self._datagrams.greeting())

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._frames(data):
                self._answered(frame.body)
        except RemoteProtocolError as error:
            self._datagrams.refused(self, str(error))
            self.end()

    def _frames(self, data: bytes) -> Iterator[Frame]:
        try:
            yield from self._decoder.feed(data)
        except RemoteProtocolError as error:
            if self.welcomed.is_set():
                raise
            raise RemoteProtocolError(
                f"it does not answer as a peer does; perhaps it is a broker that is none ({error})"
            ) from error

    def _answered(self, answer: object) -> None:
        if isinstance(answer, PeerRefused):
            self._datagrams.refused(self, answer.reason)
            self.end()
        elif not isinstance(answer, PeerWelcome) or self._open:
            raise RemoteProtocolError(f"a PeerWelcome was expected, not a {type(answer).__name__}")
        elif answer.version != PEER_VERSION or answer.network != self._datagrams.network:
            raise RemoteProtocolError(other_network(answer.version, answer.network, self._datagrams.network))
        elif self._transport is not None and not self.welcomed.is_set():
            self._bytes_max = min(self._bytes_max, answer.datagram_bytes_max)
            self._open = True
            self.welcomed.set()
            fitting = [each for each in self._waiting if len(each) <= self._bytes_max]
            self._datagrams.counters.dropped += len(self._waiting) - len(fitting)
            self._waiting.clear()
            self._waiting_bytes = 0
            self._transport.writelines(fitting)
            if not self._transport.get_write_buffer_size():
                self.emptied.set()

    def resume_writing(self) -> None:
        if self._open:
            self.emptied.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._open = False
        self._transport = None
        self._datagrams.ended(self, 0.0 if self.welcomed.is_set() else UNREACHABLE_S)
        self.welcomed.set()


class _Incoming(asyncio.Protocol):
    """A connection that another machine has opened for its datagrams."""

    def __init__(self, datagrams: Datagrams) -> None:
        self._datagrams = datagrams
        # Before it is known who that is, a greeting is all that is expected.
        self._decoder = FrameDecoder(datagrams.settings.datagram_bytes_max, datagrams.vocabulary)
        self._time = asyncio.get_running_loop().time
        self.used_s = self._time()
        self._sender = ""
        self._transport: asyncio.Transport
        self._remote = "somewhere"
        self._certificate: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        remote = transport.get_extra_info("peername")
        self._remote = f"{remote[0]}:{remote[1]}" if remote else self._remote
        ssl_object = transport.get_extra_info("ssl_object")
        self._certificate = peer_name(ssl_object) if ssl_object is not None else None

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        self.used_s = self._time()
        try:
            for frame in self._decoder.feed(data):
                body: object = frame.body
                if self._sender and isinstance(body, Datagram):
                    self._datagrams.heard(self._sender, body.messages)
                elif not self._sender and isinstance(body, PeerHello):
                    self._greeted(body)
                else:
                    raise RemoteProtocolError(f"a {type(body).__name__} where none was expected")
                if self._transport.is_closing():
                    return
        except RemoteProtocolError as error:
            self.refuse("malformed", str(error))

    def _greeted(self, hello: PeerHello) -> None:
        datagrams = self._datagrams
        if hello.version != PEER_VERSION or hello.network != datagrams.network:
            self.refuse("network", other_network(hello.version, hello.network, datagrams.network))
            return
        problem = datagrams.admits(hello.token, self._certificate)
        if problem:
            self.refuse("denied", problem)
            return
        address = hello.address
        try:
            parse_address(address)
        except ConfigurationError:
            raise RemoteProtocolError(f"{address[:ADDRESS_LENGTH_MAX]!r} is no address") from None
        if not 0 < len(address) <= ADDRESS_LENGTH_MAX or address == datagrams.address:
            raise RemoteProtocolError(f"{address[:ADDRESS_LENGTH_MAX]!r} is not the address of another peer")
        self._sender = address
        self._transport.write(datagrams.welcome())

    def refuse(self, code: str, reason: str) -> None:
        """Say why, and end the connection."""
        self._datagrams.objected(self._remote, reason)
        self._transport.write(encode_frames((Frame(0, PeerRefused(code, reason)),)))  # type: ignore[arg-type]
        self.end()

    def end(self) -> None:
        """Close the connection."""
        self._transport.close()
        asyncio.get_running_loop().call_later(LINGER_S, self._transport.abort)

    def connection_lost(self, error: Exception | None) -> None:
        self._datagrams.accepted.discard(self)


class FirstBytes(asyncio.Protocol):
    """A connection that has just come: its first bytes say whether a peer has opened it."""

    def __init__(
        self,
        datagrams: Datagrams,
        otherwise: Callable[[], asyncio.Protocol],
        patience_s: float,
        waiting_max: int,
    ) -> None:
        """
        Args:
            datagrams: take the connections of peers.
            otherwise: makes what takes all others.
            patience_s: how long the first bytes may take.
            waiting_max: how many such connections there may be.
        """
        self._datagrams = datagrams
        self._otherwise = otherwise
        self._patience_s = patience_s
        self._waiting_max = waiting_max
        self._data = b""
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._datagrams.undecided += 1
        if self._datagrams.undecided > self._waiting_max:
            self._transport.abort()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._patience_s, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        self._data += data
        if len(self._data) < FIRST_BYTES:
            return
        self._decided()
        transport = self._transport
        protocol: asyncio.Protocol
        if is_peer_greeting(self._data):
            protocol = self._datagrams.accept(transport)
            transport.set_protocol(protocol)
        else:
            protocol = self._otherwise()
            transport.set_protocol(protocol)
            protocol.connection_made(transport)
        protocol.data_received(self._data)

    def _decided(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._datagrams.undecided -= 1

    def connection_lost(self, error: Exception | None) -> None:
        self._decided()


def other_network(version: int, network: str, own: str) -> str:
    """Why a peer is none of ours."""
    if version != PEER_VERSION:
        return f"version {PEER_VERSION} of the protocol of peers is spoken here, not {version}"
    return (
        f"this network has the schema {own[:40]}, the other peer {network[:40]!r}: "
        "all peers of a network have the schema that it began with, its DHT and its algorithm"
    )

"""Do datagrams cross real sockets, and does a stranger end only its own connection?"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import msgspec
import pytest

from braid.errors import ConfigurationError, RemoteProtocolError
from braid.protocol import Frame, encode_frames
from braid.protocol.codec import Vocabulary
from braid.protocol.datagrams import (
    PEER_VERSION,
    Datagram,
    PeerHello,
    PeerRefused,
    PeerWelcome,
    datagram_vocabulary,
    is_peer_greeting,
)
from braid.protocol.effects import Drained, SendTo
from braid.protocol.inputs import Drain, Heard, Opened, Tick
from braid.protocol.messages import PROTOCOL_VERSION, Hello, Ping
from braid.runtime.datagrams import Datagrams, DatagramSettings
from braid.runtime.node import Node
from braid.runtime.tls import Address, TlsSettings, client_context, server_context
from braid.server.assembly import reserved
from tests.runtime.certificates import Authority

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from braid.protocol.effects import Effect
    from braid.protocol.inputs import Input

pytestmark = pytest.mark.net


class Word(msgspec.Struct, array_like=True, tag=200, frozen=True):
    text: str


class Number(msgspec.Struct, array_like=True, tag=201, frozen=True):
    value: int


WORDS = Vocabulary(Word | Number, (msgspec.Struct,))


class Listener:
    """A machine that writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, list[str]]] = []
        self.opened = 0
        self.poison = False
        self._event = asyncio.Event()

    def handle(self, stimulus: Input, now_us: int) -> list[Effect]:
        if isinstance(stimulus, Heard):
            if any(isinstance(each, Number) for each in stimulus.messages):
                raise RemoteProtocolError("a number is not polite")
            self.heard.append((stimulus.sender, [each.text for each in stimulus.messages]))  # type: ignore[attr-defined]
        elif isinstance(stimulus, Opened):
            self.opened += 1
        elif isinstance(stimulus, Drain):
            return [Drained()]
        self._event.set()
        return []

    def next_deadline_us(self) -> int | None:
        return None

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                self._event.clear()
                await self._event.wait()


async def polled(condition: Callable[[], bool]) -> None:
    """Wait for what nobody reports."""
    for _ in range(3_000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise TimeoutError


class Place:
    """A machine on a node."""

    def __init__(self, machine: Listener, node: Node, datagrams: Datagrams, port: int) -> None:
        self.machine, self.node, self.datagrams, self.port = machine, node, datagrams, port

    @property
    def address(self) -> str:
        return self.datagrams.address

    def send(self, address: str, *texts: str) -> None:
        self.datagrams.send(SendTo(address, [Word(text) for text in texts]))


@asynccontextmanager
async def place(
    *,
    network: str = "one",
    settings: DatagramSettings | None = None,
    token: str | None = None,
    admits: Callable[[str | None, str | None], str] = lambda token, certificate: "",
    server_tls: ssl.SSLContext | None = None,
    client_tls: ssl.SSLContext | None = None,
    on_refused: Callable[[str, str], None] = lambda address, reason: None,
) -> AsyncIterator[Place]:
    machine = Listener()
    address, keeper = reserved(Address("127.0.0.1", 0), False)
    with keeper:
        datagrams = Datagrams(
            f"127.0.0.1:{address.port}",
            WORDS,
            network=network,
            settings=settings,
            token=token,
            admits=admits,
            client_tls=client_tls,
            on_refused=on_refused,
        )
        node = Node(machine, name="P", server_tls=server_tls, datagrams=datagrams)
        port = await node.listen("127.0.0.1", address.port)
    node.start()
    try:
        yield Place(machine, node, datagrams, port)
    finally:
        await node.stop()


async def test_what_is_sent_together_is_heard_together_with_the_address_of_the_sender() -> None:
    async with place() as a, place() as b:
        a.send(b.address, "one", "two")
        a.send(b.address, "three")
        await b.machine.until(lambda: len(b.machine.heard) == 2)
        assert b.machine.heard == [(a.address, ["one", "two"]), (a.address, ["three"])]
        b.send(a.address, "back")
        await a.machine.until(lambda: bool(a.machine.heard))
        assert a.machine.heard == [(b.address, ["back"])]
        # Each side opened one connection of its own, and nobody's core heard of a connection.
        assert a.datagrams.connections == b.datagrams.connections == (1, 1)
        assert a.machine.opened == b.machine.opened == 0


async def test_a_datagram_to_oneself_comes_later_and_needs_no_connection() -> None:
    async with place() as a:
        a.send(a.address, "self")
        assert a.machine.heard == []
        await a.machine.until(lambda: bool(a.machine.heard))
        assert a.machine.heard == [(a.address, ["self"])]
        assert a.datagrams.connections == (0, 0)


async def test_clients_and_brokers_use_the_same_port() -> None:
    async with place() as a:
        _, writer = await asyncio.open_connection("127.0.0.1", a.port)
        hello = encode_frames([Frame(0, Hello(PROTOCOL_VERSION, "client", "me", "1"))])
        for at in range(len(hello)):  # byte by byte: nothing is decided too early
            writer.write(hello[at : at + 1])
            await writer.drain()
        await a.machine.until(lambda: a.machine.opened == 1)
        writer.close()


def test_the_first_bytes_tell_a_peer_from_others() -> None:
    hello = PeerHello(PEER_VERSION, "network", "127.0.0.1:1")
    assert is_peer_greeting(encode_frames([Frame(0, hello)]))  # type: ignore[list-item]
    assert not is_peer_greeting(encode_frames([Frame(0, Hello(PROTOCOL_VERSION, "client", "me", "1"))]))
    assert not is_peer_greeting(encode_frames([Frame(0, Ping(60)), Frame(0, Ping(60))]))
    assert not is_peer_greeting(b"\xff" * 15)
    assert not is_peer_greeting(b"GET / HTTP/1.1\r\n")


async def raw(port: int, *messages: msgspec.Struct, tail: bytes = b"") -> list[object]:
    """Say something as a stranger; what is answered until the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(encode_frames([Frame(0, each) for each in messages]) + tail)  # type: ignore[misc]
    async with asyncio.timeout(30):
        data = await reader.read()
    writer.close()
    from braid.protocol import FrameDecoder

    return [frame.body for frame in FrameDecoder(vocabulary=datagram_vocabulary(WORDS)).feed(data)]


async def test_hostile_datagrams_end_their_own_connection_only() -> None:
    async with place() as a, place() as b:
        a.send(b.address, "before")
        await b.machine.until(lambda: bool(b.machine.heard))
        hello = PeerHello(PEER_VERSION, "one", "127.0.0.1:9")
        for messages, tail in (
            ((hello, hello), b""),
            ((hello, PeerWelcome(PEER_VERSION, "one", 1)), b""),
            ((hello, Datagram([Number(7)])), b""),  # the machine itself objects
            ((hello,), b"\xff" * 64),
            ((hello,), b"\x0c\x00\x00\x00\x01" + bytes(8) + b"\xc1\xc1\xc1"),
            ((PeerHello(PEER_VERSION, "one", "no address"),), b""),
            ((PeerHello(PEER_VERSION, "one", b.address),), b""),
            ((PeerHello(PEER_VERSION, "one", "x" * 1000),), b""),
        ):
            answers = await raw(b.port, *messages, tail=tail)
            assert isinstance(answers[-1], PeerRefused), (messages, answers)
        a.send(b.address, "after")
        await b.machine.until(lambda: len(b.machine.heard) == 2)
        assert b.machine.heard == [(a.address, ["before"]), (a.address, ["after"])]
        assert b.datagrams.counters.refused == 8
        assert a.datagrams.connections[0] == 1


async def test_a_peer_of_another_network_is_refused_and_told_why() -> None:
    told: list[tuple[str, str]] = []
    event = asyncio.Event()

    def refused(address: str, reason: str) -> None:
        told.append((address, reason))
        event.set()

    async with place(network="another", on_refused=refused) as a, place() as b:
        a.send(b.address, "hello")
        async with asyncio.timeout(30):
            await event.wait()
        assert told[0][0] == b.address
        assert "all peers of a network have the schema that it began with" in told[0][1]
        assert b.machine.heard == []
        assert a.datagrams.counters.dropped == 1
        answers = await raw(b.port, PeerHello(PEER_VERSION + 1, "one", "127.0.0.1:9"))
        assert isinstance(answers[0], PeerRefused)
        assert "version" in answers[0].reason


async def test_tokens_say_who_may_be_a_peer() -> None:
    def admits(token: str | None, certificate: str | None) -> str:
        return "" if token == "secret" else "not without the token"

    reasons: list[str] = []
    event = asyncio.Event()

    def refused(address: str, reason: str) -> None:
        reasons.append(reason)
        event.set()

    async with (
        place(admits=admits) as b,
        place(token="secret") as a,
        place(token="wrong", on_refused=refused) as c,
    ):
        c.send(b.address, "let me in")
        async with asyncio.timeout(30):
            await event.wait()
        assert reasons == ["not without the token"]
        a.send(b.address, "hello")
        await b.machine.until(lambda: bool(b.machine.heard))
        assert b.machine.heard == [(a.address, ["hello"])]


async def test_mutual_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("peer.example")
    tls = TlsSettings(
        certificate=files.certificate,
        key=files.key,
        authority=authority.certificate,
        require_client_certificate=True,
    )
    names: list[str | None] = []

    def admits(token: str | None, certificate: str | None) -> str:
        names.append(certificate)
        return ""

    async with AsyncExitStack() as stack:
        a, b = [
            await stack.enter_async_context(
                place(server_tls=server_context(tls), client_tls=client_context(tls), admits=admits)
            )
            for _ in range(2)
        ]
        a.send(b.address, "secretly")
        await b.machine.until(lambda: bool(b.machine.heard))
        assert names == ["peer.example"]
        # One without a certificate does not get as far as a greeting.
        plain = await stack.enter_async_context(place())
        plain.send(b.address, "in the clear")
        await polled(lambda: not plain.datagrams.connections[0])
        assert plain.datagrams.counters.dropped == 1
        assert len(b.machine.heard) == 1


async def test_the_pool_is_bounded_and_closes_what_is_idle() -> None:
    settings = DatagramSettings(connections_max=2, idle_s_max=0.2)
    async with AsyncExitStack() as stack:
        a = await stack.enter_async_context(place(settings=settings))
        others = [await stack.enter_async_context(place()) for _ in range(3)]
        for other in others:
            a.send(other.address, "hello")
            await other.machine.until(lambda other=other: bool(other.machine.heard))  # type: ignore[misc]
            assert a.datagrams.connections[0] <= 2
        await polled(lambda: not a.datagrams.connections[0])
        # It is opened again when it is needed.
        a.send(others[0].address, "again")
        await others[0].machine.until(lambda: len(others[0].machine.heard) == 2)


async def test_what_waits_is_bounded() -> None:
    settings = DatagramSettings(waiting_bytes_max=10_000)
    async with place(settings=settings) as a:
        # Somebody who accepts the connection and never answers.
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for _ in range(100):
            a.send(address, "x" * 1_000)
        assert 90 <= a.datagrams.counters.dropped <= 92
        a.send(address, "x" * (5 * 1024 * 1024))  # larger than a datagram may be
        assert a.datagrams.counters.dropped >= 91
        server.close()


async def test_an_address_where_nobody_is_costs_nothing_but_the_datagram() -> None:
    async with place() as a, place() as b:
        dead = f"127.0.0.1:{b.port}"
        await b.node.stop()
        a.send(dead, "anybody?")
        a.send("no address at all", "anybody?")
        await polled(lambda: a.datagrams.counters.dropped >= 2)
        a.send(a.address, "still here")
        await a.machine.until(lambda: bool(a.machine.heard))


async def test_a_share_of_messages_is_dropped_on_purpose() -> None:
    async with place(settings=DatagramSettings(loss=0.5, loss_seed=3)) as a, place() as b:
        for number in range(200):
            a.send(b.address, f"{number} a", f"{number} b")
        lost = a.datagrams.counters.lost_messages
        assert 150 < lost < 250
        await b.machine.until(lambda: sum(len(texts) for _, texts in b.machine.heard) == 400 - lost)
        # One of two that went together may be lost alone.
        assert {len(texts) for _, texts in b.machine.heard} == {1, 2}
    with pytest.raises(ConfigurationError, match="loss is a share"):
        DatagramSettings(loss=1.5)


async def test_last_words_are_written_before_the_end() -> None:
    async with place() as b:
        async with place() as a:
            a.send(b.address, "goodbye")  # the connection has still to be opened
        await b.machine.until(lambda: bool(b.machine.heard))
        assert b.machine.heard[0][1] == ["goodbye"]


async def test_a_tick_starts_the_machine() -> None:
    async with place() as a:
        a.node.report(Tick())

"""Do processes that are peers serve clients like brokers do, and do gateways join both worlds?"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

import braid
from braid.cli.connection_options import Door
from braid.cli.overlay_crawl import crawl
from braid.cli.overlay_live import LiveNetwork
from braid.p2p.dht.messages import (
    Confirmed,
    Goodbye,
    Join,
    Leaves,
    Numbered,
    Pong,
    Routed,
    Row,
    RowRequest,
    Suspicion,
)
from braid.p2p.dmm.messages import Beacon, Content, Entry, Find, Multicast, Update
from braid.protocol import Frame, encode_frames
from braid.protocol.datagrams import PEER_VERSION, Datagram, PeerHello
from braid.reconfiguration import OverlayTree, Shift
from braid.server import peer_settings
from tests.runtime.certificates import Authority

if TYPE_CHECKING:
    from pathlib import Path

    from braid.server import Broker

pytestmark = pytest.mark.net

WAIT_S = 30.0
QUICK: dict[str, dict[str, Any]] = {
    "peers": {"beat_us": 200_000, "timeout_us": 500_000, "beacon_us": 1_000_000}
}


class Peers:
    """A network of peers on loopback that grows."""

    def __init__(
        self, stack: AsyncExitStack, source: dict[str, dict[str, Any]] = QUICK, **options: Any
    ) -> None:
        self._stack = stack
        self._source = source
        self._options = options
        self.all: list[Broker] = []

    async def add(self, count: int = 1, **options: Any) -> list[Broker]:
        added = []
        for _ in range(count):
            bootstrap = [self.all[0].address] if self.all else []
            merged = {"bootstrap": bootstrap, **self._options, **options}
            peer = await self._stack.enter_async_context(
                braid.serve_peer(self._source, listen="127.0.0.1:0", **merged)
            )
            self.all.append(peer)
            added.append(peer)
            await peer.wait_ready(WAIT_S)
        return added

    async def client(self, peer: Broker, **options: Any) -> braid.Client:
        return await self._stack.enter_async_context(braid.connect(peer.address, **options))


async def prices(subscription: braid.Subscription, count: int) -> list[int]:
    return [int((await subscription.get(WAIT_S))["price"]) for _ in range(count)]


async def delivered_at_last(client: braid.Client, subscription: braid.Subscription, price: int) -> None:
    """Publish until something arrives: what was under way while peers learnt of each other may be lost."""
    for _ in range(60):
        await client.publish({"price": price})
        try:
            assert (await subscription.get(0.5))["price"] == price
        except TimeoutError:
            continue
        return
    raise AssertionError("nothing arrives")


@pytest.mark.parametrize("dht", ["pastry", "ring"])
async def test_clients_of_peers_get_what_they_ask_for(dht: str) -> None:
    async with AsyncExitStack() as stack:
        peers = Peers(stack, dht=dht)
        a, b, c = await peers.add(3)
        assert a.address.startswith("braid+p2p://127.0.0.1:")
        alice, bob, carol = [await peers.client(each) for each in (a, b, c)]
        high = await alice.subscribe("price > 10 AND symbol = 'ACME'")
        low = await bob.subscribe("price <= 10 OR price IS NULL")
        await delivered_at_last(carol, low, -1)
        await asyncio.gather(
            *(
                client.publish({"price": price, "symbol": "ACME"})
                for price, client in enumerate((alice, bob, carol) * 8)
            )
        )
        assert sorted(await prices(high, 13)) == list(range(11, 24))
        heard: list[int] = []
        while len(heard) < 11:
            heard += [price for price in await prices(low, 1) if price >= 0]
        assert sorted(heard) == list(range(11))
        for subscription in (high, low):
            with pytest.raises(TimeoutError):
                await subscription.get(0.3)


async def test_an_answer_means_installed() -> None:
    """What is published right after the answer, anywhere and only once, arrives."""
    async with AsyncExitStack() as stack:
        peers = Peers(stack)
        await peers.add(5)
        clients = [await peers.client(each) for each in peers.all]
        for turn in range(6):
            reader = clients[turn % 5]
            wanted = await reader.subscribe(f"turn = {turn} AND price >= 0")
            for number, client in enumerate(clients):
                await client.publish({"turn": turn, "price": number})
            assert sorted(await prices(wanted, 5)) == list(range(5))


async def test_ids_bodies_and_ranges_cross_as_they_are() -> None:
    async with AsyncExitStack() as stack:
        peers = Peers(stack)
        a, b = await peers.add(2)
        alice = await peers.client(a)
        bob = await peers.client(b, publisher="bob", name="bob")
        everything = await alice.subscribe("TRUE")
        await delivered_at_last(bob, everything, 7)
        area = braid.Range(3, 9)
        await bob.publish({"price": area, "kind": "offer"}, body=b"\x00\x01", content_type="x/y")
        found = await everything.get(WAIT_S)
        while found.get("kind") != "offer":
            found = await everything.get(WAIT_S)
        assert found["price"] == area
        assert (found.body, found.content_type) == (b"\x00\x01", "x/y")
        assert (found.publisher, found.epoch) == (bob.publisher, bob.epoch)


async def test_what_peers_do_not_offer_is_refused_with_a_sentence() -> None:
    async with AsyncExitStack() as stack:
        peers = Peers(stack)
        (a,) = await peers.add()
        client = await peers.client(a)
        with pytest.raises(braid.RequestRefusedError, match="peers do not offer durable subscriptions"):
            await client.subscribe("TRUE", durable="log")
        with pytest.raises(braid.RequestRefusedError, match="peers do not offer replays"):
            client.replay("log")
        with pytest.raises(braid.RequestRefusedError, match="peers do not offer durable subscriptions"):
            await client.drop_durable("log")
        with pytest.raises(braid.RequestRefusedError, match="peers do not offer replays"):
            client.replay_records("log")
        with pytest.raises(braid.RequestRefusedError, match="peers do not offer durable subscriptions"):
            await client.create_durable("log", "TRUE")
        with pytest.raises(braid.RequestRefusedError, match="peers do not offer durable subscriptions"):
            await client.log_status("log")
        with pytest.raises(braid.RequestRefusedError, match="peers do not offer durable subscriptions"):
            await client.acknowledge_log("log", 1)
        with pytest.raises(braid.RequestRefusedError, match="peers do not offer durable subscriptions"):
            await client.pin_log("log", "reader", 1)
        with pytest.raises(braid.RequestRefusedError, match="peers do not offer acknowledged delivery"):
            await client.publish({"price": 1}, delivery="acknowledged")
        with pytest.raises(braid.RequestRefusedError, match="peers do not offer an order"):
            await client.publish_batch([{"price": 1}], ordered=True)
        with pytest.raises(braid.ConfigurationError, match="do not go together"):
            braid.connect(f"{a.address},braid://127.0.0.1:7000")
        # One that says it is a client of brokers hears it from the peer.
        plain = await stack.enter_async_context(
            braid.connect(a.address.replace("+p2p", ""), reconnect_for_s=0.0)
        )
        with pytest.raises(braid.BraidError, match="do not acknowledge deliveries"):
            await (await plain.publish({"price": 1}, delivery="acknowledged"))


def test_a_synchronous_program_can_be_a_peer() -> None:
    with (
        braid.serve_peer_sync(QUICK) as first,
        braid.serve_peer_sync(QUICK, bootstrap=[first.address]) as second,
    ):
        second.wait_ready(WAIT_S)
        with braid.connect_sync(first.address) as alice, braid.connect_sync(second.address) as bob:
            wanted = alice.subscribe("price > 10")
            for price in range(5, 60):
                bob.publish({"price": price})
            assert wanted.get(WAIT_S)["price"] > 10
            with pytest.raises(braid.RequestRefusedError, match="peers do not offer acknowledged delivery"):
                bob.publish({"price": 1}, delivery="acknowledged")


async def test_a_peer_of_another_schema_is_refused_and_says_so(tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"price": {"kind": "integer", "low": 0, "high": 100}}')
    async with AsyncExitStack() as stack:
        peers = Peers(stack)
        (a,) = await peers.add()
        other = await stack.enter_async_context(
            braid.serve_peer(QUICK, bootstrap=[a.address], schema=schema, listen="127.0.0.1:0")
        )
        async with asyncio.timeout(WAIT_S):
            await other.refused.wait()
        assert "all peers of a network have the schema that it began with" in other.why_not_ready()
        assert not other.ready


async def test_a_broker_is_no_peer_and_a_peer_that_asks_it_says_so() -> None:
    async with AsyncExitStack() as stack:
        settings = {"broker": {"broker_id": "A"}, "listener": {"listen": "127.0.0.1:0"}}
        broker = await stack.enter_async_context(braid.serve(settings))
        address = broker.address.removeprefix("braid://")
        peer = await stack.enter_async_context(braid.serve_peer(QUICK, bootstrap=[address]))
        async with asyncio.timeout(WAIT_S):
            await peer.refused.wait()
        assert "does not answer as a peer does; perhaps it is a broker" in peer.why_not_ready()


async def test_a_bootstrap_address_says_whether_there_is_tls(tmp_path: Path) -> None:
    with pytest.raises(braid.ConfigurationError, match=r"means with TLS, but this peer has no certificate"):
        await braid.serve_peer(QUICK, bootstrap=["braids+p2p://127.0.0.1:7000"])
    authority = Authority(tmp_path)
    files = authority.issue("peers.example")
    tls = {
        "certificate": str(files.certificate),
        "key": str(files.key),
        "authority": str(authority.certificate),
    }
    with pytest.raises(braid.ConfigurationError, match=r"means without TLS, but this peer has a certificate"):
        await braid.serve_peer({**QUICK, "tls": tls}, bootstrap=["braid+p2p://127.0.0.1:7000"])


async def test_who_may_be_a_peer_the_access_file_says(tmp_path: Path) -> None:
    from braid.server.access_file import new_token

    (peer_secret, peer_hash), (client_secret, client_hash) = new_token(), new_token()
    access = tmp_path / "access.toml"
    access.write_text(
        f'[principals.peers]\nlink = true\ntokens = ["{peer_hash}"]\n'
        f'[principals.till]\npublish = "price > 0"\nsubscribe = "TRUE"\noperate = true\n'
        f'tokens = ["{client_hash}"]\n'
    )
    access.chmod(0o600)
    async with AsyncExitStack() as stack:
        peers = Peers(stack, access=access, token=peer_secret)
        a, b = await peers.add(2)
        stranger = await stack.enter_async_context(
            braid.serve_peer(QUICK, bootstrap=[a.address], listen="127.0.0.1:0", token=client_secret)
        )
        async with asyncio.timeout(WAIT_S):
            await stranger.refused.wait()
        assert "link = true" in stranger.why_not_ready()
        with pytest.raises(braid.AuthenticationError):
            await peers.client(a)
        alice = await peers.client(a, token=client_secret)
        bob = await peers.client(b, token=client_secret)
        wanted = await alice.subscribe("price < 100")
        await delivered_at_last(bob, wanted, 5)
        receipt = await bob.publish({"price": -1})
        with pytest.raises(braid.AccessDeniedError):
            await receipt
        a.reload()  # the link between a broker and its peers outlives it
        await delivered_at_last(bob, wanted, 6)
        report = await alice.ask("peer")
        assert report["joined"] is True
        assert report["holds"]["subscriptions"] == 1
        assert report["from_peers"] > 0


async def test_mutual_tls_between_peers(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("peers.example")
    source = {
        **QUICK,
        "tls": {
            "certificate": str(files.certificate),
            "key": str(files.key),
            "authority": str(authority.certificate),
            "require_client_certificate": True,
        },
    }
    tls = braid.TlsSettings(certificate=files.certificate, key=files.key, authority=authority.certificate)
    async with AsyncExitStack() as stack:
        peers = Peers(stack, source)
        a, b = await peers.add(2)
        assert a.address.startswith("braids+p2p://")
        alice, bob = [await peers.client(each, tls=tls) for each in (a, b)]
        wanted = await alice.subscribe("price > 1")
        await delivered_at_last(bob, wanted, 2)


def test_settings_of_peers_that_cannot_be() -> None:
    for options, reason in (
        ({"neighbours": ["127.0.0.1:1"]}, "is for brokers"),
        ({"algorithm": "DMM-X"}, "algorithm"),
        ({"loss": 2.0}, "loss"),
        ({"schema": "/nowhere/schema.json"}, None),
    ):
        if reason is None:
            peer_settings(**options)  # it is read when the peer is opened
            continue
        with pytest.raises(braid.ConfigurationError, match=reason):
            peer_settings(**options)


async def test_a_peer_that_cannot_be_reached_is_not_opened() -> None:
    with pytest.raises(braid.ConfigurationError, match="other peers cannot reach"):
        await braid.serve_peer(listen="0.0.0.0:0", insecure=True)
    with pytest.raises(braid.ConfigurationError, match="DMM needs a schema"):
        await braid.serve_peer(algorithm="DMM")


class BothWorlds:
    """A tree of brokers A - B - C and a network of peers, with gateways at some of the brokers."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.stack = stack
        self.peers = Peers(stack)
        self.brokers: list[Broker] = []

    async def broker(
        self, broker_id: str, *, gateway: bool = False, strategy: str = "S0", **crossing: Any
    ) -> Broker:
        source: dict[str, dict[str, Any]] = {
            "broker": {
                "broker_id": broker_id,
                "strategy": strategy,
                "neighbours": [self.brokers[-1].address] if self.brokers else [],
            },
            "listener": {"listen": "127.0.0.1:0"},
        }
        if gateway:
            bootstrap = [self.peers.all[0].address]
            source["peers"] = {**QUICK["peers"], "enabled": True, "bootstrap": bootstrap, **crossing}
        broker = await self.stack.enter_async_context(braid.serve(source))
        self.brokers.append(broker)
        await broker.wait_ready(WAIT_S)
        return broker


async def ids_until(subscription: braid.Subscription, last: int) -> list[tuple[str, str, int, int]]:
    """The ids and prices of all that comes, until the last one and a while after."""
    found: list[tuple[str, str, int, int]] = []
    wait_s = WAIT_S
    while True:
        try:
            each = await subscription.get(wait_s)
        except TimeoutError:
            return found
        if each["price"] >= 0:
            found.append((each.publisher, each.epoch, each.sequence, int(each["price"])))
        if len({price for *_, price in found}) >= last:
            wait_s = 0.7


async def test_a_network_with_a_gateway_is_whole_and_its_tree_can_be_changed() -> None:
    """Peers are a neighbour of their gateway; they have no address, no place in plans, and no shortcuts."""
    async with AsyncExitStack() as stack:
        worlds = BothWorlds(stack)
        await worlds.peers.add()
        broker_a = await worlds.broker("A", strategy="SB")
        await worlds.broker("B", gateway=True, strategy="SB")
        broker_c = await worlds.broker("C", strategy="SB")
        live = LiveNetwork(broker_c.address, Door(timeout_s=WAIT_S))
        tree = await live.whole_tree(WAIT_S)
        assert tree == OverlayTree([("A", "B"), ("B", "C")])
        network = await crawl(broker_a.address, Door(timeout_s=WAIT_S))
        assert [report.broker for report in network.reports if report.gateway] == ["B"]
        assert network.complete
        for step in (Shift("C", "B", "A"), Shift("C", "A", "B"), Shift("A", "B", "C")):
            await live.do(step)
        assert await live.whole_tree(WAIT_S) == OverlayTree([("A", "C"), ("B", "C")])


async def test_two_gateways_make_neither_a_loop_nor_a_duplicate() -> None:
    async with AsyncExitStack() as stack:
        world = BothWorlds(stack)
        p, q, r = await world.peers.add(3)
        a = await world.broker("A", gateway=True)
        b = await world.broker("B")
        c = await world.broker("C", gateway=True)
        places = (a, b, c, p, q, r)
        clients = [await world.peers.client(each) for each in places]
        wanted = [await client.subscribe("price >= 0 AND kind = 'offer'") for client in clients]
        ready = [await client.subscribe("price < 0") for client in clients]
        for reader in ready:
            for writer in clients:
                await delivered_at_last(writer, reader, -1)
        await asyncio.gather(
            *(
                client.publish({"price": 6 * turn + number, "kind": "offer"})
                for turn in range(5)
                for number, client in enumerate(clients)
            )
        )
        expected = sorted(range(30))
        everything: set[tuple[str, str, int, int]] | None = None
        for subscription in wanted:
            found = await ids_until(subscription, 30)
            assert sorted(price for *_, price in found) == expected
            # Each publication has one id, wherever it is read: ids cross unchanged.
            everything = everything or set(found)
            assert set(found) == everything
        for writer, client in enumerate(clients):
            own = {each for each in everything or () if each[3] % 6 == writer}
            assert {(publisher, epoch) for publisher, epoch, *_ in own} == {(client.publisher, client.epoch)}


async def test_a_gateway_lets_cross_what_it_is_told_to() -> None:
    async with AsyncExitStack() as stack:
        world = BothWorlds(stack)
        p, _ = await world.peers.add(2)
        a = await world.broker("A", gateway=True, to_peers="public = TRUE", from_peers="price < 100")
        here, there = await world.peers.client(a), await world.peers.client(p)
        brokers = await here.subscribe("TRUE")
        peers = await there.subscribe("TRUE")
        for _ in range(60):
            await here.publish({"price": -1, "public": True})
            await there.publish({"price": -1})
            try:
                await peers.get(0.5)
            except TimeoutError:
                continue
            break
        await here.publish({"price": 1})
        await here.publish({"price": 2, "public": True})
        await there.publish({"price": 300})
        await there.publish({"price": 3})
        found = {each[3] for each in await ids_until(peers, 3)}
        assert found == {2, 3, 300}
        assert {each[3] for each in await ids_until(brokers, 3)} == {1, 2, 3}


async def test_a_gateway_asks_brokers_for_what_peers_want_and_no_more() -> None:
    """From the answer of a subscription on, wherever it was asked; also for what was there before it."""
    async with AsyncExitStack() as stack:
        world = BothWorlds(stack)
        peers = await world.peers.add(3)
        readers = [await world.peers.client(each) for each in peers]
        early = await readers[0].subscribe("price BETWEEN 100 AND 200")
        far = await world.broker("A")
        gateway = await world.broker("B", gateway=True)
        writer, here = await world.peers.client(far), await world.peers.client(gateway)
        await delivered_at_last(writer, early, 150)
        sent = (await here.ask("peer"))["to_peers"]
        for number, reader in enumerate(readers):
            late = await reader.subscribe(f"price = {number}")
            for price in (number, number + 50, 300):
                await writer.publish({"price": price})
            assert await prices(late, 1) == [number]
            await late.close()
        await writer.publish({"price": 160})
        assert await prices(early, 1) == [160]
        assert (await here.ask("peer"))["to_peers"] == sent + len(readers) + 1


async def test_a_lying_peer_harms_nobody() -> None:
    """It is let in, and then says whatever makes no sense; those who are honest go on."""
    async with AsyncExitStack() as stack:
        peers = Peers(stack)
        a, b = await peers.add(2)
        alice, bob = await peers.client(a), await peers.client(b)
        wanted = await alice.subscribe("price > 0 AND symbol = 'A'")
        network = (await alice.ask("peer"))["network"]
        for messages in HOSTILE:
            _, writer = await asyncio.open_connection("127.0.0.1", a.port)
            hello = PeerHello(PEER_VERSION, network, "127.0.0.1:9")
            writer.write(encode_frames([Frame(0, hello), Frame(0, Datagram(messages))]))  # type: ignore[arg-type]
            await writer.drain()
            writer.close()
        heard = -1
        while heard < len(HOSTILE) - 1:
            report = await alice.ask("peer")
            heard = report["datagrams"]["heard"] + report["datagrams"]["refused"]
        for _ in range(60):
            await bob.publish({"price": 5, "symbol": "A"})
            try:
                assert (await wanted.get(0.5))["price"] == 5
            except TimeoutError:
                continue
            break
        else:
            raise AssertionError("nothing arrives any more")
        assert a.ready
        assert b.ready


HOSTILE: list[list[Any]] = [
    [Routed(b"short", Beacon([]))],
    [Join("not an address at all"), Join("127.0.0.1:9", 10**9), Row(["", "x" * 5_000]), RowRequest(-7)],
    [RowRequest(10**12), Leaves(["?"] * 500, True, True), Goodbye(["127.0.0.1:1"]), Suspicion("nobody")],
    [Pong(-1), Pong(2**62), Numbered(-5, Beacon([("no space", 1)])), Confirmed(2**60)],
    [Update("number=price", [Entry("e", "not a filter (", 0)], [], 1)],
    [Update("nonsense", [Entry("e", "price > 1", 99)], ["?"], -1, True, True)],
    [Beacon([("number=price", "0", 7), ("?", "", 3)])],
    [Find("number=price", "0101x", 99, -1, 5, Content("p#1", -4, {"price": "x"}, 0), "nowhere")],
    [Multicast("number=price", Content("p#1", 1, {"price": 2**63}, 0))],
    [Multicast("", Content("", 0, {}, 0))],
]

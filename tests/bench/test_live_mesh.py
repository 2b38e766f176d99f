"""Do real brokers learn soft links, shorten their ways by them, and lose nothing when things break?"""

from __future__ import annotations

import asyncio

import pytest

from braid.errors import ConfigurationError
from braid_bench.live import LiveSettings, bench_live, live_settings_for, two_arms
from braid_bench.live_network import DelayingProxy

HOST = "127.0.0.1"


@pytest.mark.net
@pytest.mark.soak
@pytest.mark.timeout(600)
def test_the_same_deliveries_over_fewer_links() -> None:
    settings = LiveSettings(
        brokers=7, strategies=("S0", "S2"), rate=25, learn_s=5, publications=120, faults_s=5, topics=8
    )
    report = bench_live(settings)
    missed = [row for row in report["goals"] if not row["met"]]
    assert not missed, (missed, report["cells"])
    tree, mesh = report["cells"]
    assert (tree["soft_links"], tree["messages_over_soft_links"]) == (0, 0)
    assert mesh["soft_links"]
    assert mesh["messages_over_soft_links"]
    assert tree["deliveries"] == mesh["deliveries"] > 0
    assert any("soft link" in what for what in mesh["faults"]["what"])
    assert all(any("kill" in what for what in cell["faults"]["what"]) for cell in report["cells"])
    assert all(cell["faults"]["of_them_ordered"] for cell in report["cells"])
    (summary,) = report["summary"]
    assert summary.startswith("live: 7 brokers, 1 ms per link, S2 against S0: deliveries")


def test_the_tree_has_two_arms_and_a_twig() -> None:
    dials = two_arms(12)
    assert len(dials) == 12
    assert [name for name, other in dials.items() if not other] == ["B01"]
    depths = {"B01": 0}
    for name, other in list(dials.items())[1:]:
        depths[name] = depths[other] + 1
    assert sorted(depths.values()) == [0, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


def test_settings_that_compare_nothing() -> None:
    with pytest.raises(ConfigurationError, match="two or more of S0"):
        live_settings_for(strategies=("S2",))
    with pytest.raises(ConfigurationError, match="not S0, S9"):
        live_settings_for(strategies=("S0", "S9"))
    with pytest.raises(ConfigurationError, match="4 brokers or more"):
        LiveSettings(brokers=3)
    assert live_settings_for(quick=True).brokers < live_settings_for().brokers


# The proxy alone.


@pytest.mark.net
async def test_a_proxy_holds_up_and_keeps_the_order() -> None:
    chunks = [bytes([number]) * (number + 1) for number in range(100)]
    arrived: list[bytes] = []
    everything = b"".join(chunks)
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.append(await reader.readexactly(len(everything)))
        writer.write(b"thanks")
        writer.close()
        await writer.wait_closed()
        done.set()

    server = await asyncio.start_server(serve, HOST, 0)
    proxy = DelayingProxy(server.sockets[0].getsockname()[1], 2_000)
    await proxy.open()
    port = int(proxy.address.rpartition(":")[2])
    reader, writer = await asyncio.open_connection(HOST, port)
    for chunk in chunks:
        writer.write(chunk)
        await writer.drain()
    async with asyncio.timeout(30):
        assert await reader.read() == b"thanks"
        await done.wait()
    writer.close()
    await writer.wait_closed()
    assert arrived == [everything]
    times, seconds = proxy.total_delay
    assert times >= 2
    assert seconds >= 0.002 * times
    assert not proxy.cut_soft_link("A")
    await proxy.close()
    server.close()


@pytest.mark.net
async def test_nobody_behind_a_proxy() -> None:
    server = await asyncio.start_server(lambda reader, writer: None, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    proxy = DelayingProxy(port, 0)
    await proxy.open()
    reader, writer = await asyncio.open_connection(HOST, int(proxy.address.rpartition(":")[2]))
    async with asyncio.timeout(30):
        assert await reader.read() == b""
    writer.close()
    await proxy.close()

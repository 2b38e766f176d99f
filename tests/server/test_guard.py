"""Is a broker that is gone noticed and replaced, and one that is only slow let be?"""

from __future__ import annotations

import asyncio
import math
import signal
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest

import braid
from braid.cli import overlay_crawl
from braid.cli.connection_options import Door
from braid.cli.overlay_guard import Guard, Suspicion
from tests.server.test_replicate import Process, named

DOOR = Door(timeout_s=5.0)


def after(gaps: list[float], patience_s: float = 0.1) -> Suspicion:
    """What is thought of a broker that was away for so long each time."""
    suspicion = Suspicion(patience_s)
    now_s = 0.0
    for gap in gaps:
        suspicion.missed(now_s)
        suspicion.seen(now_s + gap)
        now_s += gap + 100
    return suspicion


def test_one_that_was_never_away_is_borne_as_long_as_the_operator_says() -> None:
    suspicion = after([], patience_s=5.0)
    assert suspicion.phi(1.0) == 0.0
    suspicion.missed(10.0)
    assert suspicion.phi(14.9) == 0.0
    assert suspicion.phi(15.0) == math.inf


def test_one_that_is_often_away_is_borne_for_longer() -> None:
    steady, restless = after([1.0, 1.1, 0.9]), after([10.0, 14.0, 12.0, 9.0])
    for each in (steady, restless):
        each.missed(1000.0)
    assert steady.phi(1003.0) > 3 > restless.phi(1003.0)
    assert restless.phi(1040.0) > 3


@pytest.mark.parametrize("gaps", [[1.0], [2.0, 2.0, 2.0], [0.5, 3.0, 1.0, 8.0]])
def test_suspicion_only_grows_while_a_broker_is_away(gaps: list[float]) -> None:
    suspicion = after(gaps)
    suspicion.missed(1000.0)
    found = [suspicion.phi(1000.0 + step / 10) for step in range(200)]
    assert found == sorted(found)
    suspicion.seen(1020.0)
    assert suspicion.phi(1021.0) == 0.0


def test_suspicion_is_minus_the_logarithm_of_the_chance_of_a_return() -> None:
    """Against a literal count: of many absences with this mean and spread, how many lasted longer?"""
    from random import Random

    chance = Random(1)
    gaps = [chance.gauss(10.0, 3.0) for _ in range(100)]
    suspicion = after(gaps)
    suspicion.missed(10_000.0)
    mean = sum(gaps) / len(gaps)
    spread = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    draws = [chance.gauss(mean, spread) for _ in range(200_000)]
    longer = sum(draw > 14.0 for draw in draws) / len(draws)
    assert suspicion.phi(10_014.0) == pytest.approx(-math.log10(longer), rel=0.05)


@pytest.mark.net
async def test_a_broker_that_was_killed_is_replaced_by_the_next_standby() -> None:
    """The first standby does not answer either. What is on the other side of the broker is found."""
    said: list[str] = []
    async with AsyncExitStack() as stack:
        f = await stack.enter_async_context(Process("--id", "F"))
        a = await stack.enter_async_context(braid.serve(named("A", neighbours=[f.address])))
        b = await stack.enter_async_context(braid.serve(named("B", neighbours=[f.address])))
        c = await stack.enter_async_context(braid.serve(named("C", neighbours=[b.address])))
        for broker in (a, b, c):
            await broker.wait_ready(30)
        gone = await stack.enter_async_context(braid.serve(named("S1", standby=True)))
        nobody = gone.address
        await gone.stop()
        started: list[str] = []
        standby = await stack.enter_async_context(braid.serve(named("S2", standby=True)))

        def start() -> str:
            started.append(standby.address)
            return standby.address

        guard = Guard([a.address], [nobody], DOOR, patience_s=0.2, phi_max=3.0, start=start, say=said.append)
        await guard.look(0.0)
        await guard.look(100.0)
        assert guard.replaced == [], "nobody is missed"
        f.signal(signal.SIGKILL)
        await f.ended()
        async with asyncio.timeout(120):
            await guard.watch(0.1, count=1)
        assert started == [standby.address]
        assert guard.replaced[0].granted_by == ("A", "B")
        assert standby.broker_id == "F"
        client = await stack.enter_async_context(braid.connect(c.address))
        reader = await client.subscribe("x > 0")
        async with braid.connect(a.address) as publisher:
            await publisher.publish({"x": 1}, delivery="acknowledged")
        with suppress(TimeoutError):
            assert (await reader.get(timeout_s=30))["x"] == 1
            return
        pytest.fail(f"nothing comes through: {said}")


@pytest.mark.net
async def test_a_broker_that_is_gone_is_asked_once_a_look_however_many_parts_it_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A guard that waits for it in every part of the network replaces it a minute late."""
    asked: list[str] = []
    ask = overlay_crawl._ask_all

    async def counted(address: str, *arguments: Any) -> Any:
        asked.append(address)
        return await ask(address, *arguments)

    monkeypatch.setattr(overlay_crawl, "_ask_all", counted)
    async with AsyncExitStack() as stack:
        f = await stack.enter_async_context(Process("--id", "F"))
        # Each of its neighbours has one of its own.
        brokers = []
        for name in "ABC":
            brokers.append(await stack.enter_async_context(braid.serve(named(name, neighbours=[f.address]))))
            behind = named(f"{name}2", neighbours=[brokers[-1].address])
            brokers.append(await stack.enter_async_context(braid.serve(behind)))
        for broker in brokers:
            await broker.wait_ready(30)
        standby = await stack.enter_async_context(braid.serve(named("S", standby=True)))
        guard = Guard([brokers[1].address], [standby.address], DOOR, patience_s=10.0, phi_max=3.0)
        await guard.look(0.0)
        f.signal(signal.SIGKILL)
        await f.ended()
        asked.clear()
        await guard.look(100.0)
        assert asked.count(f.address) == 1
        asked.clear()
        await guard.look(200.0)
        assert [each.broker for each in guard.replaced] == ["F"]
        assert guard.replaced[0].granted_by == ("A", "B", "C")
        assert asked.count(f.address) == 1, "and not again to replace it"

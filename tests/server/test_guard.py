"""Is a broker that is gone noticed and replaced, and one that is only slow let be?"""

from __future__ import annotations

import asyncio
import json
import math
import signal
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest

import braid
from braid.cli import overlay_crawl, overlay_guard, overlay_replicate
from braid.cli.connection_options import Door
from braid.cli.overlay_guard import Guard, Suspicion
from braid.errors import ConnectionLostError
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


class Side:
    """A line A - F - G - B as its operators see it, with F and G gone, and standbys at s1 and s2."""

    def __init__(self) -> None:
        self.around = {"A": {"F": "f"}, "B": {"G": "g"}}
        self.places: dict[str, str] = {"a": "A", "b": "B"}
        self.taken: dict[str, dict[str, str]] = {}
        self.asked: list[tuple[str, str]] = []

    async def ask(self, address: str, topic: str, door: Door, /, **arguments: str) -> dict[str, Any]:
        if address in ("f", "g"):
            raise ConnectionLostError(f"nobody is at {address}")
        name = self.places.get(address, "")
        if topic == "standby":
            return {"in_place": bool(name), "broker": name, "address": address, "epoch": 1}
        if topic == "grant":
            self.asked.append((address, arguments["name"]))
            self.around[name][arguments["name"]] = arguments["address"]
        if topic == "take_over":
            name = arguments["name"]
            self.places[address] = name
            self.taken[name] = json.loads(arguments["neighbours"])
            self.around[name] = dict(self.taken[name])
        links = [self.link(name, other, at) for other, at in self.around.get(name, {}).items()]
        return {"broker": name, "address": address, "links": links, "ready": True, "unreached": []}

    def link(self, name: str, other: str, at: str) -> dict[str, Any]:
        """As `name` shows its link to another broker, with that one's other neighbours as they were."""
        around = {"F": {"A": "a", "G": "g"}, "G": {"B": "b", "F": "f"}}.get(other, {})
        up = self.places.get(at) == other
        return {
            "neighbour": other,
            "address": at,
            "up": up,
            "stage": "open" if up else "down",
            "epoch": 0,
            "around": {each: place for each, place in around.items() if each != name},
        }

    async def crawl(self, address: str, door: Door, *, but: Any = ()) -> overlay_crawl.Network:
        """All that one sees from there."""
        found: dict[str, overlay_crawl.Report] = {}
        waiting = [address]
        while waiting:
            place = waiting.pop()
            try:
                shown = await self.ask(place, "overlay", door)
            except ConnectionLostError as error:
                found[place] = overlay_crawl.Report(place, problem=str(error))
                continue
            found[place] = overlay_crawl.Report(place, shown["broker"], overlay=shown)
            waiting += [link["address"] for link in shown["links"] if link["address"] not in found]
        return overlay_crawl.Network(list(found.values()))


async def test_a_neighbour_that_is_gone_as_well_is_not_asked_and_stays_a_neighbour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    side = Side()
    for module in (overlay_guard, overlay_replicate):
        monkeypatch.setattr(module, "ask", side.ask)
        monkeypatch.setattr(module, "crawl", side.crawl)
    guard = Guard(["a", "b"], ["s1", "s2"], DOOR, patience_s=1.0, phi_max=3.0)
    await guard.look(0.0)
    await guard.look(10.0)
    assert [(each.broker, each.granted_by) for each in guard.replaced] == [("F", ("A",)), ("G", ("B", "F"))]
    assert side.taken == {"F": {"A": "a", "G": "g"}, "G": {"B": "b", "F": "s1"}}
    assert side.asked == [("a", "F"), ("b", "G"), ("s1", "G")]


@pytest.mark.net
@pytest.mark.soak
async def test_two_brokers_side_by_side_that_are_killed_at_once_are_both_replaced() -> None:
    """A - F - G - B: neither can be asked to grant the name of the other."""
    said: list[str] = []
    async with AsyncExitStack() as stack:
        f = await stack.enter_async_context(Process("--id", "F"))
        g = await stack.enter_async_context(Process("--id", "G", "--neighbour", f.address))
        a = await stack.enter_async_context(braid.serve(named("A", neighbours=[f.address])))
        b = await stack.enter_async_context(braid.serve(named("B", neighbours=[g.address])))
        standbys = [
            await stack.enter_async_context(braid.serve(named(name, standby=True))) for name in ("S1", "S2")
        ]
        for broker in (a, b):
            await broker.wait_ready(30)
        door = Door(timeout_s=5.0)
        addresses = [each.address for each in standbys]
        guard = Guard([a.address, b.address], addresses, door, patience_s=0.2, phi_max=3.0, say=said.append)
        await guard.look(0.0)
        for process in (f, g):
            process.signal(signal.SIGKILL)
            await process.ended()
        async with asyncio.timeout(60):
            await guard.watch(0.1, count=2)
        assert sorted(each.broker for each in guard.replaced) == ["F", "G"]
        async with braid.connect(b.address) as client, braid.connect(a.address) as publisher:
            reader = await client.subscribe("x > 0")
            await publisher.publish({"x": 1}, delivery="acknowledged")
            with suppress(TimeoutError):
                assert (await reader.get(timeout_s=30))["x"] == 1
                return
        pytest.fail(f"nothing comes through: {said}")

"""Is the way that a publication took found again, hop by hop, and nothing else remembered?"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

import braid
from braid.errors import RequestRefusedError
from braid.protocol import Frame, PublicationBatch
from braid.protocol.effects import Send
from braid.protocol.inputs import Received
from braid.server.watching import (
    PUBLICATIONS_MAX,
    PUBLISHERS_MAX,
    RECEIVERS_MAX,
    WATCH_US,
    Watching,
)

if TYPE_CHECKING:
    from collections.abc import Callable

WHO = {1: ("client", "till"), 2: ("broker", "B"), 3: ("soft", "C")}


class Bench:
    """A watching without a broker."""

    def __init__(self) -> None:
        self.at_us = 1_000
        self.observer: Callable[..., None] | None = None
        self.watching = Watching(WHO.get, lambda: self.at_us, self._look)

    def _look(self, observer: Callable[..., None] | None) -> None:
        self.observer = observer

    def pass_on(
        self, publisher: str, *numbers: int, source: int = 1, targets: tuple[int, ...] = (2, 3)
    ) -> None:
        batch = PublicationBatch.of(publisher, numbers, [b""] * len(numbers))
        sends = [Send(target, [Frame(1, batch)]) for target in targets]
        if self.observer is not None:
            self.observer(Received(source, [Frame(1, batch)]), sends, self.at_us)

    def way(self, publisher: str, number: int) -> dict[str, Any]:
        return self.watching.way({"publisher": publisher, "sequence": str(number)})


def test_nothing_is_looked_at_until_a_publisher_is_named_and_after_its_time() -> None:
    bench = Bench()
    assert bench.observer is None
    assert bench.way("quotes", 1) == {"watched": False, "here": False}
    bench.watching.watch({"publisher": "quotes"})
    assert bench.observer is not None
    bench.pass_on("quotes#open.1", 1)
    bench.pass_on("others#open.1", 1)
    assert bench.way("quotes", 1)["went_to"] == [
        {"kind": "broker", "name": "B", "at_us": 1_000},
        {"kind": "soft", "name": "C", "at_us": 1_000},
    ]
    assert (bench.way("quotes", 1)["came_by"], bench.way("quotes", 1)["came_from"]) == ("client", "till")
    assert bench.way("others", 1) == {"watched": False, "here": False}
    bench.at_us += WATCH_US + 1
    bench.pass_on("quotes#open.1", 2)
    assert bench.observer is None
    assert bench.way("quotes", 1) == {"watched": False, "here": False}


def test_what_is_remembered_is_bounded() -> None:
    bench = Bench()
    for number in range(PUBLISHERS_MAX + 1):
        bench.watching.watch({"publisher": f"p{number}"})
    assert not bench.way("p0", 1)["watched"]
    assert bench.way("p1", 1)["watched"]
    bench.pass_on("p1#open.1", *range(1, 3 * PUBLICATIONS_MAX))
    held = [number for number in range(1, 3 * PUBLICATIONS_MAX) if bench.way("p1", number)["here"]]
    assert held == list(range(2 * PUBLICATIONS_MAX, 3 * PUBLICATIONS_MAX))
    bench.pass_on("p2#open.1", 1, targets=(2,) * (RECEIVERS_MAX + 5))
    assert len(bench.way("p2", 1)["went_to"]) == RECEIVERS_MAX
    assert bench.way("p2", 1)["receivers"] == RECEIVERS_MAX + 5


def test_what_comes_again_is_counted_and_changes_nothing() -> None:
    bench = Bench()
    bench.watching.watch({"publisher": "quotes"})
    bench.pass_on("quotes#open.1", 1)
    bench.pass_on("quotes#open.1", 1, source=2, targets=())
    way = bench.way("quotes", 1)
    assert (way["came_from"], way["copies"], way["receivers"]) == ("till", 2, 2)


@pytest.mark.parametrize("number", ["", "-1", "x", "1" * 30, "²"])
def test_a_number_that_is_none_is_named(number: str) -> None:
    with pytest.raises(RequestRefusedError, match="sequence is"):
        Bench().watching.way({"publisher": "p", "sequence": number})
    with pytest.raises(RequestRefusedError, match="publisher names"):
        Bench().watching.watch({})


@pytest.mark.net
async def test_real_brokers_show_each_hop() -> None:
    """A - B - C, a subscriber at C, a publication at A: three brokers tell three parts of one way."""
    async with AsyncExitStack() as stack:
        brokers: list[Any] = []
        for name in "ABC":
            settings = braid.ServerSettings.of(
                broker_id=name, listen="127.0.0.1:0", neighbours=[brokers[-1].address] if brokers else []
            )
            brokers.append(await stack.enter_async_context(braid.serve(settings)))
        reader = await stack.enter_async_context(braid.connect(brokers[2].address, name="reader"))
        wanted = await reader.subscribe("x > 1")
        operators = [await stack.enter_async_context(braid.connect(each.address)) for each in brokers]
        writer = await stack.enter_async_context(braid.connect(brokers[0].address, name="writer"))
        for operator in operators:
            await operator.ask("watch", publisher=writer.publisher)
        receipt = await writer.publish({"x": 2}, delivery="acknowledged")
        await receipt
        assert (await wanted.get())["x"] == 2
        ways = [
            await operator.ask("way", publisher=writer.publisher, sequence=str(receipt.sequence))
            for operator in operators
        ]
        async with asyncio.timeout(10):
            listed = await operators[2].ask("subscriptions")
            busy = await operators[2].ask("process")
        assert [each["filter"] for each in listed["subscriptions"]] == ["x > 1"]
    steps = [
        (way["came_by"], way["came_from"], [(to["kind"], to["name"]) for to in way["went_to"]])
        for way in ways
    ]
    assert busy["busy_us"] > 0
    assert steps == [
        ("client", "writer", [("broker", "B")]),
        ("broker", "A", [("broker", "C")]),
        ("broker", "B", [("client", "reader")]),
    ]
    assert [way["hops"] for way in ways] == sorted(way["hops"] for way in ways)

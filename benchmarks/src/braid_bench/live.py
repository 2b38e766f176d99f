"""Do soft links shorten the way on a real network, and does nothing get lost when they break?

The same tree of broker processes, the same subscribers and the same publications, once for each strategy.
First publications flow until soft links have been learned. Then a fixed number is published, and what brokers
wrote into their traces says how many copies crossed links and how many links each delivery had crossed. At
last, while acknowledged publications flow, soft links are broken, and a broker is killed and started again:
what had a receipt must be in the logs of all who wanted it, once.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import statistics
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from braid.broker.settings import STRATEGIES
from braid.errors import BraidError, ConfigurationError
from braid.protocol.publisher_names import publisher_and_epoch
from braid.runtime.connecting import connect
from braid_bench.environment import describe_environment
from braid_bench.live_network import LiveNetwork
from braid_bench.timing import significant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from braid.runtime.client import Client
    from braid.runtime.client_subscription import DurableSubscription

__all__ = ["LiveSettings", "bench_live", "live_settings_for", "two_arms"]

_METHOD = (
    "Every broker is a process with a data directory, on the loopback interface; all clients and the proxies "
    "that delay links are one more process. The tree is two long arms and a twig. Each topic is wanted at a "
    "few brokers, chosen by the seed, with one durable subscription each; publishers sit at the ends of the "
    "arms, at the twig and in the middle of an arm. Soft links are learned from traffic. Messages are copies "
    "of the measured publications that crossed a link, primary or soft, and hops are the links that a copy "
    "had crossed when it came to a broker that wanted it, both from the traces of the brokers. The delay is "
    "from the publisher's to the subscriber's program. All but the publications to learn from are "
    "acknowledged delivery. In the last part half of the publishers ask for order; its messages are not part "
    "of the ratios."
)
_PATIENCE_S = 120.0
_ROWS_AT_ONCE_MAX = 500
# What comes twice may come late.
_QUIET_S = 1.0
# How often it is looked at what has arrived.
_LOOK_S = 0.1
_NODES_MIN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSettings:
    """What is run."""

    brokers: int = 12
    link_delay_us: int = 1_000
    strategies: tuple[str, ...] = ("S0", "S2", "SB")
    """The first is what the others are compared with."""
    topics: int = 24
    wanted: int = 3
    """Brokers with a subscriber for a topic."""
    rate: float = 40.0
    """Publications a second and publisher."""
    learn_s: float = 15.0
    """Time for soft links to be learned."""
    publications: int = 1_600
    """Measured, of all publishers together."""
    faults_s: float = 12.0
    """How long things break."""
    fanout: int = 6
    candidates_max: int = 4
    review_us: int = 1_000_000
    seed: int = 1

    def __post_init__(self) -> None:
        if self.brokers < _NODES_MIN:
            raise ConfigurationError(f"a live run has {_NODES_MIN} brokers or more, not {self.brokers}")
        unknown = [name for name in self.strategies if name not in STRATEGIES]
        if unknown or len(self.strategies) < 2:
            raise ConfigurationError(
                f"strategies to compare are two or more of {', '.join(STRATEGIES)}; "
                f"not {', '.join(self.strategies) or 'none'}"
            )


def live_settings_for(
    *, strategies: tuple[str, ...] = (), quick: bool = False, seed: int = 1
) -> LiveSettings:
    """Settings from what a person typed; `quick` takes half a minute for each strategy."""
    chosen = strategies or ("S0", "S2", "SB")
    if quick:
        return LiveSettings(
            brokers=8, learn_s=6.0, publications=300, faults_s=6.0, strategies=chosen, seed=seed
        )
    return LiveSettings(strategies=chosen, seed=seed)


def two_arms(count: int) -> dict[str, str]:
    """Broker to the one that it dials: two long arms from a centre, and a twig."""
    names = [f"B{number:02d}" for number in range(1, count + 1)]
    centre, *rest = names
    *arms, twig = rest
    dials = {centre: ""}
    for place, name in enumerate(arms):
        dials[name] = arms[place - 2] if place >= 2 else centre
    dials[twig] = centre
    return dials


@dataclass(slots=True)
class _Plan:
    """Who sits where and wants what; the same for all strategies."""

    dials: dict[str, str]
    wants: dict[str, list[int]]
    """Topics by broker."""
    publishers: list[str]
    """Their brokers."""
    victim: str
    """The broker that is killed."""


def _plan(settings: LiveSettings) -> _Plan:
    chance = random.Random(f"{settings.seed}/live")
    dials = two_arms(settings.brokers)
    names = list(dials)
    wants: dict[str, list[int]] = {name: [] for name in names}
    for topic in range(settings.topics):
        for name in chance.sample(names, min(settings.wanted, len(names))):
            wants[name].append(topic)
    # The two last of the arms, the twig, and one half way down.
    publishers = [names[-3], names[-2], names[-1], names[len(names) // 2]]
    return _Plan(dials, wants, publishers, victim=names[1])


@dataclass(slots=True)
class _Reader:
    """A broker's durable subscription, and what it was given."""

    broker: str
    log: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Publisher and number, by offset."""
    delays_us: list[int] = field(default_factory=list)
    """Of what was measured."""
    wrong: list[str] = field(default_factory=list)


class _Run:
    """One strategy, from the first broker to the figures."""

    def __init__(self, settings: LiveSettings, strategy: str, directory: Path) -> None:
        self.settings = settings
        self.strategy = strategy
        self.plan = _plan(settings)
        tables: dict[str, dict[str, Any]] = {
            "broker": {"strategy": strategy, "redial_us_max": 1_000_000},
            "soft_links": {
                "fanout": settings.fanout,
                "candidates_max": settings.candidates_max,
                "review_us": settings.review_us,
            },
            "trace": {"age_s_max": 0.5},
            "log": {"format": "json"},
        }
        self.network = LiveNetwork(directory, self.plan.dials, tables, settings.link_delay_us)
        self.readers = {name: _Reader(name) for name in self.plan.dials}
        self.published: dict[str, list[int]] = {}
        """The topics of all publications, by publisher; the first has number 1."""
        self.broken: list[str] = []
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []

    async def go(self, progress: Callable[[str], None]) -> dict[str, Any]:
        """Do everything; whatever happens, no process is left running."""
        try:
            progress(f"{self.strategy}: starting {len(self.plan.dials)} brokers")
            await self.network.start()
            async with self._stack:
                for reader in self.readers.values():
                    await self._subscribe(reader)
                progress(f"{self.strategy}: learning")
                await self._publish("learn", seconds=self.settings.learn_s)
                soft_links = len(await self.network.soft_links())
                progress(f"{self.strategy}: measuring, with {soft_links} soft links")
                each = self.settings.publications // len(self.plan.publishers)
                await self._publish("measure", count=each)
                await self._arrived("measure")
                measured = {
                    "soft_links": soft_links,
                    "delay_ms": self._delays(),
                    "deliveries": sum(self._found("measure", name).total() for name in self.readers),
                }
                progress(f"{self.strategy}: breaking")
                faults = await self._faults()
                await self._stop_reading()
            await self.network.stop()
        finally:
            await self._stop_reading()
            await self.network.clean()
        return {
            "strategy": self.strategy,
            **measured,
            **self._traced(),
            "held_up_us_per_link": round(self.network.mean_delay_us),
            "measured_wrong": self._measured_wrong(),
            "faults": faults,
        }

    async def _stop_reading(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    # Clients.

    async def _connect(self, name: str, broker: str) -> Client:
        return await self._stack.enter_async_context(
            connect(
                self.network.brokers[broker].address,
                name=name,
                publisher=name,
                timeout_s=_PATIENCE_S,
                reconnect_for_s=_PATIENCE_S,
                request_timeout_s=_PATIENCE_S,
            )
        )

    async def _subscribe(self, reader: _Reader) -> None:
        topics = self.plan.wants[reader.broker]
        if not topics:
            return
        wanted = f"topic IN ({', '.join(map(str, topics))})"
        client = await self._connect(f"reader-{reader.broker}", reader.broker)
        subscription = await client.subscribe(wanted, durable=f"log-{reader.broker}")
        self._tasks.append(asyncio.create_task(_read(subscription, reader)))

    async def _publish(self, phase: str, *, seconds: float = 0.0, count: int = 0) -> None:
        """All publishers publish, for a time or a number; each waits for its receipts."""
        await asyncio.gather(
            *(
                self._publisher(phase, f"{phase}-{place}", broker, place, seconds=seconds, count=count)
                for place, broker in enumerate(self.plan.publishers)
            )
        )

    async def _publisher(
        self, phase: str, name: str, broker: str, place: int, *, seconds: float, count: int
    ) -> None:
        chance = random.Random(f"{self.settings.seed}/{phase}/{place}")
        topics = self.published[name] = []
        client = await self._connect(name, broker)
        delivery = "fast" if phase == "learn" else "acknowledged"
        end = time.monotonic() + seconds
        due = time.monotonic()
        while len(topics) < count if count else time.monotonic() < end:
            topic = chance.randrange(self.settings.topics)
            topics.append(topic)
            attributes = {"topic": topic, "sent_us": time.monotonic_ns() // 1000}
            await client.publish(attributes, delivery=delivery, ordered=_is_ordered(name))
            due += 1 / self.settings.rate
            # After an interruption it goes on at its pace.
            due = max(due, time.monotonic() - 0.1)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
        await client.flush(_PATIENCE_S)

    # What must have arrived.

    def _expected(self, phase: str, broker: str) -> Counter[tuple[str, int]]:
        wanted = set(self.plan.wants[broker])
        return Counter(
            (publisher, number)
            for publisher, topics in self.published.items()
            if publisher.startswith(phase)
            for number, topic in enumerate(topics, start=1)
            if topic in wanted
        )

    def _found(self, phase: str, broker: str) -> Counter[tuple[str, int]]:
        return Counter(each for each in self.readers[broker].log.values() if each[0].startswith(phase))

    def _missing(self, phase: str) -> bool:
        return any(self._expected(phase, broker) - self._found(phase, broker) for broker in self.readers)

    async def _arrived(self, phase: str) -> None:
        """Wait for everything, and a little longer for what should not be."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            await asyncio.sleep(_LOOK_S)
            if not self._missing(phase) or time.monotonic() >= deadline:
                break
        await asyncio.sleep(_QUIET_S)

    def _measured_wrong(self) -> int:
        """Deliveries too few or too many in the measured part, where nothing broke."""
        wrong = 0
        for broker in self.readers:
            expected, found = self._expected("measure", broker), self._found("measure", broker)
            wrong += (expected - found).total() + (found - expected).total()
        return wrong

    def _delays(self) -> dict[str, float]:
        delays = sorted(each for reader in self.readers.values() for each in reader.delays_us)
        if not delays:
            raise ConfigurationError("nothing was delivered while measuring")
        return {
            "mean": significant(statistics.fmean(delays) / 1000),
            "median": significant(statistics.median(delays) / 1000),
            "p99": significant(delays[int(len(delays) * 0.99)] / 1000),
        }

    # Faults.

    async def _faults(self) -> dict[str, Any]:
        """Publish with receipts while soft links break and a broker dies."""
        seconds = self.settings.faults_s
        publishing = asyncio.create_task(self._publish("faults", seconds=seconds))
        await asyncio.sleep(seconds / 6)
        await self._break_soft_link()
        await asyncio.sleep(seconds / 6)
        victim = self.network.brokers[self.plan.victim]
        victim.kill()
        self.broken.append(f"kill -9 of {victim.name}")
        await asyncio.sleep(seconds / 8)
        victim.start()
        await victim.ready()
        await asyncio.sleep(seconds / 8)
        await self._break_soft_link()
        problem = ""
        try:
            await publishing
        except (BraidError, TimeoutError) as error:
            problem = f"publishers did not get their receipts: {type(error).__name__}: {error}"
        await self._arrived("faults")
        return self._judged(problem)

    async def _break_soft_link(self) -> None:
        for link in await self.network.soft_links():
            if self.network.cut(link):
                self.broken.append(f"soft link of {link.source} to {link.target} broken")
                return

    def _judged(self, problem: str) -> dict[str, Any]:
        lost = doubled = misordered = foreign = delivered = 0
        wrong = [problem] if problem else []
        for broker, reader in self.readers.items():
            expected = self._expected("faults", broker)
            rows = [reader.log[offset] for offset in sorted(reader.log)]
            rows = [row for row in rows if row[0].startswith("faults")]
            found = Counter(rows)
            delivered += len(rows)
            lost += (expected - found).total()
            doubled += sum(count - 1 for count in found.values())
            foreign += len(found.keys() - expected.keys())
            wrong += reader.wrong
            highest: dict[str, int] = {}
            for publisher, number in rows:
                if _is_ordered(publisher) and number < highest.get(publisher, 0):
                    misordered += 1
                highest[publisher] = max(number, highest.get(publisher, 0))
        published = {name: len(topics) for name, topics in self.published.items() if "faults" in name}
        return {
            "what": self.broken,
            "acknowledged": sum(published.values()),
            "of_them_ordered": sum(count for name, count in published.items() if _is_ordered(name)),
            "delivered": delivered,
            "lost": lost,
            "doubled": doubled,
            "misordered": misordered,
            "never_published": foreign,
            "wrong": wrong,
        }

    # Traces.

    def _traced(self) -> dict[str, Any]:
        """Measured copies that crossed links, and how many they had crossed where they were wanted."""
        from braid.trace import read_table

        trace = self.network.directory / "trace"
        crossed: Counter[str] = Counter()
        arrived: dict[tuple[str, str, int], int] = {}
        names = ("publisher", "sequence", "target", "hops", "link")
        rows = read_table(trace, "hop").select(list(names)).to_pydict()
        for publisher, sequence, target, hops, link in zip(*(rows[name] for name in names), strict=True):
            if publisher.startswith("measure"):
                crossed[link] += 1
                arrived.setdefault((target, publisher_and_epoch(publisher)[0], sequence), hops)
        # What was published where it is wanted has crossed nothing.
        counts = [
            arrived.get((broker, *each), 0)
            for broker in self.readers
            for each in self._expected("measure", broker)
        ]
        return {
            "messages": crossed.total(),
            "messages_over_soft_links": crossed["soft"],
            "hops_mean": significant(statistics.fmean(counts)),
            "hops_max": max(counts),
        }


def _is_ordered(publisher: str) -> bool:
    """Every second publisher of the last part asks for order."""
    phase, _, place = publisher.rpartition("-")
    return phase == "faults" and int(place) % 2 == 0


async def _read(subscription: DurableSubscription, reader: _Reader) -> None:
    """Write down the log. After a crash rows that were not acknowledged come again, at the same offset."""
    while True:
        rows: Any = await subscription.get_many(_ROWS_AT_ONCE_MAX)
        for row in rows:
            name = (row.publisher, row.sequence)
            if row.publisher.startswith("measure"):
                reader.delays_us.append(time.monotonic_ns() // 1000 - row.attributes["sent_us"])
            if reader.log.setdefault(row.offset, name) != name:
                reader.wrong.append(f"offset {row.offset} of {reader.broker} has changed")
        await subscription.acknowledge(rows[-1].offset)


def bench_live(
    settings: LiveSettings,
    progress: Callable[[str], None] = lambda title: None,
    *,
    keep: Path | None = None,
) -> dict[str, Any]:
    """Run every strategy; the report is plain data, ready for JSON.

    Args:
        settings: what to run.
        progress: told what is going on.
        keep: where the files of the brokers go; without it they are removed.
    """
    cells = []
    for strategy in settings.strategies:
        directory = Path(tempfile.mkdtemp(prefix=f"braid-live-{strategy}-", dir=keep))
        try:
            cells.append(asyncio.run(_Run(settings, strategy, directory).go(progress)))
        finally:
            if keep is None:
                shutil.rmtree(directory, ignore_errors=True)
    ratios = [_ratios(cells[0], cell) for cell in cells[1:]]
    return {
        "benchmark": "live",
        "method": _METHOD,
        "environment": describe_environment(),
        "settings": asdict(settings),
        "summary": [
            _summary(settings, cells[0], cell, row) for cell, row in zip(cells[1:], ratios, strict=True)
        ],
        "goals": _goals(cells, ratios),
        "ratios": ratios,
        "cells": cells,
    }


def _ratios(base: Mapping[str, Any], cell: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "strategy": cell["strategy"],
        "against": base["strategy"],
        "deliveries": significant(cell["deliveries"] / base["deliveries"]),
        "messages": significant(cell["messages"] / base["messages"]),
        "hops": significant(cell["hops_mean"] / base["hops_mean"]),
        "delay": significant(cell["delay_ms"]["mean"] / base["delay_ms"]["mean"]),
    }


def _right(cell: Mapping[str, Any]) -> bool:
    faults = cell["faults"]
    counts = ("lost", "doubled", "misordered", "never_published")
    return not (cell["measured_wrong"] or faults["wrong"] or any(faults[name] for name in counts))


def _summary(
    settings: LiveSettings, base: Mapping[str, Any], cell: Mapping[str, Any], ratios: Mapping[str, Any]
) -> str:
    faults = cell["faults"]
    return (
        f"live: {settings.brokers} brokers, {settings.link_delay_us / 1000:g} ms per link, "
        f"{cell['strategy']} against {base['strategy']}: "
        f"deliveries {cell['deliveries']:,} = {base['deliveries']:,} ({ratios['deliveries']:g}), "
        f"hops {cell['hops_mean']:.3g} for {base['hops_mean']:.3g} ({ratios['hops']:.3g}), "
        f"messages {cell['messages']:,} for {base['messages']:,} ({ratios['messages']:.3g}), "
        f"delay {ratios['delay']:.3g}, {cell['soft_links']} soft links; {', '.join(faults['what'])}: "
        f"{faults['acknowledged']:,} acknowledged, {faults['lost']} lost, {faults['doubled']} doubled, "
        f"{faults['misordered']} of {faults['of_them_ordered']:,} ordered out of order"
    )


def _goals(cells: list[dict[str, Any]], ratios: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for row in ratios:
        for name, target in (("deliveries", "exactly 1"), ("hops", "below 1"), ("messages", "below 1")):
            met = row[name] == 1 if name == "deliveries" else row[name] < 1
            goal = f"{row['strategy']}: {name}, as a share of {row['against']}'s"
            rows.append({"goal": goal, "target": target, "measured": row[name], "met": met})
    for cell in cells:
        faults = cell["faults"]
        bad = sum(faults[name] for name in ("lost", "doubled", "misordered", "never_published"))
        goal = f"{cell['strategy']}: acknowledged publications lost, doubled or out of their order"
        rows.append({"goal": goal, "target": "exactly 0", "measured": bad, "met": _right(cell)})
    return rows

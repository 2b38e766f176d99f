"""A network that is not there, for a dashboard that cannot tell: it moves, fails and is busy on request."""

from __future__ import annotations

import math
import random
import time
from typing import TYPE_CHECKING, Any

from braid.cli.overlay_crawl import Network, Report
from braid.dashboard.watch import Look
from braid.errors import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from braid.cli.connection_options import Door

__all__ = ["FeedWatch", "tree_links"]


def tree_links(count: int, seed: int = 1, degree_max: int = 4) -> list[tuple[str, str]]:
    """A random tree of brokers B001, B002, ... with at most so many links each."""
    chance = random.Random(f"{seed}/feed")
    names = [f"B{number:03d}" if count > 99 else f"B{number:02d}" for number in range(1, count + 1)]
    degree = dict.fromkeys(names, 0)
    links = []
    for place, name in enumerate(names[1:], 1):
        parent = chance.choice([other for other in names[:place] if degree[other] < degree_max])
        links.append((parent, name))
        degree[parent] += 1
        degree[name] += 1
    return links


class FeedWatch:
    """What `NetworkWatch` is to a dashboard, without brokers."""

    start = "braid://127.0.0.1:1"

    def __init__(self, links: list[tuple[str, str]], *, seed: int = 1, soft: int = 0) -> None:
        self.links = [tuple(link) for link in links]
        self.failed: set[str] = set()
        self.subscriptions: dict[str, list[dict[str, Any]]] = {}
        self.door: Door | None = None
        self.operation: dict[str, Any] | None = None
        self.problem = ""
        self.looks = 0
        self._chance = random.Random(f"{seed}/traffic")
        names = sorted({name for link in links for name in link})
        self.weight = {name: self._chance.random() ** 2 for name in names}
        self.soft = [tuple(self._chance.sample(names, 2)) for _ in range(soft)]
        self.candidates = [tuple(self._chance.sample(names, 2)) for _ in range(soft // 3)]
        self._sent: dict[tuple[str, str, str], int] = {}
        self._counters = {
            name: dict.fromkeys(("received", "published", "forwarded", "delivered", "dropped"), 0)
            for name in names
        }
        self._busy_us = dict.fromkeys(names, 0)
        self._clock_s = 0.0
        self._begin_s = time.time()

    async def run(self, interval_s: float, show: Callable[[Look], Awaitable[None]]) -> None:
        """As the real one."""
        import asyncio

        while True:
            await show(self.look_now())
            await asyncio.sleep(interval_s)

    async def close(self) -> None:
        """As the real one."""

    def brokers(self) -> list[str]:
        """As the real one."""
        return sorted(self.weight)

    def address_of(self, broker: str) -> str | None:
        """As the real one."""
        return f"braid://127.0.0.1:{2 + sorted(self.weight).index(broker)}" if broker in self.weight else None

    async def client(self, broker: str) -> Any:
        """There is none."""
        raise RequestRefusedError("a feed has no brokers", "unknown")

    async def everywhere(self, topic: str, arguments: Mapping[str, str]) -> dict[str, dict[str, Any] | None]:
        """As the real one, for subscriptions."""
        search = arguments.get("search", "")
        found = {}
        for name in self.weight:
            listed = [each for each in self.subscriptions.get(name, []) if search in each["filter"]]
            found[name] = {"found": len(listed), "subscriptions": listed}
        return found

    async def look(self) -> Look:
        """As the real one."""
        return self.look_now()

    def look_now(self) -> Look:
        """One second later."""
        self.looks += 1
        self._clock_s += 1.0
        now_s = self._begin_s + self._clock_s
        if self.problem:
            return Look(
                Network([Report(self.start, problem=self.problem)]), now_s, self._clock_s, self.problem
            )
        wave = 1 + 0.3 * math.sin(self.looks / 6)
        return Look(Network([self._report(name, wave) for name in self.weight]), now_s, self._clock_s)

    def _grow(self, kind: str, source: str, target: str, amount: float) -> int:
        key = (kind, source, target)
        self._sent[key] = self._sent.get(key, 0) + round(amount)
        return self._sent[key]

    def _report(self, name: str, wave: float) -> Report:
        address = self.address_of(name) or ""
        if name in self.failed:
            return Report(address, name, problem="connection refused")
        beside = [b if a == name else a for a, b in self.links if name in (a, b)]
        weight = self.weight[name] * wave
        for counter, rate in (("received", 900), ("published", 120), ("forwarded", 700), ("delivered", 300)):
            self._counters[name][counter] += round(rate * weight)
        self._busy_us[name] += round(800_000 * weight)
        operation = self.operation if self.operation and name in self.operation["path"] else None
        links = [
            {
                "neighbour": other,
                "address": self.address_of(other),
                "stage": "open",
                "up": other not in self.failed,
                "known": True,
                "withheld": [],
                "waiting_bytes": round(4000 * weight),
                "unsettled_bytes": 0,
            }
            for other in beside
        ]
        mesh = {
            "strategy": "S2" if self.soft else "S0",
            "delta": 3 if self.soft else 1,
            "brokers_in_sight": len(beside),
            "soft_links": sorted({b for a, b in self.soft if a == name}),
            "soft_links_from": [],
            "links_in_all": len(beside),
            "fanout": 8,
            "candidates": sorted({b for a, b in self.candidates if a == name}),
            "saving_uplink": False,
        }
        statistics = {
            "counters": dict(self._counters[name]),
            "routing": {"subscriptions": 30},
            "clients": 3,
            "clients_behind": 0,
            "links": len(beside),
            "links_up": len(beside),
            "ready": True,
            "link_waiting_bytes": {other: round(4000 * weight) for other in beside},
            "client_waiting_bytes": 0,
            "link_sent_bytes": {
                other: self._grow("link", name, other, 40_000 * weight * self.weight[other])
                for other in beside
            },
            "soft_link_sent_bytes": {
                b: self._grow("soft", a, b, 20_000 * weight * self.weight[b])
                for a, b in self.soft
                if a == name
            },
            "busy_us": self._busy_us[name],
        }
        overlay = {
            "broker": name,
            "address": address,
            "incarnation": f"{name}-1",
            "ready": True,
            "clients": 3,
            "mesh": mesh,
            "links": links,
            "withheld": {},
            "waiting": [],
            "unreached": [],
            "operation": operation,
            "leaving": [],
        }
        return Report(address, name, overlay=overlay, statistics=statistics)

"""Does a network of real brokers make itself a cheaper tree, and does anybody notice?

`python -m tests.reliability.organising` starts sixteen broker processes in a random tree, with configured
costs of links and brokers. Writers publish numbers, readers keep what comes; half-way all interest moves. The
same is played without a policy. What each network spent (Eq. 1 and 2 of the self-organising paper, control
messages included) Spark adds up from the brokers' traces. A picture shows the tree at the start, before the
move and at the end. The run fails if anything ordered is lost, doubled or reordered, or if too little was
saved.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from braid.runtime.connecting import connect
from braid.sim.topologies.trees import tree_links
from tests.reliability.processes import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from braid.language import Publication
    from braid.runtime.client import Client

__all__ = ["LiveRun", "Reading", "judge"]

BROKERS, TYPES, READERS = 16, 8, 3
INTERVAL_S = 5.0
PAUSE_S = 1 / 15
START_S_MAX, END_S_MAX, REQUEST_S_MAX = 120.0, 30.0, 120.0
SHARE_MAX = 0.6


@dataclass
class Reading:
    """What one reader got of one type while it asked for it."""

    type: int
    reader: str
    first: int = -1
    """Every number from here on is owed; -1: the answer to the subscription has not come yet."""
    end: int = -1
    """Every number below is owed."""
    numbers: list[int] = field(default_factory=list)


def judge(readings: Sequence[Reading]) -> dict[str, int]:
    """What was lost, doubled and reordered."""
    lost = doubled = reordered = 0
    for reading in readings:
        seen = set(reading.numbers)
        lost += len(set(range(reading.first, reading.end)) - seen)
        doubled += len(reading.numbers) - len(seen)
        fresh = list(dict.fromkeys(reading.numbers))
        reordered += sum(later < earlier for earlier, later in pairwise(fresh))
    return {"lost": lost, "doubled": doubled, "reordered": reordered}


class LiveRun:
    """One network, one policy.

    Args:
        seed: of the tree, the costs and the interest.
        policy: by what it looks for a better tree.
        phase_s: how long it runs before and after interest moves.
        folder: for logs and traces.
        start: the tree at the start: `uniform` (random) or `minimum` (cheapest links).
    """

    def __init__(self, seed: int, policy: str, phase_s: float, folder: Path, start: str = "uniform") -> None:
        self.policy, self.phase_s, self.folder = policy, phase_s, folder
        self.names = [f"B{number:02d}" for number in range(BROKERS)]
        chance = np.random.default_rng(seed)
        upper = np.triu(chance.uniform(0, 10, (BROKERS, BROKERS)), 1)
        self.links, self.processing = upper + upper.T, chance.uniform(0, 10, BROKERS)
        if start == "minimum":
            self.tree = _minimum(self.names, self.links)
        else:
            self.tree = tree_links(tuple(self.names), None, random.Random(f"{seed}/tree"), "uniform")
        self.writers = [int(chance.integers(BROKERS)) for _ in range(TYPES)]
        self.interest = [
            [chance.choice(BROKERS, READERS, replace=False).tolist() for _ in range(TYPES)] for _ in range(2)
        ]
        """For each phase and type: where its readers are."""
        self.readings: list[Reading] = []
        self.published = [0] * TYPES
        self.trees: dict[str, list[tuple[str, str]]] = {"start": [tuple(sorted(each)) for each in self.tree]}
        self.windows: dict[str, tuple[int, int]] = {}
        """The second half of each phase, in microseconds."""
        self.exchanges = {"done": 0, "given_up": 0}
        self._asked: dict[int, list[Any]] = {}
        """By phase: subscriptions."""
        self._stack = AsyncExitStack()
        self._clients: dict[tuple[str, str], Client] = {}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._addresses = {name: f"127.0.0.1:{free_port()}" for name in self.names}

    async def go(self) -> dict[str, Any]:
        """Play it, and say what came of it."""
        async with self._stack:
            self._stack.callback(self._end_brokers)
            self._start_brokers()
            for name in self.names:
                await self._client(name, "operator")
            await self._until_linked()
            writing = [asyncio.ensure_future(self._write(kind)) for kind in range(TYPES)]
            for phase, title in enumerate(("before", "after")):
                await self._move(phase)
                await asyncio.sleep(self.phase_s / 2)
                begin_us = time.time_ns() // 1_000
                await asyncio.sleep(self.phase_s / 2)
                self.windows[title] = begin_us, time.time_ns() // 1_000
                self.trees[title] = await self._tree()
            for task in writing:
                task.cancel()
            await asyncio.wait(writing)
            await self._settle()
            for name in self.names:
                report = await self._clients[name, "operator"].ask("topology")
                for word in self.exchanges:
                    self.exchanges[word] += report[f"exchanges_{word}"]
        return {
            "policy": self.policy,
            "published": sum(self.published),
            "read": sum(len(each.numbers) for each in self.readings),
            **judge(self.readings),
            "exchanges": self.exchanges,
        }

    # Brokers.

    def _start_brokers(self) -> None:
        for place, name in enumerate(self.names):
            costs = [
                f"{other}={self.links[place, at]:.6f}" for at, other in enumerate(self.names) if at != place
            ]
            configuration = self.folder / f"{name}.toml"
            configuration.write_text(
                f'[topology]\npolicy = "{self.policy}"\ninterval_us = {round(INTERVAL_S * 1e6)}\n'
                f"processing_cost = {self.processing[place]:.6f}\nlink_costs = {json.dumps(costs)}\n"
                "pause_intervals_max = 2\n"
            )
            dialled = [left if right == name else right for left, right in self.tree if name in (left, right)]
            neighbours = [self._addresses[other] for other in dialled if other < name]
            with (self.folder / f"{name}.log").open("wb") as sink:
                self._processes.append(
                    subprocess.Popen(
                        [
                            *(sys.executable, "-c", "from braid.cli import main; main()", "broker"),
                            *("--id", name, "--listen", self._addresses[name]),
                            *("--config", str(configuration), "--trace", str(self.folder / "trace")),
                            *(word for each in neighbours for word in ("--neighbor", each)),
                        ],
                        stdout=subprocess.DEVNULL,
                        stderr=sink,
                    )
                )

    def _end_brokers(self) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(END_S_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    async def _client(self, name: str, role: str) -> Client:
        if (name, role) not in self._clients:
            deadline_s = time.monotonic() + START_S_MAX
            while True:
                try:
                    client = await self._stack.enter_async_context(
                        connect(
                            f"braid://{self._addresses[name]}",
                            name=f"{role}-{name}",
                            publisher=f"{role}-{name}",
                            request_timeout_s=REQUEST_S_MAX,
                        )
                    )
                    break
                except Exception:
                    if time.monotonic() > deadline_s:
                        raise
                    await asyncio.sleep(0.5)
            self._clients[name, role] = client
        return self._clients[name, role]

    async def _until_linked(self) -> None:
        deadline_s = time.monotonic() + START_S_MAX
        while len(await self._tree()) < BROKERS - 1:
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"the brokers are not linked after {START_S_MAX:g} s")
            await asyncio.sleep(0.5)

    async def _tree(self) -> list[tuple[str, str]]:
        """The links that are up at both ends; looked at again while an exchange is under way."""
        for _ in range(100):
            ends = []
            for name in self.names:
                report = await self._clients[name, "operator"].ask("overlay")
                ends += [(name, link["neighbour"]) for link in report["links"] if link["up"]]
            if len(ends) == 2 * (BROKERS - 1) and all((other, name) in ends for name, other in ends):
                break
            await asyncio.sleep(0.2)
        return sorted({(min(pair), max(pair)) for pair in ends if pair[::-1] in ends})

    # Clients.

    async def _write(self, kind: int) -> None:
        writer = await self._client(self.names[self.writers[kind]], f"writer{kind}")
        next_s = time.monotonic()
        while True:
            number = self.published[kind]
            self.published[kind] += 1
            await writer.publish({"type": kind, "number": number}, ordered=True)
            next_s = max(next_s + PAUSE_S, time.monotonic() - PAUSE_S)
            await asyncio.sleep(max(0.0, next_s - time.monotonic()))

    async def _move(self, phase: int) -> None:
        """Have everybody interested in what belongs to a phase, and in nothing else."""
        left = [each for each in self.readings if each.end < 0]
        await asyncio.gather(
            *(
                self._read(kind, place, phase)
                for kind, places in enumerate(self.interest[phase])
                for place in places
            )
        )
        for reading in left:
            reading.end = self.published[reading.type]
        await self._settle(left)
        await asyncio.gather(*(each.close() for each in self._asked.pop(phase - 1, [])))

    async def _read(self, kind: int, place: int, phase: int) -> None:
        name = self.names[place]
        reading = Reading(kind, name)
        client = await self._client(name, f"reader{phase}")

        def keep(publication: Publication) -> None:
            number = publication.attributes["number"]
            assert isinstance(number, int)
            # What comes after the end was not asked for any more, and is not judged.
            if reading.end < 0 or number < reading.end:
                reading.numbers.append(number)

        subscription = await client.subscribe(f"type = {kind}", keep)
        reading.first = self.published[kind]
        self.readings.append(reading)
        self._asked.setdefault(phase, []).append(subscription)

    async def _settle(self, readings: Sequence[Reading] | None = None) -> None:
        """Wait until what is owed has come, or nothing comes any more."""
        waited = self.readings if readings is None else readings
        for reading in waited:
            reading.end = reading.end if reading.end >= 0 else self.published[reading.type]
        before, still = -1, 0
        while still < 20:
            missing = sum(reading.end - 1 not in reading.numbers[-5:] for reading in waited if reading.end)
            if not missing:
                return
            still = still + 1 if missing == before else 0
            before = missing
            await asyncio.sleep(0.25)


def _minimum(names: Sequence[str], links: np.ndarray) -> list[tuple[str, str]]:
    """The tree of the cheapest links (Prim)."""
    inside, found = {0}, []
    while len(inside) < len(names):
        _, left, right = min(
            (links[left, right], left, right)
            for left in inside
            for right in range(len(names))
            if right not in inside
        )
        inside.add(right)
        found.append((names[left], names[right]))
    return found


# What it cost.


def spent(run: LiveRun) -> dict[str, dict[str, float]]:
    """Eq. 1 and 2, by Spark: what the network spent in each window, for each publication of that time."""
    import pyarrow as pa

    from braid.pipeline import spark_session
    from braid.pipeline.metrics.cost import cost_over_time
    from braid.pipeline.traces import Traces

    with spark_session("organising") as spark:
        pairs = [(left, right) for left in range(BROKERS) for right in range(BROKERS) if left < right]
        links = spark.createDataFrame(
            pa.table(
                {
                    "source": [run.names[left] for left, _ in pairs],
                    "target": [run.names[right] for _, right in pairs],
                    "cost": [float(run.links[pair]) for pair in pairs],
                }
            )
        )
        brokers = spark.createDataFrame(pa.table({"broker": run.names, "cost": run.processing.tolist()}))
        traces = Traces(spark, run.folder / "trace")
        found = {}
        for title, (from_us, to_us) in run.windows.items():
            rows = cost_over_time(
                traces.link_sample,
                traces.broker_load,
                period_us=3_600_000_000,
                link_costs=links,
                broker_costs=brokers,
                from_us=from_us,
                to_us=to_us,
            ).collect()
            totals: dict[str, float] = {}
            for row in rows:
                for name, value in row.asDict().items():
                    if name not in ("run", "at_us"):
                        totals[name] = totals.get(name, 0.0) + value
            entered = traces.broker_load.where(
                f"at_us - period_us >= {from_us} AND at_us - period_us < {to_us}"
            )
            published = entered.groupBy().sum("published").collect()[0][0] or 0
            found[title] = {name: value / max(1, published) for name, value in totals.items()}
            found[title]["published"] = float(published)
        return found


def draw(run: LiveRun, path: Path) -> None:
    """The tree at the start, before interest moves and at the end; thick links are dear."""
    import networkx as nx
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 5.5))
    FigureCanvasAgg(figure)
    titles = {"start": "at the start", "before": "before interest moves", "after": "at the end"}
    for place, (key, title) in enumerate(titles.items()):
        axes = figure.add_subplot(1, 3, place + 1)
        graph = nx.Graph(run.trees[key])
        costs = [run.links[run.names.index(left), run.names.index(right)] for left, right in graph.edges]
        where = nx.kamada_kawai_layout(graph)
        sizes = [120 + 60 * run.processing[run.names.index(name)] for name in graph]
        nx.draw_networkx_edges(graph, where, ax=axes, width=[0.5 + 0.5 * cost for cost in costs])
        nx.draw_networkx_nodes(graph, where, ax=axes, node_size=sizes, node_color="#9ecae1")
        nx.draw_networkx_labels(graph, where, ax=axes, font_size=7)
        axes.set_title(f"{title}\nlinks cost {sum(costs):.0f} together")
        axes.axis("off")
    figure.suptitle(f"{run.policy}: the wider a link and the larger a broker, the dearer")
    figure.savefig(path, dpi=90)


def main() -> int:
    """Play all that is asked for; print the summary as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, action="append")
    parser.add_argument("--policy", action="append")
    parser.add_argument("--phase", type=float, default=80.0, help="seconds before and after the move")
    parser.add_argument("--start", default="uniform", choices=("uniform", "minimum"))
    parser.add_argument("--picture", type=Path, help="where the picture of the first policy's run goes")
    options = parser.parse_args()
    policies: list[str] = options.policy or ["ci", "exact"]
    failed = False
    for seed in options.seed or [1]:
        costs: dict[str, Mapping[str, Mapping[str, float]]] = {}
        for policy in ["static", *policies]:
            with tempfile.TemporaryDirectory() as folder:
                run = LiveRun(seed, policy, options.phase, Path(folder), options.start)
                summary = asyncio.run(run.go())
                costs[policy] = spent(run)
                if options.picture is not None and policy == policies[-1]:
                    draw(run, options.picture)
            shares = {
                title: round(costs[policy][title]["cost"] / costs["static"][title]["cost"], 3)
                for title in run.windows
            }
            broken = summary["lost"] + summary["doubled"] + summary["reordered"]
            failed |= bool(broken) or (policy == policies[-1] and max(shares.values()) >= SHARE_MAX)
            found = {title: {k: round(v, 2) for k, v in row.items()} for title, row in costs[policy].items()}
            print(json.dumps({"seed": seed, **summary, "cost_vs_static": shares, "spent": found}), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())

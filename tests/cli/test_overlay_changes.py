"""Is the tree of real brokers changed as a plan says, with nothing lost for those who are connected?"""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from braid.reconfiguration import OverlayTree, encode_tree
from braid.runtime.connecting import connect
from tests.cli.broker_process import BrokerProcess, braid, running_broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.net
NAMES = "ABCDE"


class Brokers:
    """A line of brokers with data directories and a common directory."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self.running: dict[str, BrokerProcess] = {}
        before = ""
        for name in NAMES:
            self.start(name, *(("--neighbor", before) if before else ()))
            before = self.running[name].address
        for name in NAMES[1:]:
            self.running[name].wait_for("link up")

    def start(self, name: str, *arguments: str, listen: str = "127.0.0.1:0") -> None:
        shared = ("--directory", str(self.folder / "brokers.db"), "--data-dir", str(self.folder / name))
        self.running[name] = self._stack.enter_context(
            running_broker(name, *shared, *arguments, listen=listen)
        )

    def overlay(self, *arguments: str, ask: str = "A") -> Any:
        return braid("overlay", *arguments, "--broker", self.running[ask].address)

    def tree(self) -> OverlayTree:
        shown = self.overlay("show", "--tree")
        assert shown.returncode == 0, shown.stderr
        return OverlayTree(json.loads(shown.stdout)["links"])


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    with ExitStack() as stack:
        yield Brokers(tmp_path, stack)


def test_a_plan_is_made_carried_out_refused_and_undone(brokers: Brokers, tmp_path: Path) -> None:
    line = brokers.tree()
    goal = OverlayTree([("C", "A"), ("C", "B"), ("C", "D"), ("A", "E")])
    target, plan = tmp_path / "tree.json", tmp_path / "plan.json"
    target.write_bytes(encode_tree(goal))
    planned = brokers.overlay("plan", "--to", str(target), "--out", str(plan))
    assert planned.returncode == 0, planned.stderr
    assert "(no plan has fewer)" in planned.stdout
    applied = brokers.overlay("apply", str(plan), "--parallel", "2", ask="D")
    assert applied.returncode == 0, applied.stderr
    assert brokers.tree() == goal
    refused = brokers.overlay("apply", str(plan))
    assert refused.returncode == 2
    assert "the network is not where the plan starts" in refused.stderr
    assert brokers.overlay("apply", str(plan), "--undo").returncode == 0
    assert brokers.tree() == line


async def test_a_drained_broker_is_patched_with_nothing_lost(brokers: Brokers, tmp_path: Path) -> None:
    """C lies in the middle and has a log and a client; it is away for a while, and the others go on."""
    line = brokers.tree()
    plan = str(tmp_path / "drain.json")
    running = brokers.running
    async with (
        connect(running["A"].address, name="writer", publisher="writer") as writer,
        connect(running["E"].address, name="far") as far,
        connect(running["C"].address, name="near", reconnect_for_s=60) as near,
    ):
        told = await far.subscribe("n > 0")
        log = await near.subscribe("n > 0", durable="kept")

        async def publish(first: int, last: int) -> None:
            for number in range(first, last + 1):
                await (await writer.publish({"n": number}, delivery="acknowledged", ordered=True))

        publishing = asyncio.create_task(publish(1, 200))
        drained = await asyncio.to_thread(brokers.overlay, "drain", "C", "--out", plan)
        assert drained.returncode == 0, drained.stderr
        await publishing
        address = running["C"].address
        assert await asyncio.to_thread(running["C"].stop) == 0
        # While it is away its neighbour keeps what is for its log, and its receipts; the others get theirs.
        waiting = asyncio.create_task(publish(201, 260))
        assert [(await anext(told)).attributes["n"] for _ in range(201)] == list(range(1, 202))
        await asyncio.to_thread(brokers.start, "C", listen=address.partition("://")[2])
        assert [(await anext(told)).attributes["n"] for _ in range(59)] == list(range(202, 261))
        await waiting
        undone = await asyncio.to_thread(brokers.overlay, "apply", plan, "--undo")
        assert undone.returncode == 0, undone.stderr
        await publish(261, 300)
        kept = []
        while not kept or kept[-1] != 300:
            kept.append((await anext(log)).attributes["n"])
        assert kept == list(range(1, 301))
    assert brokers.tree() == line

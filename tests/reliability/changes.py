"""How is the tree of a network under load changed by its operators?

With the commands that they have: single SHIFTs, a broker that is drained, stopped, started again and put
back, and whole plans to another random tree. In the plan `broken changes` brokers are killed meanwhile, and
so is the command itself, which is then asked to continue.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from typing import TYPE_CHECKING

from braid.reconfiguration import OverlayTree, encode_tree
from tests.reconfiguration.random_trees import random_tree
from tests.reliability.chaos import Chaos
from tests.reliability.choices import CHANGES
from tests.reliability.processes import HOST

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Changes"]

# Until all links are up again after something was killed.
WHOLE_S_MAX = 60.0
COMMAND_S_MAX = 180.0
# A command that was killed is asked to continue; more often than this would be no test of it.
CONTINUED_MAX = 5


class Changes(Chaos):
    """The part of a run in which the tree changes."""

    directory: Path

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._choice = random.Random(f"{seed}/changes")
        self._plans = 0

    async def _changes(self) -> None:
        if self.choices.plan == "maintenance":
            await self._maintain()
            return
        plan = CHANGES[self.choices.plan]
        actions = {"shift": self._shift, "drain": self._drain, "transform": self._transform}
        end = time.monotonic() + self.choices.seconds
        while not self.outcome.problems and time.monotonic() < end:
            await self._whole()
            action = self._choice.choices(list(plan), weights=list(plan.values()))[0]
            if action in actions:
                self._newcomer(None)
                await actions[action]()
                self.outcome.faults[action] += 1
            self._look_after()
        await self._whole()

    async def _maintain(self) -> None:
        """A broker is drained, patched and put back, one moves far, and the tree becomes another one."""
        begun_s = time.monotonic()
        pause_s = self.choices.seconds / 4
        actions = {
            "drain": lambda: self._drain(self.plan.patched),
            "move": self._move,
            "transform": self._transform,
        }
        for name, action in actions.items():
            await asyncio.sleep(pause_s)
            await self._whole()
            if self.outcome.problems:
                return
            await action()
            self.outcome.faults[name] += 1
        await asyncio.sleep(pause_s)
        await self._whole()
        self.outcome.load_s = time.monotonic() - begun_s

    async def _move(self) -> None:
        """Have a broker moved over as long a path as there is, with all that hangs on it."""
        tree = await self._tree()
        paths = [tree.path(moving, new) for moving in tree.brokers for new in tree.brokers]
        longest = max(map(len, paths))
        path = self._choice.choice([path for path in paths if len(path) == longest])
        moving, old, new = path[0], path[1], path[-1]
        by = self._choice.choice(self.choices.moves)
        await self._command("move", moving, "--from", old, "--to", new, "--by", by)
        wanted = OverlayTree(
            [*(link for link in tree.links if set(link) != {moving, old}), (moving, new)], tree.brokers
        )
        await self._whole()
        if await self._tree() != wanted:
            self.outcome.problems.append(f"{moving} was moved from {old} to {new}, and the tree is another")
        self.note(f"{moving} was moved over {len(path) - 2} brokers by {by}")

    async def _shift(self) -> None:
        tree = await self._tree()
        inner = [broker for broker in tree.brokers if tree.degree(broker) > 1]
        old = self._choice.choice(inner)
        moving, new = self._choice.sample(tree.neighbours(old), 2)
        await self._command("shift", moving, "--from", old, "--to", new)

    async def _drain(self, name: str = "") -> None:
        """Lead everything around a broker, stop it, start it again, and put it back."""
        tree = await self._tree()
        name = name or self._choice.choice([each for each in tree.brokers if tree.degree(each) > 1])
        plan = self._file("drain")
        await self._command("drain", name, "--out", plan, but=name)
        broker = self.brokers[name]
        self.note(f"{name} is patched")
        broker.end()
        if not await broker.ended():
            self.outcome.problems.append(f"{name} did not end: see {broker.log}")
            return
        broker.start()
        await broker.listening()
        await self._whole()
        await self._command("apply", plan, "--undo")
        if await self._tree() != tree:
            self.outcome.problems.append(f"after {name} was drained and put back, the tree is another one")

    async def _transform(self) -> None:
        """Make another tree of the network, by a plan."""
        wanted = random_tree(self._choice, sorted(self.brokers))
        target, plan = self._file("tree"), self._file("plan")
        (self.directory / target).write_bytes(encode_tree(wanted))
        await self._command("plan", "--to", target, "--out", plan)
        steps = len(json.loads((self.directory / plan).read_text())["steps"])
        self.note(f"a plan of {steps} steps")
        broken = self.choices.plan == "broken changes"
        if broken:
            self._meanwhile(self._kill_some(steps))
        arguments = ["apply", plan, "--parallel", str(self._choice.choice([1, 3]))]
        for _ in range(CONTINUED_MAX):
            killed_after_s = self._choice.uniform(0.5, 4.0) if broken else None
            if await self._command(*arguments, killed_after_s=killed_after_s):
                break
            self.outcome.faults["kill command"] += 1
            await self._whole()
            if "--continue" not in arguments:
                arguments.append("--continue")
        else:
            await self._command(*arguments)
        await self._whole()
        if await self._tree() != wanted:
            self.outcome.problems.append(f"all steps of {plan} are done, and the tree is another one")
        self.outcome.faults["steps"] += steps

    async def _kill_some(self, steps: int) -> None:
        for _ in range(1 + steps // 4):
            await asyncio.sleep(self._choice.uniform(0.2, 2.0))
            if self._kill_broker() is not None:
                self.outcome.faults["kill"] += 1

    def _file(self, what: str) -> str:
        self._plans += 1
        return f"{what}-{self._plans}.json"

    async def _tree(self) -> OverlayTree:
        content = json.loads(await self._whole())
        return OverlayTree(content["links"], content.get("brokers", []))

    async def _whole(self) -> str:
        """Wait until everybody is there and all links are up; returns the tree as a command prints it."""
        deadline_s = time.monotonic() + WHOLE_S_MAX
        while not self.outcome.problems:
            code, tree, problem = await self._run_command("show", "--tree")
            if code == 0:
                return tree
            if time.monotonic() > deadline_s:
                self.outcome.problems.append(f"the network was not whole after {WHOLE_S_MAX:g} s: {problem}")
            await asyncio.sleep(0.5)
        raise RuntimeError("the tree is not known")

    async def _command(self, *arguments: str, but: str = "", killed_after_s: float | None = None) -> bool:
        """Run a command; False if it was killed before it was done."""
        self.note(f"braid overlay {' '.join(arguments)}")
        began_s = time.monotonic()
        code, out, problem = await self._run_command(*arguments, but=but, killed_after_s=killed_after_s)
        if code == -9:
            self.note("the command was killed")
            return False
        self.note(f"ended with code {code} after {time.monotonic() - began_s:.2f} s: {out.strip()[-200:]}")
        if code != 0:
            self.outcome.problems.append(f"braid overlay {' '.join(arguments)}: {problem.strip()}")
        return True

    async def _run_command(
        self, *arguments: str, but: str = "", killed_after_s: float | None = None
    ) -> tuple[int, str, str]:
        ask = self._choice.choice([name for name in sorted(self.brokers) if name != but])
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "from braid.cli import main; main()",
            "overlay",
            *arguments,
            *("--broker", f"{HOST}:{self.brokers[ask].port}"),
            cwd=self.directory,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            if killed_after_s is not None:
                asyncio.get_running_loop().call_later(killed_after_s, _kill, process)
            async with asyncio.timeout(COMMAND_S_MAX):
                out, problem = await process.communicate()
        finally:
            _kill(process)
        return process.returncode or 0, out.decode(), problem.decode()


def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()

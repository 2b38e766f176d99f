"""How is a plan carried out from a terminal: with progress, pauses, stops, and a second try after a crash?

Beside the file of a plan lies another one while it is carried out, `PLAN.progress`, which says how far it is.
Whoever wants it to pause, go on or stop writes a word into `PLAN.wish`. Both are for people and other
commands: what is done is read from the network alone, so that nothing depends on them after a crash.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from braid.cli.overlay_live import LiveNetwork
from braid.errors import BraidError, ConfigurationError
from braid.reconfiguration import PlanRun, RunState
from braid.reconfiguration.trees import difference

__all__ = ["WISHES", "Noticeboard", "carry_out", "do_steps", "read_progress", "require_goal", "wish"]

WISHES: Final = ("pause", "resume", "stop")
# How often it is looked whether somebody has a wish.
LOOK_S: Final = 0.2
# How long the network may take to be whole again after the last step.
SETTLE_S_MAX: Final = 30.0


class Noticeboard:
    """The two files beside a plan."""

    def __init__(self, plan: Path) -> None:
        self._progress = plan.with_name(plan.name + ".progress")
        self._wish = plan.with_name(plan.name + ".wish")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Be the only one who carries this plan out from this machine.

        Raises:
            ConfigurationError: another process does.
        """
        with self._progress.open("a+") as board:
            try:
                fcntl.flock(board, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ConfigurationError(
                    f"another process carries this plan out; see {self._progress}, or ask it to stop"
                ) from None
            with suppress(FileNotFoundError):
                self._wish.unlink()  # of an earlier run
            yield

    def write(self, run: PlanRun) -> None:
        """Say how far it is."""
        content = {
            "state": run.state.value,
            "pid": os.getpid(),
            "done": len(run.done),
            "steps": len(run.plan),
            "running": [str(run.plan.steps[number]) for number in sorted(run.running)],
            "problem": run.problem,
        }
        # In place: whoever holds the lock holds it on this very file.
        with self._progress.open("r+") as board:
            board.write(json.dumps(content) + "\n")
            board.truncate()

    def read(self) -> dict[str, Any]:
        """How far it is; empty if nobody has begun."""
        try:
            found = json.loads(self._progress.read_text() or "{}")
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        return found if isinstance(found, dict) else {}

    def ask(self, word: str) -> None:
        """Leave a wish."""
        self._wish.write_text(word + "\n")

    def asked(self) -> str:
        """A wish that was left, once."""
        try:
            word = self._wish.read_text().strip()
            self._wish.unlink()
        except FileNotFoundError:
            return ""
        return word


def read_progress(plan: Path) -> dict[str, Any]:
    """How far the run of a plan is.

    Raises:
        ConfigurationError: it was never begun.
    """
    found = Noticeboard(plan).read()
    if not found:
        raise ConfigurationError(f"{plan} is not carried out, and was not; braid overlay apply begins")
    return found


def wish(plan: Path, word: str) -> None:
    """Ask the run of a plan to `pause`, `resume` or `stop`.

    Raises:
        ConfigurationError: there is none, or that is no word it knows.
    """
    if word not in WISHES:
        raise ConfigurationError(f"a run understands {', '.join(WISHES)}, not {word!r}")
    if read_progress(plan)["state"] not in (RunState.RUNNING.value, RunState.PAUSED.value):
        raise ConfigurationError(f"{plan} is not carried out at the moment")
    Noticeboard(plan).ask(word)


async def carry_out(
    run: PlanRun, live: LiveNetwork, show: Callable[[str], None], board: Noticeboard | None = None
) -> RunState:
    """Do the steps that are left, until all are done or somebody says stop.

    Ctrl-C and SIGTERM mean stop as well: the steps under way are finished first.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _stop, run, show)
    try:
        return await do_steps(run, live, show, board)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def _stop(run: PlanRun, show: Callable[[str], None]) -> None:
    show("stopping after the steps that are under way")
    run.stop()


async def do_steps(
    run: PlanRun, live: LiveNetwork, show: Callable[[str], None], board: Noticeboard | None = None
) -> RunState:
    """The same without looking at signals: whoever runs this says stop to the run itself."""
    steps = run.plan.steps
    tasks: dict[asyncio.Task[None], int] = {}
    total = len(steps)
    before: RunState | None = None
    while True:
        if board is not None:
            _obey(board.asked(), run, show)
        for number in run.ready():
            run.begun(number)
            tasks[asyncio.create_task(live.do(steps[number]))] = number
        if board is not None:
            board.write(run)
        state = run.state
        if state is RunState.PAUSED and before is not state:
            show(f"paused after {len(run.done)} of {total} steps")
        before = state
        if state not in (RunState.RUNNING, RunState.PAUSED):
            return state
        if not tasks:
            await asyncio.sleep(LOOK_S)
            continue
        finished, _ = await asyncio.wait(tasks, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
        for task in finished:
            number = tasks.pop(task)
            error = task.exception()
            if error is None:
                run.finished(number)
                show(f"{len(run.done)} of {total}: {steps[number]}")
            elif isinstance(error, BraidError):
                run.failed(number, str(error))
            else:
                raise error


def _obey(word: str, run: PlanRun, show: Callable[[str], None]) -> None:
    if word == "pause":
        run.pause()
    elif word == "resume":
        run.resume()
        show("going on")
    elif word == "stop":
        _stop(run, show)


async def require_goal(run: PlanRun, live: LiveNetwork) -> None:
    """Look at the whole network once more.

    Raises:
        BraidError: it is not what it should be.
    """
    tree = await live.whole_tree(SETTLE_S_MAX)
    if tree != run.plan.goal:
        raise ConfigurationError(
            f"all steps are done, and the network has changed otherwise: {difference(tree, run.plan.goal)}"
        )

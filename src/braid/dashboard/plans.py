"""Previews a plan for another tree, and carries it out, one at a time.

A preview is kept under a name of its own, with the tree that it starts from; what is carried out is
exactly what was shown, and only while the network is still where the plan starts.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from braid.cli.overlay_apply import do_steps, require_goal
from braid.cli.overlay_live import LiveNetwork
from braid.cli.overlay_plans import plan_report
from braid.errors import BraidError, ConfigurationError, RequestRefusedError
from braid.reconfiguration import OverlayTree, Plan, PlanOptions, PlanRun, RunState, find_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from braid.cli.connection_options import Door
    from braid.reconfiguration import FoundPlan

__all__ = ["Plans"]

# Previews that are kept, brokers of a plan, and how long one step may take.
PREVIEWS_MAX: Final = 20
BROKERS_MAX: Final = 200
STEP_S_MAX: Final = 60.0
# How long a plan is looked for; without an end the page would wait for ever.
SEARCH_S_MAX: Final = 20.0
TOO_LONG: Final = "no plan was found in time; use braid overlay plan"


class Plans:
    """Plans of one network.

    Args:
        tell: hears sentences about what happens, with the brokers that they are about.
        changed: called when `state` has changed.
    """

    def __init__(self, tell: Callable[[str, Iterable[str]], None], changed: Callable[[], None]) -> None:
        self._tell = tell
        self._changed = changed
        self._previews: OrderedDict[str, Plan] = OrderedDict()
        self._task: asyncio.Task[None] | None = None
        self._run: PlanRun | None = None
        self._given_up: threading.Event | None = None
        self.state: dict[str, Any] = {"state": "idle"}
        """How far the plan under way is, or the last one was."""

    @property
    def busy(self) -> bool:
        """Whether a plan is being carried out."""
        return self._task is not None and not self._task.done()

    async def close(self) -> None:
        """Let go of the steps under way: the brokers finish them by themselves. A search ends."""
        if self._given_up is not None:
            self._given_up.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def preview(self, address: str, door: Door, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """The steps from the network as it is to the tree with these `links`, under a name.

        Instead of links there may be a `move`: the moving broker, the neighbour it leaves and its new one.

        Raises:
            BraidError: there is no such plan, or the network is not whole.
        """
        start = await LiveNetwork(address, door).tree()
        if len(start) > BROKERS_MAX:
            raise RequestRefusedError(f"plans are made here for at most {BROKERS_MAX} brokers", "limit")
        goal = _goal(start, wanted)
        if set(goal.brokers) != set(start.brokers):
            raise ConfigurationError(
                "the tree that is wanted has other brokers than the network; brokers come and go by "
                "braid overlay append and detach"
            )
        found = await self._search(start, goal, wanted)
        name = secrets.token_hex(8)
        self._previews[name] = found.plan
        while len(self._previews) > PREVIEWS_MAX:
            self._previews.popitem(last=False)
        return {"plan": name, **plan_report(found), "goal": [list(link) for link in goal.links]}

    async def _search(self, start: OverlayTree, goal: OverlayTree, wanted: Mapping[str, Any]) -> FoundPlan:
        """Look for a plan in a thread, which ends with whoever waits for it."""
        if self._given_up is not None:
            raise RequestRefusedError("another plan is being looked for; try again in a moment", "busy")
        given_up = threading.Event()
        options = replace(_options(wanted), given_up=given_up.is_set)
        search = asyncio.ensure_future(asyncio.to_thread(find_plan, start, goal, options))
        self._given_up = given_up
        search.add_done_callback(self._searched)
        try:
            async with asyncio.timeout(SEARCH_S_MAX):
                return await asyncio.shield(search)
        except TimeoutError:
            raise RequestRefusedError(TOO_LONG, "limit") from None
        except ConfigurationError:
            if given_up.is_set():
                raise RequestRefusedError(TOO_LONG, "limit") from None
            raise
        finally:
            given_up.set()

    def _searched(self, search: asyncio.Future[FoundPlan]) -> None:
        """The thread has ended; only now is there room for another one."""
        self._given_up = None
        if not search.cancelled():
            search.exception()  # it has been heard, or nobody waits for it any more

    async def apply(self, address: str, door: Door, name: str) -> None:
        """Begin to carry out a plan that was previewed.

        Raises:
            BraidError: it is not known any more, the network has changed, or another one is under way.
        """
        plan = self._previews.get(name)
        if plan is None:
            raise RequestRefusedError("this plan is not known any more; preview it again", "unknown")
        if self.busy:
            raise RequestRefusedError("another plan is being carried out", "busy")
        live = LiveNetwork(address, door, step_s_max=STEP_S_MAX)
        self._task = asyncio.create_task(self._carry_out(plan, live))
        await asyncio.sleep(0)

    def stop(self) -> None:
        """Finish the steps under way, and stop there."""
        if self._run is not None:
            self._run.stop()

    async def _carry_out(self, plan: Plan, live: LiveNetwork) -> None:
        brokers = sorted(plan.start.brokers)
        steps = len(plan)
        self._show("running", 0, steps, "")
        try:
            run = self._run = PlanRun(plan, await live.tree(), anew=True)
            self._tell(f"A plan of {steps} steps has begun.", brokers)

            def show(_: str) -> None:
                self._show("running", len(run.done), steps, "")

            state = await do_steps(run, live, show)
            if state is RunState.FINISHED:
                await require_goal(run, live)
            self._show(state.value, len(run.done), steps, run.problem)
            ended = {RunState.FINISHED: "is done", RunState.STOPPED: "was stopped"}.get(state, "has failed")
            self._tell(
                f"The plan {ended} after {len(run.done)} of {steps} steps. {run.problem}".strip(), brokers
            )
        except BraidError as error:
            done = len(self._run.done) if self._run is not None else 0
            self._show("failed", done, steps, str(error))
            self._tell(f"The plan has failed: {error}", brokers)
        finally:
            self._run = None

    def _show(self, state: str, done: int, steps: int, problem: str) -> None:
        self.state = {"state": state, "done": done, "steps": steps, "problem": problem}
        self._changed()


def _goal(start: OverlayTree, wanted: Mapping[str, Any]) -> OverlayTree:
    move = wanted.get("move")
    links = wanted.get("links")
    if isinstance(move, list) and len(move) == 3 and all(isinstance(each, str) for each in move):
        moving, old, new = move
        if old not in start or moving not in start or new not in start:
            raise ConfigurationError("a move names three brokers of the network")
        if old not in start.neighbours(moving):
            raise ConfigurationError(f"{moving} has no link to {old}")
        ends = {frozenset(link) for link in start.links}
        ends.discard(frozenset((moving, old)))
        ends.add(frozenset((moving, new)))
        pairs = [tuple(sorted(each)) for each in ends]
        if any(len(pair) != 2 for pair in pairs):
            raise ConfigurationError(f"{moving} cannot be linked to itself")
        return OverlayTree([(left, right) for left, right in sorted(pairs)], start.brokers)
    if (
        isinstance(links, list)
        and len(links) < BROKERS_MAX
        and all(
            isinstance(link, list) and len(link) == 2 and all(isinstance(end, str) for end in link)
            for link in links
        )
    ):
        return OverlayTree([(left, right) for left, right in links])
    raise ConfigurationError('a plan needs links, such as [["A", "B"]], or a move of three brokers')


def _options(wanted: Mapping[str, Any]) -> PlanOptions:
    degree_max = wanted.get("degree_max")
    if degree_max is not None and (isinstance(degree_max, bool) or not isinstance(degree_max, int)):
        raise ConfigurationError("degree_max is a number")
    return PlanOptions(degree_max=degree_max)

"""How are steps done on a live network, whatever happens meanwhile?

A step is asked for, and then looked at: what the brokers themselves show decides whether it is done, not
whether an answer came. So an answer that was lost with its connection costs nothing but time, and a step
that was refused for the moment is asked for again.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from braid.cli.connection_options import Door
from braid.cli.overlay_crawl import Network, append_broker, ask, crawl
from braid.errors import BraidError, ConfigurationError, NetworkError, RequestRefusedError
from braid.reconfiguration import Append, OverlayTree, Shift, Step
from braid.reconfiguration.plan_run import brokers_of

__all__ = ["LiveNetwork", "tree_of"]

# A refusal with one of these codes will not be another answer later.
_FOR_GOOD: Final = frozenset(
    {"argument", "authentication", "clients", "denied", "elsewhere", "inner", "linked", "unknown", "version"}
)
# How often brokers are looked at until they show what has become of a step, at first and at most.
LOOK_S: Final = 0.05
LOOK_S_MAX: Final = 1.0


def tree_of(network: Network) -> OverlayTree:
    """The tree that a crawl has found.

    Raises:
        NetworkError: not everybody answers, or not every link is up: then it is not known what it looks like.
    """
    problems = []
    links: set[tuple[str, str]] = set()
    for report in network.reports:
        if report.problem:
            problems.append(f"{report.broker or report.address} does not answer: {report.problem}")
        for link in report.links:
            if link["up"]:
                links.add((report.broker, link["neighbour"]))
            else:
                problems.append(f"the link from {report.broker} to {link['neighbour']} is down")
        problems += [f"{report.broker} has not reached {address} yet" for address in report.unreached]
    for left, right in sorted(links):
        if (right, left) not in links and not problems:
            problems.append(f"{left} has a link to {right}, which knows nothing of it")
    if problems:
        more = f" (and {len(problems) - 3} more problems)" if len(problems) > 3 else ""
        raise NetworkError(f"the network is not whole: {'; '.join(problems[:3])}{more}")
    return OverlayTree(
        [link for link in links if link[0] < link[1]], [report.broker for report in network.reports]
    )


class LiveNetwork:
    """A network of running brokers, which steps are done on."""

    def __init__(
        self,
        broker: str,
        door: Door,
        *,
        by: str = "",
        step_s_max: float = 120.0,
        addresses: Mapping[str, str] | None = None,
    ) -> None:
        """
        Args:
            broker: the address of one of them.
            door: how to come in.
            by: which protocol does a SHIFT; empty for the brokers' own choice.
            step_s_max: how long one step may take, with everything that goes wrong meanwhile.
            addresses: of brokers that are not in the network yet.
        """
        self._broker = broker
        self._door = door
        self._by = by
        self._step_s_max = step_s_max
        self.addresses = dict(addresses or {})
        """Where brokers listen, as far as that is known."""
        # Operations have ids of their own, so that nobody takes one run's for another's.
        self._run = secrets.token_hex(6)
        self._asked = 0

    async def tree(self) -> OverlayTree:
        """What the network looks like now.

        Raises:
            NetworkError: it is not whole, or nobody answers.
        """
        network = await crawl(self._broker, self._door)
        for report in network.reports:
            if report.broker and not report.problem:
                self.addresses[report.broker] = report.address
        return tree_of(network)

    async def whole_tree(self, seconds_max: float) -> OverlayTree:
        """The same, once the network is whole."""
        deadline_s = time.monotonic() + seconds_max
        while True:
            try:
                return await self.tree()
            except NetworkError:
                if time.monotonic() > deadline_s:
                    raise
            await asyncio.sleep(LOOK_S_MAX)

    def require_addresses(self, steps: Iterable[Step]) -> None:
        """Nothing, if it is known where everybody listens whom these steps concern.

        Raises:
            ConfigurationError: it is not.
        """
        for step in steps:
            for broker in brokers_of(step):
                self._address(broker)

    async def do(self, step: Step) -> None:
        """Carry out one step; what the brokers show afterwards counts.

        Raises:
            BraidError: it was not done in time, or cannot be.
        """
        await self._do(step, partial(self._ask_for, step))

    async def move_at_once(self, path: Sequence[str]) -> None:
        """Hang the first broker of a path on the last one instead of the second, by a delta-move.

        Raises:
            BraidError: it was not done in time, or cannot be.
        """
        moving, old, *_, new = path
        asked = {"operation": "delta", "path": ",".join(path)}
        await self._do(Shift(moving, old, new), partial(self._ask_to_move, moving, asked))

    async def _do(self, step: Step, ask_for_it: Callable[[], Awaitable[None]]) -> None:
        self.require_addresses([step])
        deadline_s = time.monotonic() + self._step_s_max
        pause_s = LOOK_S
        while True:
            problem: BraidError | None = None
            try:
                await ask_for_it()
            except RequestRefusedError as error:
                if error.code in _FOR_GOOD and not await self._done(step, deadline_s):
                    raise
                problem = error
            except BraidError as error:
                problem = error
            if await self._done(step, deadline_s):
                return
            if time.monotonic() + pause_s > deadline_s:
                raise problem or NetworkError("the brokers say that it is done, and show that it is not")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LOOK_S_MAX)

    async def _ask_for(self, step: Step) -> None:
        if isinstance(step, Shift):
            arguments = {"operation": "shift", "moving": step.moving, "old": step.old, "new": step.new}
            if self._by:
                arguments["by"] = self._by
            await self._ask_to_move(step.moving, arguments)
        elif isinstance(step, Append):
            await append_broker(self._address(step.broker), self._address(step.neighbour), self._door)
        else:
            await ask(self._address(step.broker), "detach", self._door)

    async def _ask_to_move(self, moving: str, arguments: Mapping[str, str]) -> None:
        patient = replace(self._door, timeout_s=self._step_s_max)
        self._asked += 1
        name = f"{self._run}.{self._asked}"
        await ask(self._address(moving), "reconfigure", patient, **arguments, id=name)

    async def _done(self, step: Step, deadline_s: float) -> bool:
        """Whether a step is done; waits until the brokers concerned agree about it.

        Raises:
            NetworkError: they did not, in time.
        """
        pause_s = LOOK_S
        while True:
            found = await self._look(step)
            if isinstance(found, bool):
                return found
            if time.monotonic() + pause_s > deadline_s:
                raise NetworkError(
                    f"after {self._step_s_max:g} s it is not known whether it is done: {found}"
                )
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LOOK_S_MAX)

    async def _look(self, step: Step) -> bool | str:
        """Whether it is done, or why that cannot be said yet."""
        moving, *others = (
            (step.moving, step.new, step.old) if isinstance(step, Shift) else (step.broker, step.neighbour)
        )
        try:
            mine = await self._links(moving)
            theirs = [await self._links(other) for other in others]
        except BraidError as error:
            return str(error)
        seen = []
        for other, links in zip(others, theirs, strict=True):
            if (other in mine) is not (moving in links):
                return f"{moving} and {other} do not agree whether they are linked"
            if not mine.get(other, True) or not links.get(moving, True):
                return f"the link between {moving} and {other} is down"
            seen.append(other in mine)
        if isinstance(step, Shift):
            if seen[0] is seen[1]:
                return (
                    f"{moving} is linked to {'both' if seen[0] else 'neither'} of {step.new} and {step.old}"
                )
            return seen[0]
        return seen[0] is isinstance(step, Append)

    async def _links(self, broker: str) -> dict[str, bool]:
        """A broker's neighbours, and whether each link is up."""
        overlay = await ask(self._address(broker), "overlay", self._door)
        return {link["neighbour"]: bool(link["up"]) for link in overlay["links"]}

    def _address(self, broker: str) -> str:
        if broker not in self.addresses:
            raise ConfigurationError(
                f"it is not known where {broker!r} listens: it is not in the network; give its address "
                f"with --address {broker}=host:port, or in the plan's addresses"
            )
        return self.addresses[broker]

"""The acts: what is done to the network while quotes are published."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from braid.cli.network_demo.processes import DOOR
from braid.cli.overlay_apply import do_steps
from braid.cli.overlay_crawl import ask_whoever, crawl
from braid.cli.overlay_live import LiveNetwork
from braid.cli.overlay_replicate import replicate
from braid.errors import ConfigurationError
from braid.reconfiguration import OverlayTree, PlanRun, RunState, find_plan
from braid.reconfiguration.trees import link_between

if TYPE_CHECKING:
    from collections.abc import Callable

    from braid.cli.network_demo.clients import Clients
    from braid.cli.network_demo.processes import DemoBrokers
    from braid.cli.network_demo.settings import DemoSettings
    from braid.cli.network_demo.show import Show

__all__ = ["ACTS", "VICTIM_TRACE_S", "Story", "broad_tree", "middle_tree"]

ACTS: Final = {
    "tree": "the tree alone",
    "learn": "learning shortcuts",
    "soft": "with soft links",
    "organise": "reorganising",
    "organised": "reorganised tree",
    "kill": "a broker killed",
    "plan": "plan under way",
    "planned": "tree of the plan",
}
"""What was published under these names, and what it is called."""

# How much of its trace the broker that is killed may lose: only what belongs to that act.
VICTIM_TRACE_S: Final = 2.0
# How long it is away.
AWAY_S: Final = 1.5
# Without a replacement, receipts are not waited for as long as usual: they cannot come.
PATIENCE_UNREPLACED_S: Final = 5.0
PARALLEL: Final = 3


class Story:
    """Plays the acts on a network."""

    def __init__(
        self, settings: DemoSettings, brokers: DemoBrokers, clients: Clients, victim: str, show: Show
    ) -> None:
        """
        Args:
            settings: of the run.
            brokers: the processes.
            clients: who publish and read.
            victim: the broker that is killed.
            show: the terminal.
        """
        self.problems: list[str] = []
        """What went wrong, in sentences."""
        self.victim = victim
        self._settings = settings
        self._brokers = brokers
        self._clients = clients
        self._show = show

    async def play(self) -> None:
        """All acts; after a broker that was not replaced there are no more."""
        settings, show = self._settings, self._show
        with show.act("The tree alone", "Every quote goes along the links of one tree."):
            await self._publish("tree", settings.act_s)
        with show.act("Soft links", "Brokers learn shortcuts to those they often have something for."):
            await self._learn()
        with show.act(
            "A better tree",
            "Without shortcuts again: brokers compare what they want, and replace links by themselves.",
        ):
            await self._organise()
        with show.act(
            f"kill -9 {self.victim}",
            "A broker in the middle of the tree dies while quotes flow; a standby takes its place.",
        ):
            await self._kill()
        if not settings.replace:
            return
        with show.act(
            "A plan",
            "An operator wants a broad tree; quotes flow on, and every step keeps the network whole.",
        ):
            await self._plan()

    # Acts.

    async def _learn(self) -> None:
        await self._choose("strategy", strategy="S2")
        await self._publish("learn", self._settings.learn_s)
        network = await crawl(self._brokers.first.address, DOOR)
        soft = sum(len(report.mesh.get("soft_links", ())) for report in network.reports)
        self._show.say(f"{soft} soft links were learned")
        await self._publish("soft", self._settings.act_s)
        await self._choose("strategy", strategy="S0")

    async def _organise(self) -> None:
        live = self._live()
        before = await live.whole_tree(self._settings.patience_s)
        await self._choose("topology", policy="exact")
        await self._publish("organise", self._settings.learn_s)
        await self._choose("topology", policy="static")  # from here on the tree is to stay as it is
        after = await live.whole_tree(self._settings.patience_s)
        exchanged = len(set(before.links) - set(after.links))
        self._show.say(f"brokers replaced {exchanged} of {len(before.links)} links by themselves")
        await self._publish("organised", self._settings.act_s)

    async def _kill(self) -> None:
        settings, show = self._settings, self._show
        patience_s = settings.patience_s if settings.replace else PATIENCE_UNREPLACED_S
        await self._put_in_the_middle()
        publishing = asyncio.create_task(
            self._publish("kill", settings.act_s + 2 * AWAY_S + VICTIM_TRACE_S, patience_s)
        )
        neighbours = (await self._live().whole_tree(settings.patience_s)).neighbours(self.victim)
        await asyncio.sleep(max(settings.act_s / 3, 1.5 * VICTIM_TRACE_S))
        self._brokers[self.victim].kill()
        show.say(f"{self.victim} was killed with kill -9 while quotes were under way")
        await asyncio.sleep(AWAY_S)
        if settings.replace:
            addresses = [self._brokers[name].address for name in neighbours]
            replaced = await replicate(
                self.victim, self._brokers.standby.address, addresses, DOOR, say=show.say
            )
            show.say(
                f"a standby has taken its name and its place, linked to {', '.join(replaced.granted_by)} "
                f"({replaced.took_s:.1f} s)"
            )
        else:
            show.say("it is not replaced")
            self.problems.append(
                f"broker {self.victim} was killed and nothing replaced it: what was for those behind it "
                "waits at its neighbours"
            )
        await publishing
        if settings.replace:
            await self._live().whole_tree(settings.patience_s)

    async def _put_in_the_middle(self) -> None:
        """A broker without readers of its own ends up at the edge, where nobody would feel its death."""
        live = self._live()
        tree = await live.whole_tree(self._settings.patience_s)
        goal = middle_tree(tree, self.victim)
        if goal != tree:
            await self._change(live, tree, goal, self._show.now)
        self._show.say(
            f"{self.victim} is in the middle of the tree: whatever its {goal.degree(self.victim)} neighbours "
            "have for each other passes through it"
        )

    async def _plan(self) -> None:
        live = self._live()
        start = await live.whole_tree(self._settings.patience_s)
        goal = broad_tree(start.brokers)
        publishing = asyncio.create_task(self._publish("plan", self._settings.act_s))
        await self._change(live, start, goal, self._show.now)
        found = await live.whole_tree(self._settings.patience_s)
        changed = len(set(start.links) - set(goal.links))
        if found != goal:
            self.problems.append("the tree is not the one that was planned")
        self._show.say(
            f"{changed} of {len(goal.links)} links were replaced, step by step, while quotes were published"
        )
        await publishing
        await self._publish("planned", self._settings.act_s)

    # Their parts.

    async def _publish(self, act: str, seconds: float, patience_s: float | None = None) -> None:
        clients, before = self._clients, len(self._clients.published)
        problem = await clients.publish(
            act,
            seconds,
            self._settings.patience_s if patience_s is None else patience_s,
            lambda: self._show.now(
                f"{ACTS[act]}: published {len(clients.published) - before:,}, "
                f"read {len(clients.received):,} in all"
            ),
        )
        await clients.settle()
        if problem and self._settings.replace:
            self.problems.append(problem)
        self._show.say(f"{ACTS[act]}: {len(clients.published) - before:,} quotes published")

    async def _choose(self, topic: str, **choice: str) -> None:
        """Have all brokers choose a strategy or a policy."""
        first = self._brokers.first.address
        for report in await ask_whoever(first, DOOR, topic, topic, choice, everywhere=True):
            if report.problem:
                raise ConfigurationError(f"{report.broker} does not change its {topic}: {report.problem}")

    def _live(self) -> LiveNetwork:
        return LiveNetwork(self._brokers.first.address, DOOR)

    async def _change(
        self,
        live: LiveNetwork,
        start: OverlayTree,
        goal: OverlayTree,
        show: Callable[[str], None] = lambda text: None,
    ) -> OverlayTree:
        """Carry out the plan from one tree to another; what the tree is then."""
        run = PlanRun(find_plan(start, goal).plan, start, parallel=PARALLEL)
        live.require_addresses(run.plan.steps)
        state = await do_steps(run, live, show)
        if state is not RunState.FINISHED:
            self.problems.append(f"a change of the tree was not finished: {run.problem or state.value}")
        return await live.whole_tree(self._settings.patience_s)


def middle_tree(tree: OverlayTree, broker: str) -> OverlayTree:
    """The tree with this broker between the best connected one and half of that one's neighbours."""
    beside = tree.neighbours(broker)
    links = {link for link in tree.links if broker not in link}
    # Who hung on it, or behind it, hangs together without it.
    links.update(link_between(beside[0], other) for other in beside[1:])
    rest = OverlayTree(links, [name for name in tree.brokers if name != broker])
    centre = max(rest.brokers, key=lambda name: (rest.degree(name), name))
    around = rest.neighbours(centre)
    moved = around[: max(1, len(around) // 2)]
    links -= {link_between(centre, other) for other in moved}
    links.add(link_between(centre, broker))
    links.update(link_between(broker, other) for other in moved)
    return OverlayTree(links, tree.brokers)


def broad_tree(brokers: tuple[str, ...]) -> OverlayTree:
    """At most four links at a broker, and ways as short as that allows."""
    names = sorted(brokers)
    return OverlayTree([(names[(place - 1) // 3], names[place]) for place in range(1, len(names))], names)

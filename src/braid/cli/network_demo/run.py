"""One run of the demo, from the first broker to the verdict; whatever happens, no process is left running."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer
from rich.markup import escape

from braid.cli.network_demo.clients import Clients
from braid.cli.network_demo.figures import judge
from braid.cli.network_demo.market import open_market
from braid.cli.network_demo.processes import DashboardProcess, DemoBrokers, long_tree
from braid.cli.network_demo.report import write_report
from braid.cli.network_demo.settings import DemoSettings
from braid.cli.network_demo.show import LEGEND, UNKNOWN, Show, figures_table
from braid.cli.network_demo.story import ACTS, VICTIM_TRACE_S, Story
from braid.cli.terminal import json_text
from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.console import Console

    from braid.cli.network_demo.figures import Judgement

__all__ = ["network_demo"]

PACKAGES: Final = ("pyarrow", "pyspark", "prometheus_client", "starlette", "uvicorn")


def _require_packages() -> None:
    """Raise a `ConfigurationError` that says what to install, unless all that is needed later is there."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"the demo of a network needs {', '.join(missing)}; install them with: "
            "pip install 'braid-pubsub[demo]' (braid demo --embedded needs nothing)"
        )


def network_demo(
    *,
    brokers: int,
    act_s: float | None,
    keep: bool,
    replace: bool,
    dashboard: bool,
    out: Path | None,
    seed: int,
    as_json: bool,
) -> int:
    """Run it, print it, and leave a report; the exit code.

    Raises:
        ConfigurationError: something is missing, or did not start; the message says what, and where to look.
    """
    from rich.console import Console

    _require_packages()
    from braid.pipeline.java import find_java

    find_java()  # that there is none is said now, and not after two minutes
    act_s = 7.0 if act_s is None else act_s
    settings = DemoSettings(
        directory=_new_directory(out),
        brokers=brokers,
        act_s=act_s,
        learn_s=1.8 * act_s,
        replace=replace,
        dashboard=dashboard,
        keep=keep,
        seed=seed,
    )
    return _run(settings, Console(stderr=as_json, highlight=False), as_json=as_json)


def _new_directory(wanted: Path | None) -> Path:
    """A folder that nothing is in yet."""
    if wanted is not None:
        if wanted.exists() and any(wanted.iterdir()):
            raise ConfigurationError(f"{wanted} is not empty; choose another folder with --out")
        wanted.mkdir(parents=True, exist_ok=True)
        return wanted.resolve()
    number = 1
    while True:
        found = Path(f"demo-{number}")
        try:
            found.mkdir()
        except FileExistsError:
            number += 1
            continue
        return found.resolve()


def _run(settings: DemoSettings, console: Console, *, as_json: bool) -> int:
    show = Show(console)
    began_s = time.monotonic()
    with ExitStack() as stack:
        judgement, problems = asyncio.run(_Run(settings, show).go(stack))
        report = settings.directory / "report.html"
        facts = {
            "brokers": f"{settings.brokers} processes on loopback",
            "elapsed": f"{time.monotonic() - began_s:.0f} s",
            "files": str(settings.directory),
        }
        write_report(report, judgement, ACTS, facts, show.times_s, problems)
        if as_json:
            typer.echo(json_text({**judgement.to_json(), "problems": problems}))
        else:
            _print_verdict(console, settings, judgement, problems, time.monotonic() - began_s)
            console.print(f"report: {report}", soft_wrap=True, highlight=False)
    return 1 if problems or judgement.wrong or not judgement.total("delivered") else 0


def _print_verdict(
    console: Console, settings: DemoSettings, judgement: Judgement, problems: list[str], elapsed_s: float
) -> None:
    console.print()
    console.print(figures_table(judgement, ACTS))
    total = judgement.to_json()
    held = (
        f"; none held back quotes for more than {total['held_ms_max']:,.0f} ms"
        if total["held_ms_max"]
        else ""
    )
    console.print(f"\n{LEGEND}", soft_wrap=True, style="dim")
    if any(act.mean_hops is None for act in judgement.acts):
        console.print(UNKNOWN, soft_wrap=True, style="dim")
    console.print(
        f"\npublished {total['published']:,}, delivered {total['delivered']:,}, lost {total['lost']:,}, "
        f"doubled {total['doubled']:,}; {total['shifts']} steps changed the tree{held}",
        soft_wrap=True,
    )
    for problem in problems:
        console.print(f"[bold red]{escape(problem)}[/bold red]", soft_wrap=True)
    if problems or judgement.wrong:
        console.print(
            f"[bold red]FAILED[/bold red]: logs, traces and tables are in {settings.directory}; look at "
            f"the log of the broker named above, or: braid pipeline metrics {settings.directory / 'traces'}",
            soft_wrap=True,
        )
    else:
        console.print(f"[bold green]nothing was lost and nothing doubled[/bold green], in {elapsed_s:.0f} s")


class _Run:
    """The parts of a run that need an event loop."""

    def __init__(self, settings: DemoSettings, show: Show) -> None:
        self._settings = settings
        self._show = show

    async def go(self, stack: ExitStack) -> tuple[Judgement, list[str]]:
        """Play all acts, end the brokers, and judge."""
        settings, show = self._settings, self._show
        market = open_market(settings.seed)
        dials = long_tree(settings.brokers)
        names = list(dials)
        # An inner broker, and none where quotes are published.
        victim = names[1]
        publishing = tuple(dict.fromkeys((names[-3], names[-2], names[-1], names[len(names) // 2])))
        # What it is told by clients is not kept anywhere else, so it has none of its own.
        filters = market.filters([name for name in names if name != victim], settings.seed)
        with show.act(
            "A network", f"{len(names)} brokers, each a process of its own, linked to one long tree."
        ):
            brokers = DemoBrokers(
                settings.directory, dials, _tables(names), {victim: {"trace": {"age_s_max": VICTIM_TRACE_S}}}
            )
            stack.callback(brokers.stop)
            brokers.start()
            show.now("brokers are starting")
            dashboard = self._dashboard(brokers, stack)
            show.say(f"{await brokers.ready()} brokers are ready, and a standby")
            if dashboard is not None:
                await asyncio.to_thread(dashboard.wait)
                show.say(f"dashboard: {dashboard.url}")
            clients = Clients(
                {name: broker.address for name, broker in brokers.by_name.items()},
                market,
                filters,
                frozenset({names[2]}),
                publishing,
                settings.rate,
            )
            readers = await clients.subscribe()
            show.say(f"{readers} readers each want a part of {market.origin}")
            show.say(f"quotes are published at {len(publishing)} brokers")
        async with clients:
            story = Story(settings, brokers, clients, victim, show)
            await story.play()
            if settings.keep:
                await self._keep()
        with show.act("The verdict", "Spark reads what brokers and clients wrote down."):
            show.now("brokers hand over what they hold and end")
            await asyncio.to_thread(brokers.stop)
            clients.write(settings.directory / "clients")
            show.now("Spark is starting")
            judgement = await asyncio.to_thread(
                judge,
                brokers.traces,
                settings.directory / "clients",
                list(ACTS),
                {"kill": "a part of the trace was killed with the broker"},
            )
        if judgement.wrong:
            story.problems.append(
                f"lost {judgement.total('lost'):,}, doubled {judgement.total('doubled'):,}, delivered to "
                f"readers that had not asked {judgement.total('uninvited'):,}"
            )
        return judgement, story.problems

    def _dashboard(self, brokers: DemoBrokers, stack: ExitStack) -> DashboardProcess | None:
        if not self._settings.dashboard:
            return None
        dashboard = DashboardProcess(brokers.first.address, self._settings.directory / "dashboard.log")
        stack.callback(dashboard.stop)
        return dashboard

    async def _keep(self) -> None:
        """Leave everything running until Ctrl-C or SIGTERM."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        self._show.console.print("\neverything goes on running until Ctrl-C; the verdict comes after that")
        try:
            await stop.wait()
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)


def _tables(names: list[str]) -> dict[str, dict[str, Any]]:
    return {
        # Delta is what shortcuts need to be seen; the strategy begins with the tree alone.
        "broker": {"strategy": "S0", "delta": 5, "redial_us_max": 500_000, "drain_us_max": 4_000_000},
        "soft_links": {"fanout": 6, "candidates_max": 4, "review_us": 1_000_000},
        # Links and messages cost the same everywhere, so that the cost of a tree is what figures count.
        "topology": {
            "policy": "static",
            "interval_us": 1_500_000,
            "processing_cost": 1.0,
            "link_costs": [f"{name}=1" for name in names],
            "degree_max": 4,
        },
        # Few files for Spark. What is killed would lose that much: see `VICTIM_TRACE_S`.
        "trace": {"age_s_max": 600.0},
        "log": {"level": os.environ.get("BRAID_DEMO_LOG", "info")},
    }

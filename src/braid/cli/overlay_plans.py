"""How is the tree of a running network changed on purpose?

`braid overlay plan` finds the steps to another tree and writes them down, `apply` carries them out and
`progress` watches or steers that; `shift`, `move` and `drain` are small plans that are made and carried out
at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from braid.cli.connection_options import BROKER_DEFAULT, Broker, Door, with_door
from braid.cli.terminal import examples, json_text, say
from braid.errors import BraidError, ConfigurationError

if TYPE_CHECKING:
    from braid.cli.overlay_apply import Noticeboard
    from braid.reconfiguration import FoundPlan, OverlayTree, Step, WrittenPlan

__all__ = ["add_plans", "plan_report"]

# How long --continue waits for all brokers to be there.
WHOLE_S_MAX: Final = 30.0

_BY = Annotated[
    str,
    typer.Option("--by", metavar="PROTOCOL", help="How the brokers do a SHIFT; left out, as they see fit."),
]
_STEP_S = Annotated[
    float,
    typer.Option("--step-timeout", min=0.1, metavar="SECONDS", help="How long one step may take."),
]
_PLAN = Annotated[Path, typer.Argument(metavar="PLAN", help="A file that braid overlay plan has written.")]
_JSON = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]


@with_door(3.0)
def plan(
    to: Annotated[Path, typer.Option("--to", metavar="TREE", help="A file with the tree that is wanted.")],
    broker: Broker = BROKER_DEFAULT,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="PLAN", help="Write the plan into this file.")
    ] = None,
    degree_max: Annotated[
        int | None,
        typer.Option("--degree-max", min=2, metavar="N", help="Links that a broker may have at any step."),
    ] = None,
    keep_near: Annotated[
        list[str] | None,
        typer.Option(
            "--keep-near",
            metavar="A,B,HOPS",
            help="Never let A and B be further apart than this. May be repeated.",
        ),
    ] = None,
    region: Annotated[
        str, typer.Option("--region", metavar="A,B,...", help="Brokers whose links should be changed first.")
    ] = "",
    as_json: _JSON = False,
    *,
    door: Door,
) -> None:
    """Find the steps from the network as it is to another tree, and show what they will cost.

    The tree is a JSON file: {"links": [["A", "B"], ["B", "C"]]}; braid overlay show --tree prints the one
    that is there. Brokers that only the file names are appended, others are detached. Nothing is changed.
    """
    from braid.cli.overlay_live import LiveNetwork
    from braid.reconfiguration import PlanOptions, WrittenPlan, decode_tree, encode_plan, find_plan

    goal, addresses = decode_tree(_read(to), str(to))
    options = PlanOptions(
        degree_max=degree_max,
        paths_max=_paths(keep_near or []),
        region=frozenset(filter(None, region.split(","))),
    )
    live = LiveNetwork(broker, door)
    found = find_plan(asyncio.run(live.tree()), goal, options)
    # With the addresses of those who leave it can be undone.
    leaving = {name: where for name, where in live.addresses.items() if name not in goal}
    if out is not None:
        out.write_bytes(encode_plan(WrittenPlan(found.plan, {**leaving, **addresses})))
    typer.echo(json_text(plan_report(found)) if as_json else _plan_text(found))
    if out is not None and not as_json:
        typer.echo(f"written to {out}; braid overlay apply {out} carries it out")


@with_door(3.0)
def apply(
    file: _PLAN,
    broker: Broker = BROKER_DEFAULT,
    go_on: Annotated[
        bool, typer.Option("--continue", help="Go on from wherever on its way the network is.")
    ] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Carry it out backwards, from its goal.")] = False,
    parallel: Annotated[
        int,
        typer.Option("--parallel", min=1, max=32, metavar="N", help="Independent steps that run at a time."),
    ] = 1,
    address: Annotated[
        list[str] | None,
        typer.Option("--address", metavar="ID=ADDRESS", help="Where a broker that is appended listens."),
    ] = None,
    by: _BY = "",
    step_timeout: _STEP_S = 120.0,
    *,
    door: Door,
) -> None:
    """Carry out a plan on the live network, step by step; it may rest for any time between two steps.

    It is refused unless the network is where the plan starts. Ctrl-C finishes the steps that are under way
    and stops there, and so does braid overlay progress PLAN stop. After that, or after a crash of this
    command or of a broker, --continue goes on.

    Exit code 1: it was stopped, or a step could not be done; what was done stays done.
    """
    from braid.reconfiguration import WrittenPlan, decode_plan

    written = decode_plan(_read(file), str(file))
    if undo:
        written = WrittenPlan(written.plan.undo, written.addresses)
    way = _Way(broker, door, by, step_timeout, _addresses(address or []), parallel)
    _apply_file(file, written, way, anew=not go_on, undo=undo)


def progress(
    file: _PLAN,
    word: Annotated[
        str,
        typer.Argument(
            metavar="[pause|resume|stop]", help="What it should do. Left out: only show how far it is."
        ),
    ] = "",
    as_json: _JSON = False,
) -> None:
    """Say how far a plan on this machine has got, or have it pause, go on or stop between two steps."""
    from braid.cli.overlay_apply import read_progress, wish

    if word:
        wish(file, word)
    found = read_progress(file)
    if as_json:
        typer.echo(json_text(found))
        return
    running = f"; under way: {', '.join(found['running'])}" if found["running"] else ""
    problem = f"; {found['problem']}" if found["problem"] else ""
    typer.echo(f"{found['state']}: {found['done']} of {found['steps']} steps are done{running}{problem}")


@with_door(3.0)
def shift(
    moving: Annotated[str, typer.Argument(metavar="ID", help="The broker that moves, with all behind it.")],
    old: Annotated[str, typer.Option("--from", metavar="ID", help="The neighbour that it leaves.")],
    new: Annotated[str, typer.Option("--to", metavar="ID", help="Its new neighbour, beside the old one.")],
    broker: Broker = BROKER_DEFAULT,
    by: _BY = "",
    step_timeout: _STEP_S = 120.0,
    *,
    door: Door,
) -> None:
    """Link a broker to a neighbour of its neighbour while publications flow; nothing is lost or reordered."""
    from braid.reconfiguration import Shift

    _apply_at_once(lambda tree: [Shift(moving, old, new)], _Way(broker, door, by, step_timeout))


@with_door(3.0)
def move(
    moving: Annotated[str, typer.Argument(metavar="ID", help="The broker that moves, with all behind it.")],
    old: Annotated[str, typer.Option("--from", metavar="ID", help="The neighbour that it leaves.")],
    new: Annotated[
        str, typer.Option("--to", metavar="ID", help="Its new neighbour, anywhere in the network.")
    ],
    broker: Broker = BROKER_DEFAULT,
    by: Annotated[
        str,
        typer.Option(
            "--by",
            metavar="shift|delta|PROTOCOL",
            help="By SHIFTs, at once by a delta-move, or by SHIFTs of this protocol.",
        ),
    ] = "shift",
    step_timeout: _STEP_S = 120.0,
    *,
    door: Door,
) -> None:
    """Link a broker to any other one instead, while publications flow.

    By one SHIFT for each link between the two, each of which pauses three brokers; or by a delta-move, which
    pauses nobody and sends what is for the broker that moves both ways for a while.
    """
    from braid.reconfiguration import move as moved

    if by == "delta":
        asyncio.run(_move_at_once(moving, old, new, _Way(broker, door, by, step_timeout)))
        return
    way = _Way(broker, door, "" if by == "shift" else by, step_timeout)
    _apply_at_once(lambda tree: moved(tree, moving, old, new), way)


@with_door(3.0)
def drain(
    drained: Annotated[str, typer.Argument(metavar="ID", help="The broker that is to be spared.")],
    keep: Annotated[
        str, typer.Option("--keep", metavar="ID", help="The neighbour that it stays linked to.")
    ] = "",
    broker: Broker = BROKER_DEFAULT,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="PLAN", help="Where the plan is kept: drain-ID.json."),
    ] = None,
    by: _BY = "",
    step_timeout: _STEP_S = 120.0,
    *,
    door: Door,
) -> None:
    """Rewire the network around a broker, so that it can be stopped, patched and started again.

    It keeps one link, its clients and its logs: what comes for them meanwhile waits at that neighbour.
    All other links lead around it. The plan is kept in a file, and braid overlay apply PLAN --undo puts
    everything back.
    """
    from braid.cli.overlay_live import LiveNetwork
    from braid.reconfiguration import Plan, WrittenPlan, encode_plan, sequester

    tree = asyncio.run(LiveNetwork(broker, door).tree())
    beside = tree.neighbours(drained)
    if len(beside) < 2 and keep in ("", *beside):
        typer.echo(f"{drained} is an outer broker: nothing leads through it, and it can be stopped as it is")
        return
    small = Plan(tree, sequester(tree, drained, keep or min(beside, key=tree.degree)))
    file = out or Path(f"drain-{drained}.json")
    file.write_bytes(encode_plan(WrittenPlan(small)))
    _apply_file(file, WrittenPlan(small), _Way(broker, door, by, step_timeout), anew=True, undo=False)
    typer.echo(
        f"{drained} hangs on {small.goal.neighbours(drained)[0]} alone and can be stopped; when it is back: "
        f"braid overlay apply {file} --undo"
    )


def add_plans(overlay: typer.Typer) -> None:
    """Give `braid overlay` the commands of this module."""
    lines: list[tuple[Callable[..., None], tuple[str, ...]]] = [
        (
            plan,
            (
                "braid overlay plan --to tree.json --out plan.json",
                "braid overlay plan --to t.json --degree-max 4",
            ),
        ),
        (apply, ("braid overlay apply plan.json", "braid overlay apply plan.json --continue --parallel 4")),
        (progress, ("braid overlay progress plan.json", "braid overlay progress plan.json pause")),
        (shift, ("braid overlay shift A --from B --to C",)),
        (move, ("braid overlay move A --from B --to Z",)),
        (drain, ("braid overlay drain B", "braid overlay apply drain-B.json --undo")),
    ]
    for command, shown in lines:
        overlay.command(epilog=examples(*shown))(command)


# Carrying out.


@dataclass(frozen=True)
class _Way:
    """How steps are asked for."""

    broker: str
    door: Door
    by: str
    step_s_max: float
    addresses: Mapping[str, str] = field(default_factory=dict)
    parallel: int = 1


def _apply_at_once(steps_on: Callable[[OverlayTree], Iterable[Step]], way: _Way) -> None:
    """Make a small plan for the network as it is, and carry it out."""
    from braid.cli.overlay_live import LiveNetwork
    from braid.reconfiguration import Plan, WrittenPlan

    tree = asyncio.run(LiveNetwork(way.broker, way.door).tree())
    if not asyncio.run(_apply(WrittenPlan(Plan(tree, steps_on(tree))), way, None, anew=True)):
        say("the network is a tree all the same; ask again to go on from there")
        raise typer.Exit(1)


async def _move_at_once(moving: str, old: str, new: str, way: _Way) -> None:
    """Have a broker moved by a delta-move along the path that there is now."""
    from braid.cli.overlay_live import LiveNetwork
    from braid.reconfiguration import move as moved

    live = LiveNetwork(way.broker, way.door, step_s_max=way.step_s_max)
    tree = await live.tree()
    if not moved(tree, moving, old, new):
        typer.echo(f"{moving} is linked to {new} already")
        return
    await live.move_at_once((moving, *tree.path(old, new)))
    typer.echo(f"done: {moving} is linked to {new} instead of {old}")


def _apply_file(file: Path, written: WrittenPlan, way: _Way, *, anew: bool, undo: bool) -> None:
    """Carry out the plan of a file, with its noticeboard beside it."""
    from braid.cli.overlay_apply import Noticeboard

    board = Noticeboard(file)
    with board.held():
        done = asyncio.run(_apply(written, way, board, anew=anew))
    if not done:
        again = f"braid overlay apply {file} --continue{' --undo' if undo else ''}"
        say(f"the network is a tree all the same; to go on: {again}")
        raise typer.Exit(1)


async def _apply(written: WrittenPlan, way: _Way, board: Noticeboard | None, *, anew: bool) -> bool:
    """Carry out a plan; False if it was stopped or a step could not be done."""
    from braid.cli.overlay_apply import carry_out, require_goal
    from braid.cli.overlay_live import LiveNetwork
    from braid.reconfiguration import PlanRun, RunState

    addresses = {**written.addresses, **way.addresses}
    live = LiveNetwork(way.broker, way.door, by=way.by, step_s_max=way.step_s_max, addresses=addresses)
    # After a crash brokers may still be on their way back.
    tree = await (live.tree() if anew else live.whole_tree(WHOLE_S_MAX))
    run = PlanRun(written.plan, tree, parallel=way.parallel, anew=anew)
    live.require_addresses(written.plan.steps)
    if run.done:
        say(f"{len(run.done)} of {len(run.plan)} steps were done before")
    state = await carry_out(run, live, say, board)
    if state is RunState.FINISHED:
        try:
            await require_goal(run, live)
        except BraidError as problem:
            say(f"braid: {problem}")
            return False
        typer.echo(f"done: {len(run.plan)} steps, {run.plan.shifts} of them SHIFTs")
        return True
    say(f"braid: {run.problem}" if run.problem else f"stopped after {len(run.done)} of {len(run.plan)} steps")
    return False


# Reading what was given.


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise ConfigurationError(f"{path} cannot be read: {problem.strerror}") from None


def _paths(wanted: list[str]) -> dict[tuple[str, str], int]:
    found = {}
    for text in wanted:
        left, _, rest = text.partition(",")
        right, _, hops = rest.partition(",")
        if not left or not right or not hops.isdecimal() or int(hops) < 1:
            raise ConfigurationError(
                f"--keep-near needs two brokers and a number of hops, A,B,3; not {text!r}"
            )
        found[left, right] = int(hops)
    return found


def _addresses(given: list[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, _, where = text.partition("=")
        if not name or not where:
            raise ConfigurationError(
                f"--address needs a broker and where it listens, D=10.0.0.4:7000; not {text!r}"
            )
        found[name] = where
    return found


# Showing plans.


def plan_report(found: FoundPlan) -> dict[str, Any]:
    """A plan and what it will be felt like, in plain values."""
    from braid.reconfiguration import disruption_of

    disruption = disruption_of(found.plan)
    return {
        "brokers": len(found.plan.start),
        "steps": [
            {
                "step": str(each.step),
                "brokers_moved": each.brokers_moved,
                "pairs_rerouted": each.pairs_rerouted,
                "links_most": each.links_most,
            }
            for each in disruption.steps
        ],
        "shifts": found.plan.shifts,
        "shifts_min": found.shifts_min,
        "shortest": found.proved,
        "pauses": dict(disruption.pauses),
        "links_most": disruption.links_most,
    }


def _plan_text(found: FoundPlan) -> str:
    report = plan_report(found)
    if not report["steps"]:
        return "the network is that tree already"
    width = max(len(each["step"]) for each in report["steps"])
    lines = []
    for number, each in enumerate(report["steps"], 1):
        felt = "nothing else notices"
        if each["pairs_rerouted"]:
            felt = f"moves {each['brokers_moved']}, {each['pairs_rerouted']} paths change"
        lines.append(f"{number:4}  {each['step']:{width}}  {felt}")
    if found.proved:
        known = "no plan has fewer"
    elif found.shifts_min:
        known = f"no plan has fewer than {found.shifts_min}"
    else:
        known = "brokers come and go"
    pauses = ", ".join(f"{name} {count}" for name, count in report["pauses"].items()) or "nobody"
    lines += [
        f"{len(report['steps'])} steps, {report['shifts']} of them SHIFTs ({known})",
        f"take part in a SHIFT: {pauses}",
        f"no broker has more than {report['links_most']} links on the way",
    ]
    return "\n".join(lines)

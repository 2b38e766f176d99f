"""What does the network look like from one broker, and how is a broker hung on it or taken off?

`braid overlay show` asks one broker for its neighbours, then those for theirs, and so on over the addresses
that brokers tell each other. A broker that does not answer is shown as such.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Annotated, Any

import typer

from braid.cli.connection_options import BROKER_DEFAULT, Broker, Door, with_door
from braid.cli.overlay_plans import add_plans
from braid.cli.terminal import examples
from braid.errors import ConfigurationError

__all__ = ["overlay"]

ComesBack = Annotated[
    str,
    typer.Option(
        "--protocol",
        metavar="NAME",
        help="How what has no receipt is sent again: basic, synchronous, incremental or immediate.",
    ),
]

overlay = typer.Typer(
    help="Look at the network of brokers, and change it.",
    epilog=examples("braid overlay show --broker 127.0.0.1:7000", "braid overlay strategy S2 --all"),
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)


@overlay.command(
    epilog=examples(
        "braid overlay show --broker 127.0.0.1:7000",
        "braid overlay show --json | jq .brokers",
        "braid overlay show --dot | dot -Tsvg > network.svg",
        "braid overlay show --tree > tree.json",
    )
)
@with_door(3.0)
def show(
    broker: Broker = BROKER_DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    as_dot: Annotated[bool, typer.Option("--dot", help="Print a graph for Graphviz.")] = False,
    as_tree: Annotated[
        bool, typer.Option("--tree", help="Print the tree as a file for braid overlay plan.")
    ] = False,
    *,
    door: Door,
) -> None:
    """Show the whole network as it is seen from one broker, with soft links where there are any.

    Exit code 1: some broker could not be reached.
    """
    from braid.cli.overlay_crawl import crawl
    from braid.cli.overlay_views import as_dot_text, print_tree

    if as_json + as_dot + as_tree > 1:
        raise ConfigurationError("one of --json, --dot and --tree")
    network = asyncio.run(crawl(broker, door))
    if as_json:
        typer.echo(json.dumps(network.to_json(), indent=2, ensure_ascii=False))
    elif as_dot:
        typer.echo(as_dot_text(network))
    elif as_tree:
        from braid.cli.overlay_live import tree_of
        from braid.reconfiguration import encode_tree

        typer.echo(encode_tree(tree_of(network)).decode(), nl=False)
    else:
        print_tree(network)
    if not network.complete:
        raise typer.Exit(1)


@overlay.command(epilog=examples("braid overlay append --broker 127.0.0.1:7003 --to 127.0.0.1:7000"))
@with_door(10.0)
def append(
    broker: Broker,
    to: Annotated[str, typer.Option("--to", metavar="ADDRESS", help="The broker to hang it on.")],
    *,
    door: Door,
) -> None:
    """Link a running broker that has no links to another one, and wait until the link is up.

    A broker with a data directory remembers the link across restarts; for one without, name the neighbour in
    its configuration, too.
    """
    from braid.cli.overlay_crawl import append_broker

    linked = asyncio.run(append_broker(broker, to, door))
    typer.echo(f"{linked.broker} is linked to {linked.neighbour}")


@overlay.command(epilog=examples("braid overlay detach --broker 127.0.0.1:7003"))
@with_door(10.0)
def detach(
    broker: Broker,
    *,
    door: Door,
) -> None:
    """Take an outer broker without subscribers off the network; it goes on running alone.

    A broker that lies between others, or that has subscribers of its own, refuses.
    """
    from braid.cli.overlay_crawl import ask

    answer = asyncio.run(ask(broker, "detach", door))
    names = answer.get("detached_from") or []
    where = f"is detached from {', '.join(names)}" if names else "had no links"
    typer.echo(f"{answer.get('broker', broker)} {where}")


@overlay.command(epilog=examples("braid overlay forget C --broker 127.0.0.1:7000"))
@with_door(10.0)
def forget(
    neighbour: Annotated[str, typer.Argument(metavar="ID", help="The neighbour that will not come back.")],
    broker: Broker = BROKER_DEFAULT,
    *,
    door: Door,
) -> None:
    """Have a broker give up a neighbour that is gone for good, and drop what it keeps for it.

    Until then acknowledged publications wait for that neighbour, and in the end their publishers wait, too.
    """
    from braid.cli.overlay_crawl import ask

    answer = asyncio.run(ask(broker, "forget", door, neighbour=neighbour))
    dropped = answer.get("dropped_bytes", 0)
    typer.echo(f"{answer.get('broker', broker)} has forgotten {neighbour}; {dropped:,} bytes were dropped")


@overlay.command(
    epilog=examples(
        "braid overlay replicate F --standby 127.0.0.1:7009 --broker 127.0.0.1:7000",
        "braid overlay replicate F --standby 127.0.0.1:7009 --without G",
        "braid overlay replicate F --standby 127.0.0.1:7009 --protocol immediate",
    )
)
@with_door(10.0)
def replicate(
    name: Annotated[str, typer.Argument(metavar="ID", help="The broker that is gone.")],
    standby: Annotated[
        str, typer.Option("--standby", metavar="ADDRESS", help="The process that is to have its place.")
    ],
    brokers: Annotated[
        list[str] | None,
        typer.Option("--broker", "-b", metavar="ADDRESS", help="A broker of the network; repeatable."),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option("--without", metavar="ID", help="A neighbour that is gone, too; repeatable."),
    ] = None,
    within: Annotated[
        float, typer.Option("--within", min=0.1, metavar="SECONDS", help="How long this may take.")
    ] = 60.0,
    protocol: ComesBack = "synchronous",
    *,
    door: Door,
) -> None:
    """Have a standby take the name and the place of a broker that is gone, and wait until it is linked.

    All neighbours grant the name first. From then on they refuse the old process, which stops by itself if
    it ever comes back. A standby is a process started with braid broker --standby. Routing tables come from
    the neighbours; what waits there for the broker goes to its replica.
    """
    from braid.cli.overlay_replicate import replicate
    from braid.cli.terminal import say

    replaced = asyncio.run(
        replicate(
            name,
            standby,
            brokers or [BROKER_DEFAULT],
            door,
            without=without or (),
            protocol=protocol,
            seconds_max=within,
            say=lambda text: say(f"braid: {text}"),
        )
    )
    typer.echo(
        f"{replaced.broker} is at {replaced.address} now, linked to {', '.join(replaced.granted_by)} "
        f"(epoch {replaced.epoch}, {replaced.took_s:.1f} s)"
    )


@overlay.command(
    epilog=examples(
        "braid overlay guard --standby 127.0.0.1:7009 --standby 127.0.0.1:7010 --broker 127.0.0.1:7000",
        "braid overlay guard --start ./new-standby.sh --patience 30",
    )
)
@with_door(5.0)
def guard(
    brokers: Annotated[
        list[str] | None,
        typer.Option("--broker", "-b", metavar="ADDRESS", help="A broker of the network; repeatable."),
    ] = None,
    standbys: Annotated[
        list[str] | None,
        typer.Option(
            "--standby", metavar="ADDRESS", help="A standby process that waits to take a place; repeatable."
        ),
    ] = None,
    start: Annotated[
        str,
        typer.Option(
            "--start",
            metavar="COMMAND",
            help="Starts another standby when none is left, and prints its address.",
        ),
    ] = "",
    patience: Annotated[
        float,
        typer.Option(
            "--patience",
            min=0.1,
            metavar="SECONDS",
            help="How long a broker must be gone before it is replaced.",
        ),
    ] = 10.0,
    suspicion: Annotated[
        float,
        typer.Option(
            "--suspicion", min=0.1, help="How unusual an absence must be; 3: longer than 999 in 1,000 before."
        ),
    ] = 3.0,
    interval: Annotated[
        float, typer.Option("--interval", min=0.05, metavar="SECONDS", help="Time between two looks.")
    ] = 1.0,
    count: Annotated[
        int,
        typer.Option("--count", "-n", min=0, metavar="N", help="End after this many; 0: never."),
    ] = 0,
    protocol: ComesBack = "synchronous",
    *,
    door: Door,
) -> None:
    """Look after a network: a broker that all its neighbours miss is replaced by the next standby.

    Suspicion grows with the length of an absence, against those after which the broker came back before. Run
    one guard per network. Ends with Ctrl-C or --count.
    """
    from braid.cli.overlay_guard import Guard, started_by
    from braid.cli.terminal import say

    if not standbys and not start:
        raise ConfigurationError("a guard needs a standby (--standby), or a way to start one (--start)")
    watching = Guard(
        brokers or [BROKER_DEFAULT],
        standbys or (),
        door,
        patience_s=patience,
        phi_max=suspicion,
        start=started_by(start) if start else None,
        protocol=protocol,
        say=lambda text: say(f"braid: {text}"),
    )
    with suppress(KeyboardInterrupt):
        asyncio.run(watching.watch(interval, count=count))


@overlay.command(epilog=examples("braid overlay reload --broker 127.0.0.1:7000"))
@with_door(10.0)
def reload(
    broker: Broker = BROKER_DEFAULT,
    *,
    door: Door,
) -> None:
    """Have a broker read its access file, certificates and revocation lists again, as SIGHUP does.

    If something is wrong with them, nothing changes, and the answer says what is wrong. Clients
    that would no longer be let in are sent away.
    """
    from braid.cli.overlay_crawl import ask

    answer = asyncio.run(ask(broker, "reload", door))
    ended = answer.get("connections_ended", 0)
    typer.echo(f"{answer.get('broker', broker)} has reloaded; {ended} connections were ended")


@overlay.command(
    epilog=examples(
        "braid overlay strategy --all",
        "braid overlay strategy S2 --broker 127.0.0.1:7003",
        "braid overlay strategy S2 --broker 127.0.0.1:7000 --all",
    )
)
@with_door(10.0)
def strategy(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="S0, S1, S2, SH or SB. Left out: only show it.")
    ] = None,
    broker: Broker = BROKER_DEFAULT,
    everywhere: Annotated[
        bool, typer.Option("--all", help="Every broker of the network, not just this one.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answers as JSON.")] = False,
    *,
    door: Door,
) -> None:
    """Say which strategy forwards publications, or choose another one while traffic flows.

    It holds until the broker is restarted; its configuration says what applies then. A broker that was
    started with --delta 1, which is the default with S0, can only do S0.

    Exit code 1: some broker could not be reached, or said no.
    """
    from braid.cli.overlay_crawl import ask_for_strategy
    from braid.cli.overlay_views import strategy_text

    reports = asyncio.run(ask_for_strategy(broker, door, name, everywhere=everywhere))
    if as_json:
        answers = [
            {"broker": report.broker or None, "address": report.address}
            | ({"problem": report.problem} if report.problem else report.mesh)
            for report in reports
        ]
        typer.echo(json.dumps(answers, indent=2, ensure_ascii=False))
    else:
        for report in reports:
            typer.echo(strategy_text(report))
    if any(report.problem for report in reports):
        raise typer.Exit(1)


@overlay.command(
    epilog=examples(
        "braid overlay topology --all",
        "braid overlay topology ci --broker 127.0.0.1:7000 --all",
        "braid overlay topology static --broker 127.0.0.1:7003",
    )
)
@with_door(10.0)
def topology(
    policy: Annotated[
        str | None,
        typer.Argument(metavar="[POLICY]", help="static, lmst, lmit, ci or exact. Left out: only show it."),
    ] = None,
    broker: Broker = BROKER_DEFAULT,
    everywhere: Annotated[
        bool, typer.Option("--all", help="Every broker of the network, not just this one.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answers as JSON.")] = False,
    *,
    door: Door,
) -> None:
    """Say which policy brokers use to look for a better tree, or choose another one while traffic flows.

    Brokers exchange links by themselves with every policy but static. It holds until the broker is restarted;
    its configuration says what comes then. All brokers should have the same.

    Exit code 1: some broker could not be reached, or said no.
    """
    from braid.cli.overlay_crawl import ask_whoever
    from braid.cli.overlay_views import topology_text

    arguments = {} if policy is None else {"policy": policy}
    reports = asyncio.run(ask_whoever(broker, door, "topology", "topology", arguments, everywhere=everywhere))
    if as_json:
        answers = [
            {"broker": report.broker or None, "address": report.address}
            | ({"problem": report.problem} if report.problem else report.overlay["topology"])
            for report in reports
        ]
        typer.echo(json.dumps(answers, indent=2, ensure_ascii=False))
    else:
        for report in reports:
            typer.echo(topology_text(report))
    if any(report.problem for report in reports):
        raise typer.Exit(1)


@overlay.command(
    epilog=examples(
        "braid overlay top --broker 127.0.0.1:7000", "braid overlay top --json --interval 10 --count 6"
    )
)
@with_door(3.0)
def top(
    broker: Broker = BROKER_DEFAULT,
    interval: Annotated[
        float, typer.Option("--interval", min=0.1, metavar="SECONDS", help="Time between two looks.")
    ] = 2.0,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, metavar="N", help="End after this many looks.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per look.")] = False,
    *,
    door: Door,
) -> None:
    """Watch what every broker of the network is doing: publications in and out, queues, links, clients.

    Ends with Ctrl-C or --count.
    """
    from braid.cli.overlay_views import watch

    def line(report: dict[str, Any]) -> None:
        typer.echo(json.dumps(report, ensure_ascii=False))

    with suppress(KeyboardInterrupt):
        asyncio.run(watch(broker, door, interval_s=interval, count=count, line=line if as_json else None))


add_plans(overlay)

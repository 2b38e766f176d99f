"""How is a network drawn for people?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from braid.cli.connection_options import Door
from braid.cli.overlay_crawl import Network, Report, crawl
from braid.errors import BraidError

__all__ = ["as_dot_text", "print_tree", "rates", "strategy_text", "topology_text", "watch"]

# Characters of the longest line about one broker.
LINE_MAX: Final = 2_000
# Counters whose growth per second is shown: name in a report, name of the counter, heading.
_RATES: Final = (
    ("received_per_s", "received", "in/s"),
    ("forwarded_per_s", "forwarded", "out/s"),
    ("delivered_per_s", "delivered", "delivered/s"),
)


# A tree.


def print_tree(network: Network) -> None:
    """Draw the network with the broker that was asked first at the top."""
    console = Console(highlight=False)
    console.width = max(console.width, LINE_MAX)  # a tree would cut lines off where the window ends
    first = network.reports[0]
    root = Tree(_heading(first))
    _grow(root, network, first, {first.broker})
    console.print(root, soft_wrap=True)
    reached = sum(not report.problem for report in network.reports)
    console.print(f"{reached} of {len(network.reports)} brokers reached", soft_wrap=True)


def _grow(branch: Tree, network: Network, report: Report, shown: set[str]) -> None:
    for link in report.links:
        name = link["neighbour"]
        if name in shown:
            continue
        shown.add(name)
        neighbour = network.named(name)
        state = _link_text(link)
        if neighbour is None:
            branch.add(f"{escape(name)}{state}")
            continue
        _grow(branch.add(_heading(neighbour) + state), network, neighbour, shown)
    for address in report.unreached:
        branch.add(f"[red]{escape(address)}: not reached yet[/red]")


def _link_text(link: Mapping[str, Any]) -> str:
    """What is to be said of a link that is not simply open."""
    if not link["up"]:
        return " [red]link down[/red]"
    stage = link.get("stage", "open")
    return f" [yellow]{escape(stage)}[/yellow]" if stage != "open" else ""


def _heading(report: Report) -> str:
    name = f"[bold]{escape(report.broker or '?')}[/bold] {escape(report.address)}".rstrip()
    if report.problem:
        return f"{name} [red]unreachable: {escape(report.problem)}[/red]"
    clients = report.overlay.get("clients", 0)
    ready = "" if report.overlay.get("ready") else " [yellow]not ready[/yellow]"
    shortcuts = f"  [dim]{escape(_mesh_text(report.mesh))}[/dim]" if report.mesh.get("delta", 1) > 1 else ""
    withheld = ", ".join(report.overlay.get("withheld", {}))
    credit = f" [yellow]gives no credit: {escape(withheld)}[/yellow]" if withheld else ""
    peers = "  gateway to peers" if report.gateway else ""
    return f"{name}  {clients} client{'' if clients == 1 else 's'}{peers}{ready}{credit}{shortcuts}"


def strategy_text(report: Report) -> str:
    """One line about how a broker forwards."""
    name = report.broker or report.address
    if report.problem:
        return f"{name}: {report.problem}"
    return f"{name}: {_mesh_text(report.mesh) or 'says nothing about its strategy'}"


def topology_text(report: Report) -> str:
    """One line about by what a broker looks for a better tree, and what came of that."""
    name = report.broker or report.address
    if report.problem:
        return f"{name}: {report.problem}"
    found = report.overlay["topology"]
    text = f"{name}: {found['policy']}, {found['exchanges_done']:,} exchanges of links begun here and done"
    return f"{text}, {found['exchanges_given_up']:,} given up"


def _mesh_text(mesh: dict[str, Any]) -> str:
    """Strategy, sight and soft links of one broker; empty if it does not know of such things."""
    if not mesh:
        return ""
    strategy = str(mesh["strategy"]) + (" (saving its uplink)" if mesh["saving_uplink"] else "")
    soft = mesh["soft_links"]
    links = f"soft links to {', '.join(soft)}" if soft else "no soft links"
    return f"{strategy}, {mesh['brokers_in_sight']} in sight (delta {mesh['delta']}), {links}"


# A graph.


def as_dot_text(network: Network) -> str:
    """The network in Graphviz's language; links that are down are dashed, soft links are arrows."""
    lines = ["graph braid {", "  node [shape=box];"]
    drawn: set[frozenset[str]] = set()
    for report in network.reports:
        name = report.broker or report.address
        style = ', style="dashed"' if report.problem else ""
        label = _quoted(f"{name}\n{report.address}")
        lines.append(f"  {_quoted(name)} [label={label}{style}];")
    for report in network.reports:
        for link in report.links:
            ends = frozenset((report.broker, link["neighbour"]))
            if ends not in drawn:
                drawn.add(ends)
                style = "" if link["up"] else ' [style="dashed"]'
                lines.append(f"  {_quoted(report.broker)} -- {_quoted(link['neighbour'])}{style};")
        lines.extend(
            f'  {_quoted(report.broker)} -- {_quoted(address)} [style="dotted"];'
            for address in report.unreached
        )
        lines.extend(
            f"  {_quoted(report.broker)} -- {_quoted(other)} [dir=forward, color=gray, constraint=false];"
            for other in report.mesh.get("soft_links", [])
        )
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


# A table that lives.


async def watch(
    start: str,
    door: Door,
    *,
    interval_s: float,
    count: int | None,
    line: Callable[[dict[str, Any]], None] | None,
) -> None:
    """Look at the whole network again and again; `line` gets each look, or a table shows it.

    A look that fails after the first is shown as such: the broker may be restarting.
    """
    before = await crawl(start, door, statistics=True)
    before_s = time.monotonic()
    looks = 0
    live = None if line is not None else Live(console=Console(), auto_refresh=False)
    if live is not None:
        live.start()
        live.update(_table(rates(before, before, 0.0)), refresh=True)  # something at once; rates come later
    try:
        while count is None or looks < count:
            await asyncio.sleep(interval_s)
            try:
                now = await crawl(start, door, statistics=True)
            except BraidError as error:
                now = Network([Report(start, problem=str(error))])
            now_s = time.monotonic()
            report = rates(before, now, now_s - before_s)
            before, before_s = now, now_s
            looks += 1
            if line is not None:
                line(report)
            elif live is not None:
                live.update(_table(report), refresh=True)
    finally:
        if live is not None:
            live.stop()


def rates(before: Network, now: Network, elapsed_s: float) -> dict[str, Any]:
    """What happened between two looks, per broker and second; None for what cannot be known."""
    rows = []
    for report in now.reports:
        row: dict[str, Any] = {"broker": report.broker or None, "address": report.address}
        if report.problem:
            rows.append(row | {"problem": report.problem})
            continue
        earlier = before.named(report.broker)
        # After a restart the counters begin anew, so there is nothing to compare.
        same = earlier is not None and earlier.overlay.get("incarnation") == report.overlay.get("incarnation")
        found = report.statistics
        for name, counter, _ in _RATES:
            row[name] = None
            if earlier is not None and same and elapsed_s > 0:
                grown = found["counters"][counter] - earlier.statistics["counters"][counter]
                row[name] = round(grown / elapsed_s, 1)
        row["queue_bytes"] = sum(found["link_waiting_bytes"].values()) + found["client_waiting_bytes"]
        row["links"], row["links_up"] = found["links"], found["links_up"]
        row["strategy"] = report.mesh.get("strategy")
        row["soft_links"] = len(report.mesh.get("soft_links", []))
        row["clients"], row["clients_behind"] = found["clients"], found["clients_behind"]
        row["ready"] = found["ready"]
        rows.append(row)
    return {"elapsed_s": round(elapsed_s, 3), "brokers": rows}


def _table(report: dict[str, Any]) -> Table:
    table = Table(title=f"over {report['elapsed_s']:.1f} s" if report["elapsed_s"] else "rates in a moment")
    table.add_column("broker", overflow="fold")  # a name that is long takes more lines, and is never cut
    for heading in (*(heading for _, _, heading in _RATES), "queued", "links", "soft links", "clients"):
        table.add_column(heading, justify="right", overflow="fold")
    for row in report["brokers"]:
        name = escape(row["broker"] or row["address"])
        if "problem" in row:
            table.add_row(f"{name} [red]unreachable[/red]", *[""] * (len(_RATES) + 4))
            continue
        numbers = [("-" if row[key] is None else f"{row[key]:,.0f}") for key, _, _ in _RATES]
        behind = f" ({row['clients_behind']} behind)" if row["clients_behind"] else ""
        table.add_row(
            name if row["ready"] else f"{name} [yellow]not ready[/yellow]",
            *numbers,
            f"{row['queue_bytes']:,}",
            f"{row['links_up']}/{row['links']}",
            f"{row['soft_links']}",
            f"{row['clients']}{behind}",
        )
    return table

"""Asks all brokers of a network again and again, over connections that stay open.

The first broker names its neighbours, and those name theirs. One that does not answer stays in the picture
for as long as another one names it. If the broker that was asked first is gone, any other that is known
will do.
"""

from __future__ import annotations

import asyncio
import errno
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from braid.cli.overlay_crawl import Network, Report
from braid.errors import BraidError, ConnectionLostError, RequestRefusedError
from braid.runtime.connecting import connect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from braid.cli.connection_options import Door
    from braid.runtime.client import Client
    from braid.runtime.client_events import ConnectionEvent

__all__ = ["Look", "NetworkWatch"]

# Brokers beyond this are left out: no screen has room for them.
BROKERS_MAX: Final = 500
# How long a broker that has answered before may take to be reached anew. It is asked again at the next look,
# and whoever looks wants to see at once that it is gone.
AGAIN_S_MAX: Final = 1.0
# Brokers asked at a time.
TOGETHER_MAX: Final = 64
# What every broker is asked, and what only brokers of this version know.
_QUESTIONS: Final = ("overlay", "statistics", "process")
_PLAIN: Final = {
    errno.ECONNREFUSED: "nothing listens at its address",
    errno.ECONNRESET: "it ended the connection",
}


@dataclass(frozen=True, slots=True)
class Look:
    """What all brokers said at one moment."""

    network: Network
    at_s: float
    """Seconds since 1970."""
    clock_s: float
    """Of a clock that only goes forward."""
    problem: str = ""
    """Why nothing is known; empty if something is."""
    left_out: int = 0
    """Brokers beyond the bound."""


class NetworkWatch:
    """Looks at one network.

    Args:
        start: the address of a broker.
        door: how to come in, and how long one broker may take; it can be changed at any time.
    """

    def __init__(self, start: str, door: Door) -> None:
        self.start = start
        self.door = door
        self._clients: dict[str, Client] = {}
        self._door_of: dict[str, Door] = {}
        self._known: dict[str, str] = {}
        """Addresses of the last look, by broker."""
        self._met: set[str] = set()
        """Addresses of the last look that have answered, then or before."""
        self._lost = asyncio.Event()

    async def close(self) -> None:
        """Let go of all connections."""
        clients, self._clients = self._clients, {}
        await asyncio.gather(*(self._let_go(client) for client in clients.values()))

    async def run(self, interval_s: float, show: Callable[[Look], Awaitable[None]]) -> None:
        """Look for ever, at this interval; a connection that is lost is looked into at once."""
        while True:
            began_s = time.monotonic()
            await show(await self.look())
            # Looking at a large network may take longer than the interval; there is a pause all the same.
            pause_s = max(interval_s - (time.monotonic() - began_s), interval_s / 4)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._lost.wait()
                    self._lost.clear()

    async def client(self, broker: str) -> Client:
        """The connection to a broker of the last look.

        Raises:
            BraidError: there is no such broker, or it cannot be reached.
        """
        address = self._known.get(broker)
        if address is None:
            raise RequestRefusedError(f"there is no broker {broker!r} in the network", "unknown")
        return await self._client(address)

    def brokers(self) -> list[str]:
        """Those of the last look, by name."""
        return sorted(self._known)

    def address_of(self, broker: str) -> str | None:
        """Where a broker of the last look listens."""
        return self._known.get(broker)

    async def everywhere(self, topic: str, arguments: Mapping[str, str]) -> dict[str, dict[str, Any] | None]:
        """The answers of all brokers of the last look; None for one that gives none."""

        async def one(address: str) -> dict[str, Any] | None:
            try:
                async with asyncio.timeout(self.door.timeout_s):
                    return await (await self._client(address)).ask(topic, **arguments)
            except (BraidError, TimeoutError):
                return None

        found: dict[str, dict[str, Any] | None] = {}
        names = sorted(self._known)
        for begin in range(0, len(names), TOGETHER_MAX):
            part = names[begin : begin + TOGETHER_MAX]
            found.update(
                zip(part, await asyncio.gather(*(one(self._known[name]) for name in part)), strict=True)
            )
        return found

    async def look(self) -> Look:
        """Ask everybody once."""
        reports: dict[str, Report] = {}
        first: Report | None = None
        # Those known from before are asked together, so that depth costs nothing.
        if self._known:
            await self._ask_all(sorted(self._known.items()), reports)
        if not any(not report.problem for report in reports.values()):
            found = await self._report("", self.start)
            if found.problem:
                return Look(Network([found]), time.time(), time.monotonic(), found.problem)
            first = reports[found.broker] = found
        left_out = 0
        tried: set[tuple[str, str]] = set()
        while True:
            await self._ask_moved(reports, tried)
            frontier = _named(reports)
            room = BROKERS_MAX - len(reports)
            left_out = max(0, len(frontier) - room)
            if not frontier or room <= 0:
                break
            await self._ask_all(frontier[:room], reports)
        if first is None:
            alive = [report for report in reports.values() if not report.problem]
            first = next((each for each in alive if each.address == self.start), alive[0])
        kept = _reachable(first, reports)
        self._known = {report.broker: report.address for report in kept if report.broker}
        await self._forget_others()
        return Look(Network(kept), time.time(), time.monotonic(), left_out=left_out)

    async def _ask_all(self, targets: list[tuple[str, str]], reports: dict[str, Report]) -> None:
        for begin in range(0, len(targets), TOGETHER_MAX):
            part = targets[begin : begin + TOGETHER_MAX]
            for (name, _), report in zip(
                part, await asyncio.gather(*(self._report(*each) for each in part)), strict=True
            ):
                reports.setdefault(report.broker or name, report)
                if report.broker != name:
                    # Another broker listens where this one did.
                    reports.setdefault(name, Report(report.address, name, problem="it is not there any more"))

    async def _ask_moved(self, reports: dict[str, Report], tried: set[tuple[str, str]]) -> None:
        """Ask those who are silent where they were, and whose neighbours know them elsewhere: another process
        may have the place of one that is gone."""
        elsewhere = [
            (name, address)
            for name, address in _addresses(reports).items()
            if name in reports
            and reports[name].problem
            and address != reports[name].address
            and (name, address) not in tried
        ]
        tried.update(elsewhere)
        found = await asyncio.gather(*(self._report(*each) for each in elsewhere))
        for (name, _), report in zip(elsewhere, found, strict=True):
            if report.broker == name and not report.problem:
                reports[name] = report

    async def _report(self, name: str, address: str) -> Report:
        if not address:
            return Report(address, name, problem="its address is not known")
        try:
            async with asyncio.timeout(self.door.timeout_s):
                client = await self._client(address)
                answers = await asyncio.gather(*(_ask(client, topic) for topic in _QUESTIONS))
        except (BraidError, TimeoutError) as error:
            await self._drop(address)
            why = _plainly(str(error)) or f"nothing came within {self.door.timeout_s:g} s"
            return Report(address, name, problem=why)
        self._met.add(address)
        overlay, statistics, process = answers
        for answer in (overlay, statistics):
            answer["clients"] = max(0, answer.get("clients", 0) - 1)  # one of them asks
        statistics["busy_us"] = process.get("busy_us")
        return Report(
            str(overlay.get("address") or address),
            str(overlay.get("broker", name)),
            overlay=overlay,
            statistics=statistics,
        )

    async def _client(self, address: str) -> Client:
        client = self._clients.get(address)
        if client is not None and not client.closed and self._door_of[address] == self.door:
            return client
        await self._drop(address)
        door = self.door
        patience_s = min(door.timeout_s, AGAIN_S_MAX) if address in self._met else door.timeout_s
        try:
            made = await connect(
                address,
                token=door.token,
                tls=door.tls,
                timeout_s=patience_s,
                request_timeout_s=door.timeout_s,
                reconnect_for_s=0,
                on_connection=self._happened,
            )
        except TimeoutError as error:
            raise ConnectionLostError(str(error)) from None
        other = self._clients.get(address)
        if other is not None:  # made by another task meanwhile
            await self._let_go(made)
            return other
        self._clients[address] = made
        self._door_of[address] = door
        return made

    def _happened(self, event: ConnectionEvent) -> None:
        if event.kind == "lost":
            self._lost.set()

    async def _drop(self, address: str) -> None:
        client = self._clients.pop(address, None)
        self._door_of.pop(address, None)
        if client is not None:
            await self._let_go(client)

    async def _forget_others(self) -> None:
        wanted = {*self._known.values(), self.start}
        self._met &= wanted
        for address in [address for address in self._clients if address not in wanted]:
            await self._drop(address)

    async def _let_go(self, client: Client) -> None:
        with suppress(BraidError, TimeoutError, OSError):
            await client.close(timeout_s=0)


async def _ask(client: Client, topic: str) -> dict[str, Any]:
    try:
        return await client.ask(topic)
    except RequestRefusedError as error:
        if error.code == "unknown" and topic == "process":
            return {}  # an older broker
        raise


def _plainly(problem: str) -> str:
    """What people want to know of the two errors that they meet most, instead of addresses and numbers."""
    for code, plain in _PLAIN.items():
        if f"[Errno {code}]" in problem:
            return plain
    return problem


def _addresses(reports: dict[str, Report]) -> dict[str, str]:
    """Where brokers are, as their neighbours say."""
    found: dict[str, str] = {}
    for report in reports.values():
        for link in report.links:
            name = str(link["neighbour"])
            if not found.get(name):
                found[name] = str(link["address"])
    return found


def _named(reports: dict[str, Report]) -> list[tuple[str, str]]:
    """Brokers that others name and that were not asked, with their addresses."""
    return sorted((name, address) for name, address in _addresses(reports).items() if name not in reports)


def _reachable(first: Report, reports: dict[str, Report]) -> list[Report]:
    """Those that links lead to, whoever names them; the first one first."""
    beside: dict[str, set[str]] = {}
    for report in reports.values():
        for link in report.links:
            beside.setdefault(report.broker, set()).add(str(link["neighbour"]))
            beside.setdefault(str(link["neighbour"]), set()).add(report.broker)
    order = [first.broker]
    seen = {first.broker}
    for name in order:
        for other in sorted(beside.get(name, ())):
            if other not in seen and other in reports:
                seen.add(other)
                order.append(other)
    return [reports[name] for name in order]

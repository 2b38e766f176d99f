"""Which brokers are there, as told by one of them and its neighbours in turn?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from braid.cli.connection_options import Door
from braid.errors import BraidError, ConnectionLostError, RequestRefusedError
from braid.runtime.client import Client
from braid.runtime.connecting import connect
from braid.runtime.tls import parse_address

__all__ = ["Link", "Network", "Report", "append_broker", "ask", "ask_for_strategy", "ask_whoever", "crawl"]

# A network with more brokers than this is not shown to the end: nobody could read it.
BROKERS_MAX: Final = 1000
# Brokers asked at a time.
TOGETHER_MAX: Final = 32
# How often a new link is looked at until it is up.
LOOK_S: Final = 0.05


@dataclass
class Report:
    """One broker, or an address behind which none has answered."""

    address: str
    broker: str = ""
    """Empty if it is not known."""
    problem: str = ""
    """Why it could not be asked; empty if it could."""
    overlay: dict[str, Any] = field(default_factory=dict)
    statistics: dict[str, Any] = field(default_factory=dict)

    @property
    def links(self) -> list[dict[str, Any]]:
        """What it says about its neighbours; the one that stands for peers is none of the network."""
        return _between_brokers(self.overlay)

    @property
    def gateway(self) -> bool:
        """Whether a network of peers hangs on it."""
        return len(self.links) < len(self.overlay.get("links", ()))

    @property
    def mesh(self) -> dict[str, Any]:
        """What it says about its strategy and its soft links; nothing if it is too old to know of them."""
        mesh: dict[str, Any] = self.overlay.get("mesh", {})
        return mesh

    @property
    def unreached(self) -> list[str]:
        """Addresses it should link to and has not reached."""
        addresses: list[str] = self.overlay.get("unreached", [])
        return addresses


def _between_brokers(overlay: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [link for link in overlay.get("links", ()) if not link.get("peers")]


@dataclass
class Network:
    """What a crawl has found; the first report is that of the broker asked first."""

    reports: list[Report]

    @property
    def complete(self) -> bool:
        """Whether every broker answered and every link is up."""
        return not any(
            report.problem or report.unreached or not all(link["up"] for link in report.links)
            for report in self.reports
        )

    def named(self, broker: str) -> Report | None:
        """The report of a broker."""
        return next((report for report in self.reports if report.broker == broker), None)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "complete": self.complete,
            "brokers": [
                {"reachable": not report.problem, **({"problem": report.problem} if report.problem else {})}
                | {"broker": report.broker or None, "address": report.address}
                | {name: value for name, value in report.overlay.items() if name not in ("broker", "address")}
                for report in self.reports
            ],
        }


async def ask(address: str, topic: str, door: Door, /, **arguments: str) -> dict[str, Any]:
    """Ask one broker one thing.

    Raises:
        BraidError: it cannot be reached in time, or says no.
    """
    return (await _ask_all(address, (topic,), door, arguments))[0]


async def _ask_all(
    address: str, topics: Sequence[str], door: Door, arguments: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    try:
        async with connect(
            address,
            token=door.token,
            tls=door.tls,
            timeout_s=door.timeout_s,
            request_timeout_s=max(door.timeout_s, 0.001),
            reconnect_for_s=0,
        ) as client:
            return [await client.ask(topic, **(arguments or {})) for topic in topics]
    except TimeoutError as error:
        raise ConnectionLostError(f"{address}: {error}") from None


async def crawl(start: str, door: Door, *, statistics: bool = False, but: Collection[str] = ()) -> Network:
    """Ask the broker at `start`, then its neighbours, and so on; each is asked once.

    Args:
        start: the address of one that answers.
        door: how to come in.
        statistics: whether they are asked for their numbers, too.
        but: brokers that are not asked, and left out: those that are known not to answer take their time.

    Raises:
        BraidError: the first one could not be asked.
    """
    topics = ("overlay", "statistics") if statistics else ("overlay",)
    first = await _report(start, "", topics, door)
    if isinstance(first, BraidError):
        raise first
    network = Network([first])
    asked = {first.broker, *but}
    while len(network.reports) < BROKERS_MAX:
        frontier = _frontier(network, asked)
        if not frontier:
            return network
        for chunk in (frontier[at : at + TOGETHER_MAX] for at in range(0, len(frontier), TOGETHER_MAX)):
            asked.update(name for name, _ in chunk)
            found = await asyncio.gather(*(_report(address, name, topics, door) for name, address in chunk))
            for (name, address), report in zip(chunk, found, strict=True):
                if isinstance(report, BraidError):
                    report = Report(address, name, problem=str(report))
                network.reports.append(report)
    return network


def _frontier(network: Network, asked: set[str]) -> list[tuple[str, str]]:
    """Brokers that others name and nobody has asked, with their addresses."""
    found: dict[str, str] = {}
    for report in network.reports:
        for link in report.links:
            if link["neighbour"] not in asked and not found.get(link["neighbour"]):
                found[link["neighbour"]] = link["address"]
    return sorted(found.items())


async def _report(address: str, name: str, topics: Sequence[str], door: Door) -> Report | BraidError:
    if not address:
        return ConnectionLostError("its address is not known")
    try:
        answers = await _ask_all(address, topics, door)
    except BraidError as error:
        return error
    overlay = answers[0]
    for answer in answers:
        answer["clients"] = max(0, answer.get("clients", 0) - 1)  # one of them is this question's
    return Report(
        overlay.get("address") or address,
        str(overlay.get("broker", name)),
        overlay=overlay,
        statistics=answers[1] if len(answers) > 1 else {},
    )


async def ask_for_strategy(start: str, door: Door, strategy: str | None, *, everywhere: bool) -> list[Report]:
    """Ask one broker, or all of its network, for its strategy, and choose it if one is named.

    Raises:
        BraidError: the first one could not be asked, or the only one says no.
    """
    if strategy is None and everywhere:
        return (await crawl(start, door)).reports
    arguments = {} if strategy is None else {"strategy": strategy}
    return await ask_whoever(start, door, "strategy", "mesh", arguments, everywhere=everywhere)


async def ask_whoever(
    start: str, door: Door, topic: str, key: str, arguments: Mapping[str, str], *, everywhere: bool
) -> list[Report]:
    """Ask one broker, or all of its network, something; the answers stand under a key of what they said.

    Raises:
        BraidError: the first one could not be asked, or the only one says no.
    """
    if not everywhere:
        answer = await ask(start, topic, door, **arguments)
        name = str(answer.pop("broker", ""))
        return [Report(start, name, overlay={key: answer})]
    network = await crawl(start, door)

    async def choose(report: Report) -> Report:
        if report.problem:
            return report
        try:
            answer = await ask(report.address, topic, door, **arguments)
        except BraidError as error:
            return Report(report.address, report.broker, problem=str(error))
        answer.pop("broker", None)
        return Report(report.address, report.broker, overlay=report.overlay | {key: answer})

    reports = network.reports
    chosen: list[Report] = []
    for chunk in (reports[at : at + TOGETHER_MAX] for at in range(0, len(reports), TOGETHER_MAX)):
        chosen += await asyncio.gather(*map(choose, chunk))
    return chosen


@dataclass(frozen=True)
class Link:
    """A link that has come up."""

    broker: str
    neighbour: str


async def append_broker(address: str, to: str, door: Door) -> Link:
    """Hang a broker on another one and wait for the link.

    Raises:
        BraidError: it says no, or the link did not come up in time.
    """
    wanted = str(parse_address(to))
    try:
        async with connect(
            address, token=door.token, tls=door.tls, timeout_s=door.timeout_s, reconnect_for_s=0
        ) as client:
            await client.ask("append", to=wanted)
            return await _wait_linked(client, wanted, door.timeout_s)
    except TimeoutError as error:
        raise ConnectionLostError(f"{address}: {error}") from None


async def _wait_linked(client: Client, wanted: str, seconds_max: float) -> Link:
    deadline = time.monotonic() + seconds_max
    while True:
        overlay = await client.ask("overlay")
        up = [link["neighbour"] for link in _between_brokers(overlay) if link["up"]]
        if up:
            return Link(overlay["broker"], up[0])
        if time.monotonic() > deadline:
            raise RequestRefusedError(
                f"{overlay['broker']} tries to link to {wanted}, and has not reached it after "
                f"{seconds_max:g} s; it goes on trying, and its log says what is wrong",
                "timeout",
            )
        await asyncio.sleep(LOOK_S)

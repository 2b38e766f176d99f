"""How does another process get the place of a broker that is gone, on a live network?

Its neighbours grant the name first, all of them; only then the standby takes it. Every step may be asked for
again: a command that was interrupted is repeated as it was.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from braid.broker.identities import granted_key
from braid.broker.resumptions import RESUMPTIONS, SYNCHRONOUS
from braid.cli.connection_options import Door
from braid.cli.overlay_crawl import ask, crawl
from braid.errors import (
    BraidError,
    ConfigurationError,
    ConnectionLostError,
    NetworkError,
    RequestRefusedError,
)

__all__ = ["Replaced", "replicate", "require_protocol"]

# How often brokers are looked at until they have done what was asked.
LOOK_S: Final = 0.05
LOOK_S_MAX: Final = 1.0


@dataclass(frozen=True)
class Replaced:
    """A broker that has a replica."""

    broker: str
    address: str
    """Where it is now."""
    epoch: int
    granted_by: tuple[str, ...]
    took_s: float


async def replicate(
    name: str,
    standby: str,
    brokers: Sequence[str],
    door: Door,
    *,
    without: Sequence[str] = (),
    silent: Collection[str] = (),
    known: Mapping[str, str] | None = None,
    protocol: str = SYNCHRONOUS,
    seconds_max: float = 60.0,
    say: Callable[[str], None] = lambda text: None,
) -> Replaced:
    """Give a standby the name and the place of a broker that is gone, and wait until it is linked.

    Args:
        name: of the broker that is gone.
        standby: the address of the process that is to have its place.
        brokers: addresses from which the network is looked at; a neighbour of the broker is enough.
        door: how to come in.
        without: neighbours that are gone as well, and are neighbours no more.
        silent: neighbours that do not answer and are to be linked again when they are back, or another
            process has their place. They are not asked and not waited for.
        known: where brokers are that were replaced lately, whatever others say who have not heard of it.
        protocol: how publications without a receipt come back to it while it rebuilds its tables.
        seconds_max: how long it may take, with the time until neighbours may grant the name.
        say: told what is waited for.

    Raises:
        BraidError: it cannot be done, or not in time.
    """
    require_protocol(protocol)
    begun = time.monotonic()
    deadline = begun + seconds_max
    waiting = await ask(standby, "standby", door)
    if waiting["in_place"] and waiting["broker"] != name:
        raise RequestRefusedError(f"the process at {standby} has the place of {waiting['broker']}", "linked")
    if not waiting["in_place"]:
        neighbours, epoch = await _around(name, brokers, door, without, known or {})
        asked = {each: address for each, address in neighbours.items() if each not in silent}
        if not asked:
            raise NetworkError(f"none of the neighbours of {name} answers: {', '.join(neighbours)}")
        epoch, key = epoch + 1, secrets.token_hex(32)
        for neighbour, address in asked.items():
            await _granted(
                address,
                door,
                deadline,
                say,
                name=name,
                address=waiting["address"],
                epoch=str(epoch),
                key=granted_key(key, neighbour),
            )
        await ask(
            standby,
            "take_over",
            door,
            name=name,
            epoch=str(epoch),
            key=key,
            neighbours=json.dumps(neighbours),
            resumption=protocol,
        )
    shown = await _linked(name, standby, door, deadline, silent)
    return Replaced(
        name,
        shown["address"],
        (await ask(standby, "standby", door))["epoch"],
        tuple(link["neighbour"] for link in shown["links"] if link["neighbour"] not in silent),
        time.monotonic() - begun,
    )


def require_protocol(protocol: str) -> None:
    """Refuse what is no protocol by which publications come back.

    Raises:
        ConfigurationError: it is none.
    """
    if protocol not in RESUMPTIONS:
        raise ConfigurationError(f"a protocol is one of {', '.join(RESUMPTIONS)}; {protocol!r} is none")


async def _around(
    name: str, brokers: Sequence[str], door: Door, without: Sequence[str], known: Mapping[str, str]
) -> tuple[dict[str, str], int]:
    """The neighbours of a broker with their addresses, and how often its name has changed hands."""
    neighbours: dict[str, str] = {}
    shown_by_themselves: dict[str, str] = {}
    epoch = 0
    seen: set[str] = set()
    for broker in brokers:
        if broker in seen:
            continue
        shown = [await ask(broker, "overlay", door)]
        if not _links_to(name, shown):  # it may be further away; to look at all of them takes longer
            network = await crawl(broker, door, but=(name,))
            shown = [report.overlay for report in network.reports if not report.problem]
        seen.update(overlay["address"] for overlay in shown)
        for overlay, link in _links_to(name, shown):
            if link["up"]:
                await _require_silent(name, link["address"], door)
            shown_by_themselves[overlay["broker"]] = overlay["address"]
            neighbours.update({each: at for each, at in link["around"].items() if at})
            epoch = max(epoch, link["epoch"])
    # Who was told of a neighbour long ago may not know that it has been replaced since.
    neighbours.update({each: at for each, at in known.items() if each in neighbours})
    neighbours.update(shown_by_themselves)
    for each in without:
        neighbours.pop(each, None)
    if not neighbours:
        raise NetworkError(
            f"no broker that answers has a link to {name}; name one that has, by its address (--broker)"
        )
    return dict(sorted(neighbours.items())), epoch


def _links_to(name: str, shown: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Of what brokers show: who has a link to a broker, and that link."""
    return [(each, link) for each in shown for link in each["links"] if link["neighbour"] == name]


async def _require_silent(name: str, address: str, door: Door) -> None:
    """Nothing, if a broker does not answer at its address."""
    try:
        shown = await ask(address, "overlay", door)
    except BraidError:
        return
    if shown["broker"] == name:
        raise RequestRefusedError(
            f"{name} is there, at {address}: only a broker that is gone can be replaced", "up"
        )


async def _granted(
    neighbour: str, door: Door, deadline: float, say: Callable[[str], None], **grant: str
) -> None:
    """Have a neighbour grant the name, as soon as it may."""
    said = False
    while True:
        try:
            await ask(neighbour, "grant", door, **grant)
        except RequestRefusedError as error:
            # It does not answer us, so a link that is up is one whose end has not been noticed.
            if error.code not in ("lease", "up") or time.monotonic() > deadline:
                raise
            if not said:
                say(str(error))
            said = True
        else:
            return
        await asyncio.sleep(4 * LOOK_S)


async def _linked(
    name: str, standby: str, door: Door, deadline: float, silent: Collection[str] = ()
) -> dict[str, Any]:
    """What the replica says of itself once all its links are up, but for those to silent neighbours.

    While one of these is missing, the replica is not ready, and its links do not know everything.
    """
    pause_s = LOOK_S
    problem = f"the process at {standby} has not taken the place of {name} yet"
    while True:
        try:
            shown = await ask(standby, "overlay", door)
        except ConnectionLostError as error:
            problem = str(error)
        else:
            missing = silent and any(
                link["neighbour"] in silent and not link["up"] for link in shown["links"]
            )
            down = [
                link["neighbour"]
                for link in shown["links"]
                if link["neighbour"] not in silent
                and not (link["up"] if missing else link["stage"] == "open")
            ]
            whole = shown["ready"] and not shown["unreached"]
            if shown["broker"] == name and not down and shown["links"] and (missing or whole):
                return shown
            if down:
                problem = f"the links to {', '.join(down)} are not up"
        if time.monotonic() > deadline:
            raise NetworkError(
                f"{name} is not back in time: {problem}; ask again with the same command, which goes on"
            )
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LOOK_S_MAX)

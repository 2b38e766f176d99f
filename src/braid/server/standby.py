"""A standby: a process that waits for the place of a broker that is gone.

It is a broker without links, which answers operators. Asked to take a place, it begins anew on the same
listener: with the name of the other broker, whose neighbours have agreed beforehand. With a data directory it
remembers its place, and comes back to it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from braid.broker.resumptions import RESUMPTIONS, SYNCHRONOUS
from braid.broker.settings import checked_broker_id
from braid.errors import BraidError, ConfigurationError, RequestRefusedError
from braid.protocol.log import KeepStanding
from braid.runtime.tls import parse_address

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from braid.broker.core import BrokerCore
    from braid.server.settings import ServerSettings

__all__ = ["answer_standby", "in_place", "with_ports"]

NEIGHBOURS_MAX = 1000
KEY_LENGTH_MIN = 32


def in_place(settings: ServerSettings, standing: KeepStanding | None) -> ServerSettings:
    """The settings of a process that runs in the place of another broker, if it does.

    Raises:
        ConfigurationError: it cannot be a standby, or was started as something else than it is.
    """
    broker = settings.broker
    if settings.standby.enabled and settings.peers.active:
        raise ConfigurationError("a standby is no peer: give it --standby or peers, not both")
    if standing is None or standing.broker_id == broker.broker_id:
        if settings.standby.enabled and standing is None and (broker.neighbours or broker.expected):
            raise ConfigurationError(
                "a standby has no neighbours of its own; leave them out, or leave out --standby"
            )
        if standing is None:
            return settings
    elif not settings.standby.enabled:
        raise ConfigurationError(
            f"what is kept in {settings.store.data_dir} is that of a standby that has the place of the "
            f"broker {standing.broker_id}: start it with --standby, or choose another data directory"
        )
    placed = replace(
        broker,
        broker_id=standing.broker_id,
        neighbours=tuple(address for _, address in standing.neighbours),
        expected=tuple(name for name, _ in standing.neighbours),
    )
    return replace(settings, broker=placed)


def with_ports(settings: ServerSettings, port: int, http: str) -> ServerSettings:
    """The same with the ports that were taken, so that they are taken again."""
    listener = replace(parse_address(settings.listener.listen), port=port)
    settings = replace(settings, listener=replace(settings.listener, listen=str(listener)))
    if http:
        settings = replace(settings, http=replace(settings.http, listen=http.partition("://")[2]))
    return settings


def answer_standby(
    settings: ServerSettings,
    core: BrokerCore,
    standing: KeepStanding | None,
    take_over: Callable[[KeepStanding], None],
) -> None:
    """Have a standby answer operators: what it is, and that it takes a place."""
    if not settings.standby.enabled:
        return

    def report(_: Mapping[str, str]) -> dict[str, Any]:
        return {
            "broker": core.settings.broker_id,
            "address": core.settings.address,
            "in_place": standing is not None,
            "epoch": standing.epoch if standing is not None else 0,
        }

    def take(arguments: Mapping[str, str]) -> dict[str, Any]:
        wanted = _checked(arguments)
        if standing is not None and (standing.broker_id, standing.epoch) != (wanted.broker_id, wanted.epoch):
            raise RequestRefusedError(
                f"this process has the place of {standing.broker_id} already, with epoch {standing.epoch}",
                "linked",
            )
        if standing is None:
            take_over(wanted)
        return {"broker": wanted.broker_id, "address": core.settings.address, "epoch": wanted.epoch}

    core.answer("standby", report)
    core.answer("take_over", take)


def _checked(arguments: Mapping[str, str]) -> KeepStanding:
    """The place that an operator wants this process to take.

    Raises:
        RequestRefusedError: something is missing or cannot be.
    """
    try:
        name = checked_broker_id(arguments.get("name", ""))
        neighbours = msgspec.json.decode(arguments.get("neighbours", ""), type=dict[str, str])
        known = tuple(
            (checked_broker_id(each), str(parse_address(address)))
            for each, address in sorted(neighbours.items())
        )
    except (BraidError, msgspec.MsgspecError) as error:
        raise RequestRefusedError(
            f"a place to take needs a name and neighbours: {error}", "argument"
        ) from None
    key, epoch = arguments.get("key", ""), arguments.get("epoch", "")
    if len(key) < KEY_LENGTH_MIN or not (epoch.isascii() and epoch.isdigit() and len(epoch) <= 16):
        raise RequestRefusedError("a place to take needs a key and an epoch", "argument")
    resumption = arguments.get("resumption", SYNCHRONOUS)
    if resumption not in RESUMPTIONS:
        raise RequestRefusedError(
            f"publications come back {', '.join(RESUMPTIONS)}; {resumption[:30]!r} is none of these",
            "argument",
        )
    if not known or len(known) > NEIGHBOURS_MAX or name in neighbours:
        raise RequestRefusedError(
            f"a place has 1 to {NEIGHBOURS_MAX} neighbours, and the broker itself is none of them", "argument"
        )
    return KeepStanding(name, int(epoch), key, known, resumption)

"""`braid peer`: a process that is a peer of a network without brokers, and what one says of itself."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from braid.cli.connection_options import Door, with_door
from braid.cli.process_options import Authority, Certificate, ConfigFile, HttpAddress, Insecure, Key
from braid.cli.terminal import examples
from braid.errors import ConfigurationError, RequestRefusedError

__all__ = ["peer"]


class _Dht(StrEnum):
    """How peers find each other."""

    PASTRY = "pastry"
    RING = "ring"


class _Algorithm(StrEnum):
    """How subscriptions and publications meet."""

    DMM_AR = "DMM-AR"
    DMM = "DMM"


peer = typer.Typer(
    help="Run a peer of a network without brokers, or ask one how it is.",
    epilog=examples(
        "braid peer --listen 127.0.0.1:7000",
        "braid peer --bootstrap 127.0.0.1:7000",
        "braid peer status --peer 127.0.0.1:7000",
        """braid subscribe "price > 10" --broker braid+p2p://127.0.0.1:7000""",
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
    invoke_without_command=True,
)


@peer.callback()
def run(
    context: typer.Context,
    bootstrap: Annotated[
        list[str] | None,
        typer.Option(
            "--bootstrap",
            metavar="HOST:PORT",
            help="A peer whose network to join; repeatable. Without it a network begins here.",
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="Where clients and other peers connect. \\[default: 127.0.0.1:7000, or a free port with "
            "--bootstrap]",
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            metavar="HOST:PORT",
            help="The address that others are told. \\[default: that of the listener]",
        ),
    ] = None,
    peer_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="Its name in logs and reports. \\[default: made up]"),
    ] = None,
    dht: Annotated[
        _Dht | None,
        typer.Option("--dht", help="How peers find each other; all must agree. \\[default: pastry]"),
    ] = None,
    algorithm: Annotated[
        _Algorithm | None,
        typer.Option("--algorithm", help="How they match; all must agree. \\[default: DMM-AR]"),
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option("--schema", metavar="FILE", help="The attributes that all peers know, as JSON."),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            "--token", envvar="BRAID_TOKEN", metavar="TOKEN", help="Proves to other peers who this one is."
        ),
    ] = None,
    config: ConfigFile = None,
    access: Annotated[
        Path | None,
        typer.Option(
            "--access", metavar="FILE", help="The file that says who may be a client or a peer, in TOML."
        ),
    ] = None,
    certificate: Certificate = None,
    key: Key = None,
    authority: Authority = None,
    http: HttpAddress = None,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="DIR", help="Write traces of publications there."),
    ] = None,
    insecure: Insecure = None,
    loss: Annotated[
        float | None,
        typer.Option(
            "--drop", min=0.0, max=1.0, metavar="SHARE", help="Drop this share of messages to other peers."
        ),
    ] = None,
    log_format: Annotated[
        str | None,
        typer.Option("--log-format", metavar="text|json", help="Text for people, or one JSON object a line."),
    ] = None,
    log_level: Annotated[
        str | None, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")
    ] = None,
) -> None:
    """Run a peer until SIGTERM or Ctrl-C, which make it say goodbye and leave.

    Clients connect to braid+p2p://HOST:PORT. Peers do not offer durable subscriptions, replays, acknowledged
    delivery or an order of deliveries. Who may be a peer, TLS and the access file say (link = true); peers
    cannot enforce what others let their clients do.

    Exit code 2: it could not be started, or the peers that it was to join refuse it.
    """
    if context.invoked_subcommand is not None:
        return
    from braid.cli.broker import run_broker
    from braid.server import peer_settings

    if listen is None and config is None:
        listen = "127.0.0.1:0" if bootstrap else "127.0.0.1:7000"
    run_broker(
        peer_settings(
            config,
            bootstrap=bootstrap or (),
            listen=listen,
            address=address,
            peer_id=peer_id,
            dht=dht and dht.value,
            algorithm=algorithm and algorithm.value,
            schema=schema.absolute() if schema is not None else None,
            token=token,
            loss=loss,
            access=access,
            tls_certificate=certificate,
            tls_key=key,
            tls_authority=authority,
            http=http,
            trace=trace,
            insecure=insecure,
            log_format=log_format,
            log_level=log_level,
        )
    )


@peer.command(epilog=examples("braid peer status", "braid peer status --peer 127.0.0.1:7001 --json"))
@with_door(3.0, "How long the peer may take to answer.")
def status(
    address: Annotated[
        str, typer.Option("--peer", metavar="HOST:PORT", envvar="BRAID_PEER", help="The peer to ask.")
    ] = "127.0.0.1:7000",
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    *,
    door: Door,
) -> None:
    """Show what a peer, or a gateway, reports about itself: its place, its neighbours and what it has done.

    Exit code 1: it has no place among the peers.
    """
    from braid.runtime.connecting import connect_sync

    with connect_sync(
        address, token=door.token, tls=door.tls, timeout_s=door.timeout_s, reconnect_for_s=0.0
    ) as client:
        try:
            report = client.ask("peer")
        except RequestRefusedError as error:
            if error.code != "unknown":
                raise
            raise ConfigurationError(f"{address} is a broker and no peer") from None
    if as_json:
        typer.echo(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        for name, value in report.items():
            typer.echo(f"{name:14} {_shown(value)}")
    if not report["joined"]:
        raise typer.Exit(1)


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {each}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "yes" if value is True else "no" if value is False else str(value)

"""`braid dashboard`: a process that watches a network and serves what it sees to browsers."""

from __future__ import annotations

import asyncio
import json
import secrets
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import uvicorn

from braid.cli.connection_options import BROKER_DEFAULT, Broker, Door, with_door
from braid.cli.overlay_crawl import ask
from braid.cli.terminal import examples, say
from braid.dashboard.guard import Guard
from braid.dashboard.measured import Measured
from braid.dashboard.probe import Probe
from braid.dashboard.watch import NetworkWatch
from braid.dashboard.web import Dashboard
from braid.errors import ConfigurationError, RequestRefusedError
from braid.runtime.tls import check_binding, is_loopback, parse_address

__all__ = ["app"]

LISTEN_DEFAULT: Final = "127.0.0.1:7080"
# Connections of viewers, streams included; each page has a handful.
CONNECTIONS_MAX: Final = 200

app = typer.Typer(add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})


@app.command(
    epilog=examples(
        "braid dashboard --broker 127.0.0.1:7000",
        "braid dashboard --broker 127.0.0.1:7000 --listen 8080",
        "braid dashboard -b braids://a.example:7000 --ca ca.pem --listen 0.0.0.0:443 "
        "--tls-certificate d.pem --tls-key d.key --name dashboard.example",
    )
)
@with_door(3.0)
def dashboard(
    broker: Broker = BROKER_DEFAULT,
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="Where the page is served; a port alone is on loopback, 0 a free one.",
        ),
    ] = LISTEN_DEFAULT,
    names: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="HOST", help="Another host name that viewers open it by; repeatable."),
    ] = None,
    tls_certificate: Annotated[
        Path | None,
        typer.Option("--tls-certificate", metavar="FILE", help="Serve HTTPS with this certificate."),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="The key of that certificate.")
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure", help="Serve beyond loopback without TLS, or where brokers ask for no token."
        ),
    ] = False,
    interval: Annotated[
        float, typer.Option("--interval", min=0.1, metavar="SECONDS", help="How often brokers are asked.")
    ] = 1.0,
    probe: Annotated[
        bool,
        typer.Option(
            "--probe/--no-probe", help="Publish a small probe every second to measure how long it takes."
        ),
    ] = True,
    live: Annotated[
        Path | None,
        typer.Option(
            "--live", metavar="DIR", help="Also show the figures that braid pipeline live keeps there."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Say where it serves as one JSON line on standard output.")
    ] = False,
    until_input_ends: Annotated[
        bool,
        typer.Option("--until-input-ends", help="End when standard input ends, as a child process should."),
    ] = False,
    *,
    door: Door,
) -> None:
    """Show a network in the browser: its tree and shortcuts, rates, subscriptions, changes as they happen.

    On loopback it shows what the brokers show to this command, and does what they let anybody do. Beyond
    loopback it serves HTTPS alone, and every viewer needs the token of a principal that may operate.

    Exit code 2: it could not be started.
    """
    listener = parse_address(listen)
    settings = _Settings(broker, names or [], tls_certificate, tls_key, insecure, interval, probe, live)
    asyncio.run(_serve(listener.host, listener.port, settings, door, as_json, until_input_ends))


class _Settings:
    """What was asked for."""

    def __init__(
        self,
        broker: str,
        names: list[str],
        certificate: Path | None,
        key: Path | None,
        insecure: bool,
        interval_s: float,
        probe: bool,
        live: Path | None,
    ) -> None:
        self.broker = broker
        self.names = names
        self.certificate = certificate
        self.key = key
        self.insecure = insecure
        self.interval_s = interval_s
        self.probe = probe
        self.live = live


async def _serve(
    host: str, port: int, settings: _Settings, door: Door, as_json: bool, until_input_ends: bool
) -> None:
    if settings.key is not None and settings.certificate is None:
        raise ConfigurationError("--tls-key is the key of a certificate; give --tls-certificate as well")
    await _check_listener(host, settings, door)
    watch = NetworkWatch(settings.broker, door)
    guard = Guard(host, settings.names, door, settings.broker)
    served = Dashboard(
        watch,
        guard,
        door,
        interval_s=settings.interval_s,
        probe=Probe(watch) if settings.probe else None,
        measured=Measured(settings.live) if settings.live is not None else None,
    )
    listening = _listener(host, port)
    server = _Server(
        uvicorn.Config(
            served.app(),
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            limit_concurrency=CONNECTIONS_MAX,
            h11_max_incomplete_event_size=16 * 1024,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=1,
            ssl_certfile=settings.certificate,
            ssl_keyfile=settings.key,
        ),
        served,
    )
    scheme = "https" if settings.certificate is not None else "http"
    shown = f"[{host}]" if ":" in host else host
    url = f"{scheme}://{shown}:{listening.getsockname()[1]}/"
    if as_json:
        typer.echo(json.dumps({"dashboard": url}))
        sys.stdout.flush()
    else:
        say(f"the dashboard is at {url}  (Ctrl-C ends it)")
    watching = asyncio.create_task(_end_with_input(server)) if until_input_ends else None
    try:
        await server.serve([listening])
    finally:
        if watching is not None:
            watching.cancel()


class _Server(uvicorn.Server):
    """Ends streams when it ends, so that it does not wait for them; SIGTERM and Ctrl-C are a usual end."""

    def __init__(self, config: uvicorn.Config, served: Dashboard) -> None:
        super().__init__(config)
        self._served = served

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End on signals, and do not repeat them afterwards as the original does."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, setattr, self, "should_exit", True)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End streams first."""
        self._served.end()
        await super().shutdown(sockets)


async def _check_listener(host: str, settings: _Settings, door: Door) -> None:
    """Raise unless it is safe to serve there."""
    if is_loopback(host):
        return
    asked = await _asks_for_tokens(settings.broker, door) if not settings.insecure else False
    try:
        remark = check_binding(
            host, tls=settings.certificate is not None, authenticated=asked, insecure=settings.insecure
        )
    except ConfigurationError as error:
        raise ConfigurationError(str(error).replace("to listen", "to serve the dashboard", 1)) from None
    if remark:
        say(f"braid: {remark}")


async def _asks_for_tokens(broker: str, door: Door) -> bool:
    """Whether the brokers turn away who has a made-up token."""
    try:
        await ask(broker, "overlay", replace(door, token=f"made-up-{secrets.token_hex(16)}"))
    except RequestRefusedError:
        return True
    return False


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen(CONNECTIONS_MAX)  # who reads where it serves may come at once
    except OSError as error:
        found.close()
        raise ConfigurationError(
            f"cannot serve the dashboard on {host}:{port}: {error.strerror or error}; "
            "choose another address (--listen)"
        ) from None
    return found


async def _end_with_input(server: Any) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while await reader.read(1024):
        pass
    server.should_exit = True

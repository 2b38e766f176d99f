"""Options of commands that run a process of a network, a broker or a peer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

__all__ = ["Authority", "Certificate", "ConfigFile", "HttpAddress", "Insecure", "Key"]

ConfigFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Settings in TOML; options given here take precedence."),
]
Certificate: TypeAlias = Annotated[
    Path | None,
    typer.Option("--tls-certificate", metavar="FILE", help="The certificate to show; turns TLS on."),
]
Key: TypeAlias = Annotated[
    Path | None, typer.Option("--tls-key", metavar="FILE", help="The key of that certificate.")
]
Authority: TypeAlias = Annotated[
    Path | None, typer.Option("--tls-authority", metavar="FILE", help="Trust certificates signed by these.")
]
HttpAddress: TypeAlias = Annotated[
    str | None, typer.Option("--http", metavar="HOST:PORT", help="Serve /health, /ready and /metrics there.")
]
Insecure: TypeAlias = Annotated[
    bool | None, typer.Option("--insecure", help="Listen beyond loopback without TLS or authentication.")
]

"""How do commands say which broker they mean, and who they are?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from braid.runtime.tls import TlsSettings

__all__ = ["BROKER_DEFAULT", "Authority", "Broker", "Brokers", "Certificate", "Key", "Token", "tls_settings"]

BROKER_DEFAULT: Final = "127.0.0.1:7000"
_ADDRESS: Final = "host:port, braid://host:port or braids://host:port (TLS)"

Broker: TypeAlias = Annotated[
    str,
    typer.Option("--broker", "-b", metavar="ADDRESS", envvar="BRAID_BROKER", help=f"{_ADDRESS}."),
]
Brokers: TypeAlias = Annotated[
    str,
    typer.Option(
        "--broker",
        "-b",
        metavar="ADDRESS",
        envvar="BRAID_BROKER",
        help=f"{_ADDRESS}; several, separated by commas.",
    ),
]
Token: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--token", envvar="BRAID_TOKEN", metavar="TOKEN", help="Says who you are; best given by BRAID_TOKEN."
    ),
]
Authority: TypeAlias = Annotated[
    Path | None, typer.Option("--ca", metavar="FILE", help="Believe certificates signed by these. Means TLS.")
]
Certificate: TypeAlias = Annotated[
    Path | None, typer.Option("--certificate", metavar="FILE", help="The certificate to show. Means TLS.")
]
Key: TypeAlias = Annotated[
    Path | None, typer.Option("--key", metavar="FILE", help="The key of that certificate.")
]


def tls_settings(ca: Path | None, certificate: Path | None, key: Path | None) -> TlsSettings | None:
    """What these options come to; None for a plain connection."""
    if key is not None and certificate is None:
        raise ConfigurationError("--key is the key of a certificate; give --certificate as well")
    if ca is None and certificate is None:
        return None
    from braid.runtime.tls import TlsSettings

    return TlsSettings(certificate=certificate, key=key, authority=ca)

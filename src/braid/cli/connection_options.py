"""How do commands say which broker they mean, and who they are?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, get_type_hints

import typer

from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from braid.runtime.tls import TlsSettings

__all__ = ["BROKER_DEFAULT", "Broker", "Brokers", "Door", "with_door"]

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
# Who the user is, whom to believe: the same for every command.
_OPTIONS: Final[dict[str, Any]] = {
    "token": Annotated[
        str | None,
        typer.Option(
            "--token",
            envvar="BRAID_TOKEN",
            metavar="TOKEN",
            help="Proves who you are; best given in BRAID_TOKEN.",
        ),
    ],
    "ca": Annotated[
        Path | None,
        typer.Option("--ca", metavar="FILE", help="Trust certificates signed by these; turns TLS on."),
    ],
    "certificate": Annotated[
        Path | None,
        typer.Option("--certificate", metavar="FILE", help="The certificate to show; turns TLS on."),
    ],
    "key": Annotated[Path | None, typer.Option("--key", metavar="FILE", help="The key of that certificate.")],
}


@dataclass(frozen=True)
class Door:
    """How to come in: with which token and certificate, and how long to knock."""

    token: str | None = None
    tls: TlsSettings | None = None
    timeout_s: float = 3.0


def with_door(
    timeout_s: float, help: str = "How long one broker may take to answer."
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options that say who its user is; it takes what they come to as its `door`.

    Args:
        timeout_s: the default of `--timeout`.
        help: what `--timeout` means for the command.
    """
    seconds = typer.Option("--timeout", min=0.0, metavar="SECONDS", help=help)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(command, include_extras=True)
        own = [
            each.replace(annotation=hints[each.name])
            for each in signature(command).parameters.values()
            if each.name != "door"
        ]
        shared = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=hint)
            for name, hint in _OPTIONS.items()
        ]
        timeout = Parameter(
            "timeout", Parameter.KEYWORD_ONLY, default=timeout_s, annotation=Annotated[float, seconds]
        )

        @wraps(command)
        def run(**options: Any) -> None:
            token, *files = (options.pop(name) for name in _OPTIONS)
            door = Door(token, _tls_settings(*files), options.pop("timeout"))
            command(**options, door=door)

        # typer reads both.
        run.__signature__ = Signature([*own, *shared, timeout])  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in (*own, *shared, timeout)}
        return run

    return decorate


def _tls_settings(ca: Path | None, certificate: Path | None, key: Path | None) -> TlsSettings | None:
    """What these options come to; None for a plain connection."""
    if key is not None and certificate is None:
        raise ConfigurationError("--key is the key of a certificate; give --certificate as well")
    if ca is None and certificate is None:
        return None
    from braid.runtime.tls import TlsSettings

    return TlsSettings(certificate=certificate, key=key, authority=ca)

"""Access file and certificates of a broker, and how a running one takes in others.

On SIGHUP, or when an operator asks for it, everything that says who may come in is read again: access file,
certificates, authorities and revocation lists. All of it is read before any of it counts: if something is
wrong with one file, everything stays as it was, and what is wrong is said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from braid.errors import ConfigurationError, RequestRefusedError
from braid.protocol.inputs import Reconfigured
from braid.runtime.tls import TlsSettings, client_context, server_context
from braid.server.access_file import load_access

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from pathlib import Path

    from braid.broker.access import AccessPolicy
    from braid.runtime.audit import AuditLog
    from braid.runtime.node import Node
    from braid.server.settings import ServerSettings

__all__ = ["Doorkeeping", "client_tls", "server_tls"]

_Trusted: TypeAlias = tuple[bytes | None, bytes | None]


def server_tls(settings: TlsSettings) -> ssl.SSLContext | None:
    """The context of the listener; None without TLS."""
    if settings.certificate is None:
        if settings.key is not None or settings.require_client_certificate:
            raise ConfigurationError(
                "TLS is configured without a certificate; give --tls-certificate, or certificate in [tls]"
            )
        return None
    return server_context(settings)


def client_tls(settings: TlsSettings, neighbours: tuple[str, ...]) -> ssl.SSLContext:
    """For links. It is always there: a neighbour that is appended later may want TLS."""
    try:
        return client_context(settings)
    except ConfigurationError:
        if neighbours:
            raise
        # A certificate for servers alone is good enough for a broker that dials nobody.
        return client_context(TlsSettings(authority=settings.authority, revocations=settings.revocations))


class Doorkeeping:
    """What says who may come in, as it was read last."""

    def __init__(self, settings: ServerSettings) -> None:
        """
        Raises:
            ConfigurationError: some file is wrong.
        """
        self._settings = settings
        self.amend: Callable[[AccessPolicy | None], AccessPolicy | None] = lambda access: access
        """Adds to a policy that is read again what the process itself needs."""
        self.access: AccessPolicy | None = None
        self.server_tls: ssl.SSLContext | None = None
        self.client_tls: ssl.SSLContext
        self.http_tls: ssl.SSLContext | None = None
        """As the listener's, but for whom it believes: certificates do not open the HTTP server."""
        self._trusted: _Trusted = (None, None)
        self._read()
        if settings.tls.certificate is not None:
            tls = settings.tls
            self.http_tls = server_context(TlsSettings(certificate=tls.certificate, key=tls.key))

    def _read(self) -> None:
        file, tls = self._settings.access.file, self._settings.tls
        access = load_access(file) if file is not None else None
        server = server_tls(tls)
        client = client_tls(tls, self._settings.broker.neighbours)
        trusted = (_content(tls.authority), _content(tls.revocations))
        self.access, self.server_tls, self.client_tls, self._trusted = access, server, client, trusted

    def reload(self, node: Node, audit: AuditLog | None, token: int = 0) -> None:
        """Read everything again, and let it count if all of it is right."""
        trusted = self._trusted
        try:
            if audit is not None:
                audit.reopen()
            self._read()
            tls = self._settings.tls
            if self.http_tls is not None and tls.certificate is not None:
                self.http_tls.load_cert_chain(tls.certificate, tls.key)
        except (ConfigurationError, OSError) as error:
            node.report(Reconfigured(token, problem=str(error)))
            return
        node.use_tls(self.server_tls, self.client_tls)
        access = self.amend(self.access)
        node.report(Reconfigured(token, access, certificates_changed=trusted != self._trusted))

    def operates(self, token: str | None, now_us: int) -> bool:
        """Whether this is the token of somebody who may operate the broker."""
        if self.access is None:
            return True
        try:
            return self.access.authenticate(token, None, now_us=now_us).grant.operate
        except RequestRefusedError:
            return False


def _content(path: Path | None) -> bytes | None:
    return path.read_bytes() if path is not None else None

"""Who is at the other end of a connection, and can anybody listen in?

Addresses (`braid://` in the clear, `braids://` with TLS), the TLS contexts of listeners and links, the
name in a verified certificate, and the rule about where a broker without security may listen. All files
are looked at when a context is made, so that a wrong one is named at the start and not in a handshake.
"""

from __future__ import annotations

import ipaddress
import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from braid.errors import ConfigurationError

__all__ = [
    "PORT_DEFAULT",
    "Address",
    "TlsSettings",
    "check_binding",
    "client_context",
    "handshake_problem",
    "is_loopback",
    "parse_address",
    "peer_name",
    "server_context",
]

PORT_DEFAULT = 7000
PORT_MAX = 65_535
# A name in the Domain Name System has no more characters.
HOST_LENGTH_MAX = 253
# A handshake has two round trips at most; more turns than this mean that it makes no progress.
HANDSHAKE_TURNS_MAX = 10

_SCHEMES = {"braid": False, "braids": True, "braid+p2p": False, "braids+p2p": True}
_HOST_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_ADDRESS_FORMS = "'braid://host:7000', 'braids://host:7000' (with TLS), 'host:7000', '[::1]:7000' or '7000'"
LOOPBACK = "127.0.0.1"


# Addresses.


@dataclass(frozen=True, slots=True)
class Address:
    """Where a broker listens."""

    host: str
    """A name, an IPv4 address, or an IPv6 address without brackets."""
    port: int = PORT_DEFAULT
    """0 asks a listener for any free port."""
    tls: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'braids' if self.tls else 'braid'}://{host}:{self.port}"


def parse_address(text: str) -> Address:
    """An address from its text; the scheme and the port may be left out. A number alone is a port here.

    Of a peer (`braid+p2p://`, `braids+p2p://` with TLS) it is where it listens, as of a broker.

    >>> parse_address("braids://[::1]")
    Address(host='::1', port=7000, tls=True)
    >>> parse_address("7555")
    Address(host='127.0.0.1', port=7555, tls=False)
    """
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "braid", text
    if scheme.lower() not in _SCHEMES:
        raise _wrong_address(text, f"the scheme {scheme!r} is not known")
    if rest.endswith("/"):
        rest = rest[:-1]
    if "@" in rest:
        # The text is not repeated: what stands before the @ is usually a secret.
        raise ConfigurationError(
            "an address holds no name or password; give the token separately, and the address as "
            + _ADDRESS_FORMS
        )
    if any(character in rest for character in "/?#"):
        raise _wrong_address(text, "nothing may follow the port")
    if rest.isascii() and rest.isdecimal():
        return Address(LOOPBACK, _port(text, rest), _SCHEMES[scheme.lower()])
    host, port = _bracketed(text, rest) if rest.startswith("[") else _plain(text, rest)
    return Address(host, _port(text, port), _SCHEMES[scheme.lower()])


def _bracketed(text: str, rest: str) -> tuple[str, str | None]:
    host, closing, behind = rest[1:].partition("]")
    if not closing:
        raise _wrong_address(text, "the bracket of the IPv6 address is not closed")
    if behind and not behind.startswith(":"):
        raise _wrong_address(text, f"a colon and a port may follow the bracket, not {behind!r}")
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        raise _wrong_address(text, f"{host!r} in brackets is not an IPv6 address") from None
    return host, behind[1:] if behind else None


def _plain(text: str, rest: str) -> tuple[str, str | None]:
    if rest.count(":") > 1:
        raise _wrong_address(text, "an IPv6 address stands in brackets")
    host, colon, port = rest.partition(":")
    if not host:
        raise _wrong_address(text, "the host is missing")
    if len(host) > HOST_LENGTH_MAX or _HOST_NAME.fullmatch(host) is None:
        raise _wrong_address(text, f"{host[:HOST_LENGTH_MAX]!r} is not the name of a host")
    return host, port if colon else None


def _port(text: str, port: str | None) -> int:
    if port is None:
        return PORT_DEFAULT
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= PORT_MAX):
        raise _wrong_address(text, f"the port is a number from 0 to {PORT_MAX}, not {port!r}")
    return int(port)


def _wrong_address(text: str, reason: str) -> ConfigurationError:
    return ConfigurationError(f"cannot read the address {text!r}: {reason}; write it like {_ADDRESS_FORMS}")


# Where to listen.


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can reach a listener there.

    A name other than `localhost` is not looked up: what it means may change after the answer.
    """
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def check_binding(host: str, *, tls: bool, authenticated: bool, insecure: bool = False) -> str:
    """Raise unless a broker may listen there; otherwise a sentence for the log, empty if all is well.

    Args:
        host: where it is to listen.
        tls: whether connections are encrypted.
        authenticated: whether clients have to say who they are, by token or certificate.
        insecure: the operator's word that the network itself is safe.
    """
    missing = [
        what for what, there in (("TLS", tls), ("authentication of clients", authenticated)) if not there
    ]
    if not missing:
        return ""
    lacking = " and ".join(missing)
    if is_loopback(host):
        if tls or authenticated:
            return ""
        return f"no security is configured ({lacking}): listening on loopback only, {host}"
    where = host or "all interfaces"
    if insecure:
        return f"listening on {where} without {lacking}, as explicitly allowed"
    raise ConfigurationError(
        f"refusing to listen on {where} without {lacking}: everybody who reaches it could read along or take "
        "part. Configure a certificate and key (TLS) and an access file or required client certificates "
        "(authentication), or listen on 127.0.0.1, or, in a network that is safe by other means, allow it "
        "explicitly (--insecure, or insecure = true in [listener])"
    )


# Certificates.


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """The files that say who we are and whom we believe, all in PEM form."""

    certificate: Path | None = None
    """Our certificate, followed by those between it and the authority. A listener needs one; a client or
    link needs one where the other side asks for it."""
    key: Path | None = None
    """The private key of the certificate, not encrypted. Left out, it is looked for in the same file."""
    authority: Path | None = None
    """The certificates of those whose signature we believe. Left out, a client believes what its system
    believes, and a listener asks for no certificate."""
    revocations: Path | None = None
    """The lists of certificates that the authority has taken back (CRL). A certificate on one of them is not
    accepted. Each authority that signs needs a list here, and one that has run out accepts no certificate."""
    require_client_certificate: bool = False
    """For listeners: refuse clients without one (mutual TLS). Otherwise, with an authority, a client may show
    one or not, and may log in with a token."""


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """The context of a listener, or a `ConfigurationError` that names the file that is wrong."""
    if settings.certificate is None:
        raise ConfigurationError("a listener with TLS needs a certificate and its key; none is configured")
    if settings.require_client_certificate and settings.authority is None:
        raise ConfigurationError(
            "client certificates are required, but no authority is configured that they could be signed by"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _harden(context)
    _load_own(context, settings)
    if settings.authority is not None:
        _load_authority(context, settings.authority)
        _load_revocations(context, settings)
        required = settings.require_client_certificate
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    _check_presentable(settings, by_server=True)
    return context


def client_context(settings: TlsSettings | None = None) -> ssl.SSLContext:
    """The context of a client or of a link to a neighbour. The name of the host is always verified."""
    settings = settings or TlsSettings()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _harden(context)
    if settings.authority is not None:
        _load_authority(context, settings.authority)
        _load_revocations(context, settings)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if settings.certificate is not None:
        _load_own(context, settings)
        _check_presentable(settings, by_server=False)
    elif settings.key is not None:
        raise ConfigurationError(f"there is a key, {settings.key}, but no certificate that it belongs to")
    return context


class _HasPeerCertificate(Protocol):
    """An `ssl.SSLSocket` or `ssl.SSLObject`."""

    def getpeercert(self) -> Any: ...


def peer_name(ssl_object: _HasPeerCertificate) -> str | None:
    """The name in the other side's verified certificate; None without one.

    It is the common name of the subject, or, where there is none (or more than one), the first
    alternative name. The authority has vouched for both.
    """
    certificate = ssl_object.getpeercert() or {}
    common = [
        value for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName"
    ]
    if len(common) == 1 and common[0]:
        return str(common[0])
    return next((str(value) for _, value in certificate.get("subjectAltName", ()) if value), None)


def handshake_problem(error: Exception) -> str:
    """What a failed handshake means and what to do, in one sentence without the library's jargon."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the other side's certificate is not accepted: {error.verify_message.rstrip('.')}"
    reason = (getattr(error, "reason", None) or "") if isinstance(error, ssl.SSLError) else ""
    for part, meaning in _HANDSHAKE_PROBLEMS.items():
        if part in reason:
            return meaning
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError)):
        return "the other side ended the connection in the middle of the handshake; its log may say why"
    return f"the handshake failed: {reason.lower().replace('_', ' ') or error}"


_NO_COMMON_VERSION = "the two sides have no version of TLS in common; 1.2 is the oldest that is spoken"
# By parts of OpenSSL's names for what happened; alerts are what the other side says about us.
_HANDSHAKE_PROBLEMS = {
    "CERTIFICATE_REQUIRED": "the other side wants a client certificate, and none is configured here",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has no certificate, and this listener requires one",
    "ALERT_UNKNOWN_CA": "the other side does not know the authority that signed our certificate",
    "ALERT_CERTIFICATE_EXPIRED": "the other side says that our certificate has expired",
    "ALERT_BAD_CERTIFICATE": "the other side does not accept our certificate",
    "UNSUPPORTED_PROTOCOL": _NO_COMMON_VERSION,
    "ALERT_PROTOCOL_VERSION": _NO_COMMON_VERSION,
    "WRONG_VERSION_NUMBER": "the other side does not speak TLS here; is it braid:// and not braids://?",
    "HTTP_REQUEST": "the other side speaks HTTP",
}


def _harden(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Renegotiation is a way to make the other side compute; nobody here asks for it.
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION


def _load_own(context: ssl.SSLContext, settings: TlsSettings) -> None:
    certificate = _readable("certificate", settings.certificate)
    key = certificate if settings.key is None else _readable("key", settings.key)

    def no_passphrase() -> str:
        raise ConfigurationError(
            f"the TLS key {key} is encrypted, and there is no way to ask for its passphrase; "
            "store it decrypted, readable by the broker's user only"
        )

    try:
        context.load_cert_chain(certificate, key, password=no_passphrase)
    except ssl.SSLError as error:
        reason = error.reason or ""
        if "MISMATCH" in reason:
            raise ConfigurationError(
                f"the TLS key {key} does not belong to the certificate {certificate}"
            ) from None
        raise ConfigurationError(
            f"the TLS certificate {certificate} and the key {key} cannot be read as PEM files "
            f"with a certificate and a private key: {_words(error)}"
        ) from None


def _load_authority(context: ssl.SSLContext, authority: Path) -> None:
    path = _readable("authority", authority)
    try:
        context.load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        raise ConfigurationError(
            f"the TLS authority {path} cannot be read as a PEM file with certificates: {_words(error)}"
        ) from None


def _load_revocations(context: ssl.SSLContext, settings: TlsSettings) -> None:
    if settings.revocations is None:
        return
    path = _readable("revocation list", settings.revocations)
    if b"BEGIN X509 CRL" not in path.read_bytes():
        raise ConfigurationError(f"the TLS revocation list {path} holds no list in PEM form (BEGIN X509 CRL)")
    try:
        context.load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        raise ConfigurationError(
            f"the TLS revocation list {path} cannot be read as a PEM file: {_words(error)}"
        ) from None
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _readable(what: str, path: Path | None) -> Path:
    """The path, if its file can be read: the `ssl` module does not say which of its files cannot."""
    if path is None:
        raise ConfigurationError(f"the TLS {what} is not configured")
    try:
        with Path(path).open("rb"):
            return Path(path)
    except OSError as error:
        raise ConfigurationError(f"the TLS {what} {path} cannot be read: {error.strerror or error}") from None


def _words(error: ssl.SSLError) -> str:
    return (error.reason or "it holds nothing of the kind").lower().replace("_", " ")


def _check_presentable(settings: TlsSettings, *, by_server: bool) -> None:
    """Show our certificate to ourselves: has it expired, or is it not meant for this role?

    A handshake in memory is the one way to ask the `ssl` module for the dates of one's own certificate.
    """
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    _load_own(server, settings)
    if not by_server:
        _load_own(client, settings)
    judge = client if by_server else server
    judge.load_verify_locations(cafile=_readable("certificate", settings.certificate))
    judge.verify_mode = ssl.CERT_REQUIRED
    judge.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # our own certificate is trust enough here
    try:
        _shake_hands_in_memory(server, client)
    except ssl.SSLCertVerificationError as error:
        problem = _UNPRESENTABLE.get(error.verify_code)
        if problem is not None:  # whether it is trusted is for the other side to say
            role = "listener" if by_server else "client or link"
            raise ConfigurationError(
                f"the TLS certificate {settings.certificate} of this {role} {problem}; get a new one"
            ) from None
    except ssl.SSLError:
        return  # whatever it is, the real handshake will say it about the real other side


# By the codes of OpenSSL's X509_verify_cert.
_UNPRESENTABLE = {
    9: "is not valid yet",
    10: "has expired",
    26: "was not issued for that purpose (see its extended key usage)",
}


def _shake_hands_in_memory(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    waiting = [
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(HANDSHAKE_TURNS_MAX):
        for side in list(waiting):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(side)
        if not waiting:
            return

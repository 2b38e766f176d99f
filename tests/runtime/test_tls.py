"""Does TLS let in exactly those it should, and does every mistake have a name?"""

from __future__ import annotations

import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.errors import ConfigurationError
from braid.runtime.tls import (
    Address,
    TlsSettings,
    check_binding,
    client_context,
    handshake_problem,
    is_loopback,
    parse_address,
    peer_name,
    server_context,
)
from tests.runtime.certificates import CLIENT_ONLY, DAY, SERVER_ONLY, Authority, Files

if TYPE_CHECKING:
    from pathlib import Path

DEADLINE_S = 30.0


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def settings_of(files: Files | None, authority: Authority | None = None, **more: Any) -> TlsSettings:
    return TlsSettings(
        certificate=files.certificate if files else None,
        key=files.key if files else None,
        authority=authority.certificate if authority else None,
        **more,
    )


# Addresses.

ADDRESSES = [
    ("braid://example.org:7100", Address("example.org", 7100)),
    ("braid://example.org", Address("example.org", 7000)),
    ("braids://example.org", Address("example.org", 7000, tls=True)),
    ("BRAIDS://Example.org/", Address("Example.org", 7000, tls=True)),
    ("127.0.0.1:0", Address("127.0.0.1", 0)),
    ("localhost", Address("localhost", 7000)),
    ("braids://[::1]:65535", Address("::1", 65535, tls=True)),
    ("[fe80::1%eth0]:7000", Address("fe80::1%eth0", 7000)),
    ("[::]", Address("::", 7000)),
    ("7555", Address("127.0.0.1", 7555)),
    ("braids://0", Address("127.0.0.1", 0, tls=True)),
]


@pytest.mark.parametrize(("text", "expected"), ADDRESSES)
def test_addresses(text: str, expected: Address) -> None:
    assert parse_address(text) == expected
    assert parse_address(str(expected)) == expected


WRONG_ADDRESSES = [
    ("http://example.org", "scheme 'http'"),
    ("braid://", "host is missing"),
    (":7000", "host is missing"),
    ("", "host is missing"),
    ("example.org:", "port is a number"),
    ("example.org:65536", "port is a number"),
    ("example.org:-1", "port is a number"),
    ("example.org:७", "port is a number"),
    ("example.org:7000/path", "nothing may follow"),
    ("braid://example.org?x=1", "nothing may follow"),
    ("::1", "brackets"),
    ("[::1", "not closed"),
    ("[::1]7000", "may follow the bracket"),
    ("[127.0.0.1]:7000", "not an IPv6 address"),
    ("two words:7000", "not the name of a host"),
    ("-dash:7000", "not the name of a host"),
    ("x" * 254, "not the name of a host"),
    ("70000", "port is a number from 0 to 65535"),
]


@pytest.mark.parametrize(("text", "problem"), WRONG_ADDRESSES)
def test_wrong_addresses_are_named(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_address(text)
    assert problem in str(raised.value)
    assert repr(text) in str(raised.value)


def test_a_secret_in_an_address_is_not_repeated() -> None:
    with pytest.raises(ConfigurationError, match="token separately") as raised:
        parse_address("braid://alice:hush@example.org")
    assert "hush" not in str(raised.value)


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_an_error(text: str) -> None:
    try:
        address = parse_address(text)
    except ConfigurationError:
        return
    assert parse_address(str(address)) == address


# Where to listen.

LOOPBACK = ["127.0.0.1", "127.8.9.10", "localhost", "LOCALHOST.", "::1", "[::1]", "::ffff:127.0.0.1"]
ELSEWHERE = [
    "",
    "0.0.0.0",
    "::",
    "10.0.0.1",
    "example.org",
    "127.example.org",
    "localhost.example.org",
    "127.1",
]


@pytest.mark.parametrize("host", LOOPBACK)
def test_loopback(host: str) -> None:
    assert is_loopback(host)
    assert "loopback only" in check_binding(host, tls=False, authenticated=False)
    assert check_binding(host, tls=True, authenticated=False) == ""
    assert check_binding(host, tls=False, authenticated=True) == ""


@pytest.mark.parametrize("host", ELSEWHERE)
def test_elsewhere_security_or_a_word_is_needed(host: str) -> None:
    assert not is_loopback(host)
    assert check_binding(host, tls=True, authenticated=True) == ""
    for tls, authenticated in [(False, False), (True, False), (False, True)]:
        with pytest.raises(ConfigurationError, match="refusing to listen") as raised:
            check_binding(host, tls=tls, authenticated=authenticated)
        notice = check_binding(host, tls=tls, authenticated=authenticated, insecure=True)
        for message in (str(raised.value), notice):
            assert ("without TLS" in message) is not tls
            assert ("authentication of clients" in message) is not authenticated


# Files.


def test_a_listener_needs_a_certificate() -> None:
    with pytest.raises(ConfigurationError, match="needs a certificate"):
        server_context(TlsSettings())


def test_required_certificates_need_an_authority(authority: Authority) -> None:
    with pytest.raises(ConfigurationError, match="no authority"):
        server_context(settings_of(authority.issue("broker"), require_client_certificate=True))


def test_a_key_needs_a_certificate(authority: Authority) -> None:
    with pytest.raises(ConfigurationError, match="no certificate that it belongs to"):
        client_context(TlsSettings(key=authority.issue("broker").key))


@pytest.mark.parametrize("which", ["certificate", "key", "authority"])
@pytest.mark.parametrize("side", [server_context, client_context])
def test_a_missing_file_is_named(authority: Authority, tmp_path: Path, which: str, side: Any) -> None:
    files = authority.issue("broker")
    paths = {"certificate": files.certificate, "key": files.key, "authority": authority.certificate}
    paths[which] = tmp_path / "gone.pem"
    with pytest.raises(ConfigurationError, match=rf"TLS {which} .*gone\.pem cannot be read: No such file"):
        side(TlsSettings(**paths))


@pytest.mark.parametrize("which", ["certificate", "key", "authority"])
def test_a_directory_is_named(authority: Authority, tmp_path: Path, which: str) -> None:
    files = authority.issue("broker")
    paths = {"certificate": files.certificate, "key": files.key, "authority": authority.certificate}
    paths[which] = tmp_path
    with pytest.raises(ConfigurationError, match=f"TLS {which} .* cannot be read"):
        server_context(TlsSettings(**paths))


@pytest.mark.parametrize("which", ["certificate", "key", "authority"])
@pytest.mark.parametrize("content", [b"", b"not a PEM file\n"])
def test_a_file_of_another_kind_is_named(
    authority: Authority, tmp_path: Path, which: str, content: bytes
) -> None:
    files = authority.issue("broker")
    paths = {"certificate": files.certificate, "key": files.key, "authority": authority.certificate}
    paths[which] = tmp_path / "odd.pem"
    paths[which].write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"odd\.pem .*cannot be read as"):
        server_context(TlsSettings(**paths))


def test_a_key_of_somebody_else(authority: Authority) -> None:
    ours, theirs = authority.issue("ours"), authority.issue("theirs")
    settings = TlsSettings(certificate=ours.certificate, key=theirs.key)
    for side in (server_context, client_context):
        with pytest.raises(ConfigurationError, match=r"theirs\.key does not belong to .*ours\.pem"):
            side(settings)


def test_an_encrypted_key_is_refused_without_a_question(authority: Authority) -> None:
    files = authority.issue("broker", passphrase=b"open sesame")
    with pytest.raises(ConfigurationError, match=r"broker\.key is encrypted"):
        server_context(settings_of(files))


def test_certificate_and_key_in_one_file(authority: Authority, tmp_path: Path) -> None:
    files = authority.issue("broker")
    both = tmp_path / "both.pem"
    both.write_bytes(files.certificate.read_bytes() + files.key.read_bytes())
    server_context(TlsSettings(certificate=both))
    client_context(TlsSettings(certificate=both))


@pytest.mark.parametrize("side", [server_context, client_context])
def test_an_expired_or_early_certificate_is_named_at_the_start(authority: Authority, side: Any) -> None:
    expired = authority.issue("expired", begins=-3 * DAY, ends=-DAY)
    with pytest.raises(ConfigurationError, match=r"expired\.pem .* has expired"):
        side(settings_of(expired))
    early = authority.issue("early", begins=DAY, ends=2 * DAY)
    with pytest.raises(ConfigurationError, match=r"early\.pem .* is not valid yet"):
        side(settings_of(early))


def test_a_certificate_for_another_purpose_is_named_at_the_start(authority: Authority) -> None:
    for_servers = settings_of(authority.issue("server", purposes=SERVER_ONLY))
    for_clients = settings_of(authority.issue("client", purposes=CLIENT_ONLY))
    server_context(for_servers)
    client_context(for_clients)
    with pytest.raises(ConfigurationError, match="not issued for that purpose"):
        client_context(for_servers)
    with pytest.raises(ConfigurationError, match="not issued for that purpose"):
        server_context(for_clients)


def test_contexts_are_strict(authority: Authority) -> None:
    files = authority.issue("broker")
    client = client_context(settings_of(files, authority))
    assert client.check_hostname
    assert client.verify_mode is ssl.CERT_REQUIRED
    assert client_context().verify_mode is ssl.CERT_REQUIRED
    modes = {
        (None, False): ssl.CERT_NONE,
        (authority, False): ssl.CERT_OPTIONAL,
        (authority, True): ssl.CERT_REQUIRED,
    }
    for (believed, required), mode in modes.items():
        context = server_context(settings_of(files, believed, require_client_certificate=required))
        assert context.verify_mode is mode
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2


# Handshakes.


def meet(server: ssl.SSLContext, client: ssl.SSLContext | None, host: str = "localhost") -> tuple[Any, Any]:
    """What each side learns: the name of the other (or None), or the exception that it met.

    A client without a context sends plain bytes.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as threads:
        listener.settimeout(DEADLINE_S)
        serving = threads.submit(_serve, listener, server)
        try:
            with socket.create_connection(listener.getsockname(), DEADLINE_S) as plain:
                if client is None:
                    plain.sendall(b"an old acquaintance\n" * 10)
                    plain.recv(1)
                    return serving.result(DEADLINE_S), None
                with client.wrap_socket(plain, server_hostname=host) as secured:
                    name = peer_name(secured)
                    # In TLS 1.3 a client learns from the first read whether it was accepted.
                    if secured.recv(1) != b"!":
                        raise ConnectionResetError("closed")
                    return serving.result(DEADLINE_S), name
        except OSError as error:
            return serving.result(DEADLINE_S), error


def _serve(listener: socket.socket, context: ssl.SSLContext) -> Any:
    plain, _ = listener.accept()
    plain.settimeout(DEADLINE_S)
    with plain:
        try:
            with context.wrap_socket(plain, server_side=True) as secured:
                secured.sendall(b"!")
                return peer_name(secured)
        except OSError as error:
            return error


@pytest.mark.net
def test_mutual_tls_names_both(authority: Authority) -> None:
    server = server_context(
        settings_of(authority.issue("broker-a"), authority, require_client_certificate=True)
    )
    client = client_context(settings_of(authority.issue("broker-b"), authority))
    assert meet(server, client) == ("broker-b", "broker-a")
    assert meet(server, client, "127.0.0.1") == ("broker-b", "broker-a")


@pytest.mark.net
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions(authority: Authority, version: ssl.TLSVersion) -> None:
    server = server_context(settings_of(authority.issue("a"), authority))
    client = client_context(settings_of(authority.issue("b"), authority))
    client.maximum_version = client.minimum_version = version
    assert meet(server, client) == ("b", "a")


@pytest.mark.net
def test_a_client_without_certificate_has_no_name(authority: Authority) -> None:
    files = authority.issue("broker")
    client = client_context(settings_of(None, authority))
    assert meet(server_context(settings_of(files)), client) == (None, "broker")
    assert meet(server_context(settings_of(files, authority)), client) == (None, "broker")


@pytest.mark.net
def test_an_unasked_certificate_has_no_name(authority: Authority) -> None:
    client = client_context(settings_of(authority.issue("client"), authority))
    assert meet(server_context(settings_of(authority.issue("broker"))), client) == (None, "broker")


@pytest.mark.net
def test_a_missing_client_certificate_is_refused(authority: Authority) -> None:
    server = server_context(
        settings_of(authority.issue("broker"), authority, require_client_certificate=True)
    )
    at_server, at_client = meet(server, client_context(settings_of(None, authority)))
    assert "this listener requires one" in handshake_problem(at_server)
    assert isinstance(at_client, OSError)
    # A reset may overtake the alert; both are explained.
    assert handshake_problem(at_client).startswith(("the other side wants a client", "the other side ended"))


@pytest.mark.net
@pytest.mark.parametrize("required", [False, True])
def test_a_client_of_an_unknown_authority_is_refused(
    authority: Authority, tmp_path: Path, required: bool
) -> None:
    stranger = Authority(tmp_path, "stranger").issue("client")
    server = server_context(
        settings_of(authority.issue("broker"), authority, require_client_certificate=required)
    )
    at_server, at_client = meet(server, client_context(settings_of(stranger, authority)))
    assert isinstance(at_server, ssl.SSLCertVerificationError)
    assert "is not accepted: " in handshake_problem(at_server)
    assert isinstance(at_client, OSError)


@pytest.mark.net
def test_a_server_of_an_unknown_authority_is_refused(authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger")
    server = server_context(settings_of(stranger.issue("broker")))
    at_server, at_client = meet(server, client_context(settings_of(None, authority)))
    assert isinstance(at_client, ssl.SSLCertVerificationError)
    assert "the other side does not know the authority" in handshake_problem(at_server)


@pytest.mark.net
def test_a_server_with_another_name_is_refused(authority: Authority) -> None:
    server = server_context(settings_of(authority.issue("broker", alternatives=("elsewhere.example",))))
    _, at_client = meet(server, client_context(settings_of(None, authority)))
    assert isinstance(at_client, ssl.SSLCertVerificationError)
    assert "Hostname mismatch" in handshake_problem(at_client)


def raw_context(side: int, files: Files, authority: Authority | None = None) -> ssl.SSLContext:
    """A context without our own checks, for what a careless peer would do."""
    context = ssl.SSLContext(side)
    context.load_cert_chain(files.certificate, files.key)
    if authority is not None:
        context.load_verify_locations(authority.certificate)
    return context


@pytest.mark.net
def test_an_expired_server_is_refused(authority: Authority) -> None:
    files = authority.issue("expired", begins=-3 * DAY, ends=-DAY)
    server = raw_context(ssl.PROTOCOL_TLS_SERVER, files)
    at_server, at_client = meet(server, client_context(settings_of(None, authority)))
    assert "has expired" in handshake_problem(at_client)
    assert "our certificate has expired" in handshake_problem(at_server)


@pytest.mark.net
def test_an_expired_client_is_refused(authority: Authority) -> None:
    files = authority.issue("expired", begins=-3 * DAY, ends=-DAY)
    client = raw_context(ssl.PROTOCOL_TLS_CLIENT, files, authority)
    server = server_context(
        settings_of(authority.issue("broker"), authority, require_client_certificate=True)
    )
    at_server, at_client = meet(server, client)
    assert "has expired" in handshake_problem(at_server)
    assert isinstance(at_client, OSError)


@pytest.mark.net
def test_whoever_does_not_speak_tls_is_told_apart(authority: Authority) -> None:
    at_server, _ = meet(server_context(settings_of(authority.issue("broker"))), None)
    assert "does not speak TLS" in handshake_problem(at_server)


@pytest.mark.net
def test_names_without_a_single_common_name(authority: Authority) -> None:
    server = server_context(settings_of(authority.issue("broker"), authority))
    names = {
        (): ("first.example", "second.example"),
        ("one", "two"): ("first.example",),
    }
    for common_names, alternatives in names.items():
        files = authority.issue("client", common_names=common_names, alternatives=alternatives)
        assert meet(server, client_context(settings_of(files, authority)))[0] == "first.example"
    nameless = authority.issue("client", common_names=(), alternatives=())
    assert meet(server, client_context(settings_of(nameless, authority)))[0] is None


def test_problems_without_a_known_cause_are_passed_on() -> None:
    assert handshake_problem(TimeoutError("too slow")) == "the handshake failed: too slow"
    assert "in the middle" in handshake_problem(ConnectionResetError())

"""Does a running broker take in another access file, other certificates, and lists of revoked ones?"""

from __future__ import annotations

import asyncio
import json
import signal
import ssl
import stat
from typing import TYPE_CHECKING

import pytest

from braid.errors import AuthenticationError, ConfigurationError
from braid.protocol.messages import Refused
from braid.runtime.connecting import connect
from braid.runtime.tls import TlsSettings
from braid.server.access_file import load_access, new_token
from tests.cli.broker_process import BrokerProcess, braid, running_broker
from tests.hostile.attackers import RawClient
from tests.runtime.certificates import Authority

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.net


class AccessFile:
    """An access file with an operator, and with a till as long as it is wanted."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "access.toml"
        self.operator, self._operator_hash = new_token()
        self.till, self._till_hash = new_token()
        self.write()

    def write(self, till: str | None = "TRUE", more: str = "") -> None:
        text = f'[principals.op]\noperate = true\ntokens = ["{self._operator_hash}"]\n'
        if till is not None:
            text += f'[principals.till]\npublish = "TRUE"\nsubscribe = "{till}"\n'
            text += f'tokens = ["{self._till_hash}"]\n{more}'
        self.path.write_text(text)
        self.path.chmod(0o600)


def reload(broker: BrokerProcess) -> None:
    broker.process.send_signal(signal.SIGHUP)


@pytest.fixture
def access(tmp_path: Path) -> AccessFile:
    return AccessFile(tmp_path)


def test_a_principal_that_is_taken_out_is_sent_away_on_sighup(access: AccessFile) -> None:
    with running_broker("A", "--access", str(access.path)) as broker:
        till = RawClient(broker.address, "till", access.till)
        access.write(till=None)
        reload(broker)
        refused = [frame.body for frame in till.frames() if isinstance(frame.body, Refused)]
        assert [each.code for each in refused] == ["authentication"]
        till.close()
        assert broker.process.poll() is None


def test_an_operator_reloads_and_a_broken_file_changes_nothing(access: AccessFile) -> None:
    with running_broker("A", "--access", str(access.path)) as broker:
        options = ("--broker", broker.address, "--token", access.operator)
        till = RawClient(broker.address, "till", access.till)
        access.write(more="subscribes = 7\n")
        failed = braid("overlay", "reload", *options)
        assert failed.returncode != 0
        assert "did you mean 'subscribe'" in failed.stderr + failed.stdout
        RawClient(broker.address, "again", access.till).close()  # the old one still counts
        access.write(till=None)
        done = braid("overlay", "reload", *options)
        assert (done.returncode, done.stdout) == (0, "A has reloaded; 1 connections were ended\n")
        assert any(isinstance(frame.body, Refused) for frame in till.frames())
        till.close()


async def test_a_narrowed_client_goes_on_with_what_it_may_have(access: AccessFile) -> None:
    with running_broker("A", "--access", str(access.path)) as broker:
        async with (
            connect(broker.address, token=access.till) as reader,
            connect(broker.address, token=access.till) as writer,
        ):
            everything = await reader.subscribe("TRUE")
            seven = await reader.subscribe("shop = 7")
            access.write(till="shop = 7")
            reload(broker)
            await asyncio.to_thread(broker.wait_for, "asked to come again")
            with pytest.raises(Exception, match="may only subscribe within"):
                await everything.get()
            await writer.publish({"shop": 7})
            assert (await seven.get())["shop"] == 7


def test_tokens_that_have_expired_are_refused(access: AccessFile) -> None:
    access.write(more="expires = 2001-01-01T00:00:00Z\n")
    with (
        running_broker("A", "--access", str(access.path)) as broker,
        pytest.raises(ConnectionRefusedError, match="has expired"),
    ):
        RawClient(broker.address, "till", access.till)


@pytest.mark.parametrize("expires", ["2027-01-01T00:00:00", "2027-01-01", "7", '"tomorrow"'])
def test_a_moment_without_a_zone_is_refused(access: AccessFile, expires: str) -> None:
    access.write(more=f"expires = {expires}\n")
    with pytest.raises(ConfigurationError, match=r"'expires'.*2027-01-01T00:00:00Z"):
        load_access(access.path)


async def test_a_revoked_certificate_is_not_accepted_after_a_reload(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    listener, good, bad = (authority.issue(name) for name in ("listener", "good", "bad"))
    revocations = authority.revoke()
    access = tmp_path / "access.toml"
    access.write_text('[principals.all]\nsubscribe = "TRUE"\ncertificates = ["good", "bad"]\n')
    access.chmod(0o600)
    tls = {
        name: TlsSettings(certificate=files.certificate, key=files.key, authority=authority.certificate)
        for name, files in (("good", good), ("bad", bad))
    }
    options = ("--tls-certificate", listener.certificate, "--tls-key", listener.key)
    options += ("--tls-authority", authority.certificate, "--tls-revocations", revocations)
    with running_broker("A", "--access", str(access), *map(str, options)) as broker:
        async with (
            connect(broker.address, tls=tls["good"]),
            connect(broker.address, tls=tls["bad"]) as client,
        ):
            await client.subscribe("TRUE")
            authority.revoke(bad)
            reload(broker)
            await asyncio.to_thread(broker.wait_for, "asked to come again.*looked at again")
            await asyncio.to_thread(broker.wait_for, "handshake failed.*revoked")
        async with connect(broker.address, tls=tls["good"]) as client:
            await client.subscribe("TRUE")
    wrong = braid(
        "broker", "--id", "A", *map(str, options[:-1]), str(authority.certificate), "--listen", "127.0.0.1:0"
    )
    assert wrong.returncode == 2
    assert "holds no list" in wrong.stderr


def test_a_new_certificate_is_shown_after_a_reload(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    listener = authority.issue("listener")
    options = ("--tls-certificate", str(listener.certificate), "--tls-key", str(listener.key))
    with running_broker("A", *options) as broker:
        host, port = broker.address.removeprefix("braids://").split(":")
        before = ssl.get_server_certificate((host, int(port)))
        authority.issue("listener")
        reload(broker)
        broker.wait_for("reloaded")
        assert ssl.get_server_certificate((host, int(port))) != before


def test_the_audit_log_is_private_and_says_who_did_what(access: AccessFile, tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    with running_broker("A", "--access", str(access.path), "--audit", str(audit)) as broker:
        till = RawClient(broker.address, "till\n\x1b[2J\x9b", access.till)
        with pytest.raises(ConnectionRefusedError):
            RawClient(broker.address, "guess", "braid_guess")
        done = braid("overlay", "reload", "--broker", broker.address, "--token", access.operator)
        assert done.returncode == 0
        audit.rename(tmp_path / "audit.1")
        reload(broker)
        till.close()
    lines = [json.loads(line) for line in (tmp_path / "audit.1").read_text().splitlines()]
    assert [line["what"] for line in lines] == [
        "client connected",
        "connection refused",
        "client connected",
        "operator command",
        "reloaded",
    ]
    assert lines[0]["principal"] == "till"
    assert lines[3]["topic"] == "reload"
    raw = (tmp_path / "audit.1").read_text()
    assert all(character.isprintable() or character == "\n" for character in raw)
    assert json.loads(audit.read_text().splitlines()[0])["what"] == "reloaded"
    assert stat.S_IMODE(audit.stat().st_mode) == 0o600
    assert all(line.isprintable() for line in broker.lines)


def test_http_beyond_loopback_needs_what_a_listener_needs(access: AccessFile) -> None:
    refused = braid("broker", "--id", "A", "--listen", "127.0.0.1:0", "--http", "0.0.0.0:0")
    assert refused.returncode == 2
    assert "refusing to serve HTTP on 0.0.0.0 without TLS and authentication" in refused.stderr
    options = ("--id", "A", "--listen", "127.0.0.1:0", "--access", str(access.path))
    refused = braid("broker", *options, "--http", "0.0.0.0:0")
    assert "without TLS" in refused.stderr
    assert refused.returncode == 2


def test_a_wrong_token_is_an_authentication_error(access: AccessFile) -> None:
    with pytest.raises(AuthenticationError):
        load_access(access.path).authenticate("guess", None)

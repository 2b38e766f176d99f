"""Can an anonymous program go on with its durable subscription, and can others not?"""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

from braid.errors import AccessDeniedError, ConfigurationError, RequestRefusedError
from braid.runtime.client_secrets import SECRET_FILE_VARIABLE, DurableSecrets
from braid.runtime.connecting import connect
from tests.runtime.fake_broker import DEADLINE_S
from tests.runtime.test_client_with_broker import line_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.net
async def test_programs_of_one_user_share_a_durable_subscription_and_others_do_not() -> None:
    async with line_of("A") as brokers, connect(brokers[0].address) as client:
        log = await client.subscribe("n >= 0", durable="log")
        await client.publish({"n": 1}, delivery="acknowledged")
        await client.flush(DEADLINE_S)
        secret = log.secret
        assert secret
        async with connect(brokers[0].address) as same_user:
            with pytest.raises(RequestRefusedError, match="takeover=True") as refused:
                await same_user.subscribe(None, durable="log")
            assert refused.value.code == "taken"
            again = await same_user.subscribe(None, durable="log", takeover=True)
            assert (await again.get(DEADLINE_S))["n"] == 1
        async with connect(brokers[0].address) as stranger:
            with pytest.raises(AccessDeniedError, match="secret"):
                await stranger.subscribe(None, durable="log", secret="a guess", takeover=True)
            with pytest.raises(AccessDeniedError, match="secret"):
                await stranger.drop_durable("log", secret="a guess")
            with pytest.raises(AccessDeniedError, match="secret"):
                await stranger.replay("log", secret="a guess").get(DEADLINE_S)
            assert (await stranger.replay("log", secret=secret).get(DEADLINE_S))["n"] == 1


@pytest.mark.net
async def test_a_secret_that_was_given_is_remembered_across_connections() -> None:
    async with line_of("A") as brokers, connect(brokers[0].address) as client:
        log = await client.subscribe("n >= 0", durable="log", secret="hers alone")
        assert log.secret == "hers alone"
        await brokers[0].stop()
        await brokers[0].start()
        await client.publish({"n": 1}, delivery="acknowledged")
        assert (await log.get(DEADLINE_S))["n"] == 1
        await log.close()
        await client.drop_durable("log")


def test_the_key_of_a_user_is_made_once_and_for_this_user_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "state" / "key"
    monkeypatch.setenv(SECRET_FILE_VARIABLE, str(file))
    first = DurableSecrets().of("log")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert DurableSecrets().of("log") == first
    # A broker that learns one secret learns nothing about others, nor the key.
    assert DurableSecrets().of("other") != first
    assert first not in file.read_text(encoding="ascii")


def test_without_a_place_for_the_key_a_secret_lasts_as_long_as_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("", encoding="ascii")
    monkeypatch.setenv(SECRET_FILE_VARIABLE, str(tmp_path / "file" / "key"))
    secrets = DurableSecrets()
    assert secrets.of("log") == secrets.of("log") != DurableSecrets().of("log")
    assert "secret=" in caplog.text


def test_a_secret_is_text_of_a_certain_length() -> None:
    with pytest.raises(ConfigurationError, match="secret"):
        DurableSecrets().of("log", "")
    with pytest.raises(ConfigurationError, match="secret"):
        DurableSecrets().of("log", "x" * 10_000)

"""Is an access file read as it was meant, and every mistake in it named?"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from braid.broker.access import AccessPolicy, Limits, hashed_token
from braid.errors import AccessDeniedError, AuthenticationError, ConfigurationError
from braid.language import Filter
from braid.server import access_file
from braid.server.access_file import load_access, new_token

if TYPE_CHECKING:
    from pathlib import Path

HASH = hashed_token("open sesame")
OTHER_HASH = hashed_token("other")


def written(directory: Path, text: str, mode: int = 0o600) -> Path:
    path = directory / "access.toml"
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def test_a_whole_file(tmp_path: Path) -> None:
    policy = load_access(
        written(
            tmp_path,
            f"""
            [limits]
            connections_max = 64

            [principals.till]
            publish = "shop = 7 AND kind = 'sale'"
            subscribe = "shop = 7"
            narrow = true
            tokens = ["{HASH}", "{OTHER_HASH}"]

            [principals.till.limits]
            publications_per_second_max = 100

            [principals."broker b"]
            link = true
            operate = true
            certificates = ["broker-b.example"]

            [anonymous]
            subscribe = "public = TRUE"
            """,
        )
    )
    till = policy.authenticate("open sesame", None, "client")
    assert till is policy.authenticate("other", None, "client")
    assert till.name == "till"
    assert till.grant.publish == Filter("kind = 'sale' AND shop = 7")
    assert till.limits == Limits(connections_max=64, publications_per_second_max=100)
    assert str(till.permitted_subscription(Filter("price > 1"))) == "price > 1 AND shop = 7"
    neighbour = policy.authenticate(None, "broker-b.example", "broker")
    assert (neighbour.name, neighbour.grant.operate, neighbour.grant.narrow) == ("broker b", True, False)
    assert neighbour.limits == Limits(connections_max=64)
    guest = policy.authenticate(None, None, "client")
    assert guest.name == "anonymous"
    with pytest.raises(AccessDeniedError):
        guest.permitted_subscription(Filter("shop = 7"))
    assert not policy.is_open


def test_without_an_anonymous_table_everybody_has_to_say_who_they_are(tmp_path: Path) -> None:
    policy = load_access(written(tmp_path, f'[principals.a]\ntokens = ["{HASH}"]\n'))
    with pytest.raises(AuthenticationError):
        policy.authenticate(None, None, "client")


def test_a_principal_may_lose_its_last_token(tmp_path: Path) -> None:
    policy = load_access(written(tmp_path, "[principals.a]\ntokens = []\n"))
    assert isinstance(policy, AccessPolicy)
    assert not policy.tokens


WRONG = [
    ("[principals", "is not valid TOML"),
    ("", r"neither \[principals\] nor \[anonymous\]"),
    ("[principal.a]\n", r"line 1, key 'principal': is not known; did you mean 'principals'\?"),
    ("[anonymous]\npublsh = 'TRUE'\n", r"key 'publsh' of \[anonymous\]: .*did you mean 'publish'\?"),
    ("[anonymous]\ntokens = []\n", r"key 'tokens' of \[anonymous\]: is not known"),
    ("[anonymous]\nzzz = 1\n", r"key 'zzz' of \[.*\]: is not known; allowed are publish, subscribe"),
    ("[anonymous]\npublish = 'price >'\n", r"key 'publish' of \[anonymous\]: is not a filter: line 1"),
    ("[anonymous]\npublish = true\n", r"key 'publish' of .*: must be the text of a filter .*, not True"),
    ("[anonymous]\nnarrow = 'yes'\n", r"key 'narrow' of \[.*\]: must be true or false, not 'yes'"),
    ("[limits]\nconnections_max = 0\n", r"key 'connections_max' of \[limits\]: must be a whole number"),
    ("[limits]\nconnections = 1\n", r"key 'connections' of \[limits\]: .*mean 'connections_max'"),
    ("[anonymous.limits]\nframe_bytes_max = true\n", r"key 'frame_bytes_max' of \[anonymous.limits\]"),
    ("anonymous = 1\n", r"key 'anonymous': must be a table, .anonymous., not 1"),
    ("[principals]\na = 1\n", r"key 'a' of \[principals\]: must be a table"),
    ("[principals.a]\npublish = 'TRUE'\n", r"key 'a' of \[principals\]: has neither tokens nor"),
    ("[principals.a]\ntokens = 'x'\n", r"key 'tokens' of \[principals.a\]: must be a list"),
    ("[principals.a]\ncertificates = ['']\n", r"key 'certificates' of \[.*\]: must be a list of non-empty"),
    ("[principals.anonymous]\ntokens = []\n", r"key 'anonymous' of \[.*\]: is no name .* \[anonymous\]"),
    ('[principals."a\\u0007"]\ntokens = []\n', "is no name for a principal"),
    (
        f"[principals.a]\ntokens = ['{HASH}']\n[principals.b]\ntokens = ['{HASH}']\n",
        r"key 'tokens' of \[principals.b\]: holds one that belongs to 'a' already",
    ),
    (
        "[principals.a]\ncertificates = ['x']\n[principals.b]\ncertificates = ['x']\n",
        r"key 'certificates' of \[principals.b\]: holds one that belongs to 'a' already",
    ),
]


@pytest.mark.parametrize(("text", "problem"), WRONG)
def test_mistakes_are_named_with_file_table_and_key(tmp_path: Path, text: str, problem: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigurationError, match=problem) as raised:
        load_access(path)
    assert str(path) in str(raised.value)


def test_a_token_written_down_in_the_clear_is_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="not the hash of a token") as raised:
        load_access(written(tmp_path, "[principals.a]\ntokens = ['open sesame']\n"))
    assert "sesame" not in str(raised.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"gone\.toml cannot be read: No such file"):
        load_access(tmp_path / "gone.toml")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_access(tmp_path)
    path = tmp_path / "latin.toml"
    path.write_bytes(b"# \xe9\n")
    with pytest.raises(ConfigurationError, match="not valid TOML"):
        load_access(path)


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o400, False), (0o640, True), (0o602, True)])
def test_a_file_open_to_others_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, warned: bool
) -> None:
    with caplog.at_level(logging.WARNING, access_file.__name__):
        load_access(written(tmp_path, "[anonymous]\n", mode))
    assert [f"mode {mode:o}" in each.getMessage() for each in caplog.records] == [True] * warned


def test_new_tokens_are_long_different_and_known_by_their_hash(tmp_path: Path) -> None:
    secret, hashed = new_token()
    assert secret.startswith("braid_")
    assert len(secret) >= 40
    assert new_token()[0] != secret
    assert secret not in hashed
    policy = load_access(written(tmp_path, f"[principals.a]\ntokens = ['{hashed}']\n"))
    assert policy.authenticate(secret, None, "client").name == "a"

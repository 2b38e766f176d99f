"""Is every setting in the file, documented, checked, and at its default when it is left out?"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from braid.adaptation import SoftLinkSettings
from braid.broker.settings import BrokerSettings
from braid.cli import main
from braid.errors import ConfigurationError
from braid.server.settings import ServerSettings, default_text, keys_of

DOCUMENT = Path(__file__).parents[2] / "docs" / "configuration.md"
MINIMAL = {"broker": {"broker_id": "A"}}


def written(folder: Path, text: str) -> Path:
    path = folder / "broker.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_default_file_parses_back_to_the_defaults(tmp_path: Path) -> None:
    path = written(tmp_path, default_text())
    assert ServerSettings.of(path, broker_id="A") == ServerSettings.of(MINIMAL)


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        main(("broker", "--print-config"))
    assert ending.value.code == 0
    assert capsys.readouterr().out == default_text()


def test_every_setting_of_a_broker_is_there_with_its_meaning() -> None:
    expected = {field.name for field in fields(BrokerSettings)} - {"soft_links", "topology", "link", "client"}
    assert set(keys_of("broker")) == expected
    assert set(keys_of("soft_links")) == {field.name for field in fields(SoftLinkSettings)}
    for table in (
        "broker",
        "soft_links",
        "topology",
        "link",
        "client",
        "listener",
        "tls",
        "access",
        "store",
        "retention",
        "directory",
    ):
        for key in keys_of(table).values():
            assert key.meaning.endswith("."), key


def test_the_document_holds_the_whole_file() -> None:
    """When this fails: put the output of `braid broker --print-config` into docs/configuration.md."""
    text = DOCUMENT.read_text(encoding="utf-8")
    assert f"```toml\n{default_text()}```\n" in text


def test_values_reach_their_settings(tmp_path: Path) -> None:
    text = """
[broker]
broker_id = "A"
neighbours = ["127.0.0.1:7001"]
heartbeat_us = 5_000
strategy = "SH"
delta = 0
uplink_messages_per_s = 150
uplink_threshold = 0.5
[soft_links]
fanout = 6
candidates_max = 0
review_us = 2_000_000
advantage = 1.5
[client]
window_bytes = 10
[link]
acknowledge_after_frames = 3
[tls]
certificate = "tls/a.pem"
key = "/tls/a.key"
authority = ""
[store]
data_dir = "data"
synchronous = "NORMAL"
[retention]
age_s_max = inf
[directory]
url = "zk://127.0.0.1/braid"
lease_s = 7
"""
    configuration = ServerSettings.of(written(tmp_path, text))
    assert configuration.broker.neighbours == ("127.0.0.1:7001",)
    assert configuration.broker.heartbeat_us == 5_000
    assert (configuration.broker.strategy, configuration.broker.delta) == ("SH", 4)
    assert (configuration.broker.uplink_messages_per_s, configuration.broker.uplink_threshold) == (150.0, 0.5)
    soft_links = SoftLinkSettings(fanout=6, candidates_max=0, review_us=2_000_000, advantage=1.5)
    assert configuration.broker.soft_links == soft_links
    assert configuration.broker.client.window_bytes == 10
    assert configuration.broker.link.acknowledge_after_frames == 3
    assert configuration.broker.link.window_bytes == BrokerSettings(broker_id="A").link.window_bytes
    assert configuration.tls.certificate == tmp_path / "tls/a.pem"
    assert configuration.tls.key == Path("/tls/a.key")
    assert configuration.tls.authority is None
    assert configuration.store.data_dir == tmp_path / "data"
    assert configuration.store.synchronous == "NORMAL"
    assert configuration.retention.oldest_at_us(10**18) is None
    assert (configuration.directory.url, configuration.directory_settings.lease_s) == (
        "zk://127.0.0.1/braid",
        7.0,
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[brokers]\n", ("line 1, key 'brokers':", "did you mean 'broker'?")),
        (
            "[broker]\nhearbeat_us = 5\n",
            ("key 'hearbeat_us' of [broker]", "did you mean 'heartbeat_us'?"),
        ),
        ("[broker]\nheartbeat = 5\n", ("line 2, key 'heartbeat' of [broker]", 'such as "250ms"', "not 5")),
        ("[broker]\nheartbeat = '5 sec'\n", ("'heartbeat'", "'sec' is no unit", "us, ms, s, min, h")),
        ("[broker]\nheartbeat = '1s'\nheartbeat_us = 1\n", ("line 3, key 'heartbeat_us'", "says the same")),
        ("[broker]\nlisten = ''\n", ("line 2, key 'listen' of [broker]", "belongs into [listener]")),
        ("[log]\nzzz = 1\n", ("line 2, key 'zzz' of [log]", "allowed are format, level")),
        ("broker = 1\n", ("'broker'", "must be a table")),
        ("[broker]\nhops_max = 'many'\n", ("'hops_max'", "whole number", "'many'")),
        ("[broker]\nhops_max = true\n", ("'hops_max'", "whole number")),
        ("[broker]\nhops_max = 1.0\n", ("'hops_max'", "whole number")),
        ("[broker]\nheartbeat_us = 0\n", ("'heartbeat_us'", "at least 1")),
        ("[broker]\nflooding = 1\n", ("'flooding'", "true or false")),
        ("[broker]\nbroker_id = 1\n", ("'broker_id'", "text in quotes")),
        ("[broker]\nneighbours = 'x'\n", ("'neighbours'", "list of strings")),
        ("[broker]\nneighbours = [1]\n", ("'neighbours'", "list of strings")),
        ("[tls]\nkey = 1\n", ("line 2, key 'key' of [tls]", "path in quotes")),
        ("[directory]\nlease_s = '1'\n", ("'lease_s'", "number")),
        ("[log]\nlevel = 'loud'\n", ("'level'", "one of debug, info", "'loud'")),
        ("[store]\nsynchronous = 'OFF'\n", ("'synchronous'", "one of FULL, NORMAL")),
        ("[broker]\nstrategy = 'S3'\n", ("'strategy'", "one of S0, S1, S2, SH, SB", "'S3'")),
        ("[broker]\nstrategy = 2\n", ("'strategy'", "S2", "not 2")),
        ("[broker]\ndelta = -1\n", ("'delta'", "at least 0", "-1")),
        ("[broker]\nfanout = 6\n", ("line 2, key 'fanout' of [broker]", "belongs into [soft_links]")),
        ("[broker]\nsoft_links = 6\n", ("line 2, key 'soft_links' of [broker]", "is not known")),
        ("[soft_links]\nfanout = 0\n", ("line 2, key 'fanout' of [soft_links]", "at least 1")),
        ("[soft_links]\nfan_out = 2\n", ("'fan_out'", "did you mean 'fanout'?")),
        ("[broker\n", ("not valid TOML",)),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigurationError) as caught:
        ServerSettings.of(path)
    for word in (str(path), *words):
        assert word in str(caught.value)


def test_values_out_of_range() -> None:
    with pytest.raises(ConfigurationError, match="hops_max must be at most 255"):
        ServerSettings.of({"broker": {"broker_id": "A", "hops_max": 256}})
    with pytest.raises(ConfigurationError, match="age_s_max"):
        ServerSettings.of({**MINIMAL, "retention": {"age_s_max": -1.0}})
    with pytest.raises(ConfigurationError, match="S2 needs to see further"):
        ServerSettings.of({"broker": {"broker_id": "A", "strategy": "S2", "delta": 1}})
    with pytest.raises(ConfigurationError, match="must be one of S0, S1, S2, SH, SB, not 'S3'"):
        ServerSettings.of({"broker": {"broker_id": "A", "strategy": "S3"}})
    with pytest.raises(ConfigurationError, match="delta must be 0 to 255, not 256"):
        ServerSettings.of({"broker": {"broker_id": "A", "delta": 256}})
    with pytest.raises(ConfigurationError, match="uplink_threshold within 0 to 1"):
        ServerSettings.of({"broker": {"broker_id": "A", "uplink_threshold": 1.5}})
    with pytest.raises(ConfigurationError, match="review_us must be at least 1000, not 999"):
        ServerSettings.of({**MINIMAL, "soft_links": {"review_us": 999}})
    with pytest.raises(ConfigurationError, match="--id"):
        ServerSettings.of({})


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        ServerSettings.of(tmp_path / "none.toml")


def test_durations_may_have_a_unit(tmp_path: Path) -> None:
    text = '[broker]\nbroker_id = "A"\nheartbeat = "3s"\nredial_max = "1.5min"\n'
    text += '[client]\nacknowledge_delay = "5ms"\n'
    settings = ServerSettings.of(written(tmp_path, text)).broker
    assert (settings.heartbeat_us, settings.redial_us_max) == (3_000_000, 90_000_000)
    assert settings.client.acknowledge_delay_us == 5_000


def test_options_come_before_the_file_and_are_checked_alike(tmp_path: Path) -> None:
    path = written(tmp_path, '[broker]\nbroker_id = "A"\ndelta = 3\n[store]\ndata_dir = "data"\n')
    settings = ServerSettings.of(path, broker_id="B", data_dir="elsewhere", neighbours=("127.0.0.1:7001",))
    assert (settings.broker.broker_id, settings.broker.delta) == ("B", 3)
    assert settings.broker.neighbours == ("127.0.0.1:7001",)
    assert settings.store.data_dir == Path("elsewhere")
    with pytest.raises(ConfigurationError, match=r"the options, key 'delta' of \[broker\]: .* at least 0"):
        ServerSettings.of(path, delta=-1)
    with pytest.raises(ConfigurationError, match=r"key 'neighbours' of \[broker\]: must be a list"):
        ServerSettings.of(path, neighbours="127.0.0.1:7001")
    with pytest.raises(ConfigurationError, match=r"the settings, key 'id' of \[broker\]: is not known"):
        ServerSettings.of({"broker": {"id": "A"}})

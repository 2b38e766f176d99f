"""Is every setting in the file, documented, checked, and at its default when it is left out?"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from braid.adaptation import SoftLinkSettings
from braid.broker.settings import BrokerSettings
from braid.cli import main
from braid.cli.config_file import default_text, keys_of, make_configuration, override, read_values
from braid.errors import ConfigurationError

DOCUMENT = Path(__file__).parents[2] / "docs" / "configuration.md"
MINIMAL = {"broker": {"broker_id": "A"}}


def written(folder: Path, text: str) -> Path:
    path = folder / "broker.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_default_file_parses_back_to_the_defaults(tmp_path: Path) -> None:
    values = read_values(written(tmp_path, default_text()))
    assert make_configuration(override(values, {("broker", "broker_id"): "A"})) == make_configuration(MINIMAL)


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        main(("broker", "--print-config"))
    assert ending.value.code == 0
    assert capsys.readouterr().out == default_text()


def test_every_setting_of_a_broker_is_there_with_its_meaning() -> None:
    expected = {field.name for field in fields(BrokerSettings)} - {"soft_links", "link", "client"}
    assert set(keys_of("broker")) == expected
    assert set(keys_of("soft_links")) == {field.name for field in fields(SoftLinkSettings)}
    for table in (
        "broker",
        "soft_links",
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
    configuration = make_configuration(read_values(written(tmp_path, text)))
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
        ("[brokers]\n", ("top level", "'brokers'", "did you mean 'broker'?")),
        ("[broker]\nheartbeat = 5\n", ("table [broker]", "'heartbeat'", "did you mean 'heartbeat_us'?")),
        ("[broker]\nlisten = ''\n", ("table [broker]", "'listen'", "belongs into table [listener]")),
        ("[log]\nzzz = 1\n", ("table [log]", "'zzz'", "known are format, level")),
        ("broker = 1\n", ("'broker'", "must be a table")),
        ("[broker]\nhops_max = 'many'\n", ("'hops_max'", "whole number", "'many'")),
        ("[broker]\nhops_max = true\n", ("'hops_max'", "whole number")),
        ("[broker]\nhops_max = 1.0\n", ("'hops_max'", "whole number")),
        ("[broker]\nheartbeat_us = 0\n", ("'heartbeat_us'", "at least 1")),
        ("[broker]\nflooding = 1\n", ("'flooding'", "true or false")),
        ("[broker]\nbroker_id = 1\n", ("'broker_id'", "text in quotes")),
        ("[broker]\nneighbours = 'x'\n", ("'neighbours'", "list of strings")),
        ("[broker]\nneighbours = [1]\n", ("'neighbours'", "list of strings")),
        ("[tls]\nkey = 1\n", ("table [tls]", "'key'", "path in quotes")),
        ("[directory]\nlease_s = '1'\n", ("'lease_s'", "number")),
        ("[log]\nlevel = 'loud'\n", ("'level'", '"debug"', "'loud'")),
        ("[store]\nsynchronous = 'OFF'\n", ("'synchronous'", '"FULL" or "NORMAL"')),
        ("[broker]\nstrategy = 'S3'\n", ("'strategy'", '"S0" or "S1" or "S2" or "SH" or "SB"', "'S3'")),
        ("[broker]\nstrategy = 2\n", ("'strategy'", '"S2"', "2")),
        ("[broker]\ndelta = -1\n", ("'delta'", "at least 0", "-1")),
        ("[broker]\nfanout = 6\n", ("table [broker]", "'fanout'", "belongs into table [soft_links]")),
        ("[broker]\nsoft_links = 6\n", ("table [broker]", "'soft_links'", "is not known")),
        ("[soft_links]\nfanout = 0\n", ("table [soft_links]", "'fanout'", "at least 1")),
        ("[soft_links]\nfan_out = 2\n", ("'fan_out'", "did you mean 'fanout'?")),
        ("[broker\n", ("not valid TOML",)),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigurationError) as caught:
        read_values(path)
    for word in (str(path), *words):
        assert word in str(caught.value)


def test_values_out_of_range() -> None:
    with pytest.raises(ConfigurationError, match="hops_max must be at most 255"):
        make_configuration({"broker": {"broker_id": "A", "hops_max": 256}})
    with pytest.raises(ConfigurationError, match="age_s_max"):
        make_configuration({**MINIMAL, "retention": {"age_s_max": -1.0}})
    with pytest.raises(ConfigurationError, match="S2 needs to see further"):
        make_configuration({"broker": {"broker_id": "A", "strategy": "S2", "delta": 1}})
    with pytest.raises(ConfigurationError, match="a strategy is one of S0, S1, S2, SH, SB; 'S3' is none"):
        make_configuration({"broker": {"broker_id": "A", "strategy": "S3"}})
    with pytest.raises(ConfigurationError, match="delta must be 0 to 255, not 256"):
        make_configuration({"broker": {"broker_id": "A", "delta": 256}})
    with pytest.raises(ConfigurationError, match="uplink_threshold within 0 to 1"):
        make_configuration({"broker": {"broker_id": "A", "uplink_threshold": 1.5}})
    with pytest.raises(ConfigurationError, match="review_us must be at least 1000, not 999"):
        make_configuration({**MINIMAL, "soft_links": {"review_us": 999}})
    with pytest.raises(ConfigurationError, match="--id"):
        make_configuration({})


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_values(tmp_path / "none.toml")

"""Is a scenario read as it is written, and a mistake found where it stands?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.errors import ConfigurationError
from braid.scenario.faults import Fault
from braid.scenario.reading import read_scenario, scenario_from_text
from braid.scenario.running import simulate
from braid.scenario.workload import MemoryWorkload
from braid.settings.document import DURATION_UNITS, parse_duration

if TYPE_CHECKING:
    from pathlib import Path

BASIC = """\
seed = 5
duration = "2s"
drain = "1s"

[topology]
name = "line"
count = 3
latency = "2ms"

[[workload.subscriptions]]
broker = "B002"
client = "ann"
filter = "x > 0"

[[workload.publications]]
broker = "B000"
client = "bob"
attributes = { x = 1, place = { room = "hall" } }
every = "100ms"
count = 10
"""


def test_a_scenario_is_read_and_run() -> None:
    settings = scenario_from_text(BASIC).settings
    assert settings.seed == 5
    assert settings.publish_us == 2_000_000
    assert isinstance(settings.workload, MemoryWorkload)
    assert settings.workload.publications[3].at_us == 300_000
    assert settings.workload.publications[0].attributes == {"x": 1, "place.room": "hall"}
    summary = simulate(settings)
    assert summary.deliveries == 10
    assert summary.hops == 20
    assert summary.violations == ()
    assert scenario_from_text(BASIC, seed=9).settings.seed == 9


def test_brokers_may_have_what_a_configuration_file_may_have() -> None:
    """A disk without any reserve could be written into a configuration file, and not into a scenario."""
    text = "[brokers]\ndisk_low_bytes = 0\ndisk_high_bytes = 0\nmemory_bytes_max = 0\n"
    settings = scenario_from_text(BASIC + text).settings
    assert settings.brokers == {"disk_low_bytes": 0, "disk_high_bytes": 0, "memory_bytes_max": 0}


def test_everything_that_can_be_said() -> None:
    settings = scenario_from_text(
        BASIC
        + """
[brokers]
heartbeat = "1s"
hops_max = 9
redial_max = "3s"
uplink_messages_per_s = 12.5
[brokers.link]
window_bytes = 1000
acknowledge_delay = "5ms"
[brokers.soft_links]
fanout = 7
review = "3s"
candidates_max = 0
advantage = 1.5
[brokers.only.B001]
store = true
strategy = "SH"
delta = 3
heartbeat_us = 77

[links]
latency = "3ms"
bandwidth_bytes_per_s = 5000
loss = 0.5

[nodes]
cost = { publication = "20us", subscribe = "1ms" }
[nodes.only.B002]
cost = "1ms"
uplink_messages_per_s = 150

[[faults]]
at = "-1s"
fault = "partition"
between = [["B000", "B001"], ["B002"]]
lasts = "250ms"
[[faults]]
at_us = 5
fault = "throttle"
broker = "B001"
bytes_per_s = 9
[[faults]]
at = "1s"
fault = "restart"
broker = "B001"
keep_store = false
[[faults]]
at = "1s"
fault = "delay"
between = ["B000", "B001"]
extra = "50ms"
"""
    ).settings
    assert settings.brokers == {
        "link": {"window_bytes": 1000, "acknowledge_delay_us": 5_000},
        "heartbeat_us": 1_000_000,
        "hops_max": 9,
        "redial_us_max": 3_000_000,
        "uplink_messages_per_s": 12.5,
        "soft_links": {"fanout": 7, "review_us": 3_000_000, "candidates_max": 0, "advantage": 1.5},
    }
    assert settings.own_brokers == {"B001": {"heartbeat_us": 77, "strategy": "SH", "delta": 3}}
    assert settings.stores == {"B001"}
    assert settings.latency_us == 3_000
    assert settings.link.loss == 0.5
    assert settings.node.cost_us == {"publication": 20, "subscribe": 1_000}
    assert settings.own_nodes["B002"].cost_us == 1_000
    assert settings.own_nodes["B002"].uplink_messages_per_s == 150
    assert settings.faults == (
        Fault(-1_000_000, "partition", (("B000", "B001"), ("B002",)), {}, 250_000),
        Fault(5, "throttle", ("B001",), {"bytes_per_s": 9}),
        Fault(1_000_000, "restart", ("B001",), {"keep_store": False}),
        Fault(1_000_000, "delay", ("B000", "B001"), {"extra_us": 50_000}),
    )


WRONG = [
    # (what is replaced, by what, the line, words of the message)
    ("seed = 5", 'seed = "five"', 1, ["key 'seed'", "whole number", "'five'"]),
    ("seed = 5", "sead = 5", 1, ["'sead'", "did you mean 'seed'", "allowed are"]),
    ('duration = "2s"', "duration = 2", 2, ["'duration'", '"250ms"', "not 2"]),
    ('duration = "2s"', 'duration = "2 sec"', 2, ["'sec' is no unit", "us, ms, s, min, h"]),
    ('duration = "2s"', 'duration = "0s"', 2, ["at least 1 us"]),
    ('duration = "2s"', 'strategy = "S7"', 2, ["must be one of S0, S1, S2, SH, SB", "not 'S7'"]),
    ('duration = "2s"', 'duration = "2s"\nduration_us = 3', 3, ["says the same"]),
    ('name = "line"', 'name = "lien"', 6, ["key 'name' of [topology]", "did you mean 'line'"]),
    ('name = "line"', "", 5, ["'name' is missing", "'links'"]),
    ("count = 3", "cuont = 3", 7, ["did you mean 'count'", "latency"]),
    ("count = 3", "count = 0", 7, ["at least 1"]),
    ("count = 3", "count = true", 7, ["whole number", "True"]),
    ('broker = "B002"', 'broker = "B003"', 11, ["'B003' is no broker of line-3", "B000, B001, B002"]),
    ('filter = "x > 0"', 'filter = "x >"', 13, ["[workload.subscriptions number 1]", "expected"]),
    ('client = "ann"', "", 10, ["'client' is missing"]),
    ('every = "100ms"', "", 20, ["key 'count'", "needs 'every'"]),
    ("attributes = {", "attributes = { bad = [1],", 18, ["attributes", "bad"]),
]


@pytest.mark.parametrize(("old", "new", "line", "words"), WRONG)
def test_a_mistake_is_found_in_its_line(old: str, new: str, line: int, words: list[str]) -> None:
    assert old in BASIC
    with pytest.raises(ConfigurationError) as caught:
        scenario_from_text(BASIC.replace(old, new, 1), file="mine.toml")
    message = str(caught.value)
    assert f"scenario mine.toml, line {line}," in message
    for word in words:
        assert word in message


ADDED = [
    ("[brokers]\nheartbeet_us = 3", 2, ["did you mean 'heartbeat_us'"]),
    ("[brokers]\nheartbeat_us = 0", 2, ["at least 1"]),
    ("[brokers]\nhops_max = 300", 2, ["at most 255"]),
    ('[brokers]\nbroker_id = "X"', 2, ["is not known"]),
    ("[brokers.only.B009]\nstore = true", 1, ["'B009' is no broker"]),
    ("[brokers.link]\nwindow = 3", 2, ["did you mean 'window_bytes'"]),
    ("[links]\nloss = 1.5", 2, ["from 0 to 0.99"]),
    ("[nodes]\nuplink_bytes_per_s = 1\nuplink_messages_per_s = 1", 1, ["not in both"]),
    ('[[faults]]\nat = "1s"\nfault = "crsh"\nbroker = "B001"', 3, ["did you mean 'crash'"]),
    ('[[faults]]\nfault = "crash"\nbroker = "B001"', 1, ["'at' is missing"]),
    ('[[faults]]\nat = "1s"\nfault = "crash"', 1, ["'broker' is missing"]),
    ('[[faults]]\nat = "1s"\nfault = "hold"\nbetween = ["B000"]', 4, ["two brokers"]),
    ('[[faults]]\nat = "1s"\nfault = "hold"\nbetween = ["B000", "B00"]', 4, ["'B00' is no broker"]),
    ('[[faults]]\nat = "1s"\nfault = "hold"\nbetween = ["B000", "B000"]', 1, ["different ones"]),
    ('[[faults]]\nat = "1s"\nfault = "lose"\nbetween = ["B000", "B001"]', 1, ["'count' is missing"]),
    ('[[faults]]\nat = "1s"\nfault = "throttle"\nbroker = "B001"', 1, ["'bytes_per_s' or"]),
    ('[[faults]]\nat = "1s"\nfault = "repair"\nbetween = ["B000", "B001"]\nlasts = "1s"', 5, ["not known"]),
    (
        '[[faults]]\nat = "1s"\nfault = "restart"\nbroker = "B001"\nkeep_store = true',
        5,
        ["B001 has no store", "store = true"],
    ),
]


@pytest.mark.parametrize(("added", "line", "words"), ADDED)
def test_a_mistake_in_an_added_table(added: str, line: int, words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        scenario_from_text(BASIC + added + "\n")
    message = str(caught.value)
    assert f"line {BASIC.count(chr(10)) + line}," in message
    for word in words:
        assert word in message


def test_workloads_by_name_and_folder(tmp_path: Path) -> None:
    network = '[topology]\nname = "C1"\n'
    settings = scenario_from_text(f'{network}[workload]\nname = "multipath.DT1"\nduration_s = 5\n').settings
    assert getattr(settings.workload, "name", "") == "multipath.DT1"
    for added, line, word in [
        ('name = "multipath.DT9"', 4, "must be one of multipath.DT1"),
        ('name = "multipath.DT1"\nduration_x = 3', 5, "did you mean 'duration_s'"),
        ('name = "multipath.DT1"\nduration_s = "long"', 5, "duration_s is"),
        ('folder = "nowhere"', 3, "holds no workload"),
        ("", 3, "give 'name'"),
    ]:
        with pytest.raises(ConfigurationError, match=word) as caught:
            scenario_from_text(f"{network}[workload]\n{added}\n")
        assert f"line {line}," in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be read: No such file"):
        read_scenario(tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("seed = = 3")
    with pytest.raises(ConfigurationError, match=r"not valid TOML: .*line 1"):
        read_scenario(broken)
    broken.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="not valid TOML"):
        read_scenario(broken)


def test_a_tree_of_ones_own() -> None:
    text = BASIC.replace('name = "line"\ncount = 3', 'links = [["B000", "hub"], ["hub", "B002"]]')
    settings = scenario_from_text(text).settings
    assert not isinstance(settings.topology, str)
    assert settings.topology.brokers == ("B000", "hub", "B002")
    assert settings.topology.latency_us("hub", "B002") == 2_000
    for links, word in [("[1]", "list of pairs"), ('[["A", "B"], ["B", "A"]]', "a tree of 2 brokers")]:
        with pytest.raises(ConfigurationError, match=word):
            scenario_from_text(f"[topology]\nlinks = {links}\n")


@given(number=st.integers(0, 10_000), unit=st.sampled_from(sorted(DURATION_UNITS)))
def test_durations(number: int, unit: str) -> None:
    assert parse_duration(f"{number}{unit}") == number * DURATION_UNITS[unit]
    assert parse_duration(f" {number} {unit} ") == number * DURATION_UNITS[unit]


@pytest.mark.parametrize("text", ["", "s", "1.5us", "3 parsecs", "1e3s", "1,5s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"unit|number|whole"):
        parse_duration(text)

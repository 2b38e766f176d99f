"""Do the numbers of a machine reach Prometheus under the right names?"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from braid.broker.core import BrokerCore
from braid.broker.settings import BrokerSettings
from braid.errors import ConfigurationError
from braid.p2p.dht.ring import Ring
from braid.p2p.dmm import Dmm
from braid.p2p.turn import Turn
from braid.protocol.inputs import Tick
from braid.runtime import metrics
from braid.runtime.datagrams import DatagramCounters
from braid.runtime.metrics import Metrics, TurnTimes

STATISTICS: dict[str, Any] = {
    "broker": "A",
    "counters": {
        "received": 7,
        "delivered": 5,
        "resent_frames": 2,
        "matched_batches": 4,
        "match_ns": 3_000_000_000,
    },
    "routing": {
        "subscriptions": 9,
        "advertisements": 1,
        "links": {
            "B": {"subscriptions_told": 1, "subscriptions_hidden": 3},
            "C": {"subscriptions_told": 0, "subscriptions_hidden": 0},
        },
    },
    "clients": 3,
    "ready": True,
    "mesh": {
        "strategy": "S2",
        "delta": 4,
        "brokers_in_sight": 11,
        "soft_links": ["C", "D"],
        "soft_links_from": ["D"],
        "candidates": [],
        "saving_uplink": False,
    },
    "link_waiting_bytes": {"B": 10},
    "soft_link_waiting_bytes": {"C": 20},
    "durable_logs": {
        "orders": {
            "next_offset": 10,
            "acknowledged": 6,
            "read": False,
            "pins": {"spark": {"offset": 5, "expires_at_us": 3_500_000}},
        }
    },
}


class Machine:
    def statistics(self) -> dict[str, Any]:
        return STATISTICS


def samples(text: bytes) -> dict[tuple[str, ...], float]:
    """Values by name and labels other than the broker's."""
    return {
        (
            sample.name,
            *(f"{key}={value}" for key, value in sorted(sample.labels.items()) if key != "broker"),
        ): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_names_and_values() -> None:
    turns = TurnTimes()
    for duration_us in (5, 10, 11, 2_000_000):
        turns(Tick(), duration_us)
    found = samples(Metrics(Machine(), turns).text())
    expected = {
        ("braid_received_total",): 7,
        ("braid_delivered_total",): 5,
        ("braid_resent_frames_total",): 2,
        ("braid_match_seconds_count",): 4,
        ("braid_match_seconds_sum",): 3,
        ("braid_subscriptions",): 9,
        ("braid_clients",): 3,
        ("braid_ready",): 1,
        ("braid_strategy", "strategy=S2"): 1,
        ("braid_delta",): 4,
        ("braid_brokers_in_sight",): 11,
        ("braid_soft_links",): 2,
        ("braid_soft_links_from",): 1,
        ("braid_candidates",): 0,
        ("braid_saving_uplink",): 0,
        ("braid_soft_link_waiting_bytes", "neighbour=C"): 20,
        ("braid_link_waiting_bytes", "neighbour=B"): 10,
        ("braid_link_covering_ratio", "neighbour=B"): 0.75,
        ("braid_link_covering_ratio", "neighbour=C"): 0,
        ("braid_durable_log_unacknowledged", "log=orders"): 3,
        ("braid_durable_log_pin_expires", "consumer=spark", "log=orders"): 3.5,
        ("braid_turn_seconds_bucket", "input=Tick", "le=1e-05"): 2,
        ("braid_turn_seconds_bucket", "input=Tick", "le=2.5e-05"): 3,
        ("braid_turn_seconds_bucket", "input=Tick", "le=+Inf"): 4,
        ("braid_turn_seconds_count", "input=Tick"): 4,
    }
    assert {key: found.get(key) for key in expected} == expected
    assert found["braid_turn_seconds_sum", "input=Tick"] == pytest.approx(2.000026)


def test_a_peer_says_what_it_holds_and_sends() -> None:
    turn = Turn()
    dht = Ring(turn, "p0")
    dmm = Dmm(turn, dht)
    counters = DatagramCounters(sent=3, dropped=1, messages={"find": 4, "multicast": 2})
    report = {
        "joined": True,
        "neighbours": ["p1", "p2"],
        "holds": dmm.statistics(),
        "connections": {"opened": 2, "accepted": 1},
        "datagrams": msgspec.to_builtins(counters),
        "to_peers": 5,
        "from_peers": 6,
        "refused": 0,
    }
    found = samples(Metrics(Machine(), peer=lambda: report).text())
    expected = {
        ("braid_peer_joined",): 1,
        ("braid_peer_neighbours",): 2,
        ("braid_peer_leaf_entries",): 0,
        ("braid_peer_tree_entries",): 0,
        ("braid_peer_regions",): 0,
        ("braid_peer_connections", "side=opened"): 2,
        ("braid_peer_datagrams_sent_total",): 3,
        ("braid_peer_datagrams_dropped_total",): 1,
        ("braid_peer_to_peers_total",): 5,
        ("braid_peer_messages_sent_total", "kind=find"): 4,
        ("braid_peer_messages_sent_total", "kind=multicast"): 2,
    }
    assert {key: found.get(key) for key in expected} == expected


def test_everything_a_broker_counts_is_there() -> None:
    core = BrokerCore(BrokerSettings(broker_id="A"), incarnation="1", seed=1)
    core.handle(Tick(), 0)
    found = samples(Metrics(core).text())
    counted = set(core.statistics()["counters"]) - {"match_ns"}
    assert {f"braid_{name}_total" for name in counted} <= {key[0] for key in found}
    plain = {name for name, value in core.statistics().items() if isinstance(value, int)}
    assert {f"braid_{name}" for name in plain} <= {key[0] for key in found}
    mesh = set(core.statistics()["mesh"])
    assert {f"braid_{name}" for name in mesh} <= {key[0] for key in found}


def test_every_metric_has_a_help_text() -> None:
    text = Metrics(Machine(), TurnTimes()).text().decode()
    for family in text_string_to_metric_families(text):
        assert family.documentation.endswith(".")


def test_without_prometheus_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"braid-pubsub\[network\]"):
        Metrics(Machine()).text()


def test_nothing_unprintable_reaches_the_metrics() -> None:
    class Odd:
        def statistics(self) -> dict[str, Any]:
            return STATISTICS | {
                "durable_logs": {"a\r\x1b[2J\x9b\u2028b": STATISTICS["durable_logs"]["orders"]}
            }

    text = Metrics(Odd()).text().decode()
    assert "braid_durable_log_unacknowledged" in text
    assert all(line.isprintable() for line in text.split("\n"))

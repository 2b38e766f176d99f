"""Does `braid dashboard` show a real network, and do what it promises to it?"""

from __future__ import annotations

import http.client
import json
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

import braid
from tests.cli.broker_process import BrokerProcess, running_broker
from tests.cli.broker_process import braid as run_braid

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.net, pytest.mark.slow]


class DashboardProcess(BrokerProcess):
    """A dashboard, with what a page would ask of it."""

    command = "dashboard"

    @property
    def netloc(self) -> str:
        return urlsplit(self.wait_for(r"(https?://\S+)")[1]).netloc

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """The status, and what came as JSON."""
        connection = http.client.HTTPConnection(self.netloc, timeout=60)
        sent = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(method, path, json.dumps(body) if body is not None else None, sent | headers)
        response = connection.getresponse()
        answer = response.read()
        connection.close()
        return response.status, json.loads(answer)

    def events(self, path: str = "/api/stream") -> Iterator[tuple[str, Any]]:
        """Kinds and contents of the events of a stream."""
        connection = http.client.HTTPConnection(self.netloc, timeout=60)
        connection.request("GET", path)
        response = connection.getresponse()
        assert response.status == 200, response.read()
        try:
            while line := response.readline():
                if line.startswith(b"event: "):
                    yield line[7:].decode().strip(), json.loads(response.readline()[6:])
        finally:
            connection.close()

    def picture_where(self, fits: Any) -> dict[str, Any]:
        """The first picture that fits."""
        events = self.events()
        for kind, content in events:
            if kind == "picture" and fits(content):
                events.close()
                return content
        raise AssertionError("the stream has ended")


@contextmanager
def running_dashboard(*arguments: str) -> Iterator[DashboardProcess]:
    """One that serves; it is ended afterwards."""
    dashboard = DashboardProcess("--listen", "127.0.0.1:0", "--interval", "0.2", *arguments)
    try:
        assert dashboard.netloc
        yield dashboard
    finally:
        assert dashboard.stop() == 0, dashboard.lines


@pytest.fixture
def line() -> Iterator[dict[str, BrokerProcess]]:
    """A - B - C."""
    with (
        running_broker("A") as a,
        running_broker("B", "--neighbor", a.address) as b,
        running_broker("C", "--neighbor", b.address) as c,
    ):
        a.wait_for("link up")
        b.wait_for("link up.*neighbour=C")
        yield {"A": a, "B": b, "C": c}


def whole(picture: dict[str, Any], count: int = 3) -> bool:
    return bool(picture["complete"]) and len(picture["brokers"]) == count


def test_a_publication_is_tried_and_its_way_is_found(line: dict[str, BrokerProcess]) -> None:
    with running_dashboard("--broker", line["A"].address) as dashboard:
        picture = dashboard.picture_where(whole)
        assert [(link["a"], link["b"]) for link in picture["links"]] == [("A", "B"), ("B", "C")]
        with braid.connect_sync(line["C"].address, name="reader") as reader:
            wanted = reader.subscribe("price > 10")
            status, found = dashboard.ask(
                "POST", "/api/publish", {"attributes": {"price": 12}, "broker": "A"}
            )
            assert (status, found["settled"]) == (200, True)
            assert [(hop["broker"], hop["came_from"]) for hop in found["hops"][1:]] == [
                ("B", "A"),
                ("C", "B"),
            ]
            assert found["hops"][0]["came_by"] == "client"
            assert found["hops"][2]["went_to"][0]["name"] == "reader"
            assert (found["subscribers"], found["silent"]) == (1, [])
            assert wanted.get(timeout_s=30)["price"] == 12
            _, listed = dashboard.ask("GET", "/api/subscriptions?search=price")
            assert [(tree["filter"], tree["owners"][0]["broker"]) for tree in listed["trees"]] == [
                ("price > 10", "C")
            ]
        _, nobody = dashboard.ask("POST", "/api/publish", {"attributes": {"price": 1}, "broker": "B"})
        assert [hop["broker"] for hop in nobody["hops"]] == ["B"]
        assert nobody["subscribers"] == 0


def test_matching_publications_are_shown_as_they_come(line: dict[str, BrokerProcess]) -> None:
    with running_dashboard("--broker", line["A"].address) as dashboard:
        dashboard.picture_where(whole)
        events = dashboard.events("/api/matches?filter=price+%3E+10")
        assert next(events)[1]["installed"]
        with braid.connect_sync(line["C"].address) as writer:
            writer.publish_batch([{"price": number} for number in range(60)])
        seen = 0
        last: list[dict[str, Any]] = []
        while seen < 49:
            kind, content = next(events)
            assert kind == "matches"
            assert len(content["publications"]) <= 20
            seen += len(content["publications"]) + content["more"]
            last = content["publications"] or last
        assert (seen, last[-1]["attributes"]) == (49, {"price": 59})
        events.close()


def test_a_plan_is_previewed_and_carried_out_while_the_network_runs(line: dict[str, BrokerProcess]) -> None:
    with running_dashboard("--broker", line["A"].address) as dashboard:
        dashboard.picture_where(whole)
        status, preview = dashboard.ask("POST", "/api/plan", {"move": ["C", "B", "A"]})
        assert (status, [step["step"] for step in preview["steps"]]) == (200, ["SHIFT(C, B, A)"])
        assert dashboard.picture_where(whole)["links"][1]["b"] == "C", "a preview changes nothing"
        assert dashboard.ask("POST", "/api/apply", {"plan": preview["plan"]})[0] == 200
        moved = dashboard.picture_where(
            lambda picture: whole(picture) and picture["plan"]["state"] == "finished"
        )
        assert [(link["a"], link["b"]) for link in moved["links"]] == [("A", "B"), ("A", "C")]
        hello = next(content for kind, content in dashboard.events() if kind == "hello")
        told = [change["text"] for change in hello["changes"]]
        assert "A plan of 1 steps has begun." in told or "A plan of 1 step has begun." in told
        assert "C moved from B to A." in told
        # What was shown holds only for the network as it was.
        dashboard.ask("POST", "/api/apply", {"plan": preview["plan"]})
        failed = dashboard.picture_where(lambda picture: picture["plan"]["state"] == "failed")
        assert failed["plan"]["problem"]
        for odd in (
            {"move": ["C", "B", "B"]},
            {"move": ["C", "C", "A"]},
            {"links": [["A", "B"]]},
            {"links": [["A", "A"]]},
            {},
        ):
            status, answer = dashboard.ask("POST", "/api/plan", odd)
            assert status == 400, answer


def test_a_broker_that_dies_is_shown_and_another_one_is_asked(line: dict[str, BrokerProcess]) -> None:
    """Also when it is the one that the dashboard was given."""
    with running_dashboard("--broker", line["B"].address) as dashboard:
        dashboard.picture_where(whole)
        line["B"].process.kill()
        dead = dashboard.picture_where(
            lambda picture: any(broker["problem"] for broker in picture["brokers"])
        )
        assert [broker["id"] for broker in dead["brokers"] if broker["problem"]] == ["B"]
        (problem,) = (broker["problem"] for broker in dead["brokers"] if broker["problem"])
        assert problem in ("nothing listens at its address", "it ended the connection")
        assert {broker["id"] for broker in dead["brokers"]} >= {"B"}
        assert not dead["complete"]


def test_a_broker_that_was_replaced_is_shown_where_it_is_now(line: dict[str, BrokerProcess]) -> None:
    """Its neighbours know; and while it is gone, pictures come as often as ever."""
    with (
        running_broker("X", "--standby") as standby,
        running_dashboard("--broker", line["A"].address) as dashboard,
    ):
        dashboard.picture_where(whole)
        line["C"].process.kill()
        silent = dashboard.picture_where(lambda picture: any(each["problem"] for each in picture["brokers"]))
        assert [each["id"] for each in silent["brokers"] if each["problem"]] == ["C"]
        asked = ("--standby", standby.address, "--within", "60", "--broker", line["A"].address)
        replaced = run_braid("overlay", "replicate", "C", *asked)
        assert replaced.returncode == 0, replaced.stderr
        picture = dashboard.picture_where(whole)
        (found,) = (each for each in picture["brokers"] if each["id"] == "C")
        assert found["address"] == standby.address
        hello = next(content for kind, content in dashboard.events() if kind == "hello")
        assert "C has been replaced by another process." in [change["text"] for change in hello["changes"]]


def test_latencies_are_measured(line: dict[str, BrokerProcess]) -> None:
    with running_dashboard("--broker", line["A"].address) as dashboard:
        picture = dashboard.picture_where(lambda picture: len(picture["latencies"]) == 3)
        assert all(0 < taken_ms < 2000 for taken_ms in picture["latencies"].values())
        assert picture["latency_ms"] > 0


def test_what_cannot_be_served_is_said(tmp_path: Any) -> None:
    refused = run_braid("dashboard", "--listen", "0.0.0.0:0", "--broker", "127.0.0.1:1")
    assert refused.returncode == 2
    assert "127.0.0.1:1" in refused.stderr
    with running_broker("A") as broker:
        refused = run_braid("dashboard", "--listen", "0.0.0.0:0", "--broker", broker.address)
        assert refused.returncode == 2
        assert re.search(
            "refusing to serve the dashboard on 0.0.0.0 without TLS and authentication", refused.stderr
        )
        assert "--insecure" in refused.stderr
        taken = urlsplit(broker.address.replace("braid:", "http:")).netloc
        refused = run_braid("dashboard", "--listen", taken, "--broker", broker.address)
        assert refused.returncode == 2
        assert f"cannot serve the dashboard on {taken}" in refused.stderr
    refused = run_braid("dashboard", "--tls-key", "d.key")
    assert (refused.returncode, refused.stderr) == (
        2,
        "braid: --tls-key is the key of a certificate; give --tls-certificate as well\n",
    )


def test_brokers_with_an_access_file_are_watched_with_a_token(tmp_path: Any) -> None:
    import hashlib

    def digest(token: str) -> str:
        return "sha256:" + hashlib.sha256(token.encode()).hexdigest()

    access = tmp_path / "access.toml"
    access.write_text(
        f'[principals.boss]\noperate = true\npublish = "TRUE"\nsubscribe = "TRUE"\n'
        f'tokens = ["{digest("boss-token")}"]\n'
        f'[principals.till]\npublish = "TRUE"\ntokens = ["{digest("till-token")}"]\n'
    )
    with (
        running_broker("A", "--access", str(access)) as broker,
        running_dashboard("--broker", broker.address) as found,
    ):
        assert found.ask("GET", "/api/subscriptions")[0] == 401
        assert found.ask("GET", "/api/subscriptions", Authorization="Bearer till-token")[0] == 401
        assert found.ask("GET", "/api/subscriptions", Authorization="Bearer boss-token")[0] == 200
        till = {"Authorization": "Bearer till-token"}
        assert found.ask("POST", "/api/publish", {"attributes": {"x": 1}}, **till)[0] == 401
        status, answer = found.ask(
            "POST", "/api/publish", {"attributes": {"x": 1}}, Authorization="Bearer boss-token"
        )
        assert (status, [hop["broker"] for hop in answer["hops"]]) == (200, ["A"])


def test_a_broker_has_a_dashboard_beside_it_that_ends_with_it() -> None:
    with running_broker("A", "--dashboard", "0") as broker:
        url = broker.wait_for(r"dashboard.*?(http://[^\s\"]+)")[1]
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
        connection.request("GET", "/health")
        assert connection.getresponse().read() == b"alive\n"
        connection.close()
    with pytest.raises(ConnectionRefusedError):
        http.client.HTTPConnection(urlsplit(url).netloc, timeout=30).request("GET", "/health")


def test_a_dashboard_that_cannot_start_keeps_the_broker_from_starting() -> None:
    with running_broker("A") as other:
        taken = urlsplit(other.address.replace("braid:", "http:")).netloc
        refused = run_braid("broker", "--id", "B", "--listen", "127.0.0.1:0", "--dashboard", taken)
    assert refused.returncode == 2
    assert f"the dashboard did not start: cannot serve the dashboard on {taken}" in refused.stderr

"""Does the server of the dashboard answer the right requests, and only those?"""

from __future__ import annotations

import http.client
import json
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from braid.cli.connection_options import Door
from braid.dashboard.viewers import VIEWERS_MAX
from braid.dashboard.web import BODY_BYTES_MAX
from tests.dashboard.feeds import FeedWatch, tree_links
from tests.dashboard.served import ServedDashboard, served

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.net


@pytest.fixture
def page() -> Iterator[ServedDashboard]:
    with served(FeedWatch(tree_links(5))) as found:
        yield found


def ask(
    page: ServedDashboard, method: str, path: str, body: Any = None, **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection(urlsplit(page.url).netloc, timeout=30)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if body is not None:
        sent.setdefault("Content-Type", "application/json")
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, body, sent)
    response = connection.getresponse()
    try:
        return response, response.read() if "event-stream" not in response.headers["content-type"] else b""
    finally:
        connection.close()


def test_every_answer_forbids_scripts_from_elsewhere_and_frames(page: ServedDashboard) -> None:
    for path in ("/", "/assets/dashboard.js", "/nothing", "/api/stream", "/health"):
        response, _ = ask(page, "GET", path)
        if path == "/nothing":
            assert response.status == 404
            continue
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert response.headers["x-content-type-options"] == "nosniff"


def test_the_page_names_nothing_from_elsewhere(page: ServedDashboard) -> None:
    _, body = ask(page, "GET", "/")
    text = body.decode()
    assert "http://" not in text
    assert "https://" not in text
    assert "style=" not in text
    assert "<script>" not in text
    for name in ("dashboard", "map", "layout", "panels", "plan", "stream", "tiles", "trial", "dom"):
        response, script = ask(page, "GET", f"/assets/{name}.js")
        assert response.headers["content-type"].startswith("text/javascript")
        for danger in (b"innerHTML", b"outerHTML", b"insertAdjacentHTML", b"document.write", b"eval("):
            assert danger not in script


@pytest.mark.parametrize(
    "path", ["/assets/../web.py", "/assets/..%2fweb.py", "/assets/web.py", "/assets/%00"]
)
def test_only_assets_are_served(page: ServedDashboard, path: str) -> None:
    assert ask(page, "GET", path)[0].status == 404


def test_requests_of_other_pages_are_turned_away(page: ServedDashboard) -> None:
    assert ask(page, "GET", "/", Host="evil.example")[0].status == 421
    assert ask(page, "GET", "/api/subscriptions", Origin="http://evil.example")[0].status == 403
    assert (
        ask(page, "POST", "/api/publish", {"attributes": {"x": 1}}, Origin="http://evil.example")[0].status
        == 403
    )
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert ask(page, "POST", "/api/filter", {"filter": "x = 1"}, Content_Type=kind)[0].status == 415
    assert ask(page, "GET", "/api/publish")[0].status == 405


def test_bodies_are_bounded_and_have_to_be_objects(page: ServedDashboard) -> None:
    exact = b'{"filter": "x = 1"' + b" " * (BODY_BYTES_MAX - 19) + b"}"
    assert len(exact) == BODY_BYTES_MAX
    assert ask(page, "POST", "/api/filter", exact)[0].status == 200
    assert ask(page, "POST", "/api/filter", exact + b" ")[0].status == 413
    for odd in (b"", b"[]", b"{", b"\xff", b'"x"', b"[" * 100_000):
        response, answer = ask(page, "POST", "/api/filter", odd)
        assert response.status == 400
        assert json.loads(answer)["error"] == "send a JSON object"


def test_filters_are_judged(page: ServedDashboard) -> None:
    assert json.loads(ask(page, "POST", "/api/filter", {"filter": "x > 1"})[1])["ok"]
    assert not json.loads(ask(page, "POST", "/api/filter", {"filter": "x >"})[1])["ok"]
    assert not json.loads(ask(page, "POST", "/api/filter", {"filter": 7.5, "other": []})[1])["ok"]
    assert ask(page, "GET", "/api/matches?filter=x+%3E")[0].status == 400


def test_mistakes_are_answers_and_not_failures(page: ServedDashboard) -> None:
    page.call(page.dashboard.show, page.dashboard.watch.look_now())
    assert ask(page, "POST", "/api/publish", {"attributes": [1]})[0].status == 400
    assert ask(page, "POST", "/api/publish", {"attributes": {"x": 1}, "broker": "nobody"})[0].status == 404
    assert ask(page, "POST", "/api/apply", {"plan": "made up"})[0].status == 409
    response, answer = ask(page, "POST", "/api/plan", {"links": "no"})
    assert response.status == 400, answer  # nobody answers behind this feed


def test_a_stream_begins_with_what_was_and_goes_on_with_what_is(page: ServedDashboard) -> None:
    watch = page.dashboard.watch
    page.call(page.dashboard.show, watch.look_now())
    watch.failed = {"B05"}
    page.call(page.dashboard.show, watch.look_now())
    events = Events(page)
    hello = events.next("hello")
    assert hello["changes"][0]["text"] == "B05 does not answer: connection refused."
    assert len(hello["points"]) == page.dashboard.history.points.__len__()
    assert len(events.next("picture")["brokers"]) == 5
    watch.failed = set()
    page.call(page.dashboard.show, watch.look_now())
    assert events.next("change")["text"] == "B05 is back."
    assert all(not broker["problem"] for broker in events.next("picture")["brokers"])
    events.close()


class Events:
    """A viewer that reads a stream."""

    def __init__(self, page: ServedDashboard) -> None:
        self.connection = http.client.HTTPConnection(urlsplit(page.url).netloc, timeout=30)
        self.connection.request("GET", "/api/stream")
        self.response = self.connection.getresponse()
        assert self.response.status == 200, self.response.read()

    def next(self, kind: str) -> dict[str, Any]:
        """The content of the next event of a kind."""
        while True:
            line = self.response.readline()
            assert line, "the stream has ended"
            if line == f"event: {kind}\n".encode():
                found: dict[str, Any] = json.loads(self.response.readline().removeprefix(b"data: "))
                return found

    def close(self) -> None:
        """Go away."""
        self.connection.close()


def test_a_viewer_that_does_not_read_holds_nobody_up() -> None:
    """Thousands of pictures for one that reads nothing: the other one gets the last, and nothing piles up."""
    watch = FeedWatch(tree_links(60), soft=30)
    with served(watch) as page:
        address = urlsplit(page.url)
        with socket.create_connection((address.hostname, address.port)) as sleeper:
            sleeper.sendall(f"GET /api/stream HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode())
            reader = Events(page)
            reader.next("hello")
            assert sleeper.recv(1)
            for _ in range(400):
                page.call(page.dashboard.show, watch.look_now())
            last = page.dashboard._number
            while reader.next("picture")["number"] < last:
                pass
            found = page.dashboard.viewers.statistics()
            assert found["viewers"] == 2
            assert found["skipped"] > 0
            reader.close()


def test_there_are_so_many_viewers_and_no_more(page: ServedDashboard) -> None:
    viewers = [Events(page) for _ in range(VIEWERS_MAX)]
    for viewer in viewers:
        viewer.next("hello")
    response, _ = ask(page, "GET", "/api/stream")
    assert response.status == 409
    for viewer in viewers:
        viewer.close()


def test_brokers_that_ask_for_tokens_are_shown_to_those_who_have_one() -> None:
    watch = FeedWatch(tree_links(3))
    with served(watch, door=Door(timeout_s=1.0), admits=lambda token: token == "right") as page:
        assert ask(page, "GET", "/")[0].status == 200  # the page itself holds nothing
        for path in ("/api/stream", "/api/subscriptions"):
            assert ask(page, "GET", path)[0].status == 401
            assert ask(page, "GET", path, Authorization="Bearer wrong")[0].status == 401
            assert ask(page, "GET", path, Authorization="Bearer right")[0].status == 200
        for path in ("/api/publish", "/api/plan", "/api/apply", "/api/stop"):
            assert ask(page, "POST", path, {"attributes": {"x": 1}})[0].status == 401
        assert ask(page, "GET", "/api/matches?filter=x%3D1")[0].status == 401
        assert ask(page, "GET", "/api/stream", Authorization="Basic right")[0].status == 401


def test_a_token_opens_the_network_for_a_watch_that_has_none() -> None:
    watch = FeedWatch(tree_links(3))
    watch.problem = "refused (authentication)"
    with served(watch, door=Door(timeout_s=1.0), admits=lambda token: token == "right") as page:
        page.call(page.dashboard.show, watch.look_now())
        ask(page, "GET", "/api/stream", Authorization="Bearer wrong")
        assert watch.door is None
        ask(page, "GET", "/api/stream", Authorization="Bearer right")
        assert watch.door is not None
        assert watch.door.token == "right"

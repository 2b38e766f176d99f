"""Does a stream give its place back however it ends, also before it has begun?"""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from braid.cli.connection_options import Door
from braid.dashboard import plans, web
from braid.dashboard.guard import Guard
from braid.dashboard.plans import Plans
from braid.dashboard.viewers import VIEWERS_MAX
from braid.dashboard.web import MATCHING_MAX, Dashboard
from braid.errors import RequestRefusedError
from braid.reconfiguration import OverlayTree, PlanOptions
from tests.dashboard.feeds import FeedWatch, tree_links

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LINE = [("A", "B"), ("B", "C"), ("C", "D")]


def dashboard_of(watch: Any) -> Dashboard:
    door = Door(timeout_s=1.0)

    async def admit(_: str | None) -> bool:
        return True

    return Dashboard(watch, Guard("127.0.0.1", (), door, watch.start, admit), door)


class Asking:
    """One request, as a web server hands it over; `gone` is set when its reader leaves."""

    def __init__(self, path: str, query: str = "", *, gone: bool = False) -> None:
        self.path, self.query = path, query
        self.sent: list[dict[str, Any]] = []
        self.answered = asyncio.Event()
        self.gone = asyncio.Event()
        if gone:
            self.gone.set()

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        if self.gone.is_set():
            await asyncio.Event().wait()  # nobody takes it; the server ends the request
        self.sent.append(message)
        if message.get("body") or message.get("status", 200) != 200:
            self.answered.set()

    async def run(self, dashboard: Dashboard) -> None:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": self.path,
            "query_string": self.query.encode(),
            "headers": [(b"host", b"127.0.0.1")],
            "server": ("127.0.0.1", 80),
        }
        await dashboard.app()(scope, self.receive, self.send)

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])


def test_viewers_who_leave_before_the_first_word_cost_no_place() -> None:
    async def run() -> None:
        dashboard = dashboard_of(FeedWatch(LINE))
        for _ in range(VIEWERS_MAX + 1):
            await Asking("/api/stream", gone=True).run(dashboard)
        assert len(dashboard.viewers) == 0
        staying = Asking("/api/stream")
        task = asyncio.create_task(staying.run(dashboard))
        await staying.answered.wait()
        assert staying.status == 200
        assert len(dashboard.viewers) == 1
        staying.gone.set()
        await task
        assert len(dashboard.viewers) == 0

    asyncio.run(run())


async def unending(*_: Any) -> AsyncIterator[dict[str, Any]]:
    yield {"publications": []}
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("path", "query", "places", "status"),
    [("/api/stream", "", VIEWERS_MAX, 409), ("/api/matches", "filter=x%3D1", MATCHING_MAX, 429)],
)
def test_of_many_who_come_in_one_moment_only_as_many_get_in_as_there_are_places(
    path: str, query: str, places: int, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "matching", unending)

    async def run() -> None:
        dashboard = dashboard_of(FeedWatch(LINE))
        for _ in range(2):  # the places are free again when all have gone
            asked = [Asking(path, query) for _ in range(places + 8)]
            tasks = [asyncio.create_task(each.run(dashboard)) for each in asked]
            await asyncio.gather(*(each.answered.wait() for each in asked))
            assert sorted(each.status for each in asked) == [200] * places + [status] * 8
            for each in asked:
                each.gone.set()
            await asyncio.gather(*tasks)

    asyncio.run(run())


def test_a_refused_stream_says_why_and_has_the_headers_of_all_answers() -> None:
    async def run() -> None:
        dashboard = dashboard_of(FeedWatch(LINE))
        staying = [Asking("/api/stream") for _ in range(VIEWERS_MAX)]
        tasks = [asyncio.create_task(each.run(dashboard)) for each in staying]
        await asyncio.gather(*(each.answered.wait() for each in staying))
        late = Asking("/api/stream")
        await late.run(dashboard)
        assert "close another page" in json.loads(late.sent[1]["body"])["error"]
        assert b"content-security-policy" in dict(late.sent[0]["headers"])
        assert b"content-security-policy" in dict(staying[0].sent[0]["headers"])
        for each in staying:
            each.gone.set()
        await asyncio.gather(*tasks)

    asyncio.run(run())


# Previews of plans.


class LiveTree:
    """What `LiveNetwork` is to plans, without a network."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    async def tree(self) -> OverlayTree:
        return OverlayTree(tree_links(40, 1))


async def preview(made: Plans) -> dict[str, Any]:
    return await made.preview("", Door(), {"links": [list(link) for link in tree_links(40, 2)]})


def test_one_plan_is_looked_for_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "LiveNetwork", LiveTree)
    begun, go_on = threading.Event(), threading.Event()

    def found(start: OverlayTree, goal: OverlayTree, options: PlanOptions) -> Any:
        begun.set()
        assert go_on.wait(30)
        raise RequestRefusedError("looked", "limit")

    monkeypatch.setattr(plans, "find_plan", found)

    async def run() -> None:
        made = Plans(lambda *_: None, lambda: None)
        first = asyncio.create_task(preview(made))
        await asyncio.to_thread(begun.wait, 30)
        try:
            with pytest.raises(RequestRefusedError, match="another plan is being looked for"):
                await preview(made)
        finally:
            go_on.set()
        for task in (first, preview(made)):  # and then there is room for the next one
            with pytest.raises(RequestRefusedError, match="looked"):
                await task

    asyncio.run(run())


@pytest.mark.parametrize("leaving", ["in time", "closed"])
def test_a_search_ends_with_the_patience_of_its_viewer(leaving: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread, too: it would go on for minutes, and the dashboard could not end before it."""
    monkeypatch.setattr(plans, "LiveNetwork", LiveTree)
    if leaving == "in time":
        monkeypatch.setattr(plans, "SEARCH_S_MAX", 0.0)
    begun, ended = threading.Event(), threading.Event()
    found = plans.find_plan

    def watched(start: OverlayTree, goal: OverlayTree, options: PlanOptions) -> Any:
        begun.set()
        try:
            while True:
                found(start, goal, options)
        finally:
            ended.set()

    monkeypatch.setattr(plans, "find_plan", watched)

    async def run() -> None:
        made = Plans(lambda *_: None, lambda: None)
        looking = asyncio.create_task(preview(made))
        await asyncio.to_thread(begun.wait, 30)
        if leaving == "closed":
            await made.close()
        with pytest.raises(RequestRefusedError, match="braid overlay plan"):
            await looking
        assert await asyncio.to_thread(ended.wait, 30)

    asyncio.run(run())

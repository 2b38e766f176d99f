"""Serves the page, the stream of pictures, and what the page asks for.

Every answer carries the headers of `guard`, every request is judged before anything is done, and every
body and stream is bounded.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from braid.dashboard.covering import covering_forest
from braid.dashboard.guard import SECURITY_HEADERS, Guard, Refusal
from braid.dashboard.history import History
from braid.dashboard.picture import picture_of
from braid.dashboard.plans import Plans
from braid.dashboard.streaming import EventStream, Places
from braid.dashboard.trial import filter_report, matching, publish
from braid.dashboard.viewers import Viewers
from braid.errors import BraidError, RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping

    from starlette.requests import Request

    from braid.cli.connection_options import Door
    from braid.dashboard.measured import Measured
    from braid.dashboard.probe import Probe
    from braid.dashboard.viewers import Viewer
    from braid.dashboard.watch import Look, NetworkWatch

__all__ = ["Dashboard"]

BODY_BYTES_MAX: Final = 256 * 1024
# A stream says something at least this often, so that one whose reader has gone is noticed.
QUIET_S: Final = 10.0
# Streams of matching publications at a time: each is a subscription in the network.
MATCHING_MAX: Final = 16
# Subscriptions asked for, of each broker.
SUBSCRIPTIONS_EACH: Final = 200
_TYPES: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}

_log = logging.getLogger("braid.dashboard")


class Dashboard:
    """One network, watched.

    Args:
        watch: looks at it.
        guard: judges requests.
        door: the dashboard's own way in.
        interval_s: between two looks.
        probe: measures latencies; None for no measuring.
        measured: what traces say of the network; None where nobody keeps that.
    """

    def __init__(
        self,
        watch: NetworkWatch,
        guard: Guard,
        door: Door,
        *,
        interval_s: float = 1.0,
        probe: Probe | None = None,
        measured: Measured | None = None,
    ) -> None:
        self._measured = measured
        self.watch = watch
        self.viewers = Viewers()
        self.history = History()
        self._guard = guard
        self._door = door
        self._interval_s = interval_s
        self._probe = probe
        self._plans = Plans(self._tell, self._plan_changed)
        self._before: Look | None = None
        self._number = 0
        self._picture: dict[str, Any] | None = None
        self._matching = Places(
            MATCHING_MAX, f"{MATCHING_MAX} pages are looking at matching publications already"
        )
        self._assets = {
            each.name: (each.read_bytes(), _TYPES[each.name.rpartition(".")[2]])
            for each in (files("braid.dashboard") / "assets").iterdir()
            if each.name.rpartition(".")[2] in _TYPES
        }

    # Looking.

    async def show(self, look: Look) -> None:
        """Take in another look and hand the picture to all viewers."""
        self._number += 1
        picture = picture_of(self._before, look, self._number)
        picture["latency_ms"] = self._probe.latency_ms if self._probe is not None else None
        picture["latencies"] = dict(self._probe.by_broker) if self._probe is not None else {}
        self._before = look
        picture["changes"] = self.history.add(picture, picture["latency_ms"])
        picture["point"] = self.history.points[-1]
        picture["plan"] = self._plans.state
        picture["measured"] = self._measured.now() if self._measured is not None else None
        self._picture = picture
        for change in picture["changes"]:
            self.viewers.tell(_event("change", change))
        self.viewers.show(_event("picture", picture))

    def _tell(self, text: str, brokers: Iterable[str]) -> None:
        self.history.note("plan", text, brokers, time.time())
        self.viewers.tell(_event("change", self.history.changes[-1]))

    def _plan_changed(self) -> None:
        self.viewers.tell(_event("plan", self._plans.state))

    @asynccontextmanager
    async def _running(self, _app: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self._look_for_ever())]
        if self._probe is not None:
            tasks.append(asyncio.create_task(self._probe.run()))
        try:
            yield
        finally:
            self.end()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._plans.close()
            await self.watch.close()

    async def _look_for_ever(self) -> None:
        while True:
            try:
                await self.watch.run(self._interval_s, self.show)
            except Exception:
                # A report that cannot be understood must not end the watching for good.
                _log.exception("a look at the network has failed")
                await asyncio.sleep(self._interval_s)

    def end(self) -> None:
        """Let all streams end."""
        self.viewers.end()

    # Serving.

    def app(self) -> Starlette:
        """What a web server runs."""
        reading: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/api/stream": self._stream,
            "/api/matches": self._matches,
            "/api/subscriptions": self._subscriptions,
        }
        changing: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/api/filter": self._filter,
            "/api/publish": self._publish,
            "/api/plan": self._preview,
            "/api/apply": self._apply,
            "/api/stop": self._stop,
        }
        routes = [
            Route("/", partial(self._judged, self._page), methods=["GET"]),
            Route("/health", partial(self._judged, _health), methods=["GET"]),
            Route("/assets/{name}", partial(self._judged, self._asset), methods=["GET"]),
        ]
        routes += [Route(path, partial(self._judged, run), methods=["GET"]) for path, run in reading.items()]
        routes += [
            Route(path, partial(self._judged, run, changes=True), methods=["POST"])
            for path, run in changing.items()
        ]
        return Starlette(routes=routes, lifespan=self._running)

    async def _judged(
        self, answer: Callable[[Request], Awaitable[Response]], request: Request, changes: bool = False
    ) -> Response:
        try:
            self._guard.check_request(request.headers, request.url.scheme, changes=changes)
            response = await answer(request)
        except Refusal as refusal:
            response = JSONResponse({"error": refusal.reason}, refusal.status)
        except RequestRefusedError as error:
            response = JSONResponse({"error": str(error), "code": error.code}, 409)
        except BraidError as error:
            response = JSONResponse({"error": str(error)}, 400)
        except Exception:
            _log.exception("a request could not be answered")
            response = JSONResponse({"error": "it failed; the log of the dashboard says how"}, 500)
        response.headers.update(SECURITY_HEADERS)
        return response

    async def _page(self, request: Request) -> Response:
        return self._asset_named("index.html")

    async def _asset(self, request: Request) -> Response:
        return self._asset_named(request.path_params["name"])

    def _asset_named(self, name: str) -> Response:
        found = self._assets.get(name)
        if found is None:
            raise Refusal(404, "there is no such page")
        return Response(found[0], media_type=found[1])

    async def _see(self, request: Request) -> None:
        """Raise unless this viewer may look; a token that opens the network opens it for the watch, too."""
        token = _token(request)
        await self._guard.check_looking(token)
        await self._lend(token)

    async def _act(self, request: Request) -> Door:
        """How this viewer comes in to do something."""
        token = _token(request)
        door = await self._guard.door_for(token)
        await self._lend(token)
        return door

    async def _lend(self, token: str | None) -> None:
        """Watch with a viewer's token, which brokers have accepted, if they show nothing without."""
        blind = self._picture is None or self._picture["problem"]
        if token is not None and self._door.token is None and blind:
            self.watch.door = replace(self._door, token=token)
            await self.show(await self.watch.look())

    async def _stream(self, request: Request) -> Response:
        await self._see(request)

        async def events(viewer: Viewer) -> AsyncGenerator[bytes, None]:
            hello = {
                "points": list(self.history.points),
                "changes": list(self.history.changes),
                "interval_s": self._interval_s,
                "plan": self._plans.state,
                "probing": self._probe is not None,
            }
            yield _event("hello", hello)
            if self._picture is not None:
                yield _event("picture", self._picture)
            while (found := await viewer.next(QUIET_S)) is not None:
                for event in found or [b": quiet\n\n"]:
                    yield event

        return EventStream(self.viewers.viewer(), events)

    async def _matches(self, request: Request) -> Response:
        door = await self._act(request)
        text = request.query_params.get("filter", "")
        if not filter_report(text)["ok"]:
            raise Refusal(400, "this is no filter")
        address = self._address(request.query_params.get("broker", ""))

        async def events(_: None) -> AsyncGenerator[bytes, None]:
            try:
                async with aclosing(matching(address, door, text)) as portions:
                    async for portion in portions:
                        yield _event("matches", portion)
            except BraidError as error:
                yield _event("ended", {"reason": str(error)})

        return EventStream(self._matching.place(), events)

    async def _subscriptions(self, request: Request) -> Response:
        await self._see(request)
        search = request.query_params.get("search", "")[:200]
        answers = await self.watch.everywhere(
            "subscriptions", {"search": search, "limit": str(SUBSCRIPTIONS_EACH)}
        )
        only = request.query_params.get("broker", "")
        listed = [
            {**subscription, "broker": name}
            for name, answer in sorted(answers.items())
            if answer is not None and only in ("", name)
            for subscription in answer["subscriptions"]
        ]
        forest = await asyncio.to_thread(covering_forest, listed)
        found = sum(answer["found"] for name, answer in answers.items() if answer and only in ("", name))
        return JSONResponse({"found": found, "shown": len(listed), **forest})

    async def _filter(self, request: Request) -> Response:
        body = await _body(request)
        return JSONResponse(filter_report(str(body.get("filter", ""))))

    async def _publish(self, request: Request) -> Response:
        door = await self._act(request)
        body = await _body(request)
        attributes = body.get("attributes")
        if not isinstance(attributes, dict):
            raise Refusal(400, 'a publication is a JSON object, such as {"price": 12.5}')
        address = self._address(str(body.get("broker", "")))
        return JSONResponse(await publish(address, door, self.watch.everywhere, attributes))

    async def _preview(self, request: Request) -> Response:
        door = await self._act(request)
        return JSONResponse(await self._plans.preview(self._address(""), door, await _body(request)))

    async def _apply(self, request: Request) -> Response:
        door = await self._act(request)
        body = await _body(request)
        await self._plans.apply(self._address(""), door, str(body.get("plan", "")))
        return JSONResponse(self._plans.state)

    async def _stop(self, request: Request) -> Response:
        await self._act(request)
        await _body(request)
        self._plans.stop()
        return JSONResponse(self._plans.state)

    def _address(self, broker: str) -> str:
        """Where a broker listens; without a name, one that answers."""
        if broker:
            address = self.watch.address_of(broker)
            if address is None:
                raise Refusal(404, "there is no such broker in the network")
            return address
        for each in (self._picture or {}).get("brokers", ()):
            if not each["problem"]:
                return str(each["address"])
        return self.watch.start


async def _health(request: Request) -> Response:
    return Response(b"alive\n", media_type="text/plain")


def _event(kind: str, content: Mapping[str, Any]) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(content, separators=(',', ':'))}\n\n".encode()


def _token(request: Request) -> str | None:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.casefold() == "bearer" and token.strip() else None


async def _body(request: Request) -> dict[str, Any]:
    """A JSON object that is not too large."""
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > BODY_BYTES_MAX:
            raise Refusal(413, f"a request has at most {BODY_BYTES_MAX:,} bytes")
    found: Any = None
    with suppress(ValueError, RecursionError):
        found = json.loads(bytes(content))
    if not isinstance(found, dict):
        raise Refusal(400, "send a JSON object")
    return found

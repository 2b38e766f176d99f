"""Streams of events that hold a place for as long as they run.

How does a place come back, however a stream ends? It is taken when the answer begins to run and not when it
is made: a reader may leave in between, and a generator that never started never ends either. It is asked for
and taken in one step, so that of many who come at once only as many get in as there are places.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, aclosing, contextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

from starlette.responses import JSONResponse, Response, StreamingResponse

from braid.dashboard.guard import SECURITY_HEADERS, Refusal
from braid.errors import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator
    from contextlib import AbstractContextManager

    from starlette.types import Receive, Scope, Send

__all__ = ["EventStream", "Places"]

T = TypeVar("T")


class Places:
    """So many at a time.

    Args:
        places_max: how many.
        reason: what the next one is told.
    """

    def __init__(self, places_max: int, reason: str) -> None:
        self._places_max = places_max
        self._reason = reason
        self._taken = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """One of them.

        Raises:
            Refusal: all are taken.
        """
        if self._taken >= self._places_max:
            raise Refusal(429, self._reason)
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1


class EventStream(Response, Generic[T]):
    """An answer that goes on while its reader is there.

    Args:
        place: entered when the answer begins, left when it has ended; it may refuse.
        events: what is sent, given what the place is.
    """

    media_type = "text/event-stream"

    def __init__(
        self, place: AbstractContextManager[T], events: Callable[[T], AsyncGenerator[bytes, None]]
    ) -> None:
        super().__init__()
        self._place = place
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run it, as a web server does."""
        async with AsyncExitStack() as stack:
            response: Response
            try:
                held = stack.enter_context(self._place)
            except Refusal as refusal:
                response = JSONResponse({"error": refusal.reason}, refusal.status)
            except RequestRefusedError as error:
                response = JSONResponse({"error": str(error), "code": error.code}, 409)
            else:
                events = await stack.enter_async_context(aclosing(self._events(held)))
                response = StreamingResponse(events, media_type=self.media_type)
            response.headers.update(SECURITY_HEADERS)
            await response(scope, receive, send)

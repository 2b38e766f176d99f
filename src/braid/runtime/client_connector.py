"""What stands for a client until it is connected?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from braid.errors import ConfigurationError, ConnectionLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import TracebackType

    from braid.runtime.client import Client

__all__ = ["ClientConnector"]


class ClientConnector:
    """What `connect` returns: await it, or enter it with `async with`."""

    def __init__(self, make_client: Callable[[], Client]) -> None:
        self._make_client = make_client
        self._client: Client | None = None
        self._used = False

    def __await__(self) -> Generator[Any, None, Client]:
        return self._connect().__await__()

    async def _connect(self) -> Client:
        if self._used:
            # Two clients of one name would be taken for one, and half of what they publish for repeats.
            raise ConfigurationError("a connection is made once; call connect() again for another one")
        self._used = True
        client = self._make_client()
        try:
            await client._engine.open()
        except BaseException:
            await client._engine.stop(ConnectionLostError("the client never connected"))
            raise
        return client

    async def __aenter__(self) -> Client:
        self._client = await self._connect()
        return self._client

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if self._client is not None:
            await self._client.close()

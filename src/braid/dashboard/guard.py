"""Who may look at a network through the dashboard, and who may do something?

The dashboard gives nobody more than brokers would give them. Whoever may look on loopback is whoever the
dashboard itself may show things to; whoever wants to do something does it with a token of their own, which
the brokers judge, or without one where brokers ask for none. Beyond loopback even looking takes a token of
a principal that may operate.

A page of somebody else that is open in the same browser can send requests here, too. So a request must
name this very server as its host, which defeats names that are pointed at loopback later, and if it says
where it comes from, that must be here.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from dataclasses import replace
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from braid.cli.overlay_crawl import ask
from braid.errors import BraidError, RequestRefusedError
from braid.runtime.tls import is_loopback

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from braid.cli.connection_options import Door

__all__ = ["SECURITY_HEADERS", "Guard", "Refusal"]

# How long the answer about a token holds. Beyond, the broker is asked again.
TOKEN_S: Final = 15.0
TOKENS_MAX: Final = 256
TOKEN_LENGTH_MAX: Final = 4096

SECURITY_HEADERS: Final[Mapping[str, str]] = {
    # Scripts and styles from this server alone, nothing inline, no frames, no forms, nothing from elsewhere.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class Refusal(Exception):
    """A request is not answered as it wished.

    Attributes:
        status: what HTTP calls it.
        reason: for the person at the other end.
    """

    def __init__(self, status: int, reason: str) -> None:
        self.status = status
        self.reason = reason
        super().__init__(reason)


class Guard:
    """Judges requests.

    Args:
        host: where the dashboard listens.
        names: other names that it is reached under.
        door: the dashboard's own way into the network.
        broker: the address of the broker that judges tokens.
        admits: whether the bearer of a token may operate; asks the broker unless given.
    """

    def __init__(
        self,
        host: str,
        names: Iterable[str],
        door: Door,
        broker: str,
        admits: Callable[[str | None], Awaitable[bool]] | None = None,
    ) -> None:
        self._loopback = is_loopback(host)
        self._names = {name.casefold() for name in (host, *names) if name}
        self._door = door
        self._broker = broker
        self._admits = admits or self._ask_broker
        self._known: OrderedDict[bytes, tuple[float, bool]] = OrderedDict()

    def check_request(self, headers: Mapping[str, str], scheme: str, *, changes: bool) -> None:
        """Raise a `Refusal` unless the request comes from a page of this server, or from no page at all."""
        host = headers.get("host", "")
        if not self._is_ours(host):
            raise Refusal(421, "this server has another name; open it by the address that it printed")
        origin = headers.get("origin")
        if origin is not None and origin.casefold() != f"{scheme}://{host}".casefold():
            raise Refusal(403, "this request comes from a page of another server")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise Refusal(403, "this request comes from a page of another server")
        if changes and headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise Refusal(415, "send JSON, as application/json")

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in self._names:
            return True
        try:
            address = ip_address(name)
        except ValueError:
            return name == "localhost" and self._loopback
        # A page cannot make a name of its own out of an address.
        return address.is_loopback or not self._loopback

    async def check_looking(self, token: str | None) -> None:
        """Raise a `Refusal` unless the bearer of this token may see the network."""
        if self._loopback and (self._door.token is not None or await self._may_operate(None)):
            return
        if token is None:
            raise Refusal(401, "the token of a principal that may operate is needed to see this network")
        if not await self._may_operate(token):
            raise Refusal(401, "the brokers do not let the bearer of this token operate")

    async def door_for(self, token: str | None) -> Door:
        """How the bearer of a token comes in to do something.

        Raises:
            Refusal: they may do nothing.
        """
        if token is not None:
            if not await self._may_operate(token):
                raise Refusal(401, "the brokers do not let the bearer of this token operate")
            return replace(self._door, token=token)
        if not self._loopback or not await self._may_operate(None):
            raise Refusal(401, "the token of a principal that may operate is needed for this")
        return replace(self._door, token=None)

    async def _may_operate(self, token: str | None) -> bool:
        if token is not None and (not token or len(token) > TOKEN_LENGTH_MAX):
            return False
        key = hashlib.sha256(b"" if token is None else b"token" + token.encode()).digest()
        now_s = time.monotonic()
        known = self._known.get(key)
        if known is not None and now_s < known[0]:
            return known[1]
        admitted = await self._admits(token)
        self._known[key] = (now_s + TOKEN_S, admitted)
        self._known.move_to_end(key)
        while len(self._known) > TOKENS_MAX:
            self._known.popitem(last=False)
        return admitted

    async def _ask_broker(self, token: str | None) -> bool:
        try:
            await ask(self._broker, "process", replace(self._door, token=token))
        except RequestRefusedError as error:
            return error.code == "unknown"  # an older broker does not know the question, and has let us in
        except BraidError as error:
            raise Refusal(503, f"the broker that judges tokens does not answer: {error}") from None
        return True

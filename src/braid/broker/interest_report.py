"""Which subscriptions do the clients and logs of a broker have, for operators who look for one?

An answer is bounded whatever there is: so many of them, and so much of the text of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from braid.errors import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from braid.broker.connections import Connections
    from braid.broker.durable_logs import DurableLogs
    from braid.language.filters import Filter
    from braid.routing import RoutingTables

__all__ = ["InterestReport"]

# Subscriptions in one answer, at most and if nothing is said.
SUBSCRIPTIONS_MAX: Final = 500
SUBSCRIPTIONS_DEFAULT: Final = 200
# Characters of a filter that are shown; what is longer is marked.
FILTER_LENGTH_MAX: Final = 400


class InterestReport:
    """Lists what is wanted here."""

    def __init__(
        self, broker: str, connections: Connections, tables: RoutingTables, logs: DurableLogs
    ) -> None:
        """
        Args:
            broker: the id of this one.
            connections: who is here.
            tables: what they have subscribed to.
            logs: the durable subscriptions.
        """
        self._broker = broker
        self._connections = connections
        self._tables = tables
        self._logs = logs

    def report(self, arguments: Mapping[str, str]) -> dict[str, Any]:
        """Those whose client or filter has the text `search` in it, `limit` at most.

        Raises:
            RequestRefusedError: the limit is no number.
        """
        limit = _limit(arguments.get("limit", ""))
        search = arguments.get("search", "").casefold()
        shown: list[dict[str, Any]] = []
        found = 0
        for client, key, filter, durable in self._all():
            text = filter.text
            if search and search not in client.casefold() and search not in text.casefold():
                continue
            found += 1
            if len(shown) < limit:
                cut = len(text) > FILTER_LENGTH_MAX
                shown.append(
                    {
                        "client": client,
                        "key": key,
                        "filter": text[:FILTER_LENGTH_MAX],
                        "cut": cut,
                        "durable": durable,
                    }
                )
        return {"broker": self._broker, "found": found, "subscriptions": shown}

    def _all(self) -> Iterator[tuple[str, str, Filter, bool]]:
        for client in self._connections.clients:
            for key, whole_key in client.subscriptions.items():
                filter = self._tables.subscription(whole_key)
                if filter is not None:
                    yield client.name, key, filter, False
        for log in self._logs.logs.values():
            yield log.owner, log.name, log.filter, True


def _limit(text: str) -> int:
    if not text:
        return SUBSCRIPTIONS_DEFAULT
    if not (text.isascii() and text.isdigit() and len(text) < 5 and 1 <= int(text) <= SUBSCRIPTIONS_MAX):
        raise RequestRefusedError(
            f"limit is a number from 1 to {SUBSCRIPTIONS_MAX}, not {text[:40]!r}", "argument"
        )
    return int(text)

"""Who may become a neighbour that nobody has named?

A broker that no setting names, that is not dialled and was never met can link to an open broker, as any
client can connect to it. Until it has said everything it knows, and has confirmed what it was told, it is
*provisional*: it hears that the link is missing, so nobody behind it is promised anything, and when it goes
nothing is left of it. From then on it is a neighbour like others, and waited for like others (decision 0098).
There is a limit of them, and a setting that refuses them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.errors import RemoteProtocolError, RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from braid.broker.parties import Link
    from braid.broker.settings import BrokerSettings

__all__ = ["UnknownBrokers"]


class UnknownBrokers:
    """Says which brokers may link to this one.

    Args:
        settings: say what is wanted, and who is expected.
        links: the neighbours by their names.
        dialled: the names of those that are dialled.
        is_open: whether no access file says who may link.
        audit: writes down that one has come.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        links: Mapping[str, Link],
        dialled: Callable[[], Iterable[str]],
        is_open: Callable[[], bool],
        audit: Callable[..., None],
    ) -> None:
        self._settings = settings
        self._links = links
        self._dialled = dialled
        self._is_open = is_open
        self._audit = audit

    def require_other(self, name: str) -> None:
        """Refuse a broker that is called as this one is.

        Raises:
            RemoteProtocolError: it is one.
        """
        if name == self._settings.broker_id:
            raise RemoteProtocolError(f"this broker is called {name!r} too; ids must differ")

    def provisional(self, name: str) -> bool:
        """Whether a broker that comes is to be forgotten if it goes before it has said everything.

        Raises:
            RequestRefusedError: it is not let in, because nobody has named it.
        """
        if name in self._links or not self._is_open() or name in self._named():
            return False
        if self._settings.unknown_brokers == "refuse":
            raise RequestRefusedError(
                f"nobody has named a broker {name!r} here, and unknown ones are refused: put it into "
                "'expected'",
                "unknown_broker",
            )
        count_max = self._settings.unknown_brokers_max
        if len(self._links.keys() - self._named()) >= count_max:
            raise RequestRefusedError(
                f"there are {count_max:,} brokers here that nobody has named, and no more are let in: put "
                f"{name!r} into 'expected', forget one that is gone, or raise unknown_brokers_max",
                "limit",
            )
        self._audit("warning", "a broker that nobody has named links to this one", neighbour=name)
        return True

    def gone(self) -> list[Link]:
        """Those that have gone before they had said everything."""
        return [link for link in self._links.values() if link.provisional and link.down]

    def _named(self) -> set[str]:
        return {*self._settings.expected, *self._dialled()}

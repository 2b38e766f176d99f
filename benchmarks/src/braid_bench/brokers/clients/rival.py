"""What do the four rivals have in common? A Debian package of their name, and one server at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid_bench.brokers.install import installed_version

if TYPE_CHECKING:
    from braid_bench.brokers.contender import DeliveryUnit, FilterForm
    from braid_bench.brokers.server import RunningServer, ServerProcess

__all__ = ["Rival"]


class Rival:
    """The part of a contender that does not depend on its protocol."""

    name: str
    """Also the name of its package."""
    server: type[ServerProcess]
    filter_form: FilterForm | None = None
    once_per: DeliveryUnit = "subscription"
    topologies: tuple[str, ...] = ("one",)

    def missing(self) -> str | None:
        """Why it cannot be run here, or None when it can."""
        return self.server.missing()

    def version(self) -> str | None:
        """The version of its package, where it was installed as one."""
        return installed_version(self.name)

    def start(self, topology: str) -> RunningServer:
        """Start its server; of the topologies only `one` is known here."""
        return self.server()

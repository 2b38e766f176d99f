"""What can be asked of a directory of brokers, whatever keeps it?

A directory holds three things. *Entries*: which brokers are alive, at which addresses, with which neighbours;
an entry is ephemeral and goes when its broker dies. *Neighbour records*: the last known neighbours of each
broker, which outlive it, so that a restarted broker knows where it belonged. *Locks*: one per broker, so that
two reconfigurations that touch the same neighbourhood take turns.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType
    from typing import Self

__all__ = [
    "BrokerEntry",
    "Directory",
    "DirectorySettings",
    "HeldLock",
    "Unwatch",
    "WatchCallback",
]

# A broker's id is part of every global key and of a ZooKeeper path, so it stays short.
BROKER_ID_LENGTH_MAX = 255


@dataclass(frozen=True)
class BrokerEntry:
    """One living broker as the directory shows it."""

    broker_id: str
    addresses: tuple[str, ...]
    """Where it listens, best first, such as `("127.0.0.1:7000",)`."""
    neighbours: tuple[str, ...]
    """Ids of the brokers it has primary links with."""
    incarnation: str
    """Differs from start to start of the same broker."""
    registered_at_us: int
    """Wall-clock time of the registration, for people; nothing is decided by it."""

    def __post_init__(self) -> None:
        if not 0 < len(self.broker_id) <= BROKER_ID_LENGTH_MAX or not self.broker_id.isprintable():
            raise ConfigurationError(
                f"broker id {self.broker_id[:40]!r} has {len(self.broker_id)} characters; "
                f"1 to {BROKER_ID_LENGTH_MAX} printable ones are allowed"
            )
        if not self.addresses:
            raise ConfigurationError(f"broker {self.broker_id!r} is registered without an address; give one")
        if not self.incarnation:
            raise ConfigurationError(f"broker {self.broker_id!r} is registered without an incarnation")

    def may_replace(self, other: BrokerEntry) -> bool:
        """True when this entry and `other` can only be the same broker, started again.

        Two living processes cannot listen on one address, so a common address means that the other is gone.
        """
        return self.incarnation == other.incarnation or not set(self.addresses).isdisjoint(other.addresses)


@dataclass(frozen=True, kw_only=True)
class DirectorySettings:
    """How long a directory waits, and how often it looks."""

    lease_s: float = 10.0
    """An entry or lock goes this long after its process died: the lease in SQLite, the session timeout in
    ZooKeeper (which by default accepts 4 to 40 s and corrects other wishes). It is renewed four times per
    lease. SQLite sweeps at the same pace, so there it can take a quarter longer.
    Lower: the dead are noticed sooner, but a process that stalls for that long counts as dead."""
    poll_s: float = 0.2
    """SQLite only: time between two looks for changes by other processes, for watches and waiting locks.
    Lower: changes are seen sooner, for one `PRAGMA data_version` per look."""
    operation_timeout_s: float = 10.0
    """The longest that one operation may take, a first connection included, before it fails."""

    def __post_init__(self) -> None:
        for name in ("lease_s", "poll_s", "operation_timeout_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ConfigurationError(
                    f"{name} is {value!r}; a directory needs a finite number of seconds above 0"
                )

    @property
    def heartbeat_s(self) -> float:
        """Time between renewals: three may fail before a lease runs out."""
        return self.lease_s / 4


WatchCallback: TypeAlias = Callable[[dict[str, BrokerEntry]], None]
Unwatch: TypeAlias = Callable[[], None]


class HeldLock(ABC):
    """The locks that `Directory.lock` took, while they are held."""

    broker_ids: tuple[str, ...]
    """Whose locks they are, in the order they were taken."""
    epoch: int
    """Greater than that of every earlier hold of any of these locks, also of one whose process stalled."""
    lease_s: float
    """How long they stay ours without `renew`."""
    renewed_at_s: float
    """When they were renewed, by the clock of the event loop: the moment before the directory was asked."""

    @abstractmethod
    async def renew(self) -> bool:
        """Whether all of them are still ours; if so, for another lease.

        Raises:
            DirectoryError: the directory cannot be asked.
        """

    @abstractmethod
    async def verify(self) -> None:
        """Ask the directory whether all of them are still ours; call it before a step that cannot be undone.

        Raises:
            DirectoryError: one was lost (this process stalled or was cut off for longer than the lease), or
                the directory cannot be asked.
        """


class Directory(ABC):
    """A directory of brokers. All methods belong to one event loop; none of them blocks it.

    It opens itself on first use. Use it as `async with open_directory(url) as directory:`, or call `close`.
    Every method also raises `DirectoryError` when the directory cannot be reached or read.
    """

    @abstractmethod
    async def register(self, entry: BrokerEntry) -> None:
        """Enter a living broker, and keep it entered until `deregister`, `close` or the process's end.

        A lost session or lease is noticed and the entry made again. Also records its neighbours. When it
        fails for want of an answer or is cancelled, it may have happened; `deregister` makes sure it has not.

        Raises:
            DirectoryError: a living broker with this id is registered at other addresses. With an address
                in common, or once the other's lease has run out, this one takes over.
        """

    @abstractmethod
    async def update(self, entry: BrokerEntry) -> None:
        """Change an entry registered here, such as its neighbours, and the record of its neighbours.

        Raises:
            DirectoryError: it is not registered here, or another start of the broker took over.
        """

    @abstractmethod
    async def deregister(self, broker_id: str) -> None:
        """Take an entry out; the record of its neighbours stays. Does nothing when there is none.

        Raises:
            DirectoryError: it was registered through another directory object, so it lives.
        """

    @abstractmethod
    async def brokers(self) -> dict[str, BrokerEntry]:
        """All living brokers by id, in the order of their ids."""

    @abstractmethod
    async def get(self, broker_id: str) -> BrokerEntry | None:
        """One living broker, or None."""

    @abstractmethod
    async def neighbours_of(self, broker_id: str) -> tuple[str, ...]:
        """The last known neighbours of a broker, alive or not; none if it was never seen or is forgotten."""

    @abstractmethod
    async def forget(self, broker_id: str) -> None:
        """Remove the record of a dead broker's neighbours.

        Raises:
            DirectoryError: the broker is alive.
        """

    @abstractmethod
    def watch(self, callback: WatchCallback) -> Unwatch:
        """Call `callback` with all living brokers: once soon, then whenever entries come, change or go.

        It is called on the event loop this is called on. Changes in quick succession may arrive as one.
        While the directory cannot be reached nothing is called: silence does not mean that brokers went.
        """

    @abstractmethod
    def lock(self, broker_ids: Iterable[str], timeout_s: float) -> AbstractAsyncContextManager[HeldLock]:
        """Hold the locks of a neighbourhood: `async with directory.lock(["A", "B"], timeout_s=5) as held:`.

        They are taken in sorted order, so overlapping requests never wait for each other in a circle, and go
        when the holder's process dies. Not re-entrant. Waiting requests are not served in any order. A
        directory that does not answer can add its operation timeout to `timeout_s`.

        Raises:
            DirectoryError: the time was up before all were free; the message names a holder.
        """

    @abstractmethod
    async def close(self) -> None:
        """Deregister what was registered here, release its locks, and end its watches."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

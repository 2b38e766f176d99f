"""How do brokers of many hosts find each other? Through ZooKeeper.

Below the root of the directory:

    /brokers/ID      the entry, ephemeral: ZooKeeper removes it when the broker's session ends
    /neighbours/ID   the record of its neighbours, persistent
    /locks/ID        who holds the lock, ephemeral

An entry and its neighbour record are always written in one transaction. Every step can be repeated: after a
broken connection nobody knows whether the last request was carried out, so it is simply made again and
recognised by its incarnation or its token.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from kazoo.exceptions import BadVersionError, ConnectionLoss, NodeExistsError, NoNodeError

from braid.errors import DirectoryError
from braid.runtime.directory.kazoo_bridge import KazooBridge
from braid.runtime.directory.sessions import SessionDirectory, refusal
from braid.runtime.directory.stored import (
    decode_entry,
    decode_holder,
    decode_neighbours,
    encode,
    readable_entries,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.runtime.directory.interface import BrokerEntry, DirectorySettings
    from braid.runtime.directory.stored import LockHolder

__all__ = ["ZookeeperDirectory"]

# A server shortens longer wishes for a session to this, by its default settings.
SESSION_S_MAX = 40.0


class ZookeeperDirectory(SessionDirectory):
    """A session with a directory in ZooKeeper."""

    def __init__(self, hosts: tuple[str, ...], root: str, settings: DirectorySettings) -> None:
        super().__init__(f"the directory zk://{','.join(hosts)}{root}", settings)
        self._root = root
        self._zookeeper = KazooBridge(self.name, hosts, settings, self._connected)
        self._change = asyncio.Event()
        # What watches have read, by path, and the paths where a watch has fired since. A newcomer then costs
        # every watching broker one read instead of one per broker.
        self._known: dict[str, bytes] = {}
        self._outdated: set[str] = set()
        self._watches_lost = 0
        self._release_seen = asyncio.Event()

    def _path(self, kind: str, broker_id: str) -> str:
        # A slash would make two levels, and ZooKeeper reserves "." and "..".
        part = quote(broker_id, safe="")
        return f"{self._root}/{kind}/{part if part.strip('.') else part.replace('.', '%2E')}"

    def _connected(self) -> None:
        """After a broken connection entries may be gone and watches have been missed."""
        self._maintenance_is_due.set()
        self._note_change(None)
        self._note_release()

    def _note_change(self, path: str | None) -> None:
        """A watch fired; without a path, all of them are gone."""
        if path is None:
            self._watches_lost += 1
            self._known = {}
        else:
            self._outdated.add(path)
        self._change.set()

    def _note_release(self) -> None:
        # Those who wait now hold the old object; those who come later wait for the next release.
        self._release_seen.set()
        self._release_seen = asyncio.Event()

    def _entries_event(self, event: Any) -> None:
        """kazoo's watch on entries; runs in its thread. A broken connection ends all, without a path."""
        self._zookeeper.on_loop(lambda: self._note_change(event.path))

    def _lock_event(self, _: object) -> None:
        """kazoo's watch on locks; runs in its thread."""
        self._zookeeper.on_loop(self._note_release)

    async def _open(self) -> None:
        await self._zookeeper.start()
        try:
            await self._zookeeper.attempt(self._make_root)
        except BaseException:
            await self._zookeeper.stop()
            raise

    async def _make_root(self) -> None:
        for kind in ("brokers", "neighbours", "locks"):
            await self._zookeeper.call(self._zookeeper.client.ensure_path_async, f"{self._root}/{kind}")

    async def _shut(self) -> None:
        await self._zookeeper.stop()

    async def _node(self, path: str, **options: Any) -> tuple[bytes, Any] | None:
        """Data and statistics of a node, or None without it."""
        try:
            data, statistics = await self._zookeeper.call(self._zookeeper.client.get_async, path, **options)
        except NoNodeError:
            return None
        return data, statistics

    async def _sync(self) -> None:
        """Have our server catch up, so that the next read shows what other hosts have written."""
        await self._zookeeper.call(self._zookeeper.client.sync_async, self._root)

    async def _read(self) -> dict[str, BrokerEntry]:
        async def work() -> dict[str, BrokerEntry]:
            await self._sync()
            paths = await self._entry_paths()
            nodes = await asyncio.gather(*(self._node(path) for path in paths))
            found = zip(paths, nodes, strict=True)
            return self._entries({path: node[0] for path, node in found if node is not None})

        return await self._zookeeper.attempt(work)

    async def _read_one(self, broker_id: str) -> BrokerEntry | None:
        async def work() -> BrokerEntry | None:
            await self._sync()
            node = await self._node(self._path("brokers", broker_id))
            return None if node is None else self._decode_entry(node[0], broker_id)

        return await self._zookeeper.attempt(work)

    async def _read_for_watch(self) -> dict[str, BrokerEntry]:
        async def work() -> dict[str, BrokerEntry]:
            self._change.clear()
            watches_lost = self._watches_lost
            # What fires from here on stays noted for the next time, even if it overtakes the answer.
            outdated, self._outdated = self._outdated, set()
            known = {path: data for path, data in self._known.items() if path not in outdated}
            self._known = {}  # if we are interrupted, everything is read again
            paths = await self._entry_paths(watch=self._entries_event)
            unknown = [path for path in paths if path not in known]
            nodes = await asyncio.gather(*(self._node(path, watch=self._entries_event) for path in unknown))
            known.update(
                {path: node[0] for path, node in zip(unknown, nodes, strict=True) if node is not None}
            )
            known = {path: known[path] for path in paths if path in known}
            if watches_lost == self._watches_lost:
                self._known = known
            return self._entries(known)

        await self._ensure_open()
        return await self._zookeeper.attempt(work)

    async def _entry_paths(self, **options: Any) -> list[str]:
        folder = f"{self._root}/brokers"
        children = self._zookeeper.client.get_children_async
        try:
            names = await self._zookeeper.call(children, folder, **options)
        except NoNodeError:  # somebody has deleted it
            await self._make_root()
            names = await self._zookeeper.call(children, folder, **options)
        return [f"{folder}/{name}" for name in sorted(names)]

    def _entries(self, nodes: dict[str, bytes]) -> dict[str, BrokerEntry]:
        return readable_entries((data, f"{self.name}, node {path},") for path, data in nodes.items())

    async def _wait_for_change(self) -> None:
        await self._change.wait()

    async def _place(self, entry: BrokerEntry) -> None:
        async def work() -> None:
            written = False
            while not written:  # another's write came between: look again; `attempt` bounds the time
                node = await self._node(self._path("brokers", entry.broker_id))
                if node is not None:
                    other = self._decode_entry(node[0], entry.broker_id)
                    if not entry.may_replace(other):
                        raise refusal(entry, other, self.name)
                written = await self._write_anew(entry, node)

        await self._zookeeper.attempt(work)

    async def _replace(self, entry: BrokerEntry) -> None:
        async def work() -> None:
            written = False
            while not written:
                node = await self._node(self._path("brokers", entry.broker_id))
                other = None if node is None else self._decode_entry(node[0], entry.broker_id)
                if other is not None and other.incarnation != entry.incarnation:
                    raise DirectoryError(
                        f"broker {entry.broker_id!r} cannot be updated: another start of it took over in "
                        f"{self.name}, at {', '.join(other.addresses)}"
                    )
                written = await self._write_anew(entry, node)

        await self._zookeeper.attempt(work)

    async def _write_anew(self, entry: BrokerEntry, node: tuple[bytes, Any] | None) -> bool:
        """Write entry and neighbours in one transaction; False when something changed since `node` was read.

        A node of our own session is overwritten, one of an older session replaced: an ephemeral node never
        changes its session.
        """
        client = self._zookeeper.client
        session_id = self._zookeeper.session_id
        if session_id is None:
            raise ConnectionLoss
        path = self._path("brokers", entry.broker_id)
        record_path = self._path("neighbours", entry.broker_id)
        record = await self._zookeeper.call(client.exists_async, record_path)
        transaction = client.transaction()
        if node is not None and node[1].ephemeralOwner == session_id:
            transaction.set_data(path, encode(entry), version=node[1].version)
        else:
            if node is not None:
                transaction.delete(path, version=node[1].version)
            transaction.create(path, encode(entry), ephemeral=True)
        if record is None:
            transaction.create(record_path, encode(entry.neighbours))
        else:
            transaction.set_data(record_path, encode(entry.neighbours))
        results = await self._zookeeper.call(transaction.commit_async)
        if not any(isinstance(result, Exception) for result in results):
            return True
        await self._make_root()  # in case somebody has deleted it; otherwise this changes nothing
        return False

    def _decode_entry(self, data: bytes, broker_id: str) -> BrokerEntry:
        return decode_entry(data, f"{self.name}, node {self._path('brokers', broker_id)},")

    async def _withdraw(self, entry: BrokerEntry) -> None:
        async def work() -> None:
            path = self._path("brokers", entry.broker_id)
            node = await self._node(path)
            if (
                node is not None
                and self._decode_entry(node[0], entry.broker_id).incarnation == entry.incarnation
            ):
                await self._delete(path, node[1].version)

        await self._zookeeper.attempt(work)

    async def _delete(self, path: str, version: int) -> None:
        """Remove a node, unless somebody else did or wrote another in its place."""
        with suppress(NoNodeError, BadVersionError):
            await self._zookeeper.call(self._zookeeper.client.delete_async, path, version=version)

    async def _keep(self, entries: Sequence[BrokerEntry]) -> list[BrokerEntry]:
        async def work() -> list[BrokerEntry]:
            await self._make_root()
            return [entry for entry in entries if not await self._keep_one(entry)]

        return await self._zookeeper.attempt(work)

    async def _keep_one(self, entry: BrokerEntry) -> bool:
        """True when the entry stands, perhaps again; False when another start of the broker took over."""
        while True:
            node = await self._node(self._path("brokers", entry.broker_id))
            if node is not None:
                if self._decode_entry(node[0], entry.broker_id).incarnation != entry.incarnation:
                    return False
                if node[1].ephemeralOwner == self._zookeeper.session_id:
                    return True
            if await self._write_anew(entry, node):
                return True

    async def _read_neighbours(self, broker_id: str) -> tuple[str, ...]:
        async def work() -> tuple[str, ...]:
            await self._sync()
            path = self._path("neighbours", broker_id)
            node = await self._node(path)
            return () if node is None else decode_neighbours(node[0], f"{self.name}, node {path},")

        return await self._zookeeper.attempt(work)

    async def _erase_neighbours(self, broker_id: str) -> None:
        await self._zookeeper.attempt(lambda: self._delete(self._path("neighbours", broker_id), version=-1))

    async def _try_lock(self, broker_id: str, holder: LockHolder) -> LockHolder:
        async def work() -> LockHolder:
            client = self._zookeeper.client
            path = self._path("locks", broker_id)
            while True:  # released between our two questions: try again; `attempt` bounds the time
                try:
                    await self._zookeeper.call(client.create_async, path, encode(holder), ephemeral=True)
                    return holder
                except NodeExistsError:
                    node = await self._node(path)
                    if node is not None:
                        return self._decode_holder(node[0], broker_id)
                except NoNodeError:
                    await self._make_root()

        return await self._zookeeper.attempt(work)

    async def _unlock(self, broker_id: str, holder: LockHolder) -> None:
        async def work() -> None:
            path = self._path("locks", broker_id)
            node = await self._node(path)
            if node is not None and self._decode_holder(node[0], broker_id) == holder:
                await self._delete(path, node[1].version)

        await self._zookeeper.attempt(work)

    async def _lock_holder(self, broker_id: str) -> LockHolder | None:
        async def work() -> LockHolder | None:
            await self._sync()
            node = await self._node(self._path("locks", broker_id))
            return None if node is None else self._decode_holder(node[0], broker_id)

        return await self._zookeeper.attempt(work)

    async def _lock_epoch(self, broker_ids: Sequence[str], holder: LockHolder) -> int | None:
        async def work() -> int | None:
            await self._sync()
            epoch = 0
            for broker_id in broker_ids:
                node = await self._node(self._path("locks", broker_id))
                if node is None or self._decode_holder(node[0], broker_id) != holder:
                    return None
                epoch = max(epoch, node[1].czxid)  # ZooKeeper counts all its transactions
            return epoch

        return await self._zookeeper.attempt(work)

    @property
    def lock_lease_s(self) -> float:
        return min(self.settings.lease_s, SESSION_S_MAX)

    def _decode_holder(self, data: bytes, broker_id: str) -> LockHolder:
        return decode_holder(data, f"{self.name}, node {self._path('locks', broker_id)},")

    async def _wait_for_release(self, broker_id: str) -> None:
        released = self._release_seen
        path = self._path("locks", broker_id)
        exists = self._zookeeper.client.exists_async
        found = await self._zookeeper.attempt(
            lambda: self._zookeeper.call(exists, path, watch=self._lock_event)
        )
        if found is not None:
            await released.wait()

"""Logs, and last rows of logs, that this broker has lost and a neighbour keeps.

A broker that begins asks nobody for publications before all neighbours have said which copies they keep for
it (`kept_copies.py`), and before it has back what it has lost: a log of which nothing is here, after the data
directory was lost or in the place of a broker that is gone, or the last rows of one, after a restore.
Requests about logs wait meanwhile. A log that was dropped while its keeper was away is remembered until the
keeper knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from braid.broker.durable_log import log_key
from braid.broker.kept_copies import COPIES_MAX
from braid.broker.log_pieces import OFFSET_MAX, appended, checked_head, checked_rows
from braid.broker.store_work import Appended, Word
from braid.errors import FilterError, RemoteProtocolError, RequestRefusedError
from braid.language import Filter
from braid.protocol.batch import decode_record
from braid.protocol.copies import CopyDrop, CopyFetch, CopyHead
from braid.protocol.epochs import EpochHistory
from braid.protocol.log import AcknowledgeLog, CreateLog, DeleteLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from braid.broker.durable_log import DurableLog
    from braid.broker.durable_logs import DurableLogs
    from braid.broker.events import LinkBegun, NeighbourGone
    from braid.broker.parties import Client, Link
    from braid.broker.turn import Turn
    from braid.protocol.copies import CopiesTold, CopyKept, CopyRows, CopySafe
    from braid.protocol.log import LogState

    Handler: TypeAlias = Callable[[Any, Any], None]

__all__ = ["DROPPED", "LostLogs", "Peer"]

# Requests about logs that are being restored; beyond it clients have to ask again.
POSTPONED_MAX = 10_000
# Logs that were dropped and are remembered until their keepers know; beyond it the oldest are not.
DROPPED_MAX = 10_000
# How the store calls what is left of a log that was dropped while its keeper may not know.
DROPPED = "//"


class Peer:
    """What a neighbour has said in this session."""

    __slots__ = ("able", "behind", "heads", "refused", "told")

    def __init__(self) -> None:
        self.told = False
        self.able = False
        self.heads: dict[str, CopyHead] = {}
        self.behind: dict[str, int] = {}
        """Rows that its copies lack, as they were not complete."""
        self.refused: set[str] = set()
        """Logs that it does not keep."""


class _Fetch:
    """A log that is fetched from the neighbour that keeps a copy."""

    __slots__ = ("head", "keeper", "log", "since_us", "tops")

    def __init__(self, log: DurableLog, head: CopyHead, keeper: str, now_us: int) -> None:
        self.log = log
        self.head = head
        self.keeper = keeper
        self.since_us = now_us
        """When something came last."""
        self.tops: dict[str, int] = {}
        """By publisher the highest sequence of its rows so far."""


class LostLogs:
    """Gets them back.

    Args:
        turn: what all handlers share.
        logs: those of this broker.
        neighbours: the links by their names.
        kept: whether there is a store at all.
        bereft: whether the store knows nothing of an earlier life.
        unmet: the addresses of neighbours that have not been met since the start.
        started_us: when this broker began; None before that.
        complete: is called when publications need not wait for logs any longer.
    """

    def __init__(
        self,
        turn: Turn,
        logs: DurableLogs,
        neighbours: Mapping[str, Link],
        *,
        kept: bool,
        bereft: bool,
        unmet: Callable[[], list[str]],
        started_us: Callable[[], int | None],
        complete: Callable[[], None],
    ) -> None:
        self.settled = not kept
        """Whether it is known which logs are elsewhere."""
        self.peers: dict[str, Peer] = {}
        """What neighbours keep, and say that they can keep, by their names."""
        self._turn = turn
        self._logs = logs
        self._neighbours = neighbours
        self._bereft = bereft
        self._unmet = unmet
        self._started_us = started_us
        self._complete = complete
        self._fetches: dict[str, _Fetch] = {}
        self._postponed: list[tuple[Client, Any, Handler]] = []
        self._dropped: dict[str, set[str]] = {}
        """The ids of logs that were dropped, with those that keep copies and may not know."""

    @property
    def awaiting(self) -> bool:
        """Whether rows may be elsewhere that are to be here before anything else comes."""
        self._look()
        return not self.settled or bool(self._fetches)

    def when_known(self, handler: Handler) -> Handler:
        """Handle a request about a log when it is known whether the log is elsewhere."""

        def ask(client: Client, message: Any) -> None:
            key = log_key(client.principal.name, message.name)
            known = key in self._logs.logs or message.name in self._logs.logs
            if (self.settled or known) and key not in self._fetches and message.name not in self._fetches:
                handler(client, message)
            elif len(self._postponed) < POSTPONED_MAX:
                self._postponed.append((client, message, handler))
            else:
                busy = RequestRefusedError("too many requests wait for logs to come back; ask again", "busy")
                self._turn.fail(client, message.request, busy)

        return ask

    @property
    def fetching(self) -> bool:
        """Whether any log is."""
        return bool(self._fetches)

    def fetches(self, log: DurableLog) -> bool:
        """Whether a log is being fetched."""
        return log.key in self._fetches

    def stored(self, log: DurableLog) -> None:
        """Further rows of a log are in the store."""
        fetch = self._fetches.get(log.key)
        if fetch is not None:
            self._fetch_on(fetch)

    # Logs that were dropped.

    def drop(self, log: DurableLog, keepers: set[str]) -> None:
        """A log is no more: those that keep copies are to know, even if they are away now."""
        if len(self._dropped) >= DROPPED_MAX:
            self.forget_dropped(next(iter(self._dropped)))
        self._dropped[log.id] = set(keepers)
        name = DROPPED + log.id
        self._logs.work.ask(
            CreateLog(
                name, log.owner, "", "block", self._turn.now_us, id=log.id, origin=" ".join(sorted(keepers))
            )  # names have no spaces
        )
        for keeper in sorted(keepers):
            link = self._neighbours.get(keeper)
            if link is not None and link.agreed:
                self._turn.tell(link, CopyDrop(log.key, log.id))

    def restore_dropped(self, state: LogState) -> None:
        """What the store remembers of a log that was dropped."""
        self._dropped[state.id] = set(state.origin.split())

    def forget_dropped(self, id: str, keeper: str = "") -> bool:
        """A keeper knows, or never will; returns whether the log was dropped.

        Without a name nobody is to know any more.
        """
        keepers = self._dropped.get(id)
        if keepers is None:
            return False
        keepers.discard(keeper)
        if not keeper or not keepers:
            del self._dropped[id]
            self._logs.work.ask(DeleteLog(DROPPED + id))
        return True

    # Neighbours come and go.

    def link_begun(self, event: LinkBegun) -> None:
        """A session begins: its neighbour says anew what it keeps."""
        self.peers[event.link.name] = Peer()

    def kept(self, link: Link, message: CopyKept) -> None:
        """A neighbour keeps the copy of a log."""
        peer = self.peers.setdefault(link.name, Peer())
        heads = peer.heads
        if len(heads) >= COPIES_MAX:
            raise RemoteProtocolError(f"{link.name!r} says that it keeps more than {COPIES_MAX:,} copies")
        heads[message.head.key] = checked_head(message.head)
        if message.behind > 0:
            peer.behind[message.head.key] = message.behind

    def told(self, link: Link, message: CopiesTold) -> None:
        """A neighbour has said which copies it keeps."""
        peer = self.peers.setdefault(link.name, Peer())
        peer.told, peer.able = True, message.able
        for fetch in self._fetched_from(link.name):
            self._fetch_on(fetch)
        if self.settled:
            for head in list(peer.heads.values()):
                self._consider(head, link, late=True)
        else:
            self._look()
        self._logs.copies.told(link)
        self._complete()

    def gone(self, event: NeighbourGone) -> None:
        """A neighbour is none any more."""
        name = event.link.name
        self.peers.pop(name, None)
        for fetch in self._fetched_from(name):
            self._give_up(fetch, "the neighbour that keeps it has gone")
        if event.for_good:
            for id in [id for id, keepers in self._dropped.items() if name in keepers]:
                self.forget_dropped(id, name)

    def violations(self) -> Iterator[str]:
        """What is wrong with it; nothing if all is well."""
        for name in self.peers.keys() - self._neighbours.keys():
            yield f"{name} is no neighbour, and says what it keeps"
        for key, fetch in self._fetches.items():
            if fetch.keeper not in self._neighbours or self._logs.logs.get(key) is not fetch.log:
                yield f"the log {key} is fetched from {fetch.keeper}, which cannot be"

    def _fetched_from(self, name: str) -> list[_Fetch]:
        return [fetch for fetch in self._fetches.values() if fetch.keeper == name]

    def review(self) -> None:
        """From time to time: wait no longer for those who do not come."""
        self._look()
        oldest_us = self._turn.now_us - self._turn.settings.recovery_us_max
        for fetch in list(self._fetches.values()):
            link = self._neighbours.get(fetch.keeper)
            if (link is None or link.down) and fetch.since_us <= oldest_us:
                self._give_up(fetch, "the neighbour that keeps it does not come back")

    def knows(self, link: Link, message: CopySafe) -> bool:
        """Whether a neighbour that keeps no such copy was asked to drop it, or for its rows."""
        if self.forget_dropped(message.id, link.name):
            return True
        fetch = self._fetches.get(message.key)
        if fetch is None or fetch.keeper != link.name:
            return False
        self._give_up(fetch, message.refused or "the neighbour keeps no such copy")
        return True

    # Getting back what is lost.

    def _look(self) -> None:
        """Once all neighbours have said what they keep: fetch what is not here."""
        started_us = self._started_us()
        if self.settled or started_us is None:
            return
        over = self._turn.now_us >= started_us + self._turn.settings.recovery_us_max
        told = [name for name, peer in self.peers.items() if peer.told]
        if not over and (self._unmet() or any(name not in told for name in self._neighbours)):
            return
        self.settled = True
        best: dict[str, tuple[CopyHead, str]] = {}
        for name in sorted(told):
            for key, head in self.peers[name].heads.items():
                if key not in best or head.next > best[key][0].next:
                    best[key] = (head, name)
        for head, name in best.values():
            self._consider(head, self._neighbours[name], late=False)
        self._logs.copies.look()
        if not self._fetches:
            self._release()

    def _consider(self, head: CopyHead, link: Link, *, late: bool) -> None:
        """A neighbour keeps a copy: is anything of it missing here?"""
        log = self._logs.logs.get(head.key)
        if head.id in self._dropped:
            self._turn.tell(link, CopyDrop(head.key, head.id))
        elif log is None:
            if not late or self._bereft:
                self._fetch(head, link)
            else:
                self._turn.note(
                    "warning",
                    "a neighbour keeps the copy of a log that is not here",
                    log=head.key,
                    at=link.name,
                )
        elif log.id != head.id:
            self._turn.note(
                "error",
                "a neighbour keeps the copy of another log of this name: it was made anew before that one "
                "could be fetched",
                log=head.key,
                at=link.name,
                rows=head.next - head.first,
            )
        elif head.next > log.next_offset and log.copying is not None:
            end = EpochHistory(head.epochs).common_end(log.epochs, head.next, log.next_offset)
            begins = log.next_offset in (log.first_offset, end) and head.first <= log.next_offset
            if begins and not late:
                self._fetch(head, link)
            else:
                self._turn.note(
                    "error",
                    "a neighbour keeps rows that the log here does not have, and that do not fit it any more",
                    log=head.key,
                    at=link.name,
                    rows=head.next - log.next_offset,
                )

    def _fetch(self, head: CopyHead, link: Link) -> None:
        log = self._logs.logs.get(head.key)
        if log is None:
            try:
                log = self._logs.empty(
                    head.key.removeprefix(log_key(head.owner, "")),
                    head.owner,
                    Filter(head.filter),
                    head.when_full,
                )
            except FilterError as error:
                self._turn.note(
                    "error", "a copy's filter cannot be read", log=head.key, at=link.name, reason=str(error)
                )
                return
            if log.key != head.key:
                raise RemoteProtocolError(f"{link.name!r} keeps a log {head.key!r} that nobody can have made")
            log.id, log.secret = head.id, head.secret
            log.shard, log.shards, log.copies = head.shard, head.shards, head.copies
            log.first_offset = log.next_offset = log.stored_end = log.safe_offset = head.first
            self._logs.making.keep(log)
        if head.subscribed:
            self._logs.owners.subscribed(log)
        fetch = self._fetches[log.key] = _Fetch(log, head, link.name, self._turn.now_us)
        self._turn.note("info", "fetches a log from its copy", log=log.key, at=link.name, rows=head.next)
        behind = self.peers[link.name].behind.get(log.key, 0)
        if behind:
            self._turn.note(
                "error", "the copy of a log was not complete", log=log.key, at=link.name, rows=behind
            )
        self._fetch_on(fetch)

    def _fetch_on(self, fetch: _Fetch) -> None:
        """All rows that came are stored: ask for the next ones."""
        log, link = fetch.log, self._neighbours[fetch.keeper]
        fetch.since_us = self._turn.now_us
        if log.stored_end < log.next_offset:
            return  # others have come since
        if log.next_offset < fetch.head.next:
            self._logs.work.when_safe(Word(link, CopyFetch(log.key, log.id, log.next_offset)))
        else:
            self._finish(fetch, fetch.head.acknowledged)

    def fetched(self, link: Link, message: CopyRows) -> bool:
        """Whether these rows belong to a log that is being fetched; then they are stored."""
        fetch = self._fetches.get(message.key)
        if fetch is None or fetch.keeper != link.name or fetch.log.id != message.id:
            return False
        log = fetch.log
        if message.first != log.next_offset:
            return True  # asked for in a session before
        rows = checked_rows(message.rows)
        if log.next_offset + len(rows) > fetch.head.next:
            raise RemoteProtocolError(
                f"{link.name!r} sent {len(rows)} rows of {message.key!r}: not what it has"
            )
        for publisher, sequence, record in rows:
            if not log.filter.matches(decode_record(record, publisher, sequence).attributes):
                raise RemoteProtocolError(
                    f"{link.name!r} keeps rows of {message.key!r} that nobody asked for"
                )
        for publisher, highest, packed in message.memory:
            if not 0 <= highest <= OFFSET_MAX:
                raise RemoteProtocolError(f"{link.name!r} speaks of a sequence {highest} that cannot be")
            log.stored.recall(publisher, highest, packed)
        for operation in appended(
            log.key, message.first, message.epoch, rows, log.epochs, log.stored, self._turn.now_us, fetch.tops
        ):
            self._logs.work.ask(operation)
        log.next_offset += len(rows)
        self._logs.stored.appended(log, len(rows), sum(len(record) for _, _, record in rows))
        self._logs.work.when_safe(Appended(log, log.next_offset, [], 0))
        return True

    def _finish(self, fetch: _Fetch, acknowledged: int) -> None:
        """All of it is here."""
        log = fetch.log
        del self._fetches[log.key]
        acknowledged = min(acknowledged, log.next_offset - 1)
        if acknowledged > log.acknowledged:
            log.acknowledged = acknowledged
            self._logs.work.ask(AcknowledgeLog(log.key, acknowledged))
        self._logs.copies.back(log, fetch.keeper)
        self._logs.restored(log)
        self._turn.note("info", "a log is back", log=log.key, rows=log.next_offset - log.first_offset)
        if not self._fetches and self.settled:
            self._release()

    def _give_up(self, fetch: _Fetch, reason: str) -> None:
        """The rest of it is not to be had now."""
        self._turn.note(
            "error",
            "rows of a log could not be fetched from its copy",
            log=fetch.log.key,
            at=fetch.keeper,
            rows=fetch.head.next - fetch.log.next_offset,
            reason=reason,
        )
        fetch.keeper = ""
        self._finish(fetch, min(fetch.head.acknowledged, fetch.log.next_offset - 1))

    def _release(self) -> None:
        """Requests about logs need not wait any longer."""
        postponed, self._postponed = self._postponed, []
        for client, message, handler in postponed:
            if client.connection is not None:
                handler(client, message)
        self._complete()

"""How does the past come back, and go on into the present?

    for row in braid.history("archive/orders", "price > 10", since="2026-11-01", until="2026-12-01"): ...
    for row in braid.follow(client, "orders", archive="archive/orders", replay_from="earliest"): ...

Rows of a log have offsets, in the archive and at the broker, so that there is no seam to guess at: what
follows the last offset that was read is the next row, wherever it is.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from braid.client import StoredPublication
from braid.errors import ConfigurationError, RequestRefusedError
from braid.language import Filter
from braid.pipeline.archive.segments import Segment, Segments
from braid.protocol.batch import decode_record
from braid.protocol.publisher_names import whole_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from braid.runtime import SyncClient

__all__ = ["follow", "history"]

# How often a log without news is asked for some.
POLL_S = 0.1
_EARLIEST = -1


def history(
    archive: Path | str,
    filter: Filter | str | None = None,
    *,
    since: datetime | str | None = None,
    until: datetime | str | None = None,
) -> Iterator[StoredPublication]:
    """What an archive has, in the order of the log, with Arrow alone.

    Args:
        archive: the folder.
        filter: only publications that satisfy this.
        since: only what was published at this time or later: a time with its zone, or text like
            `2026-11-18` or `2026-11-18T12:00:00+01:00` (UTC unless it says otherwise).
        until: only what was published before this time.

    Raises:
        ConfigurationError: there is no archive, a file is missing in it, or a time cannot be read.
        FilterError: the filter cannot be read.
    """
    segments = Segments(archive)
    if segments.head() is None:
        raise ConfigurationError(
            f"there is no archive at {segments.folder}; `braid pipeline archive` makes one"
        )
    wanted = Filter(filter) if isinstance(filter, str) else filter
    start_us, end_us = _time_us("since", since), _time_us("until", until)
    return _archived(segments, 0, wanted, start_us, end_us)


def follow(
    client: SyncClient,
    log: str,
    *,
    archive: Path | str,
    replay_from: int | datetime | str = "earliest",
    filter: Filter | str | None = None,
    until_now: bool = False,
    poll_s: float = POLL_S,
) -> Iterator[StoredPublication]:
    """The past of a log from its archive, then what its broker has, then what is published from now on.

    Nothing is left out and nothing comes twice, also while rows move from the log into the archive. To go on
    after a restart, give the offset behind the last row that was dealt with.

    Args:
        client: one that may replay the log.
        log: the durable subscription.
        archive: the folder that `Archiver` fills from this log.
        replay_from: `earliest`, `latest`, an offset, or a time of publication (as `since` of `history`).
        filter: only publications that satisfy this.
        until_now: end with what the log has now, instead of waiting for more.
        poll_s: how often a log without news is asked for some.

    Raises:
        ConfigurationError: the archive is that of another log, or lacks rows that the log has let go of.
    """
    wanted = Filter(filter) if isinstance(filter, str) else filter
    since_us = None
    first = _EARLIEST
    if isinstance(replay_from, int):
        first = replay_from
    elif replay_from == "latest":
        first = client.log_status(log).safe
    elif replay_from != "earliest":
        since_us = _time_us("replay_from", replay_from)
    return _followed(client, log, Segments(archive), first, wanted, since_us, until_now, poll_s)


def _followed(
    client: SyncClient,
    log: str,
    segments: Segments,
    following: int,
    wanted: Filter | None,
    since_us: int | None,
    until_now: bool,
    poll_s: float,
) -> Iterator[StoredPublication]:
    epoch = ""
    while True:
        for segment in _segments_from(segments, log, following, client):
            epoch = _last_epoch(segment)
            yield from _rows(segments, segment, following, wanted, since_us, None)
            following = segment.end
        # The log, until it has let go of a row that is in the archive by now.
        while True:
            status = client.log_status(log)
            _require_same(segments, log, status.id)
            known = status.epoch_at(following - 1)
            if following > status.next or (epoch and known and epoch != known):
                raise ConfigurationError(
                    f"the log {log!r} lacks the rows up to offset {following - 1} that were read: it was "
                    "restored from a backup, or its broker lost its data"
                )
            if following < status.first:
                if following == _EARLIEST and not segments.listed():
                    following = status.first
                elif not _segments_from(segments, log, following, client):
                    raise ConfigurationError(
                        f"rows {following} to {status.first - 1} are neither in the log {log!r} nor in the "
                        f"archive {segments.folder}"
                    )
                break
            if following < status.safe:
                try:
                    replay = client.replay(
                        log, following, status.safe - 1, filter=wanted, complete=True, log=status.id
                    )
                    for row in replay:
                        following, epoch = row.offset + 1, row.log_epoch
                        if since_us is None or row.published_at_us >= since_us:
                            yield row
                except RequestRefusedError as error:
                    if error.code != "trimmed":
                        raise
                    break
                following, epoch = status.safe, status.epoch_at(status.safe - 1)
            elif until_now:
                return
            else:
                time.sleep(poll_s)


def _segments_from(segments: Segments, log: str, first: int, client: SyncClient) -> list[Segment]:
    """The files with rows from an offset on; none where nothing is archived yet."""
    if segments.head() is None:
        return []
    _require_same(segments, log, client.log_status(log).id)
    found = [segment for segment in segments.listed() if segment.end > first]
    return found if first == _EARLIEST or (found and found[0].first <= first) else []


def _last_epoch(segment: Segment) -> str:
    """Empty where the file has been merged with others meanwhile, since theirs may be another."""
    try:
        return segment.last_epoch()
    except FileNotFoundError:
        return ""


def _require_same(segments: Segments, log: str, log_id: str) -> None:
    head = segments.head()
    if head is not None and head["id"] != log_id:
        raise ConfigurationError(
            f"the archive {segments.folder} is not that of the log {log!r} as it is now: its id was "
            f"{head['id']}, and is {log_id}"
        )


def _archived(
    segments: Segments, first: int, wanted: Filter | None, since_us: int | None, until_us: int | None
) -> Iterator[StoredPublication]:
    for segment in segments.listed():
        if segment.end > first:
            yield from _rows(segments, segment, first, wanted, since_us, until_us)


def _rows(
    segments: Segments,
    segment: Segment,
    first: int,
    wanted: Filter | None,
    since_us: int | None,
    until_us: int | None,
) -> Iterator[StoredPublication]:
    """Rows of one file; of a merged one, where it has been merged since it was listed."""
    following, end = max(first, segment.first), segment.end
    while following < end:
        try:
            for row in _read(segment, following, end, wanted, since_us, until_us):
                following = row.offset + 1
                yield row
            return
        except FileNotFoundError:
            found = [each for each in segments.listed() if each.first <= following < each.end]
            if not found or found[0].path == segment.path:
                raise ConfigurationError(
                    f"{segment.path} was removed while it was read, and no other file has its rows"
                ) from None
            segment = found[0]


def _read(
    segment: Segment,
    first: int,
    end: int,
    wanted: Filter | None,
    since_us: int | None,
    until_us: int | None,
) -> Iterator[StoredPublication]:
    import pyarrow.compute as pc

    earliest, latest = segment.published()
    if (since_us is not None and latest < since_us) or (until_us is not None and earliest >= until_us):
        return
    names = ["offset", "log_epoch", "publisher", "epoch", "sequence", "record"]
    for batch in segment.batches():
        offsets = batch.column("offset")
        chosen = batch.filter(pc.and_(pc.greater_equal(offsets, first), pc.less(offsets, end)))
        columns = [chosen.column(name).to_pylist() for name in names]
        for offset, log_epoch, publisher, epoch, sequence, record in zip(*columns, strict=True):
            row = decode_record(record, whole_name(publisher, epoch), sequence)
            at_us = row.published_at_us
            if (since_us is not None and at_us < since_us) or (until_us is not None and at_us >= until_us):
                continue
            if wanted is None or wanted.matches(row.attributes):
                yield StoredPublication(
                    row.attributes,
                    row.body,
                    row.content_type,
                    publisher,
                    sequence,
                    at_us,
                    epoch,
                    offset,
                    log_epoch,
                )


def _time_us(name: str, value: datetime | str | None) -> int | None:
    if value is None:
        return None
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        raise ConfigurationError(
            f"{name}={value!r} is no time; write 2026-11-18 or 2026-11-18T12:00:00+01:00"
        ) from None
    if at.tzinfo is None:
        if not isinstance(value, str):
            raise ConfigurationError(f"{name}={value!r} has no time zone; say which, such as datetime.UTC")
        at = at.replace(tzinfo=UTC)
    return round(at.timestamp() * 1_000_000)

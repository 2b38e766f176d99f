"""How do JSON lines get into the network and out of it?

`braid publish` reads one publication per line and sends it to a broker; `braid subscribe` prints one per
line. What the one prints, the other can read.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from braid.cli.connection_options import BROKER_DEFAULT, Brokers, Door, with_door
from braid.cli.json_lines import decode, encode_lines, input_name, open_input, read_batches
from braid.cli.terminal import say
from braid.errors import BraidError, PublicationError, RequestRefusedError

if TYPE_CHECKING:
    from braid.language import Publication
    from braid.runtime import DurableSubscription, Subscription
    from braid.runtime.sync_client import SyncClient

__all__ = ["PUBLISH_EXAMPLES", "SUBSCRIBE_EXAMPLES", "publish", "subscribe"]

# Lines that are read, and publications that are printed, at a time.
BATCH_MAX: Final = 1024
# A command at a terminal gives up sooner than a service would.
RECONNECT_FOR_S: Final = 60.0
EXIT_INTERRUPTED: Final = 130

PUBLISH_EXAMPLES: Final = (
    "braid publish --broker 127.0.0.1:7000 < quotes.jsonl",
    "tail -f quotes.jsonl | braid publish --acknowledged",
    """echo '{"attributes": {"price": 9.5}, "body": "..."}' | braid publish --meta""",
)
SUBSCRIBE_EXAMPLES: Final = (
    """braid subscribe "symbol = 'ACME' AND price > 10" """.strip(),
    """braid subscribe "price > 10" --count 5 --for 30 --meta""",
    """braid subscribe "level = 'error'" --durable errors >> errors.jsonl""",
)


class _WhenFull(StrEnum):
    """What happens when more arrives than can be printed."""

    BLOCK = "block"
    DROP_OLDEST = "drop_oldest"
    DISCONNECT = "disconnect"


_with_door = with_door(10.0, "How long to try to connect.")


@_with_door
def publish(
    broker: Brokers = BROKER_DEFAULT,
    acknowledged: Annotated[
        bool,
        typer.Option(
            "--acknowledged", help="Wait until every subscriber has everything, not only the broker."
        ),
    ] = False,
    ordered: Annotated[
        bool,
        typer.Option(
            "--ordered", help="Keep this order for every subscriber, also where there are shortcuts."
        ),
    ] = False,
    meta: Annotated[
        bool,
        typer.Option("--meta", help='Lines are {"attributes": {...}, "body": "...", "content_type": "..."}.'),
    ] = False,
    publisher: Annotated[
        str | None,
        typer.Option("--publisher", metavar="NAME", help="The publisher's name. Left out: made up."),
    ] = None,
    epoch: Annotated[
        str | None,
        typer.Option(
            "--epoch",
            metavar="TEXT",
            help="Which run of that publisher this is; with the same one, repetitions are recognised.",
        ),
    ] = None,
    secret: Annotated[
        str | None,
        typer.Option(
            "--secret",
            metavar="TEXT",
            envvar="BRAID_SECRET",
            help="Keeps other anonymous clients from using --publisher with --epoch.",
        ),
    ] = None,
    *,
    door: Door,
) -> None:
    """Publish JSON lines from standard input.

    Each line is an object of attributes; nested objects become dotted names: {"a": {"b": 1}} has the
    attribute a.b. At a line that cannot be published the command stops with exit code 2 and names the line;
    everything before it has been published.

    With --publisher and --epoch the same lines can be published again after a failure: what the broker
    already has is discarded and counted.
    """
    from braid.runtime.connecting import connect_sync

    delivery = "acknowledged" if acknowledged else "fast"
    count = 0
    try:
        with (
            connect_sync(
                broker,
                token=door.token,
                tls=door.tls,
                publisher=publisher,
                epoch=epoch,
                secret=secret,
                timeout_s=door.timeout_s,
                reconnect_for_s=RECONNECT_FOR_S,
            ) as client,
            open_input("-") as source,
        ):
            try:
                for batch in read_batches(source, BATCH_MAX):
                    for number, line in batch:
                        _publish_line(client, number, line, delivery, ordered=ordered, meta=meta)
                        count += 1
            finally:
                # Also before a bad line is reported: what stands before it counts as published.
                client.flush()
                discarded = f", {client.discards:,} of them discarded" if client.discards else ""
                say(f"braid: {count:,} published{discarded}")
            refused, reason = client.refusals
            if reason is not None:
                raise RequestRefusedError(f"{refused:,} of {count:,} publications were refused: {reason}")
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _publish_line(
    client: SyncClient, number: int, line: bytes, delivery: str, *, ordered: bool, meta: bool
) -> None:
    from braid.language import flatten

    try:
        document = decode(line)
        body, content_type = b"", ""
        if meta:
            document, body, content_type = _parts(document)
        client.publish(flatten(document), body, content_type, delivery=delivery, ordered=ordered)
    except PublicationError as error:
        raise PublicationError(f"{input_name('-')}:{number}: {error}") from None
    except BraidError:
        raise
    except ValueError as error:
        raise PublicationError(f"{input_name('-')}:{number}: {error}") from None


# What `subscribe --meta` writes can be published again; only these keys say something about that.
_META_KEYS = frozenset(
    {
        "attributes",
        "body",
        "body_base64",
        "content_type",
        "epoch",
        "id",
        "offset",
        "publisher",
        "sequence",
        "time",
    }
)


def _parts(document: Any) -> tuple[Any, bytes, str]:
    """Attributes, body and content type of a line with meta data."""
    if not isinstance(document, dict) or "attributes" not in document:
        raise PublicationError('expected {"attributes": {...}, "body": "...", "content_type": "..."}')
    unknown = sorted(document.keys() - _META_KEYS)
    if unknown:
        raise PublicationError(f"unknown key {unknown[0]!r}; known are {', '.join(sorted(_META_KEYS))}")
    body = document.get("body", "")
    content_type = document.get("content_type", "")
    encoded = document.get("body_base64")
    if not isinstance(body, str) or not isinstance(content_type, str):
        raise PublicationError("body and content_type are strings; bytes go into body_base64")
    if encoded is None:
        return document["attributes"], body.encode(), content_type
    if body or not isinstance(encoded, str):
        raise PublicationError("either body or body_base64, and both are strings")
    try:
        return document["attributes"], base64.b64decode(encoded, validate=True), content_type
    except binascii.Error as error:
        raise PublicationError(f"body_base64 cannot be read: {error}") from None


@_with_door
def subscribe(
    filter_text: Annotated[str, typer.Argument(metavar="FILTER", help="The filter, an SQL condition.")],
    broker: Brokers = BROKER_DEFAULT,
    count: Annotated[
        int | None,
        typer.Option("--count", "-n", min=1, metavar="N", help="End after this many publications."),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--for", min=0.0, metavar="SECONDS", help="End after this time.")
    ] = None,
    meta: Annotated[
        bool, typer.Option("--meta", help="Also print id, publisher, sequence, time, body and content type.")
    ] = False,
    durable: Annotated[
        str | None,
        typer.Option(
            "--durable",
            metavar="NAME",
            help="The broker collects publications under this name while there is no reader.",
        ),
    ] = None,
    takeover: Annotated[
        bool,
        typer.Option(
            "--takeover",
            help="Take --durable over from another program that is reading it.",
        ),
    ] = False,
    secret: Annotated[
        str | None,
        typer.Option(
            "--secret",
            metavar="TEXT",
            envvar="BRAID_SECRET",
            help="Opens --durable for an anonymous client; by default made from a key of this user.",
        ),
    ] = None,
    copies: Annotated[
        int,
        typer.Option(
            "--copies", min=0, max=1, help="1: a neighbour of the broker keeps the rows of --durable, too."
        ),
    ] = 0,
    when_full: Annotated[
        _WhenFull | None,
        typer.Option("--when-full", help="What happens when more arrives than can be printed."),
    ] = None,
    partial: Annotated[
        bool,
        typer.Option(
            "--partial",
            help="Begin even though links of the network are down; what lies behind them is missed.",
        ),
    ] = False,
    *,
    door: Door,
) -> None:
    r"""Print publications that satisfy FILTER, one JSON object a line, as they arrive.

    Nothing else is written to standard output. With --meta a line is {"id": ..., "publisher": ...,
    "sequence": ..., "time": microseconds, "attributes": {...}, "body": ..., "content_type": ...}; a body that
    is not text is given as body_base64. With --durable, what was printed is acknowledged, so the next run
    goes on after it, and --meta adds the offset.

    Ends with Ctrl-C, --count or --for. Exit code 1: the time of --for was over before --count was reached.
    """
    from braid.language import Filter

    Filter(filter_text)  # a mistake in it is reported before anything is connected
    work = _print_publications(
        filter_text,
        broker,
        {"token": door.token, "tls": door.tls, "timeout_s": door.timeout_s},
        count=count,
        seconds=seconds,
        meta=meta,
        subscription={
            **(
                {"durable": durable, "secret": secret, "takeover": takeover, "copies": copies}
                if durable is not None
                else {}
            ),
            "when_full": when_full and when_full.value,
            "partial": partial,
        },
    )
    with suppress(KeyboardInterrupt):
        if not asyncio.run(work):
            raise typer.Exit(1)


async def _print_publications(
    filter_text: str,
    broker: str,
    connection: Mapping[str, Any],
    *,
    count: int | None,
    seconds: float | None,
    meta: bool,
    subscription: Mapping[str, Any],
) -> bool:
    """Print until the end; whether as many came as were asked for."""
    from braid.runtime.connecting import connect

    printed = 0
    with _Interruption() as interruption:
        try:
            async with connect(broker, **connection) as client:
                source = await client.subscribe(filter_text, **subscription)
                say(f"braid: subscribed to {source.filter}")
                if source.missing:
                    say(f"braid: these links are down, and not covered: {', '.join(source.missing)}")
                ends_at = None if seconds is None else asyncio.get_running_loop().time() + seconds
                while count is None or printed < count:
                    wanted = BATCH_MAX if count is None else min(BATCH_MAX, count - printed)
                    try:
                        rows = await source.get_many(wanted, _remaining(ends_at))
                    except TimeoutError:
                        break
                    await _print_rows(source, rows, meta)
                    printed += len(rows)
        except asyncio.CancelledError:
            if not interruption.happened:
                raise
            return True
    return count is None or printed >= count


def _remaining(ends_at: float | None) -> float | None:
    """Seconds until then; a TimeoutError if that has passed."""
    if ends_at is None:
        return None
    remaining = ends_at - asyncio.get_running_loop().time()
    if remaining <= 0:
        raise TimeoutError
    return remaining


async def _print_rows(
    source: Subscription | DurableSubscription, rows: Sequence[Publication], meta: bool
) -> None:
    from braid.runtime import DurableSubscription

    lines = encode_lines([_with_meta(row) if meta else _plain(row.attributes) for row in rows])
    # In a thread: whoever reads our output may be slow, and the broker wants to hear from us meanwhile.
    # Not interrupted in the middle: a line that was begun is finished, and acknowledged.
    writing = asyncio.ensure_future(asyncio.to_thread(_write, lines))
    try:
        await asyncio.shield(writing)
    finally:
        await writing
        if isinstance(source, DurableSubscription):
            await source.acknowledge(_offset(rows[-1]))


def _write(lines: bytes) -> None:
    sys.stdout.buffer.write(lines)
    sys.stdout.buffer.flush()


def _offset(publication: Publication) -> int:
    return int(getattr(publication, "offset", -1))


def _plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as JSON has them; ranges as `flatten` reads them."""
    from braid.language import Range

    return {
        name: {"$range": {"low": value.low, "high": value.high}} if isinstance(value, Range) else value
        for name, value in attributes.items()
    }


def _with_meta(publication: Publication) -> dict[str, Any]:
    from braid.protocol.publisher_names import short_name, whole_name

    line: dict[str, Any] = {
        "id": f"{short_name(whole_name(publication.publisher, publication.epoch))}/{publication.sequence}",
        "publisher": publication.publisher,
        "epoch": publication.epoch,
        "sequence": publication.sequence,
        "time": publication.published_at_us,
        "attributes": _plain(publication.attributes),
    }
    if _offset(publication) >= 0:
        line["offset"] = _offset(publication)
    try:
        line["body"] = publication.body.decode()
    except UnicodeDecodeError:
        line["body_base64"] = base64.b64encode(publication.body).decode()
    line["content_type"] = publication.content_type
    return line


class _Interruption:
    """Ends the running task at Ctrl-C, or when the system asks to stop, so that it can tidy up."""

    _SIGNALS: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.happened = False
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()

    def __enter__(self) -> _Interruption:
        for number in self._SIGNALS:
            # Only the main thread hears signals; elsewhere there is nothing to be done.
            with suppress(NotImplementedError, RuntimeError, ValueError):
                self._loop.add_signal_handler(number, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        for number in self._SIGNALS:
            with suppress(NotImplementedError, RuntimeError, ValueError):
                self._loop.remove_signal_handler(number)

    def _interrupt(self) -> None:
        if not self.happened and self._task is not None:
            self.happened = True
            self._task.cancel()

"""Tries filters and publications on the live network.

What is wrong with a filter, what matches it now, and which way did a publication take?
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from braid.errors import BraidError, FilterError, FilterSyntaxError, RequestRefusedError
from braid.language import Filter, flatten
from braid.runtime.connecting import connect

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from braid.cli.connection_options import Door

    Everywhere = Callable[[str, Mapping[str, str]], Awaitable[Mapping[str, dict[str, Any] | None]]]

__all__ = ["FILTER_LENGTH_MAX", "filter_report", "matching", "publish", "way_of"]

# Characters of a filter and attributes of a publication that are tried.
FILTER_LENGTH_MAX: Final = 4_000
ATTRIBUTES_MAX: Final = 200
# Publications of one portion that are shown; of the others it is said how many there were.
SHOWN_MAX: Final = 20
# How often a portion goes out.
PORTION_S: Final = 0.25
# How long a receipt may take, and how often brokers are asked until the whole way is known.
RECEIPT_S: Final = 5.0
LOOKS_MAX: Final = 20
LOOK_S: Final = 0.15


def filter_report(text: str) -> dict[str, Any]:
    """What the parser says of a filter: its plain form, or where it stops and what it expected there."""
    if len(text) > FILTER_LENGTH_MAX:
        return {
            "ok": False,
            "message": f"a filter that is tried here has at most {FILTER_LENGTH_MAX:,} characters",
        }
    try:
        found = Filter(text)
        plain = str(found)
    except FilterSyntaxError as error:
        return {
            "ok": False,
            "message": f"found {error.found}, expected {error.expected}",
            "line": error.line,
            "column": error.column,
            "position": error.position,
            "hint": error.hint,
        }
    except FilterError as error:
        return {"ok": False, "message": str(error)}
    return {"ok": True, "plain": plain if len(plain) <= FILTER_LENGTH_MAX else ""}


async def matching(broker: str, door: Door, text: str) -> AsyncGenerator[dict[str, Any], None]:
    """Portions of what matches a filter from now on; without end.

    Raises:
        BraidError: the filter cannot be subscribed to, or the connection is gone.
    """
    async with connect(
        broker,
        name=f"dashboard-{secrets.token_hex(4)}",
        token=door.token,
        tls=door.tls,
        timeout_s=door.timeout_s,
        reconnect_for_s=0,
    ) as client:
        # What is not read in time is dropped: nobody waits for a page.
        subscription = await client.subscribe(text, when_full="drop_oldest", queue_size=1000, partial=True)
        yield {"installed": True, "missing": list(subscription.missing), "publications": [], "more": 0}
        while True:
            first = await subscription.get()
            await asyncio.sleep(PORTION_S)
            waiting: deque[Any] = deque([first])
            while len(waiting) < 1000:
                try:
                    waiting.extend(await subscription.get_many(200, timeout_s=0))
                except TimeoutError:
                    break
            dropped = subscription.statistics().dropped
            shown = list(waiting)[-SHOWN_MAX:]
            yield {
                "publications": [_shown(each) for each in shown],
                "more": len(waiting) - len(shown),
                "dropped": dropped,
            }


def _shown(publication: Any) -> dict[str, Any]:
    attributes = {}
    for number, (name, value) in enumerate(publication.attributes.items()):
        if number >= 24:
            attributes["…"] = f"{len(publication.attributes) - 24} more"
            break
        plain = isinstance(value, (bool, int, float)) and abs(value) < 2**53
        attributes[str(name)[:80]] = value if plain or value is None else str(value)[:200]
    return {
        "publisher": publication.publisher[:120],
        "sequence": publication.sequence,
        "attributes": attributes,
    }


async def publish(
    broker: str, door: Door, everywhere: Everywhere, attributes: Mapping[str, Any]
) -> dict[str, Any]:
    """Publish once at a broker, and follow it through all brokers.

    Args:
        broker: the address of the one to publish at.
        door: how to come in.
        everywhere: asks all brokers one thing; None is the answer of one that gives none.
        attributes: the publication; nested objects are flattened.

    Raises:
        BraidError: it cannot be published.
    """
    flat = flatten(dict(attributes))
    if not flat or len(flat) > ATTRIBUTES_MAX:
        raise RequestRefusedError(f"a publication has from 1 to {ATTRIBUTES_MAX} attributes", "argument")
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            connect(
                broker,
                name=f"dashboard-{secrets.token_hex(4)}",
                token=door.token,
                tls=door.tls,
                timeout_s=door.timeout_s,
                request_timeout_s=door.timeout_s,
                reconnect_for_s=0,
            )
        )
        await everywhere("watch", {"publisher": client.publisher})
        receipt = await client.publish(flat, delivery="acknowledged")
        settled, problem = True, ""
        try:
            await receipt.wait(RECEIPT_S)
        except TimeoutError:
            settled = False
        except BraidError as error:
            settled, problem = False, str(error)
        way = await way_of(everywhere, client.publisher, receipt.sequence)
        return {
            "publisher": client.publisher,
            "sequence": receipt.sequence,
            "at": client.broker,
            "settled": settled,
            "problem": problem,
            **way,
        }


async def way_of(everywhere: Everywhere, publisher: str, sequence: int) -> dict[str, Any]:
    """The hops of a publication in the order of its way, once they fit together, or after a while."""
    hops: list[dict[str, Any]] = []
    silent: list[str] = []
    for _ in range(LOOKS_MAX):
        answers = await everywhere("way", {"publisher": publisher, "sequence": str(sequence)})
        silent = sorted(name for name, answer in answers.items() if answer is None)
        seen = {name: answer for name, answer in answers.items() if answer and answer.get("here")}
        hops = _in_order(seen)
        expected = {to["name"] for hop in hops for to in hop["went_to"] if to["kind"] != "client"}
        if hops and expected <= seen.keys() | set(silent):
            break
        await asyncio.sleep(LOOK_S)
    return {"hops": hops, "silent": silent, "subscribers": sum(_clients(hop) for hop in hops)}


def _clients(hop: Mapping[str, Any]) -> int:
    return sum(to["kind"] == "client" for to in hop["went_to"])


def _in_order(seen: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """From where it entered, and then each broker after the one that it came from."""
    origin = [name for name, answer in seen.items() if answer["came_by"] == "client"]
    order = list(origin)
    for name in order:
        order += sorted(
            other for other, answer in seen.items() if answer["came_from"] == name and other not in order
        )
    order += sorted(seen.keys() - set(order))
    begin_us = min((answer["at_us"] for answer in seen.values()), default=0)
    depth: dict[str, int] = {}
    found = []
    for name in order:
        answer = seen[name]
        depth[name] = depth.get(answer["came_from"], -1) + 1 if answer["came_by"] != "client" else 0
        found.append(
            {
                "broker": name,
                "depth": depth[name],
                "came_from": answer["came_from"],
                "came_by": answer["came_by"],
                "after_ms": round((answer["at_us"] - begin_us) / 1000, 2),
                "copies": answer["copies"],
                "went_to": answer["went_to"],
                "receivers": answer["receivers"],
            }
        )
    return found

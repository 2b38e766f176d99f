"""Long filters are read beside the event loop: no turn waits for them, and nothing changes its order."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from braid.language import Filter, filters
from braid.language.reading import common_part, read_filter
from braid.protocol import Frame, encode_frames
from braid.protocol.effects import Granted, Greeted
from braid.protocol.inputs import Closed, Opened, Received
from braid.protocol.limits import FRAME_BYTES_MAX
from braid.protocol.messages import Ping, Subscribe
from tests.runtime.test_node import Script, running

if TYPE_CHECKING:
    from braid.language.expressions import Condition
    from braid.protocol.effects import Effect
    from braid.protocol.inputs import Input

pytestmark = pytest.mark.net


def long_filter(number: int) -> str:
    return " OR ".join(f"(a = {each} AND b < {number})" for each in range(2_200))


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[int]]:
    """In which threads long texts were read, and their normal forms made."""
    found: dict[str, set[int]] = {"parse": set(), "normal_form": set()}
    parse, normal_form = filters.parse, filters.normal_form

    def noted_parse(text: str) -> Condition:
        if len(text) > 10_000:
            found["parse"].add(threading.get_ident())
        return parse(text)

    def noted_normal_form(condition: Condition) -> object:
        if threading.current_thread().name.startswith("braid-filters"):
            found["normal_form"].add(threading.get_ident())
        return normal_form(condition)

    monkeypatch.setattr(filters, "parse", noted_parse)
    monkeypatch.setattr(filters, "normal_form", noted_normal_form)
    return found


async def test_the_loop_reads_no_long_filter(threads: dict[str, set[int]]) -> None:
    machine = Script(
        lambda each: [Greeted(each.connection, FRAME_BYTES_MAX)] if isinstance(each, Opened) else []
    )
    messages = [
        Ping(1),
        Subscribe(1, "one", long_filter(1)),
        Ping(2),
        Ping(3),
        Subscribe(2, "short", "price > 1"),
        Subscribe(3, "two", long_filter(2)),
        Subscribe(4, "wrong", long_filter(3) + " OR"),
        Ping(4),
    ]
    sequenced = [isinstance(message, Subscribe) for message in messages]
    data = encode_frames(list(map(Frame, sequenced, messages)))
    async with running(machine) as (_, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        writer.close()
        await machine.wait_for(Closed)
    heard = [frame.body for each in machine.inputs if isinstance(each, Received) for frame in each.frames]
    assert heard == messages  # (What says only that the peer is not silent has no frames.)
    assert isinstance(machine.inputs[-1], Closed)
    assert len(threads["parse"]) == 1
    assert threading.get_ident() not in threads["parse"]
    assert threads["normal_form"] == threads["parse"]


async def test_the_loop_narrows_no_long_filter(threads: dict[str, set[int]]) -> None:
    """What the asker may have is known from the greeting, and the thread holds the filter against it."""
    granted = Filter("c > 3 AND b < 1000")
    narrowed: list[Filter | None] = []

    def answer(each: Input) -> list[Effect]:
        if isinstance(each, Opened):
            return [
                Greeted(each.connection, FRAME_BYTES_MAX),
                Granted(each.connection, granted.text, "d > 1", True),
            ]
        narrowed.extend(
            common_part(read_filter(frame.body.filter), granted)
            for frame in (each.frames if isinstance(each, Received) else ())
            if isinstance(frame.body, Subscribe)
        )
        return []

    machine = Script(answer)
    text = long_filter(4)
    async with running(machine) as (_, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(encode_frames([Frame(1, Subscribe(1, "one", text))]))
        writer.close()
        await machine.wait_for(Closed)
    assert [each and each.text for each in narrowed] == [f"({text}) AND ({granted.text})"]
    assert len(threads["parse"]) == 1
    assert threading.get_ident() not in threads["parse"]
    assert threads["normal_form"] == threads["parse"]

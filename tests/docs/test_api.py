"""Do the bus, the asyncio client and the synchronous client speak the one language of docs/api.md?"""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import braid

DOCUMENT = Path(__file__).parents[2] / "docs" / "api.md"

# By its heading in the document: the classes, and which column beside "everywhere" is about them.
FACES: dict[str, dict[type, str]] = {
    "Buses and clients": {
        braid.Bus: "bus",
        braid.AsyncBus: "bus",
        braid.Client: "network",
        braid.SyncClient: "network",
    },
    "Subscriptions": {
        braid.BusSubscription: "bus",
        braid.AsyncBusSubscription: "bus",
        braid.Subscription: "network",
        braid.DurableSubscription: "network",
        braid.SyncSubscription: "network",
        braid.SyncDurableSubscription: "network",
    },
    "Receipts": {braid.BusReceipt: "bus", braid.Receipt: "network", braid.SyncReceipt: "network"},
}
AWAITED = {
    braid.AsyncBus,
    braid.AsyncBusSubscription,
    braid.Client,
    braid.DurableSubscription,
    braid.Receipt,
    braid.Subscription,
}
# These only look, or begin something that is awaited later.
NEVER_AWAITED = {"statistics", "replay", "replay_records"}
DURABLE = {braid.DurableSubscription, braid.SyncDurableSubscription}
ONLY_DURABLE = {"acknowledge", "durable", "resets", "secret"}
CASES = [(heading, face) for heading, faces in FACES.items() for face in faces]


def section(heading: str) -> str:
    return DOCUMENT.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]


def described_calls(heading: str, column: str) -> dict[str, list[tuple[str, Any, str]]]:
    """Name, default and kind of each argument of each call, as the document has them."""
    lines = [line for line in section(heading).splitlines() if line.startswith("| `")]
    found = {}
    for _, name, everywhere, bus, network, _ in (line.split("|") for line in lines):
        parts = [everywhere, bus if column == "bus" else network]
        texts = [part.strip("` ") for part in parts if part.strip() != "-"]
        if all(part.strip() == "-" for part in parts):
            continue
        if any("*" in text for text in texts[:1]):
            texts[1:] = [text.removeprefix("*, ") for text in texts[1:]]
        arguments = ", ".join(text for text in texts if text)
        scope: dict[str, Any] = {}
        exec(f"def described({arguments}): ...", scope)
        found[name.strip("` ")] = shape(scope["described"])
    return found


def shape(function: Any) -> list[tuple[str, Any, str]]:
    parameters = inspect.signature(function).parameters.values()
    return [(each.name, each.default, str(each.kind)) for each in parameters if each.name != "self"]


def described_properties(heading: str, column: str) -> set[str]:
    """The names in the sentences that begin with `Properties`, as far as they are about this column."""
    paragraph = section(heading).split("Properties ")[1].split("\n\n")[0].replace("\n", " ")
    own = ("Of a bus",) if column == "bus" else ("In the network", "Of a client", "Of a durable")
    found: set[str] = set()
    for sentence in paragraph.split(". "):
        if sentence.strip().startswith(("everywhere", *own)) and ":" in sentence:
            names = re.split(r";|, which", sentence.split(":", 1)[1])[0]
            found |= set(re.findall(r"`(\w+)`", names))
    return found


def public(face: type) -> dict[str, Any]:
    names = {name for name in dir(face) if not name.startswith("_")}
    return {name: inspect.getattr_static(face, name) for name in names}


@pytest.mark.parametrize(("heading", "face"), CASES)
def test_the_calls_are_as_described(heading: str, face: type) -> None:
    described = described_calls(heading, FACES[heading][face])
    if heading == "Subscriptions" and face not in DURABLE:
        described.pop("acknowledge", None)
    calls = {name: value for name, value in public(face).items() if inspect.isfunction(value)}
    assert {name: shape(call) for name, call in calls.items()} == described
    for name, call in calls.items():
        awaited = face in AWAITED and name not in NEVER_AWAITED
        assert inspect.iscoroutinefunction(call) == awaited, name


@pytest.mark.parametrize(("heading", "face"), CASES)
def test_the_properties_are_as_described(heading: str, face: type) -> None:
    described = described_properties(heading, FACES[heading][face])
    if heading == "Subscriptions" and face not in DURABLE:
        described -= ONLY_DURABLE
    if heading == "Buses and clients" and FACES[heading][face] == "bus":
        described -= {"for_threads" if face is braid.Bus else "for_tasks"}
    properties = {name for name, value in public(face).items() if not inspect.isfunction(value)}
    assert properties == described


def test_both_ways_to_connect_take_the_same_arguments_and_say_so() -> None:
    assert shape(braid.connect) == shape(braid.connect_sync)
    assert "*arguments" not in str(inspect.signature(braid.connect_sync))
    explained = inspect.getdoc(braid.connect) or ""
    for name in inspect.signature(braid.connect).parameters:
        assert f"\n    {name}: " in explained


def test_the_document_tells_of_every_kind_of_connection_event() -> None:
    told = set(re.findall(r"^\| `(\w+)` \| [a-z]", section("Connections"), re.MULTILINE))
    kinds = ast.literal_eval(str(braid.ConnectionEvent.__annotations__["kind"]).removeprefix("Literal"))
    assert told - {"kind"} == set(kinds)


# What a type checker says about programs of users.

GOOD = """
from __future__ import annotations

import braid


async def read(url: str) -> None:
    async with braid.connect(url) as client:
        orders = await client.subscribe("kind = 'order'", durable="orders", takeover=True)
        async for order in orders:
            offset: int = order.offset
            await orders.acknowledge(order)
        quotes: braid.Subscription = await client.subscribe("price > 10", name="quotes")
        async for quote in quotes:
            print(quote["price"], quotes.statistics().queued)
        receipt: braid.Receipt = await client.publish_batch([{"price": 1}], delivery="acknowledged")
        await receipt
        await receipt.wait(timeout_s=1.0)


def read_in_a_thread(url: str, watch: list[braid.ConnectionEvent]) -> list[braid.Publication]:
    with braid.connect_sync(url, on_connection=watch.append) as client:
        orders: braid.SyncDurableSubscription = client.subscribe(None, durable="orders")
        for order in orders:
            orders.acknowledge(order)
            print(order.offset)
        receipt: braid.SyncReceipt = client.publish({"price": 1})
        receipt.wait(timeout_s=1.0)
        return client.subscribe("price > 10").get_many(10, timeout_s=1.0)


async def in_one_process(stored: braid.StoredPublication) -> None:
    async with braid.open() as bus:
        quotes: braid.AsyncBusSubscription = await bus.subscribe("price > 10")
        done: braid.BusReceipt = await bus.publish(stored)
        print(done.delivered, (await quotes.get(timeout_s=1.0)).attributes)
    with braid.open() as plain:
        for publication in plain.subscribe("TRUE"):
            print(publication.sequence)
"""

FORGOTTEN = """
import braid


async def read(orders: braid.DurableSubscription) -> None:
    async for order in orders:
        orders.acknowledge(order)
"""

NOT_DURABLE = """
import braid


async def read(client: braid.Client) -> None:
    quotes = await client.subscribe("price > 10")
    await quotes.acknowledge(5)
"""


def type_checked(program: str, folder: Path) -> str:
    file = folder / "program.py"
    file.write_text(program)
    cache = Path(__file__).parents[2] / ".mypy_cache"
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(cache), str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder).stdout


@pytest.mark.parametrize(
    ("program", "verdict"),
    [
        (GOOD, "Success: no issues found"),
        (FORGOTTEN, "[unused-coroutine]"),
        (NOT_DURABLE, '"Subscription" has no attribute "acknowledge"'),
    ],
    ids=["good", "forgotten", "not durable"],
)
def test_a_type_checker_knows_what_is_returned(program: str, verdict: str, tmp_path: Path) -> None:
    assert verdict in type_checked(program, tmp_path)

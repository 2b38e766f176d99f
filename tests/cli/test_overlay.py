"""Is the network shown as it is, and changed only where that is safe?"""

from __future__ import annotations

import asyncio
import json
import socket
from typing import TYPE_CHECKING, Any

import pytest

from braid.cli.overlay_crawl import Door, Network, Report, append_broker, ask, ask_for_strategy, crawl
from braid.cli.overlay_views import as_dot_text, print_tree, rates, strategy_text, watch
from braid.errors import BraidError, RequestRefusedError
from braid.runtime.connecting import connect
from tests.cli.broker_process import BrokerProcess, braid, running_broker

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.net
DOOR = Door(timeout_s=10.0)


@pytest.fixture(scope="module")
def brokers() -> Iterator[dict[str, BrokerProcess]]:
    """A - B - C, and D alone."""
    with (
        running_broker("A") as a,
        running_broker("D") as d,
        running_broker("B", "--neighbor", a.address) as b,
        running_broker("C", "--neighbor", b.address) as c,
    ):
        a.wait_for("link up")
        b.wait_for("link up.*neighbour=C")
        yield {"A": a, "B": b, "C": c, "D": d}


async def test_a_crawl_finds_everybody(brokers: dict[str, BrokerProcess]) -> None:
    network = await crawl(brokers["A"].address, DOOR)
    assert [report.broker for report in network.reports] == ["A", "B", "C"]
    assert [report.address for report in network.reports] == [brokers[name].address for name in "ABC"]
    assert [report.overlay["clients"] for report in network.reports] == [0, 0, 0]
    assert network.complete


def test_the_commands(brokers: dict[str, BrokerProcess]) -> None:
    shown = braid("overlay", "show", "--broker", brokers["B"].address)
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert lines[0].startswith("B braid://")
    assert lines[-1] == "3 of 3 brokers reached"
    document = json.loads(braid("overlay", "show", "--json", "-b", brokers["B"].address).stdout)
    assert [each["broker"] for each in document["brokers"]] == ["B", "A", "C"]
    looks = braid("overlay", "top", "--json", "--interval", "0.1", "-n", "2", "-b", brokers["A"].address)
    assert looks.returncode == 0, looks.stderr
    assert [len(json.loads(line)["brokers"]) for line in looks.stdout.splitlines()] == [3, 3]
    refused = braid("overlay", "detach", "--broker", brokers["B"].address)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == "braid: only an outer broker can be detached, and this one lies between A, C\n"


async def test_append_and_detach(brokers: dict[str, BrokerProcess]) -> None:
    new, old = brokers["D"].address, brokers["C"].address
    linked = await append_broker(new, old, DOOR)
    assert (linked.broker, linked.neighbour) == ("D", "C")
    assert len((await crawl(new, DOOR)).reports) == 4
    with pytest.raises(RequestRefusedError, match="without links"):
        await append_broker(new, brokers["A"].address, DOOR)
    async with connect(new) as client:
        await client.subscribe("price > 10")
        with pytest.raises(RequestRefusedError, match="subscribers of its own"):
            await ask(new, "detach", DOOR)
    async with connect(new) as client:
        async with asyncio.timeout(30):
            while (await client.ask("statistics"))["routing"]["subscriptions"]:
                pass  # the subscriber's connection has not ended yet
    assert (await ask(new, "detach", DOOR))["detached_from"] == ["C"]
    assert [report.broker for report in (await crawl(new, DOOR)).reports] == ["D"]


async def test_rates_of_a_running_network(brokers: dict[str, BrokerProcess]) -> None:
    looks: list[dict[str, Any]] = []
    before = await crawl(brokers["A"].address, DOOR, statistics=True)
    async with connect(brokers["A"].address) as reader, connect(brokers["C"].address) as writer:
        prices = await reader.subscribe("price > 10")
        for _ in range(10):
            await writer.publish({"price": 12})
        for _ in range(10):
            await prices.get()
        now = await crawl(brokers["A"].address, DOOR, statistics=True)
    found = {row["broker"]: row for row in rates(before, now, 2.0)["brokers"]}
    assert {name: row["received_per_s"] for name, row in found.items()} == {"A": 5.0, "B": 5.0, "C": 5.0}
    assert found["A"]["delivered_per_s"] == 5.0
    assert found["B"]["forwarded_per_s"] == 5.0
    assert (found["B"]["links_up"], found["A"]["clients"]) == (2, 1)
    await watch(brokers["A"].address, DOOR, interval_s=0.1, count=1, line=looks.append)
    assert len(looks) == 1


def test_the_policy_for_a_better_tree_is_said_and_chosen() -> None:
    with running_broker("A", "--topology-policy", "ci") as broker:
        said = braid("overlay", "topology", "--broker", broker.address)
        assert said.returncode == 0, said.stderr
        assert said.stdout.startswith("A: ci, 0 exchanges")
        chosen = braid("overlay", "topology", "lmst", "--json", "--broker", broker.address)
        assert [each["policy"] for each in json.loads(chosen.stdout)] == ["lmst"]
        refused = braid("overlay", "topology", "best", "--broker", broker.address)
        assert refused.returncode == 2
        assert "one of static, lmst, lmit, ci, exact; 'best' is none" in refused.stdout + refused.stderr


def test_who_does_not_answer_is_shown() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        missing = f"braid://127.0.0.1:{nobody.getsockname()[1]}"
        with running_broker("A", "--neighbor", missing) as broker:
            shown = braid("overlay", "show", "--broker", broker.address)
    assert shown.returncode == 1
    assert f"{missing}: not reached yet" in shown.stdout


async def test_nobody_at_the_first_address() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        with pytest.raises(BraidError, match="could be reached"):
            await crawl(f"127.0.0.1:{nobody.getsockname()[1]}", Door(timeout_s=0.2))


# Strategies.


@pytest.fixture(scope="module")
def far_sighted() -> Iterator[dict[str, BrokerProcess]]:
    """A - B - C that see far, and D at the end that does not."""
    far = ("--strategy", "S2", "--delta", "3", "--fanout", "3")
    with (
        running_broker("A", *far) as a,
        running_broker("B", "--neighbor", a.address, *far) as b,
        running_broker("C", "--neighbor", b.address, *far) as c,
        running_broker("D", "--neighbor", c.address) as d,
    ):
        d.wait_for(r"\bready\b")
        yield {"A": a, "B": b, "C": c, "D": d}


async def test_a_strategy_is_changed_while_brokers_run(far_sighted: dict[str, BrokerProcess]) -> None:
    start = far_sighted["A"].address
    async with asyncio.timeout(30):
        while (await ask(start, "overlay", DOOR))["mesh"]["brokers_in_sight"] < 3:
            pass  # who is there is still being told
    (alone,) = await ask_for_strategy(start, DOOR, None, everywhere=False)
    assert strategy_text(alone) == "A: S2, 3 in sight (delta 3), no soft links"
    (changed,) = await ask_for_strategy(start, DOOR, "S1", everywhere=False)
    assert (changed.broker, changed.mesh["strategy"]) == ("A", "S1")
    everybody = await ask_for_strategy(start, DOOR, None, everywhere=True)
    assert [report.mesh["strategy"] for report in everybody] == ["S1", "S2", "S2", "S0"]
    with pytest.raises(RequestRefusedError, match="a strategy is one of S0, S1, S2, SH, SB; 'S9' is none"):
        await ask_for_strategy(start, DOOR, "S9", everywhere=False)


def test_the_command_for_strategies(far_sighted: dict[str, BrokerProcess]) -> None:
    start = far_sighted["B"].address
    changed = braid("overlay", "strategy", "SH", "--all", "--broker", start)
    assert changed.returncode == 1  # D sees no further than its neighbour
    lines = sorted(changed.stdout.splitlines())
    assert [line[:5] for line in lines[:3]] == ["A: SH", "B: SH", "C: SH"]
    assert lines[3] == "D: SH needs to see further than its neighbours: delta must be at least 2"
    asked = braid("overlay", "strategy", "--json", "-b", start)
    (answer,) = json.loads(asked.stdout)
    assert (asked.returncode, answer["broker"], answer["strategy"], answer["delta"]) == (0, "B", "SH", 3)
    refused = braid("overlay", "strategy", "S2", "-b", far_sighted["D"].address)
    assert (refused.returncode, refused.stdout) == (2, "")
    shown = braid("overlay", "show", "-b", start).stdout
    assert "SH, 3 in sight (delta 3), no soft links" in shown
    assert not any("in sight" in line for line in shown.splitlines() if "D braid" in line)


# Drawing, without a network.


def link(name: str, *, up: bool = True) -> dict[str, Any]:
    return {"neighbour": name, "address": f"braid://{name}:1", "up": up}


def network() -> Network:
    return Network(
        [
            Report("braid://A:1", "A", overlay={"links": [link("B", up=False)], "ready": True, "clients": 1}),
            Report("braid://B:1", "B", problem="it [slept]"),
        ]
    )


def test_a_tree_with_a_dead_broker(capsys: pytest.CaptureFixture[str]) -> None:
    print_tree(network())
    output = capsys.readouterr().out
    assert "A braid://A:1  1 client" in output
    assert "B braid://B:1 unreachable: it [slept] link down" in output
    assert "1 of 2 brokers reached" in output


def test_a_tree_says_why_a_broker_gives_no_credit_and_which_links_are_not_open(
    capsys: pytest.CaptureFixture[str],
) -> None:
    links = [{**link("B"), "stage": "syncing"}, {**link("C"), "stage": "open"}]
    overlay = {
        "links": links,
        "ready": True,
        "clients": 2,
        "withheld": {"draining": 2, "the store is behind": 1},
    }
    print_tree(Network([Report("braid://A:1", "A", overlay=overlay)]))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "A braid://A:1  2 clients gives no credit: draining, the store is behind"
    assert lines[1].endswith("B syncing")
    assert lines[2].endswith("C")


def test_a_graph_with_a_dead_broker() -> None:
    text = as_dot_text(network())
    assert '"B" [label="B\\nbraid://B:1", style="dashed"];' in text
    assert '"A" -- "B" [style="dashed"];' in text


def test_rates_after_a_restart_are_not_known() -> None:
    def look(incarnation: str, received: int) -> Network:
        counters = {"received": received, "forwarded": 0, "delivered": 0}
        numbers = {"links": 0, "links_up": 0, "clients": 0, "clients_behind": 0, "client_waiting_bytes": 0}
        statistics = {"counters": counters, "link_waiting_bytes": {}, "ready": True, **numbers}
        return Network([Report("a", "A", overlay={"incarnation": incarnation}, statistics=statistics)])

    assert rates(look("x", 1), look("x", 5), 2.0)["brokers"][0]["received_per_s"] == 2.0
    assert rates(look("x", 9), look("y", 5), 2.0)["brokers"][0]["received_per_s"] is None


def test_soft_links_are_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    mesh = {
        "strategy": "SH",
        "delta": 4,
        "brokers_in_sight": 9,
        "soft_links": ["C", "D"],
        "soft_links_from": [],
        "candidates": [],
        "saving_uplink": True,
    }
    overlay = {"links": [], "ready": True, "clients": 0, "mesh": mesh}
    drawn = Network([Report("braid://A:1", "A", overlay=overlay)])
    print_tree(drawn)
    text = "SH (saving its uplink), 9 in sight (delta 4), soft links to C, D"
    assert capsys.readouterr().out.splitlines()[0] == f"A braid://A:1  0 clients  {text}"
    assert '"A" -- "D" [dir=forward, color=gray, constraint=false];' in as_dot_text(drawn)
    assert strategy_text(drawn.reports[0]) == f"A: {text}"
    assert strategy_text(Report("braid://B:1", problem="it slept")) == "braid://B:1: it slept"
    assert strategy_text(Report("braid://B:1", "B")) == "B: says nothing about its strategy"


def test_a_table_shows_something_at_once_and_cuts_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first pause there is a table; at 80 columns a long name takes more lines."""
    import io

    from rich.console import Console

    from braid.cli import overlay_views

    name = "a-broker-with-a-name-that-is-longer-than-most-and-says-where-it-stands"
    statistics = {
        "counters": dict.fromkeys(("received", "forwarded", "delivered"), 0),
        "link_waiting_bytes": {},
        "client_waiting_bytes": 0,
        "links": 0,
        "links_up": 0,
        "clients": 0,
        "clients_behind": 0,
        "ready": True,
    }
    network = Network(
        [Report("braid://127.0.0.1:1", name, overlay={"incarnation": "1"}, statistics=statistics)]
    )
    sink = io.StringIO()
    console = Console(file=sink, width=80, force_terminal=False)

    async def found(*_: object, **__: object) -> Network:
        return network

    class Ended(Exception):
        pass

    async def pause(_: float) -> None:
        raise Ended

    monkeypatch.setattr(overlay_views, "crawl", found)
    monkeypatch.setattr(overlay_views, "Console", lambda: console)
    monkeypatch.setattr(asyncio, "sleep", pause)
    with pytest.raises(Ended):
        asyncio.run(watch("127.0.0.1:1", DOOR, interval_s=1.0, count=None, line=None))
    lines = [line.replace("│", "|").split("|") for line in sink.getvalue().splitlines()]
    column = "".join(cells[1].strip() for cells in lines if len(cells) > 3)
    assert name in column
    assert "…" not in sink.getvalue()

"""Are plans carried out whatever happens meanwhile, and stopped only between two steps?

Here brokers are played by a tree that answers as they do, with answers that are lost, refusals that pass, and
networks that are changed by others. `test_overlay_changes.py` does the same with real brokers.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from braid.cli import overlay_live
from braid.cli.app import app
from braid.cli.connection_options import Door
from braid.cli.overlay_apply import Noticeboard, carry_out, read_progress, require_goal, wish
from braid.cli.overlay_crawl import Link, Network, Report
from braid.cli.overlay_live import LiveNetwork, tree_of
from braid.errors import (
    BraidError,
    ConfigurationError,
    ConnectionLostError,
    NetworkError,
    RequestRefusedError,
)
from braid.reconfiguration import (
    Append,
    Detach,
    OverlayTree,
    Plan,
    PlanRun,
    RunState,
    Shift,
    WrittenPlan,
    decode_plan,
    decode_tree,
    encode_plan,
    encode_tree,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LINE = OverlayTree([("A", "B"), ("B", "C"), ("C", "D")])
STEPS = Plan(LINE, [Shift("A", "B", "C"), Shift("D", "C", "B"), Shift("A", "C", "B")])
DOOR = Door(timeout_s=1.0)


class Played:
    """A network that answers as one of brokers would."""

    def __init__(self, tree: OverlayTree, alone: tuple[str, ...] = ()) -> None:
        self.tree = tree
        self.alone = set(alone)
        self.asked: list[str] = []
        self.down: set[str] = set()
        """Brokers whose links are down."""
        self.before: list[Callable[[], None]] = []
        """Called before a step is done, one per step that is asked for; whatever they raise is the answer."""
        self.after: list[Callable[[], None]] = []

    def links(self, name: str) -> list[dict[str, Any]]:
        if name in self.alone:
            return []
        return [
            {"neighbour": other, "up": not {name, other} & self.down, "address": f"at-{other}"}
            for other in self.tree.neighbours(name)
        ]

    def _do(self, step: Shift | Append | Detach) -> None:
        self.asked.append(str(step))
        if self.before:
            self.before.pop(0)()
        self.tree = step.apply(self.tree)
        if self.after:
            self.after.pop(0)()

    async def ask(self, address: str, topic: str, door: Door, **arguments: str) -> dict[str, Any]:
        name = address.removeprefix("at-")
        if topic == "overlay":
            return {"broker": name, "links": self.links(name)}
        if topic == "detach":
            self._do(Detach(name, self.tree.neighbours(name)[0]))
            self.alone.add(name)
        elif arguments["operation"] == "delta":
            moving, *path = arguments["path"].split(",")
            assert (topic, moving) == ("reconfigure", name)
            for before, after in pairwise(path):  # each of which must be possible
                self.tree = Shift(name, before, after).apply(self.tree)
            self.asked.append(f"delta-move of {arguments['path']}")
        else:
            assert (topic, arguments["operation"], arguments["moving"]) == ("reconfigure", "shift", name)
            assert arguments["id"]
            self._do(Shift(name, arguments["old"], arguments["new"]))
        return {}

    async def append_broker(self, address: str, to: str, door: Door) -> Link:
        name, neighbour = address.removeprefix("at-"), to.removeprefix("at-")
        self.alone.discard(name)
        self._do(Append(name, neighbour))
        return Link(name, neighbour)

    async def crawl(self, start: str, door: Door) -> Network:
        return Network(
            [
                Report(f"at-{name}", name, overlay={"broker": name, "links": self.links(name)})
                for name in self.tree.brokers
            ]
        )


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    network = Played(LINE)
    for name in ("ask", "append_broker", "crawl"):
        monkeypatch.setattr(overlay_live, name, getattr(network, name))
    monkeypatch.setattr(overlay_live, "LOOK_S", 0.001)
    monkeypatch.setattr(overlay_live, "LOOK_S_MAX", 0.002)
    return network


def failing(error: BraidError) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def nothing() -> None:
    pass


async def live_at(played: Played, **options: Any) -> LiveNetwork:
    live = LiveNetwork("at-A", DOOR, **{"step_s_max": 5.0, **options})
    await live.tree()
    return live


# One step.


@pytest.mark.parametrize(
    "trouble",
    [
        [ConnectionLostError("the connection broke")],
        [RequestRefusedError("another operation is under way", "busy")] * 3,
        [ConnectionLostError("the broker restarts"), RequestRefusedError("its link is down", "down")],
    ],
)
async def test_a_step_that_was_not_done_is_asked_for_again(played: Played, trouble: list[BraidError]) -> None:
    played.before = [failing(each) for each in trouble]
    live = await live_at(played)
    await live.do(Shift("A", "B", "C"))
    assert played.tree.has_link("A", "C")
    assert len(played.asked) == len(trouble) + 1


async def test_a_step_whose_answer_was_lost_is_not_done_twice(played: Played) -> None:
    played.after = [failing(ConnectionLostError("the answer was lost"))]
    live = await live_at(played)
    await live.do(Shift("A", "B", "C"))
    assert played.asked == ["SHIFT(A, B, C)"]


async def test_a_refusal_for_good_is_not_repeated(played: Played) -> None:
    played.before = [failing(RequestRefusedError("A may not operate", "denied"))]
    live = await live_at(played)
    with pytest.raises(RequestRefusedError, match="may not operate"):
        await live.do(Shift("A", "B", "C"))
    assert len(played.asked) == 1


async def test_a_step_that_never_succeeds_ends_with_the_last_problem(played: Played) -> None:
    played.before = [failing(RequestRefusedError("still busy", "busy"))] * 1000
    live = await live_at(played, step_s_max=0.2)
    with pytest.raises(RequestRefusedError, match="still busy"):
        await live.do(Shift("A", "B", "C"))
    assert 1 < len(played.asked) < 1000


async def test_links_that_do_not_come_up_leave_the_step_open(played: Played) -> None:
    played.after = [lambda: played.down.add("A")]
    live = await live_at(played, step_s_max=0.1)
    with pytest.raises(NetworkError, match="not known whether it is done: the link between A and C is down"):
        await live.do(Shift("A", "B", "C"))


async def test_an_answer_that_is_not_true_is_noticed(played: Played) -> None:
    """Planted: a broker says that it has moved, and has not."""
    start = played.tree

    def take_back() -> None:
        played.tree = start

    played.after = [take_back] * 1000
    live = await live_at(played, step_s_max=0.1)
    with pytest.raises(NetworkError, match="say that it is done, and show that it is not"):
        await live.do(Shift("A", "B", "C"))


async def test_brokers_come_with_an_address_and_go(played: Played) -> None:
    played.alone.add("E")
    live = await live_at(played, addresses={"E": "at-E"})
    await live.do(Append("E", "D"))
    assert played.tree.has_link("E", "D")
    played.alone.discard("E")
    await live.do(Detach("A", "B"))
    assert "A" not in played.tree
    with pytest.raises(ConfigurationError, match=r"not known where 'X' listens: .*--address X=host:port"):
        await live.do(Append("X", "D"))


def test_a_network_that_is_not_whole_is_no_tree() -> None:
    def report(name: str, *links: str, up: bool = True, problem: str = "") -> Report:
        overlay = {"links": [{"neighbour": each, "up": up} for each in links]}
        return Report(f"at-{name}", name, problem, overlay)

    with pytest.raises(NetworkError, match="B does not answer: refused"):
        tree_of(Network([report("A", "B"), report("B", problem="refused")]))
    with pytest.raises(NetworkError, match="the link from A to B is down"):
        tree_of(Network([report("A", "B", up=False), report("B", "A")]))
    with pytest.raises(NetworkError, match="A has a link to B, which knows nothing of it"):
        tree_of(Network([report("A", "B"), report("B")]))
    assert tree_of(Network([report("A")])) == OverlayTree([], ["A"])


# Whole plans.


async def test_a_plan_is_carried_out_and_shown(played: Played, tmp_path: Path) -> None:
    shown: list[str] = []
    live = await live_at(played)
    board = Noticeboard(tmp_path / "plan.json")
    run = PlanRun(STEPS, await live.tree())
    with board.held():
        assert await carry_out(run, live, shown.append, board) is RunState.FINISHED
    await require_goal(run, live)
    assert played.tree == STEPS.goal
    assert shown == ["1 of 3: SHIFT(A, B, C)", "2 of 3: SHIFT(D, C, B)", "3 of 3: SHIFT(A, C, B)"]
    progress = read_progress(tmp_path / "plan.json")
    assert (progress["state"], progress["done"], progress["steps"], progress["pid"]) == (
        "finished",
        3,
        3,
        os.getpid(),
    )


async def test_pause_resume_and_stop_by_wishes(played: Played, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    shown: list[str] = []
    live = await live_at(played)
    board = Noticeboard(file)
    played.before = [lambda: board.ask("pause"), nothing, nothing]
    run = PlanRun(STEPS, await live.tree())
    with board.held():
        task = asyncio.create_task(carry_out(run, live, shown.append, board))
        async with asyncio.timeout(20):
            while "paused after 1 of 3 steps" not in shown:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert len(played.asked) == 1
        assert read_progress(file)["state"] == "paused"
        played.before = [lambda: wish(file, "stop")]
        wish(file, "resume")
        assert await task is RunState.STOPPED
    assert played.tree == STEPS.trees[2]
    with pytest.raises(ConfigurationError, match="not carried out at the moment"):
        wish(file, "pause")
    with pytest.raises(ConfigurationError, match="pause, resume, stop, not 'dance'"):
        wish(file, "dance")


async def test_a_signal_stops_between_two_steps(played: Played) -> None:
    shown: list[str] = []
    live = await live_at(played)
    played.before = [lambda: os.kill(os.getpid(), signal.SIGINT)]
    run = PlanRun(STEPS, await live.tree())
    assert await carry_out(run, live, shown.append) is RunState.STOPPED
    assert 1 <= len(run.done) < 3
    assert played.tree == STEPS.trees[len(run.done)]
    assert "stopping after the steps that are under way" in shown


async def test_what_others_change_meanwhile_is_noticed_in_the_end(played: Played) -> None:
    live = await live_at(played)
    played.after = [nothing, nothing, lambda: played._do(Shift("C", "B", "D"))]
    run = PlanRun(STEPS, await live.tree())
    assert await carry_out(run, live, lambda _: None) is RunState.FINISHED
    with pytest.raises(ConfigurationError, match="the network has changed otherwise: "):
        await require_goal(run, live)


def test_only_one_process_carries_a_plan_out(tmp_path: Path) -> None:
    with (
        Noticeboard(tmp_path / "plan.json").held(),
        pytest.raises(ConfigurationError, match="another process"),
        Noticeboard(tmp_path / "plan.json").held(),
    ):
        pytest.fail("two at a time")


# The commands.


def braid(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["overlay", *arguments], catch_exceptions=True)


@pytest.fixture
def folder(played: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tree.json").write_bytes(encode_tree(STEPS.goal))
    (tmp_path / "plan.json").write_bytes(encode_plan(WrittenPlan(STEPS)))
    return tmp_path


def test_plan_shows_and_writes_the_steps(played: Played, folder: Path) -> None:
    result = braid("plan", "--to", "tree.json", "--out", "new.json")
    assert result.exit_code == 0, result.output
    found = decode_plan((folder / "new.json").read_bytes(), "new.json").plan
    assert (found.start, found.goal, found.shifts) == (LINE, STEPS.goal, 1)
    assert result.stdout.splitlines() == [
        "   1  SHIFT(D, C, B)  moves 1, 3 paths change",
        "1 steps, 1 of them SHIFTs (no plan has fewer)",
        "take part in a SHIFT: B 1, C 1, D 1",
        "no broker has more than 3 links on the way",
        "written to new.json; braid overlay apply new.json carries it out",
    ]
    document = json.loads(braid("plan", "--to", "tree.json", "--json").stdout)
    assert (document["shifts"], document["shortest"]) == (1, True)
    assert played.asked == []


def test_apply_refuses_another_start_goes_on_and_undoes(played: Played, folder: Path) -> None:
    played.tree = STEPS.trees[1]
    refused = braid("apply", "plan.json")
    assert isinstance(refused.exception, ConfigurationError)
    assert "not where the plan starts" in str(refused.exception)
    assert played.asked == []
    assert braid("apply", "plan.json", "--continue").exit_code == 0
    assert played.tree == STEPS.goal
    assert len(played.asked) == 2
    assert braid("progress", "plan.json").stdout == "finished: 3 of 3 steps are done\n"
    assert braid("apply", "plan.json", "--undo", "--parallel", "3").exit_code == 0
    assert played.tree == LINE


def test_a_step_that_fails_leaves_a_tree_and_says_how_to_go_on(played: Played, folder: Path) -> None:
    played.before = [nothing, failing(RequestRefusedError("B has too many links", "denied"))]
    failed = braid("apply", "plan.json")
    assert failed.exit_code == 1
    assert "step 2, SHIFT(D, C, B): B has too many links" in failed.stderr
    assert "braid overlay apply plan.json --continue" in failed.stderr
    assert "failed: 1 of 3 steps are done; step 2" in braid("progress", "plan.json").stdout
    assert played.tree == STEPS.trees[1]


def test_shift_move_and_drain_by_hand(played: Played, folder: Path) -> None:
    assert braid("shift", "A", "--from", "B", "--to", "C").exit_code == 0
    assert played.tree.neighbours("A") == ("C",)
    assert braid("move", "A", "--from", "C", "--to", "B").exit_code == 0
    assert played.tree == LINE
    refused = braid("move", "B", "--from", "C", "--to", "A")
    assert "hangs on 'B' itself" in str(refused.exception)
    drained = braid("drain", "B")
    assert drained.exit_code == 0, drained.output
    assert played.tree.neighbours("B") == ("A",)
    assert "braid overlay apply drain-B.json --undo" in drained.stdout
    assert "can be stopped as it is" in braid("drain", "B").stdout
    assert braid("apply", "drain-B.json", "--undo").exit_code == 0
    assert played.tree == LINE


def test_a_broker_is_moved_at_once(played: Played) -> None:
    moved = braid("move", "A", "--from", "B", "--to", "D", "--by", "delta")
    assert moved.exit_code == 0, moved.output
    assert played.asked == ["delta-move of A,B,C,D"]
    assert played.tree.neighbours("A") == ("D",)
    assert (
        "A is linked to D already" in braid("move", "A", "--from", "D", "--to", "D", "--by", "delta").stdout
    )
    refused = braid("move", "C", "--from", "B", "--to", "A", "--by", "delta")
    assert "hangs on 'C' itself" in str(refused.exception)
    assert len(played.asked) == 1


def test_files_and_options_that_are_wrong(played: Played, folder: Path) -> None:
    (folder / "bad.json").write_text('{"links": [["A"]]}')
    for arguments, problem in [
        (("plan", "--to", "bad.json"), "bad.json is not a tree: "),
        (("plan", "--to", "none.json"), "none.json cannot be read: No such file"),
        (("plan", "--to", "tree.json", "--keep-near", "A,B"), "--keep-near needs"),
        (("apply", "tree.json"), "tree.json is not a plan"),
        (("apply", "plan.json", "--address", "E"), "--address needs"),
        (("progress", "tree.json"), "tree.json is not carried out, and was not"),
    ]:
        assert problem in str(braid(*arguments).exception), arguments


def test_show_prints_the_tree_for_the_planner(
    played: Played, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from braid.cli import overlay_crawl

    monkeypatch.setattr(overlay_crawl, "crawl", played.crawl)
    assert decode_tree(braid("show", "--tree").stdout_bytes, "it") == (LINE, {})

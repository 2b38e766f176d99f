"""Are links exchanged as brokers agree, and does whatever goes wrong leave a tree and every promise?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from braid.adaptation.topology import LinkExchange, TopologySettings
from tests.sim.shift_worlds import OPERATION_US_MAX, ShiftWorld, tree_of

if TYPE_CHECKING:
    from braid.broker.core import BrokerCore
    from braid.protocol.effects import Progress

# Nothing is proposed within a run: exchanges are asked for.
NEVER = TopologySettings(policy="ci", interval_us=3_600_000_000)
PATH = "IABJ"
LINKS = [("A", "I"), ("B", "A"), ("J", "B"), ("X", "I"), ("Y", "A"), ("Z", "J")]


class ExchangeWorld(ShiftWorld):
    """A world in which operators can have an exchange begun, at the last broker of its path."""

    def __init__(self, seed: int, *, directory: bool = False, **more: Any) -> None:
        super().__init__(seed, **{"topology": NEVER, **more})
        if directory:
            self.world.add_directory()
        for name in self.names:
            self._teach(name)
        self.phases: list[tuple[str, str, str]] = []
        """Which kind of change came to which phase, where."""
        self.world.on_progress = self._progressed

    def _teach(self, name: str) -> None:
        core: BrokerCore = self.world.machine(name)

        def begin(arguments: Any) -> str:
            path = tuple(arguments["path"])
            core._exchanges.begin(LinkExchange(path, int(arguments["removed"])))
            return core._exchanges.under_way

        core.answer("exchange", begin)

    def _progressed(self, at_us: int, name: str, progress: Progress) -> None:
        self.phases.append((progress.operation, name, progress.phase))

    def begin(self, path: str, removed: int) -> None:
        """Have an exchange begun, as if brokers had agreed on it."""
        self.operators[path[-1]].ask("exchange", path=path, removed=str(removed))

    def exchange(self, path: str, removed: int) -> None:
        """The same, and wait until it is over everywhere."""
        self.begin(path, removed)
        self.world.run_for(us=50_000)
        self.wait(lambda: not self.taking_part())

    def taking_part(self) -> list[str]:
        """Brokers that take part in an exchange."""
        return [name for name in self.names if self.world.machine(name)._exchanges.active]

    def exchanged(self, path: str, removed: int) -> Any:
        """The tree that has to come of it."""
        gone = {path[removed], path[removed + 1]}
        links = [link for link in self.tree.links if set(link) != gone]
        return type(self.tree)([*links, (path[0], path[-1])], self.names)

    def shifts(self) -> int:
        """How many SHIFTs were decided by the brokers that move."""
        return sum(kind == "shift" and phase == "flushed" for kind, _, phase in self.phases)

    def path_of(self, source: str, target: str) -> str:
        """The way between two brokers in the tree as it is."""
        return "".join(self.tree.path(source, target))


@pytest.mark.parametrize("directory", [False, True])
@pytest.mark.parametrize("removed", range(3))
def test_an_exchange_is_two_shifts_fewer_than_its_cycle_has_links(removed: int, directory: bool) -> None:
    run = ExchangeWorld(removed, links=LINKS, directory=directory, latency_us=1_000, until_us=4_500_000)
    run.populate()
    expected = run.exchanged(PATH, removed)
    run.exchange(PATH, removed)
    assert tree_of(run.world, run.names) == expected
    run.tree = expected
    # Each is flushed at all but the broker that moves, and there too.
    assert run.shifts() == 3 * (len(PATH) - 2)
    last: BrokerCore = run.world.machine(PATH[-1])
    assert (last._exchanges.done, last._exchanges.given_up) == (1, 0)
    run.world.run_until_quiet()
    run.require()


@pytest.mark.parametrize("seed", range(4))
def test_random_exchanges_of_random_trees_lose_double_and_reorder_nothing(seed: int) -> None:
    run = ExchangeWorld(seed, codec=seed == 0, until_us=8_000_000)
    run.populate()
    for _ in range(4):
        source, target = run.chance.sample(run.names, 2)
        path = run.path_of(source, target)
        if not 3 <= len(path) <= 6:
            continue
        removed = run.chance.randrange(len(path) - 1)
        run.tree = run.exchanged(path, removed)
        run.exchange(path, removed)
        assert tree_of(run.world, run.names) == run.tree
    run.world.run_until_quiet()
    run.require()


def test_of_two_exchanges_that_meet_one_gives_way() -> None:
    run = ExchangeWorld(3, links=LINKS, latency_us=20_000)
    run.populate()
    before = run.tree
    first, second = run.exchanged(PATH, 1), run.exchanged("XIAY", 1)
    run.begin(PATH, 1)
    run.begin("XIAY", 1)
    run.world.run_for(us=200_000)
    run.wait(lambda: not run.taking_part())
    run.tree = tree_of(run.world, run.names)
    assert run.tree in (before, first, second)
    counted = [run.world.machine(name)._exchanges for name in "JY"]
    assert sum(each.done for each in counted) == (run.tree != before)
    assert sum(each.done + each.given_up for each in counted) == 2
    run.world.run_until_quiet()
    run.require()


def test_what_was_agreed_on_for_a_tree_that_is_gone_is_dropped() -> None:
    run = ExchangeWorld(5, links=LINKS, latency_us=1_000)
    assert run.shift("Y", "A", "B")["outcome"] == "finished"
    before = run.tree
    # Y was beside A when that was agreed on.
    run.exchange("YAI", 1)
    run.exchange("YABJ", 1)
    # What is wrong may be further back on the path than its end: A - B - J is as it was.
    run.exchange("XYBJ", 1)
    assert tree_of(run.world, run.names) == before
    assert run.shifts() == 3
    run.world.run_until_quiet()
    run.require()


def test_who_takes_part_in_an_exchange_takes_part_in_nothing_else() -> None:
    run = ExchangeWorld(6, links=LINKS, latency_us=50_000)
    run.begin(PATH, 1)
    run.wait(lambda: "I" in run.taking_part())
    answer = run.shift("X", "I", "A")
    assert "takes part in exchange" in answer["refused"]
    run.tree = run.exchanged(PATH, 1)
    run.wait(lambda: not run.taking_part())
    assert run.shift("X", "I", "J")["outcome"] == "finished"
    run.world.run_until_quiet()
    run.require()


def test_a_broker_that_leaves_its_links_alone_is_left_alone() -> None:
    run = ExchangeWorld(7, links=LINKS, latency_us=1_000)
    request = run.operators["A"].ask("topology", policy="static")
    run.wait(lambda: request in run.operators["A"].answers)
    run.exchange(PATH, 1)
    assert tree_of(run.world, run.names) == run.tree
    assert run.shifts() == 0
    request = run.operators["A"].ask("topology", policy="ci")
    run.wait(lambda: request in run.operators["A"].answers)
    run.tree = run.exchanged(PATH, 1)
    run.exchange(PATH, 1)
    run.world.run_until_quiet()
    run.require()


FAULTS = [
    (kind, phase, where, fault, subject)
    for kind, phase, where in (
        ("exchange", "reserved", "B"),
        ("exchange", "reserved", "I"),
        ("exchange", "moving", "A"),
        ("shift", "committed", "A"),
        ("shift", "finished", "A"),
        ("exchange", "moving", "J"),
        ("shift", "committed", "J"),
        ("exchange", "over", "J"),
    )
    for fault, subjects in {"crash": "IABJ", "part": ("IA", "AB", "BJ", "AJ", "IJ")}.items()
    for subject in subjects
]
SOME = [case for case in FAULTS if case[3] == "crash" and case[4] in (case[2], "A")]


def _strike(run: ExchangeWorld, fault: str, subject: str) -> None:
    world = run.world
    if fault == "crash":
        world.crash(subject)
        world.at(world.now_us + 600_000, lambda: world.restart(subject))
    else:
        undo = world.partition(subject[0], subject[1])
        world.at(world.now_us + 3 * OPERATION_US_MAX, undo)


def _play(case: tuple[str, str, str, str, str], seed: int = 0) -> ExchangeWorld:
    """Something goes wrong amid an exchange; afterwards there is a tree, and nothing acknowledged is lost."""
    kind, phase, where, fault, subject = case
    run = ExchangeWorld(
        seed, links=LINKS, latency_us=1_000, until_us=4_200_000, period_us=(1_000, 4_000, 7_000)
    )
    struck: list[int] = []

    def progressed(at_us: int, name: str, progress: Progress) -> None:
        if not struck and (progress.operation, progress.phase, name) == (kind, phase, where):
            struck.append(at_us)
            run.world.at(at_us + 1, lambda: _strike(run, fault, subject))

    run.populate(acknowledged=True)
    run.world.on_progress = progressed
    run.begin(PATH, 1)
    run.world.run_for(seconds=40)
    run.world.run_until_quiet()
    assert struck, "nothing went wrong: the phase never came"
    assert not run.taking_part()
    before, after = run.tree, run.exchanged(PATH, 1)
    run.tree = tree_of(run.world, run.names)
    between = type(before)([("A", "I"), ("A", "J"), ("B", "J"), *LINKS[3:]])
    assert run.tree in (before, between, after)
    run.require()
    return run


@pytest.mark.parametrize("case", SOME, ids=" ".join)
def test_a_fault_amid_an_exchange_leaves_a_tree(case: tuple[str, str, str, str, str]) -> None:
    run = _play(case)
    # What came of it can be changed again.
    path = run.path_of("X", "Z")
    run.tree = run.exchanged(path, 1)
    run.exchange(path, 1)
    run.world.run_until_quiet()
    run.require()


@pytest.mark.soak
@pytest.mark.parametrize(
    "case", [case for case in FAULTS if case not in SOME and case[3:] != ("part", "IJ")][::3], ids=" ".join
)
def test_any_fault_amid_an_exchange_leaves_a_tree(case: tuple[str, str, str, str, str]) -> None:
    _play(case)

"""Locks with leases in virtual time: who has them, and what faults between host and directory do to that."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.errors import ConfigurationError
from braid.protocol.effects import Lock, Neighbours, Unlock
from braid.protocol.inputs import Drain, Locked, LockLost, LockRefused
from braid.sim import World
from braid.sim.directory import LockDirectory
from braid.sim.lock_table import Claim, LockTable
from tests.sim.toys import Toy

SECOND = 1_000_000


class Lockers:
    """Machines that want locks, and a directory."""

    def __init__(self, names: str = "ab", *, directory: bool = True, seed: int = 1) -> None:
        self.world = World(seed)
        if directory:
            self.world.add_directory(lease_us=4 * SECOND)
        self.toys: dict[str, Toy] = {}
        for name in names:
            self.world.add(name, lambda birth, name=name: self.toys.setdefault(name, Toy()))  # type: ignore[misc]

    def lock(self, name: str, token: int, brokers: str, wait_us_max: int = 10 * SECOND) -> None:
        self.order(name, Lock(token, tuple(brokers), wait_us_max))

    def unlock(self, name: str, token: int) -> None:
        self.order(name, Unlock(token))

    def order(self, name: str, effect: Lock | Unlock | Neighbours) -> None:
        self.toys[name].orders.append(effect)
        self.world.host(name).report(Drain())

    def heard(self, name: str) -> list[object]:
        return [
            each for _, each in self.toys[name].happened if isinstance(each, Locked | LockRefused | LockLost)
        ]

    def kinds(self, name: str) -> list[str]:
        return [type(each).__name__ for each in self.heard(name)]

    def run(self, seconds: float) -> None:
        self.world.run_for(seconds=seconds)


def test_locks_are_had_all_at_once_sorted_and_with_an_epoch() -> None:
    all_ = Lockers()
    all_.lock("a", 1, "ZXYX")
    all_.run(1)
    assert all_.heard("a") == [Locked(1, ("X", "Y", "Z"), 1)]


def test_whoever_comes_second_waits_and_gets_a_larger_epoch() -> None:
    all_ = Lockers()
    all_.lock("a", 1, "XY")
    all_.run(1)
    all_.lock("b", 7, "YZ")
    all_.run(1)
    assert all_.heard("b") == []
    all_.unlock("a", 1)
    all_.run(0.1)
    assert all_.heard("b") == [Locked(7, ("Y", "Z"), 2)]
    assert all_.world.directory is not None
    assert [all_.world.directory.holder(each) for each in "XYZ"] == [None, "b", "b"]


def test_waiting_is_bounded_and_leaves_nothing_behind() -> None:
    all_ = Lockers("abc")
    all_.lock("a", 1, "Y")
    all_.run(0.1)
    all_.lock("b", 2, "XY", wait_us_max=SECOND)  # it has X while it waits for Y
    all_.run(0.5)
    assert all_.world.directory is not None
    assert all_.world.directory.holder("X") == "b"
    all_.run(1)
    assert all_.heard("b") == [LockRefused(2, "no locks on X, Y after 1 s")]
    all_.lock("c", 3, "X")
    all_.run(0.1)
    assert all_.kinds("c") == ["Locked"]


def test_a_wish_is_taken_back_before_it_is_granted() -> None:
    all_ = Lockers()
    all_.lock("a", 1, "X")
    all_.run(0.1)
    all_.lock("b", 2, "X")
    all_.run(0.1)
    all_.unlock("b", 2)
    all_.unlock("a", 1)
    all_.run(20)
    assert all_.kinds("b") == []
    assert all_.world.directory is not None
    assert all_.world.directory.holder("X") is None


def test_locks_last_as_long_as_they_are_renewed() -> None:
    all_ = Lockers()
    all_.lock("a", 1, "X")
    all_.run(60)
    assert all_.kinds("a") == ["Locked"]
    assert all_.world.directory is not None
    assert all_.world.directory.holder("X") == "a"


@pytest.mark.parametrize("fault", ["partition", "hold", "hole"])
def test_whoever_is_cut_off_lets_go_before_others_get_it(fault: str) -> None:
    all_ = Lockers()
    all_.lock("a", 1, "X")
    all_.run(1)
    all_.lock("b", 2, "X", wait_us_max=30 * SECOND)
    end = getattr(all_.world, fault)("a", "directory")
    all_.run(10)
    lost_us, lost = all_.toys["a"].happened[-1]
    got_us, got = all_.toys["b"].happened[-1]
    assert isinstance(lost, LockLost)
    assert "renewed for 4 s" in lost.reason
    assert isinstance(got, Locked)
    assert got.epoch == 2
    assert lost_us < got_us
    end()
    all_.run(10)
    assert all_.kinds("a") == ["Locked", "LockLost"]


def test_a_short_cut_costs_nothing() -> None:
    all_ = Lockers()
    all_.lock("a", 1, "X")
    all_.run(1)
    with all_.world.partition("a", "directory"):
        all_.run(1.5)
    all_.run(20)
    assert all_.kinds("a") == ["Locked"]


def test_a_wish_that_was_lost_on_its_way_is_said_again() -> None:
    all_ = Lockers()
    with all_.world.partition("a", "directory"):
        all_.lock("a", 1, "X")
        all_.run(0.5)
    all_.run(2)
    assert all_.kinds("a") == ["Locked"]


def test_the_locks_of_the_dead_go_with_their_lease() -> None:
    all_ = Lockers()
    all_.lock("a", 1, "X")
    all_.run(1)
    all_.world.crash("a")
    all_.lock("b", 2, "X", wait_us_max=30 * SECOND)
    all_.run(2)
    assert all_.kinds("b") == []
    all_.run(3)
    assert all_.kinds("b") == ["Locked"]


def test_a_session_that_the_directory_ends_loses_its_locks() -> None:
    all_ = Lockers()
    all_.lock("a", 1, "X")
    all_.run(1)
    assert all_.world.expire("a") == 1
    all_.lock("b", 2, "X")
    all_.run(2)
    assert all_.kinds("a") == ["Locked", "LockLost"]
    assert all_.kinds("b") == ["Locked"]


def test_a_frozen_holder_notices_too_late_and_its_epoch_tells() -> None:
    all_ = Lockers()
    all_.lock("a", 1, "X")
    all_.run(1)
    all_.world.freeze("a", 20 * SECOND)
    all_.lock("b", 2, "X", wait_us_max=30 * SECOND)
    all_.run(10)
    assert all_.kinds("a") == ["Locked"]
    old, new = all_.heard("a")[0], all_.heard("b")[0]
    assert isinstance(old, Locked)
    assert isinstance(new, Locked)
    assert new.epoch > old.epoch
    all_.run(15)
    assert all_.kinds("a") == ["Locked", "LockLost"]


def test_a_delay_longer_than_the_lease_never_gives_a_lock() -> None:
    all_ = Lockers()
    all_.world.delay("a", "directory", 5 * SECOND)
    all_.lock("a", 1, "X", wait_us_max=30 * SECOND)
    all_.run(60)
    assert all_.kinds("a") == ["LockRefused"]


def test_without_a_directory_there_are_no_locks() -> None:
    all_ = Lockers(directory=False)
    all_.lock("a", 1, "X")
    all_.run(1)
    [refusal] = all_.heard("a")
    assert isinstance(refusal, LockRefused)
    assert not refusal.temporary
    with pytest.raises(ConfigurationError, match="no directory"):
        all_.world.expire("a")


def test_neighbours_are_remembered_also_when_the_directory_could_not_be_told_at_once() -> None:
    all_ = Lockers()
    all_.order("a", Neighbours(("b",)))
    all_.run(1)
    assert all_.world.directory is not None
    assert all_.world.directory.neighbours == {"a": ("b",)}
    with all_.world.partition("a", "directory"):
        all_.order("a", Neighbours(("b", "c")))
        all_.run(1)
        assert all_.world.directory.neighbours == {"a": ("b",)}
    all_.run(5)
    assert all_.world.directory.neighbours == {"a": ("b", "c")}


@pytest.mark.parametrize("seed", range(12))
def test_no_two_believe_in_one_lock_whatever_happens_to_the_directory(seed: int) -> None:
    """Between `Locked` and `Unlock` or `LockLost` nobody else has it.

    Frozen hosts are left out: for them there are epochs, which rise with every hold.
    """
    all_ = random_wishes(seed)
    epochs = [each.epoch for name in all_.toys for each in all_.heard(name) if isinstance(each, Locked)]
    assert len(epochs) > 20
    assert len(set(epochs)) == len(epochs)


def test_a_directory_that_breaks_its_word_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: it gives locks away before the lease that it granted has run out."""
    usual = LockDirectory._hear

    def hasty(self: LockDirectory, said: Any) -> None:
        usual(self, said)
        session = self._sessions[said[0].host.name, said[0].life]
        session.expires_at_us = self.loop.now_us + self.lease_us // 2
        self.loop.schedule(session.expires_at_us, self._look_at_session, (said[0].host.name, said[0].life))

    monkeypatch.setattr(LockDirectory, "_hear", hasty)
    with pytest.raises(AssertionError, match=r"[U-Z] at [a-d] and [a-d]"):
        random_wishes(1)


def random_wishes(seed: int) -> Lockers:
    """Random wishes under random faults, watched all the time."""
    chance = Random(seed)
    all_ = Lockers("abcd", seed=seed)
    wishes: list[tuple[str, int]] = []
    for token in range(1, 300):
        name = chance.choice("abcd")
        act = chance.random()
        if act < 0.4:
            brokers = "".join(chance.sample("UVWXYZ", chance.randint(1, 3)))
            all_.lock(name, token, brokers, chance.choice([SECOND, 5 * SECOND]))
            wishes.append((name, token))
        elif act < 0.75 and wishes:
            all_.unlock(*wishes.pop(chance.randrange(len(wishes))))
        elif act < 0.85:
            all_.world.partition(name, "directory")
        elif act < 0.95:
            all_.world.repair()
            for each in "abcd":
                all_.world.delay(each, "directory", 0)
        else:
            all_.world.delay(name, "directory", chance.choice([0, 100_000, 3 * SECOND]))
        all_.run(chance.random() * 2)
        _nobody_shares(all_)
    return all_


def _nobody_shares(all_: Lockers) -> None:
    """Hold what every host believes against what all others do."""
    believed: dict[str, str] = {}
    for name, toy in all_.toys.items():
        mine: dict[int, tuple[str, ...]] = {}
        for _, each in toy.happened:
            if isinstance(each, Locked):
                mine[each.token] = each.brokers
            elif isinstance(each, LockLost):
                mine.pop(each.token)
        for token in toy.unlocked:
            mine.pop(token, None)
        for brokers in mine.values():
            for broker in brokers:
                assert believed.setdefault(broker, name) == name, f"{broker} at {name} and {believed[broker]}"


@given(st.lists(st.tuples(st.booleans(), st.sets(st.sampled_from("UVWXYZ"), min_size=1, max_size=4))))
def test_claims_are_complete_in_the_end_and_never_share(wishes: list[tuple[bool, set[str]]]) -> None:
    """The table alone: every claim that nobody leaves is completed once those before it have left."""
    table = LockTable()
    complete: list[Claim] = []
    waiting: list[Claim] = []
    for number, (leave, names) in enumerate(wishes):
        if leave and complete:
            got = table.leave(complete.pop(0))
        else:
            waiting.append(claim := Claim("somebody", number, names))
            got = table.enter(claim)
        complete += got
        waiting = [each for each in waiting if each not in got]
        held = [name for each in complete for name in each.names]
        assert len(held) == len(set(held))
    for _ in range(len(complete) + len(waiting)):
        got = table.leave(complete.pop(0))
        complete += got
        waiting = [each for each in waiting if each not in got]
    assert not waiting
    assert not complete

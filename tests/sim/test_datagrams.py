"""Datagrams take their time, are lost for good, and runs repeat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from braid.errors import ConfigurationError
from braid.protocol.codec import Vocabulary
from braid.protocol.effects import Drained, Effect, Note, SendTo
from braid.protocol.inputs import Drain, Heard, Tick
from braid.sim.datagrams import DatagramWorld
from braid.sim.topologies.transit_stub import NumberedPlacement, Placement, TransitStub

if TYPE_CHECKING:
    from braid.protocol.inputs import Input


class Say(msgspec.Struct, array_like=True, tag=1, frozen=True):
    number: int


class Answer(msgspec.Struct, array_like=True, tag=2, frozen=True):
    number: int


class Talker:
    """Says a number to another machine every 10 ms, so many times; answers what it hears."""

    def __init__(self, other: str = "", count: int = 0) -> None:
        self.other, self.left = other, count
        self.due_us: int | None = 0 if count else None
        self.heard: list[tuple[int, str, Any]] = []

    def handle(self, stimulus: Input, now_us: int) -> list[Effect]:
        if isinstance(stimulus, Tick):
            self.left -= 1
            self.due_us = now_us + 10_000 if self.left else None
            return [SendTo(self.other, [Say(self.left)])]
        if isinstance(stimulus, Drain):
            return [SendTo(self.other, [Say(-1)]), Drained()]
        assert isinstance(stimulus, Heard)
        self.heard += [(now_us, stimulus.sender, each) for each in stimulus.messages]
        said = [each for each in stimulus.messages if isinstance(each, Say)]
        return [SendTo(stimulus.sender, [Answer(each.number) for each in said])] if said else []

    def next_deadline_us(self) -> int | None:
        return self.due_us


def world_of(count: int = 100, **options: Any) -> tuple[DatagramWorld, Talker, Talker]:
    world = DatagramWorld(5, lambda source, target: 25_000 if source < target else 31_500, **options)
    left, right = Talker("right", count), Talker()
    world.add("left", left)
    world.add("right", right)
    return world, left, right


def test_a_datagram_takes_the_latency_of_its_direction_rounded_up() -> None:
    world, left, right = world_of(2)
    world.run_for(1)
    assert [at_us for at_us, _, _ in right.heard] == [25_000, 35_000]
    assert left.heard == [(57_000, "right", Answer(1)), (67_000, "right", Answer(0))]
    assert (world.datagrams, world.lost, world.messages) == (4, 0, {Say: 2, Answer: 2})


def test_what_is_lost_never_comes_and_about_as_much_is_lost_as_asked_for() -> None:
    world, left, right = world_of(10_000, loss=0.1)
    world.run_for(200)
    assert len(right.heard) + len(left.heard) == world.datagrams - world.lost
    assert 8_800 < len(right.heard) < 9_200
    assert 0.8 < len(left.heard) / 9_000 < 1.0


def test_the_same_seed_gives_the_same_run_and_encoding_changes_nothing() -> None:
    runs = []
    for vocabulary in (None, None, Vocabulary(Say | Answer, (msgspec.Struct,))):
        world, left, right = world_of(500, loss=0.2, vocabulary=vocabulary)
        world.run_for(20)
        runs.append((left.heard, right.heard, world.messages))
    assert runs[0] == runs[1] == runs[2]


def test_crashes_cuts_goodbyes_and_second_lives() -> None:
    world, _, right = world_of(30)
    world.count_by_machine()
    world.cut = lambda source, target: world.now_us < 100_000
    world.run_until(150_000)
    assert [each.number for _, _, each in right.heard] == [19, 18, 17]
    world.crash(["right"])
    with pytest.raises(ConfigurationError, match="'right' is not running"):
        world.call("right", lambda machine, now_us: [])
    world.run_until(200_000)
    world.add("right", second := Talker())
    with pytest.raises(ConfigurationError, match="a machine 'right' already"):
        world.add("right", Talker())
    world.run_for(1)
    assert second.heard[0][2].number < 15
    world.leave("left")
    world.run_for(1)
    assert second.heard[-1][2] == Say(-1)
    assert world.sent is not None
    assert world.sent[0][Say] == 31


def test_effects_that_are_no_datagrams_are_told() -> None:
    told: list[tuple[str, Effect]] = []
    world = DatagramWorld(
        1, lambda source, target: 1, on_effect=lambda name, effect: told.append((name, effect))
    )
    world.add("a", Talker())
    world.call("a", lambda machine, now_us: [Note("info", "hello"), SendTo("nobody", [Say(1)])])
    assert told == [("a", Note("info", "hello"))]
    assert world.lost == 1


@pytest.mark.parametrize("options", [{"loss": 1.5}, {"loss": -1}, {"resolution_us": 0}])
def test_worlds_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        DatagramWorld(1, lambda source, target: 1, **options)


def test_numbered_placements_have_the_latencies_of_named_ones() -> None:
    network = TransitStub.generate()
    numbered = NumberedPlacement(network, 300, seed=4)
    named = Placement(network, {str(each): int(router) for each, router in enumerate(numbered.routers)})
    together = 0
    for source in range(0, 300, 7):
        targets = [target for target in range(300) if target != source]
        found = [numbered.latency_us(source, target) for target in targets]
        assert found == [named.latency_us(str(source), str(target)) for target in targets]
        for target, latency_us in zip(targets, found, strict=True):
            many = numbered.latencies_us(np.int64(source), np.int64(target))  # type: ignore[arg-type]
            together += int(many) != latency_us
    assert together < 60  # only those who share a stub

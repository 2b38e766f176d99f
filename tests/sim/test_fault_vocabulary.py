"""Does each fault do what its name says?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from braid.errors import ConfigurationError
from braid.protocol.inputs import Closed, Drain, Opened
from braid.sim import LinkModel, World
from tests.sim.toys import Toy, publication

if TYPE_CHECKING:
    from collections.abc import Callable


class Two:
    """Two toys that are connected."""

    def __init__(self) -> None:
        self.world = World(1, link=LinkModel(1000))
        self.left, self.right = Toy(), Toy("left")
        self.world.add("left", lambda birth: self.left)
        self.world.add("right", lambda birth: self.right)
        self.world.run_until(1_000_000)
        self.sent = 0

    def send(self, count: int = 1) -> None:
        """From right to left."""
        for _ in range(count):
            self.sent += 1
            self.right.send(publication(self.sent))
        self.world.host("right").report(Drain())

    def run(self, us: int = 100_000) -> None:
        self.world.run_for(us=us)


@pytest.fixture
def two() -> Two:
    return Two()


@pytest.mark.parametrize("verb", ["partition", "hold"])
def test_nothing_crosses_until_it_is_over_and_then_everything_does(two: Two, verb: str) -> None:
    begin: Callable[..., object] = getattr(two.world, verb)
    begin("left", "right")
    two.send(2)
    two.run()
    assert two.left.numbers() == []
    assert two.left.closed() == []
    two.world.repair("left", "right")
    two.world.release("left", "right")
    two.send()
    two.run()
    assert two.left.numbers() == [1, 2, 3]


def test_what_falls_into_a_hole_comes_out_when_it_is_mended_and_the_other_way_is_open(two: Two) -> None:
    mend = two.world.hole("right", "left")
    two.send(2)
    two.left.send(publication(7))
    two.world.host("left").report(Drain())
    two.run()
    assert two.left.numbers() == []
    assert two.right.numbers() == [7]
    mend()
    two.send()
    two.run()
    assert two.left.numbers() == [1, 2, 3]


def test_nobody_connects_through_a_hole(two: Two) -> None:
    mend = two.world.hole("right", "left")
    two.world.lose("right", "left")
    two.run(10_000_000)
    assert not two.world.pipes_between("right", "left")
    mend()


def test_who_dials_hears_that_a_connection_broke_before_it_was_made() -> None:
    world = World(1, link=LinkModel(10_000))
    left, right = Toy(), Toy("left")
    world.add("left", lambda birth: left)
    world.add("right", lambda birth: right)
    world.run_until(15_000)  # it is there at one end
    assert world.lose("right", "left") == 1
    world.run_until(100_000)
    assert "broke while it was made" in right.closed()[-1][1]


def test_a_frozen_machine_does_everything_later_and_in_order(two: Two) -> None:
    two.world.freeze("left", 500_000)
    two.send(2)
    two.run()
    two.send()
    two.run()
    assert two.left.numbers() == []
    assert two.left.closed() == []
    two.run(400_000)
    assert two.left.numbers() == [1, 2, 3]


def test_a_machine_that_is_killed_while_it_is_frozen_starts_anew(two: Two) -> None:
    two.world.freeze("left", 500_000)
    two.send()
    two.run()
    two.world.restart("left")
    two.run(1_000_000)
    assert two.left.numbers() == []


def test_a_partition_lasts_as_long_as_its_block_and_may_be_between_groups(two: Two) -> None:
    other = Toy()
    two.world.add("other", lambda birth: other)
    with two.world.partition(["left", "other"], ["right"]):
        two.send()
        two.run()
        assert two.left.numbers() == []
    two.run()
    assert two.left.numbers() == [1]


def test_partitions_add_up(two: Two) -> None:
    first = two.world.partition("left", "right")
    second = two.world.partition("left", "right")
    first()
    two.send()
    two.run()
    assert two.left.numbers() == []
    second()
    two.run()
    assert two.left.numbers() == [1]


def test_an_end_that_gives_up_during_a_partition_is_heard_of_after_it(two: Two) -> None:
    with two.world.partition("left", "right"):
        two.right.close("it takes too long")
        two.world.host("right").report(Drain())
        two.run()
        assert [reason for _, reason in two.right.closed()] == ["it takes too long"]
        assert two.left.closed() == []
    two.run()
    assert [reason for _, reason in two.left.closed()] == ["it takes too long"]


def test_attempts_to_connect_fail_in_a_partition_and_wait_in_a_hold() -> None:
    for verb, expected in (("partition", [(5_001_000, Closed)]), ("hold", [(8_001_000, Opened)])):
        world = World(1, link=LinkModel(1000))
        left, right = Toy(), Toy("left")
        world.add("left", lambda birth, left=left: left)
        world.add("right", lambda birth, right=right: right, at_us=1)
        world.at(0, lambda world=world, verb=verb: getattr(world, verb)("left", "right"))
        world.at(8_000_000, lambda world=world: world.release("left", "right"))
        world.run_until(20_000_000)
        assert [(at_us - at_us % 1000, type(each)) for at_us, each in right.happened] == expected


def test_a_crash_is_heard_of_and_ends_everything(two: Two) -> None:
    two.send()
    two.world.crash("right")
    two.run()
    assert two.left.numbers() == [1], "what was under way still arrives"
    assert two.left.closed() == [(1_001_000, "right has crashed")]
    before = len(two.right.happened)
    two.run()
    assert len(two.right.happened) == before


def test_nobody_hears_of_a_silent_crash_until_the_restart(two: Two) -> None:
    two.world.crash("right", silent=True)
    two.run()
    assert two.left.closed() == []
    two.world.restart("right")
    two.run()
    assert [reason for _, reason in two.left.closed()] == ["right knows nothing of this connection"]


def test_lost_frames_vanish_and_then_the_connection_breaks(two: Two) -> None:
    assert two.world.lose("right", "left", 2) == 1
    two.send()
    two.run()
    assert (two.left.closed(), two.right.closed()) == ([], [])
    two.send(3)
    two.run()
    assert two.left.numbers() == []
    assert len(two.left.closed()) == len(two.right.closed()) == 1


def test_a_connection_can_be_cut(two: Two) -> None:
    two.send()
    two.world.lose("right", "left")
    two.run()
    assert two.left.numbers() == []
    assert len(two.left.closed()) == len(two.right.closed()) == 1
    assert two.world.lose("right", "left") == 0


def test_frames_arrive_twice(two: Two) -> None:
    two.world.duplicate("right", "left", 2)
    two.send(2)
    two.send()
    two.run()
    assert two.left.numbers() == [1, 1, 2, 2, 3]


def test_a_delay_ends_and_nothing_overtakes(two: Two) -> None:
    with two.world.delay("left", "right", 20_000):
        two.send()
        two.run(us=1_000)
    two.send()
    two.run()
    assert two.left.received() == [(1_021_000, 1), (1_021_000, 2)]
    two.send()
    two.run()
    assert two.left.received()[-1] == (1_102_000, 3)


def test_links_and_machines_can_be_throttled(two: Two) -> None:
    with two.world.throttle(("left", "right"), bytes_per_s=1000):
        two.send()
        two.run(us=500_000)
    assert two.left.received()[0][0] > 1_010_000
    with two.world.throttle("right", messages_per_s=10):
        two.send(2)
        two.run(us=500_000)
    assert [at_us for at_us, _ in two.left.received()[1:]] == [1_601_000, 1_701_000]
    two.send()
    two.run()
    assert two.left.received()[-1][0] == 2_001_000


def test_what_cannot_be_is_refused(two: Two) -> None:
    with pytest.raises(ConfigurationError, match="at least 1"):
        two.world.throttle("left", messages_per_s=0)
    with pytest.raises(ConfigurationError, match="bytes per second only"):
        two.world.throttle(("left", "right"), messages_per_s=5)
    with pytest.raises(ConfigurationError, match="extra_us"):
        two.world.delay("left", "right", -1)

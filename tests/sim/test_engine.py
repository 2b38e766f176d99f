"""Does the engine do to any machine what it promises?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.errors import ConfigurationError
from braid.protocol.effects import Pause, Persist, ReadLog
from braid.protocol.inputs import Closed, Drain, LogRead, Opened, Persisted
from braid.protocol.log import KeepNeighbour
from braid.sim import LinkModel, NodeModel, World, stream
from braid.sim.loop import Loop
from tests.sim.toys import Toy, publication

if TYPE_CHECKING:
    from braid.sim import Birth


def pair(
    link: LinkModel | None = None, node: NodeModel | None = None, **options: Any
) -> tuple[World, Toy, Toy]:
    """Two toys with a connection that the second has opened; it is 1 s."""
    world = World(1, link=link or LinkModel(1000), **options)
    left, right = Toy(), Toy("left")
    world.add("left", lambda birth: left)
    world.add("right", lambda birth: right, node=node or NodeModel())
    world.run_until(1_000_000)
    left.happened.clear()
    right.happened.clear()
    return world, left, right


def tell(world: World, name: str) -> None:
    """Let a machine have a turn now."""
    world.host(name).report(Drain())


# Time.


@given(st.lists(st.integers(0, 50), max_size=60))
def test_occurrences_happen_in_the_order_of_time_and_then_of_scheduling(times: list[int]) -> None:
    loop = Loop()
    happened: list[tuple[int, int]] = []
    for place, at_us in enumerate(times):
        loop.schedule(at_us, happened.append, (at_us, place))
    loop.run_until(100)
    assert happened == sorted((at_us, place) for place, at_us in enumerate(times))
    assert loop.now_us == 100


def test_what_is_scheduled_for_now_happens_now_behind_everything_else() -> None:
    loop = Loop()
    happened: list[str] = []

    def first(_: object) -> None:
        happened.append("first")
        loop.schedule(3, happened.append, "for the past")
        loop.schedule(5, happened.append, "for now")

    loop.schedule(5, first)
    loop.schedule(5, happened.append, "second")
    assert loop.run_until(5) == 4
    assert happened == ["first", "second", "for the past", "for now"]


@pytest.mark.parametrize("steps", [False, True])
def test_one_that_fails_takes_nobody_with_it(steps: bool) -> None:
    loop = Loop()
    happened: list[str] = []

    def fail(_: object) -> None:
        raise ValueError("as planned")

    for function in (happened.append, fail, happened.append, fail):
        loop.schedule(5, function, str(len(happened)))
    loop.schedule(6, happened.append, "later")
    failures = 0
    while loop.times:
        try:
            loop.step() if steps else loop.run_until(10)
        except ValueError:
            failures += 1
    assert failures == 2
    assert happened == ["0", "0", "later"]
    assert not loop.moments


def test_streams_have_nothing_to_do_with_each_other() -> None:
    assert stream(1, "loss").random() == stream(1, "loss").random()
    assert stream(1, "loss").random() != stream(1, "latency").random()
    assert stream(2, "loss").random() != stream(1, "loss").random()


def test_deadlines_are_met_and_may_move() -> None:
    world = World(1)
    toy = Toy(every_us=300)
    world.add("toy", lambda birth: toy)
    world.run_until(1000)
    assert toy.ticks == [0, 300, 600, 900]
    toy.deadline_us = 5000  # it moves away: the tick that was scheduled does nothing
    world.run_until(4000)
    assert toy.ticks[4:] == []
    world.run_until(5000)
    assert toy.ticks[4:] == [5000]


def test_a_deadline_that_is_always_past_does_not_stop_time() -> None:
    class Impatient(Toy):
        def next_deadline_us(self) -> int:
            return 0

    world = World(1)
    toy = Impatient()
    world.add("toy", lambda birth: toy)
    world.run_until(10)
    assert toy.ticks == list(range(11))


def test_a_machine_can_start_later() -> None:
    world = World(1)
    births: list[Birth] = []

    def make(birth: Birth) -> Toy:
        births.append(birth)
        return Toy()

    world.add("toy", make, at_us=500)
    with pytest.raises(ConfigurationError, match="is down"):
        world.machine("toy")
    world.run_until(500)
    assert [birth.incarnation for birth in births] == ["1.toy"]
    world.restart("toy")
    assert [birth.incarnation for birth in births] == ["1.toy", "2.toy"]
    assert births[0].seed != births[1].seed


# Connections.


def test_a_connection_takes_a_round_trip() -> None:
    world = World(1, link=LinkModel(700))
    left, right = Toy(), Toy("left")
    world.add("left", lambda birth: left)
    world.add("right", lambda birth: right)
    world.run_until(10_000)
    assert [at_us for at_us, _ in left.happened] == [700]
    assert [at_us for at_us, _ in right.happened] == [1400]
    opened = right.happened[0][1]
    assert isinstance(opened, Opened)
    assert opened.dialled == "left"


def test_nobody_answers_where_nobody_is() -> None:
    world = World(1)
    toy = Toy("nobody")
    world.add("toy", lambda birth: toy)
    world.run_until(10_000)
    assert [stimulus for _, stimulus in toy.happened] == [
        Closed(None, "no machine listens at nobody", "nobody")
    ]


def test_latency_may_depend_on_the_pair() -> None:
    world = World(1, latency_us=lambda source, target: 10 if source < target else 30)
    left, right = Toy(), Toy("left")
    world.add("left", lambda birth: left)
    world.add("right", lambda birth: right)
    world.run_until(1000)
    right.send(publication(1))
    tell(world, "right")
    world.run_until(2000)
    assert left.received() == [(1030, 1)]


def test_a_closed_connection_says_its_last_words_first() -> None:
    world, left, right = pair()
    right.send(publication(1), publication(2))
    right.close("enough")
    tell(world, "right")
    world.run_until(2_000_000)
    assert left.numbers() == [1, 2]
    assert left.closed() == [(1_001_000, "enough")]
    assert right.closed() == [(1_000_000, "enough")]


def test_a_paused_connection_is_read_later_and_in_order() -> None:
    world, left, right = pair()
    left.orders.append(Pause(left.connection, 50_000))
    tell(world, "left")
    for number in (1, 2):
        right.send(publication(number))
        tell(world, "right")
    right.close()
    tell(world, "right")
    world.run_until(2_000_000)
    assert left.received() == [(1_050_000, 1), (1_050_000, 2)]
    assert left.closed() == [(1_050_000, "enough")]


# Links.


def test_bandwidth_spreads_frames_and_asks_the_source_to_hold_back() -> None:
    world, left, right = pair(LinkModel(1000, bandwidth_bytes_per_s=100_000))
    right.send(*(publication(number, 10_000) for number in range(1, 11)))
    tell(world, "right")
    right.send(publication(11, 10_000))
    tell(world, "right")
    world.run_until(5_000_000)
    assert left.numbers() == list(range(1, 12))
    size = publication(1, 10_000).body.size  # type: ignore[union-attr]
    last_us = left.received()[-1][0]
    assert last_us == pytest.approx(1_001_000 + 11 * size * 10, rel=0.01)
    assert [writable for _, writable in right.writable()] == [False, True]


def test_loss_costs_time_but_neither_data_nor_order() -> None:
    world, left, right = pair(LinkModel(1000, loss=0.3))
    for number in range(1, 201):
        right.send(publication(number))
        tell(world, "right")
        world.run_for(us=10)
    world.run_for(seconds=10)
    assert left.numbers() == list(range(1, 201))
    late = [at_us for at_us, number in left.received() if at_us > 1_001_000 + 10 * number]
    assert late


@given(
    st.lists(st.tuples(st.integers(0, 3000), st.sampled_from(["send", "delay", "fast", "hold", "release"]))),
    st.sampled_from([None, 50_000]),
    st.booleans(),
)
def test_whatever_happens_to_a_connection_nothing_overtakes(
    steps: list[tuple[int, str]], bandwidth: int | None, codec: bool
) -> None:
    world, left, right = pair(LinkModel(500, bandwidth, 0.1), codec=codec)
    sent = 0
    for pause_us, step in steps:
        if step == "send":
            sent += 1
            right.send(publication(sent))
            tell(world, "right")
        elif step == "delay":
            world.delay("left", "right", 2000)
        elif step == "fast":
            world.delay("left", "right", 0)
        elif step == "hold":
            world.hold("left", "right")
        else:
            world.release("left", "right")
        world.run_for(us=pause_us)
    world.release("left", "right")
    world.run_for(seconds=60)
    assert left.numbers() == list(range(1, sent + 1))


def test_a_link_of_its_own() -> None:
    world = World(1)
    left, right = Toy(), Toy("left")
    world.set_link("left", "right", LinkModel(5))
    world.add("left", lambda birth: left)
    world.add("right", lambda birth: right)
    world.run_until(100)
    assert [at_us for at_us, _ in right.happened] == [10]


# Nodes.


def test_processing_takes_time_one_message_after_the_other() -> None:
    world = World(1, link=LinkModel(1000))
    left, right = Toy(), Toy("left")
    world.add("left", lambda birth: left, node=NodeModel(cost_us={"publication": 400}))
    world.add("right", lambda birth: right)
    world.run_until(1_000_000)
    for number in range(1, 4):
        right.send(publication(number))
        tell(world, "right")
    right.close()
    tell(world, "right")
    world.run_until(2_000_000)
    assert left.received() == [(1_001_400, 1), (1_001_800, 2), (1_002_200, 3)]
    assert left.closed() == [(1_002_200, "enough")]
    assert world.host("left").busy_us == 1200


def test_an_uplink_lets_so_many_messages_out_and_the_rest_waits_in_the_machine() -> None:
    world, left, right = pair(node=NodeModel(uplink_messages_per_s=1000))
    right.send(*(publication(number) for number in range(1, 21)))
    tell(world, "right")
    world.run_until(2_000_000)
    assert [at_us for at_us, _ in left.received()] == [1_001_000 + 1000 * number for number in range(1, 21)]
    assert [writable for _, writable in right.writable()] == [False, True]
    assert world.host("right").uplink is not None
    assert world.host("right").uplink.busy_us == 20_000  # type: ignore[union-attr]


def test_connections_share_an_uplink_in_turns() -> None:
    world = World(1)
    toys = {"hub": Toy(), "one": Toy("hub"), "two": Toy("hub")}
    world.add("hub", lambda birth: toys["hub"], node=NodeModel(uplink_bytes_per_s=1_000_000))
    for name in ("one", "two"):
        world.add(name, lambda birth, name=name: toys[name])
    world.run_until(1_000_000)
    hub = toys["hub"]
    connections = [each.connection for _, each in hub.happened if isinstance(each, Opened)]
    for connection in connections:
        hub.connection = connection
        hub.send(*(publication(number, 1000) for number in range(1, 6)))
    tell(world, "hub")
    world.run_until(2_000_000)
    arrivals = sorted([*toys["one"].received(), *toys["two"].received()])
    assert [number for _, number in arrivals] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


def test_an_uplink_of_an_odd_rate_keeps_its_rate() -> None:
    world, left, right = pair(node=NodeModel(uplink_messages_per_s=7))
    right.send(*(publication(number) for number in range(1, 71)))
    tell(world, "right")
    world.run_for(seconds=20)
    assert left.received()[-1][0] == 1_001_000 + 10_000_000


# The store.


def test_the_store_takes_its_time_and_outlives_its_machine() -> None:
    world = World(1)
    births: list[Birth] = []
    toys: list[Toy] = []

    def make(birth: Birth) -> Toy:
        births.append(birth)
        toys.append(Toy())
        return toys[-1]

    world.add("toy", make, store=True, node=NodeModel(store_latency_us=50))
    toys[0].persist(Persist(7, [KeepNeighbour("other", "there")]))
    toys[0].persist(ReadLog(8, "nothing", 0, None, 100))
    tell(world, "toy")
    world.run_until(1000)
    answers = [(at_us, each) for at_us, each in toys[0].happened if isinstance(each, Persisted | LogRead)]
    assert answers[0] == (50, Persisted(7))
    assert answers[1][0] == 100
    assert isinstance(answers[1][1], LogRead)
    assert answers[1][1].error
    world.restart("toy")
    assert births[1].store is not None
    assert births[1].store.neighbours == (("other", "there"),)
    world.restart("toy", keep_store=False)
    assert births[2].store is not None
    assert births[2].store.neighbours == ()


def test_without_a_store_nothing_is_kept_and_it_is_said() -> None:
    world = World(1)
    toy = Toy()
    world.add("toy", lambda birth: toy)
    toy.persist(Persist(7, []))
    tell(world, "toy")
    world.run_until(1000)
    assert [each for _, each in toy.happened if isinstance(each, Persisted)] == [
        Persisted(7, "there is no store")
    ]


def test_store_work_of_a_crashed_machine_is_done_up_to_some_point() -> None:
    kept = set()
    for seed in range(20):
        world = World(seed)
        toy = Toy()
        world.add("toy", lambda birth, toy=toy: toy, store=True)
        for number in range(3):
            toy.persist(Persist(number, [KeepNeighbour(f"n{number}", "there")]))
        tell(world, "toy")
        world.crash("toy")
        store = world.host("toy").store
        assert store is not None
        names = [name for name, _ in store.state().neighbours]
        assert names == [f"n{number}" for number in range(len(names))]
        kept.add(len(names))
    assert kept == {0, 1, 2, 3}


# Bad input.


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LinkModel(-1), "latency_us"),
        (lambda: LinkModel(bandwidth_bytes_per_s=0), "bandwidth_bytes_per_s"),
        (lambda: LinkModel(loss=1.0), "loss"),
        (lambda: NodeModel(cost_us=-1), "cost_us"),
        (lambda: NodeModel(cost_us={"ping": -1}), "cost_us"),
        (lambda: NodeModel(uplink_messages_per_s=0), "uplink_messages_per_s"),
        (lambda: NodeModel(uplink_messages_per_s=1, uplink_bytes_per_s=1), "not in both"),
        (lambda: NodeModel(store_latency_us=-1), "store_latency_us"),
    ],
)
def test_impossible_models_are_refused(make: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make()


def test_names_are_unlike_and_known() -> None:
    world = World(1)
    world.add("toy", lambda birth: Toy())
    with pytest.raises(ConfigurationError, match="already"):
        world.add("toy", lambda birth: Toy())
    with pytest.raises(ConfigurationError, match="no machine called 'other'"):
        world.partition("toy", "other")
    with pytest.raises(ConfigurationError, match="both sides"):
        world.partition("toy", ["toy"])
    world.crash("toy")
    with pytest.raises(ConfigurationError, match="down already"):
        world.crash("toy")

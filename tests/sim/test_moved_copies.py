"""Do rows that were confirmed outlive a disk, whatever operations have done to the tree before?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from braid.language import Filter
from braid.sim import FullClient
from tests.sim.shift_worlds import ShiftWorld

if TYPE_CHECKING:
    from braid.broker.core import BrokerCore

UNTIL_US = 6_000_000


class CopyingClient(FullClient):
    """Its durable subscriptions are copied to a neighbour."""

    def _ask(self, key: str, text: str) -> None:
        interest = self.session.requests.subscribe_durable(
            key, Filter(text), "block", 1000, takeover=True, copies=1
        )
        self._interests[key] = interest
        self._keys[interest.number] = key


def keeper_at(run: ShiftWorld, name: str) -> str:
    core: BrokerCore = run.world.machine(name)
    (log,) = core._durables.logs.values()
    assert log.copying is not None
    return log.copying.keeper


@pytest.mark.parametrize(("seed", "how"), [(0, ""), (1, "precopy")])
def test_what_was_confirmed_amid_operations_outlives_the_disk(seed: int, how: str) -> None:
    """Operations take the keeper away again and again, amid publications; then the owner's disk is lost."""
    run = ShiftWorld(
        seed,
        links=[("J", "I"), ("K", "J"), ("M", "J"), ("X", "I"), ("Y", "K")],
        how=how,
        latency_us=5_000,
        until_us=UNTIL_US,
    )
    world = run.world
    reader = CopyingClient("reader", ["J"], durables={"log": "n >= 0"}, acknowledge_every=10**9)
    world.admit(reader)
    writers = [world.admit(FullClient(f"writer {name}", [name])) for name in "JYX"]
    world.run_for(seconds=2)
    published = 0

    def publish() -> None:
        nonlocal published
        for writer in writers:
            writer.publish({"n": published})
            published += 1
        if world.now_us < UNTIL_US:
            world.at(world.now_us + 25_000, publish)

    publish()
    keepers = []
    for _ in range(4):
        keeper = keeper_at(run, "J")
        keepers.append(keeper)
        moves = [each for each in run.possible() if set(each[:2]) == {keeper, "J"}]
        answer: dict[str, Any] = run.shift(*run.chance.choice(moves))
        assert answer.get("outcome") == "finished", answer
        world.run_for(us=run.chance.choice([0, 20_000, 400_000]))
    assert len(set(keepers)) > 1
    world.run_until(UNTIL_US)
    world.run_until_quiet()
    safe = {each for writer in writers for each in writer.safe}
    assert len(safe) == published
    kept = [name for name in run.names if any(log.origin for log in world.host(name).store.state().logs)]
    assert kept == [keeper_at(run, "J")], "one copy is enough"
    world.restart("J", keep_store=False)
    world.crash("reader")
    world.restart("reader")
    world.run_for(seconds=10)
    world.run_until_quiet()
    again = [row for row in reader.rows["log"] if row.life == reader.lives]
    assert {(row.publisher, row.sequence) for row in again} == safe
    assert [row.offset for row in again] == [*range(published)]

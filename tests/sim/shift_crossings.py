"""Worlds in which something is under way on every link, in both directions, while a broker changes its place.

Each reader wants what nobody else wants, so that no entry of a table stands in for another one, and each
writer publishes for all readers in turn. Queues are small and links are slow: whatever an operation forgets,
resumes too early or lets go is missed by somebody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from braid.protocol import ChannelSettings
from braid.reconfiguration import Shift
from braid.sim import Station
from tests.sim.shift_worlds import ShiftWorld

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from braid.protocol.effects import Progress
    from braid.sim import World

__all__ = ["PATH", "Crossing"]

LINKS = [("I", "J"), ("K", "J"), ("X", "I"), ("M", "J"), ("Y", "K")]
PATH = ("I", "J", "K")
LATENCY_US = 10_000
QUEUE_BYTES = 64 * 1024
BEGIN_US = 5_000_000
END_US = 5_600_000


class Crossing:
    """One SHIFT in such a world.

    Args:
        seed: of the world.
        acknowledged: publish with acknowledged delivery.
        slow: two brokers between which messages take ten times as long, so that the others are ahead of them.
        writers: the brokers at which somebody publishes.
        window_bytes: what may be under way on a link; what is more waits in its queue.
        period_us: between two publications of a writer.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        acknowledged: bool = False,
        slow: str = "",
        writers: str = "IJKXMY",
        window_bytes: int = QUEUE_BYTES,
        period_us: int = 700,
        how: str = "three-phase",
    ) -> None:
        self.run = run = ShiftWorld(
            seed,
            links=LINKS,
            latency_us=LATENCY_US,
            slow=slow,
            link=ChannelSettings(window_bytes=window_bytes),
            how=how,
        )
        self.world: World = run.world
        self._faulty = False
        self._struck: dict[tuple[str, str], Callable[[World], None]] = {}
        for name in run.names:
            run.subscribe(f"reader {name}", name, [("own", f"kind = '{name}'")])
        for number, name in enumerate(writers):
            station = Station(
                f"writer {name}",
                name,
                publications=self._publications(number, period_us),
                acknowledged=acknowledged,
                window_bytes=QUEUE_BYTES,
            )
            run.publishers.add(name)
            self.world.attach(station)
        self.world.run_until(BEGIN_US - 200_000)
        self.world.on_progress = self._progressed

    def _publications(self, number: int, period_us: int) -> Iterator[tuple[int, dict[str, Any]]]:
        names = self.run.names
        at_us = BEGIN_US - 400_000 + number
        turn = number
        while at_us < END_US:
            at_us += period_us
            turn += 1
            yield at_us, {"kind": names[turn % len(names)], "price": turn % 100}

    def when(self, broker: str, phase: str, strike: Callable[[World], None]) -> None:
        """Have something done right after a broker comes to a phase of the operation."""
        self._faulty = True
        self._struck[broker, phase] = strike

    def _progressed(self, at_us: int, name: str, progress: Progress) -> None:
        strike = self._struck.pop((name, progress.phase), None)
        if strike is not None:
            self.world.at(at_us + 1, lambda: strike(self.world))

    def go(self) -> None:
        """Run it.

        Raises:
            AssertionError: it did not work, or something is not as it must be.
            InvariantViolated: somebody missed something, or got it twice or out of order.
        """
        run, world = self.run, self.world
        world.run_until(BEGIN_US)
        answer = run.shift(*PATH)
        assert self._faulty or answer.get("outcome") == "finished", answer
        self._subscribe_and_publish()
        world.run_for(seconds=1)
        world.run_until_quiet()
        if answer.get("outcome") != "finished" and self._moved():
            run.tree = Shift(*PATH).apply(run.tree)
        assert not self._struck, f"never came: {sorted(self._struck)}"
        run.require()

    def _moved(self) -> bool:
        return any(link.name == "K" for link in self.world.machine("I").snapshot().links)

    def _subscribe_and_publish(self) -> None:
        """Somebody publishes from the very answer on, for a reader whose subscription stands since then."""
        run = self.run
        writers = sorted(run.publishers)
        for number, place in enumerate("XMY"):
            reader = run.subscribe(f"late reader {place}", place, [("late", f"late = '{place}'")])
            run.wait(lambda reader=reader: reader.connected and not reader.asking)
            writer = self.world.station(f"writer {writers[number % len(writers)]}")
            for price in range(10):
                writer.publish({"late": place, "price": price})
